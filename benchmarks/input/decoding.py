"""From encoded bytes to a sample: the same picture, resized and normalised alike, once by TensorFlow and once by Pillow.

Both decode with libjpeg's accurate transform and resize bilinearly without antialiasing, so that the pixels of two pipelines can be compared.
Greyscale and CMYK pictures, and PNG files that are named .jpg, are decoded to RGB by both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image, UnidentifiedImageError

from benchmarks.input.samples import Asked, Photograph
from harness.errors import ConfigError

_PIL_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def decode(encoded: Any, image: int) -> Any:
    """Return an encoded picture as float32 (image, image, 3) in [-1, 1], by TensorFlow."""
    return normalise(resize(tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE"), image))


def decode_fast(encoded: Any, image: int) -> Any:
    """Return an encoded picture as float32 (image, image, 3) in [0, 255], by libjpeg's fast transform: a grey level off here and there."""
    return resize(tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_FAST", fancy_upscaling=False), image)


def sample(encoded: Any, asked: Asked) -> Any:
    """Return an encoded picture as `decode` does, or the number of its bytes, int64 (), where nothing is to be decoded."""
    return decode(encoded, asked.image) if asked.decode else tf.cast(tf.strings.length(encoded), tf.int64)


def resize(pixels: Any, image: int) -> Any:
    return tf.image.resize(pixels, (image, image))


def normalise(pixels: Any) -> Any:
    return pixels / 127.5 - 1.0


def sample_of_file(path: str, asked: Asked) -> np.ndarray:
    """Return what `sample` returns for the file at `path`, by Pillow and without TensorFlow. Raises Unreadable."""
    if asked.decode:
        return decode_file(path, asked.image)
    try:
        return np.array(len(Path(path).read_bytes()), np.int64)
    except OSError as error:
        raise Unreadable(str(error) or type(error).__name__) from error


def decode_file(path: str, image: int) -> np.ndarray:
    """Return the picture at `path` as float32 (image, image, 3) in [-1, 1], by Pillow. Raises Unreadable."""
    try:
        with Image.open(path) as picture:
            rgb = picture.convert("RGB")
    except _PIL_ERRORS as error:
        raise Unreadable(str(error) or type(error).__name__) from error
    # What tf.image.resize does by default: Image.resize would average over the source pixels.
    resized = rgb.transform((image, image), Image.Transform.EXTENT, (0, 0, rgb.width, rgb.height), Image.Resampling.BILINEAR)
    return np.asarray(resized, np.float32) / 127.5 - 1.0


class Unreadable(Exception):  # noqa: N818 - what a decoder says; people get a ConfigError with the file's name
    """A decoder's own words on why a picture cannot be had."""


def bad_file(photograph: Photograph, said: str, read: int) -> ConfigError:
    """Return the error for a file that cannot be decoded: what it is called within its set, what the decoder said, what the file is, and how many samples
    came before. The folder stands apart, as records keep no more than the last part of a path."""
    below = photograph.path.removesuffix(f"/{photograph.name}") if photograph.name and not photograph.source else photograph.path
    where = f" (below {below})" if below != photograph.path else ""
    found = what_it_is(photograph.path)
    return ConfigError(
        f"{photograph.called} cannot be decoded ({said}; it is {found}), after {read} samples had been read; repair or remove it{where}"
    )


def what_it_is(path: str) -> str:
    """Return in a few words what a file is that should have been a picture."""
    try:
        size = Path(path).stat().st_size
        if size == 0:
            return "empty"
        with Image.open(path) as picture:
            return f"a {picture.format} of {picture.width} x {picture.height} in mode {picture.mode}, {size} bytes long"
    except UnidentifiedImageError:
        return "no picture"
    except OSError as error:
        return f"out of reach: {os.strerror(error.errno) if error.errno else error}"
    except _PIL_ERRORS as error:
        return f"a picture that Pillow refuses: {error}"
