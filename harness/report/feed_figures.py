"""Figures on feeding: pipelines by themselves, waiting for input, stand-in accelerators. Frame of `feeds` or `blocks` -> Figure, None without data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from harness.report import numbers
from harness.report.amounts import amount_rows, mark_line, name_mark
from harness.report.canvas import (
    BAND_EDGE,
    INK,
    MARKERS,
    SERIES,
    SOFT,
    Layout,
    bar_offset,
    dense,
    fitted,
    legend,
    linear_axis,
    panel_title,
    row_axes,
    row_text,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 24
"""Rows that a figure shows; the table beside it holds all."""

WAITING: dict[str, Any] = {"facecolor": "#f2b45c", "edgecolor": "#5c3000", "hatch": "////", "linewidth": 0}
COMPUTING: dict[str, Any] = {"facecolor": "#bcd3ea", "linewidth": 0}
AXES = {"cores": "cores that decode", "step_ms": "time of a step (ms)"}
TITLES = {"cores": "Delivered, by cores", "step_ms": "Delivered, by the time of a step"}


def pipelines(frame: pd.DataFrame, need: tuple[str, float] | None, layout: Layout) -> Figure | None:
    """One bar an input pipeline that ran by itself; a dashed line where the fastest training would be satisfied."""
    shown = frame.head(MOST_ROWS).reset_index(drop=True)
    if shown.empty or shown["point"].isna().all():
        return None
    layout = dense(layout)
    figure, (ax,) = row_axes(layout, [len(shown)], top=0.72 if need else 0.42)
    panel_title(ax, layout, "what each input pipeline delivers by itself", up=0.36 if need else 0.12)
    amount_rows(ax, shown, layout, f"delivered by the pipeline alone ({_unit(shown)})", [need[1]] if need else [])
    if need:
        mark_line(ax, need[1])
        name_mark(ax, layout, need[1], f"{numbers.rate(need[1], _unit(shown))}: {need[0]} takes no more")
    return figure


def _unit(frame: pd.DataFrame) -> str:
    return str(frame["unit"].iloc[0])


def input_wait(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """One bar an arm: which share of its time went into waiting for the next batch, and which into computing."""
    shown = frame.head(MOST_ROWS).reset_index(drop=True)
    if shown.empty:
        return None
    layout = dense(layout)
    figure, (ax,) = row_axes(layout, [len(shown)], top=0.42, head=0.36)
    panel_title(ax, layout, "how long each arm waits for its next batch")
    height = 0.34 if layout.narrow else 0.5
    for i, (label, share) in enumerate(zip(shown["label"], shown["share"], strict=True)):
        y, waiting = i + bar_offset(layout), min(max(float(share), 0.0), 1.0) * 100
        ax.barh(y, waiting, height=height, zorder=2, **WAITING)
        ax.barh(y, 100 - waiting, left=waiting, height=height, zorder=2, **COMPUTING)
        row_text(ax, layout, i, label, "", ("", INK), f"{numbers.percent(share)} waiting")
    linear_axis(ax, 100 / 1.06, layout, "share of the time (%)", FuncFormatter(lambda v, _: numbers.plain(v)))
    ax.xaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    legend(figure, [Patch(label="waiting for input", **WAITING), Patch(label="computing", **COMPUTING)], layout, columns=2)
    return figure


def replay(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """One bar an arm: what its stand-in accelerators got; a tick where they would have had all they ask for."""
    shown = frame.head(MOST_ROWS).reset_index(drop=True)
    if shown.empty or shown["point"].isna().all():
        return None
    asked = pd.to_numeric(shown["asked"])
    layout = dense(layout)
    figure, (ax,) = row_axes(layout, [len(shown)], top=0.42, head=0.36)
    panel_title(ax, layout, "what stand-in accelerators get and ask for")
    rows = shown.assign(text=[fed_text(row) for row in shown.itertuples()])
    amount_rows(ax, rows, layout, f"reached the stand-in accelerators ({_unit(shown)})", asked.dropna().tolist())
    height = 0.42 if layout.narrow else 0.64
    for i, most in enumerate(asked):
        if pd.notna(most):
            y = i + bar_offset(layout)
            ax.plot([most] * 2, [y - height / 2, y + height / 2], color=SERIES[1], linewidth=2.2, linestyle=(0, (2, 1)), zorder=4.5)
    tick = Line2D([], [], color=SERIES[1], linewidth=2.2, linestyle=(0, (2, 1)), label="what they ask for")
    legend(figure, [Patch(facecolor=SERIES[0], alpha=0.3, label="what came"), tick], layout, columns=2)
    return figure


def fed_text(row: Any) -> str:  # noqa: ANN401 - a row of a frame
    """Return what came and for how many of the stand-ins that would be enough."""
    if pd.isna(row.point) or pd.isna(row.fed):
        return str(row.text)
    return f"{numbers.rate(row.point, row.unit)}: feeds {numbers.significant(row.fed)} of {numbers.count(row.devices)}"


def feeding(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """Samples per second against cores, or against the time of a step: one curve a pipeline, over what one, two, ... stand-ins ask for."""
    names = list(dict.fromkeys(frame["axis"]))
    if not names:
        return None
    across = 1 if layout.narrow or len(names) == 1 else 2
    down = -(-len(names) // across)
    figure = Figure(figsize=(layout.width, 4.3 * down), layout="constrained")
    for k, name in enumerate(names):
        _curves(figure.add_subplot(down, across, k + 1), frame[frame["axis"].eq(name)], name, layout, across)
    return figure


def _curves(ax: Axes, part: pd.DataFrame, name: str, layout: Layout, across: int) -> None:
    room = layout.width / across - 2.2
    highest = float(part[["point", "high"]].astype(float).max().max())
    for k, (series, curve) in enumerate(part.groupby("series", sort=False)):
        color = SERIES[k % len(SERIES)]
        x = curve["x"].astype(float)
        ax.plot(
            x,
            curve["point"].astype(float),
            color=color,
            marker=MARKERS[k % len(MARKERS)],
            markersize=7,
            linewidth=2.2,
            label=fitted(str(series), room, 10.5)[0],
        )
        spans = curve.dropna(subset=["low", "high"])
        ax.vlines(spans["x"].astype(float), spans["low"].astype(float), spans["high"].astype(float), color=color, linewidth=1.8)
    ax.set_xlim(0, float(part["x"].max()) * 1.12)
    top = highest * 1.15
    if name == "cores":
        top = _whole_devices(ax, part, top)
    else:
        asked = part.dropna(subset=["one"]).sort_values("x")
        ax.plot(asked["x"].astype(float), asked["one"].astype(float), color=SOFT, linestyle=(0, (5, 2)), linewidth=1.6, label="one stand-in asks for")
    ax.set_ylim(0, top)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=name == "cores"))
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: numbers.count(v)))
    ax.set_xlabel(AXES[name])
    ax.set_ylabel(f"delivered ({_unit(part)})")
    ax.set_title(TITLES[name], fontsize=11)
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)


def _whole_devices(ax: Axes, part: pd.DataFrame, top: float) -> float:
    """Draw a line for every whole stand-in that could be fed, and for the first that cannot; return how high the axis must reach."""
    asked = pd.to_numeric(part["one"]).dropna().unique()
    if len(asked) != 1:
        return top
    one = float(asked[0])
    most = math.floor(top / one) or (1 if one <= 3 * top else 0)
    every = max(1, math.ceil(most / 4))
    for count in range(every, most + 1, every):
        ax.axhline(count * one, color=BAND_EDGE, linewidth=1.4, linestyle=(0, (4, 2)), zorder=1.5)
        ax.text(
            0.01, count * one, f"feeds {numbers.plural(count, 'stand-in')}", transform=ax.get_yaxis_transform(), va="bottom", fontsize=9.5, color=SOFT
        )
    return max(top, most * one * 1.1)
