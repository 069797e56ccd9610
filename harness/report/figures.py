"""The figures: frame -> matplotlib Figure. Each takes a frame of `tables` (or `blocks`) and a layout; None where there is nothing to draw.

Ratios stand on a log axis around 1; nothing is clamped: an open side of an interval is an arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import blended_transform_factory

from harness.model import Word
from harness.report import feed_figures, job_figures, mfu_figures, numbers, telemetry_figures
from harness.report.canvas import (
    BAND,
    BAND_EDGE,
    EXECUTION,
    GAIN,
    INK,
    LOSS,
    MARKERS,
    SERIES,
    UNKNOWN,
    WIDE,
    Layout,
    axes_height,
    bar_offset,
    dense,
    legend,
    linear_axis,
    number_ticks,
    panel_title,
    panels,
    ratio_axis,
    row_axes,
    row_text,
    shorten,
)  # fmt: skip
from harness.report.words import LOOKS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes

MOST_BARS = 24  # cells in the memory and phases figures; the tables beside them hold all


def _finite(frame: pd.DataFrame, columns: Iterable[str]) -> list[float]:
    return [float(v) for column in columns for v in pd.to_numeric(frame[column]).dropna()]


def forest(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """The judged ratios: each measured interval in the colour and marker of its word, over the band that was claimed."""
    if frame.empty:
        return None
    counts = panels(len(frame))
    figure, axes = row_axes(layout, counts, top=0.5 if not layout.narrow else 0.78)
    repeated = frame["claim"].duplicated(keep=False)
    start = 0
    for ax, count in zip(axes, counts, strict=True):
        limits = ratio_axis(ax, _finite(frame, ("lo", "hi", "point", "low", "high")), layout)
        for i in range(count):
            row: Any = frame.iloc[start + i]
            look = LOOKS[Word(row.word)]
            y = i + bar_offset(layout)
            _band(ax, y, row.lo, row.hi, limits, 0.34 if layout.narrow else 0.6)
            _interval(ax, y, row, limits, look.ink, 0.13 if layout.narrow else 0.22)
            label = f"{row.claim} ({row.title})" if repeated[start + i] and layout.narrow else row.claim
            row_text(ax, layout, i, label, row.title, (f"{look.symbol} {row.word}", look.ink), row.measured)
        ax.set_xlabel("ratio, treatment over baseline (log scale)")
        start += count
    handles = [
        Patch(facecolor=BAND, edgecolor=BAND_EDGE, label="claimed"),
        Line2D(
            [],
            [],
            color=INK,
            linewidth=7,
            marker="|",
            markersize=14,
            markeredgewidth=2.4,
            solid_capstyle="butt",
            label="measured: point and interval",
        ),
        Line2D([], [], color=INK, linewidth=1.3, label="1x: no effect"),
    ]
    legend(figure, handles, layout, columns=3 if not layout.narrow else 2)
    return figure


def _band(ax: Axes, y: float, lo: float | None, hi: float | None, limits: tuple[float, float], height: float) -> None:  # noqa: PLR0917
    if pd.isna(lo) and pd.isna(hi):
        return
    left, right = (limits[0] if pd.isna(lo) else float(lo or 0)), (limits[1] if pd.isna(hi) else float(hi or 0))
    left, right = max(left, limits[0]), min(right, limits[1])
    ax.add_patch(Rectangle((left, y - height / 2), right - left, height, facecolor=BAND, edgecolor="none", zorder=1))
    for edge in (lo, hi):
        if pd.notna(edge):
            ax.plot([edge, edge], [y - height / 2, y + height / 2], color=BAND_EDGE, linewidth=1.6, zorder=1.2, solid_capstyle="butt")


def _interval(ax: Axes, y: float, row: Any, limits: tuple[float, float], ink: str, height: float) -> None:  # noqa: ANN401, PLR0917 - a row of a frame
    """Draw the interval as a block and the point as a taller stroke; an open or zero side runs to the axis' end as an arrow.

    One round has no interval, and its point is a hollow circle.
    """
    low, high = row.low, row.high
    alone = pd.isna(low) and pd.isna(high)
    if not alone:
        left = limits[0] if pd.isna(low) or low <= 0 else max(low, limits[0])
        right = limits[1] if pd.isna(high) else min(high, limits[1])
        block = Rectangle((left, y - height / 2), right - left, height, facecolor=ink, edgecolor=ink, linewidth=1.2, zorder=3)
        ax.add_patch(block)
        if pd.isna(low) or low <= 0:
            ax.plot([limits[0]], [y], marker="<", color=ink, markersize=11, clip_on=False, zorder=3)
        if pd.isna(high):
            ax.plot([limits[1]], [y], marker=">", color=ink, markersize=11, clip_on=False, zorder=3)
    if pd.notna(row.point) and row.point > 0:
        if alone:
            ax.plot([row.point], [y], marker="o", markersize=8, markerfacecolor="white", markeredgecolor=ink, markeredgewidth=1.8, zorder=4)
        else:
            ax.plot([row.point] * 2, [y - height, y + height], color=ink, linewidth=2.4, solid_capstyle="butt", zorder=4)


def speedups(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """One bar a switch, from 1 to its ratio: to the right a gain, to the left a slowdown."""
    if frame.empty:
        return None
    counts = panels(len(frame), 18)
    figure, axes = row_axes(layout, counts, top=0.42)
    start = 0
    for ax, count in zip(axes, counts, strict=True):
        part = frame.iloc[start : start + count].reset_index(drop=True)
        _ratio_bars(ax, part, layout, ratio_axis(ax, _finite(frame, ("point", "low", "high")), layout, least=(0.7, 1.4)), "switch", "title")
        start += count
    return figure


def _ratio_bars(ax: Axes, part: pd.DataFrame, layout: Layout, limits: tuple[float, float], label: str, detail: str | None) -> None:  # noqa: PLR0917
    for i in range(len(part)):
        row: Any = part.iloc[i]
        ink, word = _direction(row)
        y = i + bar_offset(layout)
        if pd.isna(row.point) and (pd.notna(row.low) or pd.notna(row.high)):
            _interval(ax, y, row, limits, ink, 0.09 if layout.narrow else 0.15)
        elif pd.notna(row.point) and row.point > 0:
            height = 0.26 if layout.narrow else 0.46
            ax.barh(y, row.point - 1, left=1, height=height, color=ink, alpha=0.28, edgecolor=ink, linewidth=0, zorder=2)
            _interval(ax, y, row, limits, ink, 0.09 if layout.narrow else 0.15)
        else:
            ax.plot([1], [y], marker="x", color=UNKNOWN, markersize=8, markeredgewidth=2, zorder=3)
        row_text(ax, layout, i, row[label], row[detail] if detail else "", (word, ink) if word else ("", ink), row.measured)
    ax.set_xlabel("throughput ratio, on over off (log scale)")
    across = blended_transform_factory(ax.transAxes, ax.transAxes)
    height = axes_height(ax)
    one = ax.transAxes.inverted().transform(ax.transData.transform((1, 0)))[0]
    for x, text, side, color in ((one - 0.015, "◀ slower", "right", LOSS), (one + 0.015, "faster ▶", "left", GAIN)):
        ax.text(x, 1 + 0.1 / height, text, transform=across, ha=side, va="bottom", fontsize=10.5, color=color, weight="bold")


def _direction(row: Any) -> tuple[str, str]:  # noqa: ANN401 - a row of a frame
    """Colour and word of a ratio bar, by where the whole interval lies; without an interval nothing is said."""
    if getattr(row, "unproven", False) is True:
        return UNKNOWN, "not proven equal"
    if pd.notna(row.low) and row.low > 1:
        return GAIN, "faster"
    if pd.notna(row.high) and row.high < 1:
        return LOSS, "slowdown"
    return UNKNOWN, "no difference shown" if pd.notna(row.low) or pd.notna(row.high) else ""


def ladder(frames: list[tuple[str, pd.DataFrame]], layout: Layout) -> Figure | None:
    """A ladder's steps with their product and the measured total, then what each switch is worth at the end, as panels."""
    parts = []
    for title, frame in frames:
        steps = frame[frame["kind"].isin(["rung", "product", "total"])]
        order = steps["kind"].map({"rung": 0, "product": 1, "total": 2})
        name = f"{title}: " if len(frames) > 1 else ""
        parts.append((f"{name}switched on one after another", steps.assign(o=order).sort_values("o", kind="stable").reset_index(drop=True)))
        parts.append((f"{name}all on against all on but this one", frame[frame["kind"].eq("without")].reset_index(drop=True)))
    parts = [(title, frame) for title, frame in parts if len(frame)]
    if not parts:
        return None
    values = [v for _, frame in parts for v in _finite(frame, ("point", "low", "high"))]
    figure, axes = row_axes(layout, [len(frame) for _, frame in parts], top=0.78)
    for ax, (title, frame) in zip(axes, parts, strict=True):
        _ratio_bars(ax, frame, layout, ratio_axis(ax, values, layout, least=(0.7, 1.4)), "label", None)
        panel_title(ax, layout, title, up=0.46)
    return figure


def throughput(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """Throughput against batch size, one panel a family of cells, one curve an arm; thin bars span the rounds."""
    if frame.empty:
        return None
    names = list(dict.fromkeys(frame["panel"]))[:6]
    across = 1 if layout.narrow or len(names) == 1 else 2
    down = -(-len(names) // across)
    figure = Figure(figsize=(layout.width, 4.1 * down), layout="constrained")
    for k, name in enumerate(names):
        ax = figure.add_subplot(down, across, k + 1)
        _curves(ax, frame[frame["panel"].eq(name)], name, 44 if layout.narrow or across == 2 else 90)
    return figure


def _curves(ax: Axes, part: pd.DataFrame, name: str, width: int) -> None:
    for k, (label, curve) in enumerate(part.groupby("label", sort=False)):
        execution = curve["execution"].iloc[0]
        alone = len(set(part["label"][part["execution"].eq(execution)])) == 1  # else two curves would share a colour
        color = EXECUTION.get(execution, SERIES[k % len(SERIES)]) if alone else SERIES[k % len(SERIES)]
        ax.plot(
            curve["batch"], curve["rate"], color=color, marker=MARKERS[k % len(MARKERS)], markersize=7, linewidth=2.2, label=shorten(str(label), 32)
        )
        spans = curve.dropna(subset=["low", "high"])
        ax.vlines(spans["batch"], spans["low"].astype(float), spans["high"].astype(float), color=color, linewidth=1.6)
    batches = sorted(part["batch"].unique())
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator([float(b) for b in batches]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: numbers.count(round(v))))
    ax.set_ylim(0, float(part[["rate", "high"]].astype(float).max().max()) * 1.12)
    ax.set_xlabel("batch size")
    ax.set_ylabel(f"{part['unit'].iloc[0].removesuffix('/s')}/s")
    ax.set_title(shorten(name, width), fontsize=11)
    ax.legend(loc="best")


def memory(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """The highest host memory (peak RSS) of each arm, in GiB or MiB."""
    shown = frame.head(MOST_BARS).reset_index(drop=True)
    if shown.empty:
        return None
    big = shown["peak_rss_bytes"].max() >= 2**30
    scale, unit = (2**30, "GiB") if big else (2**20, "MiB")
    layout = dense(layout)
    figure, (ax,) = row_axes(layout, [len(shown)], top=0.15)
    for i, (label, peak) in enumerate(zip(shown["label"], shown["peak_rss_bytes"], strict=True)):
        ax.barh(i + bar_offset(layout), peak / scale, height=0.36 if layout.narrow else 0.5, color=SERIES[0], alpha=0.75, zorder=2)
        row_text(ax, layout, i, label, "", ("", INK), numbers.size(peak))
    linear_axis(ax, float(shown["peak_rss_bytes"].max()) / scale, layout, f"peak resident memory of the process ({unit})", number_ticks())
    return figure


def phases(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """How long each arm takes until it is warm, phase by phase, stacked in the order in which they happen."""
    shown = frame.head(MOST_BARS).reset_index(drop=True)
    names = [name for name in ("spawn", "import", "build", "trace", "first", "warmup") if name in shown and shown[name].sum() > 0]
    if shown.empty or not names:
        return None
    colors = {"spawn": "#b9c2ce", "import": "#7d93ad", "build": "#3a9bd0", "trace": "#e0a100", "first": "#c96a00", "warmup": "#00795e"}
    layout = dense(layout)
    figure, (ax,) = row_axes(layout, [len(shown)], top=0.5 if not layout.narrow else 0.78)
    totals = shown[names].sum(axis=1)
    for i in range(len(shown)):
        left = 0.0
        for name in names:
            value = float(shown[name][i])
            ax.barh(
                i + bar_offset(layout),
                value,
                left=left,
                height=0.36 if layout.narrow else 0.5,
                color=colors[name],
                edgecolor="white",
                linewidth=0.8,
                zorder=2,
            )
            left += value
        row_text(ax, layout, i, shown["label"][i], "", ("", INK), f"{numbers.seconds(float(totals[i]))} in all")
    linear_axis(ax, float(totals.max()), layout, "time from start to warm (s)", number_ticks())
    says = {"first": "first call", "warmup": "warm-up"}
    legend(figure, [Patch(color=colors[name], label=says.get(name, name)) for name in names], layout, columns=len(names) if not layout.narrow else 3)
    return figure


def draw(tables: dict[str, Any], layout: Layout = WIDE) -> dict[str, Figure]:
    """Return every figure that has something to show, by the name it is saved under."""
    made = {
        "forest": forest(tables["forest"], layout),
        "speedups": speedups(tables["speedups"], layout),
        "ladder": ladder(tables["ladder"], layout),
        "throughput": throughput(tables["throughput"], layout),
        "pipelines": feed_figures.pipelines(tables["pipelines"], tables["need"], layout),
        "input_wait": feed_figures.input_wait(tables["waits"], layout),
        "replay": feed_figures.replay(tables["replay"], layout),
        "feeding": feed_figures.feeding(tables["feeding"], layout),
        "stalls": job_figures.stalls(tables["timeline"], layout),
        "saves": job_figures.saves(tables["saves"], tables["save_levels"], layout),
        "slowdown": job_figures.slowdown(tables["slowdown"], layout),
        "memory": memory(tables["memory"], layout),
        "phases": phases(tables["phases"], layout),
        "telemetry": telemetry_figures.telemetry(tables["telemetry"], layout),
        "mfu": mfu_figures.mfu(tables["mfu"], layout),
        "roofline": mfu_figures.roofline(tables["rooflines"], layout),
    }
    return {name: figure for name, figure in made.items() if figure is not None}
