"""What goes wrong in workers becomes an outcome with a reason; no round hangs, raises, or leaves a process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Arrangement, Driver, RoundRecord, State, TrialRecord
from tests.measure.builders import FAKES, ROOT, make_process, make_round, make_trial, run, with_deadlines
from tests.measure.fake_workloads import HANG_S

PHASES = ("build", "trace", "first", "warmup", "blocks", "once", "end")


def solo(folder: Path, *, deadline: str = "", **settings) -> TrialRecord:
    driver = Driver.ONCE if settings.get("at") == "once" else Driver.BLOCKS
    trial = make_trial("bad", driver=driver, **settings)
    if deadline:
        trial = with_deadlines(trial, **{deadline: 0.3})
    record = run(make_round(trial, arrangement=Arrangement.SOLO, quads=1), folder)
    assert record.outcome == record.trials[0].outcome
    return record.trials[0]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone_within(pids: list[int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(is_alive, pids))


def test_a_worker_killed_by_the_kernel_is_failed_possibly_out_of_memory(tmp_path: Path):
    outcome = solo(tmp_path, fault="sigkill", at="blocks").outcome
    assert (State.FAILED, "killed", "blocks") == (outcome.state, outcome.reason.code, outcome.phase)
    assert "killed by signal 9 (possibly out of memory)" in outcome.reason.text


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_that_hangs_is_timed_out_in_the_phase_where_it_hung(tmp_path: Path, phase: str):
    field = {"blocks": "block_s"}.get(phase, f"{phase}_s")
    outcome = solo(tmp_path, deadline=field, fault="hang", at=phase).outcome
    assert (State.TIMED_OUT, phase) == (outcome.state, outcome.phase)
    assert 0.3 == outcome.reason.numbers["deadline_s"]


def test_a_warm_up_step_that_is_too_slow_names_its_deadline_and_steps(tmp_path: Path):
    outcome = solo(tmp_path, deadline="warmup_s", fault="hang", at="warmup").outcome
    assert {"deadline_s": 0.3, "steps": 1} == outcome.reason.numbers


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_that_leaves_silently_has_failed(tmp_path: Path, phase: str):
    outcome = solo(tmp_path, fault="exit", at=phase).outcome
    assert (State.FAILED, "silent_exit", phase) == (outcome.state, outcome.reason.code, outcome.phase)


def test_a_workload_that_calls_exit_has_failed_too(tmp_path: Path):
    assert ("error", "build") == ((end := solo(tmp_path, fault="sys_exit", at="build").outcome).reason.code, end.phase)


def test_an_exception_becomes_one_line_and_its_traceback_stays_in_the_log(tmp_path: Path):
    trial = solo(tmp_path, fault="raise", at="first")
    assert "the worker: ValueError: a fault on two lines" == trial.outcome.reason.text
    assert "Traceback" in (tmp_path / "logs" / trial.log).read_text()


def test_a_memory_error_is_told_from_other_errors(tmp_path: Path):
    assert "out_of_memory" == solo(tmp_path, fault="memory", at="build").outcome.reason.code


def test_an_address_space_limit_holds(tmp_path: Path):
    process = replace(make_process(target="build_hungry"), memory_limit_bytes=1 << 29)
    record = run(make_round(replace(make_trial("a"), processes=(process,)), arrangement=Arrangement.SOLO), tmp_path)
    assert "out_of_memory" == record.outcome.reason.code


def test_garbage_on_stdout_harms_nothing_and_is_in_the_log(tmp_path: Path):
    trial = solo(tmp_path, fault="print")
    assert State.COMPLETED == trial.outcome.state
    assert b"garbage" in (tmp_path / "logs" / trial.log).read_bytes()


def test_fewer_steps_than_asked_make_a_trial_invalid_with_both_numbers(tmp_path: Path):
    outcome = solo(tmp_path, fault="fewer", step_s=0.0005).outcome
    assert (State.INVALID, "fewer_steps", 3) == (outcome.state, outcome.reason.code, outcome.reason.numbers["ran"])
    assert outcome.reason.numbers["asked"] > 3


def test_a_loss_that_is_not_finite_makes_a_trial_invalid(tmp_path: Path):
    outcome = solo(tmp_path, fault="nan").outcome
    assert (State.INVALID, "non-finite loss at step 2") == (outcome.state, outcome.reason.text)


def test_tracing_during_timed_blocks_makes_a_trial_invalid(tmp_path: Path):
    outcome = solo(tmp_path, fault="retrace", step_s=0.005).outcome
    assert (State.INVALID, "traced_in_blocks") == (outcome.state, outcome.reason.code)
    assert outcome.reason.text.startswith("traced during timed blocks")


def test_what_was_used_must_be_what_was_asked(tmp_path: Path):
    trial = solo(tmp_path, fault="other_batch", batch=8)
    assert (State.INVALID, {"key": "batch", "asked": 8, "used": 1}) == (trial.outcome.state, trial.outcome.reason.numbers)
    assert (8, 1, "[1, 2]") == (trial.asked["batch"], trial.used["batch"], trial.used["axes"])


def test_a_block_s_time_includes_what_only_sync_waits_for(tmp_path: Path):
    record = run(make_round(make_trial("a", target="build_lazy", handle_s=0.02), arrangement=Arrangement.SOLO, quads=1, block_s=0.02), tmp_path)
    blocks = [reading for reading in record.readings if reading.name == "work"]
    assert all((block.t1_ns - block.t0_ns) / 1e9 >= 0.02 * block.n for block in blocks)


def test_one_bad_trial_among_several_costs_the_others_nothing(tmp_path: Path):
    trials = (make_trial("good"), make_trial("bad", fault="sigkill", at="build"), make_trial("fine"))
    record = run(make_round(*trials, arrangement=Arrangement.SOLO, quads=1), tmp_path)
    assert [State.COMPLETED, State.FAILED, State.COMPLETED] == [trial.outcome.state for trial in record.trials]
    assert State.FAILED == record.outcome.state


@pytest.mark.parametrize("arrangement", [Arrangement.TURNS_OF_BLOCKS, Arrangement.TURNS_OF_TRIALS])
def test_when_one_arm_dies_its_partner_is_interrupted_and_the_round_is_the_culprit_s(tmp_path: Path, arrangement: Arrangement):
    record = run(make_round(make_trial("a", fault="sigkill", at="blocks"), make_trial("b"), arrangement=arrangement, seed=1), tmp_path)
    states = {trial.id: trial.outcome.state for trial in record.trials}
    assert (State.FAILED, State.FAILED) == (states["a"], record.outcome.state)
    assert states["b"] in ({State.INTERRUPTED} if arrangement is Arrangement.TURNS_OF_BLOCKS else {State.INTERRUPTED, State.COMPLETED})


@pytest.mark.parametrize("phase", ["build", "once"])
def test_a_trial_of_what_cannot_be_had_here_is_skipped_with_its_workload_s_words(tmp_path: Path, phase: str):
    outcome = solo(tmp_path, fault="unsupported", at=phase).outcome
    assert (State.SKIPPED, "unsupported", phase) == (outcome.state, outcome.reason.code, outcome.phase)
    assert "not to be had here: the device has no such product" == outcome.reason.text


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("arrangement", [Arrangement.TURNS_OF_BLOCKS, Arrangement.TURNS_OF_TRIALS, Arrangement.SOLO])
def test_a_round_with_a_skipped_arm_is_skipped_whatever_becomes_of_its_partner(tmp_path: Path, arrangement: Arrangement, seed: int):
    record = run(make_round(make_trial("a", fault="unsupported", at="build"), make_trial("b"), arrangement=arrangement, seed=seed), tmp_path)
    assert (State.SKIPPED, State.SKIPPED) == (record.trials[0].outcome.state, record.outcome.state)


def test_a_helper_that_dies_ends_its_crew_by_name(tmp_path: Path):
    crew = replace(make_trial("a", step_s=0.05), processes=(make_process(step_s=0.05), make_process("helper", "build_bystander", fault="die_later")))
    record = run(make_round(crew, arrangement=Arrangement.SOLO, quads=9), tmp_path)
    assert "the worker in the role 'helper' was killed by signal 9" in record.outcome.reason.text


def test_the_partner_of_a_trial_too_slow_for_a_rate_goes_on_alone_because_the_bound_needs_its_rate(tmp_path: Path):
    slow = with_deadlines(make_trial("slow", fault="hang", at="warmup"), warmup_s=0.3)
    record = run(make_round(slow, make_trial("b"), quads=1), tmp_path)
    assert [State.TIMED_OUT, State.COMPLETED] == [trial.outcome.state for trial in record.trials]
    assert (State.TIMED_OUT, ["partner_alone"]) == (record.outcome.state, [flag.code for flag in record.flags])
    assert ["BB", "BB"] == [quad.order for quad in record.quads]


def test_a_missing_interpreter_is_named_without_its_folder(tmp_path: Path):
    process = replace(make_process(), interpreter="/no/such/folder/python9.9")
    record = run(make_round(replace(make_trial("a"), processes=(process,)), arrangement=Arrangement.SOLO), tmp_path)
    assert ("spawn_failed", "spawn") == (record.outcome.reason.code, record.outcome.phase)
    assert "python9.9" in record.outcome.reason.text
    assert "/no/such" not in record.outcome.reason.text


def test_a_missing_target_fails_in_import(tmp_path: Path):
    process = replace(make_process(), target=f"{FAKES}:no_such_builder")
    record = run(make_round(replace(make_trial("a"), processes=(process,)), arrangement=Arrangement.SOLO), tmp_path)
    assert "import" == record.outcome.phase


def test_a_worker_that_speaks_nonsense_on_its_channel_has_failed(tmp_path: Path):
    stranger = tmp_path / "stranger"
    stranger.write_text(f"#!{sys.executable}\nimport os, sys, time\nos.write(int(sys.argv[6]), b'hello?\\n')\ntime.sleep(60)\n")
    stranger.chmod(0o755)
    process = replace(make_process(), interpreter=str(stranger))
    record = run(make_round(replace(make_trial("a"), processes=(process,)), arrangement=Arrangement.SOLO), tmp_path)
    assert "protocol" == record.outcome.reason.code


def test_a_stop_ends_the_round_soon_and_leaves_no_child(tmp_path: Path):
    began = time.monotonic()
    pids: list[int] = []

    def stop() -> bool:
        if not pids and time.monotonic() - began > 1.0:
            pids.extend(row["pid"] for row in json.loads((tmp_path / "live.json").read_text())["workers"])
        return bool(pids)

    record = run(make_round(make_trial("a", fault="hang", at="first"), make_trial("b")), tmp_path, stop=stop)
    took_s = time.monotonic() - began
    assert [State.INTERRUPTED] * 3 == [record.outcome.state, *(trial.outcome.state for trial in record.trials)]
    assert (2, True) == (len(pids), gone_within(pids, 0.0))
    assert took_s < HANG_S  # nobody waited for the workload to wake up


def test_a_ctrl_c_that_is_raised_inside_a_round_leaves_no_child(tmp_path: Path):
    pids: list[int] = []

    def tell(progress) -> None:
        if progress.kind == "block":
            pids.extend(row["pid"] for row in json.loads((tmp_path / "live.json").read_text())["workers"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make_round(make_trial("a"), make_trial("b")), tmp_path, tell=tell)
    assert (2, True) == (len(pids), gone_within(pids, 0.0))


def test_a_workload_s_own_children_end_with_it(tmp_path: Path):
    record = run(make_round(make_trial("a", target="build_family"), arrangement=Arrangement.SOLO, quads=1), tmp_path)
    assert gone_within([record.trials[0].used["child"]], 2.0)


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path):
    code = (
        "from pathlib import Path\nfrom tests.measure.builders import *\n"
        f"run(make_round(make_trial('a', fault='hang', at='first'), make_trial('b', fault='hang', at='first')), Path({str(tmp_path)!r}))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True)
    try:
        until = time.monotonic() + 20
        while len(workers := _workers(tmp_path / "live.json")) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.5)  # let both get past asking the kernel to die with their parent
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert (2, True) == (len(workers), gone_within(workers, 5.0))


def _workers(live: Path) -> list[int]:
    try:
        return [row["pid"] for row in json.loads(live.read_text())["workers"]]
    except (OSError, ValueError):
        return []


def test_a_failure_names_no_folder_of_this_machine(tmp_path: Path):
    outcome = solo(tmp_path, fault="raise_path", at="build").outcome
    assert str(ROOT) not in outcome.reason.text
    assert "tests/measure/nothing.bin" in outcome.reason.text


def test_the_record_of_a_failed_round_has_no_quad_that_counts(tmp_path: Path):
    record: RoundRecord = run(make_round(make_trial("a", fault="raise", at="first"), make_trial("b")), tmp_path)
    assert [] == [quad for quad in record.quads if quad.accepted]


def test_a_worker_that_ignores_polite_requests_is_killed(tmp_path: Path):
    outcome = solo(tmp_path, deadline="build_s", fault="stubborn", at="build").outcome
    assert (State.TIMED_OUT, "build") == (outcome.state, outcome.phase)
    assert [] == [pid for pid in _workers(tmp_path / "live.json") if is_alive(pid)]


def test_a_worker_that_crashes_after_it_was_done_keeps_its_figures_and_is_flagged(tmp_path: Path):
    record = run(make_round(make_trial("a", fault="crash_at_exit"), arrangement=Arrangement.SOLO, quads=1), tmp_path)
    assert (State.COMPLETED, [("unclean_exit", {"exit_code": 7})]) == (record.outcome.state, [(f.code, f.numbers) for f in record.flags])


def test_after_a_failed_trial_the_second_start_of_its_partner_is_missing_and_told(tmp_path: Path):
    trials = (make_trial("a"), make_trial("b", fault="raise", at="build"))
    round_ = next(
        found
        for seed in range(9)
        if (found := make_round(*trials, arrangement=Arrangement.TURNS_OF_TRIALS, seed=seed, quads=1)) and run(found, tmp_path).order == "ABBA"
    )
    assert State.INTERRUPTED == run(round_, tmp_path).trials[0].outcome.state


@pytest.mark.parametrize("seed", [7, 8, 9, 10])
def test_the_partner_of_a_trial_killed_for_want_of_memory_goes_on_in_turns_of_trials(tmp_path: Path, seed: int):
    killed, other = make_trial("killed", fault="sigkill", at="blocks"), make_trial("other")
    record = run(make_round(killed, other, arrangement=Arrangement.TURNS_OF_TRIALS, seed=seed, quads=1), tmp_path)
    assert {"killed": State.FAILED, "other": State.COMPLETED} == {trial.id: trial.outcome.state for trial in record.trials}
