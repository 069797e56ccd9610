"""The whole command on real pictures of a person's own, one of them torn, that a pipeline of TensorFlow feeds to a stand-in chosen by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

pytest.importorskip("tensorflow")

from benchmarks.input import build  # noqa: E402 - after the check for TensorFlow
from tests.benchmarks.pictures import BAD, encoded  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
GOOD = 6
BUDGET_OF_TEST_S = 300.0
CHOSEN = ["workload=replay", "workload.step_ms=0.5", "workload.devices=2", "workload.batch=2", "workload.image=16"]
SHORT = ["+sweep=input", "only=[host-feeds.feeds_1_core]", "sweep.looks=[1]", "sweep.quads=1", "+sweep.block_s=0.1", "devices.kind=cpu", "verbosity=quiet"]


def command(results: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "harness", *SHORT, *CHOSEN, f"results_dir={results}", *arguments]
    environment = {**os.environ, "TMPDIR": str(results)}  # and so a machine lock of its own
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=BUDGET_OF_TEST_S, check=False, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GOOD pictures in two class folders, and one that is torn."""
    folder = tmp_path_factory.mktemp("pictures")
    for index in range(GOOD):
        name = folder / ("cats", "dogs")[index % 2] / f"{index}.jpg"
        name.parent.mkdir(exist_ok=True)
        name.write_bytes(encoded(index))
    (folder / "dogs" / "torn.jpg").write_bytes(BAD["truncated"])
    return folder


@pytest.fixture(scope="module")
def bundle(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    done = command(results, f"data.dir={folder}", "data.on_bad=skip")
    assert 0 == done.returncode, done.stderr[-2000:]
    (manifest,) = results.glob("*/manifest.json")
    return manifest.parent


def records(bundle: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (bundle / "records.jsonl").read_text().splitlines()]


def test_a_torn_picture_is_left_out_counted_and_named(bundle: Path) -> None:
    page = (bundle / "report.html").read_text()
    assert "1 file or record of every pass over the images, as they cannot be decoded (data.on_bad=skip)." in page
    assert "1: dogs/torn.jpg" in page


def test_the_stand_in_was_what_was_chosen_and_is_said_to_be(bundle: Path) -> None:
    used = [trial["used"] for record in records(bundle) for trial in record["trials"]]
    assert {(0.5, 2, 2, 16, "tfdata_tuned")} == {tuple(told[name] for name in ("step_ms", "devices", "batch", "image", "input")) for told in used}
    (case,) = [case for claim in json.loads((bundle / "manifest.json").read_text())["plan"]["claims"] for case in claim["cases"]]
    assert "Samples a second that tf.data feeds to 2 stand-ins of 4000 samples a second each, one core" == case["title"]
    assert "sizes chosen by hand: batch 2, image 16, step_ms 0.5, devices 2" == case["why_reading"]


def test_without_a_word_a_torn_picture_ends_the_arm_by_its_name(folder: Path, tmp_path: Path) -> None:
    done = command(tmp_path, f"data.dir={folder}")
    assert 2 == done.returncode, done.stderr[-2000:]
    (manifest,) = tmp_path.glob("*/manifest.json")
    reasons = [record["outcome"]["reason"]["text"] for record in records(manifest.parent)]
    assert reasons
    assert all("torn.jpg" in reason for reason in reasons), reasons


def test_every_pipeline_leaves_out_the_same(folder: Path) -> None:
    pipelines = [build(input=level, images_dir=str(folder), on_bad="skip", batch=2, image=16) for level in ("python_loop", "tfdata_tuned")]
    assert [1, 1] == [pipeline.facts()["skipped_files"] for pipeline in pipelines]
    assert ["dogs/torn.jpg"] * 2 == [pipeline.facts()["skipped_names"] for pipeline in pipelines]
