"""Small pictures, good and bad ones, and the levels of input that can be tried without a GPU."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.input import FROM_FILES, FROM_RECORDS
from benchmarks.input.records import encode
from benchmarks.input.storing import written_whole

FILE_LEVELS = [level for level in FROM_FILES if level != "prefetch_to_device"]
RECORD_LEVELS = list(FROM_RECORDS)
LEVELS = [*FILE_LEVELS, *RECORD_LEVELS]


def picture(seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Return a smooth picture of 50 x 40, one to a seed: noise would come out of two decoders differently."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 255, (4, 5, 3), dtype=np.uint8))
    return coarse.resize((50, 40), Image.Resampling.BICUBIC).convert(mode)


def encoded(seed: int = 0, mode: str = "RGB", kind: str = "JPEG") -> bytes:
    """Return a picture as the bytes of a file."""
    file = io.BytesIO()
    picture(seed, mode).save(file, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return file.getvalue()


def make_images(folder: Path, good: int) -> Path:
    """Write `good` small JPEG files of one class to `folder`, in it."""
    folder.mkdir(parents=True)
    for index in range(good):
        (folder / f"{index:02d}.jpg").write_bytes(encoded(index))
    return folder


BAD = {
    "truncated": encoded()[:-400],
    "empty": b"",
    "text": b"no picture",
}
"""What a file named .jpg may hold that is none."""


def make_records(folder: Path, contents: list[bytes], name: str = "some.tfrecord", label: int = 0) -> Path:
    """Write a TFRecord file with these encoded pictures, all of one class, to `folder`, and return its path."""
    import tensorflow as tf

    folder.mkdir(parents=True, exist_ok=True)
    with written_whole(folder / name) as aside, tf.io.TFRecordWriter(str(aside)) as writer:
        for index, content in enumerate(contents):
            writer.write(encode(content, label, f"{index:02d}.jpg"))
    return folder / name


def cut_off(path: Path, bytes_lost: int = 100) -> None:
    """Take the last bytes off a file."""
    path.write_bytes(path.read_bytes()[:-bytes_lost])
