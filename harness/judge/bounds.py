"""What can be said of arms that never came to a rate: bounds from time-outs, and the value that an out-of-memory kill stands for.

One lost round may be an accident, so two independent ones are needed. Must not know verdicts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.judge.effects import value_of, work_of
from harness.model import Case, Estimate, Reason, RoundRecord, Scale, State, Term, Trial, TrialRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.judge.book import Book

LEAST_LOST = 2
"""Independent rounds that must have been lost in the same way."""

Range = tuple[float, float]

_RATES = frozenset({"throughput", "step_time"})


def killed_estimate(book: Book, case: Case) -> Estimate | None:
    """Return the value that the case names for an out-of-memory kill, if the treatment was killed in two rounds and never completed, and its
    partners did complete."""
    if case.killed_counts_as is None:
        return None
    for term in (t for t in case.estimand.terms if t.weight > 0):
        kills = sum((t := r.trial(term.trial)) is not None and t.outcome.out_of_memory and not _others_failed(r, term.trial) for r in book.lost(term.contrast))
        if kills >= LEAST_LOST and _others_lived(book, term) and not book.effects(case.estimand)[0]:
            value = case.killed_counts_as
            return Estimate(value, value, value, kills, "bound", 1 - book.plan.alpha)
    return None


def _others_lived(book: Book, term: Term) -> bool:
    """Whether every partner of a killed arm was seen to complete beside it, or there is none: else the room may have been too small for anybody."""
    lost = book.lost(term.contrast)
    partners = {trial.id for record in lost for trial in record.trials if trial.id != term.trial}
    return all(any(t.id == name and t.outcome.state is State.COMPLETED for r in lost for t in r.trials) for name in partners)


def _others_failed(record: RoundRecord, trial: str) -> bool:
    """A treatment that is killed where its baseline fails too says nothing of the difference between them."""
    return any(other.outcome.state in {State.FAILED, State.INVALID} for other in record.trials if other.id != trial)


def timeout_estimate(book: Book, case: Case) -> Estimate | None:
    """Return the bound that time-outs put on the estimand, with every other term at its least favourable value seen.

    A timed-out arm has a rate between 0 and its bound (a duration between its bound and infinity). None where there are fewer than two time-outs
    in the same arm, where some other arm was never measured, or where nothing is bounded at all.
    """
    estimand = case.estimand
    if estimand.scale is Scale.EXACT or book.effects(estimand)[0]:
        return None
    low = high = estimand.offset
    timeouts = 0
    for term in estimand.terms:
        late = _late_rounds(book, term)
        known = _bounded(book, term, late) if len(late) >= LEAST_LOST else _seen(book, term)
        if known is None:
            return None
        timeouts = max(timeouts, len(late) if len(late) >= LEAST_LOST else 0)
        ends = sorted(_weighed(term.weight, end, estimand.scale) for end in known)
        low, high = low + ends[0], high + ends[1]
    if not timeouts or math.isnan(low) or math.isnan(high) or (math.isinf(low) and math.isinf(high)):
        return None
    floor = book.floors(estimand).systematic
    return _estimate(low - floor, high + floor, timeouts, estimand.scale, 1 - book.plan.alpha)


def _weighed(weight: float, value: float, scale: Scale) -> float:
    if scale is Scale.LOG:
        return weight * (-math.inf if value == 0 else math.log(value))
    return weight * value


def _estimate(low: float, high: float, n: int, scale: Scale, level: float) -> Estimate | None:
    if scale is Scale.LOG:
        return Estimate(None, math.exp(min(low, 709.0)), math.exp(high) if high < 709.0 else None, n, "bound", level)
    # An estimate can be open above only, so a difference that is open below is not reported as a bound.
    return None if math.isinf(low) else Estimate(None, low, None if math.isinf(high) else high, n, "bound", level)


# ---------------------------------------------------------------- one term


def _late_rounds(book: Book, term: Term) -> list[tuple[RoundRecord, TrialRecord]]:
    """Return the rounds in which this term's arm timed out where that bounds its measure: a speed in warm-up or blocks, the first call in itself."""
    phases = {"trace", "first"} if term.measure == "first_call" else {"warmup", "blocks"} if term.measure in _RATES else set()
    late = ((record, record.trial(term.trial)) for record in book.lost(term.contrast))
    return [(r, t) for r, t in late if t is not None and t.outcome.state is State.TIMED_OUT and t.outcome.phase in phases]


def _bounded(book: Book, term: Term, late: Iterable[tuple[RoundRecord, TrialRecord]]) -> Range | None:
    """Return the range of a timed-out arm's measure, from the deadlines that its outcomes name.

    n steps did not end within the deadline, so a step takes longer than deadline / n, and the rate is below work per step * n / deadline. Warm-up
    waits for a single step; for blocks the outcome must say how many were asked. Several time-outs: the weakest bound of them.
    """
    slowest_s = [seconds for _, trial in late if (seconds := _step_longer_than_s(book, term, trial)) is not None]
    if not slowest_s:
        return None
    if term.measure != "throughput":
        return min(slowest_s), math.inf
    work = _work_per_step(book, term)
    return None if work is None else (0.0, work / min(slowest_s))


def _step_longer_than_s(book: Book, term: Term, trial: TrialRecord) -> float | None:
    numbers = trial.outcome.reason.numbers if trial.outcome.reason else {}
    deadline_s = numbers.get("deadline_s")
    steps = numbers.get("steps", None if trial.outcome.phase == "blocks" else 1)
    if not isinstance(deadline_s, int | float):
        planned = _planned(book, term)
        deadline_s = getattr(planned.deadlines, f"{'block' if trial.outcome.phase == 'blocks' else trial.outcome.phase}_s") if planned else None
    if not isinstance(steps, int | float) or not isinstance(deadline_s, int | float) or steps <= 0 or deadline_s <= 0:
        return None
    return float(deadline_s) / float(steps)


def _planned(book: Book, term: Term) -> Trial | None:
    return next((t for t in book.contrasts[term.contrast].trials if t.id == term.trial), None) if term.contrast in book.contrasts else None


def _work_per_step(book: Book, term: Term) -> float | None:
    """Return the counted work of one step: its batch, times what any measured arm of the contrast counts for one element (1 for images)."""
    batch: float | None = None
    per_element = 1.0
    for record in book.records(term.contrast):
        mine = record.trial(term.trial)
        batch = _batch(mine) or batch
        for other in record.trials:
            work, size = work_of(record, other.id), _batch(other)
            if work is not None and size and work.steps:
                per_element = work.amount / work.steps / size
    return None if batch is None else batch * per_element


def _batch(trial: TrialRecord | None) -> float | None:
    """A batch that the worker confirmed, else the one it was asked for."""
    if trial is None:
        return None
    found = trial.used.get("batch", trial.asked.get("batch"))
    return float(found) if isinstance(found, int | float) and found > 0 else None


def _seen(book: Book, term: Term) -> Range | None:
    """Return the least and greatest value of an arm that did not time out: in this contrast's lost rounds, else wherever its cell was measured."""
    values = [v for record in book.records(term.contrast) if not isinstance(v := value_of(record, term), Reason)]
    planned = _planned(book, term)
    if not values and planned is not None:
        values = _of_cell(book, term, planned.cell)
    positive = [v for v in values if v > 0]
    return (min(positive), max(positive)) if positive else None


def _of_cell(book: Book, term: Term, cell: str) -> list[float]:
    """An arm's partner may have run out of time before the arm itself was measured; another contrast may have measured the same cell."""
    found: list[float] = []
    for contrast in book.plan.contrasts:
        for trial in contrast.trials:
            if trial.cell == cell and not trial.ghost_every:
                other = Term(term.weight, contrast.id, trial.id, term.measure, term.statistic)
                found += [v for r in book.completed(contrast.id) if not isinstance(v := value_of(r, other), Reason)]
    return found
