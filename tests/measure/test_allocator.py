"""TensorFlow's allocators, as the runtime pins and reads them: against a stand-in for TensorFlow that has as many cards as a test wants."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from harness.measure.runtime import tf as runtime

FIGURES = {"allocator_peak", "allocator_peak_steady", "allocator_current"}


class StandIn(SimpleNamespace):
    """What the runtime asks of TensorFlow. `peaks` and `use` are bytes by card; `refuses` names a call that is not supported."""

    def __init__(self, cards: int = 1, refuses: str = "") -> None:
        super().__init__(cards=cards, refuses=refuses, peaks=[0] * cards, use=[0] * cards, grows={}, limits={}, __version__="2.99")
        self.errors = SimpleNamespace(OpError=RuntimeError)
        self.config = SimpleNamespace(
            experimental=SimpleNamespace(
                get_memory_info=self.info,
                reset_memory_stats=self.reset,
                set_memory_growth=self.grows.__setitem__,
                get_memory_growth=self.grows.get,
                enable_tensor_float_32_execution=lambda on: None,
            ),
            list_logical_devices=lambda kind: [f"/device:GPU:{number}" for number in range(cards)],
            list_physical_devices=lambda kind: [f"card {number}" for number in range(cards)],
            set_visible_devices=lambda devices, kind: None,
            LogicalDeviceConfiguration=lambda memory_limit: memory_limit,
            set_logical_device_configuration=self.limits.__setitem__,
            get_logical_device_configuration=self.limits.get,
        )

    def info(self, name: str) -> dict[str, int]:
        if self.refuses == "info":
            raise ValueError("Allocator stats not available for device")
        card = int(name.removeprefix("GPU:"))
        return {"peak": self.peaks[card], "current": self.use[card]}

    def reset(self, name: str) -> None:
        if self.refuses == "reset":
            raise RuntimeError("Cannot reset memory stats for device")
        card = int(name.removeprefix("GPU:"))
        self.peaks[card] = self.use[card]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch):
    """Return a function that puts a stand-in where TensorFlow would be, started on its cards."""

    def put(stand_in: StandIn) -> StandIn:
        keras = SimpleNamespace(utils=SimpleNamespace(set_random_seed=lambda seed: None), __version__="3.99")
        for name, module in (("tensorflow", stand_in), ("keras", keras)):
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(runtime, "_started", {"device": "gpu"})
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
        monkeypatch.setenv("TF_GPU_ALLOCATOR", "cuda_malloc_async")  # as somebody may have set it
        return stand_in

    return put


def figures() -> dict[str, int | None]:
    return {name: value for name, (value, _, _) in runtime.memory().items()}


@pytest.mark.parametrize(("in_warmup", "afterwards", "whole", "steady"), [(900, 300, 900, 300), (200, 300, 300, 300)])
def test_the_peak_of_the_whole_life_is_kept_when_counting_begins_anew(put, in_warmup: int, afterwards: int, whole: int, steady: int):
    tf = put(StandIn())
    tf.peaks, tf.use = [in_warmup], [100]
    runtime.steady()
    tf.peaks, tf.use = [afterwards], [150]
    assert {"allocator_peak": whole, "allocator_peak_steady": steady, "allocator_current": 150} == figures()


def test_what_was_in_use_when_warm_up_ended_is_the_least_peak_after_it(put):
    tf = put(StandIn())
    tf.peaks, tf.use = [900], [250]
    runtime.steady()
    assert 250 == figures()["allocator_peak_steady"]


def test_of_several_cards_the_fullest_counts(put):
    tf = put(StandIn(cards=2))
    tf.peaks, tf.use = [900, 100], [50, 60]
    runtime.steady()
    tf.peaks = [300, 400]
    assert {"allocator_peak": 900, "allocator_peak_steady": 400, "allocator_current": 60} == figures()


def test_without_timed_blocks_there_is_no_peak_after_warm_up(put):
    tf = put(StandIn())
    tf.peaks = [900]
    value, _, reason = runtime.memory()["allocator_peak_steady"]
    assert (900, None, True) == (figures()["allocator_peak"], value, "no timed block" in str(reason))


def test_statistics_that_do_not_begin_anew_cost_the_later_peak_alone(put):
    tf = put(StandIn(refuses="reset"))
    tf.peaks = [900]
    runtime.steady()
    value, _, reason = runtime.memory()["allocator_peak_steady"]
    assert (900, None, True) == (figures()["allocator_peak"], value, "Cannot reset memory stats" in str(reason))


@pytest.mark.parametrize("stand_in", [StandIn(refuses="info"), StandIn(cards=0)], ids=["refused", "no cards"])
def test_statistics_that_cannot_be_had_are_null_with_a_reason(put, stand_in: StandIn):
    put(stand_in)
    runtime.steady()
    told = runtime.memory()
    assert set(told) == FIGURES
    assert all(value is None and reason for value, _, reason in told.values())


def test_on_a_cpu_nothing_is_asked_and_nothing_is_zero(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # importing it would raise
    monkeypatch.setattr(runtime, "_started", {"device": "cpu"})
    runtime.steady()
    told = runtime.memory()
    assert set(told) == FIGURES
    assert all(value is None and "CPU" in str(reason) for value, _, reason in told.values())


def fact(stand_in: StandIn) -> Any:
    return runtime._allocator(stand_in, stand_in.config.list_physical_devices("GPU"))


@pytest.mark.parametrize(
    ("settings", "grows", "variable", "told"),
    [
        ({}, True, None, "growth"),
        ({"allocator": "growth"}, True, None, "growth"),
        ({"allocator": "all"}, False, None, "all"),
        ({"allocator": "cuda_malloc_async"}, True, "cuda_malloc_async", "cuda_malloc_async"),
    ],
)
def test_an_allocator_is_pinned_whatever_the_environment_says(put, settings: dict[str, str], grows: bool, variable: str | None, told: str):
    tf = put(StandIn(cards=2))
    runtime.start({"device": "gpu", **settings})
    assert {"card 0": grows, "card 1": grows} == tf.grows
    assert variable == os.environ.get("TF_GPU_ALLOCATOR")
    assert told == fact(tf)


def test_variables_that_would_overrule_what_is_pinned_are_taken_away(put, monkeypatch: pytest.MonkeyPatch):
    put(StandIn())
    for variable in ("TF_FORCE_GPU_ALLOW_GROWTH", "NVIDIA_TF32_OVERRIDE"):
        monkeypatch.setenv(variable, "1")
    runtime.start({"device": "gpu", "allocator": "all"})
    assert set() == {"TF_FORCE_GPU_ALLOW_GROWTH", "NVIDIA_TF32_OVERRIDE"} & set(os.environ)


def test_a_limit_in_mebibytes_is_set_on_every_card_and_leaves_growth_alone(put):
    tf = put(StandIn(cards=2))
    runtime.start({"device": "gpu", "gpu_memory_mib": 1024})
    assert ({"card 0": [1024], "card 1": [1024]}, {}) == (tf.limits, tf.grows)
    assert "limited" == fact(tf)
