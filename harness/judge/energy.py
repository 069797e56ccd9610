"""What energy each arm took: work per joule, joules for each unit of work, power. Nothing is claimed of them, so they get an interval and no word.

Joules of a round are not estimated: rounds need not hold the same work. Must not know verdicts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.judge.effects import value_of
from harness.judge.estimates import find_level
from harness.judge.stats import deviation
from harness.model import ArmEnergy, Estimand, Estimate, Reason, Term

if TYPE_CHECKING:
    from harness.judge.book import Book

SOURCES = {"work_per_j": "work_per_j", "power_w": "power_w", "host_work_per_j": "host_work_per_j", "host_power_w": "host_energy_j"}
"""Measure -> the reading that it is made of. Arms of which that was not told at all, not even as null, have no entry."""

INVERSES = {"work_per_j": "j_per_work", "host_work_per_j": "host_j_per_work"}

Told = dict[tuple[str, str, str], str]
"""(contrast, trial, reading) -> its unit."""


def judge_energy(book: Book) -> tuple[ArmEnergy, ...]:
    """Return the figures of every arm that was measured for a claim, contrast by contrast in the plan's order, each at confidence 1 - alpha.

    They are what a case on the linear scale would get: completed rounds, looks, floors. A cell that several contrasts measure has figures of each.
    """
    told = _told(book)
    arms = zip(*(book.levels(measure) for measure in SOURCES), strict=True)
    return tuple(figure for levels in arms for level in levels for figure in _figures(book, level, told))


def _told(book: Book) -> Told:
    """A reading without a value may not know the unit of work, so those with one go before it."""
    told: Told = {}
    wanted = frozenset(SOURCES.values())
    for contrast in book.contrasts:
        for record in book.completed(contrast):
            for reading in record.readings:
                key = (contrast, reading.trial, reading.name)
                if reading.name in wanted and (reading.value is not None or key not in told):
                    told[key] = reading.unit
    return told


def _figures(book: Book, level: Estimand, told: Told) -> tuple[ArmEnergy, ...]:
    (term,) = level.terms
    unit = told.get((term.contrast, term.trial, SOURCES[term.measure]))
    if unit is None:
        return ()
    found = find_level(book, level, book.plan.alpha)
    estimate = None if found.estimate is None else _above_zero(found.estimate)
    reason = (_why_none(book, term) if estimate is None else None) or found.defect
    cell = next(trial.cell for trial in book.contrasts[term.contrast].trials if trial.id == term.trial)
    unit = "W" if term.measure.endswith("power_w") else unit
    figure = ArmEnergy(term.contrast, term.trial, cell, term.measure, unit, estimate, reason)
    if term.measure not in INVERSES:
        return (figure,)
    turned = None if estimate is None else inverse(estimate)
    if estimate is not None and turned is None:
        reason = Reason("no_work", "no work was done for these joules")
    return figure, replace(figure, measure=INVERSES[term.measure], unit=per_unit(unit), estimate=turned, reason=reason)


def _above_zero(estimate: Estimate) -> Estimate:
    """No arm gives energy back, so an interval of few rounds that reaches below 0 ends there."""
    point = 0.0 if estimate.point is None else estimate.point
    return replace(estimate, low=min(max(estimate.low, 0.0), point))


def _why_none(book: Book, term: Term) -> Reason | None:
    """Return what the last round says, in which, as in every other, this arm has no such value."""
    said = [value for record in book.completed(term.contrast)[-1:] if isinstance(value := value_of(record, term), Reason)]
    return said[0] if said else None


def inverse(estimate: Estimate) -> Estimate | None:
    """Return the estimate of one over the same quantity: each of its numbers turned over. None where that would be a division by 0.

    Its upper end is open where the given interval reaches down to 0.
    """
    numbers = (estimate.point, *estimate.rounds)
    turned = [1 / number for number in numbers if number is not None and number > 0]
    if len(turned) < len(numbers) or not all(map(math.isfinite, turned)):
        return None
    point, *rounds = turned
    high = 1 / estimate.low if estimate.low > 0 else math.inf
    return replace(
        estimate,
        point=point,
        low=0.0 if estimate.high is None else 1 / estimate.high,
        high=high if math.isfinite(high) else None,
        looks=(),  # they are those of the given estimate, and one that reaches below 0 has no inverse
        rounds=tuple(rounds),
        spread=deviation(rounds),
    )


def per_unit(work_per_joule: str) -> str:
    """Return the unit of the inverse: J/sample for samples/J, J/FLOP for FLOP/J."""
    work = work_per_joule.removesuffix("/J")
    return f"J/{work.removesuffix('es') if work.endswith(('ches', 'shes', 'sses', 'xes')) else work.removesuffix('s')}"
