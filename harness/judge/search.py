"""What searches say of a case: each largest value lies between the greatest that worked and the least that did not. Must not know verdicts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.judge.bounds import LEAST_LOST
from harness.judge.effects import arm_name
from harness.judge.verdict import off_scale, on_scale
from harness.model import Case, Estimate, Reason, Scale, State, Term

if TYPE_CHECKING:
    from harness.judge.book import Book

MEASURE = "largest_batch"


def search_estimate(book: Book, case: Case) -> Estimate | Reason | None:
    """Return the estimate of a case that compares what searches found, or why they found nothing; None for any other case.

    Its interval is no matter of chance: it is what the searches left open, since they stop when the rest is not worth a probe.
    """
    estimand = case.estimand
    if not estimand.terms or any(term.measure != MEASURE for term in estimand.terms):
        return None
    point = low = high = estimand.offset
    probes = 0
    for term in sorted(estimand.terms, key=lambda t: t.weight > 0):
        found = _limits(book, term)
        if isinstance(found, Reason):
            return found
        least, most, tried = found
        probes += tried
        ends = sorted(term.weight * on_scale(estimand.scale, end) for end in (least, most))
        point, low, high = point + term.weight * on_scale(estimand.scale, least), low + ends[0], high + ends[1]
    if math.isinf(low) and case.estimand.scale is not Scale.LOG:
        return Reason("search_open", "a search has not come to an end, so that the difference is open below", {"probes": probes})
    upper = None if math.isinf(high) else off_scale(estimand.scale, high)
    return Estimate(off_scale(estimand.scale, point), off_scale(estimand.scale, low), upper, probes, "exact" if low == high else "bound", 1.0)


def _limits(book: Book, term: Term) -> tuple[float, float, int] | Reason:
    """Return (the greatest value that worked, the greatest that may work, how many probes), or why nothing is known."""
    arm = arm_name(term)
    contrast = book.contrasts.get(term.contrast)
    if contrast is None or contrast.search is None:
        return Reason(f"{arm}_missing", f"{arm} has no search in the plan", {"contrast": term.contrast})
    records = book.records(term.contrast)
    works, fails = contrast.search.limits(records, term.trial)
    if works:
        return float(works), math.inf if fails is None else float(fails - 1), len(records)
    lost = [r.outcome for r in records if r.outcome.state in {State.FAILED, State.INVALID} and r.outcome.reason is not None]
    if lost and (fails is None or len(lost) >= LEAST_LOST) and (why := lost[-1].reason) is not None:
        return Reason(f"{arm}_{why.code}", f"{arm} failed: {why.text}", why.numbers)
    if fails is not None:
        return Reason(f"{arm}_no_room", f"{arm} has no room even for {contrast.search.size} {fails}", {contrast.search.size: fails})
    return Reason("no_rounds", f"{arm} was not measured")
