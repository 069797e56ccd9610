"""Feeding: pipelines alone, what training needs, and for how many stand-in accelerators what came is enough."""

from __future__ import annotations

import pandas as pd
import pytest

from harness.model import ArmResult, CaseResult, ClaimResult, Word
from harness.report import feeds, make_tables
from harness.report.index import build_index
from tests.report.builders import Builder, make_cell, make_verdict
from tests.report.job_builders import add_rates, make_feed_cell


def tables_of(builder: Builder) -> dict:
    manifest, records, verdicts, _ = builder.run()
    return make_tables(build_index(manifest, records, verdicts))


LOOP, TFDATA = make_feed_cell(level="python_loop"), make_feed_cell(level="tfdata")


def two_pipelines() -> Builder:
    builder = Builder()
    add_rates(builder, "pipes", (LOOP, [240.0, 250.0, 260.0]), (TFDATA, [900.0, 1000.0, 1100.0]))
    return builder


def replays(*arms: tuple) -> Builder:
    builder = Builder()
    add_rates(builder, "replays", *arms)
    return builder


def test_pipelines_stand_with_the_fastest_first_and_their_range():
    rows = [(row.label, row.point, row.low, row.high, row.unit) for row in tables_of(two_pipelines())["pipelines"].itertuples()]
    assert [("tfdata", 1000.0, 900.0, 1100.0, "samples/s"), ("python_loop", 250.0, 240.0, 260.0, "samples/s")] == rows


def test_a_pipeline_s_text_names_its_range():
    assert "1,000 samples/s (900 samples/s to 1,100 samples/s)" == tables_of(two_pipelines())["pipelines"]["text"][0]


def test_one_round_of_a_pipeline_has_no_range():
    builder = Builder()
    add_rates(builder, "pipes", (TFDATA, [1000.0]))
    assert "1,000 samples/s (one round)" == tables_of(builder)["pipelines"]["text"][0]


def test_a_pipeline_that_failed_keeps_its_row_with_the_reason():
    builder = two_pipelines()
    dead = make_feed_cell(level="feed_dict")
    builder.cells[dead.id] = dead
    arms = (ArmResult(dead.id, dead.id, None, "", 0, None, "n/a: failed in build: no session"),)
    result = CaseResult("a.case", "a case", None, make_verdict(Word.READING), arms)
    builder.results.append(ClaimResult("a", make_verdict(Word.READING), (result,)))
    assert "n/a: failed in build: no session" == tables_of(builder)["pipelines"].set_index("label")["text"]["feed_dict"]


def test_training_is_no_pipeline():
    builder = Builder()
    builder.measure("graph", make_cell(execution="eager"), make_cell(), 3.0, 2.0, rounds=2)
    assert tables_of(builder)["pipelines"].empty


def test_what_training_needs_is_its_fastest_arm_on_the_device():
    builder = two_pipelines()
    builder.measure("graph", make_cell(execution="eager"), make_cell(), 3.0, 2.0, rounds=1)
    builder.measure("input", make_cell(input="python_loop"), make_cell(input="tfdata"), 50.0, 2.0, rounds=1)
    assert ("resnet50, 96 px, graph", pytest.approx(5.94)) == tables_of(builder)["need"]


def test_what_training_needs_is_read_at_the_pipelines_image_size_where_that_was_trained():
    builder = two_pipelines()
    builder.measure("graph", make_cell(execution="eager"), make_cell(), 30.0, 2.0, rounds=1)
    builder.measure("big", make_cell(image=224, execution="eager"), make_cell(image=224), 3.0, 2.0, rounds=1)
    assert "resnet50, 224 px, graph" == tables_of(builder)["need"][0]


def test_without_training_on_the_device_nothing_is_needed():
    assert tables_of(two_pipelines())["need"] is None


def test_what_came_is_counted_in_stand_ins():
    # 16 samples in 16 ms: one of them takes 1000 a second.
    (row,) = tables_of(replays((make_feed_cell("replay", devices=8, cores=1), [400.0, 420.0])))["replay"].itertuples()
    assert (1000.0, 8000.0, pytest.approx(0.41)) == (row.one, row.asked, row.fed)


def test_a_stand_in_of_unknown_speed_is_not_counted():
    (row,) = tables_of(replays((make_feed_cell("replay", step_ms=None), [400.0])))["replay"].itertuples()
    assert pd.isna(row.fed)


@pytest.mark.parametrize(
    ("expected", "devices", "rate"),
    [
        ("This host can feed 0.410 accelerators that take 1,000 samples/s each: 410 samples/s is the most that came (tfdata).", 1, 410.0),
        ("This host can feed 2.50 accelerators that take 1,000 samples/s each: 2,500 samples/s is the most that came (tfdata).", 8, 2500.0),
        ("This host can feed at least 1.00 accelerator that takes 1,000 samples/s each: 1,000 samples/s is the most that came (tfdata).", 1, 1000.0),
    ],
)
def test_the_host_feeds_so_many_accelerators(expected, devices, rate):
    cells = [make_feed_cell("replay", level, devices=devices) for level in ("python_loop", "tfdata", "synthetic")]
    frame = tables_of(replays((cells[0], [100.0]), (cells[1], [rate]), (cells[2], [5000.0])))["replay"]
    assert expected == feeds.feeds(frame)


def test_data_that_need_no_files_show_nothing_of_the_host():
    frame = tables_of(replays((make_feed_cell("replay", "synthetic"), [1000.0])))["replay"]
    assert "" == feeds.feeds(frame)


def test_cells_that_differ_in_cores_make_a_curve():
    arms = [(make_feed_cell("replay", devices=8, cores=cores), [rate]) for cores, rate in ((2, 900.0), (1, 500.0), (4, 1700.0))]
    frame = tables_of(replays(*arms))["feeding"]
    assert [("cores", 1.0, 500.0), ("cores", 2.0, 900.0), ("cores", 4.0, 1700.0)] == list(zip(frame["axis"], frame["x"], frame["point"], strict=True))


def test_cells_that_differ_in_the_time_of_a_step_make_a_curve():
    arms = [(make_feed_cell("replay", step_ms=ms), [rate]) for ms, rate in ((16, 900.0), (50, 320.0))]
    frame = tables_of(replays(*arms))["feeding"]
    assert [("step_ms", 16.0, 1000.0), ("step_ms", 50.0, 320.0)] == list(zip(frame["axis"], frame["x"], frame["one"], strict=True))


def test_one_point_is_no_curve():
    assert tables_of(replays((make_feed_cell("replay", cores=1), [400.0])))["feeding"].empty


def test_cells_that_differ_in_more_than_one_thing_are_no_curve():
    arms = [(make_feed_cell("replay", "tfdata", cores=1), [500.0]), (make_feed_cell("replay", "python_loop", cores=2), [250.0])]
    assert tables_of(replays(*arms))["feeding"].empty


def test_a_gain_of_feeding_alone_is_no_speed_up_of_training():
    builder = two_pipelines()
    builder.ratio_claim("cache", make_feed_cell(level="tfdata"), make_feed_cell(level="tfdata_cache"), 13.0, Word.CONFIRMED)
    assert [False] == [bool(trains) for trains in tables_of(builder)["speedups"]["trains"]]
