"""How far is the cross-entropy from the truth when the softmax is computed in half precision?

Settings: `form` softmax_fp16 | softmax_fp32 | from_logits (a float32 loss on half-precision logits), `logits_scale` (2), `seed`.
Readings: `distance`, the mean absolute error of the samples' losses against float64 on the same logits, relative to their mean;
`clipped_losses`, samples whose true class got probability 0, so that the loss is infinite or what Keras clips it to; `samples`.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice

_SAMPLES, _CLASSES = 4096, 1000


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    form = choice(settings, "form", ("softmax_fp16", "softmax_fp32", "from_logits"))
    scale, seed = float(settings.get("logits_scale") or 2.0), int(settings.get("seed") or 0)
    return Lesson(lambda: _teach(form, scale, seed), form=form)


def _teach(form: str, scale: float, seed: int) -> list[Value]:
    random = np.random.default_rng(seed)
    # The logits themselves are what a half-precision net hands over: all three forms and the truth start from the same numbers.
    logits = (random.standard_normal((_SAMPLES, _CLASSES)) * scale).astype(np.float16)
    labels = random.integers(0, _CLASSES, _SAMPLES)
    truth = _exact_losses(logits.astype(np.float64), labels)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=form == "from_logits", reduction="none")
    dtype = tf.float16 if form == "softmax_fp16" else tf.float32
    outputs = tf.cast(logits, dtype) if form == "from_logits" else tf.nn.softmax(tf.cast(logits, dtype))
    measured = np.asarray(loss(labels, outputs)).astype(np.float64)
    zero = 0 if form == "from_logits" else int((np.asarray(outputs)[np.arange(_SAMPLES), labels] == 0).sum())
    finite = np.isfinite(measured)
    distance = float(np.abs(measured - truth)[finite].mean() / truth.mean()) if finite.any() else None
    return [
        Value("distance", distance, "relative", None if finite.any() else "no loss is finite"),
        Value("clipped_losses", zero, "samples"),
        Value("samples", _SAMPLES, "samples"),
    ]


def _exact_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    top = logits.max(axis=1, keepdims=True)
    return np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0] - logits[np.arange(len(labels)), labels]
