"""A probe answers whether there is room for a trial; that there is none is an answer, not a failure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.measure.cgroup import memory_group_version
from harness.measure.fitting import for_want_of_memory
from harness.model import COMPLETED, LARGEST, Arrangement, Contrast, Driver, Outcome, Purpose, Reason, Round, RoundRecord, Search, State, Trial
from harness.plan.study import Ledger, Situation, next_round
from tests.measure.builders import make_round, make_trial, run, with_deadlines

needs_memory_group = pytest.mark.skipif(memory_group_version()[0] is None, reason=f"no memory limit can be set here: {memory_group_version()[1]}")


def probing(target: str = "build", **settings: object) -> Trial:
    return make_trial("a", target=target, driver=Driver.ONCE, call="probe", **settings)


def probed(trial: Trial, folder: Path) -> RoundRecord:
    return run(make_round(trial, arrangement=Arrangement.SOLO), folder)


def answers(record: RoundRecord) -> list[tuple[float | None, str | None]]:
    return [(reading.value, reading.reason) for reading in record.readings if reading.name == "trains"]


def test_a_trial_that_has_room_trains(tmp_path: Path):
    record = probed(probing("build_narrow", batch=8, room=8), tmp_path)
    assert (State.COMPLETED, [(1.0, None)]) == (record.outcome.state, answers(record))
    assert "first" in record.trials[0].phases_s


def test_a_trial_without_room_is_an_answer_with_its_reason(tmp_path: Path):
    record = probed(probing("build_narrow", batch=9, room=8), tmp_path)
    assert [State.COMPLETED] * 2 == [record.outcome.state, record.trials[0].outcome.state]
    assert [(0.0, "the worker: MemoryError: no room for a batch of 9 (in first)")] == answers(record)


def test_a_trial_that_finds_no_room_when_it_is_built_is_an_answer_too(tmp_path: Path):
    record = probed(probing(fault="memory", at="build"), tmp_path)
    assert (State.COMPLETED, [(0.0, "the worker: MemoryError: no room (in build)")]) == (record.outcome.state, answers(record))


@needs_memory_group
def test_a_kill_at_a_memory_limit_is_an_answer(tmp_path: Path):
    trial = probing("build_stout", batch=400)
    limited = replace(trial, processes=(replace(trial.processes[0], cgroup_memory_bytes=200 << 20),))
    ((value, reason),) = answers(probed(limited, tmp_path))
    assert (0.0, True) == (value, "at its memory limit of 200 MiB" in str(reason))


def test_another_failure_of_a_probe_is_a_failure(tmp_path: Path):
    record = probed(probing(fault="raise", at="first"), tmp_path)
    assert (State.FAILED, "error", []) == (record.outcome.state, record.trials[0].outcome.reason.code, answers(record))


def test_a_probe_that_is_too_slow_is_timed_out(tmp_path: Path):
    record = probed(with_deadlines(probing(fault="hang", at="warmup"), warmup_s=0.2), tmp_path)
    assert (State.TIMED_OUT, "warmup", []) == (record.outcome.state, record.trials[0].outcome.phase, answers(record))


def test_a_probe_runs_no_block(tmp_path: Path):
    record = probed(probing(), tmp_path)
    assert ([], ()) == ([reading for reading in record.readings if reading.name == "work"], record.quads)


def test_a_search_with_real_workers_finds_the_largest_batch(tmp_path: Path):
    trial = probing("build_narrow", batch=LARGEST, room=11, step_s=0.0)
    contrast = Contrast("search", "largest batch", Purpose.CLAIM, (trial,), Arrangement.SOLO, (8,), search=Search("batch", 4, precision=1e-9))
    ledger, tried = Ledger(), []
    while isinstance(round_ := next_round(contrast, ledger, lambda _: False, Situation(), 0), Round):
        tried.append(round_.trials[0].processes[0].settings["batch"])
        ledger.add(run(round_, tmp_path))
    assert ([4, 8, 16, 12, 10, 11], 11) == (tried, round_.reason.numbers["batch"])


SAID = [
    "ResourceExhaustedError: OOM when allocating tensor with shape[128,64,112,112]",
    "InternalError: cudaSetDevice() on GPU:0 failed. Status: out of memory",
    "InternalError: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "UnimplementedError: DNN library is not found.",
    "FailedPreconditionError: DNN library initialization failed. Look at the errors above for more details.",
    "NotFoundError: No algorithm worked!",
    "InternalError: Attempting to perform BLAS operation using StreamExecutor without BLAS support",
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.",
    "InternalError: Failed to allocate scratch memory",
]


@pytest.mark.parametrize("text", SAID)
def test_what_frameworks_say_without_room_is_known_for_what_it_is(text: str):
    assert for_want_of_memory(Outcome(State.FAILED, Reason("error", text), "first"))


@pytest.mark.parametrize(
    "outcome",
    [
        COMPLETED,
        Outcome(State.FAILED, Reason("error", "ValueError: shapes (3,) and (4,) do not match")),
        Outcome(State.TIMED_OUT, Reason("deadline", "did not finish first within 600 s: out of memory was said before"), "first"),
        Outcome(State.INTERRUPTED),
    ],
)
def test_other_ends_are_not_for_want_of_memory(outcome: Outcome):
    assert not for_want_of_memory(outcome)
