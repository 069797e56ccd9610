"""From the events of jobs to frames: what a save costs, and what saving more often does to the whole.

Read where nothing but the saving differs between jobs. What could not be had is None with its reason. Must not know how a figure looks.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.model import Cell, RoundRecord, Scale, State
from harness.report.index import difference, pair_of
from harness.report.jobs import Job, Rounds, cells_of, clear_step_s, does_save, frame_of, jobs_of, save_labels, saving_contrasts, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from harness.report.index import Index

SAVE_MEASURES = ("blocked", "overlap", "durable")
SAVE_COLUMNS = ["cell", "label", "measure", "point", "low", "high", "rounds", "text"]
SLOWDOWN_COLUMNS = ["series", "cell", "interval_s", "point", "low", "high", "rounds", "blocked_s", "claim", "lo", "hi", "text"]


def saves_frame(index: Index) -> pd.DataFrame:
    """Return one row a cell that saves and measure, in seconds: the median of the rounds with their lowest and highest.

    blocked: how long a save holds the loop, saves 2 and later. overlap: by how much the steps during which one save is written last longer in all.
    durable: from the call until the files are on the disk. A measure that no round has is NaN, and `text` says why.
    """
    contrasts = saving_contrasts(index)
    wanted = {cell.id for contrast in contrasts for cell in cells_of(index, contrast) if does_save(cell)}
    cells = [cell for name, cell in index.plan.cells.items() if name in wanted]
    labels = dict(zip((cell.id for cell in cells), save_labels(cells), strict=True))
    found = {(cell.id, measure): Rounds() for cell in cells for measure in SAVE_MEASURES}
    for contrast in contrasts:
        for record in index.by_contrast.get(contrast.id, []):
            for trial in record.trials:
                if trial.cell in wanted:
                    for measure in SAVE_MEASURES:
                        found[trial.cell, measure].add(_save_value(record, trial.id, measure))
    rows = [(cell, labels[cell], measure, *values.summary(), values.text("s")) for (cell, measure), values in found.items() if values.asked]
    return frame_of(rows, SAVE_COLUMNS)


def _save_value(record: RoundRecord, trial: str, measure: str) -> float | str:
    """Return one round's value of a measure, or why there is none."""
    ended = record.trial(trial)
    if ended is None or ended.outcome.state is not State.COMPLETED:
        reason = ended.outcome.reason.text if ended is not None and ended.outcome.reason is not None else "it did not come to an end"
        return f"{ended.outcome.state.value.replace('_', ' ')}: {reason}" if ended is not None else "it was not run"
    if record.outcome.state is not State.COMPLETED:
        return "its round did not come to an end"
    if measure == "overlap":
        return _overlap(record, trial)
    return _median(record, trial, f"{measure}_s")


def _median(record: RoundRecord, trial: str, name: str) -> float | str:
    values = values_of(record, trial, name)
    return statistics.median(values) if values else _why_null(record, trial, name)


def _why_null(record: RoundRecord, trial: str, name: str) -> str:
    told = [r.reason for r in record.readings if r.trial == trial and r.name == name and r.reason]
    if told:
        return told[-1]
    again = name.replace("_s", "_first_s")
    return "only one save was made" if values_of(record, trial, again) else f"no {name} was told"


def _overlap(record: RoundRecord, trial: str) -> float | str:
    """Return the median over saves of the extra seconds of the steps that ran while one was written, over the same number of clear steps: of those that
    were timed in the same way, if there are any."""
    extra: list[float] = []
    for job in (job for job in jobs_of(record) if job.trial == trial):
        clear = clear_step_s(job, singly=True) or clear_step_s(job)
        if clear is None:
            return "no step was clear of saves"
        starts = [span.start_s for span in job.named("blocked_first_s", "blocked_s")]
        later = starts[1:] or starts
        by_save: dict[int, float] = {}
        for span in job.named("overlap_step_s", *(["overlap_first_step_s"] if len(starts) == 1 else [])):
            save = bisect_right(later, span.start_s)
            if save:  # what comes before was the first save's
                by_save[save] = by_save.get(save, 0.0) + (span.end_s - span.start_s) - span.steps * clear
        extra += by_save.values()
    if extra:
        return statistics.median(extra)
    told = [r.reason for r in record.readings if r.trial == trial and r.name == "overlap_step_s" and r.reason]
    return told[-1] if told else "no step ran while a save was written"


def restored_counts(index: Index) -> dict[str, tuple[int, int]]:
    """Return cell -> (checkpoints that were restored bit for bit, checkpoints that were restored)."""
    found: dict[str, tuple[int, int]] = {}
    for contrast in saving_contrasts(index):
        for record in index.by_contrast.get(contrast.id, []):
            cells = {trial.id: trial.cell for trial in record.trials}
            for reading in record.readings:
                if reading.name == "restored_equal" and reading.trial in cells:
                    same, all_ = found.get(cells[reading.trial], (0, 0))
                    found[cells[reading.trial]] = (same + (reading.value == 1), all_ + 1)
    return found


def save_levels(index: Index) -> list[tuple[str, str, float | None, float | None]]:
    """Return (claim, measure, lo, hi) of every band in seconds that is claimed for what a save takes: measure is blocked or durable."""
    names = {"blocked_s": "blocked", "durable_s": "durable"}
    found = []
    for claim, case, _ in index.joined():
        terms = case.estimand.terms
        if case.estimand.scale is Scale.LINEAR and len(terms) == 1 and terms[0].measure in names and (case.lo, case.hi) != (None, None):
            found.append((claim.id, names[terms[0].measure], case.lo, case.hi))
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------- what saving more often does


def slowdown_frame(index: Index) -> pd.DataFrame:
    """Return one row a cell that saves: how much longer its job took, step for step, than that of the same round without saves.

    `interval_s`: seconds of computing between two saves. `blocked_s`: how long one save held the loop. `claim`, `lo`, `hi`: what was claimed of
    this very ratio. A cell whose ratio or interval is not known keeps its row, and `text` says why.
    """
    bands = _claimed_ratios(index)
    found: dict[tuple[str, str], _Slowdown] = {}
    for contrast in saving_contrasts(index):
        cells = cells_of(index, contrast)
        still = [cell for cell in cells if not does_save(cell)]
        records = [r for r in index.by_contrast.get(contrast.id, []) if r.outcome.state is State.COMPLETED]
        for cell in (cell for cell in cells if does_save(cell) and still and records):
            base = min(still, key=lambda other: len(difference(other, cell)))
            entry = found.setdefault((cell.id, base.id), _Slowdown(Rounds(), Rounds(), Rounds()))
            for record in records:
                entry.take(record, cell, base)
    cells = [index.plan.cells[cell] for cell, _ in found]
    series = save_labels([_without_interval(cell) for cell in cells])
    rows: list[tuple[object, ...]] = []
    claim: str | None
    for ((treated, baseline), entry), name in sorted(
        zip(found.items(), series, strict=True), key=lambda e: (e[1], e[0][1].interval.summary()[0] or math.inf)
    ):
        claim, lo, hi = bands.get((treated, baseline)) or (None, None, None)
        interval, blocked = entry.interval.summary()[0], entry.blocked.summary()[0]
        rows.append((name, treated, interval, *entry.ratio.summary(), blocked, claim, lo, hi, entry.ratio.text("")))
    return frame_of(rows, SLOWDOWN_COLUMNS)


@dataclass(frozen=True)
class _Slowdown:
    ratio: Rounds
    interval: Rounds
    blocked: Rounds

    def take(self, record: RoundRecord, cell: Cell, base: Cell) -> None:
        trials = {trial.cell: trial.id for trial in record.trials}
        if cell.id not in trials or base.id not in trials:
            return
        jobs = jobs_of(record)
        own, other = (_whole_step_s(record, trials[name], jobs) for name in (cell.id, base.id))
        named = ((own, "the job with saves"), (other, "the job without saves"))
        fault = next((f"{arm} told no time from end to end" for seconds, arm in named if seconds is None), None)
        self.ratio.add(own / other if own and other else fault or "the job without saves took no time")
        used = next(trial.used for trial in record.trials if trial.cell == cell.id)
        self.interval.add(
            _interval_s(cell, used.get("interval_steps_chosen"), [job for job in jobs if job.cell == cell.id]) or "no step was clear of saves"
        )
        self.blocked.add(_median(record, trials[cell.id], "blocked_s"))


def _whole_step_s(record: RoundRecord, trial: str, jobs: Sequence[Job]) -> float | None:
    """Return the seconds from end to end by the number of steps: jobs of one round need not do the same number."""
    told = values_of(record, trial, "end_to_end_step_s")
    if told:
        return statistics.fmean(told)
    whole, steps = values_of(record, trial, "end_to_end_s"), [job.steps for job in jobs if job.trial == trial and job.steps]
    return math.fsum(whole) / sum(steps) if whole and len(whole) == len(steps) else None


def _interval_s(cell: Cell, chosen: object, jobs: Sequence[Job]) -> float | None:
    """Return how long a job computes between two saves: its steps (`chosen` where it was asked for seconds) times the time of a clear one."""
    asked_s = cell.sizes.get("interval_s")
    steps = chosen if asked_s is not None else cell.sizes.get("interval_steps")
    clear = [time for job in jobs if (time := clear_step_s(job)) is not None]
    if isinstance(steps, int) and clear:
        return steps * statistics.fmean(clear)
    return float(asked_s) if isinstance(asked_s, int | float) else None


def _without_interval(cell: Cell) -> Cell:
    return replace(cell, sizes={name: size for name, size in cell.sizes.items() if name not in {"interval_steps", "interval_s"}})


def _claimed_ratios(index: Index) -> dict[tuple[str, str], tuple[str, float | None, float | None]]:
    """Return (treatment, baseline) -> claim and band of every ratio of whole jobs for which one is claimed."""
    found = {}
    for claim, case, _ in index.joined():
        pair = pair_of(index, case)
        if pair and case.estimand.terms[0].measure in {"end_to_end_step_s", "end_to_end_s"} and (case.lo, case.hi) != (None, None):
            found[pair[1].id, pair[0].id] = (claim.id, case.lo, case.hi)
    return found
