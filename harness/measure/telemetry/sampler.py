"""A thread that asks readers for samples beside a session. Whatever happens to it, the session goes on: what was not sampled is counted instead.

It knows when to ask, not what: readers bring the samples, and whoever started it decides where they go.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.measure.telemetry.provider import Reader, Sample

JOIN_S = 5.0
"""A question to a card that has just been lost may hang in the driver. After this long its thread is left behind."""

Take = Callable[[list[Sample]], None]
Clock = Callable[[], int]


@dataclass(frozen=True)
class Summary:
    """How the sampling of one reader's devices went between `start` and `stop`.

    `samples` counts how often the reader answered, `overruns` sampling times that went by while it or another was still busy, `errors` how often it
    raised, `untaken` how often what it said could not be handed on. `reason` is the last error, or why there is no sample.
    """

    devices: tuple[str, ...]
    period_s: float
    samples: int
    overruns: int
    errors: int
    untaken: int
    reason: str | None


@dataclass
class _Turn:
    """One reader's place in the schedule, and what came of it."""

    reader: Reader
    period_ns: int
    due_ns: int
    samples: int = 0
    overruns: int = 0
    errors: int = 0
    untaken: int = 0
    reason: str | None = None


class Course:
    """The sampling of one round: every reader is due at once and then at its own period; what comes of it goes to `take`.

    A null that only repeats the last word on that device and name is not handed on again: it stands until the name's next sample.
    """

    def __init__(self, readers: Sequence[Reader], take: Take, clock: Clock = time.perf_counter_ns) -> None:
        """`clock` gives nanoseconds and never goes back."""
        self._take = take
        self._clock = clock
        self._turns = [_Turn(reader, max(1, round(reader.period_s * 1e9)), clock()) for reader in readers]
        self._nulls: dict[tuple[str, str], str | None] = {}

    def tick(self) -> float:
        """Ask every reader that is due, and return for how many seconds there is nothing to do. A time that has gone by is not made up for."""
        for turn in self._turns:
            if turn.due_ns <= self._clock():
                self._ask(turn)
                missed = (self._clock() - turn.due_ns) // turn.period_ns
                turn.overruns += missed
                turn.due_ns += (missed + 1) * turn.period_ns
        next_ns = min(turn.due_ns for turn in self._turns) if self._turns else self._clock() + 10**9
        return max(0.0, (next_ns - self._clock()) / 1e9)

    def last(self) -> None:
        """Ask every reader once more, so that totals span the whole round."""
        for turn in self._turns:
            self._ask(turn)

    def run(self, ended: threading.Event) -> None:
        """Tick until `ended` is set, then ask for the last time."""
        while not ended.is_set():
            ended.wait(self.tick())
        self.last()

    def summaries(self, hung: str | None = None) -> tuple[Summary, ...]:
        """Return how it went, for each reader; `hung` says why it did not come to its end."""
        return tuple(
            Summary(turn.reader.devices, turn.period_ns / 1e9, turn.samples, turn.overruns, turn.errors, turn.untaken, hung or turn.reason)
            for turn in self._turns
        )

    def _ask(self, turn: _Turn) -> None:
        try:
            samples = list(self._fresh(turn.reader.sample()))
        except Exception as error:  # noqa: BLE001 (a reader's mistake must end neither the sampling of others nor the session)
            turn.errors += 1
            turn.reason = f"{type(error).__name__}: {error}"
            return
        turn.samples += 1
        try:
            self._take(samples)
        except Exception as error:  # noqa: BLE001 (a full disk is the session's to report; here it is counted)
            turn.untaken += 1
            turn.reason = f"{type(error).__name__}: {error}"

    def _fresh(self, samples: Sequence[Sample]) -> Iterator[Sample]:
        for given in samples:
            sample = given
            if given.value is not None and not math.isfinite(given.value):
                sample = given._replace(value=None, reason="no finite number")
            key = (sample.device, sample.name)
            if sample.value is None and key in self._nulls and self._nulls[key] == sample.reason:
                continue
            if sample.value is None:
                self._nulls[key] = sample.reason
            else:
                self._nulls.pop(key, None)
            yield sample


class Sampler:
    """Runs one course after another on a thread of its own."""

    def __init__(self, readers: Sequence[Reader], *, clock: Clock = time.perf_counter_ns) -> None:
        """`readers` are asked on the sampler's thread only, as long as it runs."""
        self._readers = tuple(readers)
        self._clock = clock
        self._course = Course((), _nowhere)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._runs = False

    @property
    def stuck(self) -> bool:
        """Whether a question has not come back; then the readers must not be used or closed."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, take: Take) -> None:
        """Begin to sample. `take` gets each batch, on the sampler's thread; it should not take long. While stuck, nothing is sampled."""
        self._course = Course(self._readers, take, self._clock)
        self._runs = not self.stuck
        if not self._runs:
            return
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._course.run, args=(self._ended,), name="telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> tuple[Summary, ...]:
        """End with one last sample of everything, and say how it went. Waits for at most JOIN_S."""
        self._ended.set()
        if self._thread is not None and self._runs:
            self._thread.join(JOIN_S)
        return self._course.summaries("a question to a device has not come back" if self.stuck else None)


def _nowhere(samples: list[Sample]) -> None:
    del samples
