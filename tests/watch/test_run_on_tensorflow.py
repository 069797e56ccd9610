"""A whole sweep on TensorFlow with logs and a profile: what lies in its bundle for TensorBoard afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.model import State
from harness.store import Bundle
from tests.test_command import bundles, environment

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

tf = pytest.importorskip("tensorflow")

ROOT = Path(__file__).resolve().parents[2]
CLAIM = "graph-speedup.article"
WORDS = [
    "+sweep=training", f"only=[{CLAIM}]", "workload=convnet_small", "workload.batch=4", "workload.image=32", "devices.kind=cpu",
    "+sweep.block_s=0.05", "+sweep.quads=1", "sweep.looks=[1]", "sweep.control_rounds=1",
    "sweep.control.workload=convnet_small", "sweep.control.sizes={}", "telemetry.tensorboard=true", "telemetry.profile=true",
]  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle of a run that has ended well."""
    results = tmp_path_factory.mktemp("results")
    words = [sys.executable, "-m", "harness", *WORDS, f"results_dir={results}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False, env=environment(results))
    assert 0 == done.returncode, done.stderr[-3000:]
    return Bundle.open(bundles(results)[0], results)


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """tag -> (step, value) of all event files below a folder."""
    found: dict[str, list[tuple[int, float]]] = {}
    for record in tf.data.TFRecordDataset(sorted(map(str, folder.rglob("events.out.tfevents.*")))):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def rounds(bundle: Bundle, contrast: str) -> list[Any]:
    return [record for record in bundle.records() if record.contrast == contrast]


def test_the_runs_own_log_has_the_rates_of_both_arms_and_the_host(bundle):
    drawn = curves(bundle.tensorboard / "sweep")
    assert {f"samples_per_s/{CLAIM}/A_eager", f"samples_per_s/{CLAIM}/B_graph", "host/rss_bytes"} <= set(drawn)
    blocks = [r for record in rounds(bundle, CLAIM) for r in record.readings if r.name == "work"]
    told = len(drawn[f"samples_per_s/{CLAIM}/A_eager"]) + len(drawn[f"samples_per_s/{CLAIM}/B_graph"])
    assert len(blocks) == told


@pytest.mark.parametrize("arm", ["arm-1", "arm-2"])
def test_each_timed_arm_has_its_losses_from_the_first_step_on(bundle, arm):
    drawn = curves(bundle.tensorboard / "training" / CLAIM / f"round-1.0-{arm}")
    assert list(range(1, len(drawn["loss"]) + 1)) == [step for step, _ in drawn["loss"]]
    assert len(drawn["loss"]) > 4
    assert [1, len(drawn["loss"])] == [step for step, _ in drawn["learning_rate"]]


def test_the_profile_is_a_round_of_its_own_before_what_is_timed(bundle):
    (record,) = rounds(bundle, "profile-convnet_small")
    assert State.COMPLETED is record.outcome.state
    assert 10 == next(reading.value for reading in record.readings if reading.name == "profile_steps")
    order = [r.contrast for r in bundle.records()]
    assert order.index("profile-convnet_small") < order.index(CLAIM)


def test_the_profiles_trace_lies_where_tensorboard_looks(bundle):
    (path,) = (bundle.tensorboard / "plugins" / "profile").rglob("*.xplane.pb")
    assert ("convnet_small", "machine.xplane.pb") == path.parts[-2:]
    assert path.stat().st_size > 1000


def test_the_record_names_places_inside_the_bundle_only(bundle):
    text = (bundle.path / "records.jsonl").read_text()
    assert f"tensorboard/training/{CLAIM}/round-1.0-arm-1" in text
    assert str(bundle.path) not in text
    assert str(ROOT) not in text


def test_no_verdict_reads_the_profile(bundle):
    assert "profile-convnet_small" not in (bundle.path / "verdicts.json").read_text()
