"""What a data set is to a pipeline (JPEG files in class folders, or TFRecord shards), and what is asked of every pipeline alike."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

_JPEGS = (".jpg", ".jpeg")
_SHARD = re.compile(r"\.tfrecords?($|[-.])", re.IGNORECASE)


@dataclass(frozen=True)
class Photograph:
    """One sample: where its file lies, the number of its class, and its name: the path below the set's folder, the same on every machine."""

    path: str
    label: int
    name: str = ""


@dataclass(frozen=True)
class Asked:
    """What a pipeline is to deliver: batches of `batch` pictures of `image` px, `epochs` times (None: for ever), in an order drawn from `seed`.

    `decode` False: instead of a picture, the number of its encoded bytes (int64), so that only reading is measured. `prefetch` is read by
    tfdata_prefetch alone. TFRecords only: `samples` keeps the first so many, `classes` is how many the net knows, `skip` leaves out what cannot
    be decoded (of files, the bad ones are no longer in the list), `identify` has each label carry the sample's identity too.
    """

    batch: int
    image: int
    seed: int = 0
    epochs: int | None = None
    decode: bool = True
    prefetch: int = 1
    samples: int | None = None
    classes: int | None = None
    skip: bool = False
    identify: bool = False


def ask(settings: dict[str, Any], epochs: int | None, *, identify: bool = False) -> Asked:
    """Return what `settings` ask of a pipeline. Raises ConfigError for a value that means nothing."""
    known = ("batch", "image", "seed", "decode", "prefetch", "samples", "classes")
    chosen = {name: settings[name] for name in known if settings.get(name) is not None}
    on_bad = settings.get("on_bad") or "fail"
    if on_bad not in ("fail", "skip"):
        raise ConfigError(f"on_bad={on_bad} means nothing; choose fail (the default) or skip")
    for name, least in (("batch", 1), ("image", 1), ("prefetch", -1), ("samples", 1)):
        if name in chosen and int(chosen[name]) < least:
            raise ConfigError(f"{name}={chosen[name]} is too small for an input pipeline; it must be at least {least}")
    numbers = {name: int(value) for name, value in chosen.items() if name != "decode"}
    return Asked(**numbers, decode=bool(chosen.get("decode", True)), epochs=epochs, skip=on_bad == "skip", identify=identify)


def cores() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def list_folder(folder: Path) -> list[Photograph]:
    """Return the JPEG files of `folder`, sorted; each subfolder is a class, numbered by name; files in `folder` itself are of class 0.

    Raises ConfigError where there is no such folder, it cannot be read, or no JPEG is in it.
    """
    found = []
    with _readable(folder):
        classes = [entry for entry in _entries(folder) if entry.is_dir()]
        for place, label in [(folder, 0), *((place, label) for label, place in enumerate(classes))]:
            found += [Photograph(str(p), label, p.relative_to(folder).as_posix()) for p in _entries(place) if p.suffix.lower() in _JPEGS]
        if not found and _shards(folder):
            raise ConfigError(f"{folder} holds TFRecord files and no JPEG files: input=tfrecord and input=article_d read them, other inputs do not")
    if not found:
        raise ConfigError(f"no JPEG file (.jpg, .jpeg) lies in {folder} or in its class folders")
    return found


def list_shards(folder: Path) -> list[str]:
    """Return the paths of the TFRecord files in `folder` and its subfolders, sorted. Raises ConfigError where there are none."""
    with _readable(folder):
        found = _shards(folder)
    if not found:
        remedy = f"write them from its JPEG files with `python -m benchmarks.input records {folder}`, or choose another input"
        raise ConfigError(f"no TFRecord file (*.tfrecord) lies in {folder} or in a folder below it; {remedy}")
    return found


def _shards(folder: Path) -> list[str]:
    places = [folder, *(entry for entry in _entries(folder) if entry.is_dir())]
    return [str(path) for place in places for path in _entries(place) if _SHARD.search(path.name) and not path.is_dir()]


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turn what the system says of a folder that cannot be listed into a sentence."""
    if not folder.is_dir():
        raise ConfigError(f"there is no folder of images at {folder}")
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{error.filename or folder} cannot be listed: {error.strerror or error}") from error
