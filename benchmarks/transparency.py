"""The same training step without the instrument: a loop as one would write it by hand, in a process of its own, with its own stopwatch.

Held against the instrument's own throughput of the same cell, it shows what measuring costs. It shares the step with `benchmarks.training`
and nothing with the instrument: no channel inside the loop, no blocks, no partner, no choice of what counts.

`python -m benchmarks.transparency model=convnet_small image=32 batch=16` prints the figures.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import tensorflow as tf

from benchmarks.contract import Value, Workload
from benchmarks.training import Training
from benchmarks.training import build as build_training
from harness.errors import ConfigError

WARM_S = 3.0
TIMED_S = 15.0  # as long as the instrument measures each start of its arm: a shorter stretch is at the mercy of the moment


class BareLoop(Workload):
    """A training step, run and timed by hand."""

    def __init__(self, training: Training, warm_s: float, timed_s: float) -> None:
        self.training, self.warm_s, self.timed_s = training, warm_s, timed_s
        self._loss: float | None = None

    def outcome(self) -> list[Value]:
        """Warm up for `warm_s`, then run for about `timed_s` in one stretch. Readings: `bare_rate` (samples/s), `bare_step_time` (s) and
        `bare_steps` (steps)."""
        step, (samples, labels) = self.training.call, self.training.sample_batch
        step(samples, labels)
        tf.test.experimental.sync_devices()
        warm_steps, began = 0, time.perf_counter()
        while warm_steps < 2 or time.perf_counter() - began < self.warm_s:
            step(samples, labels)
            tf.test.experimental.sync_devices()
            warm_steps += 1
        steps = max(2, round(self.timed_s * warm_steps / (time.perf_counter() - began)))

        began = time.perf_counter()
        for _ in range(steps):
            loss = step(samples, labels)
        tf.test.experimental.sync_devices()
        seconds = time.perf_counter() - began

        self._loss = float(loss)  # kept for `health`, read after the stopwatch
        return [
            Value("bare_rate", steps * self.training.batch / seconds, "samples/s"),
            Value("bare_step_time", seconds / steps, "s"),
            Value("bare_steps", steps, "steps"),
        ]

    def facts(self) -> dict[str, Any]:
        return self.training.facts()

    def health(self) -> dict[str, Any]:
        if self._loss is None:
            return {}
        finite = math.isfinite(self._loss)
        return {"loss": self._loss if finite else None, "finite": finite}

    def traces(self) -> int:
        return self.training.traces()


def build(**settings: Any) -> BareLoop:
    """Build the bare loop. Takes what `benchmarks.training:build` takes, with synthetic input only, and `warm_s`, `timed_s` (seconds)."""
    if settings.get("input", "synthetic") != "synthetic":
        raise ConfigError(f"the bare loop runs on synthetic input only, not on input={settings['input']}")
    warm_s, timed_s = (float(settings.pop(name, None) or default) for name, default in (("warm_s", WARM_S), ("timed_s", TIMED_S)))
    return BareLoop(build_training(**settings), warm_s, timed_s)


def main(arguments: list[str]) -> int:
    """Print the readings for the settings given as `name=value`; returns the exit code."""
    settings = {name: int(value) if value.isdigit() else value for name, _, value in (argument.partition("=") for argument in arguments)}
    for value in build(**settings).outcome():
        print(f"{value.name} {value.value:.6g} {value.unit}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
