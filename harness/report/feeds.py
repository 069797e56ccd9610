"""Frames on feeding: what pipelines deliver by themselves, what training needs, what a stand-in accelerator gets. Must not know how a figure looks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.model import Cell
from harness.report import numbers
from harness.report.index import short_labels
from harness.report.tables import TRAINS_NOTHING

if TYPE_CHECKING:
    from harness.report.index import Index

PIPELINE, REPLAY = "pipeline", "replay"
PIPELINE_COLUMNS = ["cell", "label", "point", "low", "high", "unit", "rounds", "text"]
REPLAY_COLUMNS = [*PIPELINE_COLUMNS, "devices", "one", "asked", "fed", "real"]
CURVE_COLUMNS = ["axis", "series", "x", "point", "low", "high", "unit", "one"]


def pipelines_frame(index: Index, arms: pd.DataFrame) -> pd.DataFrame:
    """Return one row a pipeline that was measured by itself, the fastest first: samples per second (`point`) and the range of the rounds.

    `arms` is `tables.arms_frame`. A pipeline that failed keeps its row, with the reason in `text`.
    """
    rows = [row for row in _levels(index, arms, PIPELINE) if row[2] is not None or row[-1] != numbers.NA]
    rows.sort(key=lambda row: -(row[2] or 0.0))
    return pd.DataFrame.from_records(rows, columns=PIPELINE_COLUMNS)


def _levels(index: Index, arms: pd.DataFrame, workload: str) -> list[tuple[Any, ...]]:
    """Return a row of PIPELINE_COLUMNS for every arm of a workload."""
    chosen: list[Any] = [row for row in arms.itertuples() if index.plan.cells[str(row.cell)].workload == workload]
    labels = short_labels([index.plan.cells[row.cell] for row in chosen]) if chosen else []
    rows: list[tuple[Any, ...]] = []
    for row, label in zip(chosen, labels, strict=True):
        point, low, high = (None if pd.isna(value) else float(value) for value in (row.rate, row.low, row.high))
        unit = f"{str(row.unit).removesuffix('/s') or 'samples'}/s"
        rows.append((row.cell, label, point, low, high, unit, row.rounds, numbers.ranged(point, low, high, unit, row.rounds, _reason(row.reason))))
    return rows


def _reason(text: object) -> str | None:
    return str(text).removeprefix(f"{numbers.NA}: ") if isinstance(text, str) and text else None


def need(index: Index, arms: pd.DataFrame, pipelines: pd.DataFrame) -> tuple[str, float] | None:
    """Return the name and the samples per second of the fastest training whose data lie on the device: what it would take from a pipeline.

    Nets of images only, those of the pipelines' own image size if there are any. None where none was measured.
    """
    found = []
    row: Any
    for row in arms.itertuples():
        cell = index.plan.cells[row.cell]
        if cell.workload not in TRAINS_NOTHING and cell.levels.get("input") == "synthetic" and "image" in cell.sizes and pd.notna(row.rate):
            found.append((cell, float(row.rate)))
    sizes = {index.plan.cells[cell].sizes.get("image") for cell in pipelines["cell"]}
    found = [entry for entry in found if entry[0].sizes["image"] in sizes] or found
    if not found:
        return None
    cell, rate = max(found, key=lambda entry: entry[1])
    return f"{cell.workload}, {cell.sizes['image']} px, {cell.levels.get('execution', '')}".removesuffix(", "), rate


# ---------------------------------------------------------------- stand-in accelerators


def replay_frame(index: Index, arms: pd.DataFrame) -> pd.DataFrame:
    """Return one row an arm with stand-in accelerators. `one`: samples per second that one of its `devices` asks for, `asked`: that all do; `fed`: for how many of them what
    came would be enough; `real`: it came from files."""
    rows = []
    for row in _levels(index, arms, REPLAY):
        cell = index.plan.cells[row[0]]
        devices, one = _demand(cell)
        fed = row[2] / one if row[2] is not None and one else None
        rows.append((*row, devices, one, one * devices if one else None, fed, cell.levels.get("input") != "synthetic"))
    return pd.DataFrame.from_records(rows, columns=REPLAY_COLUMNS)


def _demand(cell: Cell) -> tuple[int, float | None]:
    """Return how many devices a cell stands in for, and the samples per second that one of them asks for."""
    devices, batch, step_ms = (cell.sizes.get(name) for name in ("devices", "batch", "step_ms"))
    many = devices if isinstance(devices, int) else 1
    if isinstance(batch, int | float) and isinstance(step_ms, int | float) and step_ms > 0:
        return many, batch * 1000 / step_ms
    return many, None


def feeding_frame(index: Index, replays: pd.DataFrame) -> pd.DataFrame:
    """Return the curves among the arms of `replay_frame`: samples per second against cores, or against the time of a step in ms.

    A curve is made of cells that differ in that alone; it takes two points. `series` names what tells it from the others.
    """
    rows: list[tuple[object, ...]] = []
    for axis in ("cores", "step_ms"):
        curves: dict[str, list[Any]] = {}
        rests: dict[str, Cell] = {}
        row: Any
        for row in replays.itertuples():
            cell = index.plan.cells[str(row.cell)]
            if isinstance(cell.sizes.get(axis), int | float) and pd.notna(row.point):
                rest = replace(cell, sizes={name: size for name, size in cell.sizes.items() if name != axis})
                rests[rest.id] = rest
                curves.setdefault(rest.id, []).append(row)
        kept = [name for name, points in curves.items() if len(points) > 1]
        for name, label in zip(kept, short_labels([rests[name] for name in kept]) if kept else [], strict=True):
            rows += sorted(_point(index, axis, label, row) for row in curves[name])
    return pd.DataFrame.from_records(rows, columns=CURVE_COLUMNS)


def _point(index: Index, axis: str, label: str, row: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a row of a frame
    return axis, label, float(index.plan.cells[row.cell].sizes[axis] or 0), row.point, row.low, row.high, row.unit, row.one


# ---------------------------------------------------------------- sentences


def feeds(replays: pd.DataFrame) -> str:
    """Return how many stand-ins this host can feed, by the arm on real files that got most; empty where nothing says so.

    An arm that got all it asked for shows only that the host can do at least that.
    """
    known = replays[replays["real"].astype(bool) & replays["fed"].notna()]
    if known.empty:
        return ""
    best: Any = next(known.loc[[pd.to_numeric(known["point"]).idxmax()]].itertuples())
    least = "at least " if best.fed >= 0.95 * best.devices else ""
    many = "accelerator that takes" if numbers.significant(best.fed) == "1.00" else "accelerators that take"
    return (
        f"This host can feed {least}{numbers.significant(best.fed)} {many} {numbers.rate(best.one, best.unit)} each: "
        f"{numbers.rate(best.point, best.unit)} is the most that came ({best.label})."
    )
