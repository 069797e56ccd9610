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


def rung_cases(rungs: list[Rung], total: CaseSpec) -> tuple[list[CaseSpec], list[CaseSpec]]:
    """Return the reading cases beside the case `total` of a ladder: (each switch added in turn, each switch left out of all on), every one a ratio of throughputs.

    A rung is (with the switch) / (before it); a leave-one-out is (all on) / (all on but this one): what the switch is worth at the end.
    """

    def ratio(case_id: str, title: str, baseline: dict[str, str], treatment: dict[str, str]) -> CaseSpec:
        arms = {"baseline": dict(baseline), "treatment": dict(treatment)}
        return msgspec.structs.replace(total, id=case_id, title=title, form="ratio", role=Role.READING, arms=arms, band=None)

    added, left_out = [], []
    levels = all_off(rungs)
    for rung in rungs:
        higher = {**levels, rung.factor: rung.on}
        added.append(ratio(f"{total.id}-add-{rung.factor}", f"then {rung.factor}: {rung.off} to {rung.on}", levels, higher))
        levels = higher
    top = all_on(rungs)
    for rung in rungs:
        left_out.append(ratio(f"{total.id}-without-{rung.factor}", f"all on, against all on with {rung.factor}={rung.off}", {**top, rung.factor: rung.off}, top))
    return added, left_out
