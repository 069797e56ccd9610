"""Are recurrent nets more sensitive to reduced precision than convolutional ones?

Settings: `net` lstm | convnet, `precision` mixed_float16 | mixed_bfloat16, `seed`, `seeds` (3), `steps` (20). Both precisions are trained in
this process, from the same weights on the same digits (an LSTM reads them row by row). Readings: `loss_error`, the mean of
|loss(precision) - loss(fp32)| / loss(fp32) over steps and seeds; `loss_error_first`, the same at the first step alone (arithmetic without
the divergence that training adds); `loss_drop`, the share of the first loss that fp32 training took away, for a net that does not learn hides
every error.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice, digits, policy, shuffled_batches, small_convnet, training_step
from benchmarks.optimizers import KerasMomentum
from benchmarks.training import POLICIES

# Rates at which either net takes about as much off its loss in as many steps.
_LEARNING_RATES = {"lstm": 0.3, "convnet": 0.065}


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    net = choice(settings, "net", ("lstm", "convnet"))
    wanted = "mixed_float16" if settings.get("precision") == "fp32" else settings.get("precision")  # the baseline level has no error to show
    precision = choice({"precision": wanted}, "precision", ("mixed_float16", "mixed_bfloat16"))
    first, count, steps = int(settings.get("seed") or 0), int(settings.get("seeds") or 3), int(settings.get("steps") or 20)
    return Lesson(lambda: _teach(net, precision, range(first, first + count), steps), net=net)


def _teach(net: str, precision: str, seeds: range, steps: int) -> list[Value]:
    errors, drops = [], []
    for seed in seeds:
        exact, reduced = (_losses(net, p, seed, steps) for p in ("fp32", precision))
        errors.append(np.abs(reduced - exact) / exact)
        drops.append(1.0 - exact[-1] / exact[0])
    found = np.array(errors)
    values = {"loss_error": float(found.mean()), "loss_error_first": float(found[:, 0].mean()), "loss_drop": float(np.mean(drops))}
    return [
        Value(name, value if np.isfinite(value) else None, "relative", None if np.isfinite(value) else "a loss was not finite")
        for name, value in values.items()
    ]


def _losses(net: str, precision: str, seed: int, steps: int) -> np.ndarray:
    keras.utils.set_random_seed(seed)
    with policy(POLICIES[precision]):
        model = _lstm() if net == "lstm" else small_convnet("float32")
    step = training_step(model, KerasMomentum(model.trainable_variables, lr=_LEARNING_RATES[net], momentum=0.9, scaled=precision == "mixed_float16"))
    random, losses = np.random.default_rng(seed), []
    while len(losses) < steps:
        for batch in shuffled_batches(digits().train, 64, random):
            losses.append(float(step(*batch)))
            if len(losses) == steps:
                break
    return np.array(losses)


def _lstm() -> keras.Model:
    return keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Reshape((8, 8)),
        keras.layers.LSTM(64),
        keras.layers.Dense(10, activation="softmax", dtype="float32"),
    ])  # fmt: skip
