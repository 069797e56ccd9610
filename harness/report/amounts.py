"""Rows of amounts (seconds, samples per second): a bar from 0 with the range of the rounds in it, on a log axis where the amounts lie far apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.patches import Rectangle

from harness.report import numbers
from harness.report.canvas import (
    BAND,
    BAND_EDGE,
    INK,
    SERIES,
    UNKNOWN,
    Layout,
    axes_height,
    bar_offset,
    fitted,
    linear_axis,
    log_axis,
    number_ticks,
    row_text,
    text_width,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

SPREAD = 20.0
"""Largest over smallest amount from which a linear axis would hide the small ones."""


def amount_axis(ax: Axes, values: Sequence[float], layout: Layout, label: str) -> float:
    """Make x an axis that shows every one of `values`, and return where its bars begin: 0, or on a log axis its left end.

    Only amounts above 0 that lie more than SPREAD apart get a log axis; its label says so.
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if low <= 0 or high / low <= SPREAD:
        linear_axis(ax, high, layout, label, number_ticks())
        if low < 0:
            ax.set_xlim(left=low * 1.15)
            ax.axvline(0, color=INK, linewidth=1.3, zorder=1.5)
        return 0.0
    limits = (low / 1.8, high * 1.25)
    log_axis(ax, limits, layout, numbers.plain)
    ax.set_xlabel(f"{label}, log scale")
    return limits[0]


def amount_rows(ax: Axes, part: pd.DataFrame, layout: Layout, label: str, marks: Sequence[float] = (), ink: str = SERIES[0]) -> None:  # noqa: PLR0917
    """Draw one row an entry of `part` (label, point, low, high, text): a pale bar to the point, a dark block over the range of the rounds.

    `marks` are values beside the rows' own that the axis must hold. A row without a point is a cross at the left; its text says why.
    """
    shown = [float(v) for name in ("point", "low", "high") for v in pd.to_numeric(part[name]).dropna()]
    left = amount_axis(ax, [*shown, *marks], layout, label)
    for i in range(len(part)):
        row: Any = part.iloc[i]
        y = i + bar_offset(layout)
        row_text(ax, layout, i, row.label, "", ("", INK), row.text)
        if pd.isna(row.point):
            ax.plot([0.012], [y], marker="x", color=UNKNOWN, markersize=7, markeredgewidth=2, transform=ax.get_yaxis_transform(), zorder=3)
            continue
        height = 0.34 if layout.narrow else 0.5
        ax.barh(y, row.point - left, left=left, height=height, color=ink, alpha=0.3, linewidth=0, zorder=2)
        if pd.notna(row.low) and pd.notna(row.high) and row.high > row.low:
            span = (row.low, y - height / 6)
            ax.add_patch(Rectangle(span, row.high - row.low, height / 3, facecolor=ink, edgecolor=ink, linewidth=1, zorder=3))
        ax.plot([row.point] * 2, [y - height / 2, y + height / 2], color=ink, linewidth=2.6, solid_capstyle="butt", zorder=4)


def mark_band(ax: Axes, layout: Layout, lo: float | None, hi: float | None, text: str) -> None:
    """Show what was claimed of a panel's amounts: a pale band with dashed edges, named above the axes."""
    left, right = ax.get_xlim()
    start, end = max(left, left if lo is None else lo), min(right, right if hi is None else hi)
    ax.axvspan(start, end, facecolor=BAND, alpha=0.55, edgecolor="none", zorder=0.4)
    for edge in (value for value in (lo, hi) if value is not None):
        mark_line(ax, edge)
    name_mark(ax, layout, lo if lo is not None else start, text)


def mark_line(ax: Axes, x: float) -> None:
    """Draw a dashed line across all rows."""
    ax.axvline(x, color=BAND_EDGE, linewidth=1.8, linestyle=(0, (4, 2)), zorder=2.2)


def name_mark(ax: Axes, layout: Layout, x: float, text: str) -> None:
    """Write what a line at `x` stands for above the axes: from the line on, or up to it, moved as far as the picture's edge demands."""
    at = float(ax.transAxes.inverted().transform(ax.transData.transform((x, 0)))[0])
    first, last = (0.0, 1.0) if layout.narrow else (0.1 - layout.left / layout.plot, 1 + (layout.right - 0.1) / layout.plot)
    said = fitted(text, (last - first) * layout.plot, 9.5)[0]
    width = text_width(said, 9.5) / layout.plot
    start = min(max(at if at <= 0.5 else at - width, first), last - width)
    ax.text(start, 1 + 0.05 / axes_height(ax), said, transform=ax.transAxes, va="bottom", fontsize=9.5, color=INK)
