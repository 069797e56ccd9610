"""Training that is saved on the way, as one job: how long a save holds the loop, what it costs the steps beside it, when it is on the storage, and
whether what comes back is what was saved, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.contract import Event, Workload
from benchmarks.durability import CheckpointError, data_files
from benchmarks.saving import Loop, Saved, Saves, save_points
from benchmarks.storage import SlowFolder, storage_facts
from benchmarks.training import Training, make
from harness.errors import ConfigError

LEVELS = ("none", "sync", "io_device", "async", "sharded")
STORAGES = ("own", "slow")
SHARDS = 4


class Checkpointed(Workload):
    """A training job with saves. Attributes may be looked at, not changed."""

    def __init__(self, training: Training, settings: dict[str, Any]) -> None:
        self.training, self.settings = training, settings
        self.level = str(settings["checkpoint"])
        self.steps, self.interval = int(settings["steps"]), int(settings["interval_steps"])
        scratch = scratch_folder(settings)
        # A graph of TensorFlow 1 keeps its variables to itself; nothing is saved of it.
        self.state = {} if settings.get("input") == "feed_dict" else tracked(training)
        self.needed_bytes = sum(_bytes(variable) for variable in self.state.values())
        self._shards: int | None = None
        self._warm_steps = 0
        self._health: dict[str, Any] = {}
        self._slow = SlowFolder(scratch, float(settings["storage_mib_s"])) if settings["storage"] == "slow" else None
        self.folder = (self._slow.path if self._slow else scratch) / "checkpoints"
        try:
            self.folder.mkdir(exist_ok=True)
            self._storage = storage_facts(self.folder)
        except BaseException:
            self.close()
            raise

    def job(self, tell: Callable[[Event], None]) -> None:
        """Do the steps and the saves, wait until all saves are durable, and compare each with what was saved. Raises CheckpointError for one that
        failed or differs; what was told until then stays told."""
        loop = Loop(self.training, self._saves(), tell, self._note_losses)
        try:
            loop.warm_up()
            if self.settings.get("interval_s") is not None:
                self.interval = max(1, round(float(self.settings["interval_s"]) / loop.step_s()))
                self.steps = int(self.settings["saves"]) * self.interval
            self._warm_steps = loop.warm_steps
            loop.run(self.steps, self.interval)
            self.verify(loop.finish(), tell)
        except BaseException:
            loop.give_up()
            self.close()
            raise
        loop.conclude()

    def _saves(self) -> Saves | None:
        if self.level == "none":
            return None
        return Saves(self.folder, self.state, self._options(), self.needed_bytes, float(self.settings["durable_s"]), self._digests)

    def _options(self) -> Any:
        """Return the options that make a save what its level says; None are TensorFlow's own."""
        if self.level == "io_device":
            return tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
        if self.level == "async":
            return tf.train.CheckpointOptions(enable_async=True)
        if self.level == "sharded":
            # TensorFlow never comes to an end with shards that cannot hold the thinnest slice of some variable.
            thinnest = max(_bytes(variable) // max([1, *variable.shape]) for variable in self.state.values())
            policy = tf.train.experimental.MaxShardSizePolicy(max(-(-self.needed_bytes // SHARDS), thinnest))
            return tf.train.CheckpointOptions(experimental_sharding_callback=policy)
        return None

    def _digests(self) -> dict[str, str]:
        """Return a digest of every tracked value as it is now; waits for the device."""
        return {name: digest(variable.numpy()) for name, variable in self.state.items()}

    def verify(self, saved: list[Saved], tell: Callable[[Event], None]) -> None:
        """Read every checkpoint back and tell `restored_equal` for each that holds, bit for bit, what was saved; raises CheckpointError else."""
        for save in saved:
            self._shards = self._shards or len(data_files(save.prefix))
            wrong = self._differing(save)
            if wrong:
                raise CheckpointError(
                    f"save {save.number} in {self.folder} does not hold what was saved: {len(wrong)} of {len(save.digests)} variables differ, "
                    f"first {wrong[0]}; do not restore from it, and look after the storage",
                    "checkpoint_differs",
                    save=save.number,
                    variables_different=len(wrong),
                )
            tell(Event("restored_equal", 1, "flag", step=save.number))

    def _differing(self, save: Saved) -> list[str]:
        """Return the variables whose stored value is another one, each with the reason if it could not be read."""
        try:
            reader = tf.train.load_checkpoint(save.prefix)
        except (tf.errors.OpError, ValueError) as error:
            return [f"{name}: {_said(error)}" for name in save.digests]
        wrong = []
        for name, expected in save.digests.items():
            label = f"{name} ({self.state[name].name})"
            try:
                if digest(reader.get_tensor(f"{name}/.ATTRIBUTES/VARIABLE_VALUE")) != expected:
                    wrong.append(label)
            except tf.errors.OpError as error:
                wrong.append(f"{label}: {_said(error)}")
        return wrong

    def _note_losses(self) -> None:
        """Take over the losses since the last time, so that none is forgotten before it was looked at. Steps count from the job's first."""
        told = self.training.health()
        if not told:
            return
        first = told.get("first_non_finite_step")
        if first is not None:
            told["first_non_finite_step"] = max(1, first - self._warm_steps)
        if self._health.get("finite") is False:
            told.update(finite=False, first_non_finite_step=self._health["first_non_finite_step"])
        self._health = told

    # -- the instrument's calls

    def traces(self) -> int:
        return self.training.traces()

    def facts(self) -> dict[str, Any]:
        counts: dict[str, Any] = {"steps": self.steps, "interval_steps": self.interval}
        if self.settings.get("interval_s") is not None:
            counts = {"interval_s": self.settings["interval_s"], "steps_chosen": self.steps, "interval_steps_chosen": self.interval}
        return {
            **self.training.facts(),
            **counts,
            "checkpoint": self.level,
            "saves_planned": 0 if self.level == "none" else len(save_points(self.steps, self.interval)),
            "storage": self.settings["storage"],
            **({"storage_mib_s": self.settings["storage_mib_s"]} if self._slow else {}),
            **self._storage,
            **({"variables": len(self.state), "checkpoint_bytes": self.needed_bytes} if self.state else {}),
            **({"shards": self._shards} if self._shards else {}),
        }

    def health(self) -> dict[str, Any]:
        self._note_losses()
        return dict(self._health)

    def close(self) -> None:
        self.training.close()
        if self._slow is not None:
            self._slow.close()


def build(**settings: Any) -> Checkpointed:
    """Build the job: what `benchmarks.training:build` takes, and

    `checkpoint` none|sync|io_device|async|sharded (sync), `steps` (20), `interval_steps` (5), `scratch_dir` (an existing folder, required),
    `storage` own|slow (own; slow takes `storage_mib_s` (40) MiB of writes a second), `durable_s` (120): how long a save may take until it is durable.
    With `interval_s` (seconds) the interval is turned into steps by how long a warm step takes here, and the job has `saves` (2) of them; `steps`
    and `interval_steps` are not read then.

    Saves fall into the middle of each interval, so that a job of n intervals holds n saves with the steps beside them, and ends with a step.
    Raises ConfigError for an unknown level, an impossible size or a contradiction.
    """
    settings = {**_DEFAULTS, **{k: v for k, v in settings.items() if v is not None}}
    _refuse(settings)
    return Checkpointed(make(settings), settings)


_DEFAULTS: dict[str, Any] = {
    "checkpoint": "sync", "storage": "own", "storage_mib_s": 40, "steps": 20, "interval_steps": 5, "saves": 2, "durable_s": 120.0,
}  # fmt: skip


def _refuse(settings: Mapping[str, Any]) -> None:
    for name, levels in (("checkpoint", LEVELS), ("storage", STORAGES)):
        if settings[name] not in levels:
            raise ConfigError(f"{name}={settings[name]} is no level; choose one of {', '.join(levels)}")
    for name in ("steps", "interval_steps", "saves"):
        if int(settings[name]) < 1:
            raise ConfigError(f"{name}={settings[name]} is too few; it must be at least 1")
    if settings.get("interval_s") is not None and not float(settings["interval_s"]) > 0:
        raise ConfigError(f"interval_s={settings['interval_s']} is no interval; it must be above 0 (seconds)")
    if settings["checkpoint"] == "none":
        return
    if settings.get("input") == "feed_dict":
        raise ConfigError(f"input=feed_dict has no variables to save, asked was checkpoint={settings['checkpoint']}; use checkpoint=none")
    if settings.get("interval_s") is None and int(settings["steps"]) < int(settings["interval_steps"]):
        raise ConfigError(f"steps={settings['steps']} ends before the first save of interval_steps={settings['interval_steps']}; do more steps")


def scratch_folder(settings: Mapping[str, Any]) -> Path:
    """Return the folder that the settings give to write into; raises ConfigError where there is none."""
    given = settings.get("scratch_dir")
    if not given or not Path(str(given)).is_dir():
        raise ConfigError(f"scratch_dir={given} is no folder; name an existing one to save into")
    return Path(str(given)).resolve()


def tracked(training: Training) -> dict[str, Any]:
    """Return name -> TensorFlow variable of all that training goes on from: weights, statistics and the optimizer's state.

    The variables underneath, not Keras' own: with those in a checkpoint, the second asynchronous save raises ValueError.
    """
    variables = [variable.value for variable in training.net.model.variables] + training.optimizer.state
    return {f"v{index:04}": variable for index, variable in enumerate(variables)}


def digest(value: Any) -> str:
    """Return a digest of an array's type, shape and bits."""
    array = np.asarray(value)
    whole = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    whole.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return whole.hexdigest()


def _bytes(variable: Any) -> int:
    return int(np.prod(variable.shape)) * int(variable.dtype.size)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__} {' '.join(str(error).split())[:80]}"
