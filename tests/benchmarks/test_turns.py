"""How the suite times itself: turns, their medians, and processes of their own."""

from __future__ import annotations

import statistics
from itertools import count
from types import SimpleNamespace

import pytest

from benchmarks import turns
from benchmarks.turns import Middle, in_a_process, in_turns, middle, ratio, timed


def test_works_take_turns_and_every_second_turn_goes_the_other_way_round():
    ran = []
    in_turns(lambda: ran.append("a") or 0.0, lambda: ran.append("b") or 0.0, repeats=3)

    assert "abbaabba" == "".join(ran)


def test_the_first_turn_of_each_does_not_count():
    first, second = count(10), count(20)

    assert [[11, 12], [21, 22]] == in_turns(lambda: next(first), lambda: next(second), repeats=2)


def test_a_timed_work_says_how_long_the_clock_ran_for_it(monkeypatch):
    monkeypatch.setattr(turns, "time", SimpleNamespace(perf_counter=iter([5.0, 7.5]).__next__))

    assert 2.5 == timed(lambda: None)()


def test_a_middle_tells_the_spread_and_how_many_turns_there_were():
    assert Middle(3, 1, 8, 3) == middle([8, 1, 3])


def test_no_turns_have_no_middle():
    with pytest.raises(statistics.StatisticsError):
        middle([])


def test_a_ratio_is_that_of_the_turns_and_not_of_the_medians():
    assert Middle(2.0, 0.5, 3.0, 3) == ratio([2, 6, 30], [1, 12, 10])


def test_a_value_comes_back_from_a_process_of_its_own():
    assert [24, True] == in_a_process("math", "[it.factorial(4), True]")


def test_a_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match="AttributeError") as caught:
        in_a_process("math", "it.no_such_name")

    assert "ended with exit code 1" in str(caught.value)
