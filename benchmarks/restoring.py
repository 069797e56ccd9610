"""Does a checkpoint come back? What belongs into one, what its values were, and a second training into which it is restored.

Knows nothing of clocks, nor of how a checkpoint was saved.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.training import Training, make


class Twin:
    """A fresh training of the same `settings`, begun from another seed, into whose weights, statistics and optimizer checkpoints are restored.

    Beginning one sets the global seed, which makes TensorFlow build anew whatever runs next: not between steps that are timed.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._state = tracked(make({**settings, "seed": int(settings.get("seed") or 0) + 1}))

    def restore(self, prefix: str) -> dict[str, str]:
        """Restore the checkpoint `prefix` and return the digests of all values then, as `digests` does for what was saved.

        Before, every value is overwritten, so that none passes for restored that was not. Raises what TensorFlow raises: an OpError for files that
        cannot be read, AssertionError for a value that the checkpoint does not have.
        """
        for variable in self._state.values():
            variable.assign(_blank(variable))
        status = tf.train.Checkpoint(**self._state).read(prefix)
        status.assert_existing_objects_matched().expect_partial()  # the number of saves is in the checkpoint, too, and nobody asks for it
        return digests(self._state)


def tracked(training: Training) -> dict[str, Any]:
    """Return name -> TensorFlow variable of all that training goes on from: weights, statistics and the optimizer's state.

    The variables underneath, not Keras' own: with those in a checkpoint, the second asynchronous save raises ValueError.
    """
    variables = [variable.value for variable in training.net.model.variables] + training.optimizer.state
    return {f"v{index:04}": variable for index, variable in enumerate(variables)}


def digests(state: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of every value as it is now; waits for the device."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return dict(zip(state, pool.map(lambda variable: digest(variable.numpy()), state.values())))


def digest(value: Any) -> str:
    """Return a digest of an array's type, shape and bits."""
    array = np.asarray(value)
    whole = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
    whole.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return whole.hexdigest()


def bytes_of(variable: Any) -> int:
    """Return how many bytes a variable's value takes."""
    return int(np.prod(variable.shape)) * int(variable.dtype.size)


def _blank(variable: Any) -> np.ndarray:
    """Return what no trained value is, in a variable's type and shape."""
    number = float("nan") if variable.dtype.is_floating else variable.dtype.max
    return np.full(tuple(variable.shape), number, variable.dtype.as_numpy_dtype)
