"""A sweep that begins with the doctor keeps what was found in its bundle, and measures whatever that is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_command import ROOT, bundles, lines, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    done = run("+sweep.doctor=true", results=results)
    assert 0 == done.returncode, done.stderr[-2000:]
    return bundles(results)[0]


def test_what_the_doctor_found_is_in_the_bundle(bundle: Path) -> None:
    told = json.loads((bundle / "doctor.json").read_text())
    assert {"TensorFlow", "processors", "memory", "storage", "quiet", "GPU"} <= {finding["area"] for finding in told["findings"]}


def test_the_machine_was_free_while_the_doctor_looked(bundle: Path) -> None:
    findings = {(finding["area"], finding["check"]): finding for finding in json.loads((bundle / "doctor.json").read_text())["findings"]}
    assert ("ok", 9) == (findings["quiet", "other runs"]["code"], findings["quiet", "noise"]["numbers"]["quads"])


def test_the_rounds_were_measured_after_it(bundle: Path) -> None:
    assert lines(bundle)


def test_it_names_no_path_of_this_machine(bundle: Path) -> None:
    assert str(ROOT) not in (bundle / "doctor.json").read_text()
