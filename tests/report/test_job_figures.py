"""Figures of jobs and feeds show what their frames say, without two texts on one another, and nothing where there is nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import PathPatch, Rectangle

from harness.report import canvas, feed_figures, job_figures
from harness.report.jobs import MOST_LANES, TIMELINE_COLUMNS
from harness.report.saves import SAVE_COLUMNS, SLOWDOWN_COLUMNS

LAYOUTS = pytest.mark.parametrize("layout", [canvas.WIDE, canvas.NARROW], ids=["wide", "narrow"])
LONG = "checkpointed, batch 64, image 224, execution graph, sync, slow storage, every 25.0 s"


def lane(label: str = "async", contrast: str = "saving", job_s: float = 8.0) -> list[tuple]:
    bands = [("clear", 0.0, 2.0), ("blocked", 2.0, 2.5), ("overlap", 2.5, 4.0), ("clear", 4.0, 6.0), ("blocked", 6.0, 6.4), ("pause", 6.4, 7.0)]
    rows = [(contrast, f"{contrast} (round 1)", f"{contrast}-{label}", label, *band, job_s) for band in bands]
    return [*rows, (contrast, f"{contrast} (round 1)", f"{contrast}-{label}", label, "durable", 3.5, 3.5, job_s)]


def timeline(*lanes: list[tuple]) -> pd.DataFrame:
    return pd.DataFrame(list(itertools.chain(*lanes)), columns=TIMELINE_COLUMNS)


def save_row(
    measure: str = "blocked", label: str = "sync", point: float | None = 0.4, low: float | None = 0.3, high: float | None = 0.5, **more
) -> dict:
    values = {
        "cell": label,
        "label": label,
        "measure": measure,
        "point": point,
        "low": low,
        "high": high,
        "rounds": 3,
        "text": "400 ms (300 ms to 500 ms)",
    }
    return {**values, **more}


def saves_frame(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=SAVE_COLUMNS)


def slow_row(series: str = "sync", interval_s: float = 25.0, point: float = 1.2, **more) -> dict:
    values = {"series": series, "cell": f"{series}-{interval_s}", "interval_s": interval_s, "point": point, "low": point - 0.01, "high": point + 0.02}
    return {**values, "rounds": 3, "blocked_s": 5.0, "claim": None, "lo": None, "hi": None, "text": "1.20x", **more}


def slow_frame(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=SLOWDOWN_COLUMNS)


def feed_row(label: str = "tfdata", point: float | None = 1000.0, low: float | None = 900.0, high: float | None = 1100.0, **more) -> dict:
    values = {"cell": label, "label": label, "point": point, "low": low, "high": high, "unit": "samples/s", "rounds": 3, "text": "1,000 samples/s"}
    return {**values, "devices": 8, "one": 1000.0, "asked": 8000.0, "fed": None if point is None else point / 1000, "real": True, **more}


def feed_frame(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame(list(rows))


def curve_row(x: float, point: float, axis: str = "cores", series: str = "tfdata") -> dict:
    return {"axis": axis, "series": series, "x": x, "point": point, "low": None, "high": None, "unit": "samples/s", "one": 1000.0}


def shapes_of(axes, kind: str) -> list[PathPatch]:
    color = to_rgb(job_figures.LOOKS[kind]["facecolor"])
    return [patch for patch in axes.patches if isinstance(patch, PathPatch) and to_rgb(patch.get_facecolor()) == color]


# ---------------------------------------------------------------- the timeline


@LAYOUTS
def test_a_save_is_drawn_from_its_call_until_it_lets_go(layout):
    (axes,) = job_figures.stalls(timeline(lane()), layout).axes
    (held,) = shapes_of(axes, "blocked")
    assert [2.0, 2.5, 6.0, 6.4] == sorted({float(x) for x, _ in held.get_path().vertices})


def test_a_job_of_many_saves_stays_one_shape_a_kind():
    bands = [("blocked", float(t), t + 0.5) for t in range(400)]
    rows = [("saving", "panel", "cell", "sync", *band, 400.0) for band in bands]
    (axes,) = job_figures.stalls(timeline(rows), canvas.WIDE).axes
    assert 1 == len(shapes_of(axes, "blocked"))


def test_a_save_on_the_disk_is_a_triangle_at_its_moment():
    (axes,) = job_figures.stalls(timeline(lane()), canvas.WIDE).axes
    assert [[3.5]] == [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "v"]


def test_the_kinds_of_time_differ_in_grey_or_by_their_hatch():
    looks = [(round(float(np.dot(to_rgb(look["facecolor"]), (0.299, 0.587, 0.114))), 1), look.get("hatch")) for look in job_figures.LOOKS.values()]
    assert len(set(looks)) == len(looks)
    assert all(a[1] != b[1] or abs(a[0] - b[0]) > 0.3 for a, b in itertools.combinations(looks, 2))


def test_a_comparison_has_a_panel_of_its_own():
    figure = job_figures.stalls(timeline(lane(), lane("sync"), lane("sync", contrast="slow directory")), canvas.WIDE)
    assert [2, 1] == [round(axes.get_ylim()[0] + 0.5) for axes in figure.axes]


def test_the_timeline_stops_at_a_number_of_jobs_that_can_be_read():
    lanes = [lane(f"job-{i}", contrast=f"comparison {i // 5}") for i in range(60)]
    figure = job_figures.stalls(timeline(*lanes), canvas.WIDE)
    assert MOST_LANES >= sum(round(axes.get_ylim()[0] + 0.5) for axes in figure.axes)


def test_an_axis_holds_a_save_that_was_durable_after_the_job_s_end():
    rows = [*lane(), ("saving", "saving (round 1)", "saving-async", "async", "durable", 12.0, 12.0, 8.0)]
    (axes,) = job_figures.stalls(timeline(rows), canvas.WIDE).axes
    assert axes.get_xlim()[1] > 12


# ---------------------------------------------------------------- what a save costs


@LAYOUTS
def test_each_measure_of_a_save_has_its_panel(layout):
    figure = job_figures.saves(saves_frame(save_row(), save_row("overlap"), save_row("durable")), [], layout)
    assert 3 == len(figure.axes)


def test_a_measure_that_nobody_has_gets_no_panel():
    figure = job_figures.saves(saves_frame(save_row(), save_row("overlap", point=None, low=None, high=None)), [], canvas.WIDE)
    assert 1 == len(figure.axes)


@LAYOUTS
@pytest.mark.parametrize(("expected", "least"), [("log", 0.007), ("linear", 0.2), ("linear", -0.1)])
def test_times_far_apart_stand_on_a_log_axis(expected, least, layout):
    rows = [save_row(point=1.2, low=1.1, high=1.3), save_row(label="async", point=least, low=None, high=None)]
    (axes,) = job_figures.saves(saves_frame(*rows), [], layout).axes
    assert expected == axes.get_xscale()
    assert axes.get_xlim()[0] <= least
    assert ("log scale" in axes.get_xlabel()) == (expected == "log")


def test_a_save_s_range_is_drawn_from_the_lowest_to_the_highest_round():
    (axes,) = job_figures.saves(saves_frame(save_row()), [], canvas.WIDE).axes
    spans = [
        (patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_alpha() is None
    ]
    assert [(pytest.approx(0.3), pytest.approx(0.5))] == spans


def test_one_round_draws_no_range():
    (axes,) = job_figures.saves(saves_frame(save_row(low=0.4, high=0.4)), [], canvas.WIDE).axes
    assert [] == [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_alpha() is None]


@LAYOUTS
def test_what_was_claimed_of_a_save_is_marked_and_named(layout):
    levels = [("sync-stall", "blocked", 0.2, None)]
    (axes,) = job_figures.saves(saves_frame(save_row()), levels, layout).axes
    assert 0.2 in [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert "claimed: at least 0.2 s (sync-stall)" in [text.get_text() for text in axes.texts]


def test_a_mark_beyond_the_measured_times_is_still_on_the_axis():
    (axes,) = job_figures.saves(saves_frame(save_row(point=0.007, low=0.006, high=0.008)), [("sync-stall", "blocked", 0.2, None)], canvas.WIDE).axes
    assert axes.get_xlim()[1] > 0.2


def test_a_way_of_saving_without_a_value_is_a_cross_with_its_reason():
    rows = [save_row(), save_row(label="async", point=None, low=None, high=None, text="n/a: failed: disk full")]
    (axes,) = job_figures.saves(saves_frame(*rows), [], canvas.WIDE).axes
    assert 1 == sum(line.get_marker() == "x" for line in axes.lines)
    assert "n/a: failed: disk full" in [text.get_text() for text in axes.texts]


# ---------------------------------------------------------------- slowdown


def test_the_line_is_one_and_the_held_time_over_the_interval():
    (axes,) = job_figures.slowdown(slow_frame(slow_row(), slow_row(interval_s=5.0, point=2.1)), canvas.WIDE).axes
    (line,) = [line for line in axes.lines if len(line.get_xdata()) > 10]
    assert np.allclose(1 + 5.0 / np.asarray(line.get_xdata()), line.get_ydata())


def test_the_points_are_what_was_measured():
    (axes,) = job_figures.slowdown(slow_frame(slow_row(), slow_row(interval_s=5.0, point=2.1)), canvas.WIDE).axes
    (points,) = [line for line in axes.lines if line.get_marker() == "o"]
    assert {(25.0, 1.2), (5.0, 2.1)} == set(zip(points.get_xdata(), points.get_ydata(), strict=True))


def test_what_was_claimed_is_a_box_at_its_interval():
    figure = job_figures.slowdown(slow_frame(slow_row(claim="nfs-20pct", lo=1.15, hi=1.25), slow_row(interval_s=5.0, point=2.1)), canvas.WIDE)
    (box,) = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert (1.15, 1.25) == (pytest.approx(box.get_y()), pytest.approx(box.get_y() + box.get_height()))
    assert box.get_x() < 25.0 < box.get_x() + box.get_width()
    assert "claimed: 1.15x to 1.25x at 25.0 s (nfs-20pct)" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_claimed_box_is_on_the_axis_whatever_was_measured():
    (axes,) = job_figures.slowdown(slow_frame(slow_row(point=1.01, blocked_s=0.1, claim="nfs-20pct", lo=1.15, hi=1.25)), canvas.WIDE).axes
    assert axes.get_ylim()[0] < 1
    assert axes.get_ylim()[1] > 1.25


def test_a_slowdown_without_an_interval_is_in_the_table_only():
    assert job_figures.slowdown(slow_frame(slow_row(interval_s=np.nan)), canvas.WIDE) is None


# ---------------------------------------------------------------- feeds


@LAYOUTS
def test_a_pipeline_s_bar_ends_at_its_rate(layout):
    (axes,) = feed_figures.pipelines(feed_frame(feed_row()), None, layout).axes
    (bar,) = [patch for patch in axes.patches if patch.get_alpha() is not None]
    assert (0.0, 1000.0) == (bar.get_x(), pytest.approx(bar.get_width()))


@LAYOUTS
def test_what_training_needs_is_a_named_line(layout):
    (axes,) = feed_figures.pipelines(feed_frame(feed_row()), ("resnet50, 96 px, graph", 600.0), layout).axes
    assert [600.0] == [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert any(text.get_text().startswith("600 samples/s: resnet50") for text in axes.texts)


@LAYOUTS
def test_waiting_and_computing_fill_the_time(layout):
    frame = pd.DataFrame([{"cell": "a", "label": "python_loop", "share": 0.75, "blocks": 12}])
    (axes,) = feed_figures.input_wait(frame, layout).axes
    waiting, computing = axes.patches
    assert (75.0, 25.0, 100.0) == (waiting.get_width(), computing.get_width(), computing.get_x() + computing.get_width())
    assert waiting.get_hatch()
    assert not computing.get_hatch()


@LAYOUTS
def test_a_tick_shows_what_the_stand_ins_ask_for(layout):
    figure = feed_figures.replay(feed_frame(feed_row(), feed_row("python_loop", 250.0, 240.0, 260.0, devices=1, asked=1000.0)), layout)
    ticks = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_color() == canvas.SERIES[1]]
    assert [8000.0, 1000.0] == ticks


def test_a_row_of_stand_ins_says_how_many_were_fed():
    (row,) = feed_frame(feed_row(point=410.0)).itertuples()
    assert "410 samples/s: feeds 0.410 of 8" == feed_figures.fed_text(row)


def test_whole_stand_ins_are_lines_over_the_cores():
    frame = pd.DataFrame([curve_row(1, 900.0), curve_row(4, 2600.0)])
    (axes,) = feed_figures.feeding(frame, canvas.WIDE).axes
    assert ["feeds 1 stand-in", "feeds 2 stand-ins"] == [text.get_text() for text in axes.texts]


def test_a_stand_in_far_out_of_reach_does_not_flatten_the_curve():
    frame = pd.DataFrame([curve_row(1, 90.0), curve_row(4, 260.0)])
    (axes,) = feed_figures.feeding(frame, canvas.WIDE).axes
    assert axes.get_ylim()[1] < 400


def test_cores_and_step_times_have_an_axis_each():
    frame = pd.DataFrame([curve_row(1, 900.0), curve_row(2, 1600.0), curve_row(16, 900.0, "step_ms"), curve_row(50, 320.0, "step_ms")])
    assert ["cores that decode", "time of a step (ms)"] == [axes.get_xlabel() for axes in feed_figures.feeding(frame, canvas.WIDE).axes]


# ---------------------------------------------------------------- all of them

EMPTY_FEED = pd.DataFrame([], columns=[*feed_row(), "axis", "share"])
NOTHING = {
    "stalls": lambda: job_figures.stalls(timeline(), canvas.WIDE),
    "saves": lambda: job_figures.saves(saves_frame(), [], canvas.WIDE),
    "slowdown": lambda: job_figures.slowdown(slow_frame(), canvas.WIDE),
    "pipelines": lambda: feed_figures.pipelines(EMPTY_FEED, None, canvas.WIDE),
    "input_wait": lambda: feed_figures.input_wait(EMPTY_FEED, canvas.WIDE),
    "replay": lambda: feed_figures.replay(EMPTY_FEED, canvas.WIDE),
    "feeding": lambda: feed_figures.feeding(EMPTY_FEED, canvas.WIDE),
}


@pytest.mark.parametrize("draw", NOTHING.values(), ids=NOTHING)
def test_without_data_there_is_no_picture(draw):
    assert draw() is None


FULL = {
    "stalls": lambda layout: job_figures.stalls(
        timeline(lane(LONG), lane("sync"), lane(LONG, contrast="a comparison of a very long name " * 4)), layout
    ),
    "saves": lambda layout: job_figures.saves(
        saves_frame(
            *(
                save_row(measure, label, text=text)
                for measure in ("blocked", "overlap", "durable")
                for label, text in ((LONG, "n/a: failed: " + "why " * 20), ("sync", "1 s"))
            )
        ),
        [("sync-stall", "blocked", 0.2, None)],
        layout,
    ),
    "slowdown": lambda layout: job_figures.slowdown(
        slow_frame(slow_row(claim="nfs-20pct", lo=1.15, hi=1.25), slow_row(LONG, 5.0, 2.0), slow_row(LONG, 60.0, 1.05)), layout
    ),
    "pipelines": lambda layout: feed_figures.pipelines(
        feed_frame(feed_row(LONG), feed_row("python_loop", 20.0, 19.0, 21.0)), ("resnet50, 96 px, graph", 12.0), layout
    ),
    "input_wait": lambda layout: feed_figures.input_wait(pd.DataFrame([{"cell": "a", "label": LONG, "share": 0.3, "blocks": 3}] * 3), layout),
    "replay": lambda layout: feed_figures.replay(feed_frame(feed_row(LONG), feed_row("python_loop", 250.0, 240.0, 260.0)), layout),
    "feeding": lambda layout: feed_figures.feeding(pd.DataFrame([curve_row(1, 900.0, series=LONG), curve_row(4, 2600.0, series=LONG)]), layout),
}


def words_of(figure) -> list:
    """The boxes of all texts that stand in the figure: rows, titles, axes' labels, ticks within the axes, legends."""
    texts = []
    for axes in figure.axes:
        low, high = sorted(axes.get_xlim())
        bottom, top = sorted(axes.get_ylim())
        texts += [*axes.texts, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        texts += [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        texts += [tick.label1 for tick in axes.yaxis.get_major_ticks() if bottom <= tick.get_loc() <= top]
        texts += axes.get_legend().get_texts() if axes.get_legend() else []
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    return [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text().strip()]


@LAYOUTS
@pytest.mark.parametrize("name", FULL)
def test_no_two_texts_overlap_and_none_leaves_the_picture(name, layout):
    with canvas.style():
        figure = FULL[name](layout)
        figure.draw_without_rendering()
        boxes = words_of(figure)
    assert [] == [text for text, box in boxes if box.x0 < -1 or box.x1 > figure.bbox.width + 1 or box.y0 < -1 or box.y1 > figure.bbox.height + 1]
    overlaps = [
        (a, b)
        for (a, one), (b, two) in itertools.combinations(boxes, 2)
        if min(one.x1, two.x1) - max(one.x0, two.x0) > 1 and min(one.y1, two.y1) - max(one.y0, two.y0) > 2
    ]
    assert [] == overlaps


@LAYOUTS
@pytest.mark.parametrize("name", FULL)
def test_every_axis_says_what_it_shows_and_in_which_unit(name, layout):
    for axes in FULL[name](layout).axes:
        assert any(unit in axes.get_xlabel() for unit in ("(s)", "seconds", "samples/s", "(%)", "cores", "(ms)"))
