"""How many checkpoints CheckpointManager leaves in a folder, counted there.

Settings: `saves` (6), `keep` (3), `seed`, `scratch_dir` (an existing folder to save into; a temporary one if it is not given). Readings, in
checkpoints: `kept` after so many saves with max_to_keep=keep; `kept_every_n_hours`, the same with keep_checkpoint_every_n_hours on top, so short
that every checkpoint is due to be kept.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, small_convnet
from harness.errors import ConfigError

_AT_ONCE_HOURS = 1e-9


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    saves, keep, seed = (int(settings.get(name) or default) for name, default in (("saves", 6), ("keep", 3), ("seed", 0)))
    if saves < 1 or keep < 1:
        raise ConfigError(f"saves={saves} and keep={keep} must both be at least 1")
    return Lesson(lambda: _teach(saves, keep, seed, settings.get("scratch_dir")), saves=saves, keep=keep)


def _teach(saves: int, keep: int, seed: int, scratch: str | None) -> list[Value]:
    keras.utils.set_random_seed(seed)
    checkpoint = tf.train.Checkpoint(model=small_convnet())
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        kept = _left(checkpoint, Path(folder) / "plain", saves, keep, None)
        more = _left(checkpoint, Path(folder) / "hours", saves, keep, _AT_ONCE_HOURS)
    return [Value("kept", kept, "checkpoints"), Value("kept_every_n_hours", more, "checkpoints")]


def _left(checkpoint: Any, folder: Path, saves: int, keep: int, hours: float | None) -> int:
    """Save `saves` times and return how many checkpoints lie in the folder: their index files, not what the manager says."""
    folder.mkdir()
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=keep, keep_checkpoint_every_n_hours=hours)
    for _ in range(saves):
        manager.save()
    return len(list(folder.glob("*.index")))
