"""What lessons share: the digits to train on, a policy for a while, and training by hand over arrays. Framework code only, no measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.contract import Value, Workload
from benchmarks.optimizers import KerasMomentum
from benchmarks.training import POLICIES
from harness.errors import ConfigError


class Lesson(Workload):
    """A workload that is one function: called once, it answers with readings."""

    def __init__(self, teach: Callable[[], Sequence[Value]], **facts: Any) -> None:
        self._teach, self._facts = teach, facts

    def outcome(self) -> list[Value]:
        return list(self._teach())

    def facts(self) -> dict[str, Any]:
        return dict(self._facts)


def choice(settings: dict[str, Any], name: str, choices: Sequence[str]) -> str:
    """Return the setting `name`, the first of `choices` if it is not given. Raises ConfigError for any other word."""
    value = str(settings.get(name) or choices[0])
    if value not in choices:
        raise ConfigError(f"{name}={value} means nothing to this lesson; choose one of {', '.join(choices)}")
    return value


@contextmanager
def policy(name: str) -> Iterator[None]:
    """Make layers built inside follow the dtype policy `name`."""
    kept = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(kept)


@dataclass(frozen=True)
class Digits:
    """scikit-learn's 1797 handwritten digits as (samples, 8, 8, 1) float32 in [0, 1], a quarter of them kept for testing."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def digits() -> Digits:
    """Return the digits, always split in the same way."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images[..., None] / 16.0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    test, train = np.split(order, [len(order) // 4])
    return Digits((images[train], found.target[train].astype(np.int64)), (images[test], found.target[test].astype(np.int64)))


def small_convnet(output_dtype: str | None = None) -> keras.Model:
    """Return a convnet for the digits that ends in a softmax, as the articles' nets do; its dtype follows the policy unless given.

    It is tiny because half precision has no fast kernels on a CPU: there a step of ResNet-50 takes minutes.
    """
    return keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
        keras.layers.Conv2D(8, 3, padding="same", strides=2, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax", dtype=output_dtype),
    ])  # fmt: skip


def trained_accuracy(precision: str, seed: int, epochs: int, output_dtype: str | None = "float32") -> tuple[float, float]:
    """Train the small convnet on the digits in `precision` and return (share of test digits recognised, loss of the last epoch)."""
    data = digits()
    keras.utils.set_random_seed(seed)
    with policy(POLICIES[precision]):
        model = small_convnet(output_dtype)
    optimizer = KerasMomentum(model.trainable_variables, lr=0.05, momentum=0.9, scaled=precision == "mixed_float16")
    step = training_step(model, optimizer)
    random, losses = np.random.default_rng(seed), [float("nan")]
    for _ in range(epochs):
        losses = [float(step(*batch)) for batch in shuffled_batches(data.train, 64, random)]
    found = np.argmax(np.asarray(model(data.test[0], training=False), np.float32), axis=1)
    return float(np.mean(found == data.test[1])), float(np.mean(losses))


def training_step(model: keras.Model, optimizer: KerasMomentum) -> Callable[[Any, Any], Any]:
    """Return one compiled step for a model that ends in probabilities."""
    loss_function = keras.losses.SparseCategoricalCrossentropy()

    @tf.function(jit_compile=False)
    def step(samples: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(samples, training=True))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables))
        return loss

    return step


def shuffled_batches(data: tuple[np.ndarray, np.ndarray], batch: int, random: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """Yield an epoch of full batches as tensors, in an order drawn from `random`."""
    samples, labels = data
    order = random.permutation(len(samples))
    for start in range(0, len(order) - batch + 1, batch):
        chosen = order[start : start + batch]
        yield tf.constant(samples[chosen]), tf.constant(labels[chosen])
