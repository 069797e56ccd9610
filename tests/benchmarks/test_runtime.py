"""The TensorFlow runtime, in processes of its own: what it pins can be pinned only once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ConfigError
from harness.measure.runtime import tf as runtime

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

ROOT = Path(__file__).parents[2]


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` after `from harness.measure.runtime import tf as runtime` in a fresh interpreter."""
    code = f"import json\nfrom harness.measure.runtime import tf as runtime\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_what_was_pinned_is_told_as_a_fact():
    done = run("runtime.start({'device': 'cpu', 'threads': 2, 'precision': 'fp32', 'seed': 3})\nprint(json.dumps(runtime.facts()))")
    facts = json.loads(done.stdout)

    assert ("cpu", 2, False, 0) == tuple(facts[name] for name in ("device", "threads", "tensor_float_32", "visible_gpus"))
    assert tf.__version__ == facts["tensorflow"]


def test_memory_on_a_cpu_is_unknown_with_a_reason_rather_than_zero():
    done = run("runtime.start({'device': 'cpu'})\nruntime.sync()\nprint(json.dumps(runtime.memory()))")

    assert all(value is None and unit == "bytes" and "CPU" in reason for value, unit, reason in json.loads(done.stdout).values())


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused_in_tensorflows_own_words():
    done = run("runtime.start({'device': 'gpu'})")

    assert 0 != done.returncode
    last = done.stderr.strip().splitlines()[-1]
    assert "a GPU was asked for" in last
    assert "gave no reason" not in last


def test_proofs_are_written_under_the_name_given(tmp_path):
    runtime.write_proof(str(tmp_path / "proof"), {"loss": [1.0, 2.0]})

    with np.load(tmp_path / "proof", allow_pickle=False) as found:
        assert [1.0, 2.0] == found["loss"].tolist()


def test_a_proof_of_objects_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match="odd holds Python objects"):
        runtime.write_proof(str(tmp_path / "proof.npz"), {"odd": [object()]})
