"""The worker on other interpreters, and what it puts into JSON."""

from __future__ import annotations

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


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.12"])
def test_an_older_or_newer_python_measures_as_well(tmp_path: Path, version: str):
    found = shutil.which(f"python{version}")
    works = found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0
    if not works:
        pytest.skip(f"no working python{version} on the PATH")
    record = run_on(Path(found), tmp_path)
    assert (State.COMPLETED, version) == (record.outcome.state, record.trials[0].used["python"])


def test_what_json_cannot_carry_becomes_null_or_plain():
    class Scalar:
        def item(self) -> float:
            return 2.5

    assert {"a": None, "b": [1, None], "c": 2.5, "1": "x"} == strict({"a": float("inf"), "b": (1, float("nan")), "c": Scalar(), 1: "x"})


def test_the_contract_s_own_base_class_offers_nothing():
    class Idle(Fake.__mro__[1]):
        pass

    assert (True, False) == (offers(Fake(), "run"), offers(Idle(), "run"))
