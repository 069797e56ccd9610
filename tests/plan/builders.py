"""Small plans, machines and records with defaults, so that a test names only what it is about."""

from __future__ import annotations

from typing import Any

from harness.model import (
    COMPLETED,
    Arrangement,
    Contrast,
    Driver,
    Flag,
    Gpu,
    Machine,
    Outcome,
    Process,
    Purpose,
    Reason,
    RoundRecord,
    State,
    Trial,
    TrialRecord,
)
from harness.plan.cells import Bench
from harness.plan.specs import CaseSpec, ClaimSpec, Factor, Level, Needs, SweepSpec, WorkloadSpec


def make_machine(**changes: Any) -> Machine:
    defaults: dict[str, Any] = {
        "slug": "test",
        "cpu_model": "Some Xeon",
        "cores": 2,
        "memory_bytes": 2**34,
        "gpus": (),
        "gpu_reason": "no driver",
        "kernel": "6",
        "python": "3.11",
        "packages": {},
    }
    return Machine(**(defaults | changes))


def make_gpu(**changes: Any) -> Gpu:
    return Gpu(**({"index": 0, "name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-1", "memory_bytes": 2**36, "compute_capability": 8.0} | changes))


def make_factors() -> dict[str, Factor]:
    return {
        "execution": Factor(default="graph", levels={"eager": Level(), "graph": Level(env={"SOME": "1"})}),
        "precision": Factor(default="fp32", levels={"fp32": Level(), "tf32": Level(needs=Needs(device="gpu")), "mixed_float16": Level()}),
        "input": Factor(arithmetic=False, default="synthetic", levels={"synthetic": Level(), "feed": Level(excludes={"execution": ["eager"]})}),
    }


def make_workload(**changes: Any) -> WorkloadSpec:
    return WorkloadSpec(**({"name": "resnet50", "target": "m:build", "sizes": {"cpu": {"batch": 16, "image": 96}, "gpu": {"batch": 128, "image": 224}}} | changes))


def make_bench(**changes: Any) -> Bench:
    factors = changes.pop("factors", make_factors())
    defaults: dict[str, Any] = {
        "machine": make_machine(),
        "device": "cpu",
        "factors": factors,
        "workloads": {"resnet50": make_workload(), "tiny": make_workload(name="tiny")},
        "baseline": {name: factor.default for name, factor in factors.items()},
    }
    return Bench(**(defaults | changes))


def make_case(**changes: Any) -> CaseSpec:
    defaults: dict[str, Any] = {
        "id": "main",
        "title": "eager against graph",
        "form": "ratio",
        "arms": {"baseline": {"execution": "eager"}, "treatment": {"execution": "graph"}},
        "band": (2.0, 5.0),
        "sizes": {"batch": 32},
        "sweeps": ["quick"],
    }
    return CaseSpec(**(defaults | changes))


def make_claim(**changes: Any) -> ClaimSpec:
    defaults: dict[str, Any] = {"id": "faster", "order": 1, "group": "execution", "source": "S", "statement": "it is faster", "cases": [make_case()]}
    return ClaimSpec(**(defaults | changes))


def make_sweep(**changes: Any) -> SweepSpec:
    return SweepSpec(**({"name": "full", "about": "all", "tag": "full"} | changes))


def make_contrast(**changes: Any) -> Contrast:
    trials = tuple(Trial(name, f"cell-{name}", (Process("lead", "m:build"),), driver=Driver.BLOCKS) for name in ("a", "b"))
    defaults: dict[str, Any] = {"id": "duet", "title": "a against b", "purpose": Purpose.CLAIM, "trials": trials, "arrangement": Arrangement.TURNS_OF_BLOCKS}
    return Contrast(**(defaults | changes))


def make_record(state: State = State.COMPLETED, **changes: Any) -> RoundRecord:
    outcome = COMPLETED if state is State.COMPLETED else Outcome(state, Reason(state.value, f"was {state.value}"))
    defaults: dict[str, Any] = {
        "round": "duet/0.0",
        "contrast": "duet",
        "index": 0,
        "attempt": 0,
        "arrangement": Arrangement.TURNS_OF_BLOCKS,
        "order": "ab",
        "seed": 1,
        "outcome": outcome,
        "trials": (),
        "readings": (),
        "quads": (),
        "flags": (),
        "started_at": "2026-01-01T00:00:00+00:00",
        "cost_s": 10.0,
        "boot_id": "boot",
    }
    return RoundRecord(**(defaults | changes))


def make_trial_record(cell: str, peak_rss_bytes: int) -> TrialRecord:
    return TrialRecord(id=cell, cell=cell, outcome=COMPLETED, peak_rss_bytes=peak_rss_bytes)


def idle_partner() -> Flag:
    return Flag("idle_partner", "the partner worked on")
