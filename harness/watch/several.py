"""Several watchers in place of one, and what all of them call the arms of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.report.index import short_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.measure.session import Progress
    from harness.measure.telemetry.provider import Sample
    from harness.model import Estimate, Plan, Round, RoundRecord
    from harness.run import Watcher

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Several:
    """Hands on whatever it is told, in the order of its watchers."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def round(self, round_: Round, done: int, time_left_s: float | None) -> None:
        """A round begins."""
        for watcher in self._watchers:
            watcher.round(round_, done, time_left_s)

    def tell(self, progress: Progress) -> None:
        """A session says how far it is."""
        for watcher in self._watchers:
            watcher.tell(progress)

    def sampled(self, samples: Sequence[Sample]) -> None:
        """The machine was sampled. Called on the sampler's thread."""
        for watcher in self._watchers:
            watcher.sampled(samples)

    def ended(self, record: RoundRecord) -> None:
        """A round has ended and is in the bundle."""
        for watcher in self._watchers:
            watcher.ended(record)

    def estimate(self, title: str, estimate: Estimate | None) -> None:
        """There is an estimate of a case."""
        for watcher in self._watchers:
            watcher.estimate(title, estimate)


def arms(plan: Plan | None, round_: Round) -> dict[str, tuple[str, str]]:
    """Return trial -> (letter, label). Letters follow the round's trials, as in its record; equal cells have equal labels."""
    cells = [plan.cells.get(trial.cell) for trial in round_.trials] if plan is not None else []
    known = [cell for cell in cells if cell is not None]
    labels = short_labels(known) if len(known) == len(round_.trials) else [trial.id for trial in round_.trials]
    return {trial.id: (letter, label) for trial, letter, label in zip(round_.trials, LETTERS, labels, strict=False)}
