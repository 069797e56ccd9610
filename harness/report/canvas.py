"""The look of every figure: fonts, colours, a canvas of labelled rows, ticks of ratios, and saving as SVG and PNG.

Figures are made in two widths: wide for desks and print, narrow for phones, where labels stand above their rows. Text is never parsed as
mathematics and is drawn as outlines, so that a hostile name stays a picture of that name and looks the same on every machine. Letters are
not hinted: their widths are the same at every size, so that what `fitted` lets through fits in the SVG and in the PNG.
"""

from __future__ import annotations

import io
import math
import warnings
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import seaborn as sns  # type: ignore[import-untyped,unused-ignore]
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import blended_transform_factory
from PIL import Image

from harness.report import numbers
from harness.report.svg import compact
from harness.report.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
    "text.parse_math": False, "text.usetex": False, "text.hinting": "none", "svg.fonttype": "path", "svg.hashsalt": "speedproof", "axes.axisbelow": True,
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
    def plot(self) -> float:
        """Width of the axes."""
        return self.width - self.left - self.right - 0.1

    @property
    def left_text(self) -> float:
        """How wide a text left of the axes may be: it starts at 0.008 of the width and keeps off the bars."""
        return self.left - 0.008 * self.width - 0.16

    @property
    def right_text(self) -> float:
        """How wide a text right of the axes may be: it starts 0.16 behind them."""
        return self.right - 0.16 + 0.1 - 0.08


WIDE = Layout(False, 10.4, 3.3, 2.75, 0.62)
NARROW = Layout(True, 4.7, 0.12, 0.12, 0.92)


def row_axes(
    layout: Layout, counts: Sequence[int], top: float | Sequence[float] = 0.45, bottom: float = 0.62, head: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """Return a figure with one axes a panel, `counts` rows each, row 0 at the top.

    `top` leaves room above each panel (one for all, or one each), `bottom` below each, `head` above them all; in inches.
    """
    tops = [top] * len(counts) if isinstance(top, int | float) else list(top)
    heights = [count * layout.row for count in counts]
    total = head + sum(heights) + sum(tops) + len(counts) * bottom
    figure = Figure(figsize=(layout.width, total))
    axes, y = [], total - head
    for count, height, above in zip(counts, heights, tops, strict=True):
        y -= above + height
        ax = figure.add_axes((layout.left / layout.width, y / total, layout.plot / layout.width, height / total))
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


def panel_title(ax: Axes, layout: Layout, text: str, up: float = 0.12) -> None:
    """Write a panel's title flush left with its rows' labels, `up` inches above its axes."""
    size = 11 if layout.narrow else 12
    title = fitted(text[:1].upper() + text[1:], layout.width - 0.2, size, bold=True)[0]
    ax.text(-(layout.left - 0.08) / layout.plot, 1 + up / axes_height(ax), title, transform=ax.transAxes, weight="bold", fontsize=size, va="bottom")


def legend(figure: Figure, handles: list[Any], layout: Layout, columns: int) -> None:
    """Put a legend at the top of a figure of rows, flush with its axes."""
    left = 0.0 if layout.narrow else layout.left / layout.width - 0.01
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(left, 1 - 0.04 / figure.get_size_inches()[1]), ncols=columns, borderaxespad=0,
        columnspacing=1.0 if layout.narrow else 1.4, handlelength=1.4 if layout.narrow else 1.6,
    )  # fmt: skip


def dense(layout: Layout) -> Layout:
    """Rows without a second line of text need less height."""
    return replace(layout, row=0.56 if layout.narrow else 0.42)


def number_ticks() -> FuncFormatter:
    """Ticks as people write numbers."""
    return FuncFormatter(lambda v, _: numbers.plain(v))


def bar_offset(layout: Layout) -> float:
    """How far below a row's middle its bar lies, in rows: labels need the upper part of a narrow row."""
    return 0.24 if layout.narrow else 0.0


def row_text(ax: Axes, layout: Layout, i: int, label: str, detail: str, head: tuple[str, str], value: str) -> None:  # noqa: PLR0917
    """Write a row's texts: bold `label` and soft `detail` on its left, `head` (text, colour) and `value` on its right; stacked if narrow."""
    if layout.narrow:
        _stacked_text(ax, layout, i, label, detail, head, value)
        return
    left = blended_transform_factory(ax.figure.transFigure, ax.transData)
    lines = fitted(label, layout.left_text, 11, bold=True, lines=1 if detail else 2)
    below, size, up, down = _below(detail, layout.left_text, 9.5)
    ax.text(0.008, i - (up if detail else 0), "\n".join(lines), transform=left, va="center", weight="bold", fontsize=11, linespacing=1.15)
    if detail:
        ax.text(0.008, i + down, "\n".join(below), transform=left, va="center", fontsize=size, color=SOFT, linespacing=1.15)
    right: dict[str, Any] = {"transform": blended_transform_factory(ax.transAxes, ax.transData), "va": "center"}
    gap = 1 + 0.16 / layout.plot
    if not head[0]:
        ax.text(gap, i, "\n".join(fitted(value, layout.right_text, 10.5, lines=2)), fontsize=10.5, linespacing=1.2, **right)
        return
    lines, size, up, down = _below(value, layout.right_text, 10)
    ax.text(gap, i - up, head[0], weight="bold", fontsize=11, color=head[1], **right)
    ax.text(gap, i + down, "\n".join(lines), fontsize=size, linespacing=1.15, **right)


def _below(text: str, inches: float, size: float) -> tuple[list[str], float, float, float]:
    """Return the lines of a text that stands below a bold one, their size, and how far from the row's middle both lie: two lines take more."""
    lines = fitted(text, inches, size)
    if lines[0].endswith("…"):
        lines, size = fitted(text, inches, 9, lines=2), 9
    return (lines, size, 0.19, 0.21) if len(lines) == 1 else (lines, size, 0.29, 0.16)


def _stacked_text(ax: Axes, layout: Layout, i: int, label: str, detail: str, head: tuple[str, str], value: str) -> None:  # noqa: PLR0917
    """Write a narrow row's texts above its bar. The white ground keeps grid lines and the line at 1 from crossing letters."""
    over: dict[str, Any] = {"transform": blended_transform_factory(ax.transAxes, ax.transData), "va": "center", "zorder": 2.5,
                            "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5}}  # fmt: skip
    bare = not head[0] and not detail
    y = i - (0.28 if bare else 0.33)
    beside = head[0] or (fitted(value, 0.6 * layout.plot, 10)[0] if bare else "")
    room = layout.plot - (text_width(beside, 10, bold=bool(head[0])) + 0.15 if beside else 0)
    ax.text(0, y, fitted(label, room, 10.5, bold=True)[0], weight="bold", fontsize=10.5, **over)
    if beside:
        style_of: dict[str, Any] = {"weight": "bold", "color": head[1]} if head[0] else {}
        ax.text(1, y, beside, ha="right", fontsize=10, **style_of, **over)
    if not bare:
        ax.text(0, i - 0.07, fitted(value or detail, layout.plot, 10)[0], fontsize=10, color=SOFT, **over)


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return how wide a text is drawn at `size` points, in inches."""
    font = FontProperties(family=["DejaVu Sans"], weight="bold" if bold else "normal", size=size)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72


def fitted(text: str, inches: float, size: float, *, bold: bool = False, lines: int = 1) -> list[str]:
    """Break a text into at most `lines` lines of at most `inches`, by the letters' own widths; what does not fit ends in an ellipsis."""

    def fits(part: str) -> bool:
        return text_width(part, size, bold=bold) <= inches

    rest = deque(one_line(text).split())
    rows: list[str] = []
    while rest and len(rows) < lines:
        row = ""
        while rest and fits(f"{row} {rest[0]}".strip()):
            row = f"{row} {rest.popleft()}".strip()
        if rest and len(rows) == lines - 1:
            whole = " ".join([row, *rest]).strip()
            row = whole[: _most(whole, lambda part: fits(part.rstrip() + "…"))].rstrip() + "…"
        elif not row:
            most = max(1, _most(rest[0], fits))
            row, rest[0] = rest[0][:most], rest[0][most:]
        rows.append(row)
    return rows or [""]


def _most(text: str, fits: Callable[[str], bool]) -> int:
    """Return how many of a text's first characters fit."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[:middle]) else (low, middle - 1)
    return low


def shorten(text: str, width: int) -> str:
    """Cut a text to `width` characters with an ellipsis, on one line."""
    flat = one_line(text)
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"


def ratio_axis(ax: Axes, values: Sequence[float], layout: Layout, *, least: tuple[float, float] = (0.8, 1.3)) -> tuple[float, float]:
    """Make x a log axis of ratios around 1 that holds all positive finite `values`; return its limits."""
    finite = [v for v in values if math.isfinite(v) and v > 0] + list(least)
    low, high = min(finite), max(finite)
    pad = (high / low) ** 0.05
    limits = (low / pad, high * pad)
    log_axis(ax, limits, layout, lambda v: f"{numbers.plain(v)}x")
    ax.axvline(1, color=INK, linewidth=1.3, zorder=1.5)
    return limits


def log_axis(ax: Axes, limits: tuple[float, float], layout: Layout, text: Callable[[float], str]) -> None:
    """Make x a log axis between two positive limits, with as many round ticks as their texts have room for."""
    low, high = limits
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    width, beyond = layout.plot, 0.1 + layout.right - 0.03

    def spans(ticks: list[float]) -> list[tuple[float, float]]:
        places = [(width * math.log(tick / low) / math.log(high / low), text_width(text(tick), 10.5) / 2) for tick in ticks]
        return [(at - half, at + half) for at, half in places]

    ticks: list[float] = []
    for most in range(5 if layout.narrow else 9, 1, -1):
        ticks = [t for t in log_ticks(low, high, most) if spans([t])[0][1] <= width + beyond]
        if all(end + 0.1 <= start for (_, end), (start, _) in pairwise(spans(ticks))):
            break
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: text(v)))


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` round numbers between two positive limits, 1 among them where it lies there."""
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
    ax.xaxis.set_major_locator(MaxNLocator(4 if layout.narrow else 7, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(text)
    ax.set_xlabel(label)


def panels(n: int, most: int = 14) -> list[int]:
    """Split n rows into panels of nearly equal size, at most `most` each."""
    count = max(1, math.ceil(n / most))
    return [n // count + (1 if i < n % count else 0) for i in range(count)]


def to_svg(figure: Figure) -> bytes:
    """Return the figure as SVG, small, and the same bytes for the same figure (no date)."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "Speedproof"})
    return compact(buffer.getvalue())


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """Return the figure as PNG of 256 chosen colours, a third of the bytes of all colours and no different to the eye.

    Very long figures are drawn coarser, so that no side passes 16,000 pixels.
    """
    drawn, small = io.BytesIO(), io.BytesIO()
    fine = min(dpi, 16000 / max(figure.get_size_inches()))
    figure.savefig(drawn, format="png", dpi=fine)
    with Image.open(drawn) as image:
        chosen = image.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    chosen.save(small, "PNG", optimize=True, dpi=(fine, fine))
    return small.getvalue()
