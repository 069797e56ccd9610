"""The ladder: from all switches off to all on, one by one, and from all on with one taken back.

Which switches, and in which order, is written per device in conf/ladder.yaml. The rungs are ratios of neighbours, so their product must be the total.
"""

from __future__ import annotations

import msgspec

from harness.model import Role
from harness.plan.specs import CaseSpec, Rung


def all_off(rungs: list[Rung]) -> dict[str, str]:
    """Return the levels with every switch off."""
    return {rung.factor: rung.off for rung in rungs}


def all_on(rungs: list[Rung]) -> dict[str, str]:
    """Return the levels with every switch on."""
    return {rung.factor: rung.on for rung in rungs}


def ladder_total(spec: CaseSpec, rungs: list[Rung]) -> CaseSpec:
    """Return the case with its arms: all off against all on, each overlaid with the levels that the case names for it."""
    own = spec.arms
    arms = {"baseline": {**all_off(rungs), **own.get("baseline", {})}, "treatment": {**all_on(rungs), **own.get("treatment", {})}}
    return msgspec.structs.replace(spec, form="ratio", arms=arms)


def rung_cases(rungs: list[Rung], total: CaseSpec) -> list[CaseSpec]:
    """Return the reading cases beside the case `total` of a ladder, every one a ratio of throughputs: each switch added in turn, then each left out.

    A rung is (with the switch) / (before it); a leave-one-out is (all on) / (all on but this one): what the switch is worth at the end.
    """

    def ratio(case_id: str, title: str, baseline: dict[str, str], treatment: dict[str, str]) -> CaseSpec:
        arms = {"baseline": dict(baseline), "treatment": dict(treatment)}
        return msgspec.structs.replace(total, id=f"{total.id}-{case_id}", title=title, role=Role.READING, arms=arms, band=None)

    cases = []
    levels = all_off(rungs)
    for rung in rungs:
        higher = {**levels, rung.factor: rung.on}
        cases.append(ratio(f"add-{rung.factor}", f"then {rung.factor}: {rung.off} to {rung.on}", levels, higher))
        levels = higher
    top = all_on(rungs)
    for rung in rungs:
        cases.append(ratio(f"without-{rung.factor}", f"all on, over all on with {rung.factor}={rung.off}", {**top, rung.factor: rung.off}, top))
    return cases
