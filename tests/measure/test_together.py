"""Neighbours live and step at the same time; whether there was room for all of them is the round's answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import MeasureError
from harness.model import Arrangement, Driver, Reading, RoundRecord, State, Trial
from tests.measure.builders import make_process, make_round, make_trial, run, with_deadlines
from tests.measure.test_failures import gone_within


def pair(**neighbour: object) -> Trial:
    """Return a trial of two processes that step; `neighbour` are the second one's settings."""
    second = replace(make_process("neighbour", **neighbour), rank=1)
    return replace(make_trial("pair"), processes=(make_process(), second))


def beside(*trials: Trial, folder: Path, **fields: object) -> RoundRecord:
    return run(make_round(*trials, arrangement=Arrangement.TOGETHER, **fields), folder)


def lived(record: RoundRecord) -> list[tuple[str, float | None, str | None]]:
    return [(reading.trial, reading.value, reading.reason) for reading in record.readings if reading.name == "both_lived"]


def work(record: RoundRecord, quad: int) -> list[Reading]:
    return [reading for reading in record.readings if reading.name == "work" and reading.quad == quad]


def test_two_processes_that_have_room_both_live(tmp_path: Path):
    record = beside(pair(), folder=tmp_path)
    assert (State.COMPLETED, [("pair", 1.0, None)]) == (record.outcome.state, lived(record))


def test_a_round_together_has_its_blocks_and_the_first_is_thrown_away(tmp_path: Path):
    record = beside(pair(), folder=tmp_path, quads=2)
    assert [(0, "A", False), (1, "A", True), (2, "A", True)] == [(quad.index, quad.order, quad.accepted) for quad in record.quads]
    assert ("warmup",) == record.quads[0].flags
    assert [1, 1, 1] == [len(work(record, quad.index)) for quad in record.quads]


def test_a_neighbour_that_cannot_allocate_is_the_answer(tmp_path: Path):
    record = beside(pair(fault="memory", at="first"), folder=tmp_path)
    assert [State.COMPLETED] * 2 == [record.outcome.state, record.trials[0].outcome.state]
    assert [("pair", 0.0, "the worker in the role 'neighbour': MemoryError: no room (in first)")] == lived(record)


@pytest.mark.parametrize("at", ["build", "trace", "warmup", "blocks"])
def test_a_neighbour_may_run_out_of_memory_at_any_time(tmp_path: Path, at: str):
    ((_, value, reason),) = lived(beside(pair(fault="memory", at=at), folder=tmp_path))
    assert (0.0, True) == (value, str(reason).endswith(f"(in {at})"))


def test_blocks_from_before_a_neighbour_ran_out_of_memory_count_for_nothing(tmp_path: Path):
    record = beside(pair(fault="memory", at="blocks"), folder=tmp_path)
    assert [] == [quad for quad in record.quads if quad.accepted]


def test_a_neighbour_that_the_kernel_kills_is_taken_for_one_without_room(tmp_path: Path):
    ((_, value, reason),) = lived(beside(pair(fault="sigkill", at="first"), folder=tmp_path))
    assert (0.0, True) == (value, "possibly out of memory" in str(reason))


def test_nobody_is_left_behind_when_one_has_no_room(tmp_path: Path):
    trial = pair(fault="memory", at="build")
    family = replace(trial, processes=(make_process(target="build_family"), trial.processes[1]))
    record = beside(family, folder=tmp_path)
    assert 0.0 == lived(record)[0][1]
    assert not (tmp_path / "live.json").exists()  # it names whoever lives


def test_another_failure_of_a_neighbour_is_a_failure(tmp_path: Path):
    record = beside(pair(fault="raise", at="first"), folder=tmp_path)
    assert (State.FAILED, "error", []) == (record.outcome.state, record.outcome.reason.code, lived(record))


def test_a_neighbour_that_hangs_is_timed_out(tmp_path: Path):
    record = beside(with_deadlines(pair(fault="hang", at="first"), first_s=0.3), folder=tmp_path)
    assert (State.TIMED_OUT, "first", []) == (record.outcome.state, record.outcome.phase, lived(record))


def test_trials_side_by_side_run_their_blocks_at_the_same_time(tmp_path: Path):
    record = beside(make_trial("a", step_s=0.02), make_trial("b", step_s=0.02), folder=tmp_path, block_s=0.2)
    assert ("AB", [("a", 1.0, None), ("b", 1.0, None)]) == (record.order, lived(record))
    for quad in record.quads:
        blocks = work(record, quad.index)
        assert ["a", "b"] == [block.trial for block in blocks]
        assert max(block.t0_ns for block in blocks) < min(block.t1_ns for block in blocks)


def test_who_lived_beside_one_without_room_is_told_so_too(tmp_path: Path):
    record = beside(make_trial("a"), make_trial("b", fault="memory", at="warmup"), folder=tmp_path)
    assert [("a", 0.0), ("b", 0.0)] == [(trial, value) for trial, value, _ in lived(record)]
    assert [State.COMPLETED] * 2 == [trial.outcome.state for trial in record.trials]


def test_the_partner_of_one_that_fails_otherwise_is_interrupted(tmp_path: Path):
    record = beside(make_trial("a"), make_trial("b", fault="raise", at="warmup"), folder=tmp_path)
    assert [State.INTERRUPTED, State.FAILED] == [trial.outcome.state for trial in record.trials]


def test_a_stop_interrupts_neighbours(tmp_path: Path):
    record = run(make_round(pair(), arrangement=Arrangement.TOGETHER), tmp_path, stop=lambda: True)
    assert State.INTERRUPTED == record.outcome.state


def test_trials_that_run_no_blocks_cannot_step_together(tmp_path: Path):
    with pytest.raises(MeasureError, match="its driver is `once`"):
        beside(make_trial("a", driver=Driver.ONCE), folder=tmp_path)


def test_a_trace_in_a_common_block_makes_a_trial_invalid(tmp_path: Path):
    record = beside(make_trial("a", fault="retrace", step_s=0.005), make_trial("b", step_s=0.005), folder=tmp_path, quads=4)
    assert (State.INVALID, "traced_in_blocks") == (record.outcome.state, record.outcome.reason.code)


def test_a_family_s_children_end_with_a_round_together(tmp_path: Path):
    record = beside(make_trial("a", target="build_family"), make_trial("b"), folder=tmp_path, quads=1)
    assert gone_within([record.trials[0].used["child"]], 2.0)
