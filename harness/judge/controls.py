"""Controls: claims about the instrument itself, read from duets whose answer is known.

One look at 99 %. CONFIRMED is "held"; wholly off the known value is "failed"; anything else is "not shown": this machine cannot show it now.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.judge.stats import LEAST_ROUNDS, Floors, Look, deviation, mean, pooled, take_look
from harness.model import Control, ControlKind, ControlResult, Estimate, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.judge.book import Book

HELD, FAILED, NOT_SHOWN = "held", "failed", "not shown"

_SEVERITY = (HELD, NOT_SHOWN, FAILED)


def judge_controls(book: Book) -> tuple[ControlResult, ...]:
    """Return the result of every control of the plan that was due, in its order."""
    idle = {contrast.id for contrast in book.plan.contrasts if contrast.standby and not book.records(contrast.id)}
    return tuple(judge_control(book, control) for control in book.plan.controls if control.contrast not in idle)


def judge_control(book: Book, control: Control) -> ControlResult:
    """Return the control's result. Each part of a resumed run has its own look, and the worst of them counts."""
    results = [_judge_part(book, control, part) for part in _parts(book, control)]
    return max(results, key=lambda result: _SEVERITY.index(result.word))


def _judge_part(book: Book, control: Control, part: int) -> ControlResult:
    pairs = book.control_effects(control, part)
    if not pairs:
        return ControlResult(control.id, NOT_SHOWN, None, None, _nothing(book, control))
    expected = mean([known for _, known in pairs])
    # Counts may differ from round to round, and the known ratio with them: what varies is how far each round is off its own.
    values = [value - known + expected for value, known in pairs]
    if len(values) < LEAST_ROUNDS:
        text = f"{len(values)} of {book.contrasts[control.contrast].looks[-1]} rounds completed, {LEAST_ROUNDS} are needed"
        reason = Reason("too_few_rounds", text, {"rounds": len(values)})
        return ControlResult(control.id, NOT_SHOWN, math.exp(expected), _estimate(values, None, book), reason)
    # The floor under the interval is the default one: what a control shows must not excuse it.
    look = take_look(values, book.thresholds.control_alpha, Floors(_least_spread(book, control), book.thresholds.floor(control.device)))
    word, reason = _word(book, control.kind, look, expected)
    return ControlResult(control.id, word, math.exp(expected), _estimate(values, look, book), reason)


def _least_spread(book: Book, control: Control) -> float:
    """Controls of one device and arrangement are pooled with one another, each part of the run for itself."""
    alike = [c for c in book.plan.controls if (c.device, c.arrangement) == (control.device, control.arrangement)]
    groups = [book.control_effects(c, part) for c in alike for part in _parts(book, c)]
    return book.thresholds.pooled_share * pooled([[value - known for value, known in group] for group in groups])


def _parts(book: Book, control: Control) -> list[int]:
    return sorted({record.part for record in book.records(control.contrast)}) or [0]


def _word(book: Book, kind: ControlKind, look: Look, expected: float) -> tuple[str, Reason]:
    low, high, known = math.exp(min(look.low, 700.0)), math.exp(min(look.high, 700.0)), math.exp(expected)
    numbers: dict[str, str | int | float | bool | None] = {"low": low, "high": high, "known": known, "rounds": look.n}
    found = f"measured {low:.3f} to {high:.3f} where {known:.3f} is known to be true"
    edge = math.log1p(book.thresholds.control_failed)
    if look.low > expected + edge or look.high < expected - edge:
        return FAILED, Reason("off", f"{found}: wholly off by more than {book.thresholds.control_failed:.0%}", numbers)
    band = math.log1p(book.thresholds.control_band)
    if kind is ControlKind.POSITIVE:
        if look.low <= expected <= look.high and not look.low <= 0 <= look.high:
            return HELD, Reason("held", f"{found}, and 1 is ruled out", numbers)
    elif math.log(1 - book.thresholds.control_band) <= look.low and look.high <= band:
        return HELD, Reason("held", f"{found}: within {book.thresholds.control_band:.0%}", numbers)
    return NOT_SHOWN, Reason("not_shown", f"{found}: this machine cannot show {book.thresholds.control_band:.0%} now", numbers)


def _estimate(values: Sequence[float], look: Look | None, book: Book) -> Estimate:
    rounds = tuple(math.exp(value) for value in values)
    point = math.exp(mean(values))
    level = 1 - book.thresholds.control_alpha
    if look is None:
        return Estimate(point, 0.0, None, len(values), "t", level, (), rounds, deviation(values))
    low, high = math.exp(look.low), math.exp(min(look.high, 700.0))
    return Estimate(point, low, high, len(values), "t", level, ((look.n, low, high),), rounds, deviation(values))


def _nothing(book: Book, control: Control) -> Reason:
    lost = book.lost(control.contrast)
    if lost:
        state = lost[-1].outcome.state
        why = lost[-1].outcome.reason.text if lost[-1].outcome.reason else state.value
        return Reason("no_rounds", f"no round completed: {why}", {"lost": len(lost)})
    done = len(book.completed(control.contrast))
    if done:
        return Reason("no_reading", f"{done} rounds completed without the blocks that this control needs", {"rounds": done})
    return Reason("no_rounds", "was not measured")
