"""Figures show what the frames say: bars on the right side of one, open sides as arrows, text as text."""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ET

import pandas as pd
import pytest

from harness.report import canvas, figures

LAYOUTS = pytest.mark.parametrize("layout", [canvas.WIDE, canvas.NARROW], ids=["wide", "narrow"])


def switch_row(**more) -> dict:
    values = {
        "switch": "execution: eager → graph",
        "title": "ResNet-50",
        "point": 2.0,
        "low": 1.9,
        "high": 2.1,
        "n": 5,
        "measured": "2.00x",
        "unproven": False,
    }
    return {**values, **more}


def claim_row(**more) -> dict:
    values = {"claim": "graph-speedup", "title": "ResNet-50", "lo": 2.0, "hi": 5.0, "point": 2.4, "low": 2.3, "high": 2.5}
    return {**values, "word": "CONFIRMED", "measured": "2.40x", **more}


def bars(figure) -> list:
    return [patch for patch in figure.axes[0].patches if patch.get_alpha() is not None]


@LAYOUTS
def test_a_slowdown_s_bar_points_left_of_one(layout):
    (bar,) = bars(figures.speedups(pd.DataFrame([switch_row(point=0.6, low=0.58, high=0.62)]), layout))
    assert pytest.approx((1.0, -0.4)) == (bar.get_x(), bar.get_width())


@LAYOUTS
def test_no_value_is_clamped_by_the_axis(layout):
    rows = [claim_row(point=0.01, low=0.005, high=0.02), claim_row(point=900.0, low=800.0, high=1000.0)]
    low, high = figures.forest(pd.DataFrame(rows), layout).axes[0].get_xlim()
    assert low < 0.005
    assert high > 1000


@LAYOUTS
def test_many_claims_are_split_into_panels(layout):
    with canvas.style():
        figure = figures.forest(pd.DataFrame([claim_row(claim=f"claim-{i}") for i in range(31)]), layout)
    assert [11, 10, 10] == [round(axes.get_ylim()[0] + 0.5) for axes in figure.axes]


def test_one_round_draws_a_hollow_point_and_no_interval():
    figure = figures.forest(pd.DataFrame([claim_row(low=None, high=None, lo=None, hi=None)]), canvas.WIDE)
    markers = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert ["white"] == [line.get_markerfacecolor() for line in markers]
    assert [] == list(figure.axes[0].patches)


@LAYOUTS
@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "$x^{$", "a --> b <!-- c", "&amp; \x00 \x1b[31m", "速度 🚀"])
def test_hostile_text_leaves_a_well_formed_picture(text, layout):
    with canvas.style(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        svg = canvas.to_svg(figures.forest(pd.DataFrame([claim_row(claim=text, title=text, measured=text)]), layout))
    assert [] == [node for node in ET.fromstring(svg).iter() if node.tag.endswith("script")]


@LAYOUTS
@pytest.mark.parametrize("values", [(1.0, 1.01), (0.5, 40.0), (0.001, 1000.0), (1.0, 2.0)])
def test_an_axis_of_ratios_has_a_few_ticks_and_names_one(values, layout):
    with canvas.style():
        _, (axes,) = canvas.row_axes(layout, [1])
        canvas.ratio_axis(axes, values, layout)
        ticks = list(axes.get_xticks())
    assert 3 <= len(ticks) <= 9
    assert any(tick == pytest.approx(1.0) for tick in ticks)


@LAYOUTS
def test_no_two_texts_of_a_forest_overlap(layout):
    rows = [
        claim_row(claim=f"a-claim-with-a-rather-long-name-{i}", title="a long title " * 6, measured="n/a: baseline failed: " + "why " * 20)
        for i in range(4)
    ]
    with canvas.style():
        figure = figures.forest(pd.DataFrame(rows), layout)
        figure.canvas.draw()
        boxes = [text.get_window_extent() for axes in figure.axes for text in axes.texts if text.get_text()]
    width = figure.bbox.width
    assert [] == [box for box in boxes if box.x0 < 0 or box.x1 > width + 1]
    assert [] == [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b) and min(a.y1, b.y1) - max(a.y0, b.y0) > 2]
