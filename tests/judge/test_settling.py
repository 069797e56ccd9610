"""When a contrast has told what it can, and what it tells meanwhile."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from harness.judge import running_estimate, settled
from harness.model import Arrangement, ControlKind, Estimand, Outcome, Proof, Purpose, Reason, Role, Scale, State, Statistic, Term
from tests.helpers import make_case, make_claim, make_contrast, make_ratio, make_record, make_trial_record
from tests.judge.builders import control_plan, control_round, lost_round, outcome_rounds, plan_of, rounds_of

CLEAR = [2.0, 2.02, 1.98]
NOISY = [1.0, 2.0, 4.0]


def is_settled(records, *cases, **plan):
    return settled(plan_of(*(cases or (make_case(lo=1.5),)), **plan), "contrast-1", records)


def test_a_clear_case_is_settled_at_the_first_look():
    assert is_settled(rounds_of(CLEAR))


def test_before_the_first_look_nothing_is_settled():
    assert not is_settled(rounds_of(CLEAR[:2]))


def test_a_noisy_case_is_not_settled_at_the_first_look():
    assert not is_settled(rounds_of(NOISY))


def test_after_the_last_look_everything_is_settled():
    assert is_settled(rounds_of(NOISY * 4))


def test_every_case_that_reads_the_contrast_must_be_settled():
    assert not is_settled(rounds_of(CLEAR), make_case("clear", lo=1.5), make_case("open", lo=2.0))


def test_a_case_of_another_contrast_does_not_matter():
    assert is_settled(rounds_of(CLEAR), make_case(lo=1.5), make_case("elsewhere", estimand=make_ratio("contrast-2")))


def test_looks_that_contradict_one_another_stay_so():
    records = rounds_of([2.0, 2.0, 2.0, *[2.3] * 5])

    assert is_settled(records, make_case(lo=2.2), thresholds={"pooled_share": 0.0})


def test_a_reading_is_settled_once_it_is_precise():
    assert is_settled(rounds_of([2.0, 2.001, 1.999]), make_case(lo=None, role=Role.READING))


def test_a_reading_that_is_not_precise_goes_on():
    assert not is_settled(rounds_of([2.0, 2.1, 1.9]), make_case(lo=None, role=Role.READING))


def test_a_reading_on_the_linear_scale_is_precise_relative_to_its_value():
    busy = Estimand(Scale.LINEAR, (Term(1.0, "contrast-1", "treatment", "busy", Statistic.VALUE),))

    assert is_settled(outcome_rounds([0.8, 0.801, 0.799], "busy"), make_case(lo=None, role=Role.READING, estimand=busy))


@pytest.mark.parametrize(("values", "expected"), [([40.0], False), ([40.0, 40.0], True), ([40.0, 41.0], True)])
def test_an_exact_case_is_settled_after_two_rounds(values, expected):
    traces = Estimand(Scale.EXACT, (Term(1.0, "contrast-1", "treatment", "traces", Statistic.VALUE),))

    assert expected is is_settled(outcome_rounds(values), make_case(lo=1.0, hi=1.0, null=None, estimand=traces))


def test_a_contrast_that_only_fails_is_settled_after_two_lost_rounds():
    assert [False, True] == [is_settled([lost_round(at) for at in range(count)]) for count in (1, 2)]


def test_two_time_outs_settle_a_contrast():
    late = Outcome(State.TIMED_OUT, Reason("deadline", "late", {"deadline_s": 1.0, "steps": 1}), "blocks")

    assert is_settled([lost_round(at, outcome=late) for at in range(2)])


def test_an_unstable_contrast_is_settled():
    assert is_settled([*rounds_of(NOISY), lost_round(3), lost_round(4)])


def test_interrupted_rounds_settle_nothing():
    assert not is_settled([replace(make_record(at), outcome=Outcome(State.INTERRUPTED)) for at in range(5)])


def test_rounds_of_an_arrangement_that_was_given_up_settle_nothing():
    assert not is_settled([*rounds_of(CLEAR), *rounds_of([2.0], arrangement=Arrangement.TURNS_OF_TRIALS)])


def test_a_contrast_that_nothing_reads_is_settled_at_its_first_look():
    assert [False, True] == [settled(plan_of(claims=()), "contrast-1", rounds_of(CLEAR[:n])) for n in (2, 3)]


def test_a_contrast_that_is_not_planned_is_settled():
    assert settled(plan_of(), "gone", [])


def test_a_proof_is_settled_after_one_round():
    proof = make_contrast("proof-a", ("arm",), purpose=Purpose.PROOF, looks=(1,))
    plan = plan_of(contrasts=(proof,), proofs=(Proof("same", "", "proof-a", "b", "c", "fp32"),))
    record = make_record(contrast="proof-a", rates={}, trials=(make_trial_record("arm", proof="x"),))

    assert [False, True] == [settled(plan, "proof-a", records) for records in ([], [record])]


def test_a_control_is_settled_after_its_look():
    plan = control_plan(ControlKind.NEGATIVE)

    assert [False, True] == [settled(plan, "control", [control_round(at) for at in range(n)]) for n in (2, 3)]


def test_a_control_is_due_again_in_a_resumed_part():
    records = [control_round(at) for at in range(3)]

    assert not settled(control_plan(ControlKind.NEGATIVE), "control", [*records, control_round(3, part=1)])


# ---------------------------------------------------------------- meanwhile


def test_a_running_estimate_needs_two_rounds():
    assert running_estimate(plan_of(), "contrast-1", rounds_of([2.0])) is None


def test_a_running_estimate_is_that_of_all_rounds_so_far():
    title, estimate = running_estimate(plan_of(), "contrast-1", rounds_of([2.0, 2.0]))

    assert ("graph over eager", 2, 2.0) == (title, estimate.n, pytest.approx(estimate.point))


def test_a_running_estimate_is_of_a_judged_case_if_there_is_one():
    plan = plan_of(make_case("reading", role=Role.READING, title="reading"), make_case(title="judged"))

    assert "judged" == running_estimate(plan, "contrast-1", rounds_of(CLEAR))[0]


def test_a_contrast_that_no_case_reads_has_no_running_estimate():
    assert running_estimate(plan_of(claims=()), "contrast-1", rounds_of(CLEAR)) is None


# ---------------------------------------------------------------- many rounds


def test_ten_thousand_rounds_are_not_read_anew_for_every_question():
    names = [f"contrast-{at}" for at in range(1000)]
    contrasts = tuple(replace(plan_of().contrasts[0], id=name) for name in names)
    claims = tuple(make_claim(name, cases=(make_case(name, lo=1.5, estimand=make_ratio(name)),)) for name in names)
    plan = plan_of(contrasts=contrasts, claims=claims)
    small = make_record(0)
    records = [replace(small, index=at, contrast=name) for at in range(10) for name in names]

    def cost_s() -> float:
        started = time.perf_counter()
        settled(plan, names[0], records)
        return time.perf_counter() - started

    first, *later = [cost_s() for _ in range(4)]

    # The first question reads all blocks; later ones only remember. Relative, so that a slow machine does not matter.
    assert min(later) < first / 2
