"""From a case as written to the contrasts it is measured in and the estimand that is judged.

Each `form` is a short way to write arms and weights:

ratio        treatment over baseline (log scale, null 1)
interaction  (a1/b1) over (a2/b2) (log scale, null 1): is the gain larger in the first context?
level        the one arm `treatment` (linear scale, no null)
slope        ratio treatment over baseline against log2 of a size: its factor for each doubling (log scale, null 1); the ratio at each size is a reading beside it
ladder       all switches off over all on, with each rung and each leave-one-out as readings beside it; ladder_total: the total alone
terms        weights and measures written out, each of an arm
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from harness.errors import ConfigError
from harness.model import Arrangement, Case, Cell, Contrast, Driver, Estimand, Purpose, Role, Scalar, Scale, Statistic, Term
from harness.plan.cells import Bench, make_cell, make_trial
from harness.plan.specs import CaseSpec, SweepSpec, TermSpec

FORMS = {
    "ratio": ((1.0, "treatment"), (-1.0, "baseline")),
    "interaction": ((1.0, "a1"), (-1.0, "b1"), (-1.0, "a2"), (1.0, "b2")),
    "level": ((1.0, "treatment"),),
}
RATE_MEASURES = {"throughput": Statistic.TOTAL_RATE, "step_time": Statistic.TOTAL_RATE}
ROUND_S = 30.0  # accepted blocks of a round, in all its arms
LEAST_QUADS, MOST_QUADS = 2, 10
SLOW_STEP_S = 0.05  # above this (expected) a block lasts a whole second, so that it holds several steps


@dataclass(frozen=True)
class PlannedCase:
    """A case with the contrasts it reads and the cells they measure."""

    case: Case
    contrasts: tuple[Contrast, ...]
    cells: tuple[Cell, ...]
    throughput_arms: tuple[Cell, ...]  # arms whose equality must be proven; () where the case compares nothing


def plan_case(claim: str, spec: CaseSpec, bench: Bench, sweep: SweepSpec, sizes: dict[str, Scalar], reading: str | None) -> PlannedCase:
    """Return what must be measured for a case at the given sizes. `reading` says why it decides nothing here, None where it does.

    Raises ConfigError, naming the claim and the case, for arms that the form does not have, an unknown level, or contradictory levels.
    """
    where = f"claim {claim}, case {spec.id}"
    if spec.form == "slope":
        factor, points = _slope_points(spec, where)
    else:
        factor, points = "", {1.0: (1.0, {})}
    terms: list[Term] = []
    contrasts: list[Contrast] = []
    cells: dict[str, Cell] = {}
    for weight, point_sizes in points.values():
        arms = {name: _arm_cell(spec, bench, name, {**sizes, **point_sizes}, where) for name in spec.arms}
        drivers = {cell.id: _arm_driver(spec, name, where) for name, cell in arms.items()}
        if not arms:
            raise ConfigError(f"{where}: has no arms; form {spec.form} needs {_needed(spec)}")
        suffix = f"-{factor}{next(iter(point_sizes.values()))}" if point_sizes else ""
        contrast = _contrast(f"{claim}.{spec.id}{suffix}", spec, bench, sweep, drivers, {c.id: c for c in arms.values()})
        contrasts.append(contrast)
        cells |= {cell.id: cell for cell in arms.values()}
        terms += [_term(weight, term, arms, contrast.id, spec, where) for term in _weights(spec)]
    role = Role.READING if reading and spec.role is Role.JUDGED else spec.role
    case = Case(
        id=f"{claim}.{spec.id}",
        title=spec.title,
        role=role,
        estimand=Estimand(_scale(spec), tuple(terms)),
        lo=spec.band[0] if spec.band else None,
        hi=spec.band[1] if spec.band else None,
        null=_null(spec),
        margin=spec.margin,
        rounding=spec.rounding,
        killed_counts_as=spec.killed_counts_as,
        why_reading=reading,
        unit=spec.unit,
        better=spec.better,
    )
    proven = spec.prove if spec.prove is not None else (spec.driver is Driver.BLOCKS and len(cells) > 1 and spec.measure in RATE_MEASURES)
    return PlannedCase(case, tuple(contrasts), tuple(cells.values()), tuple(cells.values()) if proven else ())


def slope_points(spec: CaseSpec) -> list[CaseSpec]:
    """Return the readings beside a slope: the ratio at each of its sizes."""
    name, values = next(iter(spec.over.items()), ("", []))
    points = []
    for value in values:
        # The size stands in the arms, as the slope lays it over them: a size asked for on the command line must not make the points alike.
        arms = {arm: {**own, "sizes": {**own.get("sizes", {}), name: value}} for arm, own in spec.arms.items()}
        title = f"{spec.title}: at {name} {value}"
        points.append(msgspec.structs.replace(spec, id=f"{spec.id}-{name}{value}", title=title, form="ratio", role=Role.READING, band=None, over={}, arms=arms))
    return points


def _needed(spec: CaseSpec) -> str:
    return ", ".join(arm for _, arm in FORMS.get(spec.form, ())) or "the arms that its terms name"


def _slope_points(spec: CaseSpec, where: str) -> tuple[str, dict[float, tuple[float, dict[str, Scalar]]]]:
    """Least-squares weights of log2(size): the slope of y on x is sum((x - mean) y) / sum((x - mean)^2)."""
    if len(spec.over) != 1 or len(next(iter(spec.over.values()))) < 2:  # a line needs two points
        raise ConfigError(f"{where}: form slope needs `over: {{size: [two or more values]}}`, got {spec.over!r}")
    name, values = next(iter(spec.over.items()))
    xs = [math.log2(value) for value in values]
    mean = sum(xs) / len(xs)
    norm = sum((x - mean) ** 2 for x in xs)
    return name, {float(value): ((x - mean) / norm, {name: value}) for value, x in zip(values, xs, strict=True)}


def _arm_cell(spec: CaseSpec, bench: Bench, arm: str, sizes: dict[str, Scalar], where: str) -> Cell:
    own: dict[str, Any] = dict(spec.arms[arm])
    arm_sizes, workload = own.pop("sizes", {}), own.pop("workload", spec.workload)
    own.pop("driver", None)
    return make_cell(bench, workload, {**spec.levels, **own}, {**sizes, **arm_sizes}, f"{where}, arm {arm}")


def _arm_driver(spec: CaseSpec, arm: str, where: str) -> Driver:
    name = spec.arms[arm].get("driver", spec.driver.value)
    try:
        return Driver(name)
    except ValueError as error:
        raise ConfigError(f"{where}, arm {arm}: there is no driver {name!r}; known: {', '.join(d.value for d in Driver)}") from error


def _weights(spec: CaseSpec) -> list[TermSpec]:
    if spec.form == "terms":
        return spec.terms
    pairs = FORMS["ratio"] if spec.form == "slope" else FORMS.get(spec.form)
    if pairs is None:
        raise ConfigError(f"case {spec.id}: there is no form {spec.form!r}; known: {', '.join([*FORMS, 'slope', 'terms'])}")
    return [TermSpec(weight=weight, arm=arm, measure=spec.measure, statistic=spec.statistic) for weight, arm in pairs]


def _term(weight: float, term: TermSpec, arms: dict[str, Cell], contrast: str, spec: CaseSpec, where: str) -> Term:
    if term.arm not in arms:
        raise ConfigError(f"{where}: its term names the arm {term.arm!r}, but its arms are {', '.join(arms)}")
    statistic = term.statistic or spec.statistic or RATE_MEASURES.get(term.measure, Statistic.VALUE)
    return Term(weight * term.weight, contrast, arms[term.arm].id, term.measure, statistic)


def _scale(spec: CaseSpec) -> Scale:
    if spec.scale:
        return spec.scale
    return Scale.LINEAR if spec.form == "level" else Scale.LOG


def _null(spec: CaseSpec) -> float | None:
    if spec.null is None or isinstance(spec.null, float | int):
        return spec.null
    return 1.0 if spec.form in {"ratio", "interaction", "slope"} and _scale(spec) is Scale.LOG else None


def _arrangement(spec: CaseSpec, arms: int) -> Arrangement:
    if spec.arrangement:
        return spec.arrangement
    return Arrangement.TURNS_OF_BLOCKS if spec.driver is Driver.BLOCKS and arms > 1 else Arrangement.SOLO


def _contrast(name: str, spec: CaseSpec, bench: Bench, sweep: SweepSpec, drivers: dict[str, Driver], cells: dict[str, Cell]) -> Contrast:
    """Return the contrast of the cells, each with its driver. Arms that answer once are exact where their scale is."""
    arrangement = _arrangement(spec, len(drivers))
    trials = tuple(make_trial(bench, cells[cell], driver) for cell, driver in drivers.items())
    whole = Driver.BLOCKS not in drivers.values()
    looks = (2,) if whole and _scale(spec) is Scale.EXACT else sweep.looks
    block_s, quads = timing(bench, sweep, arrangement, list(cells.values()))
    contrast = Contrast(name, spec.title, Purpose.CLAIM, trials, arrangement, looks, quads, block_s)
    return replace(contrast, expected_round_s=expected_round_s(contrast, bench, cells))


def timing(bench: Bench, sweep: SweepSpec, arrangement: Arrangement, cells: list[Cell]) -> tuple[float, int]:
    """Return (seconds a block, accepted quads a round) for cells that are compared.

    A start costs a quarter of a minute, so a round then measures for ROUND_S: blocks differ by several per cent even where nothing else runs, and only
    many of them average that out. Trials that run alone share it; those that take turns as a whole start twice, and have half of it each time.
    """
    steps_s = [expected_step_s(bench, cell) for cell in cells]
    block_s = sweep.block_s or (1.0 if max(steps_s) > SLOW_STEP_S or bench.device == "gpu" else 0.5)
    blocks_s = [max(block_s, step_s) for step_s in steps_s]
    together = arrangement is Arrangement.TURNS_OF_BLOCKS
    fitting = round(ROUND_S / (2 * sum(blocks_s))) if together else round(ROUND_S / max(2, len(cells)) / (2 * max(blocks_s)))
    return block_s, sweep.quads or min(max(fitting, LEAST_QUADS), MOST_QUADS)


def expected_step_s(bench: Bench, cell: Cell) -> float:
    """A rough step time in seconds, from the workload's expected one scaled by batch and pixels; eager doubles it. For the first plan only."""
    spec = bench.workloads[cell.workload]
    expected = spec.expected.get(bench.device)
    if expected is None:
        return 0.05
    default = spec.sizes.get(bench.device, {})
    scale = 1.0
    for name, power in (("batch", 1), ("image", 2), ("length", 1)):
        mine, theirs = cell.sizes.get(name), default.get(name)
        if isinstance(mine, int | float) and isinstance(theirs, int | float) and theirs:
            scale *= (mine / theirs) ** power
    return expected.step_s * scale * (2.0 if cell.levels.get("execution") == "eager" else 1.0)


def expected_round_s(contrast: Contrast, bench: Bench, cells: dict[str, Cell]) -> float:
    """A rough cost of one round in seconds: starts, the warm-up quad and the accepted ones."""
    total = 0.0
    turns = 2 if len(contrast.trials) > 1 else 1
    for trial in contrast.trials:
        cell = cells[trial.cell]
        expected = bench.workloads[cell.workload].expected.get(bench.device)
        start = expected.start_s if expected else 10.0
        starts = 2 if contrast.arrangement is Arrangement.TURNS_OF_TRIALS else 1
        steps = cell.sizes.get("steps") if trial.driver in {Driver.JOB, Driver.SUPERVISE} else 0
        if trial.driver is not Driver.BLOCKS:
            work_s = expected_step_s(bench, cell) * steps if isinstance(steps, int) else 0.0
            total += starts * (start * (1 + trial.kills) + work_s)
            continue
        block = max(contrast.block_s, expected_step_s(bench, cell))
        total += starts * start + (contrast.quads + 1) * turns * block
    return total
