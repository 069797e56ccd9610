"""What goes wrong in plain half precision, step by step, and what loss scaling with float32 master weights mends.

A deep perceptron of sigmoids learns scikit-learn's digits: each layer shrinks the gradient on its way down, and half precision has nothing
between 0 and 6e-8. Settings: `precision` float16 | mixed_float16 | mixed_float16_unscaled | fp32, `steps` (30), `seed`.

Readings, in steps: `bad_steps`, with a non-finite loss, a non-finite gradient that reached the weights, or a weight matrix whose whole gradient
was zero; `non_finite_steps` and `zero_gradient_steps`, the two kinds of them; `skipped_steps`, refused by the loss scaler by design;
`lost_update_steps`, in which a weight matrix with a gradient stayed as it was to the last bit; `steps`. `accuracy` (share) on the test digits.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice, digits, policy, shuffled_batches
from benchmarks.optimizers import KerasMomentum

_LAYERS, _WIDTH, _BATCH = 12, 32, 64
_POLICIES = {"float16": "float16", "mixed_float16": "mixed_float16", "mixed_float16_unscaled": "mixed_float16", "fp32": "float32"}


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    precision = choice(settings, "precision", tuple(_POLICIES))
    steps, seed = int(settings.get("steps") or 30), int(settings.get("seed") or 0)
    return Lesson(lambda: _teach(precision, steps, seed), precision="mixed_float16" if "mixed" in precision else precision)


def _teach(precision: str, steps: int, seed: int) -> list[Value]:
    keras.utils.set_random_seed(seed)
    with policy(_POLICIES[precision]):
        model = _deep_net()
    scaled = precision == "mixed_float16"
    optimizer = KerasMomentum(model.trainable_variables, lr=0.02, momentum=0.9, scaled=scaled)
    data, random = digits(), np.random.default_rng(seed)
    step = _watched_step(model, optimizer)
    seen: list[np.ndarray] = []
    while len(seen) < steps:
        seen += [np.asarray(step(*batch)) for batch in shuffled_batches(data.train, _BATCH, random)][: steps - len(seen)]
    finite_loss, finite_gradient, zero, lost = np.array(seen).T.astype(bool)
    skipped = ~finite_gradient if scaled else np.zeros(steps, bool)
    non_finite = ~finite_loss | (~finite_gradient & ~skipped)
    counts = {
        "bad_steps": non_finite | zero,
        "non_finite_steps": non_finite,
        "zero_gradient_steps": zero,
        "skipped_steps": skipped,
        "lost_update_steps": lost & ~skipped,
    }
    found = np.argmax(np.asarray(model(data.test[0], training=False), np.float32), axis=1)
    return [
        *(Value(name, int(which.sum()), "steps") for name, which in counts.items()),
        Value("steps", steps, "steps"),
        Value("accuracy", float(np.mean(found == data.test[1])), "share"),
    ]


def _deep_net() -> keras.Model:
    layers = [keras.layers.Dense(_WIDTH, activation="sigmoid") for _ in range(_LAYERS)]
    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), *layers, keras.layers.Dense(10)])


def _watched_step(model: keras.Model, optimizer: KerasMomentum) -> Any:
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    kernels = [v for v in model.trainable_variables if len(v.shape) > 1]

    @tf.function(jit_compile=False)
    def step(samples: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(samples, training=True))
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        before = [tf.identity(v.value) for v in kernels]
        optimizer.apply(gradients)
        by_path = {v.path: g for v, g in zip(model.trainable_variables, gradients, strict=True)}
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
        zero = [tf.reduce_all(by_path[v.path] == 0) for v in kernels]
        same = [tf.reduce_all(v.value == old) & ~none for v, old, none in zip(kernels, before, zero, strict=True)]
        return tf.stack([tf.math.is_finite(loss), finite, tf.reduce_any(zero), tf.reduce_any(same)])

    return step
