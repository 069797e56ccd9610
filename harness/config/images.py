"""Whose images `data.dir` names: a person's own, or a folder in which the suite makes its photographs. A folder that is neither is refused with what it
holds instead, as what was measured would not be what was meant.

Knows how a set of images lies on a disk, and nothing of what is in a file. What workloads make of it is `benchmarks.input`'s business.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.config.keys import ROOT, DataKeys
from harness.errors import ConfigError
from harness.model import Images, Scalar, stable_id

IMAGES = re.compile(r"\.jpe?g$|\.tfrecords?($|[-.])", re.IGNORECASE)
"""Names of files that hold samples: JPEGs, and shards of TFRecords."""
NAMELESS_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
"""Shards as other tools name them, without an ending that says what they are."""
OWN_SET = re.compile(r"photographs-\d+$")
MADE, MAKING = "sha256.json", ".{}.lock"
"""What the suite leaves in each folder that it has made, and beside one from when it begins to: so that none is taken for a person's."""
FOLDERS_TRIED = 20
MAKE = "or add data.make=true to have the suite make its photographs there"


@dataclass(frozen=True)
class Data:
    """Where samples come from: `images` is the folder of a person's own (None: the suite's photographs), `made_in` where the suite keeps what it makes.
    `on_bad`: fail, or skip what cannot be decoded."""

    images: Path | None
    made_in: Path
    on_bad: str = "fail"

    @property
    def folder(self) -> Path:
        """Where the samples lie."""
        return self.images or self.made_in

    def settings(self) -> dict[str, Scalar]:
        """Return what workloads are told of it: `data_dir`, and beside it `images_dir` and `on_bad` where they are not as usual."""
        own: dict[str, Scalar] = {"images_dir": str(self.images)} if self.images else {}
        return {"data_dir": str(self.made_in), **own, **({"on_bad": self.on_bad} if self.on_bad != "fail" else {})}


def find_data(value: str, *, make: bool = False, on_bad: str = "fail", root: Path = ROOT) -> Data:
    """Return what `data.dir=value` names. `make`: the suite is to make its photographs there. Raises ConfigError for a folder that is neither."""
    folder, usual = (root / value).resolve(), (root / DataKeys().dir).resolve()
    said = f"data.dir={value}"
    if make:
        return Data(None, _to_be_made_in(folder, said), on_bad)
    if folder == usual and not folder.is_dir():
        return Data(None, folder, on_bad)
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "there is no such folder"
        raise ConfigError(f"{said}: {what}; give one with images, {MAKE}")
    with _listable(said, folder):
        if next(_names(folder), None) is not None:
            return Data(folder, usual, on_bad)
        if folder == usual or any(OWN_SET.match(entry.name) for entry in _folders(folder)):
            return Data(None, folder, on_bad)
        instead = _instead(folder, value)
    raise ConfigError(f"{said}: {instead}")


def read_images(data: Data) -> Images | None:
    """Return which images a person's own set holds, None where it has none. A file that cannot be asked counts with the size -1. Raises ConfigError for a
    folder that cannot be listed."""
    if data.images is None:
        return None
    with _listable("data.dir", data.images):
        files = sorted((name, _size(data.images / name)) for name in _names(data.images))
    return Images(stable_id("images", files), len(files), sum(max(0, size) for _, size in files))


@contextmanager
def _listable(said: str, folder: Path) -> Iterator[None]:
    """Turn what the system says of a folder that cannot be listed into a sentence that begins with what was said."""
    try:
        yield
    except OSError as error:
        place = os.path.relpath(error.filename, folder) if error.filename else "."
        what = "it" if place == "." else f"its folder {place}"
        raise ConfigError(f"{said}: {what} cannot be listed ({error.strerror or error}); give a folder that this user may read") from error


def _to_be_made_in(folder: Path, said: str) -> Path:
    place = folder if folder.exists() else folder.parent
    if not place.is_dir():
        raise ConfigError(f"{said} data.make=true: there is no folder {place.name} to make it in; make that first, or mount what is meant")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{said} data.make=true: this user may not write there")
    with _listable(said, folder):
        own = next(_names(folder), None) if folder.is_dir() else None
    if own is not None:
        raise ConfigError(f"{said} data.make=true: images lie there that the suite has not made ({own}); leave data.make out, or choose another folder")
    return folder


def _names(folder: Path) -> Iterator[str]:
    """Yield the samples' files below a folder, in it and in its class folders. What the suite has made there is none of them. Raises OSError."""
    yield from _matching(_entries(folder))
    for place in _folders(folder):
        inside = _entries(Path(place.path))
        if not (folder / MAKING.format(place.name)).exists() and all(entry.name != MADE for entry in inside):
            yield from (f"{place.name}/{name}" for name in _matching(inside))


def _matching(entries: Iterable[os.DirEntry[str]]) -> Iterator[str]:
    return (entry.name for entry in entries if IMAGES.search(entry.name) and not _is_folder(entry))


def _folders(folder: Path) -> list[os.DirEntry[str]]:
    return [entry for entry in _entries(folder) if _is_folder(entry)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle: whoever reads it will say so
        return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what lies in a folder, but for hidden names, as `benchmarks.input` sees it."""
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _instead(folder: Path, value: str) -> str:
    """Say what a folder without images holds, and what to do about it. Raises OSError."""
    places = [folder, *(Path(entry.path) for entry in _folders(folder)[:FOLDERS_TRIED])]
    files = [entry.name for place in places for entry in _entries(place) if not _is_folder(entry)]
    shard = next((name for name in files if NAMELESS_SHARD.search(name)), None)
    if shard is not None:
        return f"holds no JPEG files; shards such as {shard} are known by the ending .tfrecord, so rename them to {shard}.tfrecord"
    for place in places[1:]:
        deeper = next((f"{inner.name}/{name}" for inner in _folders(place)[:FOLDERS_TRIED] for name in _matching(_entries(Path(inner.path)))), None)
        if deeper is not None:
            return f"its images lie a folder further down ({place.name}/{deeper}); give data.dir={value.rstrip('/')}/{place.name}"
    if not files and len(places) == 1:
        return f"is empty; give a folder with images, {MAKE}"
    endings = Counter(Path(name).suffix.lower() or "no ending" for name in files)
    what = ", ".join(f"{count} of {ending}" for ending, count in endings.most_common(2))
    seen = f" ({what} in it and its folders)" if what else ""
    return f"holds neither JPEG files nor shards of TFRecords (.tfrecord), in itself or in its class folders{seen}; give a folder with images, {MAKE}"
