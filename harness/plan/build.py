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
    Arrangement,
    Case,
    Cell,
    Claim,
    Contrast,
    Control,
    ControlKind,
    Driver,
    Ladder,
    Plan,
    Proof,
    Purpose,
    Reason,
    Role,
    Scalar,
)
from harness.plan.cells import Bench, make_cell, make_trial, unmet
from harness.plan.estimands import PlannedCase, expected_round_s, plan_case, slope_points, timing
from harness.plan.ladder import ladder_total, rung_cases
from harness.plan.scope import missing, on_exact_hardware
from harness.plan.specs import CaseSpec, ClaimSpec, Rung, SweepSpec

STANDARD_WORKLOAD = "resnet50"
"""Cases that name this workload follow the `workload=` of the command line; others keep the net that they are about."""

PROOF_LOOKS = (1,)
PERTURBATION = 1e-7
"""Relative change of the weights whose effect on two steps, times ten, is the tolerance for "computes the same"."""


@dataclass(frozen=True)
class Request:
    """What the person asked for beside the sweep. `workload` replaces the standard one; `sizes` override its sizes."""

    only: tuple[str, ...] = ()
    alpha: float | None = None
    seed: int = 0
    workload: str = STANDARD_WORKLOAD
    sizes: dict[str, Scalar] = field(default_factory=dict)


@dataclass
class _Draft:
    """The plan while it grows. Contrasts are kept by what they measure, so that equal ones are measured once."""

    cells: dict[str, Cell] = field(default_factory=dict)
    contrasts: dict[str, Contrast] = field(default_factory=dict)
    by_content: dict[str, str] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)

    def add(self, contrast: Contrast, cells: tuple[Cell, ...]) -> str:
        """Take a contrast in and return the id under which it is measured."""
        content = (sorted(t.id for t in contrast.trials), contrast.arrangement.value, [t.driver.value + t.call for t in contrast.trials], contrast.purpose.value)
        key = repr(content)
        self.cells |= {cell.id: cell for cell in cells}
        if key in self.by_content:
            known = self.contrasts[self.by_content[key]]
            self.contrasts[known.id] = replace(known, looks=max(known.looks, contrast.looks, key=lambda looks: looks[-1]))
            return known.id
        self.by_content[key] = contrast.id
        self.contrasts[contrast.id] = contrast
        return contrast.id


def make_plan(claims: list[ClaimSpec], sweep: SweepSpec, bench: Bench, rungs: list[Rung], request: Request) -> Plan:
    """Return the plan of a sweep on a machine. Every claim is in it, those that cannot be judged with their reason.

    Raises ConfigError for an `only=` that names no claim, or for a claim whose text cannot be planned.
    """
    _refuse_unknown(request.only, claims)
    draft = _Draft()
    planned = tuple(_plan_claim(spec, sweep, bench, rungs, request, draft) for spec in claims if _selected(spec, sweep, request))
    ladders = _ladders(planned)
    ranks = _priorities(planned)
    claim_contrasts = tuple(replace(c, priority=ranks[c.id]) for c in draft.contrasts.values() if c.purpose is Purpose.CLAIM)
    proof_contrasts = tuple(c for c in draft.contrasts.values() if c.purpose is Purpose.PROOF)
    controls, control_contrasts, control_cells = _controls(claim_contrasts, sweep, bench)
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


def _plan_claim(spec: ClaimSpec, sweep: SweepSpec, bench: Bench, rungs: list[Rung], request: Request, draft: _Draft) -> Claim:
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
            total = ladder_total(case, rungs)
            out += [total, *(rung_cases(rungs, total) if case.form == "ladder" and sweep.ladder else [])]
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
    planned = plan_case(claim, spec, bench, sweep, sizes, reading)
    for cell in planned.cells:
        lacking = unmet(bench, cell.levels)
        if lacking:
            return lacking
    return planned


def _adopt(planned: PlannedCase, bench: Bench, draft: _Draft) -> Case:
    """Take a case's contrasts and proofs into the draft and return the case as it reads the contrasts that are really measured."""
    renamed = {contrast.id: draft.add(contrast, planned.cells) for contrast in planned.contrasts}
    terms = tuple(replace(term, contrast=renamed[term.contrast]) for term in planned.case.estimand.terms)
    proofs = tuple(dict.fromkeys(p for cell in planned.throughput_arms for p in _proofs_of(cell, bench, draft)))
    return replace(planned.case, estimand=replace(planned.case.estimand, terms=terms), proofs=proofs)


# ---------------------------------------------------------------- proofs


def _proof_cell(cell: Cell, bench: Bench, levels: dict[str, str], extra: dict[str, Scalar]) -> Cell:
    spec = bench.workloads[cell.workload]
    model_sizes = {**spec.sizes.get(bench.device, {}), **spec.proof, **extra}
    aside = {name: factor.default for name, factor in bench.factors.items() if not factor.arithmetic}
    return make_cell(bench, cell.workload, {**levels, **aside}, model_sizes, f"proof of {cell.workload}")


def _proofs_of(cell: Cell, bench: Bench, draft: _Draft) -> list[str]:
    """Return the ids of the proofs that `cell` computes what its workload's reference computes; the reference itself needs none."""
    defaults = {name: factor.default for name, factor in bench.factors.items()}
    reference = _proof_cell(cell, bench, defaults, {})
    mine = _proof_cell(cell, bench, cell.levels, {})
    if mine.id == reference.id:
        return []
    base = _proof_contrast(reference, bench, draft)
    perturbed = _proof_contrast(_proof_cell(cell, bench, defaults, {"perturb": PERTURBATION}), bench, draft)
    precision = cell.levels["precision"]
    ids = []
    if precision not in {"fp32", "tf32"}:
        # The same code with its policy at float32 must do the same arithmetic; rounding is what remains to differ.
        as_fp32 = _proof_cell(cell, bench, cell.levels, {"policy_float32": True})
        ids.append(_proof(as_fp32, f"{_name(mine, bench)}, policy float32", base, perturbed, "fp32", bench, draft))
    ids.append(_proof(mine, _name(mine, bench), base, perturbed, precision, bench, draft))
    return ids


def _name(cell: Cell, bench: Bench) -> str:
    return " ".join([cell.workload, *(f"{name}={value}" for name, value in cell.levels.items() if value != bench.factors[name].default)])


def _proof_contrast(cell: Cell, bench: Bench, draft: _Draft) -> str:
    trial = make_trial(bench, cell, Driver.ONCE, call="proof")
    contrast = Contrast(f"proof-{cell.id}", f"proof of {_name(cell, bench)}", Purpose.PROOF, (trial,), Arrangement.SOLO, PROOF_LOOKS)
    return draft.add(replace(contrast, expected_round_s=expected_round_s(contrast, bench, {cell.id: cell})), (cell,))


def _proof(cell: Cell, title: str, base: str, perturbed: str, precision: str, bench: Bench, draft: _Draft) -> str:
    treatment = _proof_contrast(cell, bench, draft)
    name = f"same-{treatment.removeprefix('proof-')}"
    draft.proofs.setdefault(name, Proof(name, title, base, perturbed, treatment, precision))
    return name


# ---------------------------------------------------------------- controls and ladders


def _controls(contrasts: tuple[Contrast, ...], sweep: SweepSpec, bench: Bench) -> tuple[tuple[Control, ...], tuple[Contrast, ...], dict[str, Cell]]:
    """Return controls for each arrangement in which arms are compared, their contrasts and cells."""
    used = [a for a in (Arrangement.TURNS_OF_BLOCKS, Arrangement.TURNS_OF_TRIALS) if any(c.arrangement is a for c in contrasts)]
    cell = make_cell(bench, sweep.control.workload, {}, sweep.control.sizes, f"sweep {sweep.name}, control")
    controls: list[Control] = []
    duets: list[Contrast] = []
    for arrangement in used:
        blocks = arrangement is Arrangement.TURNS_OF_BLOCKS
        name = f"control-{bench.device}-{arrangement.value.replace('_', '-')}"
        trials = (make_trial(bench, cell, Driver.BLOCKS, name="a"), make_trial(bench, cell, Driver.BLOCKS, name="b", ghost_every=10))
        title = f"two workers of the same cell, {arrangement.value.replace('_', ' ')}"
        block_s, quads = timing(bench, sweep, arrangement, [cell, cell])
        duet = Contrast(name, title, Purpose.CONTROL, trials, arrangement, (sweep.control_rounds,), quads, block_s, absence=blocks)
        duets.append(replace(duet, expected_round_s=expected_round_s(duet, bench, {cell.id: cell})))
        kinds = (ControlKind.NEGATIVE, ControlKind.POSITIVE, *((ControlKind.ABSENCE,) if blocks else ()))
        controls += [Control(f"{name}-{kind.value}", kind, name, bench.device, arrangement) for kind in kinds]
    return tuple(controls), tuple(duets), {cell.id: cell} if used else {}


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


def judged_cases(plan: Plan) -> list[Case]:
    """Return the cases that decide a claim."""
    return [case for claim in plan.claims for case in claim.cases if case.role is Role.JUDGED]
