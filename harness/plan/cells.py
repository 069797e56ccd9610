"""From factors and levels to cells and processes: what one arm of a comparison is, exactly.

Knows factors, levels and sizes; knows no claim.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches

from harness.errors import ConfigError
from harness.model import Cell, Deadlines, Driver, Machine, Process, Reason, Round, Scalar, Trial
from harness.plan.scope import missing
from harness.plan.specs import Factor, Level, WorkloadSpec

MIB = 1 << 20
SEED_STRIDE = 1000
"""Distance of the seeds of two rounds: more than any outcome uses of its own in one round."""


@dataclass(frozen=True)
class Bench:
    """All that stays the same while a plan is made: the machine, the device measured, the factors, the workloads, and the baseline level of each factor.

    `guest`: this is the bench of an arm that runs on another device than the run's own.
    """

    machine: Machine
    device: str
    factors: dict[str, Factor]
    workloads: dict[str, WorkloadSpec]
    baseline: dict[str, str]
    gpus: int = 1
    guest: bool = False


def on_device(bench: Bench, device: str) -> Bench:
    """Return the bench as an arm on `device` sees it: default sizes and needs are those of that device."""
    return bench if device == bench.device else replace(bench, device=device, guest=True)


def level(bench: Bench, factor: str, name: str, where: str) -> Level:
    """Return a level by factor and name. Raises ConfigError with what is known, and the nearest name, where it does not exist."""
    if factor not in bench.factors:
        raise ConfigError(f"{where}: there is no factor {factor!r}{_near(factor, list(bench.factors))}; known: {', '.join(bench.factors)}")
    levels = bench.factors[factor].levels
    if name not in levels:
        raise ConfigError(f"{where}: factor {factor} has no level {name!r}{_near(name, list(levels))}; known: {', '.join(levels)}")
    return levels[name]


def _near(word: str, known: list[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def contradiction(bench: Bench, levels: dict[str, str]) -> str | None:
    """Return the pair of levels that cannot go together as "a=x with b=y", or None."""
    for factor, name in levels.items():
        for other, banned in bench.factors[factor].levels[name].excludes.items():
            if levels.get(other) in banned:
                return f"{factor}={name} with {other}={levels[other]}"
    return None


def unmet(bench: Bench, levels: dict[str, str]) -> Reason | None:
    """Return why this machine, or the suite as built, has not all of these levels; None where it has."""
    for factor, name in levels.items():
        chosen = bench.factors[factor].levels[name]
        if chosen.not_built:
            return Reason("not_built", f"{factor}={name} is not built yet: {chosen.not_built}", {"level": name})
        lacking = missing(chosen.needs, bench.machine, bench.device)
        if lacking:
            return Reason(lacking.code, f"{factor}={name} {lacking.text}", lacking.numbers)
    return None


def unheeded(bench: Bench, cell: Cell) -> Reason | None:
    """Return which level of a cell its workload cannot bring about, None where there is none: the arm would bear a name and do what it always does."""
    takes = bench.workloads[cell.workload].takes
    for factor, name in cell.levels.items():
        if name != bench.factors[factor].default and not bench.factors[factor].everywhere and factor not in takes:
            text = f"{factor}={name} cannot be had in the workload {cell.workload}, only in {able(bench, factor)}"
            return Reason("not_in_workload", text, {"factor": factor, "level": name, "workload": cell.workload})
    return None


def able(bench: Bench, factor: str) -> str:
    """Return the workloads that can have levels of a factor that is not had everywhere, as text."""
    return ", ".join(name for name, spec in bench.workloads.items() if factor in spec.takes) or "none"


def left_alone(bench: Bench, workload: str) -> dict[str, str]:
    """Return the default levels of the factors that a workload cannot bring about: what a cell has whatever the baseline says."""
    takes = bench.workloads[workload].takes if workload in bench.workloads else []
    return {name: factor.default for name, factor in bench.factors.items() if not factor.everywhere and name not in takes}


def make_cell(bench: Bench, workload: str, levels: dict[str, str], sizes: dict[str, Scalar], where: str) -> Cell:
    """Return the cell of `workload` with the baseline's levels and default sizes, overlaid with `levels` and `sizes`.

    Raises ConfigError for an unknown workload, factor or level, or for levels that contradict one another.
    """
    if workload not in bench.workloads:
        raise ConfigError(f"{where}: there is no workload {workload!r}{_near(workload, list(bench.workloads))}; known: {', '.join(bench.workloads)}")
    merged = {**bench.baseline, **levels}
    for factor, name in merged.items():
        level(bench, factor, name, where)
    clash = contradiction(bench, merged)
    if clash:
        raise ConfigError(f"{where}: {clash} contradict each other; change one of them")
    default = bench.workloads[workload].sizes.get(bench.device, {})
    return Cell(workload, bench.device, dict(sorted(merged.items())), {**default, **sizes})


def make_trial(bench: Bench, cell: Cell, driver: Driver, call: str = "outcome", name: str | None = None, ghost_every: int = 0, crew: int = 1) -> Trial:
    """Return the trial that measures `cell`: one process, with the levels' own settings and environment laid over the cell's, and `crew` - 1 neighbours
    that do the same.

    Sizes that are about the process and not about the work: `cores` (the first so many usable ones; `localise` picks them), `memory_limit_mib`
    (a control group's), `kills` (driver supervise), `lasts_s` (seconds that a job goes on), `gpus` (the first so many; else as many as the run uses).
    Paths of this machine (a level's interpreter, the data folder) are left out: a plan is written into the bundle. `localise` adds them.
    """
    workload = bench.workloads[cell.workload]
    settings: dict[str, Scalar] = {**cell.sizes, **cell.levels, "device": cell.device}
    env: dict[str, str] = {}
    for factor, chosen in cell.levels.items():
        settings |= bench.factors[factor].levels[chosen].settings
        env |= bench.factors[factor].levels[chosen].env
    wanted = settings.get("gpus")
    gpus = tuple(gpu.uuid for gpu in bench.machine.gpus[: wanted if isinstance(wanted, int) else bench.gpus]) if cell.device == "gpu" else ()
    limit_mib, kills = settings.get("memory_limit_mib"), settings.get("kills")
    process = Process(
        "lead",
        workload.target,
        settings,
        workload.runtime,
        env=env,
        gpus=gpus,
        cgroup_memory_bytes=limit_mib * MIB if isinstance(limit_mib, int) else None,
    )
    times = kills if driver is Driver.SUPERVISE and isinstance(kills, int) else 0
    deadlines = Deadlines()
    lasts_s = settings.get("lasts_s")
    if driver is Driver.JOB and isinstance(lasts_s, int | float):
        deadlines = replace(deadlines, job_s=deadlines.job_s + lasts_s)
    processes = (process, *(replace(process, role="neighbour", rank=rank) for rank in range(1, crew)))
    return Trial(name or cell.id, cell.id, processes, driver=driver, call=call, ghost_every=ghost_every, kills=times, deadlines=deadlines)


def localise(round_: Round, cells: dict[str, Cell], factors: dict[str, Factor], extra: dict[str, Scalar], cpus: tuple[int, ...] = ()) -> Round:
    """Return the round with what belongs to this machine and to this replicate alone: each level's interpreter, `extra` settings such as the data
    folder, of the usable `cpus` the first so many where a cell asks for a number of cores, and for outcomes a seed of the round's own, equal in all
    arms: the same seed again would be no replicate."""
    trials = (_localised(_reseeded(trial, round_.index), cells[trial.cell], factors, extra, cpus) for trial in round_.trials)
    return replace(round_, trials=tuple(trials))


def _reseeded(trial: Trial, index: int) -> Trial:
    if trial.driver is Driver.BLOCKS or trial.call != "outcome":
        return trial
    return replace(trial, processes=tuple(replace(p, settings={**p.settings, "seed": _seed_of(p) + SEED_STRIDE * index}) for p in trial.processes))


def _seed_of(process: Process) -> int:
    seed = process.settings.get("seed", 0)
    return seed if isinstance(seed, int) else 0


def _localised(trial: Trial, cell: Cell, factors: dict[str, Factor], extra: dict[str, Scalar], cpus: tuple[int, ...]) -> Trial:
    named = [factors[factor].levels[name].interpreter for factor, name in cell.levels.items() if factor in factors]
    interpreter = next((path for path in named if path), None)
    cores = cell.sizes.get("cores")
    chosen = cpus[:cores] if isinstance(cores, int) else None
    processes = (replace(p, interpreter=interpreter or p.interpreter, settings={**extra, **p.settings}, cpus=chosen or p.cpus) for p in trial.processes)
    return replace(trial, processes=tuple(processes))
