"""Do a ladder's rungs multiply to its total? If not, something drifted, or a switch's worth depends on what is on beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.model import Estimate, Ladder, LadderResult

if TYPE_CHECKING:
    from collections.abc import Mapping


def judge_ladder(ladder: Ladder, estimates: Mapping[str, Estimate | None]) -> LadderResult:
    """Return the product of the rungs with its interval beside the total; `agrees` is None where a rung or the total is missing or unbounded.

    The rungs are measured independently, so the product's half-widths in log units are the root of the summed squares, above and below apart.
    """
    total = estimates.get(ladder.total)
    rungs = [parts for name in ladder.rungs if (parts := _logs(estimates.get(name))) is not None]
    whole = _logs(total)
    shown = total.point if total is not None else None
    if not ladder.rungs or len(rungs) < len(ladder.rungs):
        return LadderResult(ladder.id, None, None, None, shown, None)
    product = math.fsum(point for point, _, _ in rungs)
    low = product - math.hypot(*(point - low for point, low, _ in rungs))
    high = product + math.hypot(*(high - point for point, _, high in rungs))
    agrees = None if whole is None else low <= whole[2] and whole[1] <= high
    return LadderResult(ladder.id, math.exp(product), math.exp(low), math.exp(high), shown, agrees)


def _logs(estimate: Estimate | None) -> tuple[float, float, float] | None:
    """Return point, low, high as logarithms, None unless all three are known and positive."""
    if estimate is None or estimate.point is None or estimate.high is None or min(estimate.point, estimate.low, estimate.high) <= 0:
        return None
    return math.log(estimate.point), math.log(estimate.low), math.log(estimate.high)
