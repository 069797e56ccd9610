"""Makes the plan: which claims can be judged here, what must be measured for them, with which controls and proofs.

Knows specs, the machine and the device; touches neither clock nor disk. Two cases that compare the same cells in the same way share a contrast.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatch

import msgspec

from harness.errors import ConfigError
from harness.model import (
    Case,
    Claim,
    Driver,
    Ladder,
    Plan,
    Purpose,
    Reason,
    Role,
    Scalar,
)
from harness.plan.cells import Bench, unmet
from harness.plan.controls import plan_controls
from harness.plan.draft import Draft
from harness.plan.estimands import PlannedCase, plan_case, slope_points
from harness.plan.ladder import in_one_contrast, ladder_total, rung_cases, rungs_for, together_arms
from harness.plan.proofs import proofs_of
from harness.plan.scope import missing, on_exact_hardware
from harness.plan.specs import CaseSpec, ClaimSpec, Rung, SweepSpec

STANDARD_WORKLOAD = "resnet50"
"""Cases that name this workload follow the `workload=` of the command line; others keep the net that they are about."""



@dataclass(frozen=True)
class Request:
    """What the person asked for beside the sweep. `workload` replaces the standard one; `sizes` override its sizes."""

    only: tuple[str, ...] = ()
    alpha: float | None = None
    seed: int = 0
    workload: str = STANDARD_WORKLOAD
    sizes: dict[str, Scalar] = field(default_factory=dict)
    save_every: int | None = None  # steps between the saves of a job, instead of the claims' own


def make_plan(claims: list[ClaimSpec], sweep: SweepSpec, bench: Bench, rungs: list[Rung], request: Request) -> Plan:
    """Return the plan of a sweep on a machine. Every claim is in it, those that cannot be judged with their reason.

    Raises ConfigError for an `only=` that names no claim, or for a claim whose text cannot be planned.
    """
    _refuse_unknown(request.only, claims)
    draft = Draft()
    planned = tuple(_plan_claim(spec, sweep, bench, rungs, request, draft) for spec in claims if _selected(spec, sweep, request))
    ladders = _ladders(planned)
    ranks = _priorities(planned)
    claim_contrasts = tuple(replace(c, priority=ranks[c.id]) for c in draft.contrasts.values() if c.purpose is Purpose.CLAIM)
    proof_contrasts = tuple(c for c in draft.contrasts.values() if c.purpose is Purpose.PROOF)
    controls, control_contrasts, control_cells = plan_controls(claim_contrasts, sweep, bench)
    return Plan(
        sweep=sweep.name,
        alpha=sweep.alpha if request.alpha is None else request.alpha,
        preliminary=sweep.preliminary,
        seed=request.seed,
        cells=draft.cells | control_cells,
        contrasts=control_contrasts + proof_contrasts + claim_contrasts,
        claims=planned,
        controls=controls,
        proofs=tuple(draft.proofs.values()),
        ladders=ladders,
    )


def _priorities(claims: tuple[Claim, ...]) -> dict[str, int]:
    """Rank contrasts by what hangs on them: a claim's verdict, a judged case beside it, or a reading."""
    ranks: dict[str, int] = {}
    for claim in claims:
        for case in claim.cases:
            deciding = case.id == claim.deciding_case if claim.deciding_case else True
            rank = 2 if case.role is not Role.JUDGED else 0 if deciding else 1
            for term in case.estimand.terms:
                ranks[term.contrast] = min(rank, ranks.get(term.contrast, rank))
    return ranks


def _refuse_unknown(only: tuple[str, ...], claims: list[ClaimSpec]) -> None:
    known = [claim.id for claim in claims] + [f"{claim.id}.{case.id}" for claim in claims for case in claim.cases]
    for pattern in only:
        if not any(fnmatch(name, pattern) for name in known):
            near = get_close_matches(pattern, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError(f"only=[{pattern}]: there is no such claim{hint}; the claims are the files under conf/claims/")


def _selected(spec: ClaimSpec, sweep: SweepSpec, request: Request) -> bool:
    if request.only:
        return any(fnmatch(name, pattern) for pattern in request.only for name in (spec.id, *(f"{spec.id}.{case.id}" for case in spec.cases)))
    if isinstance(sweep.claims, list):
        return spec.id in sweep.claims
    return True


def _chosen_cases(spec: ClaimSpec, sweep: SweepSpec, request: Request) -> list[CaseSpec]:
    """Return the cases that the sweep runs. A case named by `only=` runs whatever its sweeps are, and alone; so do all cases of a claim so named
    where the sweep is no small one."""
    named = [case for case in spec.cases if any(fnmatch(f"{spec.id}.{case.id}", pattern) for pattern in request.only)]
    if named:
        return named
    everything = sweep.tag == "full" or (request.only and not sweep.preliminary)
    return [case for case in spec.cases if everything or sweep.tag in case.sweeps]


def _plan_claim(spec: ClaimSpec, sweep: SweepSpec, bench: Bench, rungs: list[Rung], request: Request, draft: Draft) -> Claim:
    claim = Claim(
        id=spec.id,
        group=spec.group,
        source=spec.source,
        statement=spec.statement,
        decide=spec.decide,
        exact_hardware=_hardware_text(spec),
        carried_over=spec.exact_hardware is not None and not on_exact_hardware(dict(spec.exact_hardware), bench.machine, bench.device),
        published=tuple(spec.published),
        notes=spec.notes,
        makes_testable=spec.makes_testable,
    )
    reason = _untestable(spec, bench)
    if reason:
        return replace(claim, not_testable=reason)
    chosen = _chosen_cases(spec, sweep, request)
    if not chosen:
        return replace(claim, not_testable=Reason("not_in_sweep", f"sweep {sweep.name} does not measure it"), makes_testable="+sweep=full")
    cases: list[Case] = []
    refusals: list[tuple[str, Reason]] = []
    for case_spec in _expanded(chosen, sweep, rungs):
        planned = _plan_case(spec.id, case_spec, sweep, bench, request)
        if isinstance(planned, Reason):
            refusals.append((case_spec.id, planned))
        else:
            cases.append(_adopt(planned, bench, draft))
    if not cases:
        return replace(claim, not_testable=refusals[0][1])
    deciding = f"{spec.id}.{spec.deciding_case}" if spec.deciding_case else None
    left_out = tuple(f"{name}: {reason.text}" for name, reason in refusals)
    return replace(claim, cases=tuple(cases), deciding_case=deciding, left_out=left_out)


def _hardware_text(spec: ClaimSpec) -> str | None:
    return None if spec.exact_hardware is None else ", ".join(f"{key} {value}" for key, value in spec.exact_hardware.items())


def _untestable(spec: ClaimSpec, bench: Bench) -> Reason | None:
    lacking = missing(spec.needs, bench.machine, bench.device)
    if spec.not_built:
        return Reason("not_built", f"not built yet: {spec.not_built}")
    return lacking


def _expanded(cases: list[CaseSpec], sweep: SweepSpec, rungs: list[Rung]) -> list[CaseSpec]:
    """Give the short forms their full cases: the ladder its arms and rungs, a slope the reading at each of its sizes."""
    out: list[CaseSpec] = []
    for case in cases:
        if case.form in {"ladder", "ladder_total"}:
            mine = rungs_for(case, rungs)
            total = ladder_total(case, mine)
            rest = rung_cases(mine, total) if case.form == "ladder" and sweep.ladder else []
            if rest and case.driver is Driver.JOB:
                total = in_one_contrast(total, together_arms(mine), "off", "on")
            out += [total, *rest]
        elif case.form == "slope":
            out += [case, *slope_points(case)]
        else:
            out.append(case)
    return out


def _plan_case(claim: str, spec: CaseSpec, sweep: SweepSpec, bench: Bench, request: Request) -> PlannedCase | Reason:
    lacking = missing(spec.needs, bench.machine, bench.device)
    if lacking:
        return lacking
    sizes = dict(spec.sizes)
    reading = None
    scaled = spec.scaled.get(bench.device)
    if sweep.sizes == "scaled" and scaled is not None:
        changed = ", ".join(f"{name} {value} instead of {sizes.get(name, 'the default')}" for name, value in scaled.items())
        sizes |= scaled
        reading = f"scaled down for this sweep: {changed}"
    if spec.workload == STANDARD_WORKLOAD:
        if request.workload != STANDARD_WORKLOAD:
            spec = msgspec.structs.replace(spec, workload=request.workload)
            reading = f"measured on workload={request.workload} by choice"
        if request.sizes:
            sizes |= request.sizes
            reading = "sizes chosen by hand: " + ", ".join(f"{name} {value}" for name, value in request.sizes.items())
    if request.save_every and spec.driver is Driver.JOB:
        sizes |= {"interval_steps": request.save_every}
        reading = f"interval between saves chosen by hand: {request.save_every} steps"
    thrown = _switches_by_hand(spec, bench)
    if thrown:
        reading = f"switches chosen by hand: {', '.join(thrown)}"
    planned = plan_case(claim, spec, bench, sweep, sizes, reading)
    for cell in planned.cells:
        lacking = unmet(bench, cell.levels)
        if lacking:
            return lacking
    return planned


def _switches_by_hand(spec: CaseSpec, bench: Bench) -> list[str]:
    """Return the levels that the person changed and that some arm of the case takes because it names none of its own."""
    changed = {name: value for name, value in bench.baseline.items() if value != bench.factors[name].default}
    return [f"{name} {value}" for name, value in changed.items() if any(name not in {**spec.levels, **arm} for arm in spec.arms.values())]


def _adopt(planned: PlannedCase, bench: Bench, draft: Draft) -> Case:
    """Take a case's contrasts and proofs into the draft and return the case as it reads the contrasts that are really measured."""
    renamed = {contrast.id: draft.add(contrast, planned.cells) for contrast in planned.contrasts}
    terms = tuple(replace(term, contrast=renamed[term.contrast]) for term in planned.case.estimand.terms)
    proofs = tuple(dict.fromkeys(p for cell in planned.throughput_arms for p in proofs_of(cell, bench, draft)))
    return replace(planned.case, estimand=replace(planned.case.estimand, terms=terms), proofs=proofs)


def _ladders(claims: tuple[Claim, ...]) -> tuple[Ladder, ...]:
    """Find the ladders among planned cases: beside a total, readings named <total>-add-<factor> and <total>-without-<factor>."""
    ladders = []
    for claim in claims:
        for total in claim.cases:
            added = tuple(case.id for case in claim.cases if case.id.startswith(f"{total.id}-add-"))
            left_out = tuple(case.id for case in claim.cases if case.id.startswith(f"{total.id}-without-"))
            if added:
                ladders.append(Ladder(f"{total.id}.ladder", total.title, added, left_out, total.id))
    return tuple(ladders)
