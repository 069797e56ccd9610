"""Losses and learning rate of a training as TensorBoard reads them, written by TensorFlow alone.

An event file is a file of records, each of them an Event. TensorFlow's own writer would put the host's name into the file's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf


def write_curves(folder: str, losses: Sequence[float], first_step: int, learning_rate: float) -> Path:
    """Write one event for each loss, of steps that count up from `first_step`, and the learning rate at both ends; return the new file."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    now_s = time.time()
    path = place / f"events.out.tfevents.{int(now_s)}.{os.getpid()}.{first_step}"
    ends = {0, len(losses) - 1}
    with tf.io.TFRecordWriter(str(path)) as file:
        file.write(tf.compat.v1.Event(wall_time=now_s, file_version="brain.Event:2").SerializeToString())
        for index, loss in enumerate(losses):
            told = {"loss": float(loss), **({"learning_rate": learning_rate} if index in ends else {})}
            values = [tf.compat.v1.Summary.Value(tag=tag, simple_value=value) for tag, value in told.items()]
            event = tf.compat.v1.Event(wall_time=now_s, step=first_step + index, summary=tf.compat.v1.Summary(value=values))
            file.write(event.SerializeToString())
    return path
