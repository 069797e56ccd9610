"""Where tensors really lie, and how what lies there is multiplied."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def first_device() -> str:
    """Return the name of the device that the work is done on: the first GPU that this process may use, else the CPU."""
    gpus = tf.config.list_logical_devices("GPU")
    return gpus[0].name if gpus else "/CPU:0"


def device_of(*tensors: Any) -> str:
    """Return cpu or gpu, from where tensors and variables really lie; both names, joined by a plus sign, where they disagree."""
    names = {tf.DeviceSpec.from_string(getattr(t, "value", t).device).device_type.lower() for t in tensors}
    return "+".join(sorted(names))


def tensor_float_32(tensor: Any) -> bool:
    """Whether float32 products with `tensor` may be rounded: the switch alone does nothing on a CPU or on cards before Ampere."""
    if not tf.config.experimental.tensor_float_32_execution_enabled() or device_of(tensor) != "gpu":
        return False
    details = tf.config.experimental.get_device_details(tf.config.get_visible_devices("GPU")[0])
    return tuple(details.get("compute_capability", (0, 0))) >= (8, 0)
