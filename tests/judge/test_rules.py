"""A rule over all arms of a run is a share of them, and what cannot be told of an arm leaves the share open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from harness.judge import judge
from harness.judge.rules import Entry, one_switch, share_of
from harness.model import (
    Arrangement,
    Case,
    CaseResult,
    Cell,
    Claim,
    Contrast,
    Estimand,
    OverArms,
    Plan,
    Proof,
    Reading,
    Role,
    RoundRecord,
    Rule,
    Scale,
    Verdicts,
    Word,
)  # fmt: skip
from harness.store import codec
from tests.helpers import (
    make_case,
    make_cell,
    make_claim,
    make_contrast,
    make_failure,
    make_plan,
    make_ratio,
    make_record,
    make_trial,
    make_trial_record,
)

SECONDS = 3.0
"""Each arm's time in the accepted blocks of a round."""


def no_proof(name: str) -> Mapping[str, Any]:
    raise KeyError(name)


def gpu_cell(execution: str = "graph", **changes: Any) -> Cell:
    return make_cell(execution, device="gpu", **changes)


EAGER, GRAPH = gpu_cell("eager"), gpu_cell("graph")


def make_duet(contrast: str = "duet", slow: Cell = EAGER, fast: Cell = GRAPH, **changes: Any) -> Contrast:
    trials = (make_trial("slow", cell=slow), make_trial("fast", cell=fast))
    return replace(make_contrast(contrast, trials=()), **{"trials": trials, **changes})


def make_rounds(
    ratios: Sequence[float] = (2.0, 2.0, 2.0),
    *,
    contrast: str = "duet",
    slow: float | Sequence[float] | None = 0.4,
    fast: float | Sequence[float] | None = 0.9,
    waits: Mapping[str, float] | None = None,
    rate: float = 100.0,
) -> list[RoundRecord]:
    """Rounds in which the fast arm works so many times as fast. `slow` and `fast` are the arms' shares of busy time, in each round or in all (None: the
    card does not tell); `waits` their shares of waiting."""
    records = []
    for at, ratio in enumerate(ratios):
        record = make_record(at, contrast=contrast, rates={"slow": rate, "fast": rate * ratio})
        busy = [_busy(trial, share if share is None or isinstance(share, float) else share[at]) for trial, share in (("slow", slow), ("fast", fast))]
        waited = [Reading(trial, "input_wait_s", share * SECONDS, "s") for trial, share in (waits or {}).items()]
        records.append(replace(record, readings=(*record.readings, *busy, *waited)))
    return records


def _busy(trial: str, share: float | None) -> Reading:
    return Reading(trial, "kernel_busy", share, "share", reason="not supported (MIG)" if share is None else None)


def make_rule(rule: Rule = Rule.ALARM_PRECISION, cells: Sequence[Cell] = (EAGER, GRAPH), **changes: Any) -> Case:
    edges = {Rule.WAITING: {"busy": 0.3, "wait": 0.5}, Rule.FASTEST_BUSY: {"busy": 0.7}}.get(rule, {"busy": 0.7, "gain": 1.1})
    over = OverArms(rule, cells=tuple(cell.id for cell in cells), **edges)
    lo = 0.5 if rule is Rule.WAITING else 1.0
    base = Case(rule.value, "arms that do", Role.JUDGED, Estimand(Scale.LINEAR, ()), lo=lo, margin=0, unit="share", over=over)
    return replace(base, **changes)


def plan_of(*cases: Case, contrasts: Sequence[Contrast] = (), **changes: Any) -> Plan:
    contrasts = tuple(contrasts) or (make_duet(),)
    cells = {cell.id: cell for cell in (EAGER, GRAPH, *changes.pop("more_cells", ()))}
    claim = Claim("util", "together", "S", "It is an alarm.", cases=cases or (make_rule(),))
    claims = (claim, *changes.pop("more_claims", ()))
    return make_plan(**{"controls": (), "proofs": (), "contrasts": contrasts, "claims": claims, "cells": cells, **changes})


def verdicts_of(records: Sequence[RoundRecord], *cases: Case, **changes: Any) -> Verdicts:
    return judge(plan_of(*cases, **changes), records, no_proof)


def result_of(records: Sequence[RoundRecord], case: Case | None = None, **changes: Any) -> CaseResult:
    return verdicts_of(records, case or make_rule(), **changes).claims[0].cases[0]


def ends(result: CaseResult) -> tuple[float, float | None, int]:
    assert result.estimate is not None
    return result.estimate.low, result.estimate.high, result.estimate.n


# ---------------------------------------------------------------- the alarm at 70 %


def test_an_idle_arm_with_a_worthwhile_switch_confirms_the_alarm():
    result = result_of(make_rounds())
    assert (Word.CONFIRMED, (1.0, 1.0, 1)) == (result.verdict.word, ends(result))


def test_the_reason_counts_the_arms_and_names_the_edges():
    reason = result_of(make_rounds()).verdict.reason
    assert "1 of 1 arms that use the GPU for less than 70% of the time have a switch worth more than 10%" == reason.text
    counted = {"arms": 2, "picked": 1, "hold": 1, "fail": 0, "unclear": 0, "busy_edge": 0.7, "gain_edge": 1.1, "wait_edge": None}
    assert ("decided", counted) == (reason.code, reason.numbers)


def test_an_idle_arm_that_no_measured_switch_helps_refutes_the_alarm():
    result = result_of(make_rounds(fast=0.5))
    assert (Word.REFUTED, (0.5, 0.5, 2)) == (result.verdict.word, ends(result))


def test_what_was_found_of_each_arm_is_told():
    slow, fast = result_of(make_rounds(fast=0.5)).found
    assert (EAGER.id, "execution: eager to graph", "alarm, and a switch is worth it") == (slow.cell, slow.switch, slow.says)
    assert (GRAPH.id, "execution: graph to eager", "false alarm: no measured switch is worth it") == (fast.cell, fast.switch, fast.says)
    assert slow.busy is not None
    assert slow.gain is not None
    assert fast.gain is not None
    assert pytest.approx((0.4, 2.0, 0.5)) == (slow.busy.point, slow.gain.point, fast.gain.point)


def test_an_arm_whose_use_straddles_the_edge_leaves_the_rule_open():
    result = result_of(make_rounds(slow=(0.4, 0.4, 0.4), fast=(0.6, 0.7, 0.8)))
    assert (Word.INCONCLUSIVE, "cannot be told yet") == (result.verdict.word, result.found[1].says)
    assert (0.5, 1.0, 1) == ends(result)


def test_a_gain_that_straddles_ten_per_cent_leaves_the_rule_open():
    result = result_of(make_rounds((1.05, 1.1, 1.15), fast=0.9))
    assert (Word.INCONCLUSIVE, ("REFUTED", "CONFIRMED")) == (result.verdict.word, result.verdict.open)


def test_a_gain_below_the_edge_is_not_worth_it():
    result = result_of(make_rounds((1.09, 1.09, 1.09), fast=0.9))
    assert (Word.REFUTED, (0.0, 0.0, 1)) == (result.verdict.word, ends(result))


def test_two_rounds_decide_nothing():
    assert Word.INCONCLUSIVE is result_of(make_rounds((2.0, 2.0))).verdict.word


def test_a_run_without_an_idle_arm_cannot_test_the_alarm():
    result = result_of(make_rounds(slow=0.8))
    assert (Word.NOT_TESTABLE, "no arm was below 70%", None) == (result.verdict.word, result.verdict.reason.text, result.estimate)


def test_arms_that_differ_in_two_switches_are_no_single_switch_apart():
    other = gpu_cell("graph", precision="mixed_float16")
    case = make_rule(cells=(EAGER, other))
    result = result_of(make_rounds(), case, contrasts=(make_duet(fast=other),), more_cells=(other,))
    assert (Word.NOT_TESTABLE, "no two arms of one workload and its sizes are a single switch apart") == (
        result.verdict.word,
        result.verdict.reason.text,
    )


def test_a_switch_that_was_not_tried_yet_may_still_be_worth_it():
    third = gpu_cell("xla")
    pending = make_duet("pending", slow=GRAPH, fast=third)
    case = make_rule(cells=(EAGER, GRAPH, third))
    result = result_of(make_rounds(fast=0.5), case, contrasts=(make_duet(), pending), more_cells=(third,))
    assert (Word.INCONCLUSIVE, (1 / 3, 1.0, 2)) == (result.verdict.word, ends(result))


def test_a_comparison_that_was_lost_for_good_is_no_switch():
    third = gpu_cell("xla")
    outcome = make_failure("out of memory", code="out_of_memory")
    trials = (make_trial_record("slow"), make_trial_record("fast", outcome=outcome))
    lost = [replace(make_record(at, contrast="lost", rates={}), outcome=outcome, trials=trials) for at in range(2)]
    case = make_rule(cells=(EAGER, GRAPH, third))
    contrasts = (make_duet(), make_duet("lost", slow=GRAPH, fast=third))
    result = result_of([*make_rounds(fast=0.5), *lost], case, contrasts=contrasts, more_cells=(third,))
    assert (Word.REFUTED, [EAGER.id, GRAPH.id]) == (result.verdict.word, [arm.cell for arm in result.found])


def test_an_arm_s_best_switch_counts_wherever_it_was_measured():
    third = gpu_cell("graph", batch_norm="fused")
    contrasts = (make_duet(), make_duet("other", slow=GRAPH, fast=third))
    records = [*make_rounds(fast=0.5), *make_rounds((1.5, 1.5, 1.5), contrast="other", slow=0.5, fast=0.95)]
    result = result_of(records, make_rule(cells=(EAGER, GRAPH, third)), contrasts=contrasts, more_cells=(third,))
    best = {arm.cell: arm.switch for arm in result.found}
    assert (Word.CONFIRMED, "batch_norm: keras to fused") == (result.verdict.word, best[GRAPH.id])


def test_an_arm_that_is_not_of_the_rule_s_is_left_out():
    result = result_of(make_rounds(fast=0.5), make_rule(cells=(EAGER,)))
    assert (Word.CONFIRMED, [EAGER.id]) == (result.verdict.word, [arm.cell for arm in result.found])


def test_arms_that_step_at_the_same_time_are_left_out():
    together = make_duet(arrangement=Arrangement.TOGETHER)
    assert "no_rounds" == result_of(make_rounds(), contrasts=(together,)).verdict.reason.code


def test_arms_that_run_once_each_are_compared_too():
    solo = make_duet(arrangement=Arrangement.SOLO)
    records = [replace(record, arrangement=Arrangement.SOLO) for record in make_rounds()]
    assert Word.CONFIRMED is result_of(records, contrasts=(solo,)).verdict.word


def test_a_gain_between_arms_not_proven_equal_decides_nothing():
    proof = Proof("same", "graph computes what eager does", "p", "p", "p", "fp32")
    ratio = make_case(estimand=make_ratio("duet", "fast", "slow"), proofs=("same",))
    result = result_of(make_rounds(), proofs=(proof,), more_claims=(make_claim(cases=(ratio,)),))
    assert (Word.INCONCLUSIVE, "cannot be told yet", (0.0, 1.0, 1)) == (result.verdict.word, result.found[0].says, ends(result))


def test_the_recall_is_the_share_of_worthwhile_switches_that_raise_the_alarm():
    third = gpu_cell("graph", batch_norm="fused")
    contrasts = (make_duet(), make_duet("other", slow=GRAPH, fast=third))
    records = [*make_rounds(fast=0.9), *make_rounds((1.5, 1.5, 1.5), contrast="other", slow=0.9, fast=0.95)]
    case = make_rule(Rule.ALARM_RECALL, (EAGER, GRAPH, third), role=Role.READING, lo=None)
    result = result_of(records, case, contrasts=contrasts, more_cells=(third,))
    assert (Word.READING, (0.5, 0.5, 2), ()) == (result.verdict.word, ends(result), result.found)
    assert "1 of 2 arms that have a switch worth more than 10% use the GPU for less than 70% of the time" == result.verdict.reason.text


# ---------------------------------------------------------------- the fastest arms


@pytest.mark.parametrize(("busy", "word"), [(0.9, Word.CONFIRMED), (0.5, Word.REFUTED)])
def test_the_fastest_arm_must_be_busy(busy: float, word: Word):
    result = result_of(make_rounds(fast=busy), make_rule(Rule.FASTEST_BUSY))
    assert (word, [GRAPH.id]) == (result.verdict.word, [arm.cell for arm in result.found])


def test_two_arms_that_may_both_be_the_fastest_must_agree():
    ratios = (0.98, 1.0, 1.03)
    words = {busy: result_of(make_rounds(ratios, slow=busy, fast=0.9), make_rule(Rule.FASTEST_BUSY)).verdict.word for busy in (0.4, 0.8)}
    assert {0.4: Word.INCONCLUSIVE, 0.8: Word.CONFIRMED} == words


def test_each_workload_with_its_sizes_has_a_fastest_arm_of_its_own():
    slow, fast = gpu_cell("eager", batch=32), gpu_cell("graph", batch=32)
    contrasts = (make_duet(), make_duet("larger", slow=slow, fast=fast))
    records = [*make_rounds(), *make_rounds(contrast="larger", fast=0.5, rate=1000.0)]
    case = make_rule(Rule.FASTEST_BUSY, (EAGER, GRAPH, slow, fast))
    result = result_of(records, case, contrasts=contrasts, more_cells=(slow, fast))
    assert (Word.REFUTED, (0.5, 0.5, 2)) == (result.verdict.word, ends(result))


def test_an_arm_that_was_not_tried_yet_may_be_the_fastest():
    third = gpu_cell("xla")
    contrasts = (make_duet(), make_duet("pending", slow=GRAPH, fast=third))
    result = result_of(make_rounds(), make_rule(Rule.FASTEST_BUSY, (EAGER, GRAPH, third)), contrasts=contrasts, more_cells=(third,))
    assert Word.INCONCLUSIVE is result.verdict.word


# ---------------------------------------------------------------- waiting for input


def waiting(wait: float | None, **changes: Any) -> CaseResult:
    records = make_rounds(slow=0.2, waits=None if wait is None else {"slow": wait}, **changes)
    return result_of(records, make_rule(Rule.WAITING))


@pytest.mark.parametrize(("wait", "word"), [(0.8, Word.CONFIRMED), (0.2, Word.REFUTED), (0.5, Word.INCONCLUSIVE)])
def test_an_idle_arm_must_mostly_wait_for_input(wait: float, word: Word):
    assert word is waiting(wait).verdict.word


def test_an_arm_that_reads_no_input_does_not_wait():
    result = waiting(None)
    assert (Word.REFUTED, "something else than input holds it back") == (result.verdict.word, result.found[0].says)


def test_half_of_the_idle_arms_are_enough():
    result = waiting(0.8, fast=0.1)
    assert (Word.CONFIRMED, (0.5, 0.5, 2)) == (result.verdict.word, ends(result))


def test_no_arm_below_thirty_per_cent_is_not_testable():
    result = result_of(make_rounds(), make_rule(Rule.WAITING))
    assert (Word.NOT_TESTABLE, "no arm was below 30%") == (result.verdict.word, result.verdict.reason.text)


# ---------------------------------------------------------------- what is missing


def test_a_card_that_does_not_tell_is_the_reason_why_it_cannot_be_tested():
    verdict = result_of(make_rounds(slow=None, fast=None)).verdict
    said = "no arm tells for how much of the time it used the GPU: it has no reading kernel_busy: not supported (MIG)"
    assert (Word.NOT_TESTABLE, said) == (verdict.word, verdict.reason.text)


def test_a_run_that_has_not_come_so_far_is_inconclusive():
    verdict = result_of([]).verdict
    assert (Word.INCONCLUSIVE, "no_rounds") == (verdict.word, verdict.reason.code)


def test_one_refuted_rule_refutes_the_claim():
    verdicts = verdicts_of(make_rounds(fast=0.5), make_rule(), make_rule(Rule.FASTEST_BUSY))
    assert Word.REFUTED is verdicts.claims[0].verdict.word


def test_a_claim_that_a_rule_cannot_test_gives_that_rule_s_reason():
    verdict = verdicts_of(make_rounds(slow=0.8), make_rule(), make_rule(Rule.FASTEST_BUSY)).claims[0].verdict
    assert (Word.NOT_TESTABLE, "no arm was below 70%") == (verdict.word, verdict.reason.text)


def test_a_decided_rule_is_one_of_the_verdicts_that_may_be_wrong():
    verdicts = verdicts_of(make_rounds(), make_rule())
    assert (1, 0.05, {"util": "CONFIRMED"}) == (verdicts.judged, verdicts.expected_wrong, verdicts.holm)


def test_verdicts_with_rules_survive_the_trip_through_json():
    verdicts = verdicts_of(make_rounds(fast=0.5), make_rule(), make_rule(Rule.FASTEST_BUSY))
    assert verdicts == codec.decode(codec.line(verdicts), Verdicts, "verdicts.json")


# ---------------------------------------------------------------- the share itself


TRUTHS = (True, False, None)


def extremes(kinds: Sequence[tuple[bool | None, bool | None]]) -> tuple[float, float]:
    """The least and the greatest share over every way in which the unclear entries could turn out."""
    shares = []
    ways = [
        [(m, h) for m in ((True, False) if member is None else (member,)) for h in ((True, False) if holds is None else (holds,))]
        for member, holds in kinds
    ]
    for way in product(*ways):
        held = [holds for member, holds in way if member]
        shares.append(sum(held) / len(held))
    return min(shares), max(shares)


@pytest.mark.parametrize("rest", list(product(product(TRUTHS, TRUTHS), repeat=2)))
def test_the_share_spans_all_that_unclear_arms_allow(rest: tuple[tuple[bool | None, bool | None], ...]):
    for first in ((True, True), (True, False), (True, None)):
        kinds = (first, *rest)
        share = share_of([Entry(member, holds, bool(member), bool(holds)) for member, holds in kinds], 0.05)
        assert share is not None
        assert pytest.approx(extremes(kinds)) == (share.low, share.high)
        assert share.point is not None
        assert share.low <= share.point <= (share.high or 0)


def test_cells_of_other_sizes_are_no_switch_apart():
    assert ("execution: eager to graph", "") == (one_switch(EAGER, GRAPH), one_switch(EAGER, gpu_cell("graph", batch=16)))
