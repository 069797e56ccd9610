"""Which quads count: foreign load and a late warm-up reject them, within bounds. A result is looked at only to ask whether the first quad was warm.

It runs quads through turns and keeps their log; what a block is, and who lives, is known elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.measure.blocks import Block, Turns, log_ratios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.measure.crew import Crew
    from harness.model import Quad


def warm_quad(turns: Turns) -> Quad:
    """Run the quad that is always thrown away, and choose the steps of later blocks from it."""
    quad, blocks = turns.quad(warmup=True)
    turns.adapt(blocks)
    _note(turns, quad)
    return quad


def run_quads(turns: Turns, wanted: int, *, part: str = "main") -> None:
    """Run quads until `wanted` are accepted. Foreign load rejects one (at most `wanted` times); a first one unlike the later ones is dropped."""
    repeats, late = wanted, 0
    accepted: list[tuple[int, list[Block]]] = []
    while len(accepted) < wanted:
        quad, blocks = turns.quad(part=part, turns_each=4 if part == "absence" and len(turns.crews) == 1 else 2)
        turns.watch_idle(quad)
        disturbed = turns.disturbances(quad, blocks)
        if disturbed and repeats > 0:
            repeats -= 1
            _note(turns, replace(quad, accepted=False, flags=disturbed))
            continue
        for name in disturbed:
            text = "others disturbed quads and no repeat was left, so they were kept"
            turns.log.flag(name, text, foreign_cores=quad.foreign_cores, steal_cores=quad.steal_cores, throttled_s=quad.throttled_s)
        accepted.append((len(turns.log.quads), blocks))
        _note(turns, replace(quad, flags=disturbed))
        if part == "main" and len(accepted) == wanted and (off := _late_warmup(accepted, turns.crews)) > turns.thresholds.warmup_ratio:
            if late == turns.thresholds.late_warmups:
                text = "the first accepted quad still differed from the later ones when no more could be dropped"
                turns.log.flag("warmup_cap", text, log_ratio=off)
                return
            late += 1
            position, _ = accepted.pop(0)
            dropped = turns.log.quads[position]
            turns.log.quads[position] = replace(dropped, accepted=False, flags=(*dropped.flags, "late_warmup"))


def _note(turns: Turns, quad: Quad) -> None:
    turns.log.quads.append(quad)
    turns.tell("quad", None, quad.order, {"foreign_cores": quad.foreign_cores, "accepted": quad.accepted, "index": quad.index})


AGREES_SE = 3.0
"""Quads that differ by less than so many standard errors, as the two halves of the later ones tell them, agree: on a machine whose blocks differ by
several per cent anyway, dropping the first one again and again would cost time and warm nothing."""


def _late_warmup(accepted: Sequence[tuple[int, list[Block]]], crews: Sequence[Crew]) -> float:
    """Return how far the first accepted quad's log ratio lies from that of the later ones together; 0 where there are no later ones or both agree."""
    (_, first), *later = accepted
    if not later:
        return 0.0
    rest = log_ratios([block for _, blocks in later for block in blocks], crews)
    off = max((abs(a - b) for a, b in zip(log_ratios(first, crews), rest, strict=False)), default=0.0)
    return 0.0 if off <= AGREES_SE * _standard_error([blocks for _, blocks in later], crews) else off


def _standard_error(quads: Sequence[list[Block]], crews: Sequence[Crew]) -> float:
    """Return the standard error of a quad's log ratio less that of all these together, from how far the halves of a palindrome lie apart."""
    squares = [
        (a - b) ** 2 / 4  # the variance of a mean of two, by their difference
        for blocks in quads
        for a, b in zip(log_ratios(blocks[: len(blocks) // 2], crews), log_ratios(blocks[len(blocks) // 2 :], crews), strict=False)
    ]
    return math.sqrt(sum(squares) / len(squares) * (1 + 1 / len(quads))) if squares else 0.0
