"""Training that is saved on the way, as one job: how long a save holds the loop, what it costs the steps beside it, when it is on the storage, and
whether what comes back is what was saved, bit for bit.

Every checkpoint is restored into a fresh training once the job is done. Where the storage would not hold all of them at once, each is restored and
deleted while the loop's clock stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.contract import Event, Workload
from benchmarks.durability import CheckpointError, checkpoint_files, data_files, free_bytes
from benchmarks.restoring import Twin, bytes_of, digests, tracked
from benchmarks.saving import Loop, Saved, Saves, save_points
from benchmarks.storage import SlowFolder, storage_facts
from benchmarks.training import Training, make
from harness.errors import ConfigError

LEVELS = ("none", "sync", "io_device", "async", "sharded")
STORAGES = ("own", "slow")
SHARDS = 4
_ROOM = 1.1
"""Over the bytes of all of a job's checkpoints, what must be free for all of them to be kept: their indices, and a file system's own."""


class Checkpointed(Workload):
    """A training job with saves. Attributes may be looked at, not changed."""

    def __init__(self, training: Training, settings: dict[str, Any]) -> None:
        self.training, self.settings = training, settings
        self.level = str(settings["checkpoint"])
        self.steps, self.interval = int(settings["steps"]), int(settings["interval_steps"])
        scratch = scratch_folder(settings)
        # A graph of TensorFlow 1 keeps its variables to itself; nothing is saved of it.
        self.state = {} if settings.get("input") == "feed_dict" else tracked(training)
        self.needed_bytes = sum(bytes_of(variable) for variable in self.state.values())
        self._shards: int | None = None
        self._twin: Twin | None = None
        self._loop: Loop | None = None
        self._kept_all = True
        self._health: dict[str, Any] = {}
        self._looked_at = 0  # steps whose losses were
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
        self._kept_all = self._has_room()
        loop = self._loop = Loop(self.training, self._saves(tell), tell, self._note_losses)
        try:
            if not self._kept_all:
                self._twin = Twin(self.settings)  # now: it must not be begun between two steps
            loop.warm_up()
            if self.settings.get("interval_s") is not None:
                self.interval = max(1, round(float(self.settings["interval_s"]) / loop.step_s()))
                self.steps = int(self.settings["saves"]) * self.interval
            loop.run(self.steps, self.interval)
            self.verify(loop.finish(), tell)
        except BaseException:
            loop.give_up()
            self.close()
            raise
        loop.conclude()

    def _planned(self) -> int:
        """How many saves the job makes."""
        if self.level == "none":
            return 0
        return int(self.settings["saves"]) if self.settings.get("interval_s") is not None else len(save_points(self.steps, self.interval))

    def _has_room(self) -> bool:
        free = free_bytes(self.folder)
        return free is None or free >= _ROOM * self._planned() * self.needed_bytes

    def _saves(self, tell: Callable[[Event], None]) -> Saves | None:
        if self.level == "none":
            return None

        def let_go(save: Saved) -> None:
            self.verify([save], tell)
            for path in checkpoint_files(save.prefix):
                path.unlink()

        deadline_s, release = float(self.settings["durable_s"]), None if self._kept_all else let_go
        return Saves(self.folder, self.state, self._options(), self.needed_bytes, deadline_s, lambda: digests(self.state), release)

    def _options(self) -> Any:
        """Return the options that make a save what its level says; None are TensorFlow's own."""
        if self.level == "io_device":
            return tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
        if self.level == "async":
            return tf.train.CheckpointOptions(enable_async=True)
        if self.level == "sharded":
            # TensorFlow never comes to an end with shards that cannot hold the thinnest slice of some variable.
            thinnest = max(bytes_of(variable) // max([1, *variable.shape]) for variable in self.state.values())
            policy = tf.train.experimental.MaxShardSizePolicy(max(-(-self.needed_bytes // SHARDS), thinnest))
            return tf.train.CheckpointOptions(experimental_sharding_callback=policy)
        return None

    def verify(self, saved: list[Saved], tell: Callable[[Event], None]) -> None:
        """Restore every checkpoint into a fresh training and tell `restored_equal` for each that brings back, bit for bit, what was saved; raises
        CheckpointError else."""
        for save in saved:
            self._shards = self._shards or len(data_files(save.prefix))
            wrong = self._differing(save)
            if wrong:
                raise CheckpointError(
                    f"save {save.number} in {self.folder} does not hold what was saved: {len(wrong)} of {len(save.digests)} variables differ, "
                    f"first {wrong[0]} ({self.state[wrong[0]].name}); {_DISTRUST}",
                    "checkpoint_differs",
                    save=save.number,
                    variables_different=len(wrong),
                )
            tell(Event("restored_equal", 1, "flag", step=save.number))

    def _differing(self, save: Saved) -> list[str]:
        """Return the variables that do not have the value that was saved, once the checkpoint is restored. Raises CheckpointError where it cannot be."""
        self._twin = self._twin or Twin(self.settings)
        try:
            found = self._twin.restore(save.prefix)
        except (tf.errors.OpError, ValueError, AssertionError) as error:
            text = f"save {save.number} in {self.folder} cannot be restored ({_said(error)}); {_DISTRUST}"
            raise CheckpointError(text, "checkpoint_differs", save=save.number) from error
        return [name for name, expected in save.digests.items() if found[name] != expected]

    def _note_losses(self) -> None:
        """Take over the losses since the last time, so that none is forgotten before it was looked at. Steps count from the job's first; one that is
        none of the job's spoils the next."""
        told = self.training.health()
        if not told or self._loop is None:
            return
        first = told.get("first_non_finite_step")
        if first is not None:
            told["first_non_finite_step"] = max(self._looked_at + 1, first - self._loop.uncounted)
        if self._health.get("finite") is False:
            told.update(finite=False, first_non_finite_step=self._health["first_non_finite_step"])
        self._health, self._looked_at = told, self._loop.done

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
            "saves_planned": self._planned(),
            "storage": "slow" if self._slow else "own",
            **({"storage_mib_s": self.settings["storage_mib_s"]} if self._slow else {}),
            **self._storage,
            **({"variables": len(self.state), "checkpoint_bytes": self.needed_bytes} if self.state else {}),
            **({"checkpoints_kept": "all" if self._kept_all else "until restored"} if self.level != "none" else {}),
            **({"shards": self._shards} if self._shards else {}),
            **({"folder_written_through": False} if self._loop and not self._loop.folder_written else {}),
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
    With `interval_s` (seconds) in place of `steps` and `interval_steps`, the interval is turned into steps by how long a warm step takes here, and the
    job has `saves` (2) of them.

    Saves fall into the middle of each interval, so that a job of n intervals holds n saves with the steps beside them, and ends with a step.
    Raises ConfigError for an unknown level, an impossible size or a contradiction.
    """
    given = {k: v for k, v in settings.items() if v is not None}
    settings = {**_DEFAULTS, **given}
    _refuse(settings)
    _refuse_two_intervals(given)
    return Checkpointed(make(settings), settings)


_DEFAULTS: dict[str, Any] = {
    "checkpoint": "sync", "storage": "own", "storage_mib_s": 40, "steps": 20, "interval_steps": 5, "saves": 2, "durable_s": 120.0,
}  # fmt: skip


_DISTRUST = "do not rely on it, and look after the storage"


def _refuse_two_intervals(given: Mapping[str, Any]) -> None:
    steps = [f"{name}={given[name]}" for name in ("steps", "interval_steps") if name in given]
    if "interval_s" in given and steps:
        text = f"interval_s={given['interval_s']} contradicts {' and '.join(steps)}"
        raise ConfigError(f"{text}: an interval is given in seconds or in steps; leave one out")


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


def _said(error: BaseException) -> str:
    return f"{type(error).__name__} {' '.join(str(error).split())[:80]}"
