"""How many JPEG files a second one core turns into pixels, by TensorFlow's decoder or by Pillow's: both are libjpeg-turbo underneath.

Only decoding is measured: the encoded bytes lie in memory, and nothing is resized.
"""

from __future__ import annotations

import io
import os
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image, features

from benchmarks.input import photographs_of
from benchmarks.roofs.common import Roof, whole, word

DECODERS = ("tensorflow", "pillow")
MOST = 64
"""Files that are kept in memory and decoded in turn: more bytes than a core's own caches hold."""


def jpeg_decode(settings: dict[str, Any]) -> Roof:
    """Decode `batch` (16) photographs a step, one after the other, with `decoder` tensorflow or pillow. Work: images. `cores` must be 1 where a rate of
    one core is wanted; the photographs are those of `benchmarks.input`."""
    decoder, batch = word(settings, "decoder", DECODERS), whole(settings, "batch", 16)
    encoded = [Path(photograph.path).read_bytes() for photograph in photographs_of(settings)[:MOST]]
    decode = _by_tensorflow if decoder == "tensorflow" else _by_pillow
    held = [tf.constant(one) for one in encoded] if decoder == "tensorflow" else encoded
    endless = cycle(held)
    cores = len(os.sched_getaffinity(0))

    def told(_: Any) -> dict[str, Any]:
        library = {} if decoder == "tensorflow" else {"libjpeg": str(features.version("jpg"))}
        mean = sum(map(len, encoded)) / len(encoded)
        return {"op": "jpeg_decode", "decoder": decoder, "batch": batch, "cores": cores, "file_bytes": round(mean), **library}

    return Roof(lambda: [decode(one) for one in islice(endless, batch)], batch, "images", told)


def _by_tensorflow(encoded: Any) -> Any:
    with tf.device("/CPU:0"):
        return tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE")


def _by_pillow(encoded: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(encoded)) as picture:
        return np.asarray(picture.convert("RGB"))
