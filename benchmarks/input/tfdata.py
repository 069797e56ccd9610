"""The pipeline that the guides recommend: tf.data with a parallel map, batches and prefetching, all tuned by TensorFlow itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from benchmarks.input.photographs import Photograph
from harness.errors import ConfigError


def deliver(found: Sequence[Photograph], *, batch: int, image: int, seed: int, epochs: int | None) -> Iterator[Any]:
    """Yield (samples, labels) as tensors. The names are shuffled, not the pixels: a buffer of names costs nothing and covers the whole set."""
    paths = tf.constant([photograph.path for photograph in found])
    labels = tf.constant([photograph.label for photograph in found], tf.int64)
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(found), seed=seed, reshuffle_each_iteration=True)
    data = data.map(lambda path, label: (decode(path, image), label), num_parallel_calls=tf.data.AUTOTUNE)
    data = data.batch(batch, drop_remainder=True).repeat(epochs).prefetch(tf.data.AUTOTUNE)
    iterator, read = iter(data), 0
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        except tf.errors.OpError as error:
            raise _named(error, found, read) from error
        read += batch
        yield item


def decode(path: Any, image: int) -> Any:
    """Return the picture at `path` as float32 (image, image, 3) in [-1, 1]."""
    # The accurate transform is the one that other decoders use, so that the pixels of two pipelines can be compared.
    pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")
    return tf.image.resize(pixels, (image, image)) / 127.5 - 1.0


def _named(error: Exception, found: Sequence[Photograph], read: int) -> ConfigError:
    """TensorFlow's message tells no name, so each file is tried alone, once something has gone wrong; nothing is spent on this before."""
    for photograph in found:
        try:
            decode(photograph.path, 8)
        except tf.errors.OpError as own:
            said = str(getattr(own, "message", own)).splitlines()[0].strip()
            return ConfigError(f"{photograph.path} cannot be decoded ({said}), after {read} samples had been delivered; repair or remove it")
    return ConfigError(f"the input pipeline failed after {read} samples, though each file can be read alone: {error}")
