"""How much of a device's arithmetic an arm makes use of (MFU), and the roofs that it is held against. Numbers only: must not know how a figure looks.

MFU is the FLOPs of a step (counted from its graph, a multiply-add is two) times steps a second, over what a large matrix product of the same precision
reached on the same device in the same run. Nothing is clamped: convolutions by way of transforms need fewer multiplications than are counted, and may pass 100 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.model import Cell, Driver, Purpose, State
from harness.report import numbers
from harness.report.index import short_labels, slowed_trials
from harness.report.jobs import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.model import RoundRecord
    from harness.report.index import Index

ROOF = "roof"
"""The workload whose cells are roofs; `op` and `dtype` are among their sizes."""

DTYPES = {"fp32": "float32", "tf32": "tf32", "float16": "float16", "mixed_float16": "float16", "mixed_bfloat16": "bfloat16", "bfloat16": "bfloat16"}
"""Level of precision -> what its matrix products are computed in."""

ELEMENT_BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
"""Of types whose products are written in the type that was read."""

COPIES = {"gpu": "device_copy", "cpu": "host_copy"}
"""Kind of device -> the roof that tells its memory's bytes a second."""

DISK_RATES = {"disk_write": "disk_write_rate", "disk_read": "disk_read_rate"}
"""Roofs of the storage, which answer once a round and are not timed in blocks -> the reading that tells their rate."""

MOST_ROWS = 24
"""Arms that the figure shows; the table beside it holds all."""

MFU_COLUMNS = [
    "cell",
    "label",
    "device",
    "precision",
    "flops_per_step",
    "point",
    "low",
    "high",
    "rounds",
    "roof",
    "mfu",
    "mfu_low",
    "mfu_high",
    "reason",
]


@dataclass(frozen=True)
class Roof:
    """What one roof reached: `rate` in `unit` (FLOP/s, B/s). `intensity` is FLOP for each byte that must at least be moved, where that is known.

    `storage`: what the files of a disk's roof lay on (file system, block device), "" where the record does not tell; None for every other roof.
    """

    cell: str
    label: str
    device: str
    op: str
    dtype: str
    rate: float
    unit: str
    intensity: float | None
    storage: str | None = None


@dataclass(frozen=True)
class Roofline:
    """One kind of device: the matrix products of each type (`peaks`, the fastest of each), its memory (`copy`), and the products placed by intensity."""

    device: str
    peaks: tuple[Roof, ...]
    copy: Roof | None
    points: tuple[Roof, ...]

    def ridge(self, peak: Roof) -> float | None:
        """Return the intensity from which on arithmetic, not memory, is the limit; None where the memory was not measured."""
        return peak.rate / self.copy.rate if self.copy is not None and self.copy.rate > 0 else None


def roofs_of(index: Index, arms: pd.DataFrame) -> list[Roof]:
    """Return every roof that has a rate, in the plan's order. `arms` is `tables.arms_frame`."""
    found: dict[str, tuple[float, str, str | None]] = {**_disks(index)}
    for row in rows_of(arms):
        if index.plan.cells[str(row.cell)].workload == ROOF and pd.notna(row.rate) and row.rate > 0:
            found[str(row.cell)] = float(row.rate), str(row.unit), None
    cells = [cell for cell in index.plan.cells.values() if cell.id in found]
    roofs = []
    for cell, label in zip(cells, short_labels(cells) if cells else [], strict=True):
        rate, unit, storage = found[cell.id]
        op = str(cell.sizes.get("op"))
        roofs.append(Roof(cell.id, label, cell.device, op, _dtype(cell), rate, f"{unit.removesuffix('/s')}/s", intensity(cell), storage))
    return roofs


def _disks(index: Index) -> dict[str, tuple[float, str, str]]:
    """Return cell -> (rate, its unit, storage) of the roofs of disks: all bytes of all completed rounds, which move equally many, over all their time."""
    told: dict[str, list[float]] = {}
    storage: dict[str, str] = {}
    for record in index.records:
        for trial in record.trials if record.outcome.state is State.COMPLETED else ():
            cell = index.plan.cells.get(trial.cell)
            name = DISK_RATES.get(str(cell.sizes.get("op"))) if cell is not None and cell.workload == ROOF else None
            rates = [r.value for r in record.readings if (r.trial, r.name) == (trial.id, name) and r.value is not None and r.value > 0]
            if rates:
                told.setdefault(trial.cell, []).extend(rates)
                facts = (trial.used.get(fact) for fact in ("file_system", "storage_device"))
                storage[trial.cell] = ", ".join(str(fact) for fact in facts if fact)
    return {cell: (len(rates) / math.fsum(1 / rate for rate in rates), "B", storage[cell]) for cell, rates in told.items()}


def _dtype(cell: Cell) -> str:
    """Return what a roof computes in, which is no matter of its level of precision; nothing for one that computes nothing."""
    return str(cell.sizes.get("dtype") or ("float32" if cell.sizes.get("op") in {"matmul", "convolution"} else ""))


def intensity(cell: Cell) -> float | None:
    """Return FLOP for each byte of a matrix product m x k x n, if both matrices are read once and the product is written once.

    None for every other operation: how many bytes those move is not known here.
    """
    element = ELEMENT_BYTES.get(_dtype(cell))
    m, n, k = (_whole(cell.sizes.get(name, cell.sizes.get("size"))) for name in ("m", "n", "k"))
    if cell.sizes.get("op") != "matmul" or element is None or not (m and n and k):
        return None
    return 2 * m * n * k / (element * (m * k + k * n + m * n))


def _whole(size: object) -> int:
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 0


def matmul_roof(roofs: Sequence[Roof], device: str, dtype: str) -> Roof | None:
    """Return the fastest matrix product of that type on that kind of device, None where none was measured."""
    found = [roof for roof in roofs if (roof.op, roof.device, roof.dtype) == ("matmul", device, dtype) and roof.unit == "FLOP/s"]
    return max(found, key=lambda roof: roof.rate, default=None)


def rooflines(roofs: Sequence[Roof]) -> list[Roofline]:
    """Return a roofline for each kind of device with a matrix product, GPUs first."""
    lines = []
    for device in sorted({roof.device for roof in roofs}, reverse=True, key=lambda name: (name == "gpu", name)):
        mine = [roof for roof in roofs if roof.device == device]
        peaks = [matmul_roof(mine, device, dtype) for dtype in dict.fromkeys(roof.dtype for roof in mine if roof.op == "matmul")]
        copies = [roof for roof in mine if roof.op == COPIES.get(device) and roof.unit == "B/s"]
        points = tuple(roof for roof in mine if roof.intensity is not None and roof.unit == "FLOP/s")
        known = sorted((peak for peak in peaks if peak is not None), key=lambda roof: -roof.rate)
        if known:
            lines.append(Roofline(device, tuple(known), max(copies, key=lambda roof: roof.rate, default=None), points))
    return lines


# ---------------------------------------------------------------- arms


def flops_of(records: Sequence[RoundRecord]) -> dict[str, float | str]:
    """Return cell -> FLOPs of one step, or why they are not known, for every cell of which a completed trial said anything about them."""
    told: dict[str, list[float]] = {}
    several: set[str] = set()
    for record in records:
        for trial in record.trials:
            if trial.outcome.state is State.COMPLETED and "flops_per_step" in trial.used:
                value, replicas = trial.used["flops_per_step"], trial.used.get("replicas")
                known = told.setdefault(trial.cell, [])
                if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
                    known.append(float(value))
                if isinstance(replicas, int) and replicas > 1:
                    several.add(trial.cell)
    return {cell: _one(values, several=cell in several) for cell, values in told.items()}


def _one(values: Sequence[float], *, several: bool) -> float | str:
    if not values:
        return "the FLOPs of its step could not be counted from a graph"
    if several:
        return "it trains on several devices at once, a roof is of one"
    if max(values) - min(values) > 1e-6 * max(values):
        return f"its rounds counted different FLOPs: {numbers.plain(min(values))} and {numbers.plain(max(values))} a step"
    return values[0]


def step_rates(index: Index, timed: pd.DataFrame) -> pd.DataFrame:
    """Return cell, steps a second (`point`: all steps over all time, `low` and `high` of the rounds) and the number of rounds.

    `timed` is `blocks.timed_blocks`. A cell that several contrasts measured is read where it has the most rounds, as its throughput is; trials that do
    uncounted work are left out. A block that does not say how many steps it holds makes all of it unknown (NaN).
    """
    kept = timed[timed["accepted"].astype(bool) & timed["completed"].astype(bool)]
    keys = list(zip(kept["contrast"], kept["trial"], strict=True))
    slowed = slowed_trials(index)
    cells: list[Any] = [index.cell_of.get(key) if key not in slowed else None for key in keys]
    kept = kept.assign(cell=cells).dropna(subset="cell")
    rows: dict[str, tuple[object, ...]] = {}
    if len(kept):
        rounds = kept.assign(steps=pd.to_numeric(kept["n"])).groupby(["contrast", "cell", "index"], sort=False)
        summed = pd.DataFrame({"steps": rounds["steps"].apply(lambda steps: steps.sum(skipna=False)), "seconds": rounds["seconds"].sum()})
        summed = summed.assign(rate=summed["steps"] / summed["seconds"])
        arms = sorted(summed.groupby(["contrast", "cell"], sort=False), key=lambda entry: -len(entry[1]))
        part: Any
        for (_, cell), part in arms:
            total = part["steps"].sum(skipna=False) / part["seconds"].sum()
            rows.setdefault(str(cell), (str(cell), total, part["rate"].min(), part["rate"].max(), len(part)))
    frame: pd.DataFrame = pd.DataFrame.from_records(list(rows.values()), columns=["cell", "point", "low", "high", "rounds"])
    return frame


def mfu_frame(index: Index, timed: pd.DataFrame, arms: pd.DataFrame) -> pd.DataFrame:
    """Return one row an arm that is timed by blocks of steps and says something of its FLOPs: FLOP/s (`point`, `low`, `high`), the roof in FLOP/s, and the MFU as a share of it.

    The highest MFU comes first, arms without one last. What is not known is NaN, and `reason` says why.
    """
    flops = flops_of(index.records)
    stepping = {trial.cell for c in index.plan.contrasts if c.purpose is not Purpose.PROOF for trial in c.trials if trial.driver is Driver.BLOCKS}
    cells = [cell for name, cell in index.plan.cells.items() if name in flops and name in stepping and cell.workload != ROOF]
    roofs = roofs_of(index, arms)
    rates: dict[str, Any] = {str(row.cell): row for row in step_rates(index, timed).itertuples()}
    rows = [
        _mfu_row(cell, label, flops[cell.id], rates.get(cell.id), roofs)
        for cell, label in zip(cells, short_labels(cells) if cells else [], strict=True)
    ]
    frame = pd.DataFrame.from_records(rows, columns=MFU_COLUMNS)
    floats = ["flops_per_step", "point", "low", "high", "roof", "mfu", "mfu_low", "mfu_high"]
    frame = frame.astype(dict.fromkeys(floats, float))
    best_first: pd.DataFrame = frame.sort_values(["mfu", "point"], ascending=False, na_position="last", kind="stable", ignore_index=True)
    return best_first


def _mfu_row(cell: Cell, label: str, flops: float | str, rate: Any, roofs: Sequence[Roof]) -> tuple[object, ...]:  # noqa: ANN401 - a row of a frame
    precision = cell.levels.get("precision", "fp32")
    dtype = DTYPES.get(precision, precision)
    roof = matmul_roof(roofs, cell.device, dtype)
    head = (cell.id, label, cell.device, precision)
    top = roof.rate if roof is not None else None
    if isinstance(flops, str):
        return (*head, None, None, None, None, 0, top, None, None, None, flops)
    if rate is None or pd.isna(rate.point):
        why = "no round of it was completed" if rate is None else "its blocks do not say how many steps they hold"
        return (*head, flops, None, None, None, 0, top, None, None, None, why)
    reached = [flops * float(value) for value in (rate.point, rate.low, rate.high)]
    if roof is None:
        why = f"no matrix product in {dtype} was measured on this {cell.device.upper()} in this run (the sweeps roofs and full do)"
        return (*head, flops, *reached, rate.rounds, None, None, None, None, why)
    return (*head, flops, *reached, rate.rounds, top, *(value / roof.rate for value in reached), None)


def mfu_text(row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Return what is written at an arm's bar: its FLOP/s and its MFU, or why there is none."""
    if pd.isna(row.point):
        return numbers.missing(row.reason)
    reached = numbers.rate(row.point, "FLOP")
    return f"{reached}, no roof" if pd.isna(row.mfu) else f"{reached}, MFU {numbers.percent(row.mfu)}"
