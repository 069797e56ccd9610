"""From a case and the book to its estimate: looks and their intersection, exact values, bounds. Knows no word but the numbers that lead to one."""

from __future__ import annotations

from dataclasses import dataclass

from harness.judge.book import LOST, Book, contrasts_of
from harness.judge.bounds import killed_estimate, timeout_estimate
from harness.judge.effects import arm_name, outcome_reason
from harness.judge.search import search_estimate
from harness.judge.stats import LEAST_ROUNDS, Floors, Look, deviation, half_width, intersect, mean, schedule, take_look
from harness.judge.verdict import off_scale
from harness.model import Case, Estimand, Estimate, Reason, Scale, State

NO_FLOORS = Floors()

EXACT_ROUNDS = 2
"""Fresh rounds that must agree on an exact value."""


STATED = "stated"
"""The method of a figure that was known before anything ran."""


@dataclass(frozen=True)
class Found:
    """An estimate, or why there is none; `defect` says why an estimate that is shown may decide nothing."""

    estimate: Estimate | None
    defect: Reason | None
    floors: Floors = NO_FLOORS
    alpha_look: float = 0.0


def find(book: Book, case: Case, alpha: float, *, running: bool = False) -> Found:
    """Return what the records say of a case at confidence 1 - alpha over all its looks.

    `running`: the present number of rounds is no stop, so that only planned looks are taken.
    """
    estimand = case.estimand
    if not estimand.terms:
        return Found(Estimate(estimand.offset, estimand.offset, estimand.offset, 0, STATED, 1.0), None)
    searched = search_estimate(book, case)
    if searched is not None:
        return Found(None, searched) if isinstance(searched, Reason) else Found(searched, None)
    bound = killed_estimate(book, case) or timeout_estimate(book, case)
    if bound is not None:
        return Found(bound, None)
    values, reason = book.effects(estimand)
    if not values:
        return Found(None, _why_nothing(book, estimand, reason))
    if estimand.scale is Scale.EXACT:
        return _exact(book, estimand, values)
    return _by_looks(book, estimand, values, alpha, running=running)


def find_level(book: Book, level: Estimand, alpha: float) -> Found:
    """Return what the rounds say of one arm by itself that no case need be about: as `find` does, without bounds."""
    values, reason = book.effects(level)
    return _by_looks(book, level, values, alpha, running=False) if values else Found(None, _why_nothing(book, level, reason))


def _by_looks(book: Book, estimand: Estimand, values: list[float], alpha: float, *, running: bool) -> Found:
    planned = book.looks(estimand) or (LEAST_ROUNDS,)
    alpha_look = alpha / len(planned)
    floors = book.floors(estimand)
    stops = book.stops(estimand) + ([] if running else [len(values)])
    looks = [take_look(values[:n], alpha_look, floors) for n in schedule(planned, stops, len(values))]
    defect = unstable(book, estimand)
    if not looks:
        text = f"{len(values)} {'round' if len(values) == 1 else 'rounds'} completed, the first look needs {next((n for n in planned if n >= LEAST_ROUNDS), LEAST_ROUNDS)}"
        defect = defect or Reason("too_few_rounds", text, {"rounds": len(values)})
        return Found(present(values, alpha_look, floors, estimand.scale), defect, floors, alpha_look)
    low, high = intersect(looks)
    if low > high:
        text = "the looks' intervals have nothing in common: the rounds drift, or their spread is not what it seemed"
        contradiction = Reason("looks_contradict", text, {"looks": len(looks), "rounds": len(values)})
        return Found(_estimate(values, (looks[-1].low, looks[-1].high), looks, estimand.scale, 1 - alpha), contradiction, floors, alpha_look)
    return Found(_estimate(values, (low, high), looks, estimand.scale, 1 - alpha), defect, floors, alpha_look)


def present(values: list[float], alpha_look: float, floors: Floors, scale: Scale) -> Estimate:
    """Return the interval of all rounds so far, a look or not: for display. One round has no interval: it is open on both sides, and no spread."""
    if len(values) < 2:
        lowest = 0.0 if scale is Scale.LOG else -LARGEST
        return Estimate(off_scale(scale, values[0]), lowest, None, 1, "t", 1 - alpha_look, (), (off_scale(scale, values[0]),), None)
    half = half_width(values, alpha_look, floors)
    return _estimate(values, (mean(values) - half, mean(values) + half), [], scale, 1 - alpha_look)


LARGEST = 1.7976931348623157e308
"""The largest float: strict JSON has no infinity."""


def _estimate(values: list[float], ends: tuple[float, float], looks: list[Look], scale: Scale, level: float) -> Estimate:
    """Bring everything back to natural units. The point is the mean of all rounds, kept within the interval that is reported."""
    low, high = ends
    return Estimate(
        point=off_scale(scale, min(max(mean(values), low), high)),
        low=off_scale(scale, low),
        high=off_scale(scale, high),
        n=len(values),
        method="t",
        level=level,
        looks=tuple((look.n, off_scale(scale, look.low), off_scale(scale, look.high)) for look in looks),
        rounds=tuple(off_scale(scale, value) for value in values),
        spread=deviation(values),
    )


def _exact(book: Book, estimand: Estimand, values: list[float]) -> Found:
    """Exact readings need two fresh rounds that agree, and none that disagrees."""
    low, high = min(values), max(values)
    estimate = Estimate(values[-1], low, high, len(values), "exact", 1.0, (), tuple(values), None)
    if len(values) < EXACT_ROUNDS:
        return Found(estimate, Reason("too_few_rounds", f"read in {len(values)} round, {EXACT_ROUNDS} must agree", {"rounds": len(values)}))
    if low != high:
        return Found(estimate, Reason("rounds_disagree", f"an exact reading came out as {low:g} and as {high:g}", {"low": low, "high": high}))
    return Found(estimate, unstable(book, estimand))


def unstable(book: Book, estimand: Estimand) -> Reason | None:
    """Return the reason "unstable" where more than a third of a contrast's rounds were lost."""
    for name in contrasts_of(estimand):
        lost, done = len(book.lost(name)), len(book.completed(name))
        if lost > book.thresholds.lost_share * (lost + done):
            return Reason("unstable", f"{lost} of {lost + done} rounds were lost", {"lost": lost, "rounds": lost + done})
    return None


def _why_nothing(book: Book, estimand: Estimand, reason: Reason | None) -> Reason:
    """Say which arm is missing or failed, the baseline first."""
    if reason is not None:
        return reason
    for term in sorted(estimand.terms, key=lambda t: t.weight > 0):
        arm = arm_name(term)
        if term.contrast not in book.contrasts:
            return Reason(f"{arm}_missing", f"{arm} is not in the plan", {"contrast": term.contrast})
        for record in reversed(book.records(term.contrast)):
            trial = record.trial(term.trial)
            if trial is not None and trial.outcome.state in LOST:
                why = outcome_reason(trial)
                return Reason(f"{arm}_{why.code}", f"{arm} {why.text}", why.numbers)
    for name in contrasts_of(estimand):
        records = book.records(name)
        if not records:
            return Reason("no_rounds", "was not measured")
        outcome = records[-1].outcome
        if outcome.state is not State.COMPLETED:
            text = f"no round completed ({len(records)} tried): {outcome.reason.text if outcome.reason else outcome.state.value}"
            return Reason("no_rounds", text, {"rounds": len(records), "state": outcome.state.value})
    return Reason("no_rounds", "no two rounds of its contrasts could be paired")
