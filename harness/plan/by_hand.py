"""What a person chose in place of what claims name: another workload, sizes, an interval between saves, switches. Says which cases a choice reaches, and
what they then say of themselves.

A choice that reaches nothing is refused: it would look like one that had an effect.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from harness.errors import ConfigError
from harness.model import Driver, Reason, Scalar
from harness.plan.armless import ARMLESS
from harness.plan.cells import Bench, able
from harness.plan.specs import CaseSpec, SweepSpec

STANDARD_WORKLOAD = "resnet50"
"""Cases that name this workload follow the `workload=` of the command line where it trains something; others keep what they are about."""

WORKLOAD, INTERVAL = "workload", "checkpoint.interval"
"""The keys of choices that must reach a case, beside `switch.<factor>`."""

SAVES, INTERVAL_STEPS, INTERVAL_S = "checkpoint", "interval_steps", "interval_s"
"""The factor of how a job saves, and the sizes that say how often: in steps, or in seconds, which then decide."""

STAND_INS = "{stand_ins}"
"""Stands in a title for the accelerators that are stood in for: how many, and how fast each is."""


NO_FOLDER_GIVEN = Reason("needs_folder", "needs checkpoint.dir=, a folder on the storage that is to be measured")
FOLDER_GIVEN = Reason("folder_given", "is for runs without checkpoint.dir=: the folder that it names is measured as it is")


@dataclass(frozen=True)
class Request:
    """What the person asked for beside the sweep. `workload` replaces the standard one; `sizes` override its sizes.

    A workload that trains nothing replaces none: then its own cases are measured with the sizes, and none about training.
    """

    only: tuple[str, ...] = ()
    alpha: float | None = None
    seed: int = 0
    workload: str = STANDARD_WORKLOAD
    sizes: dict[str, Scalar] = field(default_factory=dict)
    save_every: int | None = None  # steps between the saves of a job, instead of the claims' own
    given_folder: bool = False  # the person named a folder to save into
    budget_s: float | None = None
    profile: bool = False


@dataclass(frozen=True)
class Chosen:
    """A case with the person's choices in it: its text and its sizes, what it says of them, and the keys of the choices that reached it."""

    spec: CaseSpec
    sizes: dict[str, Scalar]
    said: tuple[str, ...]
    keys: frozenset[str]


def choose(claim: str, spec: CaseSpec, sweep: SweepSpec, bench: Bench, request: Request) -> Chosen | Reason:
    """Return the case as it is to be measured in this sweep, or why it is not.

    Raises ConfigError where a job ends before the first save of the interval that was chosen.
    """
    if spec.given_folder is not None and spec.given_folder != request.given_folder:
        return NO_FOLDER_GIVEN if spec.given_folder else FOLDER_GIVEN
    trains, standard = _trains(request.workload, bench), spec.workload == STANDARD_WORKLOAD
    if standard and not trains and spec.form not in ARMLESS:
        return Reason("not_about_it", f"is about training, and workload={request.workload} trains nothing", {"workload": request.workload})
    mine = standard if trains else spec.workload == request.workload
    by_hand = request.sizes if mine else {}
    said: list[str] = []
    scaled = spec.scaled.get(bench.device, {}) if sweep.sizes == "scaled" else {}
    if left := {name: value for name, value in scaled.items() if name not in by_hand}:
        changed = (f"{name} {value} instead of {spec.sizes.get(name, 'the default')}" for name, value in left.items())
        said.append(f"scaled down for this sweep: {', '.join(changed)}")
    if standard and request.workload != STANDARD_WORKLOAD and trains:
        spec = msgspec.structs.replace(spec, workload=request.workload)
        said.append(f"measured on workload={request.workload} by choice")
    if by_hand:
        said.append(f"sizes chosen by hand: {_listed(by_hand)}")
    sizes = {**spec.sizes, **scaled, **by_hand}
    keys: set[str] = {WORKLOAD} if mine and not trains else set()
    if by_hand and not trains:
        spec = _over_arms(spec, by_hand)
    follow = _following(spec, sizes, bench) if request.save_every else []
    if request.save_every and follow:
        sizes |= {INTERVAL_STEPS: request.save_every}
        _refuse_no_save(f"{claim}.{spec.id}", spec, sizes, bench, follow, request.save_every)
        if not _read(spec).isdisjoint(follow):
            said.append(f"interval between saves chosen by hand: {request.save_every} steps")
            keys.add(INTERVAL)
    thrown = _switches_by_hand(spec, bench)
    if thrown:
        said.append(f"switches chosen by hand: {_listed(thrown)}")
    keys |= {f"switch.{name}" for name in thrown}
    return Chosen(_titled(claim, spec, sizes, bench), sizes, tuple(said), frozenset(keys))


def refuse_unreached(reached: Collection[str], sweep: SweepSpec, bench: Bench, request: Request) -> None:
    """Raise ConfigError for a choice that none of the planned cases takes; `reached` are the keys of those that some case takes."""
    if not _trains(request.workload, bench) and WORKLOAD not in reached:
        why = f"nothing that sweep {sweep.name} measures here is about it, and as it trains nothing it takes no net's place"
        raise ConfigError(f"workload={request.workload}: {why}; choose another sweep, or leave it out")
    if request.save_every and INTERVAL not in reached:
        why = f"no job that sweep {sweep.name} measures here takes it, as none saves or each has an interval of its own"
        raise ConfigError(f"{INTERVAL}={request.save_every}: {why}; leave it out, or choose other claims")
    for name, value in bench.baseline.items():
        factor = bench.factors[name]
        if value != factor.default and not factor.everywhere and f"switch.{name}" not in reached:
            why = f"nothing that sweep {sweep.name} measures here can take it, only arms of {able(bench, name)} that name no level of their own"
            raise ConfigError(f"switch.{name}={value}: {why}; leave it out, or choose other claims")


def _trains(workload: str, bench: Bench) -> bool:
    return workload not in bench.workloads or bench.workloads[workload].computes


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _sizes_of(arm: dict[str, Any]) -> dict[str, Scalar]:
    return dict(arm.get("sizes", {}))


def _defaults(spec: CaseSpec, arm: dict[str, Any], bench: Bench) -> dict[str, Scalar]:
    workload = arm.get("workload", spec.workload)
    return bench.workloads[workload].sizes.get(bench.device, {}) if workload in bench.workloads else {}


def _over_arms(spec: CaseSpec, by_hand: dict[str, Scalar]) -> CaseSpec:
    """Return the case without its arms' own values of the sizes that were chosen."""
    arms = {
        name: {**arm, "sizes": {size: value for size, value in _sizes_of(arm).items() if size not in by_hand}} if "sizes" in arm else arm
        for name, arm in spec.arms.items()
    }
    return msgspec.structs.replace(spec, arms=arms)


def _read(spec: CaseSpec) -> set[str]:
    """Return the arms that the case's value is made of; others are measured in the same rounds for other cases."""
    return {term.arm for term in spec.terms} if spec.form == "terms" else set(spec.arms)


def _following(spec: CaseSpec, sizes: dict[str, Scalar], bench: Bench) -> list[str]:
    """Return the arms that are saved every so many steps and name no interval of their own."""
    if spec.driver is not Driver.JOB or SAVES not in bench.factors:
        return []
    found = []
    for name, arm in spec.arms.items():
        saves = {**bench.baseline, **spec.levels, **arm}[SAVES] != bench.factors[SAVES].default
        own = INTERVAL_STEPS in _sizes_of(arm) or {**sizes, **_sizes_of(arm)}.get(INTERVAL_S) is not None
        if saves and not own and INTERVAL_STEPS in _defaults(spec, arm, bench):
            found.append(name)
    return found


def _refuse_no_save(case: str, spec: CaseSpec, sizes: dict[str, Scalar], bench: Bench, arms: list[str], save_every: int) -> None:
    for name in arms:
        steps = {**_defaults(spec, spec.arms[name], bench), **sizes, **_sizes_of(spec.arms[name])}.get("steps")
        if isinstance(steps, int) and steps < save_every:
            raise ConfigError(f"{INTERVAL}={save_every}: the jobs of {case} end after {steps} steps, before their first save; choose at most {steps}")


def _switches_by_hand(spec: CaseSpec, bench: Bench) -> dict[str, str]:
    """Return the levels that the person changed and that some arm of the case takes because it names none of its own."""
    changed = {name: value for name, value in bench.baseline.items() if value != bench.factors[name].default}
    return {name: value for name, value in changed.items() if any(name not in {**spec.levels, **arm} for arm in spec.arms.values())}


# ---------------------------------------------------------------- titles


def _titled(claim: str, spec: CaseSpec, sizes: dict[str, Scalar], bench: Bench) -> CaseSpec:
    """Return the case with a title that says what is really stood in for. Raises ConfigError where it stands in for nothing."""
    if STAND_INS not in spec.title:
        return spec
    arm: dict[str, Any] = next((arm for name, arm in spec.arms.items() if name in _read(spec)), {})
    words = stand_ins({**_defaults(spec, arm, bench), **sizes, **_sizes_of(arm)})
    if words is None:
        raise ConfigError(f"claim {claim}, case {spec.id}: its title names {STAND_INS}, but it has no step_ms above 0, devices and batch")
    return msgspec.structs.replace(spec, title=spec.title.replace(STAND_INS, words))


def stand_ins(sizes: dict[str, Scalar]) -> str | None:
    """Return how many accelerators are stood in for and how many samples a second each takes, in words; None where the sizes do not tell."""
    devices, batch, step_ms = (sizes.get(name) for name in ("devices", "batch", "step_ms"))
    if not (isinstance(devices, int) and isinstance(batch, int) and isinstance(step_ms, int | float) and step_ms > 0):
        return None
    rate = batch * 1000 / step_ms
    each = f"{rate:.0f} samples a second" if rate >= 10 else f"{rate:.3g} samples a second"  # a fraction tells nothing of large ones
    return f"a stand-in of {each}" if devices == 1 else f"{devices} stand-ins of {each} each"
