"""Makes the plan: which claims can be judged here, what must be measured for them, with which controls and proofs.

Knows specs, the machine and the device; touches neither clock nor disk. Two cases that compare the same cells in the same way share a contrast.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatch

from harness.errors import ConfigError
from harness.model import (
    LARGEST,
    Arrangement,
    Case,
    Cell,
    Claim,
    Driver,
    Ladder,
    Plan,
    Purpose,
    Reason,
    Role,
    Scalar,
)
from harness.plan.armless import ARMLESS, plan_armless, with_arms
from harness.plan.by_hand import Request, choose, refuse_unreached
from harness.plan.cells import Bench, on_device, unheeded, unmet
from harness.plan.controls import plan_controls
from harness.plan.draft import Draft
from harness.plan.estimands import PlannedCase, plan_case, slope_points
from harness.plan.ladder import in_one_contrast, ladder_total, rung_cases, rungs_for, together_arms
from harness.plan.profiles import plan_profiles
from harness.plan.proofs import proofs_of
from harness.plan.scope import missing, on_exact_hardware, shares_card
from harness.plan.search import SIZE
from harness.plan.specs import CaseSpec, ClaimSpec, Expected, Rung, SweepSpec
from harness.plan.study import REPORT_RESERVE_S

INFORMS = 2
"""The rank of a contrast that decides nothing."""

SURE_SHARE, LEAST_SHARE_S = 0.9, 5
"""The share of a budget that a sweep which fills it plans to use: starts take longer than expected. And the shortest job that is worth a start."""


def make_plan(claims: list[ClaimSpec], sweep: SweepSpec, bench: Bench, rungs: list[Rung], request: Request) -> Plan:
    """Return the plan of a sweep on a machine. Every claim is in it, those that cannot be judged with their reason.

    Raises ConfigError for an `only=` that names no claim, for a choice of the person's that reaches nothing, or for a claim whose text cannot be planned.
    """
    _refuse_unknown(request.only, claims)
    draft = Draft()
    planned = tuple(_plan_claim(spec, sweep, bench, rungs, request, draft) for spec in claims if _selected(spec, sweep, request))
    refuse_unreached(draft.reached, sweep, bench, request)
    ladders = _ladders(planned)
    ranks, decided, places = _priorities(planned), _decided(planned), _places(planned, sweep, draft)
    ordered = tuple(replace(contrast, place=places[contrast.id]) for contrast in draft.contrasts.values())
    claim_contrasts = tuple(replace(c, priority=ranks.get(c.id, INFORMS), decides=decided[c.id]) for c in ordered if c.purpose is Purpose.CLAIM)
    planned = with_arms(planned, claim_contrasts, draft.cells, bench)
    proof_contrasts = tuple(c for c in ordered if c.purpose is Purpose.PROOF)
    profiles, profile_cells = plan_profiles(claim_contrasts if request.profile else (), draft.cells, bench)
    controls, control_contrasts, control_cells = plan_controls(claim_contrasts, draft.cells, sweep, bench)
    return Plan(
        sweep=sweep.name,
        alpha=sweep.alpha if request.alpha is None else request.alpha,
        preliminary=sweep.preliminary,
        seed=request.seed,
        cells=draft.cells | profile_cells | control_cells,
        contrasts=control_contrasts + proof_contrasts + profiles + claim_contrasts,
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
            rank = INFORMS if case.role is not Role.JUDGED else 0 if _decides(claim, case) else 1
            for term in case.estimand.terms:
                ranks[term.contrast] = min(rank, ranks.get(term.contrast, rank))
    return ranks


def _decided(claims: tuple[Claim, ...]) -> Counter[str]:
    """Count the claims whose verdicts hang on each contrast: one that many of them read is worth more of the time than its round alone tells."""
    return Counter(
        name for claim in claims for name in {term.contrast for case in claim.cases if _decides(claim, case) for term in case.estimand.terms}
    )


def _decides(claim: Claim, case: Case) -> bool:
    return case.role is Role.JUDGED and claim.deciding_case in {None, case.id}


def _places(claims: tuple[Claim, ...], sweep: SweepSpec, draft: Draft) -> dict[str, int]:
    """Return where each contrast stands, from 1: with the first claim in the sweep's list that reads it or is proven by it, last if none is; 0 in a
    sweep without an order."""
    listed = sweep.claims if sweep.in_order and isinstance(sweep.claims, list) else []
    place_of = {name: place for place, name in enumerate(listed, start=1)}
    last = len(listed) + 1 if listed else 0
    places = dict.fromkeys(draft.contrasts, last)
    for claim in claims:
        for case in claim.cases:
            proofs = [draft.proofs[name] for name in case.proofs]
            proving = [name for proof in proofs for name in (proof.baseline, proof.perturbed, proof.treatment)]
            for name in [*(term.contrast for term in case.estimand.terms), *proving]:
                places[name] = min(places[name], place_of.get(claim.id, last))
    return places


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
    where the sweep is no small one, but for those that stand apart from others."""
    named = [case for case in spec.cases if any(fnmatch(f"{spec.id}.{case.id}", pattern) for pattern in request.only)]
    if named:
        return named
    everything = sweep.tag == "full" or (request.only and not sweep.preliminary)
    wanted = bool(request.only) and all(case.apart for case in spec.cases)
    return [case for case in spec.cases if (everything and (wanted or not case.apart)) or sweep.tag in case.sweeps]


def _measured_by(spec: ClaimSpec) -> str:
    """Return what to type to have a claim measured."""
    apart = [case for case in spec.cases if case.apart and case.sweeps]
    return f"+sweep={apart[0].sweeps[0]}" if apart and len(apart) == len(spec.cases) else "+sweep=full"


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
        return replace(claim, not_testable=Reason("not_in_sweep", f"sweep {sweep.name} does not measure it"), makes_testable=_measured_by(spec))
    cases: list[Case] = []
    refusals: list[tuple[str, Reason]] = []
    for case_spec in _expanded(chosen, sweep, rungs):
        planned = _plan_case(spec.id, case_spec, sweep, bench, request, draft)
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


def _plan_case(claim: str, spec: CaseSpec, sweep: SweepSpec, bench: Bench, request: Request, draft: Draft) -> PlannedCase | Reason:
    lacking = missing(spec.needs, bench.machine, bench.device) or _unfit(spec, bench)
    if lacking:
        return lacking
    chosen = choose(claim, spec, sweep, bench, request)
    if isinstance(chosen, Reason):
        return chosen
    spec, sizes, reading = chosen.spec, chosen.sizes, "; ".join(chosen.said) or None
    if sweep.fills_budget and request.budget_s and "lasts_s" in {**_default_sizes(spec, bench), **sizes}:
        sizes |= {"lasts_s": _share_s(request.budget_s, spec, sweep, bench)}
    if spec.form in ARMLESS:
        return plan_armless(claim, spec, bench, reading)
    planned = plan_case(claim, spec, bench, sweep, sizes, reading)
    lacking = next((found for cell in planned.cells if (found := _unmeasurable(cell, bench))), None)
    if lacking:
        return lacking
    draft.reached |= chosen.keys
    return planned


def _unfit(spec: CaseSpec, bench: Bench) -> Reason | None:
    """Return why the card is none that this case can be measured on."""
    card = bench.machine.gpus[0] if bench.machine.gpus and bench.device == "gpu" else None
    if spec.of_card and (card is None or not card.memory_bytes):
        return Reason("needs_card_memory", "needs a GPU that tells how much memory it has")
    if spec.arrangement is Arrangement.TOGETHER and card is not None and not shares_card(bench.machine):
        return Reason("needs_shared_card", f"needs a GPU that two processes may use at once: this one's compute mode is {card.compute_mode}")
    return None


def _unmeasurable(cell: Cell, bench: Bench) -> Reason | None:
    """Return why a cell cannot be measured here."""
    if cell.device == "cpu" and cell.sizes.get(SIZE) == LARGEST and "memory_limit_mib" not in cell.sizes:
        text = f"looks for the largest {SIZE}, which on a CPU needs a memory limit (memory_limit_mib): without one it would end in swapping"
        return Reason("needs_memory_limit", text)
    return unmet(on_device(bench, cell.device), cell.levels) or unheeded(bench, cell)


def _default_sizes(spec: CaseSpec, bench: Bench) -> dict[str, Scalar]:
    return bench.workloads[spec.workload].sizes.get(bench.device, {}) if spec.workload in bench.workloads else {}


def _share_s(budget_s: float, spec: CaseSpec, sweep: SweepSpec, bench: Bench) -> int:
    """Return how many seconds a job may go on, so that the rounds of the first look fit into the budget with their starts. Raises ConfigError where
    that is hardly any time."""
    expected = bench.workloads[spec.workload].expected.get(bench.device, Expected())
    rounds = sweep.looks[0]
    share_s = int(SURE_SHARE * (budget_s - REPORT_RESERVE_S) / rounds - expected.start_s)
    if share_s < LEAST_SHARE_S:
        least_s = math.ceil(rounds * (expected.start_s + LEAST_SHARE_S + 1) / SURE_SHARE + REPORT_RESERVE_S)
        raise ConfigError(f"budget={budget_s:g}s: leaves no time for {rounds} rounds of sweep {sweep.name}; give at least budget={least_s}s")
    return share_s


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
