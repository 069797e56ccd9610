"""The worker on other interpreters, and what it puts into JSON."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.measure.worker import offers, strict
from harness.model import Arrangement, State
from tests.measure.builders import make_process, make_round, make_trial, run
from tests.measure.fake_workloads import Fake


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


def test_what_json_cannot_carry_becomes_null_or_plain():
    class Scalar:
        def item(self) -> float:
            return 2.5

    assert {"a": None, "b": [1, None], "c": 2.5, "1": "x"} == strict({"a": float("inf"), "b": (1, float("nan")), "c": Scalar(), 1: "x"})


def test_the_contract_s_own_base_class_offers_nothing():
    class Idle(Fake.__mro__[1]):
        pass

    assert (True, False) == (offers(Fake(), "run"), offers(Idle(), "run"))
