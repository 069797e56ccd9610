"""What a plan promises before it runs: how many rounds, how long, and the smallest effect that it could show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.model import Case, Claim, Contrast, Plan, Purpose, Scale

ASSUMED_SPREAD = 0.02
"""Spread of the rounds' log effects until this machine has shown its own; seen on a quiet two-core machine."""


@dataclass(frozen=True)
class Row:
    """One claim of the plan, for people. `smallest_effect` is a share (0.05: five per cent), None where nothing is compared."""

    claim: str
    what: str
    rounds: str
    seconds: float | None
    smallest_effect: float | None
    reason: str | None
    makes_testable: str | None


def outlook(plan: Plan) -> tuple[Row, ...]:
    """Return a row for every claim of the plan. A contrast that several claims read is counted for the first of them."""
    contrasts = {contrast.id: contrast for contrast in plan.contrasts}
    counted: set[str] = set()
    return tuple(_row(plan, claim, contrasts, counted) for claim in plan.claims)


def _row(plan: Plan, claim: Claim, contrasts: dict[str, Contrast], counted: set[str]) -> Row:
    if claim.not_testable:
        return Row(claim.id, "", "", None, None, claim.not_testable.text, claim.makes_testable)
    names = dict.fromkeys(term.contrast for case in claim.cases for term in case.estimand.terms)
    fresh = [contrasts[name] for name in names if name not in counted]
    counted |= set(names)
    judged = sum(case.role.value == "judged" for case in claim.cases)
    readings = len(claim.cases) - judged
    what = ", ".join(text for text in (f"{judged} judged" if judged else "", f"{readings} reading{'s' if readings > 1 else ''}" if readings else "") if text)
    shown = [contrasts[name] for name in names]
    first, last = (sum(c.looks[i] for c in shown) for i in (0, -1))
    effects = [effect for case in claim.cases if (effect := smallest_effect(plan, case, contrasts)) is not None]
    seconds = sum(c.looks[0] * c.expected_round_s for c in fresh)
    return Row(claim.id, what, f"{first}" if first == last else f"{first}-{last}", seconds, min(effects, default=None), None, None)


def smallest_effect(plan: Plan, case: Case, contrasts: dict[str, Contrast]) -> float | None:
    """Return the smallest effect (as a share) that the last look could tell from none, at the assumed spread; None off the log scale and of searches.

    It is the margin plus twice the half-width t * s / sqrt(n) + floor: the interval must clear the margin even when it falls unluckily.
    """
    if case.estimand.scale is not Scale.LOG:
        return None
    contrast = contrasts[case.estimand.terms[0].contrast]
    looks = contrast.looks
    n = looks[-1]
    if n < 2 or contrast.search:  # no spread without two, and none in what is found by search
        return None
    from scipy.special import stdtrit  # noqa: PLC0415 - slow to import, and only plans need it

    half = float(stdtrit(n - 1, 1 - plan.alpha / len(looks) / 2)) * ASSUMED_SPREAD / math.sqrt(n) + plan.thresholds.get(f"floor_{_device(plan)}", 0.0)
    return math.expm1(math.log1p(case.margin) + 2 * half)


def _device(plan: Plan) -> str:
    return next((cell.device for cell in plan.cells.values()), "cpu")


def total_seconds(plan: Plan) -> tuple[float, float]:
    """Return (seconds up to every first look, seconds if every look is needed)."""
    planned = [c for c in plan.contrasts if not c.standby]
    return sum(c.looks[0] * c.expected_round_s for c in planned), sum(c.looks[-1] * c.expected_round_s for c in planned)


def overhead_rows(plan: Plan) -> tuple[tuple[str, int, float], ...]:
    """Return (what, rounds, seconds) of the parts that serve every claim: controls and proofs; and of profiles, where they were asked for."""
    rows = []
    for purpose, what in ((Purpose.CONTROL, "controls: is the instrument right today?"), (Purpose.PROOF, "proofs: do the arms compute the same?")):
        mine = [c for c in plan.contrasts if c.purpose is purpose and not c.standby]
        rows.append((what, sum(c.looks[0] for c in mine), sum(c.looks[0] * c.expected_round_s for c in mine)))
    profiles = [c for c in plan.contrasts if c.purpose is Purpose.PROFILE]
    if profiles:
        rows.append(("profiles: where does a step's time go?", len(profiles), sum(c.expected_round_s for c in profiles)))
    return tuple(rows)


