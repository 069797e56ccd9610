"""A short, norm-preserving summary of a whole weight update, so that two arms can be compared without storing 25 million numbers.

A count sketch (Charikar, Chen and Farach-Colton, 2002): every element is added, with a random sign, to one of a few thousand buckets. It is
linear, so the sketch of a difference is the difference of the sketches, and its norm is the difference's within about 1 / sqrt(2 * BUCKETS).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BUCKETS = 4096
_SEED = 20_260_101  # part of the definition: sketches of different seeds cannot be compared


def count_sketch(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sketch, float32 of shape (BUCKETS,), of all `arrays` laid end to end. Their order and shapes decide the hashing."""
    total = np.zeros(BUCKETS)
    for index, array in enumerate(arrays):
        random = np.random.default_rng([_SEED, index])
        hashed = random.integers(0, 2 * BUCKETS, size=array.size, dtype=np.uint16)
        signed = np.where(hashed & 1, 1.0, -1.0) * np.asarray(array, np.float64).ravel()
        total += np.bincount(hashed >> 1, weights=signed, minlength=BUCKETS)
    return total.astype(np.float32)


def norm(arrays: Sequence[np.ndarray]) -> float:
    """Return the Euclidean norm over all `arrays` together."""
    return float(np.sqrt(sum(float(np.square(np.asarray(a, np.float64)).sum()) for a in arrays)))


def signs(index: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the fixed random signs (-1 or 1) by which the `index`-th weight is perturbed."""
    return np.random.default_rng([_SEED + 1, index]).integers(0, 2, size=shape, dtype=np.int8) * 2 - 1
