"""Estimates from rounds: looks, exact values, bounds by time-outs, kills, and what is said where there is none."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.judge.book import Book
from harness.judge.estimates import LARGEST, find
from harness.model import Deadlines, Estimand, Outcome, Reason, Scale, State, Statistic, Term
from tests.helpers import make_case, make_contrast, make_failure, make_ratio, make_record, make_trial_record
from tests.judge.builders import lost_round, outcome_rounds, plan_of, rounds_of

FAST = [2.0, 2.02, 1.98]


def found(records, case=None, *, running=False, alpha=0.05, **plan):
    case = case or make_case()
    return find(Book(plan_of(case, **plan), records), case, alpha, running=running)


def too_slow(phase="blocks", **numbers):
    return Outcome(State.TIMED_OUT, Reason("deadline", "did not finish within 10 s", numbers), phase)


# ---------------------------------------------------------------- looks


def test_the_point_is_the_mean_of_the_rounds_logarithms():
    assert (2.0 * 2.02 * 1.98) ** (1 / 3) == pytest.approx(found(rounds_of(FAST)).estimate.point)


def test_the_rounds_are_kept_in_natural_units():
    assert FAST == pytest.approx(found(rounds_of(FAST)).estimate.rounds)


def test_the_first_look_needs_three_rounds():
    assert "too_few_rounds" == found(rounds_of(FAST[:2])).defect.code


def test_each_look_has_its_share_of_alpha():
    assert 0.0125 == found(rounds_of(FAST)).alpha_look


def test_the_looks_that_were_taken_are_listed():
    assert [3, 5] == [n for n, _, _ in found(rounds_of(FAST + FAST[:2])).estimate.looks]


def test_the_interval_is_what_all_looks_have_in_common():
    estimate = found(rounds_of([*FAST, 2.3, 1.7])).estimate

    assert (max(low for _, low, _ in estimate.looks), min(high for _, _, high in estimate.looks)) == (estimate.low, estimate.high)


def test_looks_that_contradict_one_another_are_a_defect():
    records = rounds_of([2.0, 2.0, 2.0, *[2.3] * 9])

    assert "looks_contradict" == found(records, thresholds={"pooled_share": 0.0}).defect.code


def test_a_run_that_was_stopped_between_looks_has_one_more():
    assert [3, 4] == [n for n, _, _ in found(rounds_of([*FAST, 2.0])).estimate.looks]


def test_a_running_contrast_has_only_planned_looks():
    assert [3] == [n for n, _, _ in found(rounds_of([*FAST, 2.0]), running=True).estimate.looks]


def test_the_look_of_an_earlier_stop_is_replayed():
    stopped = rounds_of([*FAST, 2.0])
    resumed = [replace(record, index=4 + at, part=1) for at, record in enumerate(rounds_of([*FAST, 2.0]))]

    assert [3, 4, 8] == [n for n, _, _ in found(stopped + resumed).estimate.looks]


def test_the_point_lies_within_the_interval():
    estimate = found(rounds_of([2.0, 2.0, 2.0, 2.1, 2.2])).estimate

    assert estimate.low <= estimate.point <= estimate.high


def test_one_round_shows_no_spread_and_no_interval():
    estimate = found(rounds_of([2.0])).estimate

    assert (1, None, 0.0, None) == (estimate.n, estimate.spread, estimate.low, estimate.high)


def test_one_round_on_the_linear_scale_is_open_on_both_sides():
    level = Estimand(Scale.LINEAR, (Term(1.0, "contrast-1", "treatment", "busy", Statistic.VALUE),))
    estimate = found(outcome_rounds([0.6], "busy"), make_case(estimand=level, null=None)).estimate

    assert (-LARGEST, None) == (estimate.low, estimate.high)


def test_equal_rounds_have_a_spread_of_zero_and_the_systematic_floor():
    estimate = found(rounds_of([2.0, 2.0, 2.0])).estimate

    assert (0.0, 2.0 * math.exp(0.01)) == (estimate.spread, pytest.approx(estimate.high))


def test_a_contrast_that_loses_more_than_a_third_of_its_rounds_is_unstable():
    records = [*rounds_of(FAST), lost_round(3), lost_round(4)]

    assert "unstable" == found(records).defect.code


def test_a_contrast_that_loses_a_third_of_its_rounds_is_not():
    records = [*rounds_of([*FAST, 2.0]), lost_round(4), lost_round(5)]

    assert found(records).defect is None


def test_one_noisy_contrast_in_a_run_widens_a_quiet_one():
    quiet, noisy = make_case(), make_case("other", estimand=make_ratio("contrast-2"))
    contrasts = tuple(replace(plan_of().contrasts[0], id=name) for name in ("contrast-1", "contrast-2"))
    records = [*rounds_of([2.0, 2.001, 1.999]), *rounds_of([1.0, 2.0, 3.0], contrast="contrast-2")]
    alone = find(Book(plan_of(quiet, contrasts=contrasts), records), quiet, 0.05).estimate
    together = find(Book(plan_of(quiet, noisy, contrasts=contrasts), records), quiet, 0.05).estimate

    assert together.high > alone.high


# ---------------------------------------------------------------- exact values

TRACES = make_case(lo=1.0, hi=1.0, null=None, estimand=Estimand(Scale.EXACT, (Term(1.0, "contrast-1", "treatment", "traces", Statistic.VALUE),)))


def test_two_rounds_that_agree_are_exact():
    answer = found(outcome_rounds([40.0, 40.0]), TRACES)

    assert (40.0, 40.0, "exact", None) == (answer.estimate.low, answer.estimate.high, answer.estimate.method, answer.defect)


def test_two_rounds_that_disagree_are_a_defect():
    assert "rounds_disagree" == found(outcome_rounds([40.0, 41.0]), TRACES).defect.code


def test_a_third_round_that_disagrees_counts_too():
    assert "rounds_disagree" == found(outcome_rounds([40.0, 40.0, 41.0]), TRACES).defect.code


def test_one_exact_round_is_too_few():
    assert "too_few_rounds" == found(outcome_rounds([40.0]), TRACES).defect.code


# ---------------------------------------------------------------- bounds


def slow_rounds(count=2, arm="treatment", rate=100.0, **numbers):
    partner = "baseline" if arm == "treatment" else "treatment"
    rates = {partner: rate, arm: rate}
    outcome = too_slow(**{"deadline_s": 10.0, "steps": 5, **numbers})
    rounds = (lost_round(at, arm=arm, outcome=outcome, rates=rates) for at in range(count))
    return [replace(record, readings=tuple(r for r in record.readings if r.trial == partner)) for record in rounds]


def test_a_treatment_that_timed_out_twice_is_bounded_from_above():
    # 5 steps of 8 samples did not end within 10 s: below 4/s against a baseline of 100/s; blocks of the builders count 8 steps of 50 samples.
    estimate = found(slow_rounds()).estimate
    per_step = 50 / 8

    assert (0.0, 5 * per_step / 10 / 100 * math.exp(0.01), "bound") == (estimate.low, pytest.approx(estimate.high), estimate.method)


def test_work_per_step_is_the_batch_where_no_arm_was_measured():
    level = make_case(lo=10.0, null=None, estimand=Estimand(Scale.LOG, (Term(1.0, "contrast-1", "treatment", "throughput"),)))
    rounds = [lost_round(at, outcome=too_slow(deadline_s=10.0, steps=5)) for at in range(2)]

    assert 4.0 * math.exp(0.01) == pytest.approx(found(rounds, level).estimate.high)


def test_a_baseline_that_timed_out_twice_bounds_the_ratio_from_below():
    estimate = found(slow_rounds(arm="baseline")).estimate

    assert estimate.high is None and estimate.low > 10


def test_one_time_out_bounds_nothing():
    answer = found(slow_rounds(1))

    assert (None, "treatment_timed_out") == (answer.estimate, answer.defect.code)


def test_the_weakest_of_several_bounds_counts():
    rounds = [*slow_rounds(1), *(replace(r, index=1) for r in slow_rounds(1, deadline_s=5.0))]

    assert found(rounds).estimate.high == pytest.approx(2 * found(slow_rounds()).estimate.high)


def test_blocks_of_unknown_length_bound_nothing():
    rounds = [lost_round(at, outcome=too_slow(deadline_s=10.0), rates={"baseline": 100.0, "treatment": 100.0}) for at in range(2)]

    assert found(rounds).estimate is None


def test_a_warm_up_step_that_timed_out_is_one_step():
    rounds = [lost_round(at, outcome=Outcome(State.TIMED_OUT, None, "warmup"), rates={"baseline": 100.0, "treatment": 100.0}) for at in range(2)]
    estimate = found(rounds).estimate

    assert (50 / 8) / Deadlines().warmup_s / 100 * math.exp(0.01) == pytest.approx(estimate.high)


def test_a_time_out_in_the_first_call_bounds_no_speed():
    assert found([lost_round(at, outcome=too_slow("first", deadline_s=10.0), rates={"baseline": 1.0, "treatment": 1.0}) for at in range(2)]).estimate is None


def test_a_time_out_in_the_first_call_bounds_the_first_call():
    case = make_case(lo=5.0, null=None, estimand=Estimand(Scale.LOG, (Term(1.0, "contrast-1", "treatment", "first_call"),)))
    estimate = found([lost_round(at, outcome=too_slow("first", deadline_s=10.0)) for at in range(2)], case).estimate

    assert (10.0 * math.exp(-0.01), None) == (pytest.approx(estimate.low), estimate.high)


def test_a_baseline_that_another_contrast_measured_will_do():
    contrast = plan_of().contrasts[0]
    other = replace(contrast, id="contrast-2")
    rounds = [lost_round(at, outcome=too_slow(deadline_s=10.0, steps=5)) for at in range(2)]
    elsewhere = rounds_of([2.0], contrast="contrast-2")

    assert 4.0 / 100 * math.exp(0.01) == pytest.approx(found(rounds + elsewhere, contrasts=(contrast, other)).estimate.high)


def test_without_any_baseline_a_time_out_bounds_nothing():
    assert found([lost_round(at, outcome=too_slow(deadline_s=10.0, steps=5)) for at in range(2)]).estimate is None


# ---------------------------------------------------------------- kills

KILLED = make_case(lo=None, hi=1.0, killed_counts_as=0.0)


@pytest.mark.parametrize("reason", [Reason("out_of_memory", "ran out"), Reason("killed", "signal 9", {"signal": 9, "possibly_out_of_memory": True})])
def test_a_treatment_killed_twice_for_memory_counts_as_the_claim_says(reason):
    records = [lost_round(at, outcome=Outcome(State.FAILED, reason), rates={"baseline": 10.0, "nobody": 1.0}) for at in range(2)]

    assert (0.0, 0.0) == (found(records, KILLED).estimate.low, found(records, KILLED).estimate.high)


def test_a_kill_where_the_baseline_was_never_seen_to_complete_counts_as_nothing():
    killed = Outcome(State.FAILED, Reason("out_of_memory", "ran out"))

    assert found([lost_round(at, outcome=killed) for at in range(2)], KILLED).estimate is None


def test_one_kill_may_be_an_accident():
    assert found([lost_round(outcome=Outcome(State.FAILED, Reason("out_of_memory", "")))], KILLED).estimate is None


def test_a_kill_where_the_baseline_failed_too_counts_as_nothing():
    killed = Outcome(State.FAILED, Reason("out_of_memory", ""))
    rounds = [lost_round(at, outcome=killed) for at in range(2)]
    records = [replace(r, trials=tuple(replace(t, outcome=killed) for t in r.trials)) for r in rounds]

    assert found(records, KILLED).estimate is None


def test_any_other_failure_is_no_kill():
    assert found([lost_round(at, outcome=make_failure(code="error")) for at in range(2)], KILLED).estimate is None


def test_a_kill_of_the_baseline_counts_as_nothing():
    outcome = Outcome(State.FAILED, Reason("out_of_memory", ""))

    assert "baseline_failed" == found([lost_round(at, arm="baseline", outcome=outcome) for at in range(2)], KILLED).defect.code


def test_a_kill_is_a_failure_where_the_claim_does_not_speak_of_it():
    outcome = Outcome(State.FAILED, Reason("out_of_memory", "ran out of memory"))

    assert "treatment_failed" == found([lost_round(at, outcome=outcome) for at in range(2)]).defect.code


# ---------------------------------------------------------------- nothing


def test_a_contrast_that_was_not_measured_says_so():
    assert Reason("no_rounds", "was not measured") == found([]).defect


def test_a_baseline_that_failed_is_named():
    assert Reason("baseline_failed", "baseline failed: killed by signal 9") == found([lost_round(arm="baseline")]).defect


def test_a_baseline_that_is_missing_from_its_rounds_is_named():
    records = [replace(record, trials=(make_trial_record("treatment"),)) for record in rounds_of(FAST)]

    assert "baseline_missing" == found(records).defect.code


def test_a_baseline_without_work_is_named():
    assert "baseline_zero" == found([make_record(at, rates={"baseline": 0.0, "treatment": 100.0}) for at in range(3)]).defect.code


def test_a_baseline_without_the_measure_is_named():
    case = make_case(estimand=make_ratio(measure="busy"))

    assert "baseline_no_reading" == found(rounds_of(FAST), case).defect.code


def test_a_contrast_that_is_not_planned_is_named():
    assert "baseline_missing" == found([], make_case(estimand=make_ratio("elsewhere"))).defect.code


def test_interrupted_rounds_are_told_with_their_state():
    records = [replace(make_record(), outcome=Outcome(State.INTERRUPTED), trials=(make_trial_record("baseline", outcome=Outcome(State.INTERRUPTED)),))]

    assert ("no_rounds", "interrupted") == (found(records).defect.code, found(records).defect.numbers["state"])


def test_the_looks_of_an_estimand_over_several_contrasts_are_the_fewest():
    contrasts = (make_contrast("one", looks=(3, 5, 8, 12)), make_contrast("two", looks=(3, 5)))
    estimand = Estimand(Scale.LOG, (Term(1.0, "one", "treatment", "throughput"), Term(-1.0, "two", "treatment", "throughput")))

    assert (3, 5) == Book(plan_of(contrasts=contrasts), []).looks(estimand)


# ---------------------------------------------------------------- what cannot be had


def test_an_arm_that_was_skipped_leaves_no_value_but_its_reason():
    skipped = Outcome(State.SKIPPED, Reason("unsupported", "not to be had here: no such product"), "build")
    result = found([lost_round(outcome=skipped)])
    assert (None, "no round completed (1 tried): not to be had here: no such product") == (result.estimate, result.defect.text)
