"""From records to frames: blocks, rounds, levels, phases, loads. One row a block at most; everything later works on these aggregates.

Which blocks count was decided while measuring (foreign load, warm-up); this module repeats no judgement, it only follows `accepted`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from harness.model import Arrangement, RoundRecord, State

if TYPE_CHECKING:
    from collections.abc import Sequence

START_PHASES = ("spawn", "import", "build", "trace", "first", "warmup")
BLOCK_COLUMNS = ["contrast", "index", "attempt", "trial", "quad", "turn", "accepted", "completed", "work", "unit", "n", "seconds"]
ROUND_COLUMNS = ["contrast", "index", "trial", "work", "seconds", "unit", "blocks", "rate"]
LEVEL_COLUMNS = ["contrast", "trial", "rate", "low", "high", "unit", "rounds"]


def _frame(rows: Sequence[tuple[object, ...]], columns: list[str]) -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame.from_records(list(rows), columns=columns)
    return frame


def timed_blocks(records: Sequence[RoundRecord]) -> pd.DataFrame:
    """Return one row a timed block (work in `unit`, duration in seconds); blocks without a value or without time are left out."""
    rows = []
    for record in records:
        accepted = {(quad.part, quad.index) for quad in record.quads if quad.accepted}
        whole = not record.quads  # a lone trial whose blocks are in no quads: all but the first, which warms up
        done = record.outcome.state is State.COMPLETED
        for reading in record.readings:
            if reading.name != "work" or reading.value is None or reading.t0_ns is None or reading.t1_ns is None or reading.t1_ns <= reading.t0_ns:
                continue
            counts = reading.quad != 0 if whole else (reading.part, reading.quad) in accepted
            seconds = (reading.t1_ns - reading.t0_ns) / 1e9
            key = (record.contrast, record.index, record.attempt, reading.trial, reading.quad, reading.turn)
            rows.append((*key, counts and reading.part == "main", done, reading.value, reading.unit, reading.n, seconds))
    return _frame(rows, BLOCK_COLUMNS)


def round_rates(blocks: pd.DataFrame) -> pd.DataFrame:
    """Return one row a completed round and trial: all work of the accepted blocks over all their time (`rate`, units of work per second)."""
    kept = blocks[blocks["accepted"].astype(bool) & blocks["completed"].astype(bool)]
    if kept.empty:
        return _frame([], ROUND_COLUMNS)
    grouped = kept.groupby(["contrast", "index", "trial"], sort=False)
    frame = grouped.agg(work=("work", "sum"), seconds=("seconds", "sum"), unit=("unit", "first"), blocks=("work", "size")).reset_index()
    rated: pd.DataFrame = frame.assign(rate=frame["work"] / frame["seconds"])[ROUND_COLUMNS]
    return rated


def levels_frame(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return one row a contrast and trial: total work over total time, and the lowest and highest round beside it."""
    if rounds.empty:
        return _frame([], LEVEL_COLUMNS)
    grouped = rounds.groupby(["contrast", "trial"], sort=False)
    frame = grouped.agg(
        work=("work", "sum"), seconds=("seconds", "sum"), low=("rate", "min"), high=("rate", "max"), unit=("unit", "first"), rounds=("rate", "size")
    )
    rated: pd.DataFrame = frame.assign(rate=frame["work"] / frame["seconds"]).reset_index()[LEVEL_COLUMNS]
    return rated


def phases_frame(records: Sequence[RoundRecord]) -> pd.DataFrame:
    """Return the start-up phases per cell in seconds (median over starts), only from starts that nothing overlapped."""
    rows = [
        {"cell": trial.cell, "solo": record.arrangement is Arrangement.SOLO, **{p: trial.phases_s[p] for p in START_PHASES if p in trial.phases_s}}
        for record in records
        for trial in record.trials
        if trial.phases_s and not trial.overlapped_start and trial.outcome.state is State.COMPLETED
    ]
    present = [p for p in START_PHASES if any(p in row for row in rows)]
    if not rows or not present:
        return _frame([], ["cell", "starts", *START_PHASES])
    frame = pd.DataFrame(rows)
    frame = frame[frame["solo"].astype(bool)] if frame["solo"].any() else frame
    grouped = frame.groupby("cell", sort=False)
    medians: pd.DataFrame = grouped[present].median().assign(starts=grouped.size()).reset_index().fillna(0.0)
    return medians


def memory_frame(records: Sequence[RoundRecord]) -> pd.DataFrame:
    """Return the highest host peak RSS of each cell in bytes over its completed trials, from fresh processes only."""
    rows = [
        (trial.cell, trial.peak_rss_bytes)
        for record in records
        for trial in record.trials
        if trial.peak_rss_bytes is not None and trial.outcome.state is State.COMPLETED
    ]
    frame = _frame(rows, ["cell", "peak_rss_bytes"])
    peaks: pd.DataFrame = (
        frame.groupby("cell", sort=False)["peak_rss_bytes"].agg(["max", "size"]).reset_index().set_axis(["cell", "peak_rss_bytes", "trials"], axis=1)
    )
    return peaks


def device_memory(records: Sequence[RoundRecord]) -> dict[str, dict[str, float]]:
    """Return cell -> name -> bytes of every other reading in bytes (allocator peak, NVML used): the highest seen; the names are never mixed."""
    found: dict[str, dict[str, float]] = {}
    for record in records:
        cells = {trial.id: trial.cell for trial in record.trials}
        for reading in record.readings:
            if reading.unit == "bytes" and reading.name not in {"work", "peak_rss"} and reading.value is not None and reading.trial in cells:
                entry = found.setdefault(cells[reading.trial], {})
                entry[reading.name] = max(entry.get(reading.name, 0.0), reading.value)
    return found


def waits_frame(records: Sequence[RoundRecord], blocks: pd.DataFrame) -> pd.DataFrame:
    """Return cell, share of the accepted blocks' time that was spent waiting for input, and the number of blocks; empty where nobody told."""
    waited: dict[str, float] = {}
    cells: dict[tuple[str, str], str] = {}
    for record in records:
        accepted = {(quad.part, quad.index) for quad in record.quads if quad.accepted}
        cells |= {(record.contrast, trial.id): trial.cell for trial in record.trials}
        if record.outcome.state is not State.COMPLETED:
            continue
        for reading in record.readings:
            cell = cells.get((record.contrast, reading.trial))
            if (
                reading.name == "input_wait_s"
                and reading.value is not None
                and cell
                and reading.part == "main"
                and ("main", reading.quad) in accepted
            ):
                waited[cell] = waited.get(cell, 0.0) + reading.value
    if not waited:
        return _frame([], ["cell", "share", "blocks"])
    kept = blocks[blocks["accepted"].astype(bool) & blocks["completed"].astype(bool)]
    named = kept.assign(cell=[cells.get(key, "") for key in zip(kept["contrast"], kept["trial"], strict=True)])
    time = named.groupby("cell")["seconds"].agg(["sum", "size"])
    rows = [
        (cell, wait / time["sum"][cell], int(time["size"][cell])) for cell, wait in waited.items() if cell in time.index and time["sum"][cell] > 0
    ]
    return _frame(rows, ["cell", "share", "blocks"])
