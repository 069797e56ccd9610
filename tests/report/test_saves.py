"""What saves cost: medians of rounds with their range, the first save apart, and a reason for whatever is missing."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from harness.model import Reading
from harness.report import saves
from harness.report.index import Index, build_index
from tests.report.builders import Builder
from tests.report.job_builders import (
    ASYNC,
    NONE,
    SYNC,
    add_jobs,
    claim_level,
    claim_slowdown,
    make_job,
    make_job_contrast,
    make_saving_cell,
    make_saving_run,
)  # fmt: skip


def index_of(builder: Builder) -> Index:
    manifest, records, verdicts, _ = builder.run()
    return build_index(manifest, records, verdicts)


def row_of(builder: Builder, cell, measure: str = "blocked"):
    frame = saves.saves_frame(index_of(builder))
    (row,) = frame[frame["cell"].eq(cell.id) & frame["measure"].eq(measure)].itertuples()
    return row


def slowdowns(builder: Builder) -> pd.DataFrame:
    return saves.slowdown_frame(index_of(builder))


def test_a_save_s_cost_is_the_median_of_the_rounds_with_their_range():
    row = row_of(make_saving_run(0.3, 0.8, 0.4), SYNC)
    assert (0.4, 0.3, 0.8, 3) == (pytest.approx(row.point), pytest.approx(row.low), pytest.approx(row.high), row.rounds)
    assert "400 ms (300 ms to 800 ms)" == row.text


def test_the_first_save_does_not_count():
    # It is made ten times as long as the others.
    assert pytest.approx(0.4) == row_of(make_saving_run(0.4), SYNC).point


def test_one_round_has_no_range():
    assert "400 ms (one round)" == row_of(make_saving_run(0.4), SYNC).text


def test_longer_steps_are_what_they_took_over_as_many_clear_ones():
    # Two steps of 0.75 s where clear ones take 0.5 s; the stretch after the first save does not count.
    assert pytest.approx(0.5) == row_of(make_saving_run(0.4), ASYNC, "overlap").point


def test_longer_steps_are_held_against_clear_ones_that_were_timed_singly_where_there_are_some():
    # Two clear steps of 0.6 s each, timed one by one, where those of a stretch take 0.5 s.
    singles = Reading(ASYNC.id, "clear_single_step_s", 0.6, "s", t0_ns=101_000_000_000, t1_ns=102_200_000_000)
    builder = Builder()
    add_jobs(builder, make_job_contrast("saving", ASYNC), [ASYNC], [*make_job(ASYNC, blocked_s=0.01, overlapping=2), singles])
    assert pytest.approx(2 * (0.75 - 0.6)) == row_of(builder, ASYNC, "overlap").point


def test_durable_is_counted_from_the_call():
    assert pytest.approx(1.0) == row_of(make_saving_run(0.4), ASYNC, "durable").point


def test_a_save_that_nothing_overlaps_says_so():
    row = row_of(make_saving_run(0.4), SYNC, "overlap")
    assert pd.isna(row.point)
    assert "n/a: no step ran while a save was written" == row.text


def test_a_null_shows_the_reason_that_was_told():
    builder = Builder()
    readings = [r for r in make_job(SYNC, blocked_s=0.4) if r.name != "durable_s"]
    add_jobs(builder, make_job_contrast("saving", SYNC), [SYNC], [*readings, Reading(SYNC.id, "durable_s", None, "s", "fsync is not allowed here")])
    assert "n/a: fsync is not allowed here" == row_of(builder, SYNC, "durable").text


def test_a_single_save_has_no_cost_of_later_ones():
    builder, once = Builder(), make_saving_cell("sync", interval_steps=12)
    add_jobs(builder, make_job_contrast("saving", once), [once], make_job(once, blocked_s=0.4))
    assert "n/a: only one save was made" == row_of(builder, once).text


def test_a_failed_job_keeps_its_row_with_the_reason():
    builder = Builder()
    add_jobs(builder, make_job_contrast("saving", SYNC), [SYNC], [], failed={SYNC.id: "no space left on the device"})
    assert "n/a: failed: no space left on the device" == row_of(builder, SYNC).text


def test_a_job_without_saves_has_no_row():
    assert {SYNC.id, ASYNC.id} == set(saves.saves_frame(index_of(make_saving_run(0.4)))["cell"])


def test_without_jobs_there_is_nothing():
    builder = Builder()
    index = index_of(builder)
    assert saves.saves_frame(index).empty
    assert saves.slowdown_frame(index).empty


def test_a_planned_job_that_did_not_run_yet_has_no_row():
    builder = make_saving_run(0.4)
    builder.records = []
    assert saves.saves_frame(index_of(builder)).empty


def test_restored_checkpoints_are_counted():
    assert {SYNC.id: (3, 3), ASYNC.id: (3, 3)} == saves.restored_counts(index_of(make_saving_run(0.4)))


def test_a_checkpoint_that_came_back_otherwise_is_counted_as_such():
    builder = Builder()
    add_jobs(builder, make_job_contrast("saving", SYNC), [SYNC], [*make_job(SYNC, blocked_s=0.4), Reading(SYNC.id, "restored_equal", 0.0, "holds")])
    assert {SYNC.id: (3, 4)} == saves.restored_counts(index_of(builder))


@pytest.mark.parametrize(
    ("expected", "measure"),
    [([("sync-stall", "blocked", 0.2, None)], "blocked_s"), ([("sync-stall", "durable", 0.2, None)], "durable_s"), ([], "save_bytes")],
)
def test_a_band_in_seconds_belongs_to_what_it_is_claimed_of(expected, measure):
    builder = make_saving_run(0.4)
    claim_level(builder, SYNC, measure=measure)
    assert expected == saves.save_levels(index_of(builder))


def test_a_slowdown_is_the_job_with_saves_over_the_job_without():
    frame = slowdowns(make_saving_run(0.4)).set_index("cell")
    # 12 steps of 0.5 s, one save of 4 s and two of 0.4 s, every 4 steps.
    assert pytest.approx((6.0 + 4.0 + 0.8) / 6.0) == frame["point"][SYNC.id]
    assert (pytest.approx(2.0), pytest.approx(0.4)) == (frame["interval_s"][SYNC.id], frame["blocked_s"][SYNC.id])


def test_jobs_of_different_length_are_compared_step_for_step():
    builder = Builder()
    short, long = make_saving_cell("none", steps=6), make_saving_cell("sync", steps=24)
    contrast = make_job_contrast("saving", short, long)
    rows = [*make_job(short, end_to_end="end_to_end_s"), *make_job(long, blocked_s=0.2, start_s=300.0, end_to_end="end_to_end_s")]
    add_jobs(builder, contrast, [short, long], rows)
    # 24 steps of 0.5 s, one save of 2 s and five of 0.2 s.
    assert [pytest.approx((12.0 + 2.0 + 1.0) / 12.0)] == list(slowdowns(builder)["point"])


def test_an_interval_that_was_asked_for_in_seconds_is_what_the_job_made_of_it():
    builder = Builder()
    none, slow = make_saving_cell("none", interval_s=25), make_saving_cell("sync", storage="slow", interval_s=25)
    add_jobs(builder, make_job_contrast("saving", none, slow), [none, slow], [*make_job(none), *make_job(slow, blocked_s=0.4, start_s=300.0)])
    (record,) = builder.records
    builder.records = [replace(record, trials=tuple(replace(trial, used={"interval_steps_chosen": 51}) for trial in record.trials))]
    assert [pytest.approx(25.5)] == list(slowdowns(builder)["interval_s"])


def test_an_interval_in_seconds_of_which_nothing_more_is_known_is_taken_as_it_was_asked_for():
    builder = Builder()
    none, slow = make_saving_cell("none", interval_s=25), make_saving_cell("sync", storage="slow", interval_s=25)
    add_jobs(builder, make_job_contrast("saving", none, slow), [none, slow], [*make_job(none), *make_job(slow, blocked_s=0.4, start_s=300.0)])
    assert [(25.0, "sync, slow storage")] == list(slowdowns(builder)[["interval_s", "series"]].itertuples(index=False, name=None))


def test_one_way_of_saving_is_one_series_in_the_order_of_its_intervals():
    builder = Builder()
    often, seldom = make_saving_cell("sync", 2), make_saving_cell("sync", 6)
    contrast = make_job_contrast("saving", NONE, seldom, often)
    add_jobs(
        builder,
        contrast,
        [NONE, seldom, often],
        [*make_job(NONE), *make_job(seldom, blocked_s=0.1, start_s=300.0), *make_job(often, blocked_s=0.1, start_s=400.0)],
    )
    frame = slowdowns(builder)
    assert [("sync", 1.0), ("sync", 3.0)] == [(row.series, pytest.approx(row.interval_s)) for row in frame.itertuples()]


def test_a_claimed_slowdown_stands_at_its_own_cell():
    builder = make_saving_run(0.4)
    claim_slowdown(builder, "saving", NONE, SYNC)
    frame = slowdowns(builder).set_index("cell")
    assert ("nfs-20pct", 1.15, 1.25) == tuple(frame.loc[SYNC.id, ["claim", "lo", "hi"]])
    assert frame.loc[ASYNC.id, ["claim", "lo", "hi"]].isna().all()


def test_a_job_that_does_not_say_how_long_it_took_keeps_its_row():
    builder = Builder()
    contrast = make_job_contrast("saving", NONE, SYNC)
    add_jobs(builder, contrast, [NONE, SYNC], [*make_job(NONE, end_to_end=None), *make_job(SYNC, blocked_s=0.4, start_s=300.0)])
    assert ["n/a: the job without saves told no time from end to end"] == list(slowdowns(builder)["text"])


def test_without_a_job_that_never_saves_there_is_no_slowdown():
    builder = Builder()
    add_jobs(
        builder,
        make_job_contrast("saving", SYNC, ASYNC),
        [SYNC, ASYNC],
        [*make_job(SYNC, blocked_s=0.4), *make_job(ASYNC, blocked_s=0.1, start_s=300.0)],
    )
    assert slowdowns(builder).empty
