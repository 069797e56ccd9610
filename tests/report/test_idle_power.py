"""Watts at rest from the samples of a bundle: by a counter where there is one, and never from what was used between two parts of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import pytest

from harness.report.idle_power import idle_watts

COLUMNS = ["round", "device", "t_ns", "name", "value", "reason"]


def frame(*rows: tuple[str, str, float, str, float]) -> pd.DataFrame:
    """Samples as a bundle gives them: (round, device, seconds, name, value)."""
    told = [(round_, device, round(at_s * 1e9), name, value, None) for round_, device, at_s, name, value in rows]
    made = pd.DataFrame(told, columns=COLUMNS)
    return made.astype({"round": "category", "device": "category", "name": "category", "value": "float64"})


def counter(device: str, name: str, *points: tuple[float, float]) -> Sequence[tuple[str, str, float, str, float]]:
    return [("idle", device, at_s, name, joules) for at_s, joules in points]


def test_a_counter_s_growth_by_time_is_the_power_at_rest():
    assert {"GPU-0": 70.0} == idle_watts(frame(*counter("GPU-0", "energy_j", (1.0, 500.0), (2.0, 580.0), (3.0, 640.0))))


def test_the_counter_goes_before_samples_of_power():
    power = [("idle", "GPU-0", 1.0, "power_w", 99.0)]
    assert {"GPU-0": 70.0} == idle_watts(frame(*power, *counter("GPU-0", "energy_j", (1.0, 0.0), (2.0, 70.0))))


def test_without_a_counter_the_mean_of_power_is_taken():
    told = frame(("idle", "GPU-0", 1.0, "power_w", 60.0), ("idle", "GPU-0", 2.0, "power_w", 80.0), ("idle", "GPU-0", 3.0, "power_w", math.nan))
    assert {"GPU-0": 70.0} == idle_watts(told)


def test_each_device_has_its_own_and_the_host_is_one():
    told = frame(*counter("GPU-1", "energy_j", (0.0, 0.0), (2.0, 100.0)), *counter("host", "cpu_energy_j", (0.0, 0.0), (2.0, 44.0)))
    assert {"GPU-1": 50.0, "host": 22.0} == idle_watts(told)


def test_samples_of_rounds_are_not_of_the_machine_at_rest():
    told = frame(("duet/0.0", "GPU-0", 1.0, "power_w", 700.0), ("idle", "GPU-0", 1.0, "power_w", 70.0))
    assert {"GPU-0": 70.0} == idle_watts(told)


def test_what_was_used_between_two_parts_of_a_run_is_left_out():
    told = counter("GPU-0", "energy_j", (0.0, 0.0), (2.0, 140.0), (1000.0, 9e5), (1002.0, 9e5 + 160.0))
    assert {"GPU-0": 75.0} == idle_watts(frame(*told))


def test_a_part_after_a_restart_of_the_machine_counts_from_anew():
    told = counter("GPU-0", "energy_j", (1000.0, 9e5), (1002.0, 9e5 + 140.0), (5.0, 10.0), (7.0, 170.0))
    assert {"GPU-0": 75.0} == idle_watts(frame(*told))


@pytest.mark.parametrize("rows", [[], [("idle", "host", 1.0, "cpu_share", 0.5)], [("idle", "GPU-0", 1.0, "energy_j", 5.0)]])
def test_a_device_that_told_no_power_is_missing(rows: list[tuple[str, str, float, str, float]]):
    assert {} == idle_watts(frame(*rows))
