"""The worker on other interpreters, and what it puts into JSON."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.measure.runtime import host
from harness.measure.worker import Teller, Worker, answer, complaint, offers, strict
from harness.model import Arrangement, State
from tests.measure.builders import make_process, make_round, make_trial, run
from tests.measure.fake_workloads import BrokenError, Errand, Fake


def run_on(interpreter: Path, folder: Path):
    process = replace(make_process(target="build_environment"), interpreter=str(interpreter))
    return run(make_round(replace(make_trial("a"), processes=(process,)), arrangement=Arrangement.SOLO, quads=1), folder)


def test_a_level_may_name_an_interpreter_of_its_own(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "other")], check=True)
    record = run_on(tmp_path / "other" / "bin" / "python", tmp_path)
    assert State.COMPLETED == record.outcome.state


def working(version: str) -> Path | None:
    found = shutil.which(f"python{version}")
    return Path(found) if found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0 else None


def test_every_python_there_is_measures_as_well(tmp_path: Path):
    for version in ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13"):
        interpreter = working(version)
        if interpreter is not None:
            (tmp_path / version).mkdir()
            record = run_on(interpreter, tmp_path / version)
            assert (State.COMPLETED, version) == (record.outcome.state, record.trials[0].used["python"])


@pytest.mark.parametrize("name", ["harness/measure/worker.py", "harness/measure/runtime/host.py", "benchmarks/contract.py"])
def test_what_an_old_interpreter_reads_is_in_the_syntax_of_python_3_8(name: str):
    ast.parse((Path(__file__).parents[2] / name).read_text(), feature_version=(3, 8))


def test_the_runtime_is_told_once_that_warm_up_is_over_before_the_first_block():
    worker, heard = Worker(), []

    class Heard(Fake):
        def run(self, steps: int):
            heard.append(steps)
            return super().run(steps)

    worker.runtime = SimpleNamespace(sync=lambda: None, steady=lambda: heard.append("steady"))
    worker.workload = Heard(step_s=0.0)
    worker.first({})
    worker.warm({"steps": 2})
    worker.block({"steps": 3, "ghost": 0})
    worker.block({"steps": 4, "ghost": 0})
    assert [1, 2, "steady", 3, 4] == heard


def test_what_json_cannot_carry_becomes_null_or_plain():
    class Scalar:
        def item(self) -> float:
            return 2.5

    assert {"a": None, "b": [1, None], "c": 2.5, "1": "x"} == strict({"a": float("inf"), "b": (1, float("nan")), "c": Scalar(), 1: "x"})


def test_the_contract_s_own_base_class_offers_nothing():
    class Idle(Fake.__mro__[1]):
        pass

    assert (True, False) == (offers(Fake(), "run"), offers(Idle(), "run"))


# ---------------------------------------------------------------- jobs


def make_worker(**settings) -> tuple[Worker, list[dict]]:
    """Return a worker in this process that has built an errand, and what it sends beside its answers."""
    sent: list[dict] = []
    worker = Worker(sent.append)
    worker.runtime, worker.workload = host, Errand(step_s=0.0, steps=3, **settings)
    return worker, sent


def test_a_job_is_answered_with_its_span_and_all_its_events():
    worker, sent = make_worker()
    reply = answer(worker, {"cmd": "job", "stream": False})
    assert ("job", None, []) == (reply["type"], reply["error"], sent)
    assert [["step", 1], ["step", 2], ["step", 3], ["job", 3]] == [[event[0], event[5]] for event in reply["events"]]
    assert reply["t0_ns"] <= reply["events"][0][3] <= reply["events"][-1][4] <= reply["t1_ns"]
    assert reply["seconds"] == (reply["t1_ns"] - reply["t0_ns"]) / 1e9


def test_a_streamed_job_sends_each_event_before_its_answer():
    worker, sent = make_worker()
    reply = answer(worker, {"cmd": "job", "stream": True})
    assert [{"type": "event", "event": event} for event in reply["events"]] == sent


def test_an_error_in_a_job_comes_with_what_was_told_before_it(capfd: pytest.CaptureFixture):
    worker, _ = make_worker(fault="breaks")
    reply = answer(worker, {"cmd": "job", "stream": False})
    assert [1, 2, 3] == [event[5] for event in reply["events"]]
    assert {"error": "BrokenError", "text": f"no room left in {os.devnull}/steps", "code": "disk_full", "numbers": {"free_bytes": 5}} == reply["error"]
    assert "Traceback" in capfd.readouterr().err


def test_a_sync_that_fails_after_a_job_is_the_job_s_error():
    worker, _ = make_worker()
    syncs = iter([None, BrokenError("device lost")])

    def sync() -> None:
        if (error := next(syncs)) is not None:
            raise error

    worker.workload.sync = sync
    reply = answer(worker, {"cmd": "job", "stream": False})
    assert ("device lost", 4) == (reply["error"]["text"], len(reply["events"]))


def test_a_ctrl_c_in_a_job_is_no_error_of_the_job():
    worker, _ = make_worker()

    def interrupt(tell) -> None:
        raise KeyboardInterrupt

    worker.workload.job = interrupt
    with pytest.raises(KeyboardInterrupt):
        answer(worker, {"cmd": "job", "stream": False})


def test_what_a_thread_tells_after_its_job_is_refused_there():
    tell = Teller(None)
    tell(("step", 1.0, "s", None, None, 1, None))
    assert [["step", 1.0, "s", None, None, 1, None]] == tell.close()
    with pytest.raises(RuntimeError, match="the job is over"):
        tell(("step", 1.0, "s", None, None, 2, None))


def test_an_event_of_another_shape_is_refused_where_it_is_told():
    with pytest.raises(ValueError, match="not enough values"):
        Teller(None)(("step", 1.0, "s"))


def test_an_exit_code_is_no_code_of_ours():
    assert {"error": "SystemExit", "text": "3", "code": None, "numbers": {}} == complaint(SystemExit(3))
