"""The instrument under test: controls that hold, fail, or cannot be shown."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.judge import judge
from harness.judge.book import Book
from harness.judge.controls import judge_controls
from harness.model import ControlKind, Outcome, State
from tests.helpers import make_ratio
from tests.judge.builders import control_plan, control_round

ALL = (ControlKind.NEGATIVE, ControlKind.POSITIVE, ControlKind.ABSENCE)


def words(records, *kinds, **plan):
    return [result.word for result in judge_controls(Book(control_plan(*(kinds or ALL), **plan), records))]


def test_an_honest_instrument_holds():
    assert ["held", "held", "held"] == words([control_round(at, drift=0.002) for at in range(3)])


def test_the_ratio_that_ghost_steps_make_is_known_from_the_counts():
    (result,) = judge_controls(Book(control_plan(ControlKind.POSITIVE), [control_round(at) for at in range(3)]))

    assert 10 / 11 == pytest.approx(result.expected)


def test_a_blind_instrument_fails_the_positive_control_only():
    assert ["held", "failed", "held"] == words([control_round(at, slowed=1.0) for at in range(3)])


def test_an_instrument_that_favours_the_second_arm_fails_the_negative_control():
    assert "failed" == words([control_round(at, second=1.05, drift=0.001) for at in range(3)])[0]


def test_an_idle_partner_that_costs_something_fails_the_absence_control():
    assert "failed" == words([control_round(at, alone=1.08) for at in range(3)])[2]


def test_a_noisy_machine_cannot_show_it():
    assert ["not shown", "not shown"] == words([control_round(at, drift=0.05) for at in range(3)])[:2]


def test_too_few_rounds_show_nothing():
    assert ["not shown"] == words([control_round(at) for at in range(2)], ControlKind.NEGATIVE)


def test_a_control_that_was_not_measured_says_so():
    (result,) = judge_controls(Book(control_plan(ControlKind.NEGATIVE), []))

    assert ("not shown", "was not measured") == (result.word, result.reason.text)


def test_a_control_whose_rounds_were_lost_says_why():
    record = replace(control_round(), outcome=Outcome(State.FAILED))
    (result,) = judge_controls(Book(control_plan(ControlKind.NEGATIVE), [record]))

    assert ("not shown", "no round completed: failed") == (result.word, result.reason.text)


def test_a_part_that_failed_is_not_excused_by_one_that_held():
    records = [control_round(at, second=1.08) for at in range(3)] + [control_round(3 + at, part=1) for at in range(3)]

    assert ["failed"] == words(records, ControlKind.NEGATIVE)


def test_a_control_takes_one_look_and_no_more():
    records = [control_round(at) for at in range(3)] + [control_round(3 + at, second=1.2) for at in range(3)]

    assert ["held"] == words(records, ControlKind.NEGATIVE)


def test_a_bias_that_the_controls_show_raises_the_systematic_floor():
    plan = control_plan(ControlKind.NEGATIVE)
    records = [control_round(at, second=1.03) for at in range(3)]

    assert math.log(1.03) == pytest.approx(Book(plan, records).bias_shown("cpu", "turns_of_blocks"), rel=1e-6)


def test_a_bias_that_the_controls_show_widens_every_interval_of_their_arrangement():
    records = [control_round(at, second=1.03) for at in range(3)]
    ratio = make_ratio("control", "second", "first")

    assert math.log(1.03) == pytest.approx(Book(control_plan(ControlKind.NEGATIVE), records).floors(ratio).systematic, rel=1e-6)


def test_noise_of_the_controls_is_no_bias():
    book = Book(control_plan(ControlKind.NEGATIVE), [control_round(at, drift=0.03) for at in range(3)])

    assert 0.0 == book.bias_shown("cpu", "turns_of_blocks")


def test_a_bias_of_one_arrangement_is_none_of_another():
    book = Book(control_plan(ControlKind.NEGATIVE), [control_round(at, second=1.03) for at in range(3)])

    assert 0.01 == book.floors(make_ratio("elsewhere")).systematic


def test_counts_that_differ_from_round_to_round_are_no_noise():
    plain = [control_round(at) for at in range(3)]
    records = [*plain[:2], replace(plain[2], readings=tuple(with_steps(reading, 4) for reading in plain[2].readings))]

    assert ["held"] == words(records, ControlKind.POSITIVE)


def with_steps(reading, steps):
    """The same block with so many counted steps, at the same time for each step that ran."""
    ran_before, ran = reading.n + reading.ghost, steps + reading.ghost
    return replace(reading, value=float(steps), n=steps, t1_ns=round(reading.t1_ns * ran / ran_before))


def test_judge_reports_the_controls():
    verdicts = judge(control_plan(*ALL), [control_round(at) for at in range(3)], lambda name: {})

    assert ["negative-cpu", "positive-cpu", "absence-cpu"] == [control.control for control in verdicts.controls]
