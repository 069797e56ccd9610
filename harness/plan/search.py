"""The largest batch that trains: which one to probe next, and what those get who are to be measured at it. Pure functions of the records.

A batch is doubled until there is no room for it, then bisected. Arms that are to be measured at their largest batch wait until it has been found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.model import LARGEST, Contrast, Plan, Process, Reason, RoundRecord, Search, State, Trial

SIZE = "batch"
"""The size that can be searched for."""

MEASURE = "largest_batch"
"""The measure of a case that asks for it."""

PROBES = 8
"""So many a search usually takes, for the plan's estimate of its time."""

BROKEN = 2
"""So many failures, for another reason than memory and with nothing that worked before them, end a search."""


def next_value(search: Search, records: Sequence[RoundRecord], trial: str) -> int | Reason:
    """Return the value to probe next, or why none is left to probe: `found`, `nothing_fits`, or the reason of a trial that fails whatever its size."""
    works, fails = search.limits(records, trial)
    lost = [record.outcome for record in records if record.outcome.state in {State.FAILED, State.INVALID}]
    if not works and len(lost) >= BROKEN:
        return lost[-1].reason or Reason("failed", "failed twice before any size had worked")
    if fails is None:
        if works >= search.most:
            return Reason("found", f"{search.size} {works} works, and more is not tried", {search.size: works})
        return min(2 * works or search.start, search.most)
    if not works:
        return fails // 2 or Reason("nothing_fits", f"there is no room even for {search.size} 1")
    if fails - works <= max(1.0, works * search.precision):
        return Reason("found", f"{search.size} {works} works, {fails} does not", {search.size: works, "fails": fails})
    return (works + fails) // 2


def probe(trial: Trial, search: Search, value: int) -> Trial:
    """Return the trial with this value of the size that is searched for."""
    return replace(trial, processes=tuple(_sized(process, search.size, value) for process in trial.processes))


def searches_of(plan: Plan) -> dict[str, Contrast]:
    """Return the search for each cell that has one, by cell id."""
    return {trial.cell: contrast for contrast in plan.contrasts if contrast.search is not None for trial in contrast.trials}


def wants_largest(trial: Trial) -> bool:
    """Whether a trial is to be measured at the largest batch."""
    return any(process.settings.get(SIZE) == LARGEST for process in trial.processes)


def with_largest(contrast: Contrast, searches: Mapping[str, Contrast], records: Mapping[str, Sequence[RoundRecord]]) -> Contrast | Reason | None:
    """Return the contrast with every largest batch filled in; None while a search for one goes on, a reason where it found none.

    `records` are those so far, by contrast. Searches themselves, and contrasts that want none, come back as they are.
    """
    if contrast.search is not None or not any(wants_largest(trial) for trial in contrast.trials):
        return contrast
    trials = []
    for trial in contrast.trials:
        found = _found(trial, searches, records)
        if not isinstance(found, Trial):
            return found
        trials.append(found)
    return replace(contrast, trials=tuple(trials))


def _found(trial: Trial, searches: Mapping[str, Contrast], records: Mapping[str, Sequence[RoundRecord]]) -> Trial | Reason | None:
    if not wants_largest(trial):
        return trial
    contrast = searches.get(trial.cell)
    if contrast is None or contrast.search is None:
        return Reason("no_search", f"its largest {SIZE} was to be found, but no search for it is planned")
    mine: Sequence[RoundRecord] = records.get(contrast.id, ())
    answer = next_value(contrast.search, mine, contrast.trials[0].id)
    if not isinstance(answer, Reason):
        return None
    works, _ = contrast.search.limits(mine, contrast.trials[0].id)
    return probe(trial, contrast.search, works) if works else answer


def _sized(process: Process, size: str, value: int) -> Process:
    return replace(process, settings={**process.settings, size: value})
