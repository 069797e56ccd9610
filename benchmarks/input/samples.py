"""What a data set is to a pipeline (JPEG files in class folders, or TFRecord shards), and what is asked of every pipeline alike."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from harness.errors import ConfigError

_T = TypeVar("_T")

_JPEGS = (".jpg", ".jpeg")
_OTHER_PICTURES = (".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".avif")
_SHARD = re.compile(r"\.tfrecords?($|[-.])", re.IGNORECASE)
_SEED = 20_260_104


@dataclass(frozen=True)
class Photograph:
    """One sample: where its file lies, the number of its class, and its name: the path below the set's folder, the same on every machine.

    `source`: where a person finds it, if that is not the file at `path`.
    """

    path: str
    label: int
    name: str = ""
    source: str = ""

    @property
    def called(self) -> str:
        """What a person knows it by."""
        return self.source or self.name or self.path


@dataclass(frozen=True)
class Listed:
    """What lies in `folder` and in its class folders: `jpegs`, each by its name below the folder and with the number of its class, `others`, how many
    pictures are no JPEG files, and `shards`, the paths of TFRecord files."""

    folder: Path
    jpegs: tuple[tuple[str, int], ...]
    others: int
    shards: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """What a pipeline goes through in an epoch: the `paths` of files or shards, and how many `samples` they hold.

    `found`: of how many samples of a person's set these were drawn (None: it is the suite's own, or nobody has counted); `others`: how many pictures beside
    them are no JPEG files; `skipped`: what was left out, as people know it; `copied`: the suite has written these files, after the person's.
    """

    paths: tuple[str, ...]
    samples: int
    found: int | None = None
    others: int = 0
    skipped: tuple[str, ...] = ()
    copied: bool = False


@dataclass(frozen=True)
class Asked:
    """What a pipeline is to deliver: batches of `batch` pictures of `image` px, `epochs` times (None: for ever), in an order drawn from `seed`.

    `decode` False: instead of a picture, the number of its encoded bytes (int64), so that only reading is measured. `prefetch` is read by
    tfdata_prefetch alone. TFRecords only: `classes` is how many the net knows, `skip` leaves out what cannot be decoded (of files, the bad ones are
    no longer in the list), `identify` has each label carry the sample's identity too.
    """

    batch: int
    image: int
    seed: int = 0
    epochs: int | None = None
    decode: bool = True
    prefetch: int = 1
    classes: int | None = None
    skip: bool = False
    identify: bool = False


def ask(settings: dict[str, Any], epochs: int | None, *, identify: bool = False) -> Asked:
    """Return what `settings` ask of a pipeline. Raises ConfigError for a value that means nothing."""
    known = ("batch", "image", "seed", "decode", "prefetch", "classes")
    chosen = {name: settings[name] for name in known if settings.get(name) is not None}
    on_bad = settings.get("on_bad") or "fail"
    if on_bad not in ("fail", "skip"):
        raise ConfigError(f"on_bad={on_bad} means nothing; choose fail (the default) or skip")
    for name, least in (("batch", 1), ("image", 1), ("prefetch", -1)):
        if name in chosen and int(chosen[name]) < least:
            raise ConfigError(f"{name}={chosen[name]} is too small for an input pipeline; it must be at least {least}")
    numbers = {name: int(value) for name, value in chosen.items() if name != "decode"}
    return Asked(**numbers, decode=bool(chosen.get("decode", True)), epochs=epochs, skip=on_bad == "skip", identify=identify)


def cores() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def look_into(folder: Path) -> Listed:
    """Return what lies in `folder`, all sorted; each subfolder is a class, numbered by name; files in `folder` itself are of class 0. Hidden names are
    passed over. Raises ConfigError where there is no such folder or one of these cannot be listed."""
    jpegs: list[tuple[str, int]] = []
    shards: list[str] = []
    others = 0
    with _readable(folder):
        top = _entries(folder)
        classes = [entry for entry in top if _is_folder(entry)]
        for label, prefix, entries in [(0, "", top), *((label, f"{entry.name}/", _entries(Path(entry.path))) for label, entry in enumerate(classes))]:
            for entry in entries:
                suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 - a million names
                is_shard = _SHARD.search(entry.name) is not None
                if not (suffix in _JPEGS or suffix in _OTHER_PICTURES or is_shard) or _is_folder(entry):
                    continue
                if is_shard:
                    shards.append(str(folder / (prefix + entry.name)))
                elif suffix in _JPEGS:
                    jpegs.append((prefix + entry.name, label))
                else:
                    others += 1
    return Listed(folder, tuple(jpegs), others, tuple(shards))


def photographs_in(listed: Listed, jpegs: Sequence[tuple[str, int]] | None = None) -> list[Photograph]:
    """Return the samples of these JPEG files of a folder, of all of them by default."""
    return [Photograph(str(listed.folder / name), label, name) for name, label in (listed.jpegs if jpegs is None else jpegs)]


def list_folder(folder: Path) -> list[Photograph]:
    """Return the samples of the JPEG files of `folder`, as `look_into` finds them. Raises ConfigError, also where there are none."""
    listed = look_into(folder)
    if listed.jpegs:
        return photographs_in(listed)
    if listed.shards:
        raise ConfigError(f"{folder} holds TFRecord files and no JPEG files")
    raise ConfigError(f"no JPEG file (.jpg, .jpeg) lies in {folder} or in its class folders")


def list_shards(folder: Path) -> list[str]:
    """Return the paths of the TFRecord files in `folder` and its subfolders, sorted. Raises ConfigError where there are none."""
    shards = look_into(folder).shards
    if not shards:
        raise ConfigError(f"no TFRecord file (*.tfrecord) lies in {folder} or in a folder below it")
    return list(shards)


def draw(found: Sequence[_T], most: int) -> list[_T]:
    """Return `most` of `found` in their order, drawn by a seed that is always the same, so that a larger drawing holds the smaller; all where there are no
    more."""
    if len(found) <= most:
        return list(found)
    return [found[index] for index in sorted(np.random.default_rng(_SEED).permutation(len(found))[:most])]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle: whoever reads it will say so
        return False


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turn what the system says of a folder that cannot be listed into a sentence."""
    if not folder.is_dir():
        raise ConfigError(f"there is no folder of images at {folder}")
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{error.filename or folder} cannot be listed: {error.strerror or error}") from error
