"""Does layer normalisation overflow in half precision when the values spread widely (65504 is the largest number that float16 holds)?

Settings: `form` keras (Keras' layer under mixed_float16) | naive (the formula with every intermediate in float16), `sigma` (3000).
Readings: `non_finite` values in the output, `finite` 1 if there is none, `error` the mean absolute distance to float64.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice, policy

_EPSILON = 1e-3


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    form = choice(settings, "form", ("keras", "naive"))
    sigma, seed = float(settings.get("sigma") or 3000.0), int(settings.get("seed") or 0)
    return Lesson(lambda: _teach(form, sigma, seed), form=form, sigma=sigma, precision="mixed_float16" if form == "keras" else "float16")


def _teach(form: str, sigma: float, seed: int) -> list[Value]:
    exact = np.random.default_rng(seed).standard_normal((64, 256)) * sigma
    half = tf.constant(np.clip(exact, -65504, 65504), tf.float16)
    with policy("mixed_float16"):
        layer = keras.layers.LayerNormalization(epsilon=_EPSILON)
    output = np.asarray(layer(half) if form == "keras" else _naive(half)).astype(np.float64)
    x = np.asarray(half).astype(np.float64)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + _EPSILON)
    bad = int((~np.isfinite(output)).sum())
    # An infinite variance divides everything to zero: finite, and wrong. That too is an overflow.
    lost = int((output == 0).sum()) if np.abs(output).max() == 0 else 0
    error = float(np.abs(output - expected).mean())
    return [
        Value("non_finite", bad + lost, "values"),
        Value("finite", int(bad + lost == 0), "holds"),
        Value("error", error if np.isfinite(error) else None, "absolute", None if np.isfinite(error) else "the output is not finite"),
    ]


def _naive(x: Any) -> Any:
    centred = x - tf.reduce_mean(x, axis=1, keepdims=True)
    return centred / tf.sqrt(tf.reduce_mean(centred * centred, axis=1, keepdims=True) + tf.constant(_EPSILON, tf.float16))
