"""Intervals, looks and their schedule, as plain arithmetic."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from harness.judge.stats import Floors, Look, deviation, half_width, intersect, pooled, schedule, t_factor, take_look, welch


def test_the_half_width_is_students():
    values = [1.0, 2.0, 4.0]

    assert stats.t.ppf(0.995, 2) * stats.tstd(values) / math.sqrt(3) == pytest.approx(half_width(values, 0.01, Floors()))


def test_a_spread_below_the_floor_counts_as_the_floor():
    assert 0.5 * t_factor(3, 0.05) == pytest.approx(half_width([1.0, 1.0, 1.0], 0.05, Floors(spread=0.5)))


def test_the_systematic_floor_is_added_to_the_half_width():
    assert 0.01 == pytest.approx(half_width([1.0, 1.0, 1.0], 0.05, Floors(systematic=0.01)))


def test_one_value_has_no_spread():
    assert deviation([3.0]) is None


def test_equal_values_have_a_spread_of_zero():
    assert 0.0 == deviation([3.0, 3.0, 3.0])


def test_one_value_has_an_interval_without_bounds():
    assert Look(1, -math.inf, math.inf) == take_look([3.0], 0.05, Floors())


def test_the_pooled_spread_is_the_one_within_groups():
    assert 1.0 == pytest.approx(pooled([[0.0, math.sqrt(2)], [100.0, 100.0 + math.sqrt(2)], [7.0]]))


def test_nothing_pooled_is_no_floor():
    assert 0.0 == pooled([[1.0], []])


def test_looks_are_taken_at_the_planned_numbers():
    assert (3, 5) == schedule((3, 5, 8, 12), [], 6)


def test_a_stop_between_looks_takes_the_place_of_the_next_one():
    assert (3, 4) == schedule((3, 5, 8, 12), [4], 4)


def test_the_look_that_a_stop_used_up_is_not_taken_again_after_resuming():
    assert (3, 4, 8) == schedule((3, 5, 8, 12), [4], 9)


def test_a_second_stop_between_looks_gets_no_look():
    assert (3, 4) == schedule((3, 5, 8, 12), [4, 7], 7)


def test_a_stop_before_the_third_round_gets_no_look():
    assert () == schedule((3, 5), [2], 2)


def test_a_stop_at_a_planned_look_uses_up_no_other():
    assert (3, 5) == schedule((3, 5, 8, 12), [3], 5)


def test_there_are_never_more_looks_than_planned():
    assert max(len(schedule((3, 5, 8, 12), [a, b, c], 12)) for a in range(13) for b in range(a, 13) for c in range(b, 13)) == 4


def test_looks_are_intersected():
    assert (1.5, 2.5) == intersect([Look(3, 1.0, 3.0), Look(5, 1.5, 2.5)])


def test_looks_that_contradict_one_another_leave_nothing():
    low, high = intersect([Look(3, 1.0, 1.1), Look(5, 1.2, 1.3)])

    assert low > high


def test_welch_agrees_with_scipy():
    ours, theirs = [1.0, 1.2, 0.9, 1.1], [2.0, 2.5, 1.9]
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.99)

    assert (expected.low, expected.high) == pytest.approx(welch(ours, theirs, 0.01)[1:])


def test_welch_refuses_a_single_value():
    with pytest.raises(ValueError, match="got 1 and 2"):
        welch([1.0], [1.0, 2.0], 0.01)
