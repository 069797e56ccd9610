"""A stand-in for accelerators that are not here: `build(**settings)`. A step takes a batch for every device, and then nobody's core for `step_ms`.

So the input side can be tested for a device of any speed: what is real is the pipeline, what is replayed is the time of a step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import numpy as np

from benchmarks.contract import Tally, Workload
from benchmarks.input import Batches, batches
from harness.errors import ConfigError

WAITING = 1
"""Batches that may wait in a device's queue while it computes, as with asynchronous dispatch one step ahead."""


class StandIn:
    """A device that computes without computing: each batch keeps it busy for `step_ns`. It takes a batch when it is free; WAITING more may wait."""

    def __init__(self, step_ns: int, now: Callable[[], int], sleep: Callable[[float], None]) -> None:
        self._step_ns, self._now, self._sleep = step_ns, now, sleep
        self._ends: deque[int] = deque()
        self._free_at = 0

    def take(self, since_ns: int) -> int:
        """Hand over a batch, waiting for room in the queue; returns for how many ns since `since_ns` the device had been idle before it."""
        while self._unfinished() > WAITING:
            self._sleep_until(self._ends[0])
        now = self._now()
        idle_ns = max(0, now - max(self._free_at, since_ns))
        self._free_at = max(now, self._free_at) + self._step_ns
        self._ends.append(self._free_at)
        return idle_ns

    def finish(self) -> None:
        """Return when the last batch is done."""
        self._sleep_until(self._free_at)

    def _unfinished(self) -> int:
        now = self._now()
        while self._ends and self._ends[0] <= now:
            self._ends.popleft()
        return len(self._ends)

    def _sleep_until(self, end_ns: int) -> None:
        while (left_ns := end_ns - self._now()) > 0:
            self._sleep(left_ns / 1e9)


class Replay(Workload):
    """Training with the computing left out. Work is in samples, of all devices together. Events of a run, both in seconds: `input_wait_s`, how long
    the host waited for the pipeline, and `device_idle_s`, how long a device sat idle for lack of input, averaged over the devices."""

    def __init__(
        self,
        settings: dict[str, Any],
        source: Iterator[Any],
        now: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings, self._source, self._now = settings, source, now
        self._devices = [StandIn(round(float(settings["step_ms"]) * 1e6), now, sleep) for _ in range(int(settings["devices"]))]

    def run(self, steps: int) -> Tally:
        began, waited_ns, idle_ns, done = self._now(), 0, 0, 0
        for step in range(steps * len(self._devices)):
            asked_at = self._now()
            batch = next(self._source, None)
            waited_ns += self._now() - asked_at
            if batch is None:
                break
            idle_ns += self._devices[step % len(self._devices)].take(began)
            done += 1
        steps_done, events = done // len(self._devices), getattr(self._source, "events", tuple)()
        samples = steps_done * len(self._devices) * int(self.settings["batch"])
        measured = (("input_wait_s", waited_ns / 1e9, "s"), ("device_idle_s", idle_ns / 1e9 / len(self._devices), "s"))
        return Tally(steps_done, samples, "samples", (*measured, *events))

    def sync(self) -> None:
        """Return when every device has done all that was handed to it."""
        for device in self._devices:
            device.finish()

    def facts(self) -> dict[str, Any]:
        from_pipeline = self._source.facts() if isinstance(self._source, Batches) else {}
        return {**from_pipeline, **{name: self.settings[name] for name in ("step_ms", "devices", "input", "batch", "image")}}


def build(**settings: Any) -> Replay:
    """Build the stand-in. Level: `input` synthetic (a batch in memory) or any pipeline but feed_dict. Sizes: `step_ms` (one device's step, 16), `devices` (1; each
    takes a batch of its own a step, all from one pipeline) and what `benchmarks.input` takes."""
    settings = {"input": "synthetic", "batch": 16, "image": 224, "seed": 0, **{k: v for k, v in settings.items() if v is not None}}
    settings = {"step_ms": 16, "devices": 1, **settings}
    if float(settings["step_ms"]) < 0 or int(settings["devices"]) < 1:
        raise ConfigError(f"step_ms={settings['step_ms']} and devices={settings['devices']} are no stand-in: at least 0 ms and one device are needed")
    if settings["input"] == "feed_dict":
        raise ConfigError("input=feed_dict is fed to a session, and a stand-in has none; use input=python_loop, which makes the same batches")
    if settings["input"] != "synthetic":
        return Replay(settings, batches(settings["input"], **settings).warm(settings.get("page_cache")))
    random, batch, image = np.random.default_rng(int(settings["seed"])), int(settings["batch"]), int(settings["image"])
    samples = random.standard_normal((batch, image, image, 3), dtype=np.float32)
    return Replay(settings, repeat((samples, random.integers(0, 1000, batch))))
