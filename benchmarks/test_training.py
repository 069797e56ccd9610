"""A quick local look at a training step, switch by switch: `pytest benchmarks/`. Medians of a few steps, never a verdict."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from benchmarks.training import build
from harness.model import Cell

SIZES = {"model": "convnet_small", "image": 32, "batch": 16, "classes": 10, "seed": 0}
BASE = {"input": "synthetic", "execution": "graph", "precision": "fp32", "batch_norm": "keras", "optimizer": "keras", "allocator": "growth", "environment": "own"}
SWITCHES = [
    {},
    {"execution": "eager"},
    {"execution": "xla"},
    {"batch_norm": "fused"},
    {"optimizer": "lean"},
    {"batch_norm": "fused", "optimizer": "lean"},
]


@pytest.mark.parametrize("switched", SWITCHES, ids=lambda levels: "-".join(levels.values()) or "plain")
def test_training_step(benchmark: Any, switched: dict[str, str]) -> None:
    levels = {**BASE, **switched}
    training = build(**levels, **SIZES)
    device = training.facts()["device"]

    def step() -> None:
        training.run(1)
        tf.test.experimental.sync_devices()

    benchmark.group = "training step"
    benchmark.extra_info.update(cell=Cell("convnet_small", device, levels, SIZES).id, samples=SIZES["batch"], device=device)
    benchmark.pedantic(step, rounds=10, warmup_rounds=2)

    assert training.health()["finite"]
