"""The pipeline that people write first: a plain Python loop that opens, decodes and resizes one picture after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image, UnidentifiedImageError

from benchmarks.input.photographs import Photograph
from harness.errors import ConfigError


def deliver(found: Sequence[Photograph], *, batch: int, image: int, seed: int, epochs: int | None) -> Iterator[Any]:
    """Yield (samples, labels) as tensors; the order of each epoch is drawn anew from the seed."""
    random = np.random.default_rng(seed)
    read = 0
    for _ in range(epochs) if epochs is not None else count():
        order = random.permutation(len(found))
        for start in range(0, len(found) - batch + 1, batch):
            samples, labels = [], []
            for index in order[start : start + batch]:
                samples.append(decode(found[index].path, image, read))
                labels.append(found[index].label)
                read += 1
            yield tf.constant(np.stack(samples)), tf.constant(labels, tf.int64)


def decode(path: str, image: int, read: int) -> np.ndarray:
    """Return the picture at `path` as float32 (image, image, 3) in [-1, 1]. Raises ConfigError that names the file and how many came before."""
    try:
        with Image.open(path) as picture:
            rgb = picture.convert("RGB")
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        raise ConfigError(f"{path} cannot be decoded ({error}), after {read} samples had been read; repair or remove it") from error
    # Bilinear without antialiasing, which is what tf.image.resize does by default: Image.resize would average over the source pixels.
    resized = rgb.transform((image, image), Image.Transform.EXTENT, (0, 0, rgb.width, rgb.height), Image.Resampling.BILINEAR)
    return np.asarray(resized, np.float32) / 127.5 - 1.0
