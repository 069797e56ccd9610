"""The pipelines over TFRecord shards: tfdata's with records in place of files, and [D]'s snippet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from benchmarks.input.bad import record_error
from benchmarks.input.records import loader
from benchmarks.input.samples import Asked
from benchmarks.input.tfdata import AUTOTUNE, batched, guarded

SHUFFLED_RECORDS = 1000
"""Records in the shuffle buffer, still encoded: about 110 MB."""


def tfrecord(shards: Sequence[str], asked: Asked) -> Iterator[Any]:
    """tfdata over shards that are read in turns: shuffle of encoded records, parallel map, batch, prefetch."""
    data = tf.data.Dataset.from_tensor_slices(tf.constant(list(shards))).shuffle(len(shards), seed=asked.seed)
    data = data.interleave(tf.data.TFRecordDataset, num_parallel_calls=AUTOTUNE)
    return _hand_out(data.shuffle(SHUFFLED_RECORDS, seed=asked.seed, reshuffle_each_iteration=True), shards, asked)


def article_d(shards: Sequence[str], asked: Asked) -> Iterator[Any]:
    """[D]'s snippet as it stands: one shard after the other, parallel map, batch, prefetch; no shuffle."""
    return _hand_out(tf.data.TFRecordDataset(list(shards)), shards, asked)


def _hand_out(data: Any, shards: Sequence[str], asked: Asked) -> Iterator[Any]:
    data = data.map(loader(asked), num_parallel_calls=AUTOTUNE)
    if asked.skip:
        data = data.ignore_errors()
    return guarded(batched(data, asked).prefetch(AUTOTUNE), asked.batch, lambda error, read: record_error(shards, asked, error, read))
