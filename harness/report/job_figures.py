"""Figures of jobs: where their time went, what a save costs, what saving more often does. Frame of `jobs` -> matplotlib Figure, None without data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, MaxNLocator

from harness.report import numbers
from harness.report.amounts import amount_rows, mark_band
from harness.report.canvas import (
    BAND,
    BAND_EDGE,
    INK,
    MARKERS,
    SERIES,
    Layout,
    bar_offset,
    dense,
    fitted,
    legend,
    linear_axis,
    log_axis,
    number_ticks,
    panel_title,
    row_axes,
    row_text,
)  # fmt: skip
from harness.report.jobs import MOST_LANES, lanes_of
from harness.report.saves import SAVE_MEASURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

DURABLE_INK = "#7a1f5c"
LOOKS: dict[str, dict[str, Any]] = {
    "clear": {"facecolor": "#bcd3ea", "linewidth": 0},
    "overlap": {"facecolor": "#f2b45c", "edgecolor": "#5c3000", "hatch": "////", "linewidth": 0},
    "blocked": {"facecolor": INK, "edgecolor": INK, "linewidth": 1.0},
    "pause": {"facecolor": "white", "edgecolor": "#8490a0", "hatch": "xxxx", "linewidth": 0},
}
"""Light, hatched, black, crossed: four bands that also differ in grey. Dots would take six times the bytes of an SVG."""
SAYS = {
    "clear": "steps", "overlap": "steps while a save is written", "blocked": "held by a save", "pause": "pause to check a save", "durable": "save on the disk",
}  # fmt: skip
TITLES = {
    "blocked": "how long a save holds training (saves 2 and later)",
    "overlap": "longer steps while one save is written, in all",
    "durable": "how long until a save is on the disk",
}


def stalls(timeline: pd.DataFrame, layout: Layout) -> Figure | None:
    """One lane a job, from its start to its end: steps, the time that saves held it, the steps that ran while a save was written, durable saves."""
    if timeline.empty:
        return None
    layout = dense(layout)
    panels, room = [], MOST_LANES
    for title, lanes in lanes_of(timeline):
        if room >= min(2, len(lanes)):
            panels.append((title, lanes[:room]))
            room -= len(lanes[:room])
    kinds = [kind for kind in SAYS if kind in set(timeline["kind"])]
    columns = 2 if layout.narrow else 3
    head = 0.1 + 0.24 * -(-len(kinds) // columns)
    figure, axes = row_axes(layout, [len(lanes) for _, lanes in panels], top=0.42, head=head)
    for ax, (title, lanes) in zip(axes, panels, strict=True):
        panel_title(ax, layout, title)
        linear_axis(
            ax,
            float(max(max(lane["job_s"].max(), lane["end_s"].max()) for _, lane in lanes)),
            layout,
            "time since the job's start (s)",
            number_ticks(),
        )
        for i, (label, lane) in enumerate(lanes):
            _lane(ax, i + bar_offset(layout), 0.34 if layout.narrow else 0.46, lane)
            row_text(ax, layout, i, label, "", ("", INK), lane_text(lane))
    legend(figure, [_handle(kind) for kind in kinds], layout, columns)
    return figure


def lane_text(lane: pd.DataFrame) -> str:
    """Return how long a job took and how much of it saves held."""
    held = lane[lane["kind"].eq("blocked")]
    job = f"{numbers.seconds(float(lane['job_s'].iloc[0]))} in all"
    return f"{job}, held {numbers.seconds(float((held['end_s'] - held['start_s']).sum()))}" if len(held) else job


def _lane(ax: Axes, y: float, height: float, lane: pd.DataFrame) -> None:
    ax.add_patch(
        Rectangle((0, y - height / 2), float(lane["job_s"].iloc[0]), height, facecolor="none", edgecolor="#9aa5b3", linewidth=0.8, zorder=2.4)
    )
    for kind, look in LOOKS.items():
        part = lane[lane["kind"].eq(kind)]
        if len(part):
            ax.add_patch(PathPatch(_boxes(part["start_s"].tolist(), part["end_s"].tolist(), y, height), zorder=3 if kind == "blocked" else 2, **look))
    marks = lane.loc[lane["kind"].eq("durable"), "end_s"].tolist()
    if marks:
        ax.plot(marks, [y - height / 2 - 0.02] * len(marks), linestyle="none", zorder=4, clip_on=False, **_durable())


def _durable() -> dict[str, Any]:
    return {"marker": "v", "color": DURABLE_INK, "markersize": 7, "markeredgecolor": "white", "markeredgewidth": 0.8}


def _boxes(starts: Sequence[float], ends: Sequence[float], y: float, height: float) -> Path:
    """Return all of a lane's boxes of one kind as one outline: a job of many saves stays one shape."""
    below, above = y - height / 2, y + height / 2
    corners = [[(a, below), (b, below), (b, above), (a, above), (a, below)] for a, b in zip(starts, ends, strict=True)]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(corners)
    return Path(np.array([corner for box in corners for corner in box]), codes)


def _handle(kind: str) -> Any:  # noqa: ANN401 - a patch or a line
    if kind == "durable":
        return Line2D([], [], linestyle="none", label=SAYS[kind], **_durable())
    return Patch(label=SAYS[kind], **LOOKS[kind])


def saves(frame: pd.DataFrame, levels: Sequence[tuple[str, str, float | None, float | None]], layout: Layout) -> Figure | None:
    """One panel each for the time a save holds training, the longer steps, and the time until it is durable; a row a cell that saves.

    `levels` are (claim, measure, lo, hi) in seconds, marked in their panel.
    """
    measures = [measure for measure in SAVE_MEASURES if frame.loc[frame["measure"].eq(measure), "point"].notna().any()]
    if not measures:
        return None
    layout = dense(layout)
    parts = [frame[frame["measure"].eq(measure)].reset_index(drop=True) for measure in measures]
    claimed = [[entry for entry in levels if entry[1] == measure] for measure in measures]
    figure, axes = row_axes(layout, [len(part) for part in parts], top=[0.72 if marks else 0.42 for marks in claimed])
    for ax, measure, part, marks in zip(axes, measures, parts, claimed, strict=True):
        edges = [edge for entry in marks for edge in entry[2:] if edge is not None]
        amount_rows(ax, part, layout, "seconds a save", edges)
        panel_title(ax, layout, TITLES[measure], up=0.36 if marks else 0.12)
        for claim, _, lo, hi in marks[:1]:
            mark_band(ax, layout, lo, hi, f"claimed: {numbers.band(lo, hi, 's')} ({claim})")
    return figure


def slowdown(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """The whole job's time over that of the job without saves, against the seconds between saves; the line is 1 + held time / interval."""
    known = frame[frame["point"].notna() & frame["interval_s"].notna()]
    if known.empty:
        return None
    figure = Figure(figsize=(layout.width, 5.2 if layout.narrow else 5.0), layout="constrained")
    ax = figure.add_subplot()
    first, last = float(known["interval_s"].min()), float(known["interval_s"].max())
    grid = np.geomspace(first / 1.4, last * 1.4, 40)
    top = bottom = 1.0
    handles: list[Any] = []
    for k, (series, part) in enumerate(known.groupby("series", sort=False)):
        look: dict[str, Any] = {"color": SERIES[k % len(SERIES)], "marker": MARKERS[k % len(MARKERS)], "markersize": 8, "markeredgecolor": "white"}
        dashes: dict[str, Any] = {"linestyle": (0, (5, 2)), "linewidth": 1.6}
        said = str(series)
        held = pd.to_numeric(part["blocked_s"]).dropna()
        if len(held):
            line = 1 + float(held.median()) / grid
            ax.plot(grid, line, color=look["color"], **dashes)
            said = f"{series} (line: 1 + {numbers.seconds(float(held.median()))} held / interval)"
            top = max(top, float(line[grid >= first].max()))
        spans = part.dropna(subset=["low", "high"])
        ax.vlines(
            spans["interval_s"].astype(float), spans["low"].astype(float), spans["high"].astype(float), color=look["color"], linewidth=2.4, zorder=3
        )
        ax.plot(part["interval_s"].astype(float), part["point"].astype(float), linestyle="none", zorder=4, **look)
        handles.append(Line2D([], [], label=_short(said, layout), **look, **(dashes if len(held) else {"linestyle": "none"})))
    edges = [float(v) for name in ("point", "low", "high", "lo", "hi") for v in pd.to_numeric(known[name]).dropna()]
    top, bottom = max(top, *edges), min(bottom, *edges)
    pad = 0.08 * max(top - bottom, 0.02)
    ax.set_ylim(bottom - pad, top + pad)
    handles += _claimed(ax, known, layout)
    ax.axhline(1, color=INK, linewidth=1.3, zorder=1.5)
    log_axis(ax, (float(grid[0]), float(grid[-1])), layout, numbers.plain)
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{numbers.plain(v)}x"))
    ax.set_xlabel("seconds of computing between two saves, log scale")
    ax.set_ylabel("time with saves over time without")
    ax.set_title("Whole jobs, with saves over without", fontsize=11)
    figure.legend(handles=handles, loc="outside lower center", ncols=1 if layout.narrow else 2)
    return figure


def _short(text: str, layout: Layout) -> str:
    return fitted(text, (layout.width - 0.9) / (1 if layout.narrow else 2) - (0.0 if layout.narrow else 0.4), 10.5)[0]


def _claimed(ax: Axes, known: pd.DataFrame, layout: Layout) -> list[Any]:
    """Draw the band that is claimed at an interval as a pale box around it; an open side runs to the axis' end. Returns what the legend is to name."""
    boxes: list[Any] = []
    row: Any
    for row in known.dropna(subset=["claim"]).itertuples():
        low, high = (end if pd.isna(value) else float(value) for value, end in zip((row.lo, row.hi), ax.get_ylim(), strict=True))
        left, right = row.interval_s / 1.12, row.interval_s * 1.12
        said = f"claimed: {numbers.band(_or_none(row.lo), _or_none(row.hi), '')} at {numbers.seconds(row.interval_s)} ({row.claim})"
        box = Rectangle(
            (left, low), right - left, high - low, facecolor=BAND, edgecolor=BAND_EDGE, linewidth=1.4, zorder=1, label=_short(said, layout)
        )
        boxes.append(ax.add_patch(box))
    return boxes


def _or_none(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(value)
