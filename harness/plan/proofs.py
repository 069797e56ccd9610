"""Which arms must be shown to compute the same before their speeds are compared, and in which trials that is shown.

Every arm is proven against one reference of its workload, all factors at their defaults; two arms that equal the reference equal each other.
"""

from __future__ import annotations

from dataclasses import replace

from harness.model import Arrangement, Cell, Contrast, Driver, Proof, Purpose, Scalar
from harness.plan.cells import Bench, left_alone, make_cell, make_trial, on_device
from harness.plan.draft import Draft
from harness.plan.estimands import expected_round_s

LOOKS = (1,)
PERTURBATION = 1e-7
"""Relative change of the weights whose effect on two steps, times ten, is the tolerance for "computes the same"."""


DELIVERY, DELIVERS = "pipeline", "tfdata"
"""The workload that shows which samples an input level delivers, and the level that every other one is held against."""


def _proof_cell(cell: Cell, bench: Bench, levels: dict[str, str], extra: dict[str, Scalar]) -> Cell:
    workload = bench.workloads[cell.workload].proven_as or cell.workload
    spec = bench.workloads[workload]
    model_sizes = {**spec.sizes.get(bench.device, {}), **spec.proof, **extra}
    aside = {name: factor.default for name, factor in bench.factors.items() if not factor.arithmetic and not factor.levels[levels[name]].arithmetic}
    return make_cell(bench, workload, {**levels, **aside}, model_sizes, f"proof of {workload}")


def proofs_of(cell: Cell, bench: Bench, draft: Draft) -> list[str]:
    """Return the ids of the proofs that `cell` computes what its workload's reference computes, from the same samples; a reference needs none.

    An arm on another device than the run's is proven against the reference there: devices round differently, and the code is what is compared.
    """
    here = on_device(bench, cell.device)
    arithmetic = _arithmetic_proofs(cell, here, draft) if here.workloads[cell.workload].computes else []
    return arithmetic + _delivery_proofs(cell, here, draft)


def _delivery_proofs(cell: Cell, bench: Bench, draft: Draft) -> list[str]:
    """Real files: every epoch holds the same samples, and their pixels agree within the decoders' tolerance."""
    chosen = cell.levels.get("input", "")
    if chosen == DELIVERS or DELIVERY not in bench.workloads or not bench.factors["input"].levels[chosen].delivers:
        return []
    sizes = {**bench.workloads[DELIVERY].sizes.get(bench.device, {}), **bench.workloads[DELIVERY].proof}
    alone = left_alone(bench, DELIVERY)
    reference, mine = (make_cell(bench, DELIVERY, {**alone, "input": name}, sizes, f"proof of input={name}") for name in (DELIVERS, chosen))
    base = _proof_contrast(reference, bench, draft)
    return [_proof(mine, f"input={chosen} delivers what {DELIVERS} does", base, base, "fp32", bench, draft)]


def _arithmetic_proofs(cell: Cell, bench: Bench, draft: Draft) -> list[str]:
    defaults = {name: factor.default for name, factor in bench.factors.items()}
    reference = _proof_cell(cell, bench, defaults, {})
    mine = _proof_cell(cell, bench, cell.levels, {})
    if mine.id == reference.id:
        return []
    base = _proof_contrast(reference, bench, draft)
    perturbed = _proof_contrast(_proof_cell(cell, bench, defaults, {"perturb": PERTURBATION}), bench, draft)
    precision = cell.levels["precision"]
    ids = []
    if precision != "fp32":
        # In its own precision only the loss can be compared, so the same code is first proven in fp32; rounding is what remains to differ.
        strict = {"precision": "fp32"} if precision == "tf32" else {}
        as_fp32 = _proof_cell(cell, bench, {**cell.levels, **strict}, {} if strict else {"policy_float32": True})
        if as_fp32.id != reference.id:
            ids.append(_proof(as_fp32, f"{_name(mine, bench)}, in fp32", base, perturbed, "fp32", bench, draft))
    ids.append(_proof(mine, _name(mine, bench), base, perturbed, precision, bench, draft))
    return ids


def _name(cell: Cell, bench: Bench) -> str:
    where = [f"on the {cell.device.upper()}"] if bench.guest else []
    return " ".join([cell.workload, *(f"{name}={value}" for name, value in cell.levels.items() if value != bench.factors[name].default), *where])


def _proof_contrast(cell: Cell, bench: Bench, draft: Draft) -> str:
    trial = make_trial(bench, cell, Driver.ONCE, call="proof")
    contrast = Contrast(f"proof-{cell.id}", f"proof of {_name(cell, bench)}", Purpose.PROOF, (trial,), Arrangement.SOLO, LOOKS)
    return draft.add(replace(contrast, expected_round_s=expected_round_s(contrast, bench, {cell.id: cell})), (cell,))


def _proof(cell: Cell, title: str, base: str, perturbed: str, precision: str, bench: Bench, draft: Draft) -> str:
    treatment = _proof_contrast(cell, bench, draft)
    name = f"same-{treatment.removeprefix('proof-')}"
    draft.proofs.setdefault(name, Proof(name, title, base, perturbed, treatment, precision))
    return name
