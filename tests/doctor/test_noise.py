"""Two equal children taking turns: what is made of their answers, and that they are ended whatever happens."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from harness.doctor import noise
from harness.doctor.busy import hash_for
from harness.doctor.noise import Child, NoAnswerError, watch


class Scripted:
    """A child that answers with rates made beforehand; `pid` is our own, so that its CPU time can be read."""

    def __init__(self, rates) -> None:
        self.rates = iter(rates)
        self.popen = type("Process", (), {"pid": os.getpid()})()
        self.turns: list[float] = []
        self.ended = False

    def turn(self, seconds: float) -> float:
        self.turns.append(seconds)
        rate = next(self.rates)
        if isinstance(rate, Exception):
            raise rate
        return rate

    def end(self) -> None:
        self.ended = True


def watched(first, second, seconds: float = 4.0):
    children = [Scripted(first), Scripted(second)]
    made = iter(children)
    return watch(seconds, 0.25, make=lambda threads: next(made)), children


def test_a_quad_is_the_log_of_the_second_ones_rate_over_the_firsts_and_the_first_quad_does_not_count():
    told, children = watched([1, 1, 10, 10, 10, 20, 5, 5], [9, 9, 10, 10, 30, 30, 5, 5])
    assert [pytest.approx(0.0), pytest.approx(math.log(2)), pytest.approx(0.0)] == list(told.log_ratios)
    assert [[0.25] * 8] * 2 == [child.turns for child in children]


def test_what_went_on_meanwhile_is_read():
    told, _ = watched([1] * 8, [1] * 8)
    assert told.elapsed_s >= 0
    assert (None, True) == (told.reason, told.swapped_bytes is None or told.swapped_bytes >= 0)


def test_a_child_that_does_not_answer_is_a_reason_and_both_are_ended():
    told, children = watched([1, 1, NoAnswerError("a busy child ended")], [1] * 8)
    assert ("a busy child ended", (), [True, True]) == (told.reason, told.log_ratios, [child.ended for child in children])


def test_a_child_that_cannot_be_started_is_a_reason_and_the_other_is_ended():
    first = Scripted([1] * 8)
    made = iter([first])

    def make(threads: int):
        child = next(made, None)
        if child is None:
            raise OSError(11, "Resource temporarily unavailable")
        return child

    assert ("no child could be started: Resource temporarily unavailable", True) == (watch(4.0, make=make).reason, first.ended)


def test_an_interruption_ends_both_children():
    children = [Scripted([1] * 8), Scripted([1, KeyboardInterrupt(), 1, 1])]
    made = iter(children)
    children[1].turn = lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        watch(4.0, make=lambda threads: next(made))
    assert [True, True] == [child.ended for child in children]


def test_short_turns_of_real_children_give_a_ratio_a_quad():
    told = watch(0.8, 0.05)
    assert (None, 3) == (told.reason, len(told.log_ratios))
    assert all(math.isfinite(ratio) for ratio in told.log_ratios)
    assert told.elapsed_s >= 3 * 4 * 0.05


def test_a_child_that_was_killed_does_not_answer_and_can_be_ended():
    child = Child(1)
    try:
        assert 0 < child.turn(0.01)
        child.popen.kill()
        with pytest.raises(NoAnswerError):
            child.turn(0.01)
    finally:
        child.end()
    assert -9 == child.popen.returncode


def test_a_child_that_is_silent_is_given_up(monkeypatch):
    start = subprocess.Popen
    silent = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(noise.subprocess, "Popen", lambda command, **how: start(silent, **how))
    child = Child(1)
    try:
        with pytest.raises(NoAnswerError, match=r"did not answer within 0\.1 s"):
            child.turn(0.05, wait_s=0.05)
    finally:
        child.end()
    assert 0 > child.popen.returncode


@pytest.mark.parametrize("answer", ["nan", "0", "-1", "inf", "hello"])
def test_an_answer_that_is_no_rate_is_refused(monkeypatch, answer):
    start = subprocess.Popen
    odd = [sys.executable, "-c", f"input(); print({answer!r}, flush=True); input()"]
    monkeypatch.setattr(noise.subprocess, "Popen", lambda command, **how: start(odd, **how))
    child = Child(1)
    try:
        with pytest.raises(NoAnswerError, match="answered"):
            child.turn(0.01)
    finally:
        child.end()


def test_a_busy_turn_counts_at_least_one_buffer():
    import time

    assert 0 < hash_for(0.0, time.perf_counter())
