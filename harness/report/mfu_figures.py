"""Figures of arithmetic: what each arm reaches against what the device can, and the roofs themselves. Values of `mfu` -> Figure, None without data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullLocator

from harness.report import numbers
from harness.report.canvas import (
    INK,
    MARKERS,
    SERIES,
    SOFT,
    UNKNOWN,
    Layout,
    bar_offset,
    dense,
    fitted,
    legend,
    log_axis,
    panel_title,
    row_axes,
    row_text,
)  # fmt: skip
from harness.report.mfu import MOST_ROWS, mfu_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from harness.report.mfu import Roofline

ROOF_LINE: dict[str, Any] = {"color": SERIES[1], "linewidth": 2.4, "linestyle": (0, (2, 1))}


def prefixed(value: float) -> str:
    """Return a large number with a decimal prefix, for ticks: 500 M, 2 G, 1.5 T."""
    step = 0
    while abs(value) >= 999.5 and step < 5:
        value, step = value / 1000, step + 1
    return f"{numbers.plain(value)} {('', 'k', 'M', 'G', 'T', 'P')[step]}".strip()


def mfu(frame: pd.DataFrame, layout: Layout) -> Figure | None:
    """One bar an arm on a log axis: the FLOP/s that it reaches; a tick where the matrix product of its precision lies on the same device."""
    shown = frame.head(MOST_ROWS).reset_index(drop=True)
    if shown.empty or shown["point"].isna().all():
        return None
    layout = dense(layout)
    figure, (ax,) = row_axes(layout, [len(shown)], top=0.42, head=0.36)
    panel_title(ax, layout, "how much arithmetic each arm does")
    known = [float(v) for name in ("point", "low", "high", "roof") for v in shown[name].dropna() if v > 0]
    left = min(known) / 1.8
    log_axis(ax, (left, max(known) * 1.25), layout, prefixed)
    ax.set_xlabel("FLOP/s, log scale")
    for i in range(len(shown)):
        row: Any = shown.iloc[i]
        row_text(ax, layout, i, row.label, "", ("", INK), mfu_text(row))
        _bar(ax, row, left, i + bar_offset(layout), 0.34 if layout.narrow else 0.5)
    roof = Line2D([], [], label="matrix product of the same precision", **ROOF_LINE)
    legend(figure, [Patch(facecolor=SERIES[0], alpha=0.3, label="what the arm reaches"), roof], layout, columns=1 if layout.narrow else 2)
    return figure


def _bar(ax: Axes, row: Any, left: float, y: float, height: float) -> None:  # noqa: ANN401 - a row of a frame
    if pd.notna(row.roof):
        ax.plot([row.roof] * 2, [y - 0.64 * height, y + 0.64 * height], zorder=4.5, **ROOF_LINE)
    if pd.isna(row.point):
        ax.plot([0.012], [y], marker="x", color=UNKNOWN, markersize=7, markeredgewidth=2, transform=ax.get_yaxis_transform(), zorder=3)
        return
    ax.barh(y, row.point - left, left=left, height=height, color=SERIES[0], alpha=0.3, linewidth=0, zorder=2)
    if pd.notna(row.low) and pd.notna(row.high) and row.high > row.low:
        ax.add_patch(
            Rectangle((row.low, y - height / 6), row.high - row.low, height / 3, facecolor=SERIES[0], edgecolor=SERIES[0], linewidth=1, zorder=3)
        )
    ax.plot([row.point] * 2, [y - height / 2, y + height / 2], color=SERIES[0], linewidth=2.6, solid_capstyle="butt", zorder=4)


def roofline(lines: Sequence[Roofline], layout: Layout) -> Figure | None:
    """One panel a kind of device: FLOP/s that memory and arithmetic allow, against FLOP for each byte moved, and the products that were measured."""
    if not lines:
        return None
    across = 1 if layout.narrow or len(lines) == 1 else 2
    down = -(-len(lines) // across)
    figure = Figure(figsize=(layout.width, 4.4 * down), layout="constrained")
    for k, line in enumerate(lines):
        _roofs(figure.add_subplot(down, across, k + 1), line, layout.width / across - 1.6)
    return figure


def _roofs(ax: Axes, line: Roofline, room: float) -> None:
    ridges = [ridge for peak in line.peaks if (ridge := line.ridge(peak)) is not None]
    known = [point.intensity for point in line.points if point.intensity is not None]
    low, high = min([*ridges, *known, 8.0]) / 30, max([*ridges, *known, 8.0]) * 4
    x = np.geomspace(low, high, 60)
    lowest = min(peak.rate for peak in line.peaks) / 40
    if line.copy is not None:
        ax.plot(
            x,
            line.copy.rate * x,
            color=SOFT,
            linewidth=1.4,
            linestyle=(0, (5, 2)),
            label=fitted(f"memory: {numbers.rate(line.copy.rate, 'B')}", room, 10)[0],
        )
        lowest = min(lowest, line.copy.rate * low * 1.5)
    for k, peak in enumerate(line.peaks):
        color, marker = SERIES[k % len(SERIES)], MARKERS[k % len(MARKERS)]
        top = np.full_like(x, peak.rate) if line.copy is None else np.minimum(peak.rate, line.copy.rate * x)
        said = fitted(f"{peak.dtype}: {numbers.rate(peak.rate, 'FLOP')}", room, 10)[0]
        ax.plot(x, top, color=color, linewidth=2.2, label=said)
        placed = [(point.intensity, point.rate) for point in line.points if point.dtype == peak.dtype and point.intensity is not None]
        ax.plot(
            [at for at, _ in placed], [rate for _, rate in placed], color=color, marker=marker, markersize=8, markeredgecolor="white",
            linestyle="none", zorder=4,
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(lowest, max(peak.rate for peak in line.peaks) * 3)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda v, _: prefixed(v)))
    ax.set_xlabel("FLOP for each byte moved, log scale")
    ax.set_ylabel("FLOP/s, log scale")
    ax.set_title({"gpu": "One GPU", "cpu": "All cores"}.get(line.device, line.device), fontsize=11)
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.18), borderaxespad=0)
