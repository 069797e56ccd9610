"""Do the articles' own snippets do what their text says? Each is built as it is printed, and again with its mistake repaired.

Setting: `snippet`, one of
  local_batch_fit            a per-replica batch is given to `fit` under MirroredStrategy: does each replica get that batch?
  custom_loop_no_scaling     a hand-written loop under mixed_float16: are the gradients protected by loss scaling?
  final_softmax_dtype        a net under mixed_float16 that ends in Dense(softmax): is its output float32?
  probabilities_named_logits a softmax net trained with from_logits=True: is the loss its cross-entropy? Reads `precision` (fp32 |
                             mixed_float16): Keras 3 recognises the softmax behind the tensor and forgives, unless a cast stands between
  shuffle_after_decode       shuffle(1000) behind the decoding map: does the buffer hold less than the files themselves? Reads the files that
                             `benchmarks.input` names (`images_dir`, `data_dir`, `files`)
  io_device                  a save with experimental_io_device="/job:localhost": is it written in the background? Repaired: enable_async, over the
                             variables underneath, as Keras' own break the second such save. Saves to `scratch_dir` (else a temporary folder)
Readings: `as_written` and `repaired`, 1 where the snippet does what its text says and 0 where it does not, and beside them the numbers that show
it: `per_replica_*` (samples), `scale_*` (factor on the gradients), `bits_*`, `loss_*` and `loss_true`, `buffer_*` and `buffer_files` (bytes),
`background_*` (saves of three that came back before their files were whole).
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.contract import Value
from benchmarks.durability import is_complete
from benchmarks.input import photographs_of
from benchmarks.input.decoding import decode
from benchmarks.input.samples import Asked, Photograph
from benchmarks.input.tfdata import ARTICLE_BUFFER, AUTOTUNE, as_written, hand_out
from benchmarks.lessons.lesson import Lesson, choice, digits, policy, small_convnet
from harness.errors import ConfigError

_REPLICAS, _LOCAL_BATCH = 2, 8
_SIDE = 224
_SAVES, _WIDTH = 3, 4096  # of a net of 100 MB: long enough to write that nobody looks too late


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


def _shuffle_after_decode(settings: dict[str, Any]) -> list[Value]:
    found = photographs_of({**settings, "verify": False})
    names = tf.data.Dataset.from_tensor_slices([photograph.path for photograph in found])
    decoded = names.map(lambda path: decode(tf.io.read_file(path), _SIDE), num_parallel_calls=AUTOTUNE)
    written, repaired = (_taken_in(data, ARTICLE_BUFFER, found, _seed(settings)) for data in (decoded, names))
    on_disk = sum(Path(photograph.path).stat().st_size for photograph in found[:ARTICLE_BUFFER])
    return [*_holds(written <= on_disk, repaired <= on_disk), *_pair("buffer", written, repaired, "bytes"), Value("buffer_files", on_disk, "bytes")]


def _taken_in(data: Any, buffer: int, found: Sequence[Photograph], seed: int) -> int:
    """Return how many bytes a shuffle takes in before it gives out its first element, told by a function that notes what passes."""
    passed: list[int] = []

    def witness(element: Any) -> Any:
        size = tf.strings.length(element) if element.dtype == tf.string else tf.size(element) * element.dtype.size
        with tf.control_dependencies([tf.py_function(lambda number: passed.append(int(number)), [size], [])]):
            return tf.identity(element)

    # As written: a map that TensorFlow had made parallel would run ahead of the shuffle.
    next(hand_out(as_written(data.map(witness).shuffle(buffer, seed=seed)), found, Asked(batch=1, image=_SIDE)))
    return sum(passed)


def _io_device(settings: dict[str, Any]) -> list[Value]:
    keras.utils.set_random_seed(_seed(settings))
    model = keras.Sequential([keras.Input((_WIDTH // 2,)), keras.layers.Dense(_WIDTH), keras.layers.Dense(_WIDTH)])
    underneath = {f"v{index}": variable.value for index, variable in enumerate(model.variables)}
    with tempfile.TemporaryDirectory(dir=settings.get("scratch_dir")) as folder:
        options = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")
        written = _background_saves(tf.train.Checkpoint(model=model), Path(folder) / "as_written", options)
        repaired = _background_saves(tf.train.Checkpoint(**underneath), Path(folder) / "repaired", tf.train.CheckpointOptions(enable_async=True))
    return [*_holds(written == _SAVES, repaired == _SAVES), *_pair("background", written, repaired, "saves")]


def _background_saves(checkpoint: Any, folder: Path, options: Any) -> int:
    """Return how many of some saves came back before their files were whole, which they were once TensorFlow said that it is done."""
    folder.mkdir()
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=1)
    found = 0
    for _ in range(_SAVES):
        prefix = manager.save(options=options)
        whole_at_once = is_complete(prefix)
        checkpoint.sync()
        found += not whole_at_once and is_complete(prefix)
    return found


_SNIPPETS: dict[str, Callable[[dict[str, Any]], list[Value]]] = {
    "local_batch_fit": _local_batch_fit,
    "custom_loop_no_scaling": _custom_loop_no_scaling,
    "final_softmax_dtype": _final_softmax_dtype,
    "probabilities_named_logits": _probabilities_named_logits,
    "shuffle_after_decode": _shuffle_after_decode,
    "io_device": _io_device,
}
