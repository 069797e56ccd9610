"""From the command line and conf/ to a plan. The only room that knows Hydra, and within it `keys` alone.

Every refusal names the override as it was typed, and happens before anything is written.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from harness.config.images import Data, find_data
from harness.config.keys import CONF, ROOT, TelemetryKeys, compose_keys
from harness.errors import ConfigError
from harness.judge.thresholds import Thresholds
from harness.measure.blocks import QuadRules
from harness.measure.telemetry.flags import FlagRules
from harness.model import LARGEST, Machine, Plan, Scalar, stable_id
from harness.plan.build import make_plan
from harness.plan.by_hand import Request
from harness.plan.cells import Bench, contradiction, level, unmet
from harness.plan.specs import ClaimSpec, Factor, Rung, SweepSpec, WorkloadSpec, convert, load_claims, read_yaml

STAND_IN_KEYS = ("step_ms", "devices")
"""Keys of `workload.` that a stand-in for accelerators has, and nothing that computes."""
SIZE_KEYS = ("batch", "image", "length", *STAND_IN_KEYS)
"""Keys of `workload.` that override a size: of the standard workload, or of one that trains nothing."""


@dataclass(frozen=True)
class Settings:
    """The command line, understood: what was asked for, with every file of conf/ that it needs already read."""

    overrides: tuple[str, ...]
    sweep: SweepSpec | None
    workload: WorkloadSpec
    workloads: dict[str, WorkloadSpec]
    factors: dict[str, Factor]
    claims: list[ClaimSpec]
    rungs: dict[str, list[Rung]]
    request: Request
    switch: dict[str, str]
    device: str
    device_count: int | None
    data: Data
    checkpoint_dir: Path | None
    machine_name: str | None
    host_period_s: float | None  # seconds between two samples of the host; None: no telemetry at all
    prometheus_port: int | None  # None: nothing is served; 0: any free one
    prometheus_address: str
    tensorboard: bool
    budget_s: float | None
    plan_only: bool
    resume: str | None
    results_dir: Path
    verbosity: str
    thresholds: dict[str, float]  # overridden ones
    resolved: dict[str, Any]  # what the manifest records: keys as composed, without paths


def read_factors() -> dict[str, Factor]:
    """Return conf/factors.yaml. Raises ConfigError for a default that is no level, or an exclusion of an unknown level."""
    factors = convert(read_yaml(CONF / "factors.yaml"), dict[str, Factor], "conf/factors.yaml")
    for name, factor in factors.items():
        if factor.default not in factor.levels:
            raise ConfigError(f"conf/factors.yaml: the default {factor.default!r} of factor {name} is none of its levels ({', '.join(factor.levels)})")
        for level_name, chosen in factor.levels.items():
            for other, banned in chosen.excludes.items():
                unknown = [word for word in banned if other not in factors or word not in factors[other].levels]
                if unknown:
                    raise ConfigError(f"conf/factors.yaml: {name}={level_name} excludes {other}={unknown[0]}, which is no level")
    return factors


def read_workloads() -> dict[str, WorkloadSpec]:
    """Return every workload under conf/workload/ by name."""
    paths = sorted((CONF / "workload").glob("*.yaml"))
    return {path.stem: convert(read_yaml(path), WorkloadSpec, f"conf/workload/{path.name}") for path in paths}


def list_sweeps() -> list[SweepSpec]:
    """Return every sweep under conf/sweep/."""
    return [convert(read_yaml(path), SweepSpec, f"conf/sweep/{path.name}") for path in sorted((CONF / "sweep").glob("*.yaml"))]


def read_settings(arguments: Sequence[str]) -> Settings:
    """Return what a command line asks for. Raises ConfigError, naming the override, for anything that is wrong in it."""
    for argument in arguments:
        if argument in {"-m", "--multirun"}:
            raise ConfigError(f"{argument} is refused: a sweep is one plan whose arms take turns, not a product of separate jobs; use +sweep=NAME")
        if argument.startswith("-"):
            raise ConfigError(f"{argument}: there is no such option; keys are written key=value, sweeps +sweep=NAME")
        if "=" not in argument:
            raise ConfigError(f"{argument}: is no key=value; did you mean +sweep={argument}?")
    factors = read_factors()
    keys = compose_keys(list(arguments), factors)
    sweep = convert(keys["sweep"], SweepSpec, f"conf/sweep/{keys['sweep'].get('name', '?')}.yaml") if keys["sweep"] else None
    if keys["launcher"]["kind"] != "local":
        raise ConfigError(f"launcher.kind={keys['launcher']['kind']}: rounds can only be run on this machine so far; use launcher=local")
    workload_keys = {name: value for name, value in keys["workload"].items() if name not in SIZE_KEYS}
    workload = convert(workload_keys, WorkloadSpec, f"workload={keys['workload']['name']}")
    if not workload.target:
        raise ConfigError(f"workload={workload.name} has no target; give workload.target=module:function")
    sizes = _checked_sizes(keys["workload"], workload)
    interval = keys["checkpoint"]["interval"]
    if interval is not None and interval < 1:
        raise ConfigError(f"checkpoint.interval={interval}: must be at least 1 (steps from one save to the next)")
    switch = {name: value for name, value in keys["switch"].items() if value is not None}
    budget_s = parse_budget(keys["budget"] or (sweep.budget if sweep else None))
    return Settings(
        overrides=tuple(arguments),
        sweep=_checked_sweep(sweep) if sweep else None,
        workload=workload,
        workloads={**read_workloads(), workload.name: workload},
        factors=factors,
        claims=load_claims(CONF / "claims"),
        rungs=convert(read_yaml(CONF / "ladder.yaml"), dict[str, list[Rung]], "conf/ladder.yaml"),
        request=Request(
            tuple(keys["only"]),
            _checked_alpha(keys["alpha"]),
            keys["seed"],
            workload.name,
            sizes,
            save_every=interval,
            given_folder=keys["checkpoint"]["dir"] is not None,
            budget_s=budget_s,
            profile=keys["telemetry"]["profile"],
        ),
        switch=switch,
        device=keys["devices"]["kind"],
        device_count=keys["devices"]["count"],
        data=find_data(keys["data"]["dir"], make=keys["data"]["make"], on_bad=keys["data"]["on_bad"]),
        checkpoint_dir=_existing_folder("checkpoint.dir", keys["checkpoint"]["dir"]),
        machine_name=keys["machine"]["name"],
        host_period_s=_checked_period(keys["telemetry"]["host_period_s"]) if keys["telemetry"]["enabled"] else None,
        prometheus_port=_checked_port(keys["telemetry"]),
        prometheus_address=keys["telemetry"]["prometheus_address"],
        tensorboard=keys["telemetry"]["tensorboard"],
        budget_s=budget_s,
        plan_only=keys["plan"],
        resume=keys["resume"],
        results_dir=(ROOT / keys["results_dir"]).resolve(),
        verbosity=keys["verbosity"],
        thresholds=_checked_thresholds(keys["thresholds"]),
        resolved=_recorded(keys),
    )


def _recorded(keys: dict[str, Any]) -> dict[str, Any]:
    """Return the keys as the manifest records them: without paths, and without where on the network the run could be watched."""
    aside = {"results_dir", "resume", "plan", "verbosity"}
    recorded = {name: value for name, value in keys.items() if name not in aside}
    recorded["telemetry"] = {name: value for name, value in keys["telemetry"].items() if not name.startswith("prometheus_")}
    for group in ("data", "checkpoint"):
        recorded[group] = {name: value for name, value in keys[group].items() if name != "dir"}
    return recorded


def _checked_sizes(given: dict[str, Any], workload: WorkloadSpec) -> dict[str, Scalar]:
    """Return the sizes that were chosen by hand. Refuse those that are none, or that the workload has not."""
    sizes: dict[str, Scalar] = {name: given[name] for name in SIZE_KEYS if given[name] is not None}
    for name, value in sizes.items():
        if name in STAND_IN_KEYS and workload.sizes and all(name not in own for own in workload.sizes.values()):
            raise ConfigError(f"workload.{name}={value}: the workload {workload.name} has no such size; add workload=replay, a stand-in for accelerators")
        if name == "step_ms":
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ConfigError(f"workload.{name}={value}: must be above 0 (milliseconds of a step)")
        elif isinstance(value, int) and value < 1:
            raise ConfigError(f"workload.{name}={value}: must be at least 1")
        if isinstance(value, str) and value != LARGEST:
            raise ConfigError(f"workload.{name}={value}: {value!r} is not a whole number, nor {LARGEST} (the largest that there is room for)")
    return sizes


def _checked_sweep(sweep: SweepSpec) -> SweepSpec:
    """Refuse numbers with which a sweep would measure nothing, or count warm-up as result."""
    looks = list(sweep.looks)
    if not looks or looks[0] < 1 or looks != sorted(set(looks)):
        raise ConfigError(f"sweep.looks={looks}: must be numbers of rounds that rise from at least 1, as in [3,5,8,12]")
    least = {"control_rounds": sweep.control_rounds, "quads": sweep.quads, "block_s": sweep.block_s}
    for name, value in least.items():
        if value is not None and not (value > 0 if name == "block_s" else value >= 1):
            meaning = "seconds of a timed block" if name == "block_s" else "rounds of the controls" if name == "control_rounds" else "quads that count, warm-up aside"
            raise ConfigError(f"sweep.{name}={value}: must be {'above 0' if name == 'block_s' else 'at least 1'} ({meaning})")
    if sweep.sizes not in {"article", "scaled"}:
        raise ConfigError(f"sweep.sizes={sweep.sizes}: must be article or scaled")
    _checked_alpha(sweep.alpha)
    return sweep


def _checked_thresholds(given: dict[str, float]) -> dict[str, float]:
    known = [item.name for kind in (Thresholds, QuadRules, FlagRules) for item in fields(kind)]
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"thresholds.{name}: there is no such threshold; known: {', '.join(known)}")
        shares = {"control_band", "control_failed", "lost_share", "pooled_share", "low_clock_share"}
        most = 0.5 if name == "control_alpha" else 1.0 if name in shares else math.inf
        if not 0 <= value < most:
            raise ConfigError(f"thresholds.{name}={value}: must be at least 0{'' if most == math.inf else f' and below {most:g}'}")
    return given


def _checked_period(period_s: float) -> float:
    """Refuse to watch the host so often that watching is what one sees."""
    if not 0.1 <= period_s <= 3600:
        raise ConfigError(f"telemetry.host_period_s={period_s}: must be at least 0.1 and at most 3600 (seconds from one sample of the host to the next)")
    return period_s


def _checked_port(telemetry: dict[str, Any]) -> int | None:
    """Return the port to serve metrics on, None for none. Refuse an address that would be open to everyone without anybody having said so."""
    port, address = telemetry["prometheus_port"], telemetry["prometheus_address"]
    if port is None:
        default = TelemetryKeys().prometheus_address
        if address != default:
            raise ConfigError(f"telemetry.prometheus_address={address}: nothing is served without a port; add telemetry.prometheus_port=9400")
        return None
    if not 0 <= port <= 65535:
        raise ConfigError(f"telemetry.prometheus_port={port}: must lie between 0 (any free one) and 65535")
    if not address.strip():
        raise ConfigError("telemetry.prometheus_address=: is empty; name an address, such as 127.0.0.1, or 0.0.0.0 for all of this machine's")
    return int(port)


def _existing_folder(key: str, value: str | None) -> Path | None:
    """Return a folder of the person's own. It is not made: a misspelt mount point would be measured on the wrong disk."""
    if value is None:
        return None
    folder = (ROOT / value).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{key}={value}: there is no such folder; make it, or mount what is to be measured")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{key}={value}: this user may not write there")
    return folder


def _checked_alpha(alpha: float | None) -> float | None:
    if alpha is not None and not 0 < alpha < 0.5:  # a coin would do better
        raise ConfigError(f"alpha={alpha}: must lie between 0 and 0.5 (0.01 means that one verdict in a hundred may be wrong)")
    return alpha


def parse_budget(text: str | None) -> float | None:
    """Return seconds of "45m", "2h", "90s", "1h30m" or a plain number of seconds; None for None. Raises ConfigError for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not text.strip() or not match:
        raise ConfigError(f"budget={text}: is no duration; write 45m, 2h, 1h30m or 90s")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise ConfigError(f"budget={text}: must be longer than nothing")
    return total


# ---------------------------------------------------------------- from settings to a plan


def choose_device(settings: Settings, machine: Machine) -> str:
    """Return "cpu" or "gpu". Raises ConfigError where the person demanded what the machine has not."""
    found = len(machine.gpus)
    if settings.device == "gpu" and not found:
        raise ConfigError(f"devices.kind=gpu: asked for a GPU, found 0 ({machine.gpu_reason or 'no reason given'}); use devices.kind=cpu or auto")
    device = "gpu" if settings.device == "gpu" or (settings.device == "auto" and found) else "cpu"
    if settings.device_count is not None and device == "gpu" and settings.device_count > found:
        raise ConfigError(f"devices.count={settings.device_count}: asked for {settings.device_count} GPUs, found {found}")
    if settings.device_count is not None and device == "cpu" and settings.device_count > 1:
        why = "devices.kind=cpu measures without them" if found else f"found 0 ({machine.gpu_reason or 'no reason given'})"
        raise ConfigError(f"devices.count={settings.device_count}: asked for {settings.device_count} GPUs, {why}")
    if settings.device_count is not None and settings.device_count < 1:
        raise ConfigError(f"devices.count={settings.device_count}: must be at least 1; use devices.kind=cpu to measure without a GPU")
    return device


def make_bench(settings: Settings, machine: Machine) -> Bench:
    """Return the bench. Raises ConfigError for `switch.` levels that are unknown, contradict one another, or that this machine has not."""
    device = choose_device(settings, machine)
    if device == "cpu" and LARGEST in settings.request.sizes.values():
        raise ConfigError(f"workload.batch={LARGEST}: is looked for on a GPU only, as on a CPU the search would end in swapping; give a number")
    baseline = {name: factor.default for name, factor in settings.factors.items()}
    plain = Bench(machine, device, settings.factors, settings.workloads, baseline, settings.device_count or 1)
    for name, value in settings.switch.items():
        level(plain, name, value, f"switch.{name}={value}")
    chosen = {**baseline, **settings.switch}
    clash = contradiction(plain, chosen)
    if clash:
        raise ConfigError(f"{_typed(settings)}: {clash} contradict each other; change one of them")
    lacking = unmet(plain, settings.switch)
    if lacking:
        raise ConfigError(f"{_typed(settings)}: {lacking.text}")
    return Bench(machine, device, settings.factors, settings.workloads, chosen, settings.device_count or 1)


def _typed(settings: Settings) -> str:
    return " ".join(f"switch.{name}={value}" for name, value in settings.switch.items())


def to_plan(settings: Settings, bench: Bench) -> Plan:
    """Return the plan of the sweep that was asked for. Raises ConfigError where none was."""
    if settings.sweep is None:
        raise ConfigError("no sweep was named; add +sweep=quick, or run python -m harness alone to see them")
    plan = make_plan(settings.claims, settings.sweep, bench, settings.rungs.get(bench.device, []), settings.request)
    return replace(plan, thresholds={**asdict(Thresholds()), **asdict(QuadRules()), **asdict(FlagRules()), **settings.thresholds})


def claims_hash(settings: Settings) -> str:
    """Return a hash of every claim as written before the run: the proof that no band was moved afterwards."""
    import msgspec  # noqa: PLC0415 - cheap, but used here alone

    return stable_id("claims", msgspec.to_builtins(settings.claims))
