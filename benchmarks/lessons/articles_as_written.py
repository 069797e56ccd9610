"""Do the articles' own snippets do what their text says? Each is built as it is printed, and again with its mistake repaired.

Setting: `snippet`, one of
  local_batch_fit            a per-replica batch is given to `fit` under MirroredStrategy: does each replica get that batch?
  custom_loop_no_scaling     a hand-written loop under mixed_float16: are the gradients protected by loss scaling?
  final_softmax_dtype        a net under mixed_float16 that ends in Dense(softmax): is its output float32?
  probabilities_named_logits a softmax net trained with from_logits=True: is the loss its cross-entropy? Reads `precision` (fp32 |
                             mixed_float16): Keras 3 recognises the softmax behind the tensor and forgives, unless a cast stands between
  shuffle_after_decode       shuffle(1000) behind the decoding map: does the buffer hold less than the files themselves?
Readings: `as_written` and `repaired`, 1 where the snippet does what its text says and 0 where it does not, and beside them the numbers that show
it: `per_replica_*` (samples), `scale_*` (factor on the gradients), `bits_*`, `loss_*` and `loss_true`, `buffer_*` (bytes).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice, digits, policy, small_convnet
from harness.errors import ConfigError

_REPLICAS, _LOCAL_BATCH = 2, 8


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above. `local_batch_fit` needs two logical CPUs and cuts the CPU in two if nothing has used it yet."""
    snippet = choice(settings, "snippet", tuple(_SNIPPETS))
    if snippet == "local_batch_fit":
        _cut_cpu()
    return Lesson(lambda: _SNIPPETS[snippet](settings), snippet=snippet)


def _holds(as_written: bool, repaired: bool) -> list[Value]:
    return [Value("as_written", int(as_written), "holds"), Value("repaired", int(repaired), "holds")]


def _pair(name: str, as_written: float, repaired: float, unit: str) -> list[Value]:
    return [Value(f"{name}_as_written", as_written, unit), Value(f"{name}_repaired", repaired, unit)]


def _seed(settings: dict[str, Any]) -> int:
    return int(settings.get("seed") or 0)


def _cut_cpu() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    if len(tf.config.get_logical_device_configuration(cpu) or ()) >= _REPLICAS:
        return
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * _REPLICAS)
    except RuntimeError as error:
        raise ConfigError(f"the CPU is in use already and cannot be cut into {_REPLICAS} devices; start with logical_cpus={_REPLICAS}") from error


def _local_batch_fit(settings: dict[str, Any]) -> list[Value]:
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(_REPLICAS)])
    written, repaired = (_replica_batch(strategy, batch, _seed(settings)) for batch in (_LOCAL_BATCH, _LOCAL_BATCH * _REPLICAS))
    return [*_holds(written == _LOCAL_BATCH, repaired == _LOCAL_BATCH), *_pair("per_replica", written, repaired, "samples")]


def _replica_batch(strategy: Any, batch: int, seed: int) -> int:
    """Return the batch that one replica's layers really see in `fit`, told by a layer that notes the shape of what passes."""
    seen: set[int] = set()

    class Witness(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            # A Python function called from the graph: the static batch is unknown while tracing.
            tf.py_function(lambda n: seen.add(int(n)), [tf.shape(inputs)[0]], [])
            return inputs

    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = keras.Sequential([keras.Input((8, 8, 1)), Witness(), keras.layers.Flatten(), keras.layers.Dense(10)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    samples, labels = (part[: 4 * _LOCAL_BATCH * _REPLICAS] for part in digits().train)
    data = tf.data.Dataset.from_tensor_slices((samples, labels)).batch(batch, drop_remainder=True)
    model.fit(data, epochs=1, verbose=0)
    return max(seen)


def _custom_loop_no_scaling(settings: dict[str, Any]) -> list[Value]:
    keras.utils.set_random_seed(_seed(settings))
    with policy("mixed_float16"):
        model = small_convnet("float32")
    samples, labels = (part[:64] for part in digits().train)
    loss_function = keras.losses.SparseCategoricalCrossentropy()

    def gradient_norm(scale: Callable[[Any], Any]) -> float:
        with tf.GradientTape() as tape:
            loss = scale(loss_function(labels, model(samples, training=True)))
        return float(tf.linalg.global_norm([tf.cast(g, tf.float32) for g in tape.gradient(loss, model.trainable_variables)]))

    plain = keras.optimizers.SGD(0.01)
    plain.build(model.trainable_variables)
    scaling = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.01))
    scaling.build(model.trainable_variables)
    reference = gradient_norm(lambda loss: loss)
    # As printed, the optimizer is never asked: even Keras' own `scale_loss` of a plain optimizer changes nothing.
    written, repaired = gradient_norm(plain.scale_loss) / reference, gradient_norm(scaling.scale_loss) / reference
    return [*_holds(written > 1.5, repaired > 1.5), *_pair("scale", round(written, 3), round(repaired, 3), "factor")]


def _final_softmax_dtype(settings: dict[str, Any]) -> list[Value]:
    keras.utils.set_random_seed(_seed(settings))
    with policy("mixed_float16"):
        written, repaired = (small_convnet(dtype)(digits().test[0][:4]).dtype for dtype in (None, "float32"))
    bits = [8 * tf.as_dtype(dtype).size for dtype in (written, repaired)]
    return [*_holds(bits[0] == 32, bits[1] == 32), *_pair("bits", bits[0], bits[1], "bits")]


def _probabilities_named_logits(settings: dict[str, Any]) -> list[Value]:
    precision = choice(settings, "precision", ("fp32", "mixed_float16"))
    keras.utils.set_random_seed(_seed(settings))
    with policy("float32" if precision == "fp32" else precision):
        model = small_convnet()
    samples, labels = digits().test
    probabilities = model(samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras warns where it recognises the mistake; whether it does is what is read here
        written, repaired = (float(keras.losses.SparseCategoricalCrossentropy(from_logits=told)(labels, probabilities)) for told in (True, False))
    truth = float(-np.log(np.asarray(probabilities).astype(np.float64)[np.arange(len(labels)), labels]).mean())
    right = [abs(loss - truth) < 1e-4 * truth for loss in (written, repaired)]
    return [*_holds(*right), *_pair("loss", written, repaired, "loss"), Value("loss_true", truth, "loss")]


def _shuffle_after_decode(settings: dict[str, Any]) -> list[Value]:  # noqa: ARG001 - counting bytes needs no setting
    buffer, side, file_bytes = 1000, 224, 80_000
    names = tf.data.Dataset.from_tensor_slices([f"images/{index:08d}.jpg" for index in range(8)])
    decoded = names.map(lambda name: tf.zeros((side, side, 3)) + tf.cast(tf.strings.length(name), tf.float32))
    written, repaired = (buffer * _element_bytes(next(iter(data))) for data in (decoded, names))
    return [*_holds(written < buffer * file_bytes, repaired < buffer * file_bytes), *_pair("buffer", written, repaired, "bytes")]


def _element_bytes(element: Any) -> int:
    return len(element.numpy()) if element.dtype == tf.string else int(tf.size(element)) * element.dtype.size


_SNIPPETS: dict[str, Callable[[dict[str, Any]], list[Value]]] = {
    "local_batch_fit": _local_batch_fit,
    "custom_loop_no_scaling": _custom_loop_no_scaling,
    "final_softmax_dtype": _final_softmax_dtype,
    "probabilities_named_logits": _probabilities_named_logits,
    "shuffle_after_decode": _shuffle_after_decode,
}
