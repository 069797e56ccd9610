"""The nets that are trained, each from its sizes alone, with weights that follow from the seed.

Every net ends in logits, so that the loss is computed in float32 whatever the policy. It knows nothing of how a net is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from harness.errors import ConfigError


class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras' layer on TensorFlow's one fused kernel instead of moments and element-wise operations.

    Same variables, same output up to rounding, same moving statistics: the kernel's variance is the unbiased one, Keras tracks the
    biased one, hence the correction. Rank 4, channels last only.
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if len(inputs.shape) != 4 or self.axis not in (3, -1) or mask is not None:
            raise ConfigError(f"fused batch norm needs unmasked images with channels last, got shape {inputs.shape} and axis {self.axis}")
        training = bool(training) and self.trainable
        # The kernel takes its statistics and parameters in float32 whatever the input's type.
        gamma, beta, mean, variance = (tf.cast(v, tf.float32) for v in (self.gamma, self.beta, self.moving_mean, self.moving_variance))
        kept = {} if training else {"mean": mean, "variance": variance}
        outputs, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(
            tf.cast(inputs, self.compute_dtype), gamma, beta, epsilon=self.epsilon, is_training=training, **kept
        )
        if training:
            count = int(np.prod(inputs.shape[:3])) if None not in inputs.shape else tf.cast(tf.size(inputs) / tf.shape(inputs)[-1], tf.float32)
            for moving, new, correction in ((self.moving_mean, batch_mean, 1.0), (self.moving_variance, batch_variance, (count - 1) / count)):
                value = tf.cast(moving, tf.float32) * self.momentum + new * ((1.0 - self.momentum) * correction)
                moving.assign(tf.cast(value, moving.dtype))
        return outputs


@dataclass(frozen=True)
class Net:
    """A net with what it eats. `inputs` makes a batch of samples: (generator, batch) -> array; labels are integers below `classes`.

    `last_norms` names the batch norms that close a residual block; `uses_batch_norm` is false where the factor batch_norm means nothing.
    """

    model: keras.Model
    inputs: Callable[[np.random.Generator, int], np.ndarray]
    classes: int
    image: int | None = None
    length: int | None = None
    last_norms: tuple[str, ...] = ()
    uses_batch_norm: bool = False


@dataclass(frozen=True)
class Sizes:
    """What a net is built from; a net reads only what concerns it. `image` and `length` in pixels and tokens."""

    image: int = 224
    length: int = 128
    classes: int = 1000
    width: int = 128
    depth: int = 2
    vocabulary: int = 10_000
    fused: bool = False
    xla: bool = False


def make_net(name: str, sizes: Sizes) -> Net:
    """Return the net called `name`, built under the dtype policy in force. Call `keras.utils.set_random_seed` before, for the weights.

    Raises ConfigError for an unknown name or an impossible size.
    """
    if name not in NETS:
        raise ConfigError(f"there is no model {name!r}; choose one of {', '.join(sorted(NETS))}")
    return NETS[name](sizes)


def _images(side: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda random, batch: random.standard_normal((batch, side, side, 3), dtype=np.float32)


def _tokens(length: int, vocabulary: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    # int64, because TensorFlow keeps int32 tensors in host memory even when they are placed on a GPU.
    return lambda random, batch: random.integers(0, vocabulary, (batch, length), dtype=np.int64)


def _frames(length: int, width: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda random, batch: random.standard_normal((batch, length, width), dtype=np.float32)


def _resnet50(sizes: Sizes) -> Net:
    """ResNet-50 as Keras ships it: the articles' net."""
    if sizes.image < 32:
        raise ConfigError(f"resnet50 needs images of at least 32 px, got {sizes.image}")
    model = keras.applications.ResNet50(weights=None, input_shape=(sizes.image, sizes.image, 3), classes=sizes.classes, classifier_activation=None)
    if sizes.fused:
        model = _with_fused_norms(model)
    last = tuple(layer.name for layer in model.layers if layer.name.endswith("_3_bn"))
    return Net(model, _images(sizes.image), sizes.classes, image=sizes.image, last_norms=last, uses_batch_norm=True)


def _with_fused_norms(model: keras.Model) -> keras.Model:
    def fused(layer: keras.layers.Layer) -> keras.layers.Layer:
        kind = FusedBatchNormalization if isinstance(layer, keras.layers.BatchNormalization) else type(layer)
        return kind.from_config(layer.get_config())

    copy = keras.models.clone_model(model, clone_function=fused)
    copy.set_weights(model.get_weights())
    return copy


def _convnet_small(sizes: Sizes) -> Net:
    """A few convolutions with batch norm, about 0.3 M parameters: launches and Python weigh more than arithmetic."""
    norm = FusedBatchNormalization if sizes.fused else keras.layers.BatchNormalization
    inputs = x = keras.Input((sizes.image, sizes.image, 3))
    for block, filters in enumerate((32, 64, 128)):
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv{block}")(x)
        x = norm(epsilon=1.001e-5, name=f"norm{block}")(x)
        x = keras.layers.ReLU()(x)
        x = keras.layers.MaxPooling2D(2)(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, keras.layers.Dense(sizes.classes, name="predictions")(x))
    return Net(model, _images(sizes.image), sizes.classes, image=sizes.image, uses_batch_norm=True)


def _transformer_small(sizes: Sizes) -> Net:
    """A pre-norm transformer encoder over tokens, mean-pooled to classes."""
    inputs = keras.Input((sizes.length,), dtype="int64")
    x = keras.layers.Embedding(sizes.vocabulary, sizes.width)(inputs)
    for _ in range(sizes.depth):
        h = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, sizes.width // 4)(h, h)
        h = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.Dense(sizes.width)(keras.layers.Dense(4 * sizes.width, activation="gelu")(h))
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(x))
    model = keras.Model(inputs, keras.layers.Dense(sizes.classes, name="predictions")(x))
    return Net(model, _tokens(sizes.length, sizes.vocabulary), sizes.classes, length=sizes.length)


def _lstm(sizes: Sizes) -> Net:
    """A stack of LSTMs over feature frames, the shape of a small audio net."""
    features = 40  # filter-bank features of one frame, a usual number in speech
    inputs = x = keras.Input((sizes.length, features))
    for level in range(sizes.depth):
        # XLA has no cuDNN recurrent kernel: left on "auto" that level could not compile on a GPU.
        x = keras.layers.LSTM(sizes.width, return_sequences=level < sizes.depth - 1, use_cudnn=False if sizes.xla else "auto")(x)
    model = keras.Model(inputs, keras.layers.Dense(sizes.classes, name="predictions")(x))
    return Net(model, _frames(sizes.length, features), sizes.classes, length=sizes.length)


def _layernorm(sizes: Sizes) -> Net:
    """Dense layers with layer normalisation between them: many small operations on little arithmetic."""
    inputs = x = keras.Input((sizes.length, sizes.width))
    for _ in range(4 * sizes.depth):
        x = x + keras.layers.Dense(sizes.width, activation="relu")(keras.layers.LayerNormalization()(x))
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, keras.layers.Dense(sizes.classes, name="predictions")(x))
    return Net(model, _frames(sizes.length, sizes.width), sizes.classes, length=sizes.length)


def _embedding(sizes: Sizes) -> Net:
    """An embedding table under a small perceptron, the shape of a recommender: memory traffic, hardly any arithmetic."""
    inputs = keras.Input((sizes.length,), dtype="int64")
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(sizes.vocabulary, sizes.width)(inputs))
    for _ in range(sizes.depth):
        x = keras.layers.Dense(sizes.width, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(sizes.classes, name="predictions")(x))
    return Net(model, _tokens(sizes.length, sizes.vocabulary), sizes.classes, length=sizes.length)


NETS: Mapping[str, Callable[[Sizes], Net]] = {
    "resnet50": _resnet50,
    "convnet_small": _convnet_small,
    "transformer_small": _transformer_small,
    "lstm": _lstm,
    "layernorm": _layernorm,
    "embedding": _embedding,
}
