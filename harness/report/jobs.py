"""From the events of jobs to frames: which jobs there are, what their time went into, how long they waited for input.

Only completed trials of completed rounds count; a job that is killed on purpose is no measure of time. What could not be had is None with its reason.
Must not know how a figure looks.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.model import Cell, Contrast, Driver, Reading, RoundRecord, State
from harness.report import numbers
from harness.report.index import short_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.report.index import Index

BANDS = {
    "clear_step_s": "clear", "overlap_first_step_s": "overlap", "overlap_step_s": "overlap", "blocked_first_s": "blocked", "blocked_s": "blocked",
    "verify_pause_s": "pause",
}  # fmt: skip
"""Event -> what a stretch of a job's time went into."""

MOST_LANES = 24
"""Jobs that the figure of the timeline shows; the table beside it holds all."""

TIMELINE_COLUMNS = ["contrast", "panel", "cell", "label", "kind", "start_s", "end_s", "job_s"]

_SAVING_LEVELS = {"checkpoint", "storage"}
_SAVING_SIZES = {"interval_steps", "interval_s", "saves", "steps", "storage_mib_s", "seed"}


@dataclass(frozen=True)
class Span:
    """An event of a job that has a beginning and an end, both in seconds since the job's start."""

    name: str
    start_s: float
    end_s: float
    value: float

    @property
    def steps(self) -> int:
        """How many steps a stretch of steps holds: its length over their mean."""
        return round((self.end_s - self.start_s) / self.value) if self.value > 0 else 0


@dataclass(frozen=True)
class Job:
    """One run of a job: how long it took, what it did (`steps` None where it did not say), and its spans in the order of time."""

    trial: str
    cell: str
    seconds: float
    steps: int | None
    spans: tuple[Span, ...]

    @property
    def working_s(self) -> float:
        """How long the job took without the pauses in which the instrument looked at what was saved."""
        return self.seconds - math.fsum(span.end_s - span.start_s for span in self.named("verify_pause_s"))

    def named(self, *names: str) -> list[Span]:
        """Return the spans of these names."""
        return [span for span in self.spans if span.name in names]


def jobs_of(record: RoundRecord) -> list[Job]:
    """Return every job of a completed round. A trial that ran twice has two; an event without stamps belongs to no span."""
    if record.outcome.state is not State.COMPLETED:
        return []
    jobs = []
    for trial in record.trials:
        mine = [r for r in record.readings if r.trial == trial.id and r.t0_ns is not None]
        for whole in sorted((r for r in mine if r.name == "job" and r.t1_ns is not None), key=lambda r: r.t0_ns or 0):
            start, end = whole.t0_ns or 0, whole.t1_ns or 0
            spans = (_span(r, start) for r in mine if start <= (r.t0_ns or 0) <= end and r.name != "job" and r.unit == "s")
            ordered = sorted((span for span in spans if span is not None), key=lambda span: span.start_s)
            jobs.append(Job(trial.id, trial.cell, (end - start) / 1e9, whole.n, tuple(ordered)))
    return jobs


def _span(reading: Reading, start_ns: int) -> Span | None:
    if reading.value is None or reading.t0_ns is None:
        return None
    begins = (reading.t0_ns - start_ns) / 1e9
    return Span(reading.name, begins, begins + reading.value if reading.t1_ns is None else (reading.t1_ns - start_ns) / 1e9, reading.value)


def clear_step_s(job: Job, *, singly: bool = False) -> float | None:
    """Return the mean time of the steps during which no save was written, None where there were none. `singly`: of those that were timed one by one,
    as steps beside a save are."""
    clear = job.named("clear_single_step_s" if singly else "clear_step_s")
    steps = sum(span.steps for span in clear)
    return math.fsum(span.end_s - span.start_s for span in clear) / steps if steps else None


def values_of(record: RoundRecord, trial: str, name: str) -> list[float]:
    """Return the values of a trial's readings of that name."""
    return [r.value for r in record.readings if r.trial == trial and r.name == name and r.value is not None]


# ---------------------------------------------------------------- where jobs are


def job_contrasts(index: Index) -> list[Contrast]:
    """Return the contrasts with a trial that does a job and is left to finish it, in the plan's order."""
    return [c for c in index.plan.contrasts if any(trial.driver is Driver.JOB for trial in c.trials)]


def saving_contrasts(index: Index) -> list[Contrast]:
    """Return the contrasts of jobs in which nothing but the saving differs, so that what differs is owed to the saving."""
    found = []
    for contrast in job_contrasts(index):
        cells = cells_of(index, contrast)
        if len(cells) == len(contrast.trials) and len({without_saving(cell).id for cell in cells}) == 1:
            found.append(contrast)
    return found


def cells_of(index: Index, contrast: Contrast) -> list[Cell]:
    """Return the cells of a contrast that the plan knows, in the order of its trials."""
    return [index.plan.cells[trial.cell] for trial in contrast.trials if trial.cell in index.plan.cells]


def without_saving(cell: Cell) -> Cell:
    """Return the cell without all that says how and how often it saves."""
    levels = {name: level for name, level in cell.levels.items() if name not in _SAVING_LEVELS}
    return replace(cell, levels=levels, sizes={name: size for name, size in cell.sizes.items() if name not in _SAVING_SIZES})


def does_save(cell: Cell) -> bool:
    """Whether a job of this cell saves checkpoints."""
    return cell.levels.get("checkpoint", "none") != "none"


def save_labels(cells: Sequence[Cell]) -> list[str]:
    """Return a label a cell that names how it saves, and beside that what varies: `async`, `sync, slow storage, every 25 s`, `no saves`."""
    intervals = [_every(cell) for cell in cells]
    several = len({interval for interval, cell in zip(intervals, cells, strict=True) if does_save(cell)}) > 1
    bare = [without_saving(cell) for cell in cells]
    rest = short_labels(bare) if len({cell.id for cell in bare}) > 1 else [""] * len(cells)
    labels = []
    for cell, interval, other in zip(cells, intervals, rest, strict=True):
        storage = cell.levels.get("storage", "own")
        parts = [other, cell.levels["checkpoint"] if does_save(cell) else "no saves"]
        parts += [f"{storage} storage"] if does_save(cell) and storage != "own" else []
        parts += [interval] if does_save(cell) and several else []
        labels.append(", ".join(part for part in parts if part))
    return labels


def _every(cell: Cell) -> str:
    seconds, steps = cell.sizes.get("interval_s"), cell.sizes.get("interval_steps")
    if isinstance(seconds, int | float):
        return f"every {numbers.seconds(float(seconds))}"
    return f"every {numbers.plural(steps, 'step')}" if isinstance(steps, int) else ""


# ---------------------------------------------------------------- the timeline


def timeline_frame(index: Index) -> pd.DataFrame:
    """Return one row a stretch of a job, for one round of each contrast whose jobs save: the round of median length.

    `kind`: clear, overlap, blocked, pause, or durable (a moment: it starts where it ends). Times are seconds since the job's start, `job_s` is its length.
    """
    rows: list[tuple[object, ...]] = []
    for contrast in job_contrasts(index):
        rounds = [(record, jobs_of(record)) for record in index.by_contrast.get(contrast.id, [])]
        rounds = [(record, jobs) for record, jobs in rounds if any(job.named("blocked_first_s", "blocked_s") for job in jobs)]
        if not rounds:
            continue
        rounds.sort(key=lambda entry: sum(job.seconds for job in entry[1]))
        record, jobs = rounds[(len(rounds) - 1) // 2]
        first = {job.trial: job for job in reversed(jobs)}
        lanes = [first[trial.id] for trial in contrast.trials if trial.id in first and trial.cell in index.plan.cells]
        cells = [index.plan.cells[job.cell] for job in lanes]
        labels = save_labels(cells) if len({without_saving(cell).id for cell in cells}) == 1 else short_labels(cells)
        panel = f"{contrast.title or contrast.id} (round {record.index + 1})"
        for job, label in zip(lanes, labels, strict=True):
            rows += [(contrast.id, panel, job.cell, label, *band, job.seconds) for band in _bands(job)]
    return frame_of(rows, TIMELINE_COLUMNS)


def _bands(job: Job) -> Iterable[tuple[str, float, float]]:
    for span in job.spans:
        if span.name in BANDS:
            yield BANDS[span.name], span.start_s, span.end_s
        elif span.name in {"durable_first_s", "durable_s"}:
            yield "durable", span.end_s, span.end_s


def lanes_of(timeline: pd.DataFrame) -> list[tuple[str, list[tuple[str, pd.DataFrame]]]]:
    """Return (panel, [(label, its rows), ...]) in the order of the frame."""
    panels = []
    for _, part in timeline.groupby("contrast", sort=False):
        lanes = [(str(lane["label"].iloc[0]), lane) for _, lane in part.groupby("cell", sort=False)]
        panels.append((str(part["panel"].iloc[0]), lanes))
    return panels


# ---------------------------------------------------------------- waiting for input


def job_waits_frame(index: Index) -> pd.DataFrame:
    """Return cell, share of the jobs' time (without pauses) that was spent waiting for input, and the number of jobs; empty where nobody told."""
    rows: dict[str, tuple[float, float, int]] = {}
    for contrast in job_contrasts(index):
        for record in index.by_contrast.get(contrast.id, []):
            jobs = jobs_of(record)
            for trial in dict.fromkeys(job.trial for job in jobs):
                waits, mine = values_of(record, trial, "input_wait_s"), [job for job in jobs if job.trial == trial]
                if waits:
                    waited, seconds, count = rows.get(mine[0].cell, (0.0, 0.0, 0))
                    rows[mine[0].cell] = (waited + math.fsum(waits), seconds + math.fsum(job.working_s for job in mine), count + len(mine))
    shares: list[tuple[object, ...]] = [(cell, waited / seconds, count) for cell, (waited, seconds, count) in rows.items() if seconds > 0]
    return frame_of(shares, ["cell", "share", "blocks"])


# ---------------------------------------------------------------- rounds


class Rounds:
    """One value a round, and the reasons of the rounds that have none."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.reasons: list[str] = []

    @property
    def asked(self) -> bool:
        return bool(self.values or self.reasons)

    def add(self, value: float | str) -> None:
        if isinstance(value, str):
            self.reasons.append(value)
        else:
            self.values.append(value)

    def summary(self) -> tuple[float | None, float | None, float | None, int]:
        """Return median, lowest, highest and number of the rounds' values."""
        if not self.values:
            return None, None, None, 0
        return statistics.median(self.values), min(self.values), max(self.values), len(self.values)

    def text(self, unit: str) -> str:
        point, low, high, rounds = self.summary()
        return numbers.ranged(point, low, high, unit, rounds, self.reasons[-1] if self.reasons else None)


def frame_of(rows: Sequence[tuple[object, ...]], columns: list[str]) -> pd.DataFrame:
    """Return rows as a frame."""
    frame: pd.DataFrame = pd.DataFrame.from_records(list(rows), columns=columns)
    return frame


def rows_of(frame: pd.DataFrame) -> list[Any]:
    """Return a frame's rows as named tuples, whose cells have the types that whoever made the frame gave them."""
    return list(frame.itertuples())
