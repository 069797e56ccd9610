"""What a search found is an interval between what worked and what did not; it is no matter of chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.judge import judge
from harness.judge.book import Book
from harness.judge.estimates import find
from harness.model import (
    COMPLETED,
    Arrangement,
    Case,
    Contrast,
    Driver,
    Estimand,
    Estimate,
    Outcome,
    Plan,
    Reading,
    Reason,
    RoundRecord,
    Scale,
    Search,
    Term,
    Word,
)
from tests.helpers import make_case, make_contrast, make_failure, make_record, make_trial, make_trial_record
from tests.judge.builders import plan_of


def probes(trial: str, *answers: tuple[int, bool] | tuple[int, Outcome]) -> list[RoundRecord]:
    """Records of a search: (batch, whether it trained), or (batch, how else it ended)."""
    records = []
    for index, (batch, answer) in enumerate(answers):
        outcome = answer if isinstance(answer, Outcome) else COMPLETED
        readings = () if isinstance(answer, Outcome) else (Reading(trial, "trains", float(answer), ""),)
        record = make_record(index, contrast=f"search-{trial}", rates={}, arrangement=Arrangement.SOLO, quads=(), outcome=outcome)
        records.append(replace(record, trials=(make_trial_record(trial, outcome=outcome, asked={"batch": batch}),), readings=readings))
    return records


def search(trial: str) -> Contrast:
    contrast = make_contrast(f"search-{trial}", (), arrangement=Arrangement.SOLO, looks=(8,), search=Search("batch"))
    return replace(contrast, trials=(make_trial(trial, driver=Driver.ONCE, call="probe"),))


def term(weight: float, trial: str) -> Term:
    return Term(weight, f"search-{trial}", trial, "largest_batch")


RATIO = make_case(estimand=Estimand(Scale.LOG, (term(1.0, "treatment"), term(-1.0, "baseline"))), lo=1.5, hi=2.5)
LEVEL = make_case(estimand=Estimand(Scale.LINEAR, (term(1.0, "treatment"),)), lo=None, hi=None, null=None)


def plan_with(case: Case) -> Plan:
    return plan_of(case, contrasts=(search("baseline"), search("treatment")))


def found(case: Case, records: Sequence[RoundRecord]) -> Estimate | Reason:
    result = find(Book(plan_with(case), records), case, 0.01)
    answer = result.estimate or result.defect
    assert answer is not None
    return answer


def estimated(case: Case, records: Sequence[RoundRecord]) -> Estimate:
    answer = found(case, records)
    assert isinstance(answer, Estimate), answer
    return answer


def test_a_largest_batch_lies_between_what_worked_and_what_did_not() -> None:
    estimate = estimated(LEVEL, probes("treatment", (8, True), (16, True), (32, False), (24, False)))
    assert (16, 16, 23, 4, "bound") == (estimate.point, estimate.low, estimate.high, estimate.n, estimate.method)


def test_a_search_that_went_on_to_the_last_unit_is_exact() -> None:
    estimate = estimated(LEVEL, probes("treatment", (8, True), (9, False)))
    assert (8, 8, 8, "exact") == (estimate.point, estimate.low, estimate.high, estimate.method)


def test_a_search_that_never_met_its_limit_is_open_above() -> None:
    estimate = estimated(LEVEL, probes("treatment", (8, True), (16, True)))
    assert (16, 16, None) == (estimate.point, estimate.low, estimate.high)


def test_a_ratio_of_largest_batches_has_the_least_favourable_ends_of_both() -> None:
    records = [*probes("baseline", (100, True), (111, False)), *probes("treatment", (200, True), (221, False))]
    estimate = estimated(RATIO, records)
    assert pytest.approx((2.0, 200 / 110, 220 / 100)) == (estimate.point, estimate.low, estimate.high)


def test_a_baseline_without_an_upper_end_leaves_the_ratio_open_below() -> None:
    estimate = estimated(RATIO, [*probes("baseline", (100, True)), *probes("treatment", (200, True), (221, False))])
    assert (0.0, pytest.approx(2.2)) == (estimate.low, estimate.high)


def test_without_room_for_anything_there_is_a_reason_and_no_zero() -> None:
    answer = found(RATIO, [*probes("baseline", (8, False), (4, False), (2, False), (1, False)), *probes("treatment", (8, True), (9, False))])
    assert isinstance(answer, Reason)
    assert ("baseline_no_room", "baseline has no room even for batch 1") == (answer.code, answer.text)


def test_a_trial_that_only_failed_says_why() -> None:
    failed = make_failure("InternalError: something else", code="error")
    answer = found(LEVEL, probes("treatment", (8, failed), (8, failed)))
    assert isinstance(answer, Reason)
    assert "treatment failed: InternalError: something else" == answer.text


def test_a_search_that_was_not_begun_was_not_measured() -> None:
    answer = found(LEVEL, [])
    assert isinstance(answer, Reason)
    assert "no_rounds" == answer.code


def test_a_band_is_judged_by_what_the_searches_left_open() -> None:
    records = [*probes("baseline", (100, True), (101, False)), *probes("treatment", (200, True), (201, False))]
    (claim,) = judge(plan_with(RATIO), records, lambda _: None).claims
    assert Word.CONFIRMED is claim.verdict.word


def test_probes_without_room_make_no_comparison_unstable() -> None:
    records = probes("treatment", (8, True), (64, False), (32, False), (16, False), (12, False), (10, False), (9, False))
    assert [] == Book(plan_with(LEVEL), records).lost("search-treatment")
