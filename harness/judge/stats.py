"""Intervals from rounds: Student t at planned looks, with floors under the spread and under the interval.

Must not know cases, records or claims: numbers in, numbers out, on whatever scale the caller works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy import special

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_ROUNDS = 3
"""Fewer rounds than this decide nothing."""


@dataclass(frozen=True)
class Look:
    """An interval on the case's scale, taken after n rounds."""

    n: int
    low: float
    high: float


@dataclass(frozen=True)
class Floors:
    """`spread`: a standard deviation is never taken for less; `systematic` is added to every half-width."""

    spread: float = 0.0
    systematic: float = 0.0


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation with n - 1 in the divisor; None for fewer than two values, which show no spread."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((x - centre) ** 2 for x in values) / (len(values) - 1))


def t_factor(n: int, alpha: float) -> float:
    """Return what a standard deviation of n rounds is multiplied by for the half-width of a 1 - alpha interval of their mean."""
    return float(special.stdtrit(n - 1, 1 - alpha / 2)) / math.sqrt(n)


def half_width(values: Sequence[float], alpha: float, floors: Floors) -> float:
    """Return the half-width of the mean's 1 - alpha interval; infinite for one value."""
    spread = deviation(values)
    return math.inf if spread is None else width_at(len(values), spread, alpha, floors)


def width_at(n: int, spread: float, alpha: float, floors: Floors) -> float:
    """Return the half-width that n rounds of this spread have."""
    return max(spread, floors.spread) * t_factor(n, alpha) + floors.systematic


def take_look(values: Sequence[float], alpha: float, floors: Floors) -> Look:
    """Return the interval of all `values`, at confidence 1 - alpha."""
    centre, half = mean(values), half_width(values, alpha, floors)
    return Look(len(values), centre - half, centre + half)


def schedule(planned: Sequence[int], stops: Sequence[int], n: int) -> tuple[int, ...]:
    """Return the numbers of rounds after which looks are taken, n rounds being done.

    `stops` are the numbers of rounds at which the run had been stopped (ends of its parts, the present end last). The first stop between two looks,
    with enough rounds, is a look of its own and uses up the next planned one; later stops get none, so that there are never more looks than planned.
    """
    left = sorted(planned)
    extra: list[int] = []
    for stop in stops:
        ahead = [look for look in left if look > stop]
        if not extra and stop >= LEAST_ROUNDS and stop not in left and ahead:
            extra.append(stop)
            left.remove(ahead[0])
    return tuple(sorted(look for look in {*left, *extra} if LEAST_ROUNDS <= look <= n))


def intersect(looks: Sequence[Look]) -> tuple[float, float]:
    """Return what all looks have in common; low above high where they contradict one another."""
    return max(look.low for look in looks), min(look.high for look in looks)


def pooled(groups: Sequence[Sequence[float]]) -> float:
    """Return the spread within groups, over all of them: the root of the summed squares over the summed degrees of freedom; 0 for none."""
    squares, freedom = 0.0, 0
    for group in groups:
        spread = deviation(group)
        if spread is not None:
            squares += spread**2 * (len(group) - 1)
            freedom += len(group) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0


def welch(ours: Sequence[float], theirs: Sequence[float], alpha: float, systematic: float = 0.0) -> tuple[float, float, float]:
    """Return (difference of means, low, high) of two unpaired lists, by Welch's t (Welch 1947, degrees of freedom after Satterthwaite).

    Raises ValueError for a list of fewer than two values.
    """
    spreads = deviation(ours), deviation(theirs)
    if spreads[0] is None or spreads[1] is None:
        raise ValueError(f"an unpaired comparison needs two values on each side, got {len(ours)} and {len(theirs)}")
    difference = mean(ours) - mean(theirs)
    parts = spreads[0] ** 2 / len(ours), spreads[1] ** 2 / len(theirs)
    if sum(parts) == 0:
        return difference, difference - systematic, difference + systematic
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(ours) - 1) + parts[1] ** 2 / (len(theirs) - 1))
    half = float(special.stdtrit(freedom, 1 - alpha / 2)) * math.sqrt(sum(parts)) + systematic
    return difference, difference - half, difference + half
