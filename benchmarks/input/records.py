"""The samples as TFRecord shards: written once, parsed by pipelines, and counted without reading what is in them."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.input.decoding import bad_file, sample
from benchmarks.input.samples import Asked, Photograph
from benchmarks.input.storing import SUMS, Refusal, check_room, in_threads, make_once, written_whole
from harness.errors import ConfigError

SHARD_BYTES = 100_000_000
RECORDS = "records"
"""The folder with the shards, below that of the files they are made of."""

_RECIPE = "records, 1"
_NAME = "photographs"
_SEED = 20_260_103
_LABEL_BITS = 20
_FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/filename": tf.io.FixedLenFeature([], tf.string, default_value=""),
}


def make(folder: Path, samples: Callable[[], Sequence[Photograph]], *, of: str = "", thorough: bool = True) -> Path:
    """Return `folder` with the samples as shards of about 100 MB, in one shuffled order: written if they are not there, checked if they are.

    `samples` is called only if something has to be written; `of` says which they are, as `digest_of` does, where the folder alone does not. A shard
    that exists is whole, so an interrupted making goes on with the next. Features: `image/encoded` (bytes), `image/class/label` (int64),
    `image/filename` (bytes, the name below the set's folder). `thorough` as in `make_once`. Raises ConfigError where the disk has too little room or
    cannot be written, a sample cannot be read, the folder holds other samples, or a shard is not what was written once.
    """
    recipe = f"{_RECIPE} of {of}" if of else _RECIPE
    another = Refusal(
        f"{folder} holds the TFRecords of other samples: some were added, taken away or changed since" if of else "",
        f"delete {SUMS} and the {_NAME}-*.tfrecord files in {folder}, and they will be written anew",
    )
    try:
        make_once(folder, recipe, lambda: _fill(folder, samples()), thorough=thorough, refusal=another)
    except OSError as error:
        raise ConfigError(f"cannot write TFRecords to {folder}: {error.strerror or error}; what is there is kept") from error
    return folder


def digest_of(samples: Sequence[Photograph]) -> str:
    """Return what tells one set of samples from another: a digest of their names, classes and sizes. Raises ConfigError for a file that is out of reach."""
    lines = sorted(f"{photograph.name}\n{photograph.label}\n{_size(photograph)}" for photograph in samples)
    return hashlib.sha256("\n\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:12]


def _fill(folder: Path, found: Sequence[Photograph]) -> Iterable[str]:
    sizes = [_size(photograph) for photograph in found]
    number = max(1, round(sum(sizes) / SHARD_BYTES))
    parts = np.array_split(np.random.default_rng(_SEED).permutation(len(found)), number)
    shards = {f"{_NAME}-{index:05d}-of-{number:05d}.tfrecord": part for index, part in enumerate(parts)}
    # A shard that is there is counted all the same: after a power cut it may be empty.
    missing = [name for name, part in shards.items() if not (folder / name).exists() or count([str(folder / name)]) != len(part)]
    needed = [sizes[index] + 200 for name in missing for index in shards[name]]
    check_room(folder, sum(needed), f"the TFRecords of {len(needed)} samples")
    folder.mkdir(parents=True, exist_ok=True)
    in_threads(lambda name: _write(folder / name, [found[index] for index in shards[name]]), missing)
    return list(shards)


def _write(path: Path, samples: Sequence[Photograph]) -> None:
    with written_whole(path) as aside, tf.io.TFRecordWriter(str(aside)) as writer:
        for number, photograph in enumerate(samples):
            try:
                encoded = Path(photograph.path).read_bytes()
            except OSError as error:
                raise bad_file(photograph, str(error), number) from error
            writer.write(encode(encoded, photograph.label, photograph.name))


def _size(photograph: Photograph) -> int:
    try:
        return Path(photograph.path).stat().st_size
    except OSError as error:
        raise bad_file(photograph, str(error), 0) from error


def encode(encoded: bytes, label: int, name: str) -> bytes:
    """Return one sample as a serialised tf.train.Example."""
    feature = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode(errors="surrogateescape")])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def loader(asked: Asked) -> Callable[[Any], Any]:
    """Return the function from a serialised record to (sample, label), as `asked`: for a pipeline's map, or for one record at a time."""

    def load(record: Any) -> Any:
        got = tf.io.parse_single_example(record, _FEATURES)
        encoded, label, name = got["image/encoded"], got["image/class/label"], got["image/filename"]
        checks = _checks(label, asked)
        if checks:
            with tf.control_dependencies(checks):
                label = tf.identity(label)
        if asked.identify:
            label = identities(tf.where(name == "", encoded, name), label)
        return sample(encoded, asked), label

    return load


def _checks(label: Any, asked: Asked) -> list[Any]:
    """What a label must be that somebody makes use of: without a check a GPU learns from it in silence. A pipeline by itself has no use for it."""
    checks = []
    if asked.classes is not None or asked.identify:
        checks.append(tf.debugging.assert_non_negative(label, "a label is below 0, and so of no class"))
    if asked.classes is not None:
        known = f"a label is not below {asked.classes}, the number of classes that the net knows; set classes to that of the images"
        checks.append(tf.debugging.assert_less(label, tf.constant(asked.classes, tf.int64), known))
    return [check for check in checks if check is not None]  # executed at once, one is None


def taken_apart(record: Any) -> tuple[bytes, int, str]:
    """Return the encoded picture, the label and the name ("" where it has none) that a serialised record holds. Raises what TensorFlow raises for one
    that is no sample, ValueError for a label of no class."""
    got = {name: value.numpy() for name, value in tf.io.parse_single_example(record, _FEATURES).items()}
    label = int(got["image/class/label"])
    if label < 0:
        raise ValueError(f"its label {label} is below 0, and so of no class")
    return got["image/encoded"], label, got["image/filename"].decode(errors="replace")


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
