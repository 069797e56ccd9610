"""The pipelines that people write first: a plain Python loop that opens, decodes and resizes one picture after the other, and what is built on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.input.bad import refused_by_pillow
from benchmarks.input.decoding import Unreadable, bad_file, sample_of_file
from benchmarks.input.samples import Asked, Photograph
from benchmarks.input.tfdata import batched, hand_out


def python_loop(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """One picture after the other, decoded by Pillow, stacked and handed over as tensors."""
    return ((tf.constant(samples), tf.constant(labels)) for samples, labels in feed_dict(found, asked))


def feed_dict(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """The Python loop's batches as they are: numpy arrays, for a session's feed_dict."""
    for epoch in _epochs(found, asked):
        for _ in range(len(found) // asked.batch):
            samples, labels = zip(*(next(epoch) for _ in range(asked.batch)))
            yield np.stack(samples), np.array(labels, np.int64)


def from_generator(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """`Dataset.from_generator` around the Python decoder: the form of tf.data, but decoding holds the interpreter's lock."""
    epochs = _epochs(found, asked)
    shape, kind = ((asked.image, asked.image, 3), tf.float32) if asked.decode else ((), tf.int64)
    data = tf.data.Dataset.from_generator(lambda: next(epochs), output_signature=(tf.TensorSpec(shape, kind), tf.TensorSpec((), tf.int64)))
    return hand_out(batched(data, asked), found, asked, refused_by_pillow)


def _epochs(found: Sequence[Photograph], asked: Asked) -> Iterator[Iterator[tuple[np.ndarray, int]]]:
    """Yield for each epoch its samples one by one; the order of each is drawn anew from the seed."""
    random = np.random.default_rng(asked.seed)
    read = count()
    for _ in range(asked.epochs) if asked.epochs is not None else count():
        yield _decoded([found[index] for index in random.permutation(len(found))], asked, read)


def _decoded(found: Sequence[Photograph], asked: Asked, read: Iterator[int]) -> Iterator[tuple[np.ndarray, int]]:
    for photograph, before in zip(found, read):
        try:
            yield sample_of_file(photograph.path, asked), photograph.label
        except Unreadable as error:
            raise bad_file(photograph, str(error), before) from error
