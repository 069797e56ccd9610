"""Builders of synthetic runs for the report's tests: each default is plausible, each test changes the one thing it is about."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from harness.model import (
    COMPLETED,
    ArmEnergy,
    ArmResult,
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
    Decide,
    Estimand,
    Estimate,
    Flag,
    Gpu,
    Ladder,
    LadderResult,
    Machine,
    Manifest,
    Outcome,
    Plan,
    Process,
    Proof,
    ProofResult,
    Published,
    Purpose,
    Quad,
    Reading,
    Reason,
    Role,
    RoundRecord,
    Scale,
    State,
    Statistic,
    Term,
    Trial,
    TrialRecord,
    Verdict,
    Verdicts,
    Word,
)

BASE_LEVELS = {"input": "synthetic", "execution": "graph", "precision": "fp32", "batch_norm": "keras", "optimizer": "keras", "allocator": "growth"}


def make_cell(batch: int = 16, image: int = 96, workload: str = "resnet50", **levels: str) -> Cell:
    return Cell(workload, "cpu", {**BASE_LEVELS, **levels}, {"batch": batch, "image": image, "seed": 1})


def make_trial(cell: Cell) -> Trial:
    return Trial(cell.id, cell.id, (Process("lead", "benchmarks.training:build"),))


def make_contrast(name: str, *cells: Cell, arrangement: Arrangement = Arrangement.TURNS_OF_BLOCKS) -> Contrast:
    return Contrast(name, name, Purpose.CLAIM, tuple(make_trial(cell) for cell in cells), arrangement)


def make_estimate(point: float | None = 2.41, low: float = 2.3, high: float | None = 2.53, n: int = 5, **more: Any) -> Estimate:
    return Estimate(point, low, high, n, more.pop("method", "t"), more.pop("level", 0.99), **more)


def make_verdict(word: Word = Word.CONFIRMED, text: str = "the interval lies within the claimed band") -> Verdict:
    return Verdict(word, Reason("band", text))


def make_ratio_case(case_id: str, base: Cell, treatment: Cell, contrast: str, measure: str = "throughput", **more: Any) -> Case:
    terms = (Term(1.0, contrast, treatment.id, measure), Term(-1.0, contrast, base.id, measure))
    settings = {"title": f"ResNet-50 training, batch {base.sizes['batch']}", "role": Role.JUDGED, "lo": 2.0, "hi": 5.0, "null": 1.0, **more}
    return Case(id=case_id, estimand=Estimand(Scale.LOG, terms), **settings)


def make_round(contrast: Contrast, rates: dict[str, float], index: int = 0, quads: int = 3, **more: Any) -> RoundRecord:
    """A completed round of one-second blocks: quad 0 warms up, the others are accepted; `rates` maps cell id to samples per second."""
    readings, now = [], index * 10**12
    order = [trial.id for trial in contrast.trials]
    turns = [*order, *reversed(order)] if len(order) > 1 else order
    for quad in range(quads + 1):
        for turn, trial in enumerate(turns):
            readings.append(Reading(trial, "work", rates[trial], "samples", t0_ns=now, t1_ns=now + 10**9, n=10, quad=quad, turn=turn))
            now += 10**9
    trials = tuple(
        TrialRecord(
            t.id, t.cell, COMPLETED, phases_s={"spawn": 0.2, "import": 4.1, "build": 2.2, "trace": 1.4, "first": 3.9, "warmup": 1.1},
            peak_rss_bytes=int(1.4 * 2**30) + 10**8 * i, overlapped_start=contrast.arrangement is not Arrangement.SOLO,
        )
        for i, t in enumerate(contrast.trials)
    )  # fmt: skip
    values: dict[str, Any] = {
        "round": f"{contrast.id}/{index}.0", "contrast": contrast.id, "index": index, "attempt": 0, "arrangement": contrast.arrangement,
        "order": "".join("ABCDEFGH"[order.index(t)] for t in turns), "seed": 1, "outcome": COMPLETED, "trials": trials, "readings": tuple(readings),
        "quads": tuple(Quad(q, "ABBA", accepted=q > 0, foreign_cores=0.01 + 0.002 * q) for q in range(quads + 1)), "flags": (),
        "started_at": "2026-11-30T12:00:00Z", "cost_s": 41.0, "boot_id": "boot",
    }  # fmt: skip
    return RoundRecord(**{**values, **more})


def make_alone_round(contrast: Contrast, work_s: int = 8, pause_s: int = 4) -> RoundRecord:
    """A completed round whose trials run one after another: each works for so long, in blocks of a second, and starts after a pause."""
    readings = [
        Reading(trial.id, "work", 4.0, "samples", t0_ns=start_s * 10**9, t1_ns=(start_s + 1) * 10**9, n=10, quad=1, turn=turn)
        for i, trial in enumerate(contrast.trials)
        for turn, start_s in enumerate(range(i * (work_s + pause_s), i * (work_s + pause_s) + work_s))
    ]
    trials = tuple(TrialRecord(trial.id, trial.cell, COMPLETED) for trial in contrast.trials)
    return replace(make_round(replace(contrast, trials=()), {}), readings=tuple(readings), quads=(), trials=trials, order="")


def make_samples(round_: str, device: str, start_s: float = 0.0, period_s: float = 1.0, why: str | None = None, **series: list[float | None]) -> Any:
    """Samples of one device in a round, `period_s` apart, as the frame that a bundle gives: a list of values a name; None is a null with the reason `why`."""
    import pandas as pd

    rows = [
        (round_, device, round((start_s + i * period_s) * 1e9), name, value, why if value is None else None)
        for name, values in series.items()
        for i, value in enumerate(values)
    ]
    frame = pd.DataFrame.from_records(rows, columns=["round", "device", "t_ns", "name", "value", "reason"])
    return frame.astype({"round": "category", "device": "category", "name": "category", "value": float})


def make_machine(**more: Any) -> Machine:
    values: dict[str, Any] = {
        "slug": "xeon-2c", "cpu_model": "Intel Xeon Processor 2.1 GHz", "cores": 2, "memory_bytes": 17179869184, "gpus": (),
        "gpu_reason": "no NVIDIA driver is loaded", "kernel": "6.1.0", "python": "3.11.2", "packages": {"tensorflow": "2.21.0", "keras": "3.9.0"},
    }  # fmt: skip
    return Machine(**{**values, **more})


def make_gpu() -> Gpu:
    return Gpu(0, "NVIDIA H200", "GPU-1", 17179869184, 9.0)


@dataclass
class Builder:
    """Collects a run piece by piece; `run()` gives what `render` takes."""

    cells: dict[str, Cell] = field(default_factory=dict)
    contrasts: list[Contrast] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    results: list[ClaimResult] = field(default_factory=list)
    records: list[RoundRecord] = field(default_factory=list)
    controls: list[tuple[Control, ControlResult]] = field(default_factory=list)
    proofs: list[tuple[Proof, ProofResult]] = field(default_factory=list)
    ladders: list[tuple[Ladder, LadderResult]] = field(default_factory=list)
    energy: list[ArmEnergy] = field(default_factory=list)
    machine: Machine = field(default_factory=make_machine)
    preliminary: bool = False
    judged: bool = True

    def measure(self, name: str, base: Cell, treatment: Cell, base_rate: float, ratio: float, rounds: int = 5) -> Contrast:  # noqa: PLR0917
        """Plan a contrast and record rounds that wobble by one per cent around the rates."""
        contrast = make_contrast(name, base, treatment)
        self.cells |= {base.id: base, treatment.id: treatment}
        self.contrasts.append(contrast)
        for i in range(rounds):
            wobble = 1 + 0.01 * ((i * 7) % 5 - 2) / 2
            rates = {base.id: base_rate, treatment.id: base_rate * ratio * wobble}
            self.records.append(make_round(contrast, rates, i))
        return contrast

    def ratio_claim(
        self, claim_id: str, base: Cell, treatment: Cell, ratio: float, word: Word, *, base_rate: float = 4.0, width: float = 0.05,
        group: str = "execution", claim: dict[str, Any] | None = None, verdict_text: str = "the interval lies within the claimed band",
        estimate: Estimate | str | None = "default", arms: tuple[ArmResult, ...] | None = None, equivalence: str | None = "proven", **case: Any,
    ) -> None:  # fmt: skip
        """Add a claim of one deciding ratio case, measured."""
        contrast = self.measure(claim_id, base, treatment, base_rate, ratio)
        planned = make_ratio_case(f"{claim_id}.article", base, treatment, contrast.id, **case)
        if estimate == "default":
            rounds = tuple(ratio * (1 + 0.01 * ((i * 7) % 5 - 2) / 2) for i in range(5))
            looks = ((3, ratio * (1 - 1.6 * width), ratio * (1 + 1.6 * width)), (5, ratio * (1 - width), ratio * (1 + width)))
            estimate = make_estimate(ratio, ratio * (1 - width), ratio * (1 + width), 5, rounds=rounds, looks=looks, spread=0.008)
        if arms is None:
            arms = (
                ArmResult(base.id, base.id, base_rate, "samples/s", 5, 2**30),
                ArmResult(treatment.id, treatment.id, base_rate * ratio, "samples/s", 5, 2**30),
            )
        verdict = make_verdict(word, verdict_text)
        assert not isinstance(estimate, str)
        result = CaseResult(planned.id, planned.title, estimate, verdict, arms, equivalence)
        fields: dict[str, Any] = {
            "group": group,
            "source": "S",
            "statement": f"{claim_id} is said to make training 2x to 5x faster.",
            **(claim or {}),
        }
        self.claims.append(Claim(id=claim_id, cases=(planned,), decide=Decide.CASE, deciding_case=planned.id, **fields))
        self.results.append(ClaimResult(claim_id, verdict, (result,), carried_over=fields.get("carried_over", False)))

    def untestable(self, claim_id: str, reason: str = "it needs 8 GPUs, this machine has 0", makes: str | None = "a machine with 8 GPUs") -> None:
        why = Reason("needs_gpus", reason)
        self.claims.append(Claim(claim_id, "devices", "D", f"{claim_id} scales to 90 % of linear.", not_testable=why, makes_testable=makes))
        self.results.append(ClaimResult(claim_id, Verdict(Word.NOT_TESTABLE, why), ()))

    def level_claim(self, claim_id: str, cell: Cell, value: float, unit: str, lo: float | None, hi: float | None, word: Word) -> None:  # noqa: PLR0917
        """Add a claim on the exact or linear scale."""
        contrast = make_contrast(claim_id, cell, arrangement=Arrangement.SOLO)
        self.cells[cell.id] = cell
        self.contrasts.append(contrast)
        self.records += [make_round(contrast, {cell.id: 5.0}, i) for i in range(2)]
        term = Term(1.0, contrast.id, cell.id, "traces", Statistic.VALUE)
        case = Case(f"{claim_id}.count", "40 input lengths", Role.JUDGED, Estimand(Scale.EXACT, (term,)), lo=lo, hi=hi, unit=unit)
        estimate = make_estimate(value, value, value, 2, method="exact", rounds=(value, value), spread=0.0)
        result = CaseResult(case.id, case.title, estimate, make_verdict(word, "both rounds agree"))
        self.claims.append(Claim(claim_id, "execution", "S", f"{claim_id}: one graph for each length.", cases=(case,)))
        self.results.append(ClaimResult(claim_id, make_verdict(word, "both rounds agree"), (result,)))

    def run(self, **manifest: Any) -> tuple[Manifest, list[RoundRecord], Verdicts, list[str]]:
        plan = Plan(
            "quick" if self.preliminary else "full", 0.05 if self.preliminary else 0.01, self.preliminary, 7, self.cells, tuple(self.contrasts),
            tuple(self.claims), tuple(c for c, _ in self.controls), tuple(p for p, _ in self.proofs), tuple(x for x, _ in self.ladders),
            {"foreign_cores": 0.05},
        )  # fmt: skip
        values: dict[str, Any] = {
            "schema_version": 1, "benchmark_version": "1", "created_at": "2026-11-30T12:00:00Z", "name": "20261130T120000Z-xeon-2c-ab12",
            "config": {"sweep": {"name": "full"}, "alpha": 0.01, "devices": {"kind": "cpu"}}, "claims_hash": "claims-0123456789",
            "fingerprint": "run-0123456789", "machine": self.machine, "plan": plan,
            "provenance": {"git_commit": "0123abc", "git_dirty": False, "command": "python -m harness +sweep=full"},
            "dropped_env": ("EDITOR", "SECRET_TOKEN"), "parts": ("2026-11-30T12:00:00Z",),
        }  # fmt: skip
        judged = sum(1 for r in self.results if r.verdict.word is not Word.NOT_TESTABLE)
        verdicts = Verdicts(
            tuple(self.results) if self.judged else (), tuple(r for _, r in self.controls) if self.judged else (),
            tuple(r for _, r in self.proofs) if self.judged else (), tuple(r for _, r in self.ladders) if self.judged else (),
            plan.alpha, self.preliminary, judged if self.judged else 0, plan.alpha * judged if self.judged else 0.0,
            energy=tuple(self.energy) if self.judged else (),
        )  # fmt: skip
        return Manifest(**{**values, **manifest}), list(self.records), verdicts, []


def add_control(builder: Builder, word: str = "held", kind: ControlKind = ControlKind.NEGATIVE) -> None:
    cell = make_cell()
    builder.cells[cell.id] = cell
    name = f"control-{kind.value}"
    expected = 1.0 if kind is ControlKind.NEGATIVE else 0.909
    control = Control(name, kind, name, "cpu", Arrangement.TURNS_OF_BLOCKS)
    estimate = make_estimate(expected * 1.003, expected * 0.985, expected * 1.02, 5)
    builder.controls.append((control, ControlResult(name, word, expected, estimate, Reason("control", "the known value lies in the interval"))))


def add_ladder(builder: Builder) -> None:
    """A ladder of four switches that multiply to the total, one of them a slowdown."""
    steps = [
        ("execution", "eager", "graph", 2.1),
        ("batch_norm", "keras", "fused", 1.12),
        ("optimizer", "keras", "lean", 1.05),
        ("precision", "fp32", "mixed_bfloat16", 0.71),
    ]
    levels = {factor: off for factor, off, _, _ in steps}
    cases, results, rungs, without = [], [], [], []
    top = {factor: on for factor, _, on, _ in steps}
    for factor, off, on, ratio in steps:
        for kind, base, treatment in (
            ("add", make_cell(**levels), make_cell(**{**levels, factor: on})),
            ("without", make_cell(**{**top, factor: off}), make_cell(**top)),
        ):
            name = f"combined-2x.{kind}-{factor}"
            contrast = builder.measure(name, base, treatment, 3.0, ratio, rounds=3)
            cases.append(make_ratio_case(name, base, treatment, contrast.id, role=Role.READING, lo=None, hi=None, title=f"{kind} {factor}"))
            estimate = make_estimate(ratio, ratio * 0.96, ratio * 1.04, 3)
            results.append(CaseResult(name, f"{kind} {factor}", estimate, make_verdict(Word.READING, "nothing is judged"), equivalence="proven"))
            (rungs if kind == "add" else without).append(name)
        levels[factor] = on
    bottom = make_cell(**{factor: off for factor, off, _, _ in steps})
    contrast = builder.measure("combined-2x.total", bottom, make_cell(**top), 3.0, 1.75)
    total = make_ratio_case("combined-2x.total", bottom, make_cell(**top), contrast.id, lo=2.0, hi=None, title="all off to all on")
    arms = (
        ArmResult(bottom.id, bottom.id, 3.0, "samples/s", 5, 2**30),
        ArmResult(make_cell(**top).id, make_cell(**top).id, 5.25, "samples/s", 5, 2**30),
    )
    verdict = make_verdict(Word.WEAKER, "the interval lies between no effect and the claimed 2x")
    results.append(CaseResult(total.id, total.title, make_estimate(1.75, 1.69, 1.81, 5), verdict, arms, "proven"))
    claim = Claim(
        "combined-2x", "together", "S", "A few switches together make the same model at least 2x faster.", (*cases, total), Decide.CASE, total.id
    )
    builder.claims.append(claim)
    builder.results.append(ClaimResult(claim.id, verdict, tuple(results)))
    ladder = Ladder("ladder", "ResNet-50 on the CPU", tuple(rungs), tuple(without), total.id)
    builder.ladders.append((ladder, LadderResult("ladder", 1.753, 1.62, 1.9, 1.75, agrees=True)))


def make_full() -> Builder:
    """A rich run: every word, a slowdown, open intervals, a failed baseline, batches, a ladder, controls, a failed proof, flags."""
    b = Builder()
    published = (Published("graph over eager, ResNet-50, one V100", "1.3x", "framework's own benchmark page"),)
    eager, graph = make_cell(execution="eager"), make_cell()
    b.ratio_claim("graph-speedup", eager, graph, 2.41, Word.CONFIRMED, claim={"published": published, "notes": "Few big operations gain little."})
    for batch, ratio in ((1, 5.1), (4, 3.6), (32, 1.8)):
        one, two = make_cell(batch, execution="eager"), make_cell(batch)
        b.measure(f"sweep-{batch}", one, two, 1.2 + batch**0.5 / 1.4, ratio, rounds=3)
    b.ratio_claim(
        "trace-overhead", make_cell(4, execution="eager"), make_cell(4), 41.7, Word.EXCEEDED, group="execution", lo=5.0, hi=None, measure="first_call"
    )
    b.ratio_claim("xla-helps", graph, make_cell(execution="xla"), 1.18, Word.WEAKER, lo=1.3, hi=2.0)
    b.ratio_claim("mixed-speedup", graph, make_cell(precision="mixed_bfloat16"), 0.62, Word.REVERSED, group="precision", lo=2.0, hi=3.0,
                  claim={"carried_over": True, "exact_hardware": "NVIDIA V100"})  # fmt: skip
    b.ratio_claim("fused-batch-norm", graph, make_cell(batch_norm="fused"), 1.11, Word.CONFIRMED, group="precision", lo=1.0, hi=None)
    b.ratio_claim("lean-optimizer", graph, make_cell(optimizer="lean"), 1.02, Word.INCONCLUSIVE, lo=1.0, hi=None, width=0.04,
                  verdict_text="the interval touches REFUTED and CONFIRMED")  # fmt: skip
    b.ratio_claim("allocator-growth", graph, make_cell(allocator="all"), 1.003, Word.REFUTED, group="hardware", lo=1.1, hi=None, width=0.02)
    dead, alive = make_cell(precision="float16", batch=64), make_cell(precision="mixed_float16", batch=64)
    arms = (
        ArmResult(dead.id, dead.id, None, "samples/s", 0, None, "out of memory in the first call"),
        ArmResult(alive.id, alive.id, 4.4, "samples/s", 3, 2**30),
    )
    b.ratio_claim(
        "float16-pure",
        dead,
        alive,
        1.1,
        Word.INCONCLUSIVE,
        group="precision",
        estimate=None,
        arms=arms,
        equivalence=None,
        verdict_text="no round completed",
    )
    b.records = [r for r in b.records if r.contrast != "float16-pure"]
    failed = Outcome(State.FAILED, Reason("oom", "killed: out of memory"), "first")
    broken = replace(make_round(b.contrasts[-1], {dead.id: 1.0, alive.id: 1.0}), outcome=failed, readings=(), quads=())
    b.records.append(
        replace(broken, trials=(replace(broken.trials[0], outcome=failed, phases_s={}), replace(broken.trials[1], outcome=failed, phases_s={})))
    )
    b.ratio_claim("python-loop", make_cell(input="python_loop"), make_cell(input="tfdata"), 1.9, Word.CONFIRMED, group="input", lo=1.0, hi=None,
                  estimate=make_estimate(None, 1.6, None, 2, method="bound"))  # fmt: skip
    b.level_claim("retracing", make_cell(workload="lstm"), 40.0, "traces", 40.0, 40.0, Word.CONFIRMED)
    add_ladder(b)
    for name in ("scaling-8gpu", "scaling-poor", "interconnect-used", "prefetch-to-gpu"):
        b.untestable(name)
    add_control(b)
    add_control(b, "not shown", ControlKind.POSITIVE)
    b.proofs.append(
        (Proof("p1", "graph against eager", "p1.b", "p1.p", "p1.t", "fp32"), ProofResult("p1", passed=True, reason=Reason("ok", "updates agree")))
    )
    b.proofs.append((Proof("p2", "mixed against fp32", "p2.b", "p2.p", "p2.t", "mixed_bfloat16"),
                     ProofResult("p2", passed=False, reason=Reason("update", "the updates differ by 3.1 times the tolerance"))))  # fmt: skip
    flagged = replace(b.records[1], flags=(Flag("foreign_load", "foreign load stayed above 0.05 core in quad 2", {"cores": 0.21}),))
    b.records[1] = replace(flagged, quads=(*flagged.quads[:2], replace(flagged.quads[2], accepted=False, foreign_cores=0.21), flagged.quads[3]))
    solo = make_contrast("levels", eager, graph, make_cell(execution="xla"), arrangement=Arrangement.SOLO)
    b.contrasts.append(solo)
    b.records += [make_round(solo, {t.id: 4.0 for t in solo.trials}, i) for i in range(2)]
    return b
