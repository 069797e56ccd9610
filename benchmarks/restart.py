"""Training that may be killed at any step and started again: each life restores the newest checkpoint, and the last one counts what was lost.

What was done is kept in a file beside the checkpoints, one JSON line a step, which survives a killed process (not a power cut: it is not flushed
to the storage).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.checkpoint import scratch_folder
from benchmarks.contract import Event, Workload
from benchmarks.restoring import tracked
from benchmarks.training import Training, make, refuse_saves
from harness.errors import ConfigError

_KEPT = 3  # checkpoints; a restart needs one


class Restart(Workload):
    """One life of a training that is killed and started again. Batch i follows from the seed and i alone."""

    def __init__(self, training: Training, settings: dict[str, Any]) -> None:
        self.training, self.settings = training, settings
        self.steps, self.interval, self.life = int(settings["steps"]), int(settings["interval_steps"]), int(settings["life"])
        folder = scratch_folder(settings)
        (folder / "checkpoints").mkdir(exist_ok=True)
        self.diary = Diary(folder / "losses.jsonl")
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._checkpoint = tf.train.Checkpoint(step=self._step, **tracked(training))
        self._manager = tf.train.CheckpointManager(self._checkpoint, str(folder / "checkpoints"), max_to_keep=_KEPT)
        self._losses: list[float] = []

    def job(self, tell: Callable[[Event], None]) -> None:
        """Go on from the newest checkpoint to the last step, telling `step` after each.

        Then tell what the lives before have cost: `steps_lost` (steps, of the worst kill) and `steps_lost_over_interval`; `lives`; `curve_difference`,
        the largest between a loss of any life and that of a training of the same seed that nobody killed, which is done here for it; `survived`, 1 if
        no kill lost more than an interval and the losses are equal; and `job`.
        """
        restored = self._restore()
        self.diary.begin(self.life, restored)
        t0_ns = time.perf_counter_ns()
        for step in range(restored + 1, self.steps + 1):
            began_ns = time.perf_counter_ns()
            loss = self._do(self.training, step)
            self._losses.append(loss)
            self.diary.note(step, loss)
            tell(Event("step", step, "steps", began_ns, time.perf_counter_ns(), step))
            if step % self.interval == 0:
                self._step.assign(step)
                self._manager.save(checkpoint_number=step)
        t1_ns = time.perf_counter_ns()
        self._tell_outcome(tell)
        tell(Event("job", (self.steps - restored) * self.training.batch, "samples", t0_ns, t1_ns, self.steps))

    def _restore(self) -> int:
        """Load the newest checkpoint, if there is one; returns the step after which it was saved, else 0."""
        if self._manager.latest_checkpoint is None:
            return 0
        self._checkpoint.restore(self._manager.latest_checkpoint).assert_existing_objects_matched()
        return int(self._step.numpy())

    def _do(self, training: Training, step: int) -> float:
        random = np.random.default_rng([int(self.settings["seed"]), step])
        samples = training.net.inputs(random, training.batch)
        labels = random.integers(0, training.net.classes, training.batch, dtype=np.int64)
        return float(training.call(tf.constant(samples), tf.constant(labels)))

    def _tell_outcome(self, tell: Callable[[Event], None]) -> None:
        entries = self.diary.read()
        lost = max(lost_steps(entries), default=0)
        undisturbed = make(self.settings)
        expected = [self._do(undisturbed, step) for step in range(1, self.steps + 1)]
        difference, reason = curve_difference(entries, expected)
        tell(Event("steps_lost", lost, "steps"))
        tell(Event("steps_lost_over_interval", lost / self.interval, "share"))
        tell(Event("lives", self.life + 1, "lives"))
        tell(Event("curve_difference", difference, "loss", reason=reason))
        tell(Event("survived", int(lost <= self.interval and difference == 0), "flag"))

    # -- the instrument's calls

    def traces(self) -> int:
        return self.training.traces()

    def facts(self) -> dict[str, Any]:
        return {
            **self.training.facts(),
            "steps": self.steps,
            "interval_steps": self.interval,
            "life": self.life,
            "deterministic": bool(self.settings["deterministic"]),
        }

    def health(self) -> dict[str, Any]:
        if not self._losses:
            return {}
        bad = [self.steps - len(self._losses) + 1 + index for index, loss in enumerate(self._losses) if not math.isfinite(loss)]
        last = self._losses[-1]
        return {"loss": last if math.isfinite(last) else None, "finite": not bad, "first_non_finite_step": bad[0] if bad else None}


@dataclass(frozen=True)
class Entry:
    """A line of the diary: the beginning of a life (`life` and the step `restored`), or a `step` with its `loss`, None where the kill tore the line."""

    life: int | None = None
    restored: int | None = None
    step: int | None = None
    loss: float | None = None


class Diary:
    """The file of what was done, written so that a killed process loses nothing of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, life: int, restored: int) -> None:
        """Note that a life begins after step `restored`. A line that the kill before tore is mended: its step was done, its loss is not known."""
        text = self._path.read_bytes() if self._path.exists() else b""
        whole, torn = text[: text.rfind(b"\n") + 1], text[text.rfind(b"\n") + 1 :]
        if torn:
            with self._path.open("r+b") as file:
                file.truncate(len(whole))
            before = _entries(whole)[-1:]
            if torn.startswith(b'{"step"') and before:
                self._write({"step": (before[0].step or before[0].restored or 0) + 1, "loss": None})
        self._write({"life": life, "restored": restored})

    def note(self, step: int, loss: float) -> None:
        """Note a step that was done."""
        self._write({"step": step, "loss": loss})

    def read(self) -> list[Entry]:
        """Return all entries in order. A last line without its end is left out."""
        text = self._path.read_bytes()
        return _entries(text[: text.rfind(b"\n") + 1])

    def _write(self, entry: dict[str, Any]) -> None:
        # One write of its own a line: what the kernel has taken outlives the process.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _entries(text: bytes) -> list[Entry]:
    return [Entry(**json.loads(line)) for line in text.splitlines()]


def lost_steps(entries: Iterable[Entry]) -> list[int]:
    """Return for every life but the first how many steps had to be done again: the last one done before it less the one that it began after."""
    lost, last, begun = [], 0, False
    for entry in entries:
        if entry.step is not None:
            last = entry.step
        if entry.restored is not None:
            if begun:
                lost.append(max(0, last - entry.restored))
            begun = True
    return lost


def curve_difference(entries: Iterable[Entry], expected: Sequence[float]) -> tuple[float | None, str | None]:
    """Return the largest difference between a loss in `entries`, steps done again included, and that of its step in `expected` (from step 1); or
    None and the reason: a step without a loss, or a loss that is no number."""
    found = [(entry.step, entry.loss) for entry in entries if entry.step is not None and entry.loss is not None]
    missing = sorted(set(range(1, len(expected) + 1)) - {step for step, _ in found})
    if missing:
        return None, f"no loss is known of step {missing[0]}"
    differences = [abs(loss - expected[step - 1]) for step, loss in found]
    if not all(map(math.isfinite, differences)):
        return None, "a loss was not finite"
    return max(differences), None


def build(**settings: Any) -> Restart:
    """Build one life: what `benchmarks.training:build` takes (by default a small convnet), and `scratch_dir` (a folder that the lives share,
    required), `steps` (30), `interval_steps` (5) between saves, `life` (0), `deterministic` (must be true: the losses are compared bit for bit).

    Raises ConfigError for an impossible size or a contradiction.
    """
    refuse_saves(settings, "a restart saves in a way of its own, synchronously and where its lives share a folder")
    settings = {**_DEFAULTS, **{k: v for k, v in settings.items() if v is not None}}
    for name in ("steps", "interval_steps"):
        if int(settings[name]) < 1:
            raise ConfigError(f"{name}={settings[name]} is too few; it must be at least 1")
    if not settings["deterministic"]:
        raise ConfigError("restart compares losses bit for bit, but deterministic=false lets them vary by themselves; set deterministic=true")
    if settings.get("input", "synthetic") != "synthetic":
        raise ConfigError(f"restart makes its batches from the seed and knows no input={settings['input']}; use input=synthetic")
    return Restart(make(settings), settings)


_DEFAULTS: dict[str, Any] = {
    "model": "convnet_small", "image": 32, "batch": 8, "classes": 10, "seed": 0, "steps": 30, "interval_steps": 5, "life": 0, "deterministic": False,
}  # fmt: skip
