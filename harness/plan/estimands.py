"""From a case as written to the contrasts it is measured in and the estimand that is judged.

Each `form` is a short way to write arms and weights:

ratio        treatment over baseline (log scale, null 1)
interaction  (a1/b1) over (a2/b2) (log scale, null 1): is the gain larger in the first context?
level        the one arm `treatment` (linear scale, no null)
slope        ratio treatment over baseline against log2 of a size: its factor for each doubling (log scale, null 1); the ratio at each size is a reading beside it
ladder       all switches off over all on, with each rung and each leave-one-out as readings beside it; ladder_total: the total alone
terms        weights and measures written out, each of an arm

Forms without arms of their own are planned by `harness.plan.armless`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from harness.errors import ConfigError
from harness.model import LARGEST, Arrangement, Case, Cell, Contrast, Driver, Estimand, Purpose, Role, Scalar, Scale, Search, Statistic, Term
from harness.plan.cells import Bench, make_cell, make_trial, on_device
from harness.plan.scope import shares_card
from harness.plan.search import MEASURE, PROBES, SIZE
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
    asked: dict[str, Scalar] = {SIZE: LARGEST} if spec.measure == MEASURE else {}
    for weight, point_sizes in points.values():
        arms = {name: _arm_cell(spec, bench, name, {**sizes, **point_sizes, **asked}, where) for name in spec.arms}
        drivers = {cell.id: _arm_driver(spec, name, where) for name, cell in arms.items()}
        if not arms:
            raise ConfigError(f"{where}: has no arms; form {spec.form} needs {_needed(spec)}")
        suffix = f"-{factor}{next(iter(point_sizes.values()))}" if point_sizes else ""
        mine = {cell.id: cell for cell in arms.values()}
        searches = {cell.id: _search(cell, bench) for cell in mine.values() if cell.sizes.get(SIZE) == LARGEST}
        if spec.measure == MEASURE:
            if len(searches) < len(mine):
                raise ConfigError(f"{where}: {MEASURE} is searched for, so none of its arms may have a {SIZE} of its own")
            read = {cell: search.id for cell, search in searches.items()}
        else:
            contrasts.append(_contrast(f"{claim}.{spec.id}{suffix}", spec, bench, sweep, drivers, mine))
            read = dict.fromkeys(mine, contrasts[-1].id)
        contrasts += searches.values()
        cells |= mine
        terms += [_term(weight, term, arms, read, spec, where) for term in _weights(spec)]
    case = case_of(claim, spec, Estimand(_scale(spec), tuple(terms), _offset(spec, bench, where)), reading)
    proven = spec.prove if spec.prove is not None else (spec.driver is Driver.BLOCKS and len(cells) > 1 and spec.measure in RATE_MEASURES)
    return PlannedCase(case, tuple(contrasts), tuple(cells.values()), tuple(cells.values()) if proven else ())


def case_of(claim: str, spec: CaseSpec, estimand: Estimand, reading: str | None) -> Case:
    """Return the case of an estimand, with all that is written of it. `reading` says why it decides nothing here, None where it does."""
    return Case(
        id=f"{claim}.{spec.id}",
        title=spec.title,
        role=Role.READING if reading and spec.role is Role.JUDGED else spec.role,
        estimand=estimand,
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
    arm_sizes, workload, device = own.pop("sizes", {}), own.pop("workload", spec.workload), own.pop("device", bench.device)
    own.pop("driver", None)
    if device not in {"cpu", bench.device}:
        raise ConfigError(f"{where}, arm {arm}: device {device!r} cannot be asked for: only cpu can; a GPU is what the case needs (needs: {{device: gpu}})")
    return make_cell(on_device(bench, device), workload, {**spec.levels, **own}, {**sizes, **arm_sizes}, f"{where}, arm {arm}")


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


def _offset(spec: CaseSpec, bench: Bench, where: str) -> float:
    """What makes bytes a share of the card's memory: on the log scale, the memory's logarithm taken off."""
    if not spec.of_card:
        return 0.0
    memory = bench.machine.gpus[0].memory_bytes if bench.machine.gpus else None
    if spec.form != "level" or _scale(spec) is not Scale.LOG or not memory:
        raise ConfigError(f"{where}: of_card is for the form level on the log scale, and for a card that tells how much memory it has")
    return -math.log(memory)


def _term(weight: float, term: TermSpec, arms: dict[str, Cell], contrasts: dict[str, str], spec: CaseSpec, where: str) -> Term:
    if term.arm not in arms:
        raise ConfigError(f"{where}: its term names the arm {term.arm!r}, but its arms are {', '.join(arms)}")
    statistic = term.statistic or spec.statistic or RATE_MEASURES.get(term.measure, Statistic.VALUE)
    cell = arms[term.arm].id
    return Term(weight * term.weight, contrasts[cell], cell, term.measure, statistic)


def _scale(spec: CaseSpec) -> Scale:
    if spec.scale:
        return spec.scale
    return Scale.LINEAR if spec.form == "level" else Scale.LOG


def _null(spec: CaseSpec) -> float | None:
    if spec.null is None or isinstance(spec.null, float | int):
        return spec.null
    return 1.0 if spec.form in {"ratio", "interaction", "slope"} and _scale(spec) is Scale.LOG else None


def _arrangement(spec: CaseSpec, cells: dict[str, Cell], bench: Bench) -> Arrangement:
    """Arms take turns as trials where they cannot live side by side: on a card that serves one process at a time, or at their largest batch."""
    usual = Arrangement.TURNS_OF_BLOCKS if spec.driver is Driver.BLOCKS and len(cells) > 1 else Arrangement.SOLO
    wanted = spec.arrangement or usual
    on_gpu = sum(cell.device == "gpu" for cell in cells.values())
    largest = any(cell.sizes.get(SIZE) == LARGEST for cell in cells.values())
    if wanted is Arrangement.TURNS_OF_BLOCKS and len(cells) > 1 and (largest or (on_gpu > 1 and not shares_card(bench.machine))):
        return Arrangement.TURNS_OF_TRIALS
    return wanted


def _contrast(name: str, spec: CaseSpec, bench: Bench, sweep: SweepSpec, drivers: dict[str, Driver], cells: dict[str, Cell]) -> Contrast:
    """Return the contrast of the cells, each with its driver. Arms that answer once are exact where their scale is."""
    arrangement = _arrangement(spec, cells, bench)
    trials = tuple(make_trial(bench, cells[cell], driver, crew=spec.crew) for cell, driver in drivers.items())
    whole = Driver.BLOCKS not in drivers.values() or arrangement is Arrangement.TOGETHER
    looks = (2,) if whole and _scale(spec) is Scale.EXACT else sweep.looks
    block_s, quads = timing(bench, sweep, arrangement, list(cells.values()))
    contrast = Contrast(name, spec.title, Purpose.CLAIM, trials, arrangement, looks, quads, block_s)
    return replace(contrast, expected_round_s=expected_round_s(contrast, bench, cells))


def _search(cell: Cell, bench: Bench) -> Contrast:
    """Return the search for a cell's largest batch, from the workload's usual one on."""
    usual = bench.workloads[cell.workload].sizes.get(cell.device, {}).get(SIZE)
    search = Search(SIZE, usual) if isinstance(usual, int) else Search(SIZE)
    named = [cell.workload, *(value for factor, value in cell.levels.items() if value != bench.factors[factor].default)]
    trial = make_trial(bench, cell, Driver.ONCE, call="probe")
    contrast = Contrast(f"search-{cell.id}", f"largest {SIZE} of {' '.join(named)}", Purpose.CLAIM, (trial,), Arrangement.SOLO, (PROBES,), search=search)
    return replace(contrast, expected_round_s=expected_round_s(contrast, bench, {cell.id: cell}))


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
    expected = spec.expected.get(cell.device)
    if expected is None:
        return 0.05
    default = spec.sizes.get(cell.device, {})
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
        expected = bench.workloads[cell.workload].expected.get(cell.device)
        start = expected.start_s if expected else 10.0
        starts = 2 if contrast.arrangement is Arrangement.TURNS_OF_TRIALS else 1
        steps = cell.sizes.get("steps") if trial.driver in {Driver.JOB, Driver.SUPERVISE} else 0
        if trial.driver is not Driver.BLOCKS:
            work_s = expected_step_s(bench, cell) * steps if isinstance(steps, int) else 0.0
            lasts_s = _lasts_s(cell) if trial.driver is Driver.JOB else None
            work_s = work_s if lasts_s is None else lasts_s
            total += starts * (start * (1 + trial.kills) + work_s)
            continue
        block = max(contrast.block_s, expected_step_s(bench, cell))
        total += starts * start + (contrast.quads + 1) * turns * block
    return total


def _lasts_s(cell: Cell) -> float | None:
    """How long a job goes on that is asked for a time, as a whole or from save to save; None for one that is asked for steps."""
    lasts_s, interval_s, saves = (cell.sizes.get(name) for name in ("lasts_s", "interval_s", "saves"))
    if isinstance(lasts_s, int | float):
        return float(lasts_s)
    return float(interval_s * saves) if isinstance(interval_s, int | float) and isinstance(saves, int) else None
