"""Assembles everything that is to be said of a run: controls, proofs, cases, claims, ladders, how many of the verdicts to expect wrong, and energy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.judge.book import Book
from harness.judge.cases import DECIDED, Judged, judge_case, verdict_on
from harness.judge.claims import alpha_of, claim_verdict
from harness.judge.controls import judge_controls
from harness.judge.energy import judge_energy
from harness.judge.equivalence import judge_proofs
from harness.judge.estimates import find
from harness.judge.ladder import judge_ladder
from harness.judge.rules import judge_rule
from harness.model import Case, CaseResult, Claim, ClaimResult, Estimate, Plan, ProofResult, Reason, Role, RoundRecord, Verdict, Verdicts, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


def judge(plan: Plan, records: Sequence[RoundRecord], load_proof: Callable[[str], Mapping[str, NDArray[Any]]]) -> Verdicts:
    """Return the verdicts on every claim of the plan. Pure: the same records give the same verdicts, online and offline.

    `load_proof` returns a proof's arrays by the name in its record; whatever it raises as HarnessError, OSError, ValueError or KeyError makes that
    proof "could not be carried out". `records` in the order in which they were measured.
    """
    book = Book(plan, records)
    proofs = judge_proofs(book, load_proof)
    by_proof = {result.proof: result for result in proofs}
    cases = {claim.id: _judge_cases(book, claim, by_proof) for claim in plan.claims}
    claims = tuple(_claim_result(claim, cases[claim.id]) for claim in plan.claims)
    everything = [judged for mine in cases.values() for judged in mine]
    estimates: dict[str, Estimate | None] = {judged.case.id: judged.result.estimate for judged in everything}
    decided = [judged for judged in everything if judged.case.role is Role.JUDGED and judged.result.verdict.word in DECIDED]
    return Verdicts(
        claims=claims,
        controls=judge_controls(book),
        proofs=proofs,
        ladders=tuple(judge_ladder(ladder, estimates) for ladder in plan.ladders),
        alpha=plan.alpha,
        preliminary=plan.preliminary,
        judged=len(decided),
        expected_wrong=math.fsum(judged.alpha for judged in decided),
        holm=_holm(book, cases, decided, by_proof),
        energy=judge_energy(book),
    )


def _judge_cases(book: Book, claim: Claim, proofs: Mapping[str, ProofResult]) -> list[Judged]:
    if claim.not_testable is not None:
        return []
    alphas = {case.id: alpha_of(claim, case, book.plan.alpha) for case in claim.cases}
    return [Judged(case, _judge_case(book, case, alphas[case.id], proofs), alphas[case.id]) for case in claim.cases]


def _judge_case(book: Book, case: Case, alpha: float, proofs: Mapping[str, ProofResult]) -> CaseResult:
    return judge_case(book, case, alpha, proofs) if case.over is None else judge_rule(book, case, case.over, alpha, proofs)


def _claim_result(claim: Claim, judged: Sequence[Judged]) -> ClaimResult:
    results = tuple(one.result for one in judged)
    return ClaimResult(claim.id, claim_verdict(claim, results), results, claim.carried_over)


# ---------------------------------------------------------------- Holm


def _holm(book: Book, cases: Mapping[str, Sequence[Judged]], decided: Sequence[Judged], proofs: Mapping[str, ProofResult]) -> dict[str, str]:
    """Return each claim's word when all decided cases together may be wrong with probability alpha (Holm 1979).

    Claims without a judged case are left out.

    k of m being kept, each of the others that would still be decided at alpha / (m - k) is kept too, until none is added: the same as
    going through them from the surest on, without asking how sure each is.
    """
    kept: set[str] = set()
    added = True
    while added:
        left = len(decided) - len(kept)
        more = {judged.case.id for judged in decided if judged.case.id not in kept and _decided_at(book, judged, judged.alpha / left, proofs)}
        kept |= more
        added = bool(more)
    words: dict[str, str] = {}
    for claim in book.plan.claims:
        if any(judged.case.role is Role.JUDGED for judged in cases[claim.id]):
            adjusted = [_adjusted(judged, kept) for judged in cases[claim.id]]
            words[claim.id] = claim_verdict(claim, [judged.result for judged in adjusted]).word.value
    return words


def _adjusted(judged: Judged, kept: set[str]) -> Judged:
    if judged.case.role is not Role.JUDGED or judged.result.verdict.word not in DECIDED or judged.case.id in kept:
        return judged
    undone = Verdict(Word.INCONCLUSIVE, Reason("holm", "not sure enough among so many verdicts"))
    return replace(judged, result=replace(judged.result, verdict=undone))


def _decided_at(book: Book, judged: Judged, alpha: float, proofs: Mapping[str, ProofResult]) -> bool:
    """Return whether a decided case would also be decided at this alpha. Exact values and bounds are as sure as they can be."""
    if judged.case.over is not None:
        return _judge_case(book, judged.case, alpha, proofs).verdict.word in DECIDED
    estimate = judged.result.estimate
    return estimate is None or estimate.method != "t" or verdict_on(judged.case, find(book, judged.case, alpha), None).word in DECIDED
