"""The largest batch of a real training, in a memory limit that the kernel enforces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.measure.cgroup import memory_group_version
from harness.model import LARGEST, Arrangement, Contrast, Driver, Process, Purpose, Round, Search, Trial
from harness.plan.study import Ledger, Situation, next_round
from tests.measure.builders import run

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(memory_group_version()[0] is None, reason=f"no memory limit can be set here: {memory_group_version()[1]}"),
]

LIMIT_BYTES = 1200 << 20
SETTINGS = {"model": "convnet_small", "image": 64, "classes": 10, "seed": 0, "device": "cpu", "execution": "graph", "precision": "fp32", "batch": LARGEST}


def test_the_largest_batch_that_trains_is_found_and_a_larger_one_was_killed_at_the_limit(tmp_path: Path) -> None:
    process = Process("lead", "benchmarks.training:build", SETTINGS, cgroup_memory_bytes=LIMIT_BYTES)
    trial = Trial("cell", "cell", (process,), driver=Driver.ONCE, call="probe")
    contrast = Contrast("search", "largest batch", Purpose.CLAIM, (trial,), Arrangement.SOLO, (8,), search=Search("batch", 256, precision=0.5))
    records = []
    while isinstance(answer := next_round(contrast, Ledger(records), lambda _: False, Situation(), 0), Round):
        records.append(run(replace(answer, block_s=0.1), tmp_path))
        assert len(records) < 12, [(record.trials[0].asked["batch"], record.outcome) for record in records]
    works, fails = Search("batch").limits(records, "cell")
    assert "found" == answer.reason.code
    assert 0 < works < fails <= 1.5 * works + 1
    reasons = [reading.reason for record in records for reading in record.readings if reading.name == "trains" and reading.value == 0]
    assert reasons
    assert all("at its memory limit of 1200 MiB" in str(reason) for reason in reasons)
