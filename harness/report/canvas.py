"""The look of every figure: fonts, colours, a canvas of labelled rows, ticks of ratios, and saving as SVG and PNG.

Figures are made in two widths: wide for desks and print, narrow for phones, where labels stand above their rows. Text is never parsed as
mathematics and is drawn as outlines, so that a hostile name stays a picture of that name and looks the same on every machine.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import seaborn as sns  # type: ignore[import-untyped,unused-ignore]
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from harness.report import numbers
from harness.report.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

INK, SOFT, LINE, BAND, BAND_EDGE = "#1b2430", "#566070", "#d9dee5", "#d4dde9", "#8496ad"
GAIN, LOSS, UNKNOWN = "#00589c", "#a83400", "#5f6875"
EXECUTION = {"eager": "#c96a00", "graph": "#00589c", "xla": "#00795e"}
SERIES = ("#00589c", "#c96a00", "#00795e", "#7a1f5c", "#8a7000", "#3a9bd0", "#566070")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_RC = {
    **{key: value for key, value in sns.axes_style("whitegrid").items() if not key.startswith("font")},
    "font.family": ["DejaVu Sans"], "font.size": 11, "text.color": INK, "axes.labelcolor": INK, "xtick.color": SOFT, "ytick.color": INK,
    "axes.edgecolor": LINE, "grid.color": "#e7eaef", "grid.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": 12, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.labelsize": 11, "xtick.labelsize": 10.5,
    "ytick.labelsize": 11, "legend.frameon": False, "legend.fontsize": 10.5, "figure.facecolor": "white",
    "text.parse_math": False, "text.usetex": False, "svg.fonttype": "path", "svg.hashsalt": "speedproof", "axes.axisbelow": True,
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """The suite's look, for figures made and saved inside; nothing outside changes."""
    with mpl.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # shown as boxes; the table beside it has them
        yield


@dataclass(frozen=True)
class Layout:
    """Sizes in inches. `left` and `right` are the columns of text beside the axes (0 where labels stand above their rows)."""

    narrow: bool
    width: float
    left: float
    right: float
    row: float

    @property
    def label_width(self) -> int:
        return 40 if self.narrow else int(self.left * 11.5)


WIDE = Layout(False, 10.4, 3.3, 2.75, 0.56)
NARROW = Layout(True, 4.7, 0.12, 0.12, 0.92)


def row_axes(layout: Layout, counts: Sequence[int], top: float = 0.45, bottom: float = 0.62) -> tuple[Figure, list[Axes]]:
    """Return a figure with one axes a panel, `counts` rows each, row 0 at the top. `top` leaves room for a panel's title or legend."""
    heights = [count * layout.row for count in counts]
    total = sum(heights) + len(counts) * (top + bottom)
    figure = Figure(figsize=(layout.width, total))
    axes, y = [], total
    for count, height in zip(counts, heights, strict=True):
        y -= top + height
        width = layout.width - layout.left - layout.right - 0.1
        ax = figure.add_axes((layout.left / layout.width, y / total, width / layout.width, height / total))
        ax.set_ylim(count - 0.5, -0.5)
        ax.yaxis.set_major_locator(NullLocator())
        ax.grid(visible=False, axis="y")
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="x", length=3)
        for i in range(1, count):
            ax.axhline(i - 0.5, color="#eef1f4", linewidth=0.8, zorder=0)
        axes.append(ax)
        y -= bottom
    return figure, axes


def axes_height(ax: Axes) -> float:
    """Return the height of an axes in inches."""
    figure = ax.get_figure(root=True)
    return float(figure.get_size_inches()[1]) * ax.get_position().height if figure is not None else 1.0


def bar_offset(layout: Layout) -> float:
    """How far below a row's middle its bar lies, in rows: labels need the upper part of a narrow row."""
    return 0.24 if layout.narrow else 0.0


def row_text(ax: Axes, layout: Layout, i: int, label: str, detail: str, head: tuple[str, str], value: str) -> None:  # noqa: PLR0917
    """Write a row's texts: bold `label` and soft `detail` on its left, `head` (text, colour) and `value` on its right; stacked if narrow."""
    if layout.narrow:
        # The white ground keeps grid lines and the line at 1 from crossing letters.
        over: dict[str, Any] = {"transform": blended_transform_factory(ax.transAxes, ax.transData), "va": "center", "zorder": 2.5,
                                "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5}}  # fmt: skip
        top = head[0] or value
        dense = not head[0] and not detail
        y = i - (0.28 if dense else 0.33)
        room = 46 - len(top) if head[0] or dense else 46
        ax.text(0, y, shorten(label, room), weight="bold", fontsize=10.5, **over)
        if head[0]:
            ax.text(1, y, head[0], ha="right", weight="bold", fontsize=10, color=head[1], **over)
        if dense:
            ax.text(1, y, value, ha="right", fontsize=10, **over)
        else:
            ax.text(0, i - 0.07, shorten(value or detail, 48), fontsize=10, color=SOFT, **over)
        return
    left = blended_transform_factory(ax.figure.transFigure, ax.transData)
    lines = wrapped(label, layout.label_width, 1 if detail else 2)
    text = "\n".join(lines)
    ax.text(0.008, i - (0.19 if detail else 0), text, transform=left, va="center", weight="bold", fontsize=11, linespacing=1.15)
    if detail:
        ax.text(0.008, i + 0.21, shorten(detail, int(layout.left * 13.2)), transform=left, va="center", fontsize=9.5, color=SOFT)
    right = blended_transform_factory(ax.transAxes, ax.transData)
    gap = 1 + 0.16 / (layout.width - layout.left - layout.right)
    if not head[0]:
        ax.text(gap, i, "\n".join(wrapped(value, 33, 2)), transform=right, va="center", fontsize=10.5, linespacing=1.2)
        return
    lines = wrapped(value, 36, 2)
    up = 0.19 if len(lines) == 1 else 0.3
    ax.text(gap, i - up, head[0], transform=right, va="center", weight="bold", fontsize=11, color=head[1])
    ax.text(
        gap,
        i + (0.21 if len(lines) == 1 else 0.17),
        "\n".join(lines),
        transform=right,
        va="center",
        fontsize=10 if len(lines) == 1 else 9,
        linespacing=1.15,
    )


def shorten(text: str, width: int) -> str:
    """Cut a text to `width` characters with an ellipsis, on one line."""
    flat = one_line(text)
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"


def wrapped(text: str, width: int, lines: int) -> list[str]:
    """Wrap a text to at most `lines` lines; what does not fit ends in an ellipsis."""
    return textwrap.wrap(one_line(text), width, max_lines=lines, placeholder=" …") or [""]


def ratio_axis(ax: Axes, values: Sequence[float], layout: Layout, *, least: tuple[float, float] = (0.8, 1.3)) -> tuple[float, float]:
    """Make x a log axis of ratios around 1 that holds all positive finite `values`; return its limits."""
    finite = [v for v in values if math.isfinite(v) and v > 0] + list(least)
    low, high = min(finite), max(finite)
    pad = (high / low) ** 0.05
    limits = (low / pad, high * pad)
    ax.set_xscale("log")
    ax.set_xlim(*limits)
    ax.xaxis.set_major_locator(FixedLocator(_ratio_ticks(*limits, most=5 if layout.narrow else 9)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{numbers.plain(v)}x"))
    ax.axvline(1, color=INK, linewidth=1.3, zorder=1.5)
    return limits


def _ratio_ticks(low: float, high: float, most: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 1.2, 1.5, 2, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) <= most:
            break
    if len(ticks) > most:
        every = math.ceil(len(ticks) / most)
        zero = next((k for k, t in enumerate(ticks) if math.isclose(t, 1)), 0)
        ticks = [t for k, t in enumerate(ticks) if (k - zero) % every == 0]
    if len(ticks) < 3:
        ticks = [float(t) for t in MaxNLocator(most - 1).tick_values(low, high) if low <= t <= high]
    return ticks


def linear_axis(ax: Axes, highest: float, layout: Layout, label: str, text: FuncFormatter) -> None:
    """Make x a linear axis from 0 to a little over `highest`."""
    ax.set_xlim(0, highest * 1.06 if highest > 0 else 1)
    ax.xaxis.set_major_locator(MaxNLocator(4 if layout.narrow else 7))
    ax.xaxis.set_major_formatter(text)
    ax.set_xlabel(label)


def panels(n: int, most: int = 14) -> list[int]:
    """Split n rows into panels of nearly equal size, at most `most` each."""
    count = max(1, math.ceil(n / most))
    return [n // count + (1 if i < n % count else 0) for i in range(count)]


def to_svg(figure: Figure) -> bytes:
    """Return the figure as SVG, the same bytes for the same figure (no date)."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "Speedproof"})
    return buffer.getvalue()


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """Return the figure as PNG; very long figures are drawn coarser, so that no side passes 16,000 pixels."""
    buffer = io.BytesIO()
    longest = max(figure.get_size_inches())
    figure.savefig(buffer, format="png", dpi=min(dpi, 16000 / longest), metadata={"Software": "Speedproof"})
    return buffer.getvalue()
