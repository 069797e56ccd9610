"""Builders of made-up jobs and feeds: steps of equal length, saves of equal length, so that every figure can be worked out in the head."""

from __future__ import annotations

from typing import Any

from harness.model import (
    COMPLETED,
    Arrangement,
    Case,
    Cell,
    Claim,
    Contrast,
    Driver,
    Estimand,
    Outcome,
    Process,
    Purpose,
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
)
from tests.report.builders import BASE_LEVELS, Builder, make_contrast, make_round


def make_saving_cell(checkpoint: str = "sync", interval_steps: int = 4, storage: str = "own", **sizes: Any) -> Cell:
    levels = {**BASE_LEVELS, "checkpoint": checkpoint, "storage": storage}
    return Cell("checkpointed", "cpu", levels, {"batch": 8, "image": 64, "seed": 0, "steps": 12, "interval_steps": interval_steps, **sizes})


def make_job_contrast(name: str, *cells: Cell, driver: Driver = Driver.JOB, **more: Any) -> Contrast:
    trials = tuple(Trial(cell.id, cell.id, (Process("lead", "benchmarks.checkpoint:build"),), driver=driver) for cell in cells)
    return Contrast(name, more.pop("title", name), Purpose.CLAIM, trials, more.pop("arrangement", Arrangement.SOLO), **more)


def make_job(
    cell: Cell,
    *,
    step_s: float = 0.5,
    blocked_s: float | None = None,
    durable_s: float = 1.0,
    overlapping: int = 0,
    overlap_step_s: float = 0.75,
    start_s: float = 100.0,
    end_to_end: str | None = "end_to_end_step_s",
) -> list[Reading]:
    """The events of a job of 12 steps (or what the cell asks for). Without `blocked_s` it never saves; the first save takes ten times as long.

    After each save `overlapping` steps last `overlap_step_s` instead of `step_s`.
    """
    steps, every = int(cell.sizes["steps"] or 12), int(cell.sizes["interval_steps"] or 4)
    told: list[Reading] = []
    now = start_s

    def span(name: str, seconds: float, value: float, step: int | None = None) -> None:
        nonlocal now
        told.append(Reading(cell.id, name, value, "s", t0_ns=round(now * 1e9), t1_ns=round((now + seconds) * 1e9), n=step))
        now += seconds

    stretches = [every] * (steps // every) if blocked_s is not None else [steps]
    for k, length in enumerate(stretches):
        slow = overlapping if k else 0
        if slow:
            span("overlap_first_step_s" if k == 1 else "overlap_step_s", slow * overlap_step_s, overlap_step_s, k * every + 1)
        span("clear_step_s", (length - slow) * step_s, step_s, k * every + slow + 1)
        if blocked_s is not None:
            which, held = ("first_s", 10 * blocked_s) if k == 0 else ("s", blocked_s)
            call = round(now * 1e9)
            span(f"blocked_{which}", held, held, (k + 1) * every)
            told.append(Reading(cell.id, f"durable_{which}", durable_s, "s", t0_ns=call, t1_ns=call + round(durable_s * 1e9), n=(k + 1) * every))
            told.append(Reading(cell.id, "restored_equal", 1.0, "holds", n=(k + 1) * every))
            told.append(Reading(cell.id, "save_bytes", 205e6, "bytes", n=(k + 1) * every))
    whole = now - start_s
    told.append(Reading(cell.id, "job", 8.0 * steps, "samples", t0_ns=round(start_s * 1e9), t1_ns=round(now * 1e9), n=steps))
    if end_to_end:
        told.append(Reading(cell.id, end_to_end, whole / steps if end_to_end == "end_to_end_step_s" else whole, "s"))
    return told


def make_job_round(contrast: Contrast, readings: list[Reading], index: int = 0, failed: dict[str, str] | None = None) -> RoundRecord:
    """A round of jobs, completed unless `failed` (cell id -> reason) names a trial."""
    lost = {cell: Outcome(State.FAILED, Reason("failed", text), "job") for cell, text in (failed or {}).items()}
    trials = tuple(TrialRecord(trial.id, trial.cell, lost.get(trial.cell, COMPLETED)) for trial in contrast.trials)
    outcome = next(iter(lost.values()), COMPLETED)
    return RoundRecord(
        f"{contrast.id}/{index}.0", contrast.id, index, 0, contrast.arrangement, "A", 1, outcome, trials, tuple(readings), (), (),
        "2026-11-30T12:00:00Z", 41.0, "boot",
    )  # fmt: skip


def add_jobs(builder: Builder, contrast: Contrast, cells: list[Cell], *rounds: list[Reading], failed: dict[str, str] | None = None) -> None:
    builder.cells |= {cell.id: cell for cell in cells}
    builder.contrasts.append(contrast)
    builder.records += [make_job_round(contrast, readings, i, failed) for i, readings in enumerate(rounds)]


NONE, SYNC, ASYNC = make_saving_cell("none"), make_saving_cell("sync"), make_saving_cell("async")


def make_saving_run(*blocked_s: float, title: str = "Saving, ResNet-50") -> Builder:
    """Rounds of three jobs: no saves, synchronous saves that hold for `blocked_s` (one figure a round), asynchronous ones."""
    builder = Builder()
    contrast = make_job_contrast("saving", NONE, SYNC, ASYNC, title=title)
    rounds = [
        [
            *make_job(NONE),
            *make_job(SYNC, blocked_s=held, durable_s=1.5 * held, start_s=200.0),
            *make_job(ASYNC, blocked_s=0.01, overlapping=2, start_s=300.0),
        ]
        for held in blocked_s or (0.4,)
    ]
    add_jobs(builder, contrast, [NONE, SYNC, ASYNC], *rounds)
    return builder


def claim_level(builder: Builder, cell: Cell, lo: float | None = 0.2, hi: float | None = None, measure: str = "blocked_s") -> None:
    """Claim that a save of the contrast `saving` takes between `lo` and `hi` seconds."""
    term = Term(1.0, "saving", cell.id, measure, Statistic.MEDIAN)
    case = Case("sync-stall.level", "held by a save", Role.JUDGED, Estimand(Scale.LINEAR, (term,)), lo=lo, hi=hi, unit="s")
    builder.claims.append(Claim("sync-stall", "checkpoints", "S", "A save stops training.", cases=(case,)))


def claim_slowdown(builder: Builder, contrast: str, base: Cell, treatment: Cell) -> None:
    """Claim that the treatment's job takes 1.15 to 1.25 times as long as the baseline's."""
    terms = tuple(Term(weight, contrast, cell.id, "end_to_end_step_s", Statistic.MEDIAN) for weight, cell in ((1.0, treatment), (-1.0, base)))
    case = Case("nfs-20pct.slow", "whole job", Role.JUDGED, Estimand(Scale.LOG, terms), lo=1.15, hi=1.25, null=1.0)
    builder.claims.append(Claim("nfs-20pct", "checkpoints", "S", "Saves make training 20 % longer.", cases=(case,)))


# ---------------------------------------------------------------- feeds


def make_feed_cell(workload: str = "pipeline", level: str = "tfdata", **sizes: Any) -> Cell:
    usual = {"step_ms": 16, "devices": 1} if workload == "replay" else {}
    return Cell(workload, "cpu", {**BASE_LEVELS, "input": level}, {"image": 224, "batch": 16, "seed": 0, **usual, **sizes})


def add_rates(builder: Builder, name: str, *arms: tuple[Cell, list[float]]) -> Contrast:
    """Measure cells alone: one round for each entry of their lists, in samples a second."""
    cells = [cell for cell, _ in arms]
    contrast = make_contrast(name, *cells, arrangement=Arrangement.SOLO)
    builder.cells |= {cell.id: cell for cell in cells}
    builder.contrasts.append(contrast)
    for i in range(len(arms[0][1])):
        builder.records.append(make_round(contrast, {cell.id: values[i] for cell, values in arms}, i, quads=1))
    return contrast
