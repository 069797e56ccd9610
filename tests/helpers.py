"""Builders of the house's values with defaults, so that a test names only what it is about. Nothing here measures or reads a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.model import (
    COMPLETED,
    Arrangement,
    Case,
    CaseResult,
    Cell,
    Claim,
    ClaimResult,
    Contrast,
    Control,
    ControlKind,
    ControlResult,
    Driver,
    Estimand,
    Estimate,
    Machine,
    Manifest,
    Outcome,
    Plan,
    Process,
    Proof,
    ProofResult,
    Purpose,
    Quad,
    Reading,
    Reason,
    Role,
    RoundRecord,
    Scale,
    State,
    Term,
    Trial,
    TrialRecord,
    Verdict,
    Verdicts,
    Word,
)

SECOND_NS = 1_000_000_000


def make_cell(execution: str = "graph", *, workload: str = "convnet_small", device: str = "cpu", batch: int = 8, **levels: str) -> Cell:
    """A cell of a small net; further keywords are levels."""
    base = {"execution": execution, "precision": "fp32", "batch_norm": "keras", "optimizer": "keras", "input": "synthetic", "allocator": "growth"}
    return Cell(workload=workload, device=device, levels={**base, **levels}, sizes={"batch": batch, "image": 32})


def make_trial(trial: str = "treatment", *, cell: Cell | None = None, driver: Driver = Driver.BLOCKS, **changes: object) -> Trial:
    """A trial of one process; `changes` are fields of Trial."""
    cell = cell or make_cell()
    process = Process(role="lead", target="benchmarks.training:build", settings={**cell.levels, **cell.sizes, "device": cell.device})
    return replace(Trial(id=trial, cell=cell.id, processes=(process,), driver=driver), **changes)


def make_contrast(contrast: str = "contrast-1", trials: Sequence[str] = ("baseline", "treatment"), **changes: object) -> Contrast:
    """A duet of blocks between `trials`; `changes` are fields of Contrast."""
    base = Contrast(
        id=contrast,
        title="graph against eager",
        purpose=Purpose.CLAIM,
        trials=tuple(make_trial(trial) for trial in trials),
        arrangement=Arrangement.TURNS_OF_BLOCKS,
    )
    return replace(base, **changes)


def make_ratio(contrast: str = "contrast-1", treatment: str = "treatment", baseline: str = "baseline", measure: str = "throughput") -> Estimand:
    """The ratio of a measure, treatment over baseline."""
    return Estimand(Scale.LOG, (Term(1.0, contrast, treatment, measure), Term(-1.0, contrast, baseline, measure)))


def make_case(case: str = "case-1", *, lo: float | None = 1.1, hi: float | None = None, **changes: object) -> Case:
    """A judged case: a ratio claimed to lie in lo..hi; `changes` are fields of Case."""
    base = Case(id=case, title="graph over eager", role=Role.JUDGED, estimand=make_ratio(), lo=lo, hi=hi, null=1.0)
    return replace(base, **changes)


def make_claim(claim: str = "claim-1", *, cases: Sequence[Case] | None = None, **changes: object) -> Claim:
    """A claim with one case; `changes` are fields of Claim."""
    base = Claim(
        id=claim, group="training", source="an article", statement="Graphs are faster than eager steps", cases=tuple(cases or (make_case(),))
    )
    return replace(base, **changes)


def make_plan(**changes: object) -> Plan:
    """A plan of one claim with its contrast, a negative control and a proof; `changes` are fields of Plan."""
    eager, graph = make_cell("eager"), make_cell("graph")
    claim = make_contrast(trials=())
    claim = replace(claim, trials=(make_trial("baseline", cell=eager), make_trial("treatment", cell=graph)))
    base = Plan(
        sweep="quick",
        alpha=0.05,
        preliminary=False,
        seed=1,
        cells={cell.id: cell for cell in (eager, graph)},
        contrasts=(make_contrast("control-1", ("a", "b"), purpose=Purpose.CONTROL), claim),
        claims=(make_claim(),),
        controls=(Control("negative-cpu", ControlKind.NEGATIVE, "control-1", "cpu", Arrangement.TURNS_OF_BLOCKS),),
        proofs=(Proof("proof-1", "graph computes what eager does", "proof-a", "proof-b", "proof-c", "fp32"),),
    )
    return replace(base, **changes)


def make_reading(
    value: float | None = 64.0,
    *,
    trial: str = "treatment",
    name: str = "work",
    unit: str = "samples",
    seconds: float = 0.5,
    start_s: float = 0.0,
    **changes: object,
) -> Reading:
    """A block of `seconds` with `value` units of work, as the first block of the first counted quad; `changes` are fields of Reading."""
    start_ns = round(start_s * SECOND_NS)
    base = Reading(trial, name, value, unit, t0_ns=start_ns, t1_ns=start_ns + round(seconds * SECOND_NS), n=8, quad=1, turn=0)
    return replace(base, **changes)


def make_outcome_reading(name: str, value: float | None, *, trial: str = "treatment", unit: str = "", reason: str | None = None) -> Reading:
    """A reading that is no block: what driver ONCE answers with, or an event."""
    return Reading(trial, name, value, unit, reason=reason)


def make_quads(count: int = 3, *, order: str = "ABBA", **changes: object) -> tuple[Quad, ...]:
    """A warm-up quad and `count` accepted ones; `changes` are fields of the accepted ones."""
    warm_up = Quad(0, order, accepted=False, foreign_cores=0.0)
    return (warm_up, *(replace(Quad(index, order, accepted=True, foreign_cores=0.01), **changes) for index in range(1, count + 1)))


def make_blocks(rates: Mapping[str, float], *, quads: int = 3, order: str = "ABBA", seconds: float = 0.5) -> tuple[Reading, ...]:
    """Blocks of all `quads` and of the warm-up quad: each trial of `rates` works at its rate; A is the first trial named, B the second."""
    trials = dict(zip("ABCDEFGH", rates, strict=False))
    blocks = []
    for quad in range(quads + 1):
        for turn, letter in enumerate(order):
            trial = trials[letter]
            start_s = (quad * len(order) + turn) * seconds
            blocks.append(make_reading(rates[trial] * seconds, trial=trial, seconds=seconds, start_s=start_s, quad=quad, turn=turn))
    return tuple(blocks)


def make_trial_record(trial: str = "treatment", *, outcome: Outcome = COMPLETED, **changes: object) -> TrialRecord:
    """How a trial went; `changes` are fields of TrialRecord."""
    base = TrialRecord(
        id=trial,
        cell=make_cell().id,
        outcome=outcome,
        asked={"execution": "graph"},
        used={"execution": "graph"},
        phases_s={"spawn": 0.1, "import": 2.0, "build": 0.5, "trace": 0.3, "first": 0.4, "warmup": 0.1, "blocks": 6.0, "end": 0.1},
        peak_rss_bytes=512 * 2**20,
    )
    return replace(base, **changes)


def make_record(
    index: int = 0, *, contrast: str = "contrast-1", rates: Mapping[str, float] | None = None, attempt: int = 0, **changes: object
) -> RoundRecord:
    """A completed round of a duet whose trials work at `rates` (units a second); `changes` are fields of RoundRecord."""
    rates = {"baseline": 100.0, "treatment": 200.0} if rates is None else rates
    base = RoundRecord(
        round=f"{contrast}/{index}.{attempt}",
        contrast=contrast,
        index=index,
        attempt=attempt,
        arrangement=Arrangement.TURNS_OF_BLOCKS,
        order="ABBA",
        seed=index,
        outcome=COMPLETED,
        trials=tuple(make_trial_record(trial) for trial in rates),
        readings=make_blocks(rates) if rates else (),
        quads=make_quads(),
        flags=(),
        started_at="2026-01-31T12:00:00Z",
        cost_s=12.5,
        boot_id="boot-1",
    )
    return replace(base, **changes)


def make_failure(text: str = "killed by signal 9", *, code: str = "killed", state: State = State.FAILED, phase: str | None = None) -> Outcome:
    """An outcome that is no success."""
    return Outcome(state, Reason(code, text), phase)


def make_estimate(point: float | None = 2.0, low: float = 1.8, high: float | None = 2.2, **changes: object) -> Estimate:
    """A ratio from five rounds; `changes` are fields of Estimate."""
    base = Estimate(
        point,
        low,
        high,
        n=5,
        method="t",
        level=0.99,
        looks=((3, 1.5, 2.5), (5, 1.8, 2.2)),
        rounds=(1.9, 2.0, 2.0, 2.0, 2.1),
        spread=math.log(2.1 / 1.9) / 2,
    )
    return replace(base, **changes)


def make_verdict(word: Word = Word.CONFIRMED, text: str = "the whole interval lies in the claimed band", code: str = "inside") -> Verdict:
    """A word with its reason."""
    return Verdict(word, Reason(code, text))


def make_verdicts(*, claims: Sequence[ClaimResult] | None = None, **changes: object) -> Verdicts:
    """The verdicts that belong to `make_plan()`; `changes` are fields of Verdicts."""
    result = CaseResult("case-1", "graph over eager", make_estimate(), make_verdict(), equivalence="proven")
    base = Verdicts(
        claims=tuple(claims) if claims is not None else (ClaimResult("claim-1", make_verdict(), (result,)),),
        controls=(ControlResult("negative-cpu", "held", 1.0, make_estimate(1.0, 0.99, 1.01), Reason("held", "1 lies in the interval")),),
        proofs=(ProofResult("proof-1", passed=True, reason=Reason("equal", "within the measured tolerance", {"largest": 1e-7})),),
        ladders=(),
        alpha=0.05,
        preliminary=False,
        judged=1,
        expected_wrong=0.05,
        holm={"case-1": "rejected"},
    )
    return replace(base, **changes)


def make_machine(**changes: object) -> Machine:
    """A machine without a GPU; `changes` are fields of Machine."""
    base = Machine(
        slug="xeon-2c",
        cpu_model="Example Xeon",
        cores=2,
        memory_bytes=8 * 2**30,
        gpus=(),
        gpu_reason="no NVIDIA driver: libnvidia-ml.so.1 was not found",
        kernel="6.1.0",
        python="3.11.7",
        packages={"tensorflow": "2.21.0"},
        cpu_flags=("avx2",),
    )
    return replace(base, **changes)


def make_manifest(**changes: object) -> Manifest:
    """The manifest of a run of `make_plan()`; `changes` are fields of Manifest."""
    base = Manifest(
        schema_version=1,
        benchmark_version="1",
        created_at="2026-01-31T12:00:00+00:00",
        name="",
        config={"sweep": "quick", "alpha": 0.05, "only": []},
        claims_hash="claims-0123456789",
        fingerprint="run-0123456789",
        machine=make_machine(),
        plan=make_plan(),
        provenance={"commit": "0123abc", "dirty": False, "command": "python -m harness +sweep=quick"},
    )
    return replace(base, **changes)
