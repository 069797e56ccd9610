"""What others do to the processors while a job or a single call is timed: told, flagged, and never a reason to drop anything."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from harness.measure.blocks import LoadReader, Log
from harness.measure.crew import Crew, Member, Stage
from harness.measure.load import Load, cpu_seconds, read_load
from harness.measure.lookout import Lookout
from harness.model import Arrangement, Driver, Reading, RoundRecord, State, Trial
from tests.measure.builders import DEAF, make_job, make_round, make_trial, quiet_machine, run
from tests.measure.test_load import make_load

LIMIT = replace(DEAF, foreign_cores=0.05)


def call(name: str, **settings: Any) -> Trial:
    return make_trial(name, driver=Driver.ONCE, **settings)


def solo(*trials: Trial, folder: Path, **ports: Any) -> RoundRecord:
    return run(make_round(*trials, arrangement=Arrangement.SOLO), folder, **{"thresholds": LIMIT, **ports})


def loads(record: RoundRecord) -> list[Reading]:
    return [reading for reading in record.readings if reading.name == "foreign_cores"]


def codes(record: RoundRecord) -> list[str]:
    return [flag.code for flag in record.flags]


def with_more(change: Callable[[Load], Mapping[str, float | None]]) -> LoadReader:
    """A reader of a machine that is quiet but for what `change` says of it."""
    quiet = quiet_machine()

    def read(groups: Mapping[int, Sequence[int]]) -> Load:
        load = quiet(groups)
        return replace(load, **change(load))

    return read


def beside_stranger(cores: float) -> LoadReader:
    """A reader of a machine on which a stranger uses so many cores all the time."""
    return with_more(lambda load: {"idle_s": load.idle_s - cores * load.t_s})


def where_a_child_used(burnt_s: float) -> LoadReader:
    """A reader of a machine on which, between its first and its second look, only the worker and `burnt_s` of a child of it used the processors.

    What the worker and its group used is read as ever; the machine's own counters are made up, since a test's machine is never quiet.
    """
    looks: list[float] = []

    def read(groups: Mapping[int, Sequence[int]]) -> Load:
        looks.append(time.monotonic())
        busy_s = sum(cpu_seconds(leader) or 0.0 for leader in groups) + (burnt_s if len(looks) > 1 else 0.0)
        return Load(looks[-1], 2, 2 * looks[-1] - busy_s, 0.0, 0.0, 0.0, read_load(groups).groups)

    return read


@contextmanager
def stranger() -> Iterator[None]:
    """A process that keeps a core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


# ---------------------------------------------------------------- the real counters


def test_a_stranger_beside_a_job_is_seen_by_the_real_counters(tmp_path: Path):
    with stranger():
        record = solo(make_job("a", steps=10, step_s=0.05), folder=tmp_path, read=read_load)
    (flag,) = (flag for flag in record.flags if flag.code == "foreign_load")
    assert (State.COMPLETED, "a", 0.05) == (record.outcome.state, flag.numbers["trial"], flag.numbers["threshold"])
    assert flag.text.endswith("cores while the job of trial a was timed; it was not repeated")
    assert flag.numbers["foreign_cores"] == loads(record)[0].value > 0.05


def test_a_stranger_beside_a_single_call_is_seen_by_the_real_counters(tmp_path: Path):
    with stranger():
        record = solo(call("a", target="build_slow_call", call_s=0.5), folder=tmp_path, read=read_load)
    (flag,) = (flag for flag in record.flags if flag.code == "foreign_load")
    assert flag.text.endswith("cores while the call of trial a was timed; it was not repeated")
    assert flag.numbers["foreign_cores"] == loads(record)[0].value > 0.05


@pytest.mark.parametrize("driver", [Driver.JOB, Driver.ONCE])
def test_a_child_that_a_trial_started_and_waited_for_is_no_stranger(tmp_path: Path, driver: Driver):
    trial = make_trial("a", target="build_employer", driver=driver, child_s=0.4)
    record = solo(trial, folder=tmp_path, read=where_a_child_used(0.4))
    assert (State.COMPLETED, []) == (record.outcome.state, codes(record))


# ---------------------------------------------------------------- jobs and calls


@pytest.mark.parametrize("trial", [make_job("a", step_s=0.05), call("a")], ids=["job", "call"])
def test_a_trial_on_a_quiet_machine_is_not_flagged(tmp_path: Path, trial: Trial):
    record = solo(trial, folder=tmp_path, read=quiet_machine())
    assert (State.COMPLETED, [], 1) == (record.outcome.state, codes(record), len(loads(record)))


def test_the_load_beside_a_job_is_a_reading_in_cores_without_stamps(tmp_path: Path):
    (reading,) = loads(solo(make_job("a", step_s=0.05, steps=20), folder=tmp_path, read=beside_stranger(0.04)))
    assert ("a", pytest.approx(0.04), "cores", None, None) == (reading.trial, reading.value, reading.unit, reading.reason, reading.t0_ns)


def test_a_job_beside_a_stranger_is_neither_dropped_nor_repeated(tmp_path: Path):
    record = solo(make_job("a", steps=4, step_s=0.05), folder=tmp_path, read=beside_stranger(1.5))
    assert (State.COMPLETED, (), ["foreign_load"]) == (record.outcome.state, record.quads, codes(record))
    assert [4] == [reading.n for reading in record.readings if reading.name == "job"]


def test_each_trial_that_was_disturbed_is_named(tmp_path: Path):
    record = solo(make_job("a", step_s=0.05), make_job("b", step_s=0.05), folder=tmp_path, read=beside_stranger(1.5))
    assert [("foreign_load", "a"), ("foreign_load", "b")] == sorted((flag.code, flag.numbers["trial"]) for flag in record.flags)


def test_time_that_the_hypervisor_took_is_flagged_as_such(tmp_path: Path):
    taken = with_more(lambda load: {"steal_s": load.t_s, "idle_s": load.idle_s - load.t_s})
    record = solo(make_job("a", step_s=0.05), folder=tmp_path, read=taken)
    assert [("steal", pytest.approx(1.0), pytest.approx(0.0, abs=1e-6))] == [
        (flag.code, flag.numbers["steal_cores"], flag.numbers["foreign_cores"]) for flag in record.flags
    ]


def test_a_quota_that_kept_a_job_off_the_processors_is_flagged_as_such(tmp_path: Path):
    record = solo(make_job("a", step_s=0.05), folder=tmp_path, read=with_more(lambda load: {"throttled_s": 0.5 * load.t_s}))
    assert ["throttled"] == codes(record)
    assert record.flags[0].numbers["throttled_s"] > 0


def test_a_load_that_cannot_be_read_is_null_and_flagged_for_its_trial(tmp_path: Path):
    record = solo(make_job("a"), folder=tmp_path, read=with_more(lambda load: {"idle_s": None}))
    assert [("foreign_load_unknown", {"trial": "a"})] == [(flag.code, flag.numbers) for flag in record.flags]
    assert [(None, "the machine's load could not be read")] == [(reading.value, reading.reason) for reading in loads(record)]


@pytest.mark.parametrize("fault", ["dies", "exit_in_job"])
def test_of_a_job_that_died_nothing_is_said(tmp_path: Path, fault: str):
    record = solo(make_job("a", fault=fault), folder=tmp_path, read=beside_stranger(1.5))
    assert (State.FAILED, [], []) == (record.outcome.state, codes(record), loads(record))


@pytest.mark.parametrize("what", ["proof", "probe"])
def test_beside_a_call_that_is_not_timed_nobody_looks_out(tmp_path: Path, what: str):
    pytest.importorskip("numpy")
    record = solo(call("a", call=what), folder=tmp_path, read=beside_stranger(1.5))
    assert (State.COMPLETED, [], []) == (record.outcome.state, codes(record), loads(record))


def test_jobs_that_take_turns_have_a_load_for_each_start(tmp_path: Path):
    trials = (make_job("a", step_s=0.05), make_job("b", step_s=0.05))
    record = run(make_round(*trials, arrangement=Arrangement.TURNS_OF_TRIALS), tmp_path, thresholds=LIMIT, read=beside_stranger(1.5))
    assert ["a", "a", "b", "b"] == sorted(reading.trial for reading in loads(record))
    assert ["a", "b"] == sorted(str(flag.numbers["trial"]) for flag in record.flags)


def test_restarts_of_a_supervised_job_have_a_load_as_its_last_life_has(tmp_path: Path):
    record = solo(make_job("a", steps=12, kills=2, step_s=0.05), folder=tmp_path, read=beside_stranger(1.5))
    assert (State.COMPLETED, [pytest.approx(1.5)] * 3) == (record.outcome.state, [reading.value for reading in loads(record)])
    assert ["foreign_load"] == codes(record)


def test_it_is_told_while_a_job_or_a_call_is_timed_and_when_that_is_over(tmp_path: Path):
    told: list[tuple[str, str]] = []
    solo(make_job("a"), call("b"), folder=tmp_path, tell=lambda progress: told.append((progress.kind, progress.text)))
    for text in ("job", "outcome"):
        assert ("phase", "ending") == told[told.index(("timed", text)) + 1]


def test_a_proof_is_not_told_as_timed(tmp_path: Path):
    pytest.importorskip("numpy")
    kinds: list[str] = []
    solo(call("a", call="proof"), folder=tmp_path, tell=lambda progress: kinds.append(progress.kind))
    assert "timed" not in kinds


# ---------------------------------------------------------------- short and repeated


def noted(*spans: tuple[float, float], limit_cores: float = 0.05) -> Log:
    """What a lookout keeps of the starts of one job that took (seconds, foreign core seconds) on two cores."""
    log = Log()
    trial = make_job("a")
    crew = Crew(trial, [Member(trial.processes[0], cast("Any", None), "a.log")])
    lookout = Lookout(cast("Stage", None), read_load, limit_cores, log)
    for elapsed_s, foreign_s in spans:
        lookout.note(crew, make_load(0.0), make_load(elapsed_s, idle_s=2 * elapsed_s - foreign_s), "the job")
    return log


def test_a_time_too_short_for_the_counters_is_null_with_the_reason():
    (reading,) = noted((0.1, 0.02)).readings
    assert (None, True) == (reading.value, str(reading.reason).startswith("0.1 s are too short to tell"))


def test_what_the_counters_grain_may_feign_is_not_flagged():
    assert [] == noted((1.0, 0.06)).flags
    assert ["foreign_load"] == [flag.code for flag in noted((10.0, 0.6)).flags]


def test_a_stranger_beside_a_short_call_is_flagged_where_no_grain_explains_it():
    log = noted((0.1, 0.1))
    assert [("foreign_load", 1.0)] == [(flag.code, pytest.approx(flag.numbers["foreign_cores"])) for flag in log.flags]
    assert [pytest.approx(1.0)] == [reading.value for reading in log.readings]


def test_of_two_starts_of_a_trial_the_one_that_was_disturbed_more_is_told():
    for spans in (((10.0, 9.0), (10.0, 2.0)), ((10.0, 2.0), (10.0, 9.0))):
        assert [pytest.approx(0.9)] == [flag.numbers["foreign_cores"] for flag in noted(*spans).flags]
