"""The loop of a training job that is saved on the way, with a clock of its own: saves hold up single steps of one loop.

Every stretch that it times begins and ends with a device sync. Beside a save a stretch is one step, to see when the save is over. A sync after every
step keeps a device from going straight on with the next, so steps beside a save in the background are held against clear ones that are timed in the
same way. These come on top of the job's steps, while its clock stands still, so that they slow no job down that is compared with one without saves.
Beside a synchronous save, which only has to be written through yet, it is a step or two, and none are repeated for them.

What is trained, and how a save is verified, is the job's affair.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.contract import Event, Tally
from benchmarks.durability import Watcher, save_failed
from benchmarks.training import Training

Tell = Callable[[Event], None]

_GRACE_S = 5.0  # for writing through what the library finished at its deadline
_RATED_STEPS, _RATED_S = 3, 2.0  # an interval in seconds is turned into steps by the mean of at least so many steps and seconds
_MOST_SINGLE_STEPS = 10  # clear steps that are timed one by one for the same number beside a save; more of them tell little more


@dataclass(frozen=True)
class Saves:
    """How a job saves: `state` name -> variable, with TensorFlow's `options`, into `folder`; `needed_bytes` is what one checkpoint takes at least.

    `deadline_s`: how long a save may take until it is durable. `digests` is asked for what is about to be saved, to compare with later. `release`,
    where the storage would not hold all saves, is given each that has become durable, and makes room by it.
    """

    folder: Path
    state: Mapping[str, Any]
    options: Any
    needed_bytes: int
    deadline_s: float
    digests: Callable[[], Mapping[str, str]]
    release: Callable[[Saved], None] | None = None

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

    `note_losses` is called in every pause, before losses would be forgotten. Attributes may be looked at: `done` steps of the job, `uncounted` ones
    that were run for other ends (to warm up, to compare with), and whether the saves' folder could be written through (`folder_written`).
    """

    def __init__(self, training: Training, saves: Saves | None, tell: Tell, note_losses: Callable[[], None]) -> None:
        self.training, self.saves, self.tell, self._note_losses = training, saves, tell, note_losses
        self.uncounted = self.done = 0
        self.folder_written = True
        self._t0_ns = self._t1_ns = self._paused_ns = 0
        self._traces = 0
        self._owed = 0  # clear steps that are still to be timed one by one
        self._input: dict[str, tuple[float, str]] = {}
        self._saved: list[Saved] = []
        self._in_flight: list[Watcher] = []
        if saves is not None:
            self._checkpoint = tf.train.Checkpoint(**saves.state)
            self._manager = tf.train.CheckpointManager(self._checkpoint, str(saves.folder), max_to_keep=None)

    def warm_up(self) -> None:
        """Trace the step and run it once."""
        self.training.trace()
        self.uncounted += self.training.run(1).steps

    def step_s(self) -> float:
        """Return how long a warm step takes here, from a few of them."""
        _sync()
        began_ns, steps, seconds = time.perf_counter_ns(), 0, 0.0
        while steps < _RATED_STEPS or seconds < _RATED_S:
            self.training.run(1)
            _sync()
            steps += 1
            seconds = (time.perf_counter_ns() - began_ns) / 1e9
        self.uncounted += steps
        return seconds / steps

    def run(self, steps: int, interval: int) -> None:
        """Do `steps` steps with a save in every `interval` of them. Raises CheckpointError for a save that failed."""
        traces = self.training.traces()
        _sync()
        self._t0_ns = time.perf_counter_ns()
        with suppress(_RanDryError):  # the event "job" then tells how many steps there were
            for number, point in enumerate(save_points(steps, interval), 1):
                self._steps_until(point)
                with self._pause(number):
                    self._note_losses()
                    self._single_steps()
                    self._make_room()
                    digests = self.saves.digests() if self.saves else {}
                if self.saves:
                    self._save(self.saves, number, digests)
            self._steps_until(steps)
        _sync()
        self._t1_ns = time.perf_counter_ns()
        self._traces = self.training.traces() - traces

    def finish(self) -> list[Saved]:
        """Wait until every save is durable, and return those that are not released yet; raises CheckpointError for one that does not become durable in
        time."""
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
        self._note_losses()
        self._single_steps()
        return self._saved

    def conclude(self) -> None:
        """Tell of the loop as a whole."""
        seconds, span = (self._t1_ns - self._t0_ns - self._paused_ns) / 1e9, (self._t0_ns, self._t1_ns)
        for name, (value, unit) in self._input.items():
            self._told(name, value, unit, span, self.done)
        self._told("job", self.done * self.training.batch, "samples", span, self.done)
        self._told("timed_traces", self._traces, "traces", span, self.done)
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
        beside: dict[str, list[tuple[int, int, int]]] = {}
        while self.done < last and self._saving():
            # A first save is another thing, as long as it is under way: much of it is done once only.
            name = "overlap_first_step_s" if self._in_flight[0].number == 1 else "overlap_step_s"
            beside.setdefault(name, []).append((self.done + 1, *self._stretch(1)))
        for name, steps in beside.items():
            self._told_mean(name, steps)
        if self.saves is not None and self.saves.in_background:
            self._owed = min(self._owed + len(beside.get("overlap_step_s", [])), _MOST_SINGLE_STEPS)
        if self.done < last:
            first, steps_left = self.done + 1, last - self.done
            t0_ns, t1_ns = self._stretch(steps_left)
            self._told("clear_step_s", (t1_ns - t0_ns) / steps_left / 1e9, "s", (t0_ns, t1_ns), first)

    def _single_steps(self) -> None:
        """Time as many clear steps one by one as there were beside saves in the background since the last time. They are none of the job's, and its
        clock stands still; none are done while a save is still under way."""
        steps = []
        while self._owed and not self._saving():
            t0_ns, t1_ns, tally = self._timed(1)
            if not tally.steps:  # the input has run dry, which the job will notice
                break
            self.uncounted += 1
            self._owed -= 1
            steps.append((self.done, t0_ns, t1_ns))
        if steps:
            self._told_mean("clear_single_step_s", steps)

    def _stretch(self, steps: int) -> tuple[int, int]:
        """Run `steps` steps of the job; returns when they began and ended (ns)."""
        t0_ns, t1_ns, tally = self._timed(steps)
        self.done += tally.steps
        for name, value, unit in tally.events:
            # Waits add up; what else an input tells, such as how many files it leaves out, holds for all of it.
            self._input[name] = (value + (self._input[name][0] if name == "input_wait_s" and name in self._input else 0.0), unit)
        if tally.steps < steps:
            raise _RanDryError
        return t0_ns, t1_ns

    def _timed(self, steps: int) -> tuple[int, int, Tally]:
        """Run `steps` steps between two syncs; returns when that began and ended (ns), and what was done."""
        _sync()
        t0_ns = time.perf_counter_ns()
        tally = self.training.run(steps)
        _sync()
        return t0_ns, time.perf_counter_ns(), tally

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

    def _make_room(self) -> None:
        """Release the saves that are durable, where that is wanted."""
        if self.saves is None or self.saves.release is None:
            return
        self._saving()
        under_way = {watcher.number for watcher in self._in_flight}
        for save in [save for save in self._saved if save.number not in under_way]:
            self.saves.release(save)
            self._saved.remove(save)

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
        if watcher.durable_ns is None or watcher.written is None:
            watcher.give_up()
            error = watcher.error or TimeoutError(f"its files were not written through within {watcher.deadline_s:g} s")
            raise self._failed(watcher.number, error) from error
        seconds, span = (watcher.durable_ns - watcher.called_ns) / 1e9, (watcher.called_ns, watcher.durable_ns)
        self._told("durable_first_s" if watcher.number == 1 else "durable_s", seconds, "s", span, watcher.number)
        self._told("save_bytes", watcher.written.files_bytes, "bytes", span, watcher.number)
        self.folder_written = self.folder_written and watcher.written.folder

    def _failed(self, number: int, error: BaseException) -> Exception:
        assert self.saves is not None
        return save_failed(self.saves.folder, number, self.saves.needed_bytes, error)

    def _told_mean(self, name: str, steps: Sequence[tuple[int, int, int]]) -> None:
        """Tell the mean time of steps that were timed one by one: (number, began, ended) each."""
        mean_s = sum(t1_ns - t0_ns for _, t0_ns, t1_ns in steps) / len(steps) / 1e9
        self._told(name, mean_s, "s", (steps[0][1], steps[-1][2]), steps[0][0])

    def _told(self, name: str, value: float, unit: str, span: tuple[int, int], step: int) -> None:
        self.tell(Event(name, value, unit, *span, step))


class _RanDryError(Exception):
    """The input had no further batch."""


def _sync() -> None:
    tf.test.experimental.sync_devices()
