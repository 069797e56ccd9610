"""Jobs: their events become readings, whatever ends them; supervised ones are killed and come back; scratch folders come and go."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from harness.errors import MeasureError
from harness.measure.crew import Stage, TrialEnded
from harness.measure.lives import ask_job, start
from harness.measure.supervise import kill_steps
from harness.model import Arrangement, Driver, RoundRecord, State, Trial
from tests.measure.builders import ROOT, make_job, make_place, make_round, make_trial, run, with_deadlines


def solo(trial: Trial, folder: Path, **ports) -> RoundRecord:
    return run(make_round(trial, arrangement=Arrangement.SOLO), folder, **ports)


def named(record: RoundRecord, name: str):
    return [reading for reading in record.readings if reading.name == name]


# ---------------------------------------------------------------- jobs


def test_the_events_of_a_job_become_readings_with_their_own_stamps_and_steps(tmp_path: Path):
    record = solo(make_job("a", steps=4), tmp_path)
    steps = named(record, "step")
    (job,) = named(record, "job")
    assert State.COMPLETED == record.outcome.state
    assert ([1, 2, 3, 4], 16.0, "samples", 4) == ([reading.n for reading in steps], job.value, job.unit, job.n)
    assert job.t0_ns <= steps[0].t0_ns < steps[0].t1_ns <= steps[1].t0_ns < steps[-1].t1_ns <= job.t1_ns


def test_a_job_has_a_phase_of_its_own(tmp_path: Path):
    (trial,) = solo(make_job("a"), tmp_path).trials
    assert ["spawn", "import", "build", "job", "end"] == list(trial.phases_s)


@pytest.mark.parametrize(("fault", "ran"), [("fewer", 5), ("more", 7)])
def test_a_job_of_other_steps_than_asked_is_invalid_with_both_numbers(tmp_path: Path, fault: str, ran: int):
    outcome = solo(make_job("a", steps=6, fault=fault), tmp_path).outcome
    assert (State.INVALID, f"{fault}_steps", "job") == (outcome.state, outcome.reason.code, outcome.phase)
    assert {"asked": 6, "ran": ran} == outcome.reason.numbers


def test_a_job_that_does_not_say_how_many_steps_it_did_is_invalid(tmp_path: Path):
    outcome = solo(make_job("a", fault="tells_no_job"), tmp_path).outcome
    assert (State.INVALID, "no_work") == (outcome.state, outcome.reason.code)


def test_a_job_that_was_traced_anew_while_it_was_timed_is_invalid_and_keeps_its_events(tmp_path: Path):
    record = solo(make_job("a", steps=3, fault="retraces"), tmp_path)
    outcome = record.outcome
    assert (State.INVALID, "traced_in_job", "job", {"traces": 2}) == (outcome.state, outcome.reason.code, outcome.phase, outcome.reason.numbers)
    assert outcome.reason.text.startswith("traced during the timed part of the job: 2 new traces")
    assert ([1, 2, 3], [2]) == ([reading.n for reading in named(record, "step")], [reading.value for reading in named(record, "timed_traces")])


def test_a_job_that_fails_keeps_its_events_and_its_own_code_and_numbers(tmp_path: Path):
    record = solo(make_job("a", fault="breaks"), tmp_path)
    reason = record.outcome.reason
    assert (State.FAILED, "disk_full", "job") == (record.outcome.state, reason.code, record.outcome.phase)
    assert {"free_bytes": 5, "error": "BrokenError"} == reason.numbers
    assert [1, 2, 3] == [reading.n for reading in named(record, "step")]


def test_a_job_without_room_is_out_of_memory(tmp_path: Path):
    assert "out_of_memory" == solo(make_job("a", fault="memory", at="job"), tmp_path).outcome.reason.code


def test_a_job_that_hangs_is_timed_out_as_a_job(tmp_path: Path):
    outcome = solo(with_deadlines(make_job("a", fault="hang", at="job"), job_s=0.3), tmp_path).outcome
    assert (State.TIMED_OUT, "job", 0.3) == (outcome.state, outcome.phase, outcome.reason.numbers["deadline_s"])


def test_a_workload_without_a_job_fails_by_name(tmp_path: Path):
    outcome = solo(make_trial("a", driver=Driver.JOB), tmp_path).outcome
    assert (State.FAILED, "the worker: AttributeError: this workload has no job") == (outcome.state, outcome.reason.text)


def test_jobs_take_turns_of_trials(tmp_path: Path):
    record = run(make_round(make_job("a", steps=2), make_job("b", steps=2), arrangement=Arrangement.TURNS_OF_TRIALS), tmp_path)
    assert State.COMPLETED == record.outcome.state
    jobs = sorted(named(record, "job"), key=lambda reading: reading.t0_ns)
    assert (record.order, 4) == ("".join(reading.trial.upper() for reading in jobs), len(jobs))


def test_what_a_worker_told_before_it_died_is_heard(tmp_path: Path):
    heard: list[int] = []
    place = make_place(tmp_path)
    with Stage(lambda: False, place.live, (ROOT,), place.logs) as stage:
        (crew,) = start(stage, [make_job("a", fault="dies")], ["a"], lambda *_: None)
        with pytest.raises(TrialEnded, match="killed by signal 9"):
            ask_job(stage, crew, lambda _, event: heard.append(event[5]))
    assert [1, 2, 3] == heard


def test_streamed_events_are_in_the_answer_too(tmp_path: Path):
    heard: list[list] = []
    place = make_place(tmp_path)
    with Stage(lambda: False, place.live, (ROOT,), place.logs) as stage:
        (crew,) = start(stage, [make_job("a", steps=3)], ["a"], lambda *_: None)
        answer = ask_job(stage, crew, lambda _, event: heard.append(event))
    assert ["step", "step", "step", "job"] == [event[0] for event in heard]
    assert answer["events"] == heard


# ---------------------------------------------------------------- several lives


@pytest.mark.parametrize(("kills", "steps"), [(1, 2), (2, 3), (3, 100), (2, 10)])
def test_each_kill_strikes_in_its_own_part_of_the_steps_and_none_in_the_last(kills: int, steps: int):
    for seed in range(50):
        struck = kill_steps(seed, kills, steps)
        parts = [part * steps // (kills + 1) for part in range(kills + 1)]
        assert [True] * kills == [low < step <= high for step, (low, high) in zip(struck, pairwise(parts), strict=True)]
        assert all(1 <= step < steps for step in struck)


def test_a_seed_decides_where_kills_strike():
    assert kill_steps(5, 2, 1000) == kill_steps(5, 2, 1000)
    assert 1 < len({tuple(kill_steps(seed, 2, 1000)) for seed in range(5)})


def test_a_supervised_job_is_killed_twice_and_comes_to_its_end(tmp_path: Path):
    record = solo(make_job("a", steps=12, kills=2, step_s=0.05), tmp_path)
    killed, resumed = named(record, "killed_at_step"), named(record, "resumed_at")
    (job,) = named(record, "job")
    wanted = kill_steps(7, 2, 12)
    assert (State.COMPLETED, 2, 12) == (record.outcome.state, len(killed), job.n)
    assert all(step.value >= due for step, due in zip(killed, wanted, strict=True))
    assert [12 - resumed[0].value, resumed[0].value >= killed[1].value] == [job.value / 4, True]


def test_only_the_last_life_s_events_are_readings(tmp_path: Path):
    record = solo(make_job("a", steps=12, kills=2, step_s=0.05), tmp_path)
    (resumed,) = named(record, "resumed_at")
    assert list(range(int(resumed.value) + 1, 13)) == [reading.n for reading in named(record, "step")]


def test_a_restart_lasts_from_the_kill_to_the_first_event_of_the_next_life(tmp_path: Path):
    record = solo(make_job("a", steps=12, kills=2, step_s=0.05), tmp_path)
    killed, restarts = named(record, "killed_at_step"), named(record, "restart_s")
    assert [reading.t0_ns for reading in killed] == [reading.t0_ns for reading in restarts]
    assert [(reading.t1_ns - reading.t0_ns) / 1e9 for reading in restarts] == [reading.value for reading in restarts]
    assert restarts[0].t1_ns < killed[1].t0_ns


def test_a_supervised_trial_is_recorded_by_its_last_life_and_its_first_phases(tmp_path: Path):
    (trial,) = solo(make_job("a", steps=9, kills=2, step_s=0.05), tmp_path).trials
    assert (True, False) == (trial.log.endswith("-s2-lead.log"), "life" in trial.used)
    assert ["spawn", "import", "build"] == list(trial.phases_s)
    assert trial.peak_rss_bytes > 1 << 20
    assert 3 == len(list((tmp_path / "logs").glob("*.log")))


def test_a_supervised_job_without_kills_is_a_job(tmp_path: Path):
    record = solo(make_job("a", kills=0), tmp_path)
    assert (State.COMPLETED, [], 1) == (record.outcome.state, named(record, "killed_at_step"), len(named(record, "job")))


def test_a_life_that_ends_before_its_kill_makes_the_trial_invalid(tmp_path: Path):
    outcome = solo(make_job("a", kills=1, fault="tells_no_step"), tmp_path).outcome
    assert (State.INVALID, "not_killed", 0, 0) == (
        outcome.state,
        outcome.reason.code,
        outcome.reason.numbers["life"],
        outcome.reason.numbers["last_step"],
    )


def test_a_life_that_fails_before_its_kill_fails_the_trial_and_keeps_its_events(tmp_path: Path):
    record = solo(make_job("a", steps=1000, kills=1, fault="breaks"), tmp_path)
    assert (State.FAILED, "disk_full", 3) == (record.outcome.state, record.outcome.reason.code, len(named(record, "step")))


@pytest.mark.parametrize(("fault", "code"), [("dies", "killed"), ("exit_in_job", "silent_exit")])
def test_a_life_that_dies_by_itself_fails_the_trial(tmp_path: Path, fault: str, code: str):
    record = solo(make_job("a", steps=1000, kills=1, fault=fault), tmp_path)
    assert (State.FAILED, code, "job") == (record.outcome.state, record.outcome.reason.code, record.outcome.phase)
    assert [] == named(record, "killed_at_step")


def test_supervised_trials_take_turns_too(tmp_path: Path):
    trials = (make_job("a", steps=4, kills=1, step_s=0.05), make_job("b", steps=2))
    record = run(make_round(*trials, arrangement=Arrangement.TURNS_OF_TRIALS), tmp_path)
    assert [State.COMPLETED] * 3 == [record.outcome.state, *(trial.outcome.state for trial in record.trials)]
    assert (2, 2) == (len(named(record, "killed_at_step")), sum(reading.trial == "a" for reading in named(record, "job")))


def test_a_stop_between_lives_is_an_interruption(tmp_path: Path):
    killed: list[bool] = []

    def tell(progress) -> None:
        if progress.text.startswith("killed"):
            killed.append(True)

    record = solo(make_job("a", steps=8, kills=1, step_s=0.05), tmp_path, tell=tell, stop=lambda: bool(killed))
    assert State.INTERRUPTED == record.outcome.state
    assert not any((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize("steps", [2, None])
def test_a_supervised_trial_needs_more_steps_than_kills(tmp_path: Path, steps: int | None):
    with pytest.raises(MeasureError, match="more `steps` than kills"):
        solo(make_job("a", steps=steps, kills=2), tmp_path)


# ---------------------------------------------------------------- scratch folders


@pytest.mark.parametrize("trial", [make_job("a"), make_job("a", steps=6, kills=1, step_s=0.05), make_job("a", fault="dies")])
def test_a_scratch_folder_is_gone_after_its_trial_and_in_no_record(tmp_path: Path, trial: Trial):
    record = solo(trial, tmp_path)
    assert [] == list((tmp_path / "scratch").iterdir())
    assert not any("scratch_dir" in names for names in (record.trials[0].asked, record.trials[0].used))
    assert str(tmp_path) not in str(record)


def test_a_failure_names_what_lies_in_its_scratch_folder_without_the_place(tmp_path: Path):
    assert solo(make_job("a", fault="breaks"), tmp_path).outcome.reason.text.endswith("no room left in duet-0.0-a/steps")


def test_each_start_of_a_trial_finds_its_scratch_folder_empty(tmp_path: Path):
    trials = [replace(make_job(name), driver=Driver.ONCE) for name in "ab"]
    record = run(make_round(*trials, arrangement=Arrangement.TURNS_OF_TRIALS), tmp_path)
    assert [0] * 4 == [reading.value for reading in named(record, "files")]


def test_what_a_killed_run_left_in_a_scratch_folder_is_not_found(tmp_path: Path):
    leftover = tmp_path / "scratch" / "duet-0.0-a-s0"
    leftover.mkdir(parents=True)
    (leftover / "steps").write_text("5\n")
    assert [] == named(solo(make_job("a"), tmp_path), "resumed_at")


def test_trials_of_blocks_have_no_scratch_folder(tmp_path: Path):
    record = solo(make_trial("a", target="build_errand"), tmp_path)
    assert (State.COMPLETED, False) == (record.outcome.state, (tmp_path / "scratch").exists())


def test_without_a_place_for_it_there_is_no_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.measure.builders.make_place", lambda folder: replace(make_place(folder), scratch=None))
    (reading,) = named(solo(replace(make_job("a"), driver=Driver.ONCE), tmp_path), "files")
    assert (None, "no scratch folder") == (reading.value, reading.reason)


def test_a_scratch_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path):
    (tmp_path / "scratch").write_text("in the way")
    with pytest.raises(MeasureError, match="name another folder"):
        solo(make_job("a"), tmp_path)


def test_a_stop_removes_the_scratch_folder_as_well(tmp_path: Path):
    until = time.monotonic() + 0.5

    def stop() -> bool:
        return any((tmp_path / "scratch").glob("*")) and time.monotonic() > until

    record = solo(make_job("a", fault="hang", at="job"), tmp_path, stop=stop)
    assert (State.INTERRUPTED, []) == (record.outcome.state, list((tmp_path / "scratch").iterdir()))


def test_the_other_processes_of_a_crew_know_the_scratch_folder_as_well(tmp_path: Path):
    trial = make_job("a")
    helper = replace(trial.processes[0], role="helper", target="tests.measure.fake_workloads:build_noting_bystander")
    record = solo(replace(trial, processes=(*trial.processes, helper)), tmp_path)
    assert State.COMPLETED == record.outcome.state
    assert "scratch ok" in next((tmp_path / "logs").glob("*helper*.log")).read_text()
