"""The ladder: from all switches off to all on, one by one, and from all on with one taken back.

Which switches, and in which order, is written per device in conf/ladder.yaml. The rungs are ratios of neighbours, so their product must be the total.
"""

from __future__ import annotations

import msgspec

from harness.model import Driver, Role
from harness.plan.specs import CaseSpec, Rung, TermSpec


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


def rungs_for(spec: CaseSpec, rungs: list[Rung]) -> list[Rung]:
    """Return the rungs that a case can show: those of input and saves only where whole jobs are measured."""
    return [rung for rung in rungs if spec.driver is Driver.JOB or not rung.job]


def rung_cases(rungs: list[Rung], total: CaseSpec) -> list[CaseSpec]:
    """Return the reading cases beside the case `total` of a ladder, every one a ratio of throughputs: each switch added in turn, then each left out.

    A rung is (with the switch) / (before it); a leave-one-out is (all on) / (all on but this one): what the switch is worth at the end.
    """
    together = together_arms(rungs) if total.driver is Driver.JOB else {}

    def ratio(case_id: str, title: str, baseline: dict[str, str], treatment: dict[str, str]) -> CaseSpec:
        name = f"{total.id}-{case_id}"
        plain = msgspec.structs.replace(total, id=name, title=title, role=Role.READING, band=None)
        if not together:
            return msgspec.structs.replace(plain, arms={"baseline": dict(baseline), "treatment": dict(treatment)})
        return in_one_contrast(plain, together, _arm_of(baseline, together), _arm_of(treatment, together))

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


def together_arms(rungs: list[Rung]) -> dict[str, dict[str, str]]:
    """Return every arm of a ladder by name. Jobs take minutes, so that all rungs read the same round, in which each arm has one job."""
    arms = {"off": all_off(rungs)}
    for rung in rungs[:-1]:
        arms[f"add_{rung.factor}"] = {**list(arms.values())[-1], rung.factor: rung.on}
    top = all_on(rungs)
    arms["on"] = top
    # Leaving out the last rung that was added is the arm below the top.
    return arms | {f"without_{rung.factor}": {**top, rung.factor: rung.off} for rung in rungs[:-1]}


def in_one_contrast(spec: CaseSpec, arms: dict[str, dict[str, str]], baseline: str, treatment: str) -> CaseSpec:
    """Return the ratio of two of the arms as a case that all arms are measured for."""
    terms = [TermSpec(weight=1, arm=treatment, measure=spec.measure), TermSpec(weight=-1, arm=baseline, measure=spec.measure)]
    return msgspec.structs.replace(spec, form="terms", arms={name: dict(levels) for name, levels in arms.items()}, terms=terms, null=1)


def _arm_of(levels: dict[str, str], arms: dict[str, dict[str, str]]) -> str:
    return next(name for name, theirs in arms.items() if theirs == levels)
