"""The samples as TFRecord shards: written once, parsed by pipelines, and counted without reading what is in them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.input.decoding import sample
from benchmarks.input.samples import Asked, Photograph
from benchmarks.input.storing import check_room, in_threads, make_once, written_whole
from harness.errors import ConfigError

SHARD_BYTES = 100_000_000
RECORDS = "records"
"""The folder with the shards, below that of the files they are made of."""

_RECIPE = "records, 1"
_SEED = 20_260_103
_LABEL_BITS = 20
_FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/filename": tf.io.FixedLenFeature([], tf.string, default_value=""),
}


def make(folder: Path, samples: Callable[[], Sequence[Photograph]], *, thorough: bool = True) -> Path:
    """Return `folder` with the samples as shards of about 100 MB, in one shuffled order: written if they are not there, checked if they are.

    `samples` is called only if something has to be written. A shard that exists is whole, so an interrupted making goes on with the next. Features:
    `image/encoded` (bytes), `image/class/label` (int64), `image/filename` (bytes, the name below the set's folder). `thorough` as in `make_once`.
    Raises ConfigError where the disk has too little room or cannot be written, or a shard is not what was written once.
    """
    try:
        make_once(folder, _RECIPE, lambda: _fill(folder, samples()), thorough=thorough)
    except OSError as error:
        raise ConfigError(f"cannot write TFRecords to {folder}: {error.strerror or error}; what is there is kept") from error
    return folder


def _fill(folder: Path, found: Sequence[Photograph]) -> Iterable[str]:
    sizes = [Path(photograph.path).stat().st_size for photograph in found]
    number = max(1, round(sum(sizes) / SHARD_BYTES))
    parts = np.array_split(np.random.default_rng(_SEED).permutation(len(found)), number)
    shards = {f"photographs-{index:05d}-of-{number:05d}.tfrecord": part for index, part in enumerate(parts)}
    # A shard that is there is counted all the same: after a power cut it may be empty.
    missing = [name for name, part in shards.items() if not (folder / name).exists() or count([str(folder / name)]) != len(part)]
    needed = [sizes[index] + 200 for name in missing for index in shards[name]]
    check_room(folder, sum(needed), f"the TFRecords of {len(needed)} samples")
    folder.mkdir(parents=True, exist_ok=True)
    in_threads(lambda name: _write(folder / name, [found[index] for index in shards[name]]), missing)
    return list(shards)


def _write(path: Path, samples: Sequence[Photograph]) -> None:
    with written_whole(path) as aside, tf.io.TFRecordWriter(str(aside)) as writer:
        for photograph in samples:
            writer.write(encode(Path(photograph.path).read_bytes(), photograph.label, photograph.name))


def encode(encoded: bytes, label: int, name: str) -> bytes:
    """Return one sample as a serialised tf.train.Example."""
    feature = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode()])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def loader(asked: Asked) -> Callable[[Any], Any]:
    """Return the function from a serialised record to (sample, label), as `asked`: for a pipeline's map, or for one record at a time."""

    def load(record: Any) -> Any:
        got = tf.io.parse_single_example(record, _FEATURES)
        encoded, label, name = got["image/encoded"], got["image/class/label"], got["image/filename"]
        if asked.classes is not None:
            known = f"a label is not below {asked.classes}, the number of classes that the net knows; set classes to that of the images"
            with tf.control_dependencies([tf.debugging.assert_less(label, tf.constant(asked.classes, tf.int64), known)]):
                label = tf.identity(label)
        if asked.identify:
            label = identities(tf.where(name == "", encoded, name), label)
        return sample(encoded, asked), label

    return load


def identities(names: Any, labels: Any) -> Any:
    """Return int64 numbers that hold both a hash of each sample's name (32 bits) and its label."""
    return tf.strings.to_hash_bucket_fast(names, 2**32) * 2**_LABEL_BITS + tf.cast(labels, tf.int64)


def parts_of(identity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of names and the labels that `identities` holds."""
    return identity >> _LABEL_BITS, identity & (2**_LABEL_BITS - 1)


def name_in(record: Any) -> str:
    """Return " (name)" of a record that may be damaged, "" where it tells none."""
    try:
        name = tf.io.parse_single_example(record, {"image/filename": _FEATURES["image/filename"]})["image/filename"].numpy().decode(errors="replace")
    except tf.errors.OpError:
        return ""
    return f" ({name})" if name else ""


def count(shards: Iterable[str], most: int | None = None) -> int:
    """Return how many whole records the shards hold, counting no further than `most`. Only their frames are read. Raises ConfigError where a shard
    cannot be opened."""
    return sum(1 for _ in islice((length for shard in shards for length in frames(shard)), most))


def frames(shard: str) -> Iterator[int]:
    """Yield the length in bytes of each whole record: a frame is its length (8 bytes), a checksum (4), the record, another checksum (4)."""
    try:
        with open(shard, "rb", buffering=0) as file:  # noqa: PTH123 - a path as the pipeline has it
            size, at = os.fstat(file.fileno()).st_size, 0
            while at + 16 <= size:
                (length,) = struct.unpack("<Q", os.pread(file.fileno(), 8, at))
                at += length + 16
                if at > size:
                    return
                yield length
    except OSError as error:
        raise ConfigError(f"{shard} cannot be read: {error.strerror or error}") from error
