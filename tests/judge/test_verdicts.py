"""Claims from cases: who decides, what is left out, and how sure all verdicts together are."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from harness.judge import judge
from harness.judge.claims import all_of, any_of
from harness.model import Decide, Estimand, Ladder, Proof, Purpose, Reason, Role, Scale, Statistic, Term, Verdicts, Word
from tests.helpers import make_case, make_claim, make_contrast, make_failure, make_ratio, make_record, make_trial_record
from tests.judge.builders import claim_of, lost_round, outcome_rounds, plan_of, rounds_of, train

TWICE = [2.0, 2.02, 1.98]


def no_proofs(name):
    raise AssertionError(f"asked for the proof {name}")


def judged(plan, records) -> Verdicts:
    return judge(plan, records, no_proofs)


def verdict(*cases, records=None, **claim):
    return judged(plan_of(claims=(claim_of(*cases, **claim),)), rounds_of(TWICE) if records is None else records).claims[0].verdict


def case_result(case, records, **plan):
    return judged(plan_of(case, **plan), records).claims[0].cases[0]


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize(
    ("band", "word"), [((1.5, 5.0), Word.CONFIRMED), ((2.5, 5.0), Word.WEAKER), ((1.2, 1.5), Word.EXCEEDED), ((None, 0.5), Word.REVERSED), ((2.0, 5.0), Word.INCONCLUSIVE)]
)
def test_a_ratio_of_two_is_judged_by_its_band(band, word):
    assert word is verdict(make_case(lo=band[0], hi=band[1])).word


def test_an_open_verdict_says_what_it_touches_and_how_much_more_would_settle_it():
    found = verdict(make_case(lo=1.9, hi=5.0), records=rounds_of([1.9, 2.1, 2.06]))

    assert (Word.INCONCLUSIVE, True) == (found.word, found.more_rounds is not None and found.more_rounds > 0)


def test_a_truth_on_an_edge_is_never_settled_by_more_rounds():
    assert verdict(make_case(lo=2.0, hi=5.0)).more_rounds is None


def test_a_reading_is_never_judged():
    assert Word.READING is verdict(make_case(lo=5.0, role=Role.READING)).word


def test_a_reading_says_why_its_band_decides_nothing():
    assert "scaled down" == verdict(make_case(lo=5.0, role=Role.READING, why_reading="scaled down")).reason.text


def test_a_fact_is_told_as_a_fact():
    assert Word.FACT is verdict(make_case(lo=None, role=Role.FACT)).word


def test_a_case_without_a_band_is_a_reading():
    assert Word.READING is verdict(make_case(lo=None)).word


def test_a_reading_whose_baseline_failed_keeps_its_word_and_says_so():
    result = case_result(make_case(lo=None, role=Role.READING), [lost_round(arm="baseline")])

    assert (Word.READING, "baseline_failed", None) == (result.verdict.word, result.verdict.reason.code, result.estimate)


def test_one_round_says_nothing_of_significance():
    result = case_result(make_case(lo=1.1), rounds_of([2.0]))

    assert (Word.INCONCLUSIVE, "too_few_rounds", 1, None) == (result.verdict.word, result.verdict.reason.code, result.estimate.n, result.estimate.spread)


def test_an_unstable_contrast_gets_no_verdict():
    records = [*rounds_of(TWICE), lost_round(3), lost_round(4)]

    assert (Word.INCONCLUSIVE, "unstable") == (verdict(make_case(), records=records).word, verdict(make_case(), records=records).reason.code)


def test_a_count_that_two_rounds_agree_on_is_judged():
    traces = Estimand(Scale.EXACT, (Term(1.0, "contrast-1", "treatment", "traces", Statistic.VALUE),))
    case = make_case(lo=1.0, hi=1.0, null=None, estimand=traces)

    assert Word.REFUTED is verdict(case, records=outcome_rounds([40.0, 40.0])).word


# ---------------------------------------------------------------- arms


def test_arms_are_told_over_all_completed_rounds():
    result = case_result(make_case(), [*rounds_of(TWICE), lost_round(3)])

    assert [("treatment", 200.0, "samples/s", 3), ("baseline", 100.0, "samples/s", 3)] == [
        (arm.trial, pytest.approx(arm.rate), arm.unit, arm.rounds) for arm in result.arms
    ]


def test_an_arm_that_failed_has_a_reason_and_no_rate():
    arms = case_result(make_case(), [lost_round(arm="baseline")]).arms

    assert {"treatment": (None, "n/a: its partner ended first"), "baseline": (None, "n/a: failed: killed by signal 9")} == {
        arm.trial: (arm.rate, arm.reason) for arm in arms
    }


def test_an_arm_that_was_never_there_is_missing():
    assert ["n/a: missing"] * 2 == [arm.reason for arm in case_result(make_case(), []).arms]


def test_an_arm_that_did_no_work_has_a_rate_of_zero_and_leaves_the_others_alone():
    plan = plan_of(make_case("zero"), make_case("memory", lo=0.5, hi=1.5, estimand=make_ratio(measure="peak_rss")))
    records = [make_record(at, rates={"baseline": 0.0, "treatment": 100.0}) for at in range(3)]
    words = [result.verdict.word for result in judged(plan, records).claims[0].cases]

    assert [Word.INCONCLUSIVE, Word.CONFIRMED] == words


# ---------------------------------------------------------------- claims

HOLDS, OPEN, WEAK = make_case("holds", lo=1.5), make_case("open", lo=2.0), make_case("weak", lo=2.5)
REFUTED = make_case("refuted", lo=400.0)  # 2 is below a quarter of the way to 400


@pytest.mark.parametrize(
    ("decide", "cases", "word"),
    [
        (Decide.ALL, (HOLDS, WEAK), Word.WEAKER),
        (Decide.ALL, (HOLDS, OPEN), Word.INCONCLUSIVE),
        (Decide.ALL, (REFUTED, OPEN), Word.REFUTED),
        (Decide.ANY, (HOLDS, REFUTED), Word.CONFIRMED),
        (Decide.ANY, (REFUTED, OPEN), Word.INCONCLUSIVE),
        (Decide.ANY, (REFUTED, WEAK), Word.WEAKER),
    ],
)
def test_all_or_any_of_several_cases_decide(decide, cases, word):
    assert word is verdict(*cases, decide=decide).word


def test_one_case_decides_where_the_claim_names_it():
    assert Word.WEAKER is verdict(HOLDS, WEAK, decide=Decide.CASE, deciding_case="weak").word


def test_a_deciding_case_that_is_not_planned_is_named():
    assert "no_deciding_case" == verdict(HOLDS, decide=Decide.CASE, deciding_case="gone").reason.code


def test_readings_do_not_decide():
    assert Word.CONFIRMED is verdict(HOLDS, replace(REFUTED, role=Role.READING)).word


def test_a_claim_of_readings_is_a_reading():
    assert Word.READING is verdict(replace(HOLDS, role=Role.READING), replace(WEAK, role=Role.READING)).word


def test_a_claim_of_facts_is_a_fact():
    assert Word.FACT is verdict(replace(HOLDS, role=Role.FACT), replace(WEAK, role=Role.FACT)).word


def test_a_claim_that_cannot_be_tested_says_why():
    reason = Reason("needs_gpu", "needs a GPU")
    (result,) = judged(plan_of(claims=(make_claim(not_testable=reason),)), []).claims

    assert (Word.NOT_TESTABLE, reason, ()) == (result.verdict.word, result.verdict.reason, result.cases)


def test_a_claim_without_cases_is_not_testable():
    (result,) = judged(plan_of(claims=(replace(make_claim(), cases=()),)), []).claims

    assert Word.NOT_TESTABLE is result.verdict.word


def test_a_carried_over_claim_is_marked():
    assert judged(plan_of(claims=(make_claim(carried_over=True),)), rounds_of(TWICE)).claims[0].carried_over


@pytest.mark.parametrize(
    ("words", "word"),
    [("REVERSED REVERSED", "REVERSED"), ("REVERSED CONFIRMED", "REFUTED"), ("EXCEEDED EXCEEDED", "EXCEEDED"), ("EXCEEDED CONFIRMED", "CONFIRMED")],
)
def test_all_must_hold(words, word):
    assert Word(word) is all_of([Word(w) for w in words.split()])


@pytest.mark.parametrize(
    ("words", "word"),
    [("REVERSED REVERSED", "REVERSED"), ("REVERSED REFUTED", "REFUTED"), ("EXCEEDED INCONCLUSIVE", "EXCEEDED"), ("CONFIRMED REVERSED", "CONFIRMED")],
)
def test_any_may_hold(words, word):
    assert Word(word) is any_of([Word(w) for w in words.split()])


# ---------------------------------------------------------------- alpha


def test_cases_of_which_any_is_enough_share_alpha():
    (claim,) = judged(plan_of(claims=(claim_of(HOLDS, WEAK, decide=Decide.ANY),)), rounds_of(TWICE)).claims

    assert [0.975, 0.975] == [result.estimate.level for result in claim.cases]


def test_cases_that_must_all_hold_have_alpha_each():
    (claim,) = judged(plan_of(claims=(claim_of(HOLDS, WEAK),)), rounds_of(TWICE)).claims

    assert [0.95, 0.95] == [result.estimate.level for result in claim.cases]


def test_the_number_of_verdicts_to_expect_wrong_is_alpha_for_each():
    found = judged(plan_of(HOLDS, WEAK, OPEN), rounds_of(TWICE))

    assert (2, 0.1) == (found.judged, pytest.approx(found.expected_wrong))


def test_holm_keeps_what_is_sure_and_drops_what_is_not():
    sure, unsure = make_case("sure", lo=1.01, hi=10), make_case("unsure", lo=1.7, hi=10)
    records = rounds_of([2.0, 2.05, 1.95])
    claims = (make_claim("a", cases=(sure,)), *(make_claim(f"b{at}", cases=(replace(unsure, id=f"unsure-{at}"),)) for at in range(9)))
    plain = judged(plan_of(claims=claims), records)

    assert (["CONFIRMED"] * 10, ["CONFIRMED"] + ["INCONCLUSIVE"] * 9) == ([c.verdict.word.value for c in plain.claims], list(plain.holm.values()))


def test_holm_changes_nothing_where_one_case_is_judged():
    assert {"claim-1": "CONFIRMED"} == judged(plan_of(HOLDS), rounds_of(TWICE)).holm


def test_a_surer_run_is_judged_as_surely_as_asked():
    records = rounds_of([2.0, 2.05, 1.95])

    assert judged(plan_of(alpha=0.2), records).claims[0].cases[0].estimate.low > judged(plan_of(alpha=0.01), records).claims[0].cases[0].estimate.low


# ---------------------------------------------------------------- equivalence

PROOF = Proof("same-1", "graph", "base", "perturbed", "treated", "fp32")


def proven_plan(named: str):
    contrasts = tuple(make_contrast(name, ("arm",), purpose=Purpose.PROOF, looks=(1,)) for name in ("base", "perturbed", "treated"))
    case = make_case(proofs=(named,))
    return plan_of(case, contrasts=(*plan_of().contrasts, *contrasts), proofs=(PROOF,))


def with_proofs(plan, **mutant):
    files = {"base": train(), "perturbed": train(perturb=1e-7), "treated": train(**mutant)}
    proofs = [make_record(contrast=name, rates={}, trials=(make_trial_record("arm", proof=name),)) for name in files]
    return judge(plan, [*proofs, *rounds_of(TWICE)], files.__getitem__).claims[0].cases[0]


@pytest.mark.parametrize("named", ["same-1", "treated"], ids=["by its id", "by its treatment"])
def test_a_proven_case_is_judged(named):
    result = with_proofs(proven_plan(named))

    assert (Word.CONFIRMED, "proven") == (result.verdict.word, result.equivalence)


def test_arms_that_compute_something_else_get_no_verdict():
    result = with_proofs(proven_plan("same-1"), frozen=True)

    assert (Word.INCONCLUSIVE, "not_equivalent") == (result.verdict.word, result.verdict.reason.code)


def test_a_case_without_its_proof_gets_no_verdict():
    result = judge(proven_plan("same-1"), rounds_of(TWICE), no_proofs).claims[0].cases[0]

    assert (Word.INCONCLUSIVE, "not_proven") == (result.verdict.word, result.verdict.reason.code)


def test_a_proof_that_nobody_planned_gets_no_verdict():
    assert "not_proven" == case_result(make_case(proofs=("gone",)), rounds_of(TWICE)).verdict.reason.code


def test_a_case_that_compares_nothing_needs_no_proof():
    assert case_result(make_case(), rounds_of(TWICE)).equivalence is None


# ---------------------------------------------------------------- the whole


def test_ladders_are_read_from_the_cases():
    rung, total = make_case("rung", role=Role.READING), make_case("total", role=Role.READING)
    (result,) = judged(plan_of(rung, total, ladders=(Ladder("ladder", "", ("rung",), (), "total"),)), rounds_of(TWICE)).ladders

    assert (True, 2.0) == (result.agrees, pytest.approx(result.product, rel=1e-3))


def test_verdicts_survive_strict_json():
    records = [*rounds_of([2.0]), *outcome_rounds([0.5], "busy"), lost_round(7, outcome=make_failure())]
    busy = Estimand(Scale.LINEAR, (Term(1.0, "contrast-1", "treatment", "busy", Statistic.VALUE),))
    found = judged(plan_of(make_case(), make_case("busy", estimand=busy, null=None)), records)

    assert found == msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(found), allow_nan=False)), Verdicts)


def test_judging_twice_gives_the_same():
    records = rounds_of(TWICE)

    assert judged(plan_of(), records) == judged(plan_of(), records)
