"""Would more rounds of a contrast tell more? And what do its rounds say so far? Asked after every round, so it reads no more than it must."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.judge.book import Book, contrasts_of
from harness.judge.cases import DECIDED, verdict_on
from harness.judge.claims import alpha_of
from harness.judge.estimates import EXACT_ROUNDS, find, present
from harness.judge.stats import LEAST_ROUNDS, half_width, mean
from harness.judge.verdict import band_of
from harness.model import Case, Estimate, Plan, Purpose, Role, RoundRecord, Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUND_ROUNDS = 2
"""So many time-outs make a bound, and so many lost rounds without a completed one a failure: more of them tell nothing new."""


def settled(plan: Plan, contrast: str, records: Sequence[RoundRecord]) -> bool:
    """Return whether no case, control or proof that reads `contrast` would gain from another round of it.

    Controls are counted in the part of the last record: a run that has been resumed asks with the records of its new part, and they are due again.
    """
    book = Book(plan, records)
    planned = book.contrasts.get(contrast)
    if planned is None or _hopeless(book, contrast):
        return True
    done = len(book.completed(contrast))
    if any(control.contrast == contrast for control in plan.controls):
        this_part = sum(record.part == book.last_part for record in book.completed(contrast))
        if this_part < planned.looks[-1]:
            return False
    if planned.purpose is Purpose.PROOF:
        return done >= 1
    cases = [(case, alpha_of(claim, case, plan.alpha)) for claim in plan.claims for case in claim.cases if contrast in contrasts_of(case.estimand)]
    enough = planned.looks[-1] if cases else planned.looks[0]
    return done >= enough or (bool(cases) and all(_case_settled(book, case, alpha) for case, alpha in cases))


def _hopeless(book: Book, contrast: str) -> bool:
    """Return whether so many rounds were lost that there is a bound, a failure or an unstable contrast to report, and nothing else to come."""
    done, lost = len(book.completed(contrast)), len(book.lost(contrast))
    return lost >= BOUND_ROUNDS and (done == 0 or lost > book.thresholds.lost_share * (lost + done))


def _case_settled(book: Book, case: Case, alpha: float) -> bool:
    values, _ = book.effects(case.estimand)
    if not values and any(_hopeless(book, name) for name in contrasts_of(case.estimand)):
        return True
    if case.estimand.scale is Scale.EXACT:
        return len(values) >= EXACT_ROUNDS
    return _looked_settled(book, case, alpha, values)


def _looked_settled(book: Book, case: Case, alpha: float, values: list[float]) -> bool:
    """Whether the looks taken so far leave nothing to be gained."""
    if not any(LEAST_ROUNDS <= look <= len(values) for look in book.looks(case.estimand)):
        return False
    found = find(book, case, alpha, running=True)
    if found.estimate is None or not found.estimate.looks:
        return False
    if found.defect is not None:
        # What contradicts itself stays so; an unstable contrast may yet recover.
        return found.defect.code == "looks_contradict"
    if band_of(case) is not None and case.role is Role.JUDGED:
        return verdict_on(case, found, None).word in DECIDED
    return _precise(book, case, values, found.alpha_look)


def _precise(book: Book, case: Case, values: list[float], alpha_look: float) -> bool:
    """A reading is good enough when its half-width, floors included, is small beside its value."""
    half = half_width(values, alpha_look, book.floors(case.estimand))
    size = 1.0 if case.estimand.scale is Scale.LOG else abs(mean(values))
    return half <= book.thresholds.reading_precision * size


def running_estimate(plan: Plan, contrast: str, records: Sequence[RoundRecord]) -> tuple[str, Estimate] | None:
    """Return (title, estimate) of the first case that reads `contrast` and has at least two rounds, judged cases first; None where there is none.

    The interval is that of all rounds so far at one look's confidence: for display, since only looks decide.
    """
    reading = [(case, claim) for claim in plan.claims for case in claim.cases if contrast in contrasts_of(case.estimand)]
    if not reading:
        return None
    book = Book(plan, records)
    for case, claim in sorted(reading, key=lambda pair: pair[0].role is not Role.JUDGED):
        values, _ = book.effects(case.estimand)
        if len(values) >= 2:
            looks = book.looks(case.estimand) or (LEAST_ROUNDS,)
            alpha_look = alpha_of(claim, case, plan.alpha) / len(looks)
            return case.title, present(values, alpha_look, book.floors(case.estimand), case.estimand.scale)
    return None
