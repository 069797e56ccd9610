"""Pictures of what the hardware did while arms were at work: scenes of `telemetry` -> matplotlib Figure, None without data.

A scene is a stack of strips that share their time axis. Behind the lines stand the arms' blocks in the arms' colours, above them the arms' letters. Where these
have no room, each arm has a lane of its own instead: there are more arms than colours, and colour alone tells nobody an arm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator, NullLocator

from harness.report import numbers
from harness.report.canvas import EXECUTION, INK, SERIES, SOFT, Layout, fitted, number_ticks, text_width
from harness.report.telemetry import arm_letter, shown_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from harness.report.telemetry import Scene, Shade, Strip

DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
"""Of the first, second, ... series in a strip: cards, or what is read and what is written."""

STRIP, ABOVE, HEAD, ARM, LETTERS, FOOT = 0.5, 0.27, 0.36, 0.22, 0.2, 0.72
"""Inches: a strip, the room above it for its title, a scene's title, a line of its legend, the row of letters, the time axis with the room below it."""
LANE, LANE_GAP = 0.15, 0.07
"""Inches: an arm's lane, and from the first strip to the lowest of them."""
LEFT, RIGHT = 0.58, 0.16
LETTER, BETWEEN = 9.0, 0.02
"""The letters' size in points, and how many inches two of them, or one and another arm's block, keep apart."""
FEW = 40
"""A line of fewer points shows them."""


@dataclass(frozen=True)
class _Box:
    """Where a scene lies, in inches from the picture's upper left corner."""

    left: float
    top: float
    width: float


def telemetry(scenes: Sequence[Scene], layout: Layout) -> Figure | None:
    """Draw every scene, two beside one another where there is room. A kind of strip that no scene has anything to show in is left out."""
    if not scenes:
        return None
    keys = shown_keys(scenes)
    across = 1 if layout.narrow or len(scenes) == 1 else 2
    width = layout.width / across
    rows = [scenes[first : first + across] for first in range(0, len(scenes), across)]
    heights = [max(_height(scene, keys, width) for scene in row) for row in rows]
    cards = card_labels(scenes)
    top = 0.4 if len(cards) > 1 else 0.06
    figure = Figure(figsize=(layout.width, top + sum(heights)))
    if len(cards) > 1:
        handles = [Line2D([], [], color=INK, linewidth=1.6, linestyle=_dash(i), label=name) for i, name in enumerate(cards)]
        figure.legend(handles=handles, loc="upper left", ncols=4, borderaxespad=0.4, columnspacing=1.2, handlelength=2.2)
    for row, height in zip(rows, heights, strict=True):
        for column, scene in enumerate(row):
            _draw_scene(figure, scene, keys, cards, _Box(column * width, top, width))
        top += height
    return figure


def card_labels(scenes: Sequence[Scene]) -> list[str]:
    """Return the names of the cards that any strip shows, in one order for all scenes; none for strips of the host."""
    return sorted({line.label for scene in scenes for strip in scene.strips for line in strip.lines if line.label.startswith(("GPU", "card"))})


def arm_colors(executions: Sequence[str]) -> list[str]:
    """Return a colour an arm: that of its execution where this tells the arms apart, as in every other figure, else one of the series."""
    known = [EXECUTION.get(execution) for execution in executions]
    if len(set(executions)) == len(executions) and all(known):
        return [color for color in known if color is not None]
    return [SERIES[i % len(SERIES)] for i in range(len(executions))]


def _height(scene: Scene, keys: set[str], width: float) -> float:
    strips = sum(strip.key in keys for strip in scene.strips)
    return HEAD + ARM * len(scene.arms) + _marks_height(scene, width - LEFT - RIGHT) + strips * (ABOVE + STRIP) + FOOT


def _marks_height(scene: Scene, wide: float) -> float:
    """Return the inches that what names the arms takes between the first strip and its title."""
    return LETTERS if lettered(scene, wide) else LANE_GAP + LANE * len(scene.arms)


def _dash(i: int) -> Any:  # noqa: ANN401 - matplotlib's own mixture
    return DASHES[i % len(DASHES)]


def _draw_scene(figure: Figure, scene: Scene, keys: set[str], cards: Sequence[str], box: _Box) -> None:
    high = float(figure.get_size_inches()[1])
    inches: dict[str, Any] = {"transform": figure.dpi_scale_trans}
    room = box.width - RIGHT - 0.1
    y = high - box.top - 0.2
    figure.text(box.left + 0.08, y, fitted(scene.title, room, 11, bold=True)[0], weight="bold", fontsize=11, va="center", **inches)
    colors = arm_colors(scene.executions)
    y -= 0.02
    for i, (label, color) in enumerate(zip(scene.arms, colors, strict=True)):
        y -= ARM
        figure.add_artist(Rectangle((box.left + 0.1, y - 0.06), 0.2, 0.13, facecolor=color, edgecolor=color, alpha=0.4, linewidth=0, **inches))
        text = fitted(f"{arm_letter(i)} {label}", room - 0.3, 10)[0]
        figure.text(box.left + 0.37, y, text, fontsize=10, va="center", color=INK, **inches)
    limits = _limits(scene)
    wide = box.width - LEFT - RIGHT
    tall = high - box.top - HEAD - ARM * len(scene.arms) - _marks_height(scene, wide)
    strips = [strip for strip in scene.strips if strip.key in keys]
    for i, strip in enumerate(strips):
        tall -= ABOVE + STRIP
        size = float(figure.get_size_inches()[0])
        ax = figure.add_axes(((box.left + LEFT) / size, tall / high, wide / size, STRIP / high))
        ax.set_xlim(*limits)
        _shade(ax, scene.shades, colors)
        _draw_strip(ax, strip, cards, wide)
        if i == 0:
            _name_arms(ax, scene, colors, wide)
        lift = 0.05 + (_marks_height(scene, wide) - 0.02 if i == 0 else 0.0)
        title = fitted(_title(strip, cards), box.width - RIGHT - 0.1, 9.5)[0]
        ax.text(-(LEFT - 0.08) / wide, 1 + lift / STRIP, title, transform=ax.transAxes, fontsize=9.5, color=SOFT, va="bottom")
        ax.tick_params(labelsize=9.5, length=3, labelbottom=i == len(strips) - 1)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.xaxis.set_major_formatter(number_ticks())
        if i == len(strips) - 1:
            ax.set_xlabel("seconds since the round's start", fontsize=10, labelpad=2)


def _limits(scene: Scene) -> tuple[float, float]:
    pad = 0.02 * max(scene.end_s - scene.start_s, 1e-3)
    return scene.start_s - pad, scene.end_s + pad


def _title(strip: Strip, cards: Sequence[str]) -> str:
    """Return a strip's title. Where dashes tell cards apart, lines of the second kind are thin instead."""
    if not strip.lines:
        return strip.title
    beside = f", {strip.beside} {'thin' if len(cards) > 1 else 'dashed'}" if strip.beside else ""
    return f"{strip.title}{beside} ({strip.unit})"


@cache
def _half(arm: int) -> float:
    return text_width(arm_letter(arm), LETTER) / 2


def lettered(scene: Scene, wide: float) -> list[Shade]:
    """Return what the arms' letters stand above where the axes are `wide` inches: each block, or each run of blocks of an arm; nothing where any has no room.

    A letter may be wider than what it names, but must not hang over another arm's time or touch another letter.
    """
    low, high = _limits(scene)
    inches = wide / (high - low)

    def apart(one: Shade, two: Shade) -> bool:
        middle, other = ((shade.start_s + shade.end_s) / 2 * inches for shade in (one, two))
        if middle + _half(one.arm) + BETWEEN > other - _half(two.arm):
            return False
        return one.arm == two.arm or (middle + _half(one.arm) <= two.start_s * inches and other - _half(two.arm) >= one.end_s * inches)

    for shades in (sorted(scene.shades, key=lambda shade: shade.start_s), _runs(scene.shades)):
        if all(apart(one, two) for one, two in pairwise(shades)):
            return shades
    return []


def _name_arms(ax: Axes, scene: Scene, colors: Sequence[str], wide: float) -> None:
    """Write the arms' letters above their blocks, or beside lanes that show when each was at work."""
    named = lettered(scene, wide)
    for shade in named:
        ax.text(
            (shade.start_s + shade.end_s) / 2, 1 + 0.02 / STRIP, arm_letter(shade.arm), transform=ax.get_xaxis_transform(), ha="center", va="bottom",
            fontsize=LETTER, color=INK if shade.counts else SOFT,
        )  # fmt: skip
    if named:
        return
    for arm, color in enumerate(colors):
        foot = 1 + (LANE_GAP + LANE * (len(colors) - 1 - arm)) / STRIP
        span = foot + 0.02 / STRIP, foot + (LANE - 0.02) / STRIP
        for counts, alpha in ((True, 1.0), (False, 0.4)):
            mine = [(shade.start_s, shade.end_s) for shade in scene.shades if shade.arm == arm and shade.counts == counts]
            if mine:
                lane = PathPatch(_boxes(mine, *span), transform=ax.get_xaxis_transform(), facecolor=color, alpha=alpha, linewidth=0, clip_on=False)
                ax.add_artist(lane)
        ax.text(-0.07 / wide, sum(span) / 2, arm_letter(arm), transform=ax.transAxes, ha="right", va="center", fontsize=LETTER, color=INK)


def _runs(shades: Sequence[Shade]) -> list[Shade]:
    """Return one shade in place of all that follow one another of the same arm."""
    runs: list[Shade] = []
    for shade in sorted(shades, key=lambda each: each.start_s):
        if runs and runs[-1].arm == shade.arm:
            runs[-1] = replace(runs[-1], end_s=shade.end_s, counts=runs[-1].counts or shade.counts)
        else:
            runs.append(shade)
    return runs


def _shade(ax: Axes, shades: Sequence[Shade], colors: Sequence[str]) -> None:
    """Fill the time of each arm's blocks; those that enter no figure are paler. All of one kind are one outline."""
    for arm, color in enumerate(colors):
        for counts, alpha in ((True, 0.34), (False, 0.12)):
            spans = [(shade.start_s, shade.end_s) for shade in shades if shade.arm == arm and shade.counts == counts]
            if spans:
                ax.add_patch(PathPatch(_boxes(spans), transform=ax.get_xaxis_transform(), facecolor=color, alpha=alpha, linewidth=0, zorder=0.6))


def _boxes(spans: Sequence[tuple[float, float]], foot: float = 0.0, head: float = 1.0) -> Path:
    corners = [(x, y) for start, end in spans for x, y in ((start, foot), (end, foot), (end, head), (start, head), (start, foot))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(spans)
    return Path(np.array(corners), codes)


def _draw_strip(ax: Axes, strip: Strip, cards: Sequence[str], wide: float) -> None:
    ax.grid(visible=False, axis="x")
    if not strip.lines:
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_locator(NullLocator())
        text = "\n".join(fitted(numbers.missing(strip.reason), wide - 0.2, 9.5, lines=2))
        ax.text(0.1 / wide, 0.5, text, transform=ax.transAxes, fontsize=9.5, color=INK, va="center", linespacing=1.15)
        return
    highest = max((value for line in strip.lines for value in line.high if np.isfinite(value)), default=0.0)
    top = 105.0 if strip.unit == "%" and highest <= 100 else highest * 1.16 if highest > 0 else 1.0
    ax.set_ylim(0, top)
    ax.yaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 2.5, 5, 10]))
    ax.yaxis.set_major_formatter(number_ticks())
    for i, line in enumerate(strip.lines):
        style = _dash(cards.index(line.label) if line.label in cards else i)
        thin = line.second and len(cards) > 1
        style = _dash(1) if line.second and not thin else style
        if line.low != line.high:
            ax.fill_between(line.t_s, line.low, line.high, color=INK, alpha=0.2, linewidth=0, zorder=2)
        points: dict[str, Any] = {"marker": "o", "markersize": 1.4 if thin else 2.6} if len(line.t_s) < FEW else {}
        ax.plot(line.t_s, line.value, color=INK, linewidth=0.6 if thin else 1.4, linestyle=style, zorder=3, **points)
