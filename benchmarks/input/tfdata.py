"""The pipelines of tf.data over JPEG files, each as short as people write it. They differ in nothing but what their names and sentences say.

Everywhere the names of files are shuffled, not the pixels, unless a level says otherwise: a buffer of names costs nothing and covers the whole set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from benchmarks.input.bad import Refuse, file_error, refused_by_tensorflow, refused_unread
from benchmarks.input.decoding import decode_fast, normalise, sample
from benchmarks.input.samples import Asked, Photograph, cores
from harness.errors import ConfigError

AUTOTUNE = tf.data.AUTOTUNE
ARTICLE_BUFFER = 1000
"""Samples in the shuffle buffer of [S]'s snippet."""


def tfdata_serial(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """One file after the other: map without num_parallel_calls, no prefetch."""
    return hand_out(as_written(batched(names(found, asked).map(load(asked)), asked)), found, asked)


def tfdata_parallel(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """As tfdata_serial, but for num_parallel_calls=AUTOTUNE."""
    return hand_out(as_written(_parallel(found, asked)), found, asked)


def tfdata_prefetch(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """As tfdata_parallel, but for a prefetch of so many batches: 0 none, -1 AUTOTUNE."""
    data = _parallel(found, asked)
    return hand_out(as_written(data.prefetch(asked.prefetch) if asked.prefetch else data), found, asked)


def tfdata(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """What the guides recommend: shuffle, parallel map, batch, prefetch, all tuned by TensorFlow itself."""
    return hand_out(_parallel(found, asked).prefetch(AUTOTUNE), found, asked)


def tfdata_cache(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """tfdata with the decoded samples kept in memory; they are shuffled after the cache, or every epoch would have the first one's order."""
    data = _files(found).map(load(asked), num_parallel_calls=AUTOTUNE).cache()
    return hand_out(batched(_shuffled(data, len(found), asked), asked).prefetch(AUTOTUNE), found, asked)


def tfdata_tuned(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """The best that tf.data is known to give: a thread pool of its own, order not kept, libjpeg's fast transform, batches normalised as a whole."""
    data = names(found, asked).map(_load_fast(asked) if asked.decode else load(asked), num_parallel_calls=AUTOTUNE, deterministic=False)
    data = data.batch(asked.batch, drop_remainder=True, num_parallel_calls=AUTOTUNE, deterministic=False)
    if asked.decode:
        data = data.map(lambda samples, labels: (normalise(samples), labels), num_parallel_calls=AUTOTUNE, deterministic=False)
    options = tf.data.Options()
    options.threading.private_threadpool_size = cores()
    options.deterministic = False
    return hand_out(data.repeat(asked.epochs).prefetch(AUTOTUNE).with_options(options), found, asked)


def prefetch_to_device(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """tfdata, and then the next batch is copied to the GPU ahead of time."""
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        raise ConfigError("input=prefetch_to_device copies batches to a GPU ahead of time and no GPU is visible here; use input=tfdata")
    return to_device(found, asked, gpus[0].name)


def to_device(found: Sequence[Photograph], asked: Asked, device: str) -> Iterator[Any]:
    """As tfdata, with batches prefetched to `device`, whichever it is."""
    data = _parallel(found, asked).prefetch(AUTOTUNE)
    with tf.device(device):
        data = data.apply(tf.data.experimental.prefetch_to_device(device))
    return hand_out(data, found, asked, device=device)


def article_s(found: Sequence[Photograph], asked: Asked) -> Iterator[Any]:
    """[S]'s snippet as it stands: map, then a shuffle of decoded pictures, batch, prefetch."""
    data = _files(found).map(load(asked), num_parallel_calls=AUTOTUNE)
    return hand_out(batched(_shuffled(data, ARTICLE_BUFFER, asked), asked).prefetch(AUTOTUNE), found, asked)


# ---------------------------------------------------------------- their parts


def names(found: Sequence[Photograph], asked: Asked) -> Any:
    """A dataset of (path, label) in an order that is drawn anew each epoch."""
    return _shuffled(_files(found), len(found), asked)


def load(asked: Asked) -> Callable[[Any, Any], Any]:
    """The function from (path, label) to (sample, label)."""
    return lambda path, label: (sample(tf.io.read_file(path), asked), label)


def batched(data: Any, asked: Asked) -> Any:
    """Whole batches of one shape, epoch after epoch."""
    return data.batch(asked.batch, drop_remainder=True).repeat(asked.epochs)


def as_written(data: Any) -> Any:
    """Keep TensorFlow from adding, unasked, what these levels are compared for: left alone, it makes plain maps parallel and appends a prefetch."""
    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)


def hand_out(
    data: Any, found: Sequence[Photograph], asked: Asked, refuse: Refuse = refused_by_tensorflow, *, device: str | None = None
) -> Iterator[Any]:
    """Iterate over `data`; an error is told with the name of the file that `refuse` refuses, or that cannot even be read where none is decoded."""
    chosen = refuse if asked.decode else refused_unread
    return guarded(data, asked.batch, lambda error, read: file_error(found, chosen, error, read), device=device)


def guarded(data: Any, batch: int, explain: Callable[[Exception, int], Exception], *, device: str | None = None) -> Iterator[Any]:
    """Yield what `data` yields. An error of TensorFlow's is raised as what `explain` makes of it and of the number of samples delivered before."""
    read = 0
    with tf.device(device) if device else nullcontext():
        iterator = iter(data)
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        except tf.errors.OpError as error:
            raise explain(error, read) from error
        read += batch
        yield item


def _load_fast(asked: Asked) -> Callable[[Any, Any], Any]:
    return lambda path, label: (decode_fast(tf.io.read_file(path), asked.image), label)


def _parallel(found: Sequence[Photograph], asked: Asked) -> Any:
    return batched(names(found, asked).map(load(asked), num_parallel_calls=AUTOTUNE), asked)


def _files(found: Sequence[Photograph]) -> Any:
    paths = tf.constant([photograph.path for photograph in found])
    return tf.data.Dataset.from_tensor_slices((paths, tf.constant([photograph.label for photograph in found], tf.int64)))


def _shuffled(data: Any, buffer: int, asked: Asked) -> Any:
    return data.shuffle(buffer, seed=asked.seed, reshuffle_each_iteration=True)
