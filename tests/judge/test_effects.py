"""Values of terms and effects of rounds: what counts, and what is said where nothing does."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.judge.book import Book
from harness.judge.effects import effect, value_of
from harness.model import Arrangement, Case, Estimand, Outcome, Quad, Reading, Reason, Scale, State, Statistic, Term
from tests.helpers import (
    make_case,
    make_contrast,
    make_failure,
    make_outcome_reading,
    make_quads,
    make_ratio,
    make_reading,
    make_record,
    make_trial_record,
)
from tests.judge.builders import lost_round, outcome_rounds, plan_of, rounds_of


def term(measure: str = "throughput", statistic: Statistic = Statistic.TOTAL_RATE, *, trial: str = "treatment", weight: float = 1.0, contrast: str = "contrast-1") -> Term:
    return Term(weight, contrast, trial, measure, statistic)


def blocks(*work_and_seconds: tuple[float, float]):
    return tuple(make_reading(work, seconds=seconds, n=1, turn=turn) for turn, (work, seconds) in enumerate(work_and_seconds))


def test_throughput_is_all_work_by_all_time_and_no_mean_of_rates():
    record = make_record(readings=blocks(*[(32.0, 0.010)] * 9, (32.0, 1.0)))

    assert 320 / 1.09 == pytest.approx(value_of(record, term()))


def test_step_time_is_all_time_by_all_steps():
    record = make_record(readings=blocks((32.0, 0.5), (32.0, 1.5)))

    assert 1.0 == pytest.approx(value_of(record, term("step_time")))


def test_blocks_of_quads_that_were_not_accepted_do_not_count():
    readings = (make_reading(10.0, seconds=1.0, quad=1), make_reading(1000.0, seconds=1.0, quad=2))
    record = make_record(readings=readings, quads=(Quad(1, "AB", accepted=True), Quad(2, "AB", accepted=False)))

    assert 10.0 == pytest.approx(value_of(record, term()))


def test_blocks_after_the_partner_was_ended_do_not_count():
    readings = (make_reading(10.0, seconds=1.0, quad=1), make_reading(1000.0, seconds=1.0, quad=1, part="absence"))

    assert 10.0 == pytest.approx(value_of(make_record(readings=readings), term()))


def test_a_block_without_a_value_leaves_no_rate():
    readings = (make_reading(10.0), make_reading(None, reason="lost"))

    assert "no_blocks" == value_of(make_record(readings=readings), term()).code


def test_the_first_call_is_tracing_and_first_execution():
    record = make_record(trials=(make_trial_record(phases_s={"trace": 2.0, "first": 3.0}),))

    assert 5.0 == value_of(record, term("first_call"))


def test_a_phase_is_read_by_its_name():
    assert 0.5 == value_of(make_record(), term("phase_build"))


def test_a_phase_that_was_not_timed_has_a_reason():
    assert Reason("no_reading", "has no phase sleep") == value_of(make_record(), term("phase_sleep"))


def test_peak_memory_is_the_trials_own():
    record = make_record(trials=(make_trial_record(peak_rss_bytes=7),))

    assert 7.0 == value_of(record, term("peak_rss"))


def test_input_wait_is_a_share_of_the_blocks_time():
    readings = (make_reading(10.0, seconds=2.0), make_reading(0.5, name="input_wait_s", unit="s"))

    assert 0.25 == pytest.approx(value_of(make_record(readings=readings), term("input_wait")))


def test_waiting_in_quads_that_were_not_accepted_does_not_count():
    readings = (make_reading(10.0, seconds=2.0), make_reading(0.5, name="input_wait_s"), make_reading(99.0, name="input_wait_s", quad=0))

    assert 0.25 == pytest.approx(value_of(make_record(readings=readings, quads=make_quads(1)), term("input_wait")))


@pytest.mark.parametrize(("statistic", "expected"), [(Statistic.MEDIAN, 2.0), (Statistic.MAX, 9.0)])
def test_a_statistic_makes_one_number_of_many_readings(statistic, expected):
    record = make_record(readings=tuple(make_outcome_reading("latency", value) for value in (1.0, 2.0, 9.0)))

    assert expected == value_of(record, term("latency", statistic))


def test_one_value_that_was_read_differently_twice_is_none():
    record = make_record(readings=tuple(make_outcome_reading("traces", value) for value in (1.0, 2.0)))

    assert "several_values" == value_of(record, term("traces", Statistic.VALUE)).code


def test_the_two_starts_of_a_trial_that_takes_turns_are_averaged():
    readings = tuple(make_outcome_reading("blocked_s", value) for value in (1.0, 2.0))
    record = make_record(readings=readings, arrangement=Arrangement.TURNS_OF_TRIALS)

    assert 1.5 == value_of(record, term("blocked_s", Statistic.VALUE))


def test_a_null_reading_hands_on_its_reason():
    record = outcome_rounds([None], reason="the query is not supported here")[0]

    assert value_of(record, term("traces", Statistic.VALUE)).text.endswith("the query is not supported here")


def test_a_trial_that_failed_has_its_outcome_for_a_reason():
    assert Reason("failed", "failed: killed by signal 9") == value_of(lost_round(), term())


def test_a_trial_that_was_not_there_is_missing():
    assert "missing" == value_of(make_record(), term(trial="another")).code


def test_the_memory_of_values_knows_a_record_from_its_successor():
    seen = [value_of(make_record(rates={"baseline": 1.0, "treatment": rate}), term()) for rate in (1.0, 2.0, 3.0)]

    assert [1.0, 2.0, 3.0] == pytest.approx(seen)


# ---------------------------------------------------------------- effects


def test_a_ratio_is_a_difference_of_logarithms():
    assert math.log(2) == pytest.approx(effect(make_ratio(), [200.0, 100.0]))


def test_an_offset_is_added():
    estimand = replace(make_ratio(), offset=-math.log(8))

    assert math.log(7.2 / 8) == pytest.approx(effect(estimand, [720.0, 100.0]))


def test_a_baseline_of_zero_is_named():
    assert "baseline_zero" == effect(make_ratio(), [200.0, 0.0]).code


def test_what_is_wrong_with_the_baseline_is_said_first():
    reasons = [Reason("failed", "failed: one"), Reason("failed", "failed: two")]

    assert Reason("baseline_failed", "baseline failed: two") == effect(make_ratio(), reasons)


def test_terms_of_one_estimand_on_the_linear_scale_are_weighed_and_added():
    estimand = Estimand(Scale.LINEAR, (term(weight=2.0), term(weight=-1.0)))

    assert 5.0 == effect(estimand, [3.0, 1.0])


# ---------------------------------------------------------------- the book


def test_only_the_last_arrangement_counts():
    records = [*rounds_of([9.0, 9.0]), *rounds_of([2.0], arrangement=Arrangement.TURNS_OF_TRIALS)]

    assert [math.log(2.0)] == pytest.approx(Book(plan_of(), records).effects(make_ratio())[0])


@pytest.mark.parametrize("state", [state for state in State if state is not State.COMPLETED])
def test_only_completed_rounds_count(state):
    records = [*rounds_of([2.0]), replace(make_record(1), outcome=Outcome(state))]

    assert 1 == len(Book(plan_of(), records).effects(make_ratio())[0])


def test_rounds_of_several_contrasts_are_paired_in_the_order_in_which_they_completed():
    other = Term(1.0, "contrast-2", "treatment", "throughput")
    estimand = Estimand(Scale.LOG, (other, replace(other, weight=-1.0, contrast="contrast-1")))
    first = rounds_of([1.0, 2.0])
    second = [replace(make_record(0, contrast="contrast-2"), outcome=make_failure()), *rounds_of([4.0, 4.0], contrast="contrast-2")]

    assert [math.log(4.0), math.log(2.0)] == pytest.approx(Book(plan_of(), first + second).effects(estimand)[0])


def test_a_round_that_a_later_attempt_completed_is_not_lost():
    records = [lost_round(0), make_record(0, attempt=1)]

    assert [] == Book(plan_of(), records).lost("contrast-1")


def test_a_round_that_was_interrupted_is_not_lost():
    records = [replace(make_record(), outcome=Outcome(State.INTERRUPTED))]

    assert [] == Book(plan_of(), records).lost("contrast-1")


def test_spreads_of_ratios_of_time_are_pooled_together():
    book = Book(plan_of(), [])

    assert book.pool_key(make_ratio()) == book.pool_key(make_ratio(measure="step_time"))


def test_spreads_of_bytes_are_not_pooled_with_those_of_time():
    book = Book(plan_of(), [])

    assert book.pool_key(make_ratio()) != book.pool_key(make_ratio(measure="peak_rss"))


def test_the_least_spread_is_half_the_pooled_one():
    book = Book(plan_of(), rounds_of([1.0, math.e]))

    assert 0.5 * math.sqrt(0.5) == pytest.approx(book.floors(make_ratio()).spread)


def rate_case(contrast: str, measure: str = "throughput") -> Case:
    return make_case(f"of-{contrast}", estimand=Estimand(Scale.LINEAR, (Term(1.0, contrast, "treatment", measure),)), lo=None, null=None)


def test_rates_of_other_units_widen_one_another_by_per_cents_not_by_numbers():
    cases = (rate_case("many"), rate_case("few"))
    plan = plan_of(*cases, contrasts=(make_contrast("many", ("baseline", "treatment")), make_contrast("few", ("baseline", "treatment"))))
    records = [
        *(make_record(n, contrast="many", rates={"baseline": 1.0, "treatment": rate}) for n, rate in enumerate([0.9e9, 1.1e9])),
        *(make_record(n, contrast="few", rates={"baseline": 1.0, "treatment": rate}) for n, rate in enumerate([100.0, 100.0])),
    ]
    pooled = math.sqrt((2 * 0.1**2 + 0.0) / 2)  # of both, as shares of their means

    assert 0.5 * pooled * 100 == pytest.approx(Book(plan, records).floors(cases[1].estimand).spread)
    assert 0.5 * pooled * 1e9 == pytest.approx(Book(plan, records).floors(cases[0].estimand).spread)


def test_shares_are_pooled_as_they_are():
    share = rate_case("waiting", "input_wait").estimand
    book = Book(plan_of(), [])

    assert book.pool_key(share) != book.pool_key(rate_case("waiting").estimand)


def test_a_level_whose_spread_is_a_share_of_it_is_not_pooled_with_a_difference():
    book, level = Book(plan_of(), []), Estimand(Scale.LINEAR, (term("first_call"),))
    difference = Estimand(Scale.LINEAR, (*level.terms, term("first_call", trial="baseline", weight=-1.0)))

    assert book.pool_key(level) != book.pool_key(difference)


def test_the_systematic_floor_of_a_ratio_is_one_per_cent_on_a_cpu():
    assert 0.01 == Book(plan_of(), []).floors(make_ratio()).systematic


def test_the_systematic_floor_can_be_set_by_the_plan():
    assert 0.03 == Book(plan_of(thresholds={"floor_cpu": 0.03}), []).floors(make_ratio()).systematic


def test_a_ratio_of_ratios_has_the_systematic_floor_twice():
    estimand = Estimand(Scale.LOG, make_ratio().terms * 2)

    assert 0.02 == pytest.approx(Book(plan_of(), []).floors(estimand).systematic)


def test_the_systematic_floor_of_a_duration_is_a_share_of_it():
    level = Estimand(Scale.LINEAR, (term("step_time"),))
    book = Book(plan_of(), [make_record(readings=blocks((8.0, 2.0)))])

    assert 0.02 == pytest.approx(book.floors(level).systematic)


def test_what_is_not_timed_has_no_systematic_floor_on_the_linear_scale():
    level = Estimand(Scale.LINEAR, (term("accuracy", Statistic.VALUE),))

    assert 0.0 == Book(plan_of(), outcome_rounds([0.77], "accuracy")).floors(level).systematic


def test_a_reading_between_blocks_belongs_to_no_other_trial():
    record = make_record(readings=(Reading("baseline", "traces", 1.0, ""),))

    assert "no_reading" == value_of(record, term("traces", Statistic.VALUE)).code
