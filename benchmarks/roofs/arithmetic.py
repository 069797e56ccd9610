"""How fast a device multiplies: large matrix products, and convolutions as ResNet has them, in chains that leave launching them out of account.

Each product takes the last one's result, so that none can be left out or shared; inputs are scaled so that numbers neither grow nor vanish on the way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.devices import device_of, first_device, tensor_float_32
from benchmarks.input.samples import cores
from benchmarks.roofs.common import Roof, traced, whole, word
from harness.errors import ConfigError, Unsupported

DTYPES = ("float32", "tf32", "bfloat16", "float16", "int8")
WINDOW = 3  # of the convolution, in pixels each way
SPREAD_INT8 = 74  # standard deviation of whole numbers from -128 to 127, all equally likely


def matmul(settings: dict[str, Any]) -> Roof:
    """Products of two matrices of `size` x `size`, `repeat` of them a step. Work: FLOP, 2 size^3 a product.

    `dtype` float32 (not rounded to TF32), tf32, bfloat16, float16 (results in the same type, sums as the library keeps them), or int8: sums in int32,
    brought back to int8 by a shift, compiled by XLA, since TensorFlow has no kernel of its own for it on a GPU. Raises Unsupported where there is none.
    """
    dtype, gpu = word(settings, "dtype", DTYPES), _on_gpu()
    size = whole(settings, "size", 8192 if gpu else 2048)
    repeat = whole(settings, "repeat", 8 if gpu else _as_many_as_cores())
    _switch_tf32(dtype)
    if dtype == "int8":
        _refuse_missing_int8()
    random = np.random.default_rng(int(settings.get("seed", 0)))
    arguments = [_numbers(random, (size, size), dtype, scale) for scale in (1 / math.sqrt(size), 1.0)]
    chain = _int8_products(size, repeat) if dtype == "int8" else _products(repeat)

    def told(made: Any) -> dict[str, Any]:
        return {"op": "matmul", "dtype": _dtype_of(made), "size": size, "repeat": repeat, "device": device_of(made), "compiled": dtype == "int8"}

    return traced(chain, arguments, 2.0 * size**3 * repeat, "FLOP", told)


def convolution(settings: dict[str, Any]) -> Roof:
    """Convolutions of 3 x 3 pixels over `batch` pictures of `image` px and `channels` channels (channels last), of which as many come out, `repeat` of
    them a step. Work: FLOP, 2 x 9 x batch x image^2 x channels^2 a convolution, taps on padding included. `dtype` as of `matmul`, but for int8."""
    dtype, gpu = word(settings, "dtype", DTYPES), _on_gpu()
    if dtype == "int8":
        raise ConfigError("op=convolution dtype=int8: TensorFlow has no convolution of whole numbers that trains; ask for op=matmul")
    batch, image, channels = whole(settings, "batch", 256 if gpu else 32), whole(settings, "image", 28), whole(settings, "channels", 128)
    repeat = whole(settings, "repeat", 32 if gpu else _as_many_as_cores())
    _switch_tf32(dtype)
    random = np.random.default_rng(int(settings.get("seed", 0)))
    window = _numbers(random, (WINDOW, WINDOW, channels, channels), dtype, 1 / (WINDOW * math.sqrt(channels)))
    pictures = _numbers(random, (batch, image, image, channels), dtype, 1.0)

    @tf.function
    def chain(window: Any, x: Any) -> Any:
        for _ in range(repeat):
            x = tf.nn.conv2d(x, window, strides=1, padding="SAME")
        return x

    def told(made: Any) -> dict[str, Any]:
        sizes = {"batch": batch, "image": image, "channels": channels, "repeat": repeat}
        return {"op": "convolution", "dtype": _dtype_of(made), **sizes, "device": device_of(made)}

    return traced(chain, [window, pictures], 2.0 * WINDOW**2 * batch * image**2 * channels**2 * repeat, "FLOP", told)


def shift_of(size: int) -> int:
    """Return by how many bits the sums of `size` products of int8 are shifted, so that they spread about as widely as what they were made of."""
    return round(math.log2(SPREAD_INT8 * math.sqrt(size)))


def _products(repeat: int) -> Any:
    @tf.function
    def chain(a: Any, x: Any) -> Any:
        for _ in range(repeat):
            x = tf.matmul(a, x)
        return x

    return chain


def _int8_products(size: int, repeat: int) -> Any:
    @tf.function(jit_compile=True)
    def chain(a: Any, x: Any) -> Any:
        for _ in range(repeat):
            # int32 must not leave the function: TensorFlow keeps such tensors in the host's memory.
            x = tf.cast(tf.bitwise.right_shift(tf.matmul(a, x, output_type=tf.int32), shift_of(size)), tf.int8)
        return x

    return chain


def _refuse_missing_int8() -> None:
    """Try a small product: whether XLA has one for this device is found out by compiling it. Raises Unsupported where it has none."""
    with tf.device(first_device()):
        small = tf.zeros((32, 32), tf.int8)
    try:
        _int8_products(32, 1)(small, small)
    except tf.errors.ResourceExhaustedError:
        raise  # there is no room, which says nothing about what the device has
    except tf.errors.OpError as error:
        said = " ".join(str(error.message).split())[:120]
        raise Unsupported(f"TensorFlow multiplies no int8 matrices on this device ({said})") from error


def _numbers(random: np.random.Generator, shape: tuple[int, ...], dtype: str, scale: float) -> Any:
    """Numbers on the device: normal ones with the standard deviation `scale`, or all of int8. numpy makes them, so that they are the same everywhere."""
    if dtype == "int8":
        with tf.device(first_device()):
            return tf.identity(random.integers(-128, 128, shape, dtype=np.int8))
    drawn = random.standard_normal(shape, dtype=np.float32)
    drawn *= np.float32(scale)
    with tf.device(first_device()):
        return tf.cast(tf.identity(drawn), tf.float32 if dtype == "tf32" else dtype)


def _switch_tf32(dtype: str) -> None:
    tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")


def _dtype_of(made: Any) -> str:
    """What was really multiplied, from where the result lies and from the switch in force."""
    return "tf32" if made.dtype == tf.float32 and tensor_float_32(made) else str(made.dtype.name)


def _on_gpu() -> bool:
    return bool(tf.config.list_logical_devices("GPU"))


def _as_many_as_cores() -> int:
    """Products a step on a CPU: one for every two cores, so that steps last about as long whatever their number."""
    return max(1, cores() // 2)
