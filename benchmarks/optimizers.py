"""SGD with momentum, once as Keras gives it and once with one operation a variable; both with or without dynamic loss scaling.

The two must stay numerically the same: what differs is only how many operations a step spends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from harness.errors import ConfigError

INITIAL_SCALE = 2.0**15  # as Keras' LossScaleOptimizer
GROWTH_STEPS = 2000


class LeanMomentum:
    """SGD with momentum as one fused operation a variable: m = momentum * m - lr * g, w = w + m, in this order, as Keras computes it.

    With `scaled` it also keeps a dynamic loss scale by Keras' rules: halved and the step skipped when a gradient is not finite, doubled
    after 2000 good steps. The scale is a power of two, so dividing the learning rate by it is the same as dividing every gradient.
    """

    def __init__(self, variables: Sequence[Any], lr: float, momentum: float, scaled: bool) -> None:
        self._variables = [_raw(v) for v in variables]
        self._lr, self._momentum = lr, momentum
        self.slots = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self._variables]
        self._scale = tf.Variable(INITIAL_SCALE, trainable=False) if scaled else None
        self._good_steps = tf.Variable(0, trainable=False) if scaled else None

    @property
    def scaled(self) -> bool:
        return self._scale is not None

    @property
    def state(self) -> list[Any]:
        """Every variable of its own that training goes on from."""
        return [*self.slots, *(v for v in (self._scale, self._good_steps) if v is not None)]

    def scale_loss(self, loss: Any) -> Any:
        return loss if self._scale is None else loss * tf.cast(self._scale, loss.dtype)

    def apply(self, gradients: Sequence[Any]) -> None:
        dense = [tf.convert_to_tensor(g) for g in gradients]
        if self._scale is None:
            self._update(dense, tf.constant(self._lr, tf.float32))
        else:
            # One operation a gradient: the sum of squares is finite exactly if the elements are (they would have to exceed 1e16 otherwise).
            finite = tf.reduce_all(tf.math.is_finite(tf.stack([tf.nn.l2_loss(g) for g in dense])))
            tf.cond(finite, lambda: self._accept(dense), self._refuse)

    def _update(self, gradients: Sequence[Any], lr: Any) -> None:
        for variable, slot, gradient in zip(self._variables, self.slots, gradients):
            tf.raw_ops.ResourceApplyKerasMomentum(
                var=variable.handle,
                accum=slot.handle,
                lr=tf.cast(lr, variable.dtype),
                grad=tf.cast(gradient, variable.dtype),
                momentum=tf.constant(self._momentum, variable.dtype),
            )

    def _accept(self, gradients: Sequence[Any]) -> Any:
        self._update(gradients, self._lr / self._scale)
        full = tf.equal(self._good_steps, GROWTH_STEPS - 1)
        self._scale.assign(tf.where(full, self._scale * 2.0, self._scale))
        return self._good_steps.assign(tf.where(full, 0, self._good_steps + 1))

    def _refuse(self) -> Any:
        self._scale.assign(self._scale * 0.5)
        return self._good_steps.assign(0)


class KerasMomentum:
    """keras.optimizers.SGD, wrapped in keras' own LossScaleOptimizer with `scaled`."""

    def __init__(self, variables: Sequence[Any], lr: float, momentum: float, scaled: bool) -> None:
        self._variables = list(variables)
        inner = keras.optimizers.SGD(lr, momentum=momentum)
        self.keras = (
            keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=INITIAL_SCALE, dynamic_growth_steps=GROWTH_STEPS) if scaled else inner
        )
        self.keras.build(self._variables)

    @property
    def scaled(self) -> bool:
        return isinstance(self.keras, keras.mixed_precision.LossScaleOptimizer)

    @property
    def state(self) -> list[Any]:
        """As LeanMomentum's: TensorFlow's variables underneath."""
        return [_raw(v) for v in self.keras.variables]

    @property
    def slots(self) -> list[Any]:
        return list(getattr(self.keras, "inner_optimizer", self.keras).momentums)

    def scale_loss(self, loss: Any) -> Any:
        return self.keras.scale_loss(loss)

    def apply(self, gradients: Sequence[Any]) -> None:
        self.keras.apply(gradients, self._variables)


def make_optimizer(level: str, variables: Sequence[Any], lr: float, momentum: float, scaled: bool) -> LeanMomentum | KerasMomentum:
    """Return the optimizer of the level `keras` or `lean` over `variables`, with its state made."""
    kinds = {"keras": KerasMomentum, "lean": LeanMomentum}
    if level not in kinds:
        raise ConfigError(f"optimizer={level} is no level; choose keras or lean")
    return kinds[level](variables, lr, momentum, scaled)


def _raw(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable
