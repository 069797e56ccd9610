"""The suite's own data set: photographs of the size and weight of ImageNet's, cut from scikit-learn's two sample pictures (CC BY), one folder a class.

File i depends on the seed and on i alone, so that a larger set begins with the smaller one and an interrupted making goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.input.samples import Photograph, list_folder
from benchmarks.input.storing import check_room, in_threads, make_once, written_whole
from harness.errors import ConfigError

FILES = 128
WIDTH, HEIGHT = 500, 375  # the usual size of an ImageNet photograph
CLASSES = {"china": 97, "flower": 99}
"""The classes, each with its JPEG quality: the one at which files weigh about 110 kB, as ImageNet's do, since decoding costs by the byte."""

_RECIPE = "photographs, 2"
_SEED = 20_260_102
_NEEDED_BYTES_A_FILE = 130_000
_END_OF_JPEG = b"\xff\xd9"


def make(data_dir: Path, files: int = FILES, *, thorough: bool = True) -> Path:
    """Return the folder with `files` photographs under `data_dir`, making what is missing of it, and checking it if it is complete.

    `thorough` as in `make_once`. Raises ConfigError where the disk has too little room, the folder cannot be written, or a file is not what was
    written once.
    """
    if files < 1:
        raise ConfigError(f"files={files} makes no data set; it must be at least 1")
    folder = place(data_dir, files)
    try:
        make_once(folder, _RECIPE, lambda: _fill(folder, files), thorough=thorough)
    except OSError as error:
        raise ConfigError(
            f"cannot make {files} photographs under {data_dir}: {error.strerror or error}; what is there is kept; set data.dir to a writable place"
        ) from error
    return folder


def place(data_dir: Path, files: int) -> Path:
    """Return the folder under `data_dir` that a set of `files` photographs belongs into."""
    return data_dir / f"photographs-{files}"


def own(data_dir: Path, files: int = FILES, *, thorough: bool = True) -> list[Photograph]:
    """Return the samples of the suite's own set of `files` photographs, made if need be."""
    return list_folder(make(data_dir, files, thorough=thorough))


def _fill(folder: Path, files: int) -> Iterable[str]:
    names = [f"{list(CLASSES)[index % len(CLASSES)]}/{index:05d}.jpg" for index in range(files)]
    missing = [index for index, name in enumerate(names) if not _is_whole(folder / name)]
    check_room(folder, len(missing) * _NEEDED_BYTES_A_FILE, f"{len(missing)} photographs", "set data.dir to a disk with more room")
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
    pictures = [_picture(name) for name in CLASSES]
    in_threads(lambda index: _write(pictures[index % len(pictures)], folder / names[index], index), missing)
    return names


def _is_whole(path: Path) -> bool:
    """Whether a JPEG is there to its end: after a power cut a renamed file may still be empty."""
    try:
        with path.open("rb") as file:
            return file.read()[-2:] == _END_OF_JPEG
    except FileNotFoundError:
        return False


def _picture(name: str) -> Image.Image:
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ConfigError("scikit-learn, whose sample pictures the photographs are cut from, is not installed; install it, or set data.dir to images")
    with Image.open(Path(package.origin).parent / "datasets" / "images" / f"{name}.jpg") as picture:
        return picture.convert("RGB")


def _write(picture: Image.Image, path: Path, index: int) -> None:
    """Write photograph `index`: a window of random size and place, mirrored half of the time, in a random brightness."""
    random = np.random.default_rng([_SEED, index])
    scale = random.uniform(0.85, 1.13)  # of what the picture shows: at 1.14 the window is as high as the picture
    width, height = WIDTH * scale, HEIGHT * scale
    left, top = random.uniform(0, picture.width - width), random.uniform(0, picture.height - height)
    cut = picture.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS, box=(left, top, left + width, top + height))
    if random.random() < 0.5:
        cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    brightness = random.uniform(0.8, 1.2)
    with written_whole(path) as aside:
        cut.point(lambda value: int(value * brightness)).save(aside, "JPEG", quality=CLASSES[path.parent.name], subsampling="4:2:0")
