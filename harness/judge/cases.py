"""From a case's estimate to its verdict. Readings and facts get their word, never a judgement; without equivalence there is no verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.judge.effects import outcome_reason, work_of
from harness.judge.estimates import Found, find
from harness.judge.stats import mean, width_at
from harness.judge.verdict import band_of, decide, off_scale, on_scale, rounds_needed, verdict_of
from harness.model import ArmResult, Case, CaseResult, ProofResult, Reason, Role, RoundRecord, State, Verdict, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.judge.book import Book

DECIDED = frozenset({Word.CONFIRMED, Word.EXCEEDED, Word.WEAKER, Word.REFUTED, Word.REVERSED})


@dataclass(frozen=True)
class Judged:
    """A case's result with what Holm's adjustment needs: the confidence at which it was found."""

    case: Case
    result: CaseResult
    alpha: float


def judge_case(book: Book, case: Case, alpha: float, proofs: Mapping[str, ProofResult]) -> CaseResult:
    """Return all there is to say of a case. `proofs` are the results by proof id."""
    found = find(book, case, alpha)
    doubt = doubt_of(case, book, proofs)
    verdict = verdict_on(case, found, doubt)
    equivalence = None if not case.proofs else "proven" if doubt is None else f"not proven: {doubt.text}"
    return CaseResult(case.id, case.title, found.estimate, verdict, arms_of(book, case), equivalence)


def doubt_of(case: Case, book: Book, proofs: Mapping[str, ProofResult]) -> Reason | None:
    """Return why the arms are not known to compute the same; None where every proof passed. A proof may be named by its id or its treatment."""
    by_contrast = {proof.treatment: proof.id for proof in book.plan.proofs}
    for name in case.proofs:
        result = proofs.get(name) or proofs.get(by_contrast.get(name, ""))
        if result is None:
            return Reason("not_proven", f"the proof {name} was not planned", {"proof": name})
        if result.passed is False:
            return Reason("not_equivalent", result.reason.text, {"proof": result.proof, **result.reason.numbers})
        if result.passed is None:
            return Reason("not_proven", result.reason.text, {"proof": result.proof, **result.reason.numbers})
    return None


def verdict_on(case: Case, found: Found, doubt: Reason | None) -> Verdict:
    """Return the verdict: what is missing comes before what is doubtful, and that before what the interval says."""
    band = band_of(case)
    if case.role is not Role.JUDGED or band is None:
        return _told(case, found, doubt)
    if found.estimate is None:
        return Verdict(Word.INCONCLUSIVE, found.defect or Reason("no_rounds", "was not measured"))
    if doubt is not None:
        return Verdict(Word.INCONCLUSIVE, doubt)
    verdict = verdict_of(band, found.estimate, more_rounds(case, found))
    if found.defect is not None:
        return Verdict(Word.INCONCLUSIVE, found.defect, verdict.open if found.defect.code == "too_few_rounds" else (), verdict.more_rounds)
    return verdict


def _told(case: Case, found: Found, doubt: Reason | None) -> Verdict:
    """Readings and facts keep their word whatever was found; the reason says what is missing, that the arms are not known to compute the same,
    or why a band decides nothing here."""
    word = Word.FACT if case.role is Role.FACT else Word.READING
    if found.defect is not None:
        return Verdict(word, found.defect)
    if doubt is not None:
        return Verdict(word, doubt)
    band = band_of(case)
    open_ = decide(band, found.estimate.low, found.estimate.high)[1] if band is not None and found.estimate is not None else ()
    text = case.why_reading or ("states what is so" if word is Word.FACT else "shown for information; nothing is claimed of it")
    return Verdict(word, Reason(word.value.lower(), text), open_)


def more_rounds(case: Case, found: Found) -> int | None:
    """Return how many more rounds would decide a case whose rounds kept today's mean and spread; None: none would, or it is not known."""
    band, estimate = band_of(case), found.estimate
    if band is None or estimate is None or estimate.method != "t" or estimate.spread is None or found.alpha_look <= 0:
        return None
    scale, spread = case.estimand.scale, estimate.spread
    centre = mean([on_scale(scale, value) for value in estimate.rounds])

    def decided_at(rounds: int) -> bool:
        half = width_at(rounds, spread, found.alpha_look, found.floors)
        return decide(band, off_scale(scale, centre - half), off_scale(scale, centre + half))[0] is not Word.INCONCLUSIVE

    return rounds_needed(decided_at, estimate.n)


# ---------------------------------------------------------------- arms


def arms_of(book: Book, case: Case) -> tuple[ArmResult, ...]:
    """Return the level of every arm that the case reads, over all completed rounds in which the arm itself completed."""
    arms = dict.fromkeys((term.contrast, term.trial) for term in case.estimand.terms)
    return tuple(_arm(book, contrast, trial) for contrast, trial in arms)


def _arm(book: Book, contrast: str, trial: str) -> ArmResult:
    planned = next((t for t in book.contrasts[contrast].trials if t.id == trial), None) if contrast in book.contrasts else None
    rounds = [r for r in book.completed(contrast) if (t := r.trial(trial)) is not None and t.outcome.state is State.COMPLETED]
    peaks = [t.peak_rss_bytes for r in rounds if (t := r.trial(trial)) is not None and t.peak_rss_bytes is not None]
    works = [work for r in rounds if (work := work_of(r, trial)) is not None]
    seconds = sum(work.seconds for work in works)
    rate = sum(work.amount for work in works) / seconds if seconds > 0 else None
    unit = f"{works[0].unit}/s" if works else ""
    reason = None if rounds else _why_absent(book.records(contrast), trial)
    return ArmResult(trial, planned.cell if planned else "", rate, unit, len(rounds), max(peaks, default=None), reason)


def _why_absent(records: list[RoundRecord], trial: str) -> str:
    found = [t for r in records if (t := r.trial(trial)) is not None]
    failed = [t for t in found if t.outcome.state not in {State.COMPLETED, State.INTERRUPTED}]
    if failed:
        return f"n/a: {outcome_reason(failed[-1]).text}"
    return "n/a: its partner ended first" if found else "n/a: missing"


