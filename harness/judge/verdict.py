"""From an interval to a word: a claim cuts the axis into named regions, and the regions that the interval touches decide.

Must not know where an interval comes from. Every function is total: whatever interval comes in, a word goes out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.model import Case, Estimate, Reason, Scale, Verdict, Word

if TYPE_CHECKING:
    from collections.abc import Callable

REVERSED, REFUTED, WEAKER, CONFIRMED, EXCEEDED = (w.value for w in (Word.REVERSED, Word.REFUTED, Word.WEAKER, Word.CONFIRMED, Word.EXCEEDED))

MOST_MORE_ROUNDS = 1000
"""Farther ahead than this nobody is told to measure."""

_CLOSE = 1e-9  # an end this close to an edge lies on it: rounding errors of logarithms decide nothing


@dataclass(frozen=True)
class Band:
    """What a claim says about one number, in natural units. `margin` is relative on the log scale, in the number's own unit on the others."""

    scale: Scale
    lo: float | None = None
    hi: float | None = None
    null: float | None = None
    margin: float = 0.02
    rounding: float = 0.0


@dataclass(frozen=True)
class Axis:
    """Regions from below, with the edges between them on the turned scale (`sign` * (x - `origin`)).

    `below[i]` says that edge i belongs to the region beneath it. `delta` is the least effect that counts, 0 where there is no null.
    """

    names: tuple[str, ...]
    edges: tuple[float, ...]
    below: tuple[bool, ...]
    sign: float
    origin: float
    delta: float


def band_of(case: Case) -> Band | None:
    """Return what the case claims, None where it claims nothing."""
    if case.lo is None and case.hi is None:
        return None
    return Band(case.estimand.scale, case.lo, case.hi, case.null, case.margin, case.rounding)


def on_scale(scale: Scale, value: float) -> float:
    """Return a natural value on the scale: its logarithm (0 is -inf, below 0 is nan), or itself."""
    if scale is not Scale.LOG:
        return value
    return math.nan if value < 0 or math.isnan(value) else -math.inf if value == 0 else math.log(value)


def off_scale(scale: Scale, value: float) -> float:
    """Return the natural value, kept within what a float and JSON can hold."""
    return math.exp(min(value, 709.0)) if scale is Scale.LOG else value


def axis_of(band: Band) -> Axis:
    """Return the regions that a band makes of the axis.

    With a null outside the band or on its edge the axis is turned so that the claim points up; which way that is, the band as claimed decides,
    before rounding widens it.
    """
    lo = -math.inf if band.lo is None else on_scale(band.scale, band.lo)
    hi = math.inf if band.hi is None else on_scale(band.scale, band.hi)
    wide_lo, wide_hi = _widened(band, lo, hi)
    null = math.nan if band.null is None else on_scale(band.scale, band.null)
    # A band that is nothing but its null claims "no effect" too.
    if band.null is None or lo < null < hi or lo == null == hi:
        return Axis((REFUTED, CONFIRMED, REFUTED), (wide_lo, wide_hi), (False, True), 1.0, 0.0, 0.0)
    delta = math.log1p(band.margin) if band.scale is Scale.LOG else band.margin
    sign, near, far = (1.0, wide_lo - null, wide_hi - null) if lo >= null else (-1.0, null - wide_hi, null - wide_lo)
    low = max(near, delta)
    edges = (-delta, max(delta, low / 4), low, max(far, low))
    return Axis((REVERSED, REFUTED, WEAKER, CONFIRMED, EXCEEDED), edges, (True, False, False, True), sign, null, delta)


def _widened(band: Band, lo: float, hi: float) -> tuple[float, float]:
    """Rounding is relative to each edge. On the log scale it is a factor, so that a claim and its inverse are widened alike."""
    if band.scale is Scale.LOG:
        return lo - math.log1p(band.rounding), hi + math.log1p(band.rounding)
    return lo - _share(band.rounding, lo), hi + _share(band.rounding, hi)


def _share(rounding: float, edge: float) -> float:
    return rounding * abs(edge) if math.isfinite(edge) else 0.0


def decide(band: Band, low: float, high: float | None) -> tuple[Word, tuple[str, ...]]:
    """Return the word for the interval [low, high] (natural units; None is unbounded) and the regions it touches, from below.

    An interval that is none (upside down, not a number) touches nothing and is INCONCLUSIVE.
    """
    axis = axis_of(band)
    ends = [axis.sign * (on_scale(band.scale, x) - axis.origin) for x in (low, math.inf if high is None else high)]
    bottom, top = ends if axis.sign > 0 else reversed(ends)
    if math.isnan(bottom) or math.isnan(top) or bottom > top:
        return Word.INCONCLUSIVE, ()
    near = _near_log if band.scale is Scale.LOG else _near
    open_ = tuple(dict.fromkeys(axis.names[_region(axis, bottom, near) : _region(axis, top, near) + 1]))
    return _word(open_, bottom > axis.delta and not near(bottom, axis.delta)), open_


def _near(x: float, edge: float) -> bool:
    return math.isclose(x, edge, rel_tol=_CLOSE)


def _near_log(x: float, edge: float) -> bool:
    return math.isclose(x, edge, rel_tol=_CLOSE, abs_tol=_CLOSE)


def _region(axis: Axis, x: float, near: Callable[[float, float], bool]) -> int:
    """Return the index of the region that x lies in: the number of edges that it has passed."""
    passed = (x > edge and not near(x, edge) if below else x >= edge or near(x, edge) for edge, below in zip(axis.edges, axis.below, strict=True))
    return sum(passed)


def _word(touched: tuple[str, ...], above_delta: bool) -> Word:
    if len(touched) == 1:
        return Word(touched[0])
    if touched == (CONFIRMED, EXCEEDED):
        return Word.CONFIRMED
    if touched == (REFUTED, WEAKER) and above_delta:
        return Word.WEAKER
    if touched == (REVERSED, REFUTED):
        return Word.REFUTED
    return Word.INCONCLUSIVE


def verdict_of(band: Band, estimate: Estimate, more_rounds: int | None) -> Verdict:
    """Return the verdict on an estimate, its reason in words and numbers. `more_rounds` is kept only where nothing is decided yet."""
    word, open_ = decide(band, estimate.low, estimate.high)
    numbers: dict[str, str | int | float | bool | None] = {
        "low": estimate.low,
        "high": estimate.high,
        "claimed_low": band.lo,
        "claimed_high": band.hi,
        "rounds": estimate.n,
    }
    interval = f"the interval {estimate.low:.4g} to {'any' if estimate.high is None else format(estimate.high, '.4g')}"
    claimed = f"claimed: {claimed_words(band)}"
    if word is Word.INCONCLUSIVE:
        touched = " and ".join(open_) or "nothing"
        return Verdict(word, Reason("open", f"{interval} touches {touched}; {claimed}", numbers), open_, more_rounds)
    return Verdict(word, Reason("decided", f"{interval} decides; {claimed}", numbers), open_)


def claimed_words(band: Band) -> str:
    """Return the band in words: "2 to 5", "at least 18", "at most 0.1", "exactly 40"."""
    if band.lo is not None and band.hi is not None:
        return f"exactly {band.lo:g}" if band.lo == band.hi else f"{band.lo:g} to {band.hi:g}"
    if band.lo is not None:
        return f"{'above' if band.lo == band.null else 'at least'} {band.lo:g}"
    return f"{'below' if band.hi == band.null else 'at most'} {band.hi:g}"


def rounds_needed(decided_at: Callable[[int], bool], n: int) -> int | None:
    """Return how many rounds beyond `n` make `decided_at(rounds)` true, None if even very many would not.

    A narrower interval never takes a decision back, so halving finds the first.
    """
    if not decided_at(MOST_MORE_ROUNDS):
        return None
    low, high = n, MOST_MORE_ROUNDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided_at(middle) else (middle, high)
    return high - n
