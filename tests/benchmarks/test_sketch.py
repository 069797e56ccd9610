"""The sketch of a weight update."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.sketch import BUCKETS, count_sketch, norm


def arrays(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape) for shape in ((300, 400), (50_000,), (7, 7, 3, 64))]


def test_the_norm_of_a_difference_survives_sketching():
    one, other = arrays(0), arrays(1)

    assert pytest.approx(norm([a - b for a, b in zip(one, other, strict=True)]), rel=0.03) == np.linalg.norm(count_sketch(one) - count_sketch(other))


def test_equal_arrays_have_equal_sketches():
    assert np.array_equal(count_sketch(arrays(0)), count_sketch(arrays(0)))


def test_a_sketch_has_a_fixed_length():
    assert (BUCKETS,) == count_sketch([np.ones(3)]).shape


def test_a_small_difference_in_one_array_is_not_lost():
    one, other = arrays(0), arrays(0)
    other[1] = other[1] * 1.1

    assert pytest.approx(0.1 * norm(one[1:2]), rel=0.03) == np.linalg.norm(count_sketch(one) - count_sketch(other))
