"""When the first quad that counts is unlike the later ones, and when it only seems so."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from harness.measure.quads import _late_warmup

CREW = SimpleNamespace()
OTHER = SimpleNamespace()


def block(crew, rate):
    return SimpleNamespace(crew=crew, seconds=0.5, work=0.5 * rate)


def quad(*rates):
    return 0, [block(CREW, rate) for rate in rates]


def duet(a, b, c, d):
    return 0, [block(CREW, a), block(OTHER, b), block(OTHER, c), block(CREW, d)]


def test_a_slow_first_quad_before_steady_ones_is_late_warm_up():
    assert pytest.approx(0.2231, abs=1e-4) == _late_warmup([quad(80, 80), quad(100, 100), quad(100, 100)], [CREW])


def test_a_first_quad_that_still_speeds_up_is_late_warm_up_although_its_halves_differ():
    assert _late_warmup([quad(60, 100), quad(100, 101), quad(101, 100)], [CREW]) > 0.2


def test_a_first_quad_within_the_noise_of_the_later_ones_agrees():
    assert 0.0 == _late_warmup([quad(90, 90), quad(95, 108), quad(107, 96)], [CREW])


def test_arms_of_a_duet_are_compared_by_their_ratio():
    assert pytest.approx(0.2231, abs=1e-4) == _late_warmup([duet(80, 50, 50, 80), duet(100, 50, 50, 100)], [CREW, OTHER])
    assert 0.0 == _late_warmup([duet(90, 50, 50, 90), duet(96, 50, 50, 108), duet(108, 50, 50, 96)], [CREW, OTHER])


def test_a_first_quad_alone_has_nothing_to_differ_from():
    assert 0.0 == _late_warmup([quad(80, 80)], [CREW])


def test_noise_seldom_looks_like_warm_up():
    rng = random.Random(1)
    runs = 2000
    seen = sum(_late_warmup([quad(*(rng.lognormvariate(0, 0.08) for _ in "ab")) for _ in range(4)], [CREW]) > 0.05 for _ in range(runs))
    assert seen < 0.08 * runs  # with every difference above 5 % taken for warm-up: more than a third


def test_a_real_warm_up_shows_through_noise():
    rng = random.Random(2)
    runs = 2000
    rates = (0.7, 1.0, 1.0, 1.0)
    seen = sum(_late_warmup([quad(*(rate * rng.lognormvariate(0, 0.03) for _ in "ab")) for rate in rates], [CREW]) > 0.05 for _ in range(runs))
    assert seen > 0.9 * runs
