"""The whole command on a person's own images of which there are JPEG files alone: every pipeline is measured, those over TFRecords on copies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

pytest.importorskip("tensorflow")

from benchmarks.input.records import digest_of  # noqa: E402 - after the check for TensorFlow
from benchmarks.input.samples import list_folder  # noqa: E402

from .pictures import encoded  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
EACH = 20  # of two classes: more than the batch of 32 that pipelines deliver on a CPU
BUDGET_OF_TEST_S = 400.0
SHORT = [
    "+sweep=input",
    "only=[host-feeds.tfdata,host-feeds.tfrecord]",
    "sweep.looks=[1]",
    "sweep.quads=1",
    "+sweep.block_s=0.02",
    "sweep.control_rounds=1",
]
CONTROLS_WITHOUT_A_FRAMEWORK = ["workload=custom", "workload.runtime=host", "workload.target=tests.fakes:build", "sweep.control.workload=custom"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for index in range(2 * EACH):
        name = folder / ("cats", "dogs")[index % 2] / f"{index // 2:02d}.jpg"
        name.parent.mkdir(exist_ok=True)
        name.write_bytes(encoded(index))
    return folder


@pytest.fixture(scope="module")
def bundle(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    results = tmp_path_factory.mktemp("results")
    words = [sys.executable, "-m", "harness", *SHORT, *CONTROLS_WITHOUT_A_FRAMEWORK, f"data.dir={folder}", f"results_dir={results}"]
    environment = {**os.environ, "TMPDIR": str(results)}  # and so a machine lock of its own
    quiet = ["devices.kind=cpu", "verbosity=quiet"]
    done = subprocess.run([*words, *quiet], cwd=ROOT, capture_output=True, text=True, timeout=BUDGET_OF_TEST_S, check=False, env=environment)
    copies = ROOT / "data" / "copies" / f"records-{digest_of(list_folder(folder))}"
    shutil.rmtree(copies, ignore_errors=True)
    copies.with_name(f".{copies.name}.lock").unlink(missing_ok=True)
    assert 0 == done.returncode, done.stderr[-2000:]
    (manifest,) = results.glob("*/manifest.json")
    return manifest.parent


def trials(bundle: Path) -> list[dict[str, Any]]:
    """Return the records of the trials that read images."""
    records = [json.loads(line) for line in (bundle / "records.jsonl").read_text().splitlines()]
    return [trial for record in records for trial in record["trials"] if "set_samples" in trial["used"]]


def test_every_pipeline_is_measured_on_the_same_samples(bundle: Path) -> None:
    found = trials(bundle)
    arms = {(trial["used"]["input"], trial["used"]["decode"]) for trial in found}

    assert {"completed"} == {trial["outcome"]["state"] for trial in found}
    assert {(2 * EACH, 2 * EACH, "warm")} == {tuple(trial["used"][name] for name in ("set_samples", "set_found", "page_cache")) for trial in found}
    assert {("tfrecord", True), ("tfrecord", False), ("article_d", True), ("tfdata", True), ("python_loop", True)} < arms


def test_only_what_reads_records_reads_copies(bundle: Path) -> None:
    assert {"tfrecord", "article_d"} == {trial["used"]["input"] for trial in trials(bundle) if trial["used"].get("set_copied")}


def test_both_rates_are_there_and_the_report_says_what_was_measured(bundle: Path) -> None:
    verdicts = json.loads((bundle / "verdicts.json").read_text())
    estimates = {case["case"]: case["estimate"] for claim in verdicts["claims"] for case in claim["cases"]}
    said = (bundle / "report.md").read_text()

    assert all(estimates[f"host-feeds.{level}"]["point"] > 0 for level in ("tfdata", "tfrecord"))
    assert f"All {2 * EACH} samples in data.dir were measured." in said


def test_nothing_was_written_into_the_folder_and_no_bundle_names_it(bundle: Path, folder: Path) -> None:
    assert [f"{index:02d}.jpg" for index in range(EACH)] == sorted(path.name for path in (folder / "cats").iterdir())
    assert {"cats", "dogs"} == {path.name for path in folder.iterdir()}
    assert [] == [path.name for path in bundle.rglob("*.json*") if str(folder) in path.read_text()]
