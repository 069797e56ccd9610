"""Cases that measure no arms of their own.

stated       a figure of the machine, known before anything runs; `measure` names it (a fact, or a reading)
rule         a share of all arms of the run: of those that are compared in training on the GPU; `rule` says which and with which edges
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.errors import ConfigError
from harness.model import LARGEST, Arrangement, Case, Cell, Claim, Contrast, Driver, Estimand, Machine, OverArms, Purpose, Reason, Rule, Scale
from harness.plan.cells import Bench
from harness.plan.estimands import PlannedCase, case_of
from harness.plan.specs import CaseSpec

ARMLESS = frozenset({"stated", "rule"})

STATED = ("gpu_cuda_cores", "cpu_cores", "cpu_physical_cores", "cpu_sockets")
"""Figures of a machine that a case may state."""

EDGES = {Rule.ALARM_PRECISION: "gain", Rule.ALARM_RECALL: "gain", Rule.FASTEST_BUSY: None, Rule.WAITING: "wait"}
"""The edge that a rule needs beside `busy`."""


def plan_armless(claim: str, spec: CaseSpec, bench: Bench, reading: str | None) -> PlannedCase | Reason:
    """Return the case, or why this machine does not tell its figure. The arms of a rule are filled in by `with_arms` once all are planned.

    Raises ConfigError for a figure or a rule that does not exist, and for a rule without its edge.
    """
    where = f"claim {claim}, case {spec.id}"
    if spec.form == "rule":
        case = case_of(claim, spec, Estimand(Scale.LINEAR, ()), reading)
        return _alone(replace(case, over=_over(spec, where)))
    value = _stated(bench.machine, spec.measure, where)
    return value if isinstance(value, Reason) else _alone(case_of(claim, spec, Estimand(Scale.EXACT, (), value), None))


def _alone(case: Case) -> PlannedCase:
    return PlannedCase(case, (), (), ())


def _over(spec: CaseSpec, where: str) -> OverArms:
    if spec.rule is None:
        raise ConfigError(f"{where}: form rule needs `rule: {{name: ..., busy: ...}}`; known names: {', '.join(rule.value for rule in Rule)}")
    over = OverArms(spec.rule.name, spec.rule.busy, spec.rule.gain, spec.rule.wait)
    edge = EDGES[over.rule]
    if edge is not None and getattr(over, edge) is None:
        raise ConfigError(f"{where}: the rule {over.rule.value} needs {edge}, the edge that it decides by, beside busy")
    return over


def _stated(machine: Machine, measure: str, where: str) -> float | Reason:
    if measure not in STATED:
        raise ConfigError(f"{where}: a machine does not state {measure!r}; known: {', '.join(STATED)}")
    if measure == "gpu_cuda_cores":
        value = machine.gpus[0].cuda_cores if machine.gpus else None
        who = "the card or its driver does not tell how many CUDA cores it has"
    else:
        value = {"cpu_cores": machine.cores, "cpu_physical_cores": machine.cpu_physical_cores, "cpu_sockets": machine.cpu_sockets}[measure]
        who = f"the kernel does not tell {measure.replace('_', ' ')}"
    return Reason("not_told", who) if value is None else float(value)


# ---------------------------------------------------------------- the arms of a rule


def with_arms(claims: Sequence[Claim], contrasts: Sequence[Contrast], cells: Mapping[str, Cell], bench: Bench) -> tuple[Claim, ...]:
    """Return the claims with the arms of this plan in their rules. A claim whose rule finds none cannot be tested."""
    arms = tuple(dict.fromkeys(cell for contrast in contrasts for cell in _arms(contrast, cells, bench)))
    return tuple(_with_arms(claim, arms) if any(case.over for case in claim.cases) else claim for claim in claims)


def _with_arms(claim: Claim, arms: tuple[str, ...]) -> Claim:
    if not arms:
        return replace(claim, not_testable=Reason("no_arms", "is about all arms that train on the GPU, and this plan compares none"), cases=())
    return replace(claim, cases=tuple(replace(case, over=replace(case.over, cells=arms)) if case.over else case for case in claim.cases))


def _arms(contrast: Contrast, cells: Mapping[str, Cell], bench: Bench) -> list[str]:
    """Return the cells of a contrast that are compared in training on the GPU, each at its own time. Of the largest batch that fits each arm finds another,
    so that a switch there changes two things at once."""
    if contrast.purpose is not Purpose.CLAIM or len(contrast.trials) < 2 or contrast.arrangement is Arrangement.TOGETHER:
        return []
    found = [cells[trial.cell] for trial in contrast.trials if trial.driver is Driver.BLOCKS]
    training = (cell for cell in found if cell.device == "gpu" and bench.workloads[cell.workload].computes)
    return [cell.id for cell in training if LARGEST not in cell.sizes.values()]
