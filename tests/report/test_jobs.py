"""Jobs: where their time went, by their own stamps; which round stands for the others; how jobs are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model import Arrangement, Driver, Reading
from harness.report import jobs
from harness.report.index import build_index
from tests.report.builders import Builder, make_cell
from tests.report.job_builders import ASYNC, NONE, SYNC, add_jobs, make_job, make_job_contrast, make_saving_cell, make_saving_run


def timeline_of(builder: Builder):
    manifest, records, verdicts, _ = builder.run()
    return jobs.timeline_frame(build_index(manifest, records, verdicts))


def seconds_by_kind(frame, cell) -> dict[str, float]:
    part = frame[frame["cell"].eq(cell.id)]
    return {kind: pytest.approx(float(value)) for kind, value in (part["end_s"] - part["start_s"]).groupby(part["kind"]).sum().items()}


def test_a_job_s_time_goes_into_steps_saves_and_the_steps_beside_a_save():
    frame = timeline_of(make_saving_run(0.4))
    # 8 clear steps of 0.5 s, two stretches of two steps of 0.75 s, a first save of 0.1 s and two of 0.01 s; a durable save is a moment.
    assert {"clear": 4.0, "overlap": 3.0, "blocked": 0.12, "durable": 0.0} == seconds_by_kind(frame, ASYNC)


def test_a_save_is_durable_after_its_call_not_after_it_let_go():
    frame = timeline_of(make_saving_run(0.4))
    marks = frame[frame["cell"].eq(ASYNC.id) & frame["kind"].eq("durable")]["end_s"]
    assert [3.0, 5.6, 8.11] == [pytest.approx(mark) for mark in marks]


def test_a_job_without_saves_is_one_stretch():
    frame = timeline_of(make_saving_run(0.4))
    assert {"clear": 6.0} == seconds_by_kind(frame, NONE)


def test_the_timeline_shows_the_round_of_median_length():
    frame = timeline_of(make_saving_run(0.9, 0.2, 0.4))
    assert ["Saving, ResNet-50 (round 3)"] == list(frame["panel"].unique())


def test_a_trial_that_ran_twice_shows_its_first_job():
    builder = Builder()
    contrast = make_job_contrast("twice", SYNC, arrangement=Arrangement.TURNS_OF_TRIALS)
    add_jobs(builder, contrast, [SYNC], [*make_job(SYNC, blocked_s=0.4, start_s=500.0), *make_job(SYNC, blocked_s=0.1, start_s=200.0)])
    assert [6.0 + 12 * 0.1] == [pytest.approx(length) for length in timeline_of(builder)["job_s"].unique()]


def test_jobs_that_never_save_have_no_timeline():
    builder = Builder()
    add_jobs(builder, make_job_contrast("still", NONE), [NONE], make_job(NONE))
    assert timeline_of(builder).empty


def test_a_job_that_is_killed_on_purpose_has_no_timeline():
    builder = Builder()
    add_jobs(builder, make_job_contrast("killed", SYNC, driver=Driver.SUPERVISE), [SYNC], make_job(SYNC, blocked_s=0.4))
    assert timeline_of(builder).empty


def test_a_round_that_failed_has_no_timeline():
    builder = Builder()
    add_jobs(builder, make_job_contrast("lost", SYNC), [SYNC], make_job(SYNC, blocked_s=0.4), failed={SYNC.id: "disk full"})
    assert timeline_of(builder).empty


def test_an_event_without_stamps_is_no_stretch():
    builder = make_saving_run(0.4)
    (record,) = builder.records
    builder.records = [replace(record, readings=(*record.readings, Reading(SYNC.id, "verify_pause_s", 0.3, "s")))]
    assert "pause" not in set(timeline_of(builder)["kind"])


def test_a_pause_to_check_a_save_is_a_stretch_of_its_own():
    builder = make_saving_run(0.4)
    (record,) = builder.records
    pause = Reading(SYNC.id, "verify_pause_s", 0.3, "s", t0_ns=202_000_000_000, t1_ns=202_300_000_000)
    builder.records = [replace(record, readings=(*record.readings, pause))]
    assert pytest.approx(0.3) == seconds_by_kind(timeline_of(builder), SYNC)["pause"].expected


@pytest.mark.parametrize(
    ("expected", "cells"),
    [
        (["no saves", "sync", "async"], [NONE, SYNC, ASYNC]),
        (["sync, every 4 steps", "sync, every 1 step"], [SYNC, make_saving_cell("sync", 1)]),
        (["no saves", "sync, slow storage"], [make_saving_cell("none", interval_s=25), make_saving_cell("sync", storage="slow", interval_s=25)]),
        (["sync, every 5.00 s", "sync, every 25.0 s"], [make_saving_cell(interval_s=5), make_saving_cell(interval_s=25)]),
        (["batch 8, sync", "batch 16, async"], [SYNC, make_saving_cell("async", batch=16)]),
    ],
)
def test_a_job_is_named_by_how_it_saves(expected, cells):
    assert expected == jobs.save_labels(cells)


def test_nothing_but_the_saving_may_differ_where_saves_are_compared():
    builder = make_saving_run(0.4)
    mixed = make_job_contrast("mixed", SYNC, replace(ASYNC, levels={**ASYNC.levels, "execution": "eager"}))
    builder.contrasts.append(mixed)
    builder.cells |= {
        trial.cell: cell for trial, cell in zip(mixed.trials, (SYNC, replace(ASYNC, levels={**ASYNC.levels, "execution": "eager"})), strict=True)
    }
    manifest, records, verdicts, _ = builder.run()
    assert ["saving"] == [contrast.id for contrast in jobs.saving_contrasts(build_index(manifest, records, verdicts))]


def test_a_job_s_wait_for_input_is_a_share_of_its_whole_time():
    builder = Builder()
    waits = [Reading(NONE.id, "input_wait_s", seconds, "s") for seconds in (1.0, 0.5)]
    add_jobs(builder, make_job_contrast("waits", NONE), [NONE], [*make_job(NONE), *waits])
    manifest, records, verdicts, _ = builder.run()
    frame = jobs.job_waits_frame(build_index(manifest, records, verdicts))
    assert [(NONE.id, 0.25, 1)] == list(frame.itertuples(index=False, name=None))


def test_a_pause_to_check_a_save_is_no_time_of_a_job_that_waits():
    builder = Builder()
    pause = Reading(NONE.id, "verify_pause_s", 3.0, "s", t0_ns=101_000_000_000, t1_ns=104_000_000_000)
    add_jobs(builder, make_job_contrast("waits", NONE), [NONE], [*make_job(NONE), pause, Reading(NONE.id, "input_wait_s", 1.5, "s")])
    manifest, records, verdicts, _ = builder.run()
    assert [0.5] == list(jobs.job_waits_frame(build_index(manifest, records, verdicts))["share"])


def test_blocks_are_no_jobs():
    builder = Builder()
    builder.measure("graph", make_cell(execution="eager"), make_cell(), 3.0, 2.0, rounds=2)
    assert timeline_of(builder).empty
