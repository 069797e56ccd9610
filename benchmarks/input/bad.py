"""Bad data: which file it was, once something has gone wrong, and which ones to leave out, where that was asked for.

Nothing here runs while a pipeline is timed: the culprit is looked for after a failure, and what is to be skipped is found while building.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.input import records
from benchmarks.input.decoding import Unreadable, bad_file, decode, decode_file
from benchmarks.input.samples import Asked, Photograph
from benchmarks.input.storing import in_threads
from harness.errors import ConfigError

Refuse = Callable[[str], "str | None"]
"""Takes a path and says why its picture cannot be decoded, None where it can."""

NOTHING_OVER = "on_bad=skip leaves nothing over"

_OF_THE_GRAPH = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:.*$|\s+name:\s*$", re.MULTILINE)
_SMALL = 8
_AT_ONCE = 256


def refused_by_tensorflow(path: str) -> str | None:
    """Say why TensorFlow cannot decode the picture at `path`, None where it can."""
    try:
        decode(tf.io.read_file(path), _SMALL)
    except (tf.errors.OpError, ValueError) as error:
        return words(error)
    return None


def refused_by_pillow(path: str) -> str | None:
    """Say why Pillow cannot decode the picture at `path`, None where it can."""
    try:
        decode_file(path, _SMALL)
    except Unreadable as error:
        return str(error)
    return None


def refused_unread(path: str) -> str | None:
    """Say why the file at `path` cannot even be read, None where it can."""
    try:
        Path(path).read_bytes()
    except OSError as error:
        return str(error)
    return None


def leave_out(found: Sequence[Photograph]) -> tuple[list[Photograph], list[str]]:
    """Return the samples that can be decoded, and what the others are called.

    A file is bad if either decoder refuses it, so that every pipeline leaves out the same ones. Raises ConfigError where none is left.
    """
    refused = in_threads(lambda p: bool(refused_by_tensorflow(p.path) or refused_by_pillow(p.path)), found)
    good = [photograph for photograph, bad in zip(found, refused) if not bad]
    if not good:
        raise ConfigError(f"none of the {len(found)} files can be decoded, {found[0].called} for one; {NOTHING_OVER}")
    return good, [photograph.called for photograph, bad in zip(found, refused) if bad]


def openable(shards: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the shards that can be opened, and a sentence for each of the others. TensorFlow would try such a one again and again, for ever, where errors
    are ignored."""
    refused = in_threads(_shut, shards)
    return [shard for shard, why in zip(shards, refused) if why is None], [why for why in refused if why is not None]


def _shut(shard: str) -> str | None:
    try:
        with open(shard, "rb") as file:  # noqa: PTH123 - a path as the pipeline has it
            file.read(1)
    except OSError as error:
        return f"{shard} cannot be opened ({error.strerror or error}), and none of its records is read"
    return None


def file_error(found: Sequence[Photograph], refuse: Refuse, error: Exception, read: int) -> ConfigError:
    """Return an error that names the bad file. TensorFlow's message does not, so files are tried one by one, those that look wrong first."""
    suspects = sorted(found, key=lambda photograph: _looks_whole(photograph.path))
    for start in range(0, len(suspects), _AT_ONCE):
        some = suspects[start : start + _AT_ONCE]
        for photograph, said in zip(some, in_threads(lambda p: refuse(p.path), some)):
            if said is not None:
                return bad_file(photograph, said, read)
    return ConfigError(f"the input pipeline failed after {read} samples, though each file can be read alone: {words(error)}")


def record_error(shards: Sequence[str], asked: Asked, error: Exception, read: int) -> ConfigError:
    """Return an error that names the shard and the record that is bad."""
    for sentence in bad_records(shards, asked):
        return ConfigError(f"{sentence}, after {read} samples had been read; repair the file or write it anew")
    return ConfigError(f"the input pipeline failed after {read} samples, though each record can be read alone: {words(error)}")


def bad_records(shards: Iterable[str], asked: Asked) -> Iterator[str]:
    """Yield a sentence for each record that cannot be had, and for each shard that breaks off, whose later records are lost too."""
    return (one.wrong for one in each_record(((shard, None) for shard in shards), records.loader(asked)) if one.wrong is not None)


def survey_records(shards: Iterable[str], asked: Asked) -> tuple[int, list[str]]:
    """Return how many records are good, and a sentence for each that is not, as `bad_records`."""
    said = [one.wrong for one in each_record(((shard, None) for shard in shards), records.loader(asked))]
    return said.count(None), [sentence for sentence in said if sentence is not None]


@dataclass(frozen=True)
class Looked:
    """A record that was looked at: the `number`th of `shard`, from 1; what came of it (`got`), or a sentence on what is `wrong` with it."""

    shard: str
    number: int
    got: Any = None
    wrong: str | None = None


def each_record(parts: Iterable[tuple[str, int | None]], use: Callable[[Any], Any]) -> Iterator[Looked]:
    """Look at the first so many records of each shard (None: at all) and yield what `use` makes of each. Nothing follows where a shard breaks off."""
    for shard, most in parts:
        stream = iter(tf.data.TFRecordDataset(shard))
        for number in count(1) if most is None else range(1, most + 1):
            try:
                record = next(stream)
            except StopIteration:
                break
            except tf.errors.OpError as error:
                yield Looked(shard, number, wrong=f"{shard} breaks off in record {number} ({words(error)})")
                break
            try:
                got = use(record)
            except (tf.errors.OpError, ValueError) as error:
                yield Looked(shard, number, wrong=f"record {number} of {shard}{records.name_in(record)} cannot be used ({words(error)})")
            else:
                yield Looked(shard, number, got)


def words(error: Any) -> str:
    """Return what an error of TensorFlow says of the matter, in one line and without the names of its graphs."""
    said = _OF_THE_GRAPH.sub("", str(getattr(error, "message", None) or error)).strip().splitlines()
    return said[0].strip()[:300] if said else type(error).__name__


def _looks_whole(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path as the pipeline has it
            head = file.read(2)
            file.seek(-2, 2)
            return (head, file.read(2)) == (b"\xff\xd8", b"\xff\xd9")
    except OSError:
        return False
