"""A small set of real photographs on disk: crops of scikit-learn's two sample pictures (CC BY), one folder a class, made on first use.

Two workers may ask for it at the same moment: it is built aside and renamed into place, and the one that comes second takes what is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from harness.errors import ConfigError

FILES = 128
WIDTH, HEIGHT = 500, 375  # the usual size of an ImageNet photograph
_QUALITY = 92  # gives 35-75 kB a file
_NEEDED_BYTES_A_FILE = 110_000
_SEED = 20_260_102
_SUMS = "sha256.json"
_SUFFIXES = (".jpg", ".jpeg")


@dataclass(frozen=True)
class Photograph:
    """One sample: where its file lies and the number of its class."""

    path: str
    label: int


def make(data_dir: Path, files: int = FILES) -> Path:
    """Return the folder with `files` photographs under `data_dir`, making it if it is not there, and checking it if it is.

    Raises ConfigError where the disk has too little room, the folder cannot be written, or a file is not what was written once.
    """
    folder = data_dir / f"photographs-{files}"
    if not folder.exists():
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            _check_room(data_dir, files)
            _make_aside(folder, files)
        except OSError as error:
            raise ConfigError(
                f"cannot make {files} photographs under {data_dir}: {error.strerror or error}; set data.dir to a writable place"
            ) from error
    _check_sums(folder)
    return folder


def list_folder(folder: Path) -> list[Photograph]:
    """Return the JPEG files of `folder`, sorted; each subfolder is a class, numbered by name; files in `folder` itself are of class 0.

    Raises ConfigError where there is no such folder or no JPEG in it.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder of images at {folder}")
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    inside = [(folder, 0)] + [(folder / name, label) for label, name in enumerate(classes)]
    found = [Photograph(str(path), label) for place, label in inside for path in sorted(place.iterdir()) if path.suffix.lower() in _SUFFIXES]
    if not found:
        raise ConfigError(f"no JPEG file (.jpg, .jpeg) lies in {folder} or in its class folders")
    return found


def _check_room(data_dir: Path, files: int) -> None:
    needed, free = files * _NEEDED_BYTES_A_FILE, shutil.disk_usage(data_dir).free
    if free < needed:
        raise ConfigError(f"{files} photographs need {needed} bytes under {data_dir} and {free} are free; set data.dir to a disk with more room")


def _make_aside(folder: Path, files: int) -> None:
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write(aside, files)
        aside.chmod(0o755)  # mkdtemp's folders are closed to others
        try:
            os.rename(aside, folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write(folder: Path, files: int) -> None:
    import sklearn

    random = np.random.default_rng(_SEED)
    sums = {}
    for label, name in enumerate(("china", "flower")):
        (folder / name).mkdir()
        with Image.open(Path(sklearn.__file__).parent / "datasets" / "images" / f"{name}.jpg") as picture:
            for index in range(label, files, 2):
                left, top = (int(random.integers(0, 1 + room)) for room in (picture.width - WIDTH, picture.height - HEIGHT))
                crop = picture.crop((left, top, left + WIDTH, top + HEIGHT))
                brightness = random.uniform(0.7, 1.2)
                path = folder / name / f"{index:05d}.jpg"
                crop.point(lambda value, by=brightness: int(value * by)).save(path, "JPEG", quality=_QUALITY)
                sums[f"{name}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / _SUMS).write_text(json.dumps(sums, indent=0, sort_keys=True))


def _check_sums(folder: Path) -> None:
    remedy = f"delete {folder} and it will be made anew"
    try:
        sums = json.loads((folder / _SUMS).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} has no readable {_SUMS}, so it is not the set of photographs that was made; {remedy}") from error
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise ConfigError(f"{path} is missing or is not what was written; {remedy}")
