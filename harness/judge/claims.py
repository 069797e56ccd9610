"""From the verdicts of a claim's cases to the claim's own, by the rule that the claim was written with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.judge.cases import DECIDED
from harness.model import Case, CaseResult, Claim, Decide, Reason, Role, Verdict, Word

if TYPE_CHECKING:
    from collections.abc import Sequence



def alpha_of(claim: Claim, case: Case, alpha: float) -> float:
    """Return the error that a case may use. Where any one case is enough, there are several chances to be wrong, so they share it.

    Where all must hold, each may use it whole: the claim is wrongly confirmed only if its weakest case is.
    """
    judged = [c for c in claim.cases if c.role is Role.JUDGED]
    return alpha / len(judged) if claim.decide is Decide.ANY and case.role is Role.JUDGED else alpha


def claim_verdict(claim: Claim, results: Sequence[CaseResult]) -> Verdict:
    """Return the claim's verdict from its cases' (in the claim's order)."""
    if claim.not_testable is not None:
        return Verdict(Word.NOT_TESTABLE, claim.not_testable)
    if not claim.cases:
        return Verdict(Word.NOT_TESTABLE, Reason("no_cases", "no case of this claim is planned here"))
    by_id = {result.case: result.verdict for result in results}
    if claim.decide is Decide.CASE and claim.deciding_case is not None:
        return by_id.get(claim.deciding_case) or _undecided(claim.deciding_case)
    judged = [(case.id, by_id[case.id]) for case in claim.cases if case.role is Role.JUDGED and case.id in by_id]
    if not judged:
        return by_id[claim.cases[0].id] if len(claim.cases) == 1 else _informs(claim, results)
    word = all_of([v.word for _, v in judged]) if claim.decide is not Decide.ANY else any_of([v.word for _, v in judged])
    alone = [v for _, v in judged if len(judged) == 1 or v.word is word is Word.NOT_TESTABLE]
    if alone:
        return alone[0]
    rule = "any" if claim.decide is Decide.ANY else "all"
    text = f"{rule} of {len(judged)} cases must hold: " + ", ".join(f"{name} {v.word.value}" for name, v in judged)
    open_ = tuple(dict.fromkeys(region for _, v in judged if v.word is Word.INCONCLUSIVE for region in v.open)) if word is Word.INCONCLUSIVE else ()
    needed = [v.more_rounds for _, v in judged if v.word is Word.INCONCLUSIVE]
    more = max((n for n in needed if n is not None), default=None) if word is Word.INCONCLUSIVE and None not in needed else None
    return Verdict(word, Reason("cases", text, {name: v.word.value for name, v in judged}), open_, more)


def _undecided(name: str) -> Verdict:
    return Verdict(Word.READING, Reason("no_deciding_case", f"what was measured informs; the case {name}, which decides, is not part of this sweep", {"case": name}))


def _informs(claim: Claim, results: Sequence[CaseResult]) -> Verdict:
    if not all(case.role is Role.FACT for case in claim.cases):
        return Verdict(Word.READING, Reason("reading", "its cases inform; none decides here"))
    known = {result.title: result.estimate.point for result in results if result.estimate is not None and result.estimate.point is not None}
    text = "; ".join(f"{title}: {point:g}" for title, point in known.items())
    return Verdict(Word.FACT, Reason("fact", text or "its cases state what is so", {**known}))


def all_of(words: Sequence[Word]) -> Word:
    """One refuted case refutes the claim; REVERSED needs all of them reversed. What cannot be tested is then missing for every other word, and what is
    open may yet refute, so it outweighs WEAKER."""
    if all(word is Word.REVERSED for word in words):
        return Word.REVERSED
    if any(word in {Word.REFUTED, Word.REVERSED} for word in words):
        return Word.REFUTED
    if Word.NOT_TESTABLE in words:
        return Word.NOT_TESTABLE
    if any(word not in DECIDED for word in words):
        return Word.INCONCLUSIVE
    if Word.WEAKER in words:
        return Word.WEAKER
    return Word.EXCEEDED if all(word is Word.EXCEEDED for word in words) else Word.CONFIRMED


def any_of(words: Sequence[Word]) -> Word:
    """One case that holds is enough; what is open may yet hold, so it outweighs every failure."""
    for word in (Word.EXCEEDED, Word.CONFIRMED):
        if word in words:
            return word
    if any(word not in DECIDED for word in words):
        return Word.INCONCLUSIVE
    for word in (Word.WEAKER, Word.REFUTED):
        if word in words:
            return word
    return Word.REVERSED
