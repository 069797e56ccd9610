"""Training that goes on for a time, as one job: does a machine do at the end what it did at the beginning?

The job tells each `part` of about ten seconds between two syncs, and the parts at both ends together as `window_first` and `window_last`: the work, and
when it was done. What the cards did in a window (clocks, power, temperature) is read beside it, by those spans.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from benchmarks.contract import Event, Workload
from benchmarks.training import Training, make, refuse_saves
from harness.errors import ConfigError

PART_S, LEAST_PARTS = 10.0, 6
"""How long a part lasts, and into how many parts a shorter job is divided."""
APART = 3
"""A window takes at most this part of the whole, so that first and last are apart."""
_RATED_STEPS, _RATED_SHARE = 3, 0.05  # a step is rated by so many at least, and for so much of the time that the job lasts


@dataclass(frozen=True)
class Part:
    """Steps between two syncs. Stamps are of `time.perf_counter_ns`."""

    t0_ns: int
    t1_ns: int
    steps: int
    work: float


class Soak(Workload):
    """A training step, again and again. Attributes may be looked at, not changed."""

    def __init__(self, training: Training, lasts_s: float, window_s: float) -> None:
        self.training, self.lasts_s = training, lasts_s
        self.window_s = min(window_s, lasts_s / APART)
        self.parts: list[Part] = []
        self._health: dict[str, Any] = {}

    def job(self, tell: Callable[[Event], None]) -> None:
        """Train until the time is over and tell of parts, windows and the whole. Raises ConfigError where the steps are too long for the time."""
        step_s = self._step_s()
        traces = self.training.traces()
        steps = max(1, round(min(PART_S, self.lasts_s / LEAST_PARTS) / step_s))
        until_ns = time.perf_counter_ns() + round(self.lasts_s * 1e9)
        while time.perf_counter_ns() < until_ns:
            part = self._part(steps)
            self.parts.append(part)
            self._note_losses()
            tell(_event("part", [part]))
            if part.steps < steps:  # the input has no further batch
                break
        if len(self.parts) < APART:
            text = f"lasts_s={self.lasts_s:g} held {len(self.parts)} parts of {steps} steps, of which no first and last can be told apart"
            raise ConfigError(f"{text}; let it go on for {APART * steps * step_s:.0f} s or more")
        first, last = ends(self.parts, self.window_s)
        tell(_event("window_first", first))
        tell(_event("window_last", last))
        tell(_event("job", self.parts))
        tell(Event("timed_traces", self.training.traces() - traces, "traces", self.parts[0].t0_ns, self.parts[-1].t1_ns))

    def _step_s(self) -> float:
        """Trace, warm up, and return how long a step takes (s)."""
        self.training.trace()
        self.training.run(1)
        rated: list[Part] = []
        while len(rated) < _RATED_STEPS or rated[-1].t1_ns - rated[0].t0_ns < _RATED_SHARE * self.lasts_s * 1e9:
            rated.append(self._part(1))
        return (rated[-1].t1_ns - rated[0].t0_ns) / 1e9 / len(rated)

    def _part(self, steps: int) -> Part:
        _sync()
        t0_ns = time.perf_counter_ns()
        tally = self.training.run(steps)
        _sync()
        return Part(t0_ns, time.perf_counter_ns(), tally.steps, tally.work)

    def _note_losses(self) -> None:
        """Take over the losses since the last time, so that none is forgotten before it was looked at; the first that was no number stays."""
        told = self.training.health()
        if told and self._health.get("finite") is not False:
            self._health = told

    # -- the instrument's calls

    def traces(self) -> int:
        return self.training.traces()

    def facts(self) -> dict[str, Any]:
        return {
            **self.training.facts(),
            "parts": len(self.parts),
            "steps_done": sum(part.steps for part in self.parts),
            "window_lasts_s": self.window_s,
        }

    def health(self) -> dict[str, Any]:
        return dict(self._health)

    def close(self) -> None:
        self.training.close()


def ends(parts: Sequence[Part], window_s: float) -> tuple[list[Part], list[Part]]:
    """Return the parts that lie wholly in the first and in the last `window_s` seconds; at least one each."""
    start_ns, end_ns, window_ns = parts[0].t0_ns, parts[-1].t1_ns, window_s * 1e9
    first = [part for part in parts if part.t1_ns - start_ns <= window_ns]
    last = [part for part in parts if end_ns - part.t0_ns <= window_ns]
    return first or list(parts[:1]), last or list(parts[-1:])


def build(**settings: Any) -> Soak:
    """Build the job: what `benchmarks.training:build` takes, `lasts_s` (600), how long it goes on, and `window_s` (300), how long first and last are at
    most: no longer than a third of the whole. Raises ConfigError for times that are none, and as training does."""
    refuse_saves(settings, "training that goes on for a time is not saved")
    given = {name: value for name, value in settings.items() if value is not None}
    lasts_s, window_s = float(given.get("lasts_s", 600)), float(given.get("window_s", 300))
    for name, value in (("lasts_s", lasts_s), ("window_s", window_s)):
        if not value > 0:
            raise ConfigError(f"{name}={value:g} is no time; it must be above 0 (seconds)")
    return Soak(make(settings), lasts_s, window_s)


def _event(name: str, parts: Sequence[Part]) -> Event:
    steps, work = sum(part.steps for part in parts), sum(part.work for part in parts)
    return Event(name, work, "samples", parts[0].t0_ns, parts[-1].t1_ns, steps)


def _sync() -> None:
    tf.test.experimental.sync_devices()
