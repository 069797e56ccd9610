"""The loop of a training job that is saved on the way, with a clock of its own: saves hold up single steps of one loop.

Every stretch that it times begins and ends with a device sync. What is trained, and how a save is verified, is the job's affair.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.contract import Event
from benchmarks.durability import Watcher, save_failed
from benchmarks.training import Training

Tell = Callable[[Event], None]

_GRACE_S = 5.0  # for writing through what the library finished at its deadline
_RATED_STEPS, _RATED_S = 3, 2.0  # an interval in seconds is turned into steps by the mean of at least so many steps and seconds


@dataclass(frozen=True)
class Saves:
    """How a job saves: `state` name -> variable, with TensorFlow's `options`, into `folder`; `needed_bytes` is what one checkpoint takes at least.

    `deadline_s`: how long a save may take until it is durable. `digests` is asked for what is about to be saved, to compare with later.
    """

    folder: Path
    state: Mapping[str, Any]
    options: Any
    needed_bytes: int
    deadline_s: float
    digests: Callable[[], Mapping[str, str]]

    @property
    def in_background(self) -> bool:
        """Whether a save may still be written when its call has returned."""
        return self.options is not None and bool(self.options.enable_async)


@dataclass(frozen=True)
class Saved:
    """A save as it must come back: its number from 1, its path without endings, and a digest of every value when it was called."""

    number: int
    prefix: str
    digests: Mapping[str, str]


def save_points(steps: int, interval: int) -> list[int]:
    """Return after which steps the saves come: one in the middle of each whole interval, so that each has steps beside it."""
    return [(interval + 1) // 2 + interval * number for number in range(steps // interval)]


class Loop:
    """One run through a job's steps. Its clock stands still in pauses; without `saves` it pauses at the same steps.

    `note_losses` is called in every pause, before losses would be forgotten. Attributes may be looked at: `warm_steps` that were run before the clock
    was started, and `done` steps since.
    """

    def __init__(self, training: Training, saves: Saves | None, tell: Tell, note_losses: Callable[[], None]) -> None:
        self.training, self.saves, self.tell, self._note_losses = training, saves, tell, note_losses
        self.warm_steps = self.done = 0
        self._t0_ns = self._t1_ns = self._paused_ns = 0
        self._input: dict[str, tuple[float, str]] = {}
        self._saved: list[Saved] = []
        self._in_flight: list[Watcher] = []
        if saves is not None:
            self._checkpoint = tf.train.Checkpoint(**saves.state)
            self._manager = tf.train.CheckpointManager(self._checkpoint, str(saves.folder), max_to_keep=None)

    def warm_up(self) -> None:
        """Trace the step and run it once."""
        self.training.trace()
        self.warm_steps += self.training.run(1).steps

    def step_s(self) -> float:
        """Return how long a warm step takes here, from a few of them."""
        _sync()
        began_ns, steps, seconds = time.perf_counter_ns(), 0, 0.0
        while steps < _RATED_STEPS or seconds < _RATED_S:
            self.training.run(1)
            _sync()
            steps += 1
            seconds = (time.perf_counter_ns() - began_ns) / 1e9
        self.warm_steps += steps
        return seconds / steps

    def run(self, steps: int, interval: int) -> None:
        """Do `steps` steps with a save in every `interval` of them. Raises CheckpointError for a save that failed."""
        _sync()
        self._t0_ns = time.perf_counter_ns()
        with suppress(_RanDryError):  # the event "job" then tells how many steps there were
            for number, point in enumerate(save_points(steps, interval), 1):
                self._steps_until(point)
                with self._pause(number):
                    self._note_losses()
                    digests = self.saves.digests() if self.saves else {}
                if self.saves:
                    self._save(self.saves, number, digests)
            self._steps_until(steps)
        _sync()
        self._t1_ns = time.perf_counter_ns()

    def finish(self) -> list[Saved]:
        """Wait until every save is durable, and return them all; raises CheckpointError for one that does not become it in time."""
        if self._in_flight:
            # TensorFlow waits without a limit; a thread of its own bounds it.
            waiting = threading.Thread(target=self._checkpoint.sync, name="wait for the last save", daemon=True)
            waiting.start()
            waiting.join(self._in_flight[-1].remaining_s())
            if not waiting.is_alive():
                self._writing_is_over()
        while self._in_flight:
            watcher = self._in_flight[0]
            watcher.finished.wait(watcher.remaining_s() + _GRACE_S)
            self._settle()
        return self._saved

    def conclude(self) -> None:
        """Tell of the loop as a whole."""
        seconds, span = (self._t1_ns - self._t0_ns - self._paused_ns) / 1e9, (self._t0_ns, self._t1_ns)
        for name, (value, unit) in self._input.items():
            self._told(name, value, unit, span, self.done)
        self._told("job", self.done * self.training.batch, "samples", span, self.done)
        self._told("end_to_end_s", seconds, "s", span, self.done)
        if self.done:
            self._told("end_to_end_step_s", seconds / self.done, "s", span, self.done)
            # The span of "job" holds the pauses too, so that it is no time to divide by.
            self._told("job_rate", self.done * self.training.batch / seconds, "samples/s", span, self.done)

    def give_up(self) -> None:
        """Stop watching saves; for after a failure."""
        for watcher in self._in_flight:
            watcher.give_up()

    # -- steps

    def _steps_until(self, last: int) -> None:
        """Do the steps up to `last`: one at a time while a save is on its way to the storage, then the others in one stretch."""
        first, spans = self.done + 1, []
        while self.done < last and self._saving():
            spans.append(self._stretch(1))
        if spans:
            mean_s = sum(t1 - t0 for t0, t1 in spans) / len(spans) / 1e9
            self._told("overlap_step_s", mean_s, "s", (spans[0][0], spans[-1][1]), first)
        if self.done < last:
            first, steps = self.done + 1, last - self.done
            t0_ns, t1_ns = self._stretch(steps)
            self._told("clear_step_s", (t1_ns - t0_ns) / steps / 1e9, "s", (t0_ns, t1_ns), first)

    def _stretch(self, steps: int) -> tuple[int, int]:
        """Run `steps` steps between two syncs; returns when it began and ended (ns)."""
        _sync()
        t0_ns = time.perf_counter_ns()
        tally = self.training.run(steps)
        _sync()
        t1_ns = time.perf_counter_ns()
        self.done += tally.steps
        for name, value, unit in tally.events:
            # Waits add up; what else an input tells, such as how many files it leaves out, holds for all of it.
            self._input[name] = (value + (self._input[name][0] if name == "input_wait_s" and name in self._input else 0.0), unit)
        if tally.steps < steps:
            raise _RanDryError
        return t0_ns, t1_ns

    @contextmanager
    def _pause(self, number: int) -> Iterator[None]:
        """Stop the loop's clock for what training would not do. A save that is still on its way goes on meanwhile."""
        t0_ns = time.perf_counter_ns()
        yield
        t1_ns = time.perf_counter_ns()
        self._paused_ns += t1_ns - t0_ns
        self._told("verify_pause_s", (t1_ns - t0_ns) / 1e9, "s", (t0_ns, t1_ns), number)

    # -- saves

    def _save(self, saves: Saves, number: int, digests: Mapping[str, str]) -> None:
        _sync()
        t0_ns = time.perf_counter_ns()
        try:
            prefix = os.fspath(self._manager.save(options=saves.options))
        except (tf.errors.OpError, OSError) as error:
            # A background save's error comes up in the call after it.
            guilty = self._in_flight[0].number if saves.in_background and self._in_flight else number
            raise self._failed(guilty, error) from error
        t1_ns = time.perf_counter_ns()
        self._told("blocked_first_s" if number == 1 else "blocked_s", (t1_ns - t0_ns) / 1e9, "s", (t0_ns, t1_ns), number)
        self._writing_is_over()  # TensorFlow begins a save when the one before it is written
        watcher = Watcher(prefix, number, t0_ns, saves.deadline_s)
        if not saves.in_background:
            watcher.writing_is_over()
        watcher.start()
        self._in_flight.append(watcher)
        self._saved.append(Saved(number, prefix, digests))

    def _writing_is_over(self) -> None:
        for watcher in self._in_flight:
            watcher.writing_is_over()

    def _saving(self) -> bool:
        """Whether a save is not durable yet; tells of those that have become it."""
        while self._in_flight and self._in_flight[0].finished.is_set():
            self._settle()
        return bool(self._in_flight)

    def _settle(self) -> None:
        """Take the oldest save off the list: tell when it was durable, or raise what came in its way."""
        watcher = self._in_flight.pop(0)
        if watcher.durable_ns is None or watcher.save_bytes is None:
            watcher.give_up()
            error = watcher.error or TimeoutError(f"its files were not written through within {watcher.deadline_s:g} s")
            raise self._failed(watcher.number, error) from error
        seconds, span = (watcher.durable_ns - watcher.called_ns) / 1e9, (watcher.called_ns, watcher.durable_ns)
        self._told("durable_first_s" if watcher.number == 1 else "durable_s", seconds, "s", span, watcher.number)
        self._told("save_bytes", watcher.save_bytes, "bytes", span, watcher.number)

    def _failed(self, number: int, error: BaseException) -> Exception:
        assert self.saves is not None
        return save_failed(self.saves.folder, number, self.saves.needed_bytes, error)

    def _told(self, name: str, value: float, unit: str, span: tuple[int, int], step: int) -> None:
        self.tell(Event(name, value, unit, *span, step))


class _RanDryError(Exception):
    """The input had no further batch."""


def _sync() -> None:
    tf.test.experimental.sync_devices()
