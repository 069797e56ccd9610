"""A quick local look at the input pipelines: `pytest benchmarks/`. Real JPEG files, made on first use; medians of a few batches, never a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.input import PIPELINES, build
from harness.model import Cell

SIZES = {"batch": 8, "image": 64, "seed": 0, "files": 16}
ELSEWHERE = ("prefetch_to_device", "feed_dict")
"""What takes a GPU, and a session."""


@pytest.mark.parametrize("level", [level for level in PIPELINES if level not in ELSEWHERE])
def test_input_pipeline(benchmark: Any, level: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    pipeline = build(input=level, **SIZES, data_dir=str(tmp_path_factory.getbasetemp()))
    benchmark.group = "input pipeline"
    benchmark.extra_info.update(cell=Cell("input", "cpu", {"input": level}, SIZES).id, samples=SIZES["batch"])

    tally = benchmark.pedantic(pipeline.run, args=(1,), rounds=10, warmup_rounds=2)

    assert tally.work == SIZES["batch"]
