"""Readings of telemetry: a trial has what happened in its own accepted blocks, by known areas and counters; what cannot be known is null."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from harness.measure.telemetry.provider import HOST, Sample
from harness.measure.telemetry.readings import RoundSamples
from harness.model import Arrangement, Gpu, Quad, Reading, RoundRecord
from tests.helpers import make_quads, make_reading, make_record, make_trial, make_trial_record
from tests.measure.nvml_stub import ask, compile_stub

CARD = Gpu(0, "NVIDIA H200", "GPU-0", None, None)
OTHER = Gpu(1, "NVIDIA H200", "GPU-1", None, None)
AVERAGING = Gpu(0, "NVIDIA H200", "GPU-0", None, 9.0)
"""Known to be a card whose power is told as the mean of the last second."""
PERIOD_S = 0.1
TREATMENT = ((2.5, 3.5), (4.5, 5.5), (6.5, 7.5))
"""When the treatment of `make_record` ran what counts (A B B A, blocks of 0.5 s from 0 s on, the first quad thrown away)."""


def series(
    name: str,
    value: Callable[[float], float | str | None],
    *,
    device: str = "GPU-0",
    first_s: float = -0.1,
    last_s: float = 8.2,
    step_s: float = PERIOD_S,
) -> list[Sample]:
    """Samples of one name at every step; a text is the reason for a null, None no sample at all."""
    samples = []
    for number in range(round((last_s - first_s) / step_s) + 1):
        at_s = round(first_s + number * step_s, 6)
        told = value(at_s)
        if isinstance(told, str):
            samples.append(Sample(device, round(at_s * 1e9), name, None, told))
        elif told is not None:
            samples.append(Sample(device, round(at_s * 1e9), name, told))
    return samples


def readings(
    *told: Sequence[Sample],
    trial: str = "treatment",
    cards: tuple[Gpu, ...] = (CARD,),
    record: RoundRecord | None = None,
    periods: dict[str, float] | None = None,
) -> dict[str, Reading]:
    """A trial's readings by name."""
    kept = RoundSamples(cards)
    for batch in told:
        kept.take(batch)
    watched = {card.uuid: PERIOD_S for card in cards} if periods is None else periods
    found = kept.readings(record or make_record(), make_trial(trial), cards, watched)
    assert len(found) == len({reading.name for reading in found})
    return {reading.name: reading for reading in found}


def value(found: dict[str, Reading], name: str) -> float:
    """A reading that must have a value."""
    assert found[name].value is not None, found[name].reason
    return float(found[name].value or 0.0)


def why(found: dict[str, Reading], name: str) -> str:
    """A reading that must have none."""
    assert found[name].value is None
    return str(found[name].reason)


def in_treatment(at_s: float) -> bool:
    """Whether the time just before a moment is the treatment's."""
    return any(start_s + 1e-9 < at_s <= end_s + 1e-9 for start_s, end_s in TREATMENT)


def ramp_w(at_s: float) -> float:
    return 100.0 + 10.0 * at_s


def ramp_j(at_s: float) -> float:
    """The integral of the ramp."""
    return 1e6 + 100.0 * at_s + 5.0 * at_s**2


def steady_j(watts: float) -> Callable[[float], float]:
    return lambda at_s: 1e6 + watts * at_s


# ---------------------------------------------------------------- means


def test_power_is_the_mean_over_the_time_of_the_trial_s_own_accepted_blocks():
    found = readings(series("power_w", ramp_w))
    assert (pytest.approx(150.0), "W", None, None) == (value(found, "power_w"), found["power_w"].unit, found["power_w"].quad, found["power_w"].t0_ns)


def test_samples_between_which_a_block_begins_count_by_how_much_of_them_is_the_block_s():
    assert pytest.approx(150.0) == value(readings(series("power_w", ramp_w, first_s=-0.14, last_s=8.26)), "power_w")


def test_samples_that_come_at_uneven_times_weigh_as_long_as_they_last():
    """Ten hasty samples of a busy moment are no more than that moment."""
    record = make_record(readings=(make_reading(start_s=2.0, seconds=1.0),))
    calm = series("power_w", lambda at_s: 100.0, first_s=1.9, last_s=2.5)
    busy = series("power_w", lambda at_s: 300.0, first_s=2.51, last_s=2.6, step_s=0.01)
    after = series("power_w", lambda at_s: 100.0, first_s=2.61, last_s=3.2)
    # 100 W for a second, and 200 W more over 0.09 s with two slopes of 0.01 s.
    assert pytest.approx(100.0 + 200.0 * (0.09 + 0.01)) == value(readings(calm, busy, after, record=record), "power_w")


def test_averaged_power_beside_another_trial_s_blocks_is_the_growth_of_the_counter():
    found = readings(series("power_w", lambda at_s: 400.0), series("energy_j", ramp_j), cards=(AVERAGING,))
    assert (150.0, 450.0) == pytest.approx((value(found, "power_w"), value(found, "energy_j")))


def test_averaged_power_beside_another_trial_s_blocks_is_not_known_without_a_counter():
    found = readings(series("power_w", ramp_w), series("energy_j", lambda at_s: "not supported"), cards=(AVERAGING,))
    reason = (
        "GPU 0: its driver tells the mean power of the last second, which is too long for blocks of 1 s that take turns, and its energy counter gives no figure"
    )
    assert reason == why(found, "power_w") == why(found, "energy_integrated_j") == why(found, "work_per_j")


def test_averaged_power_of_a_trial_that_is_alone_will_do():
    found = readings(series("power_w", ramp_w), cards=(AVERAGING,), record=make_record(arrangement=Arrangement.TURNS_OF_TRIALS))
    assert pytest.approx(150.0) == value(found, "power_w")


@pytest.mark.parametrize("capability", [7.5, 8.0])
def test_power_of_the_moment_is_taken_from_samples(capability: float):
    cards = (replace(AVERAGING, compute_capability=capability),)
    assert pytest.approx(400.0) == value(readings(series("power_w", lambda at_s: 400.0), series("energy_j", ramp_j), cards=cards), "power_w")


def test_a_share_speaks_of_the_time_before_its_sample():
    told = series("kernel_busy_share", lambda at_s: 1.0 if in_treatment(at_s) else 0.0)
    assert (1.0, 0.0) == (value(readings(told), "kernel_busy"), value(readings(told, trial="baseline"), "kernel_busy"))


def test_each_share_and_clock_has_a_reading_of_its_own():
    told = [
        series(name, lambda at_s, level=level: level)
        for name, level in (
            ("kernel_busy_share", 0.9), ("memory_busy_share", 0.4), ("sm_active_share", 0.6), ("tensor_active_share", 0.3), ("sm_clock_mhz", 1980.0),
            ("memory_clock_mhz", 3201.0),
        )
    ]  # fmt: skip
    found = readings(*told)
    expected = {"kernel_busy": 0.9, "memory_busy": 0.4, "sm_active": 0.6, "tensor_active": 0.3, "sm_clock_mhz": 1980.0, "memory_clock_mhz": 3201.0}
    assert {name: pytest.approx(level) for name, level in expected.items()} == {name: value(found, name) for name in expected}
    assert ["share", "share", "share", "share", "MHz", "MHz"] == [found[name].unit for name in expected]


def test_a_reading_tells_of_how_many_samples_it_is_made():
    assert 33 == readings(series("power_w", ramp_w))["power_w"].n


def test_the_highest_temperature_and_memory_are_those_within_the_blocks():
    def inside(at_s: float) -> bool:
        return any(start_s <= at_s <= end_s for start_s, end_s in TREATMENT)

    temperature = series("temperature_c", lambda at_s: 60.0 + at_s if inside(at_s) else 90.0)
    memory = series("memory_used_bytes", lambda at_s: 2.0**31 if inside(at_s) else 2.0**33)
    found = readings(temperature, memory)
    assert (67.5, "°C", 33) == (value(found, "temperature_c"), found["temperature_c"].unit, found["temperature_c"].n)
    assert (2.0**31, "bytes") == (value(found, "gpu_memory_used_bytes"), found["gpu_memory_used_bytes"].unit)


def test_a_temperature_that_was_not_read_within_the_blocks_is_not_known():
    told = [Sample("GPU-0", 0, "temperature_c", 60.0), Sample("GPU-0", 8_000_000_000, "temperature_c", 60.0)]
    assert "GPU 0: no sample of temperature_c fell into its time" == why(readings(told), "temperature_c")


# ---------------------------------------------------------------- traffic

MIB = 2.0**20
WAYS = pytest.mark.parametrize("way", ["rx", "tx"])


def alone(seconds: float = 8.0) -> RoundRecord:
    """A round of one trial, whose job begins at 0 s."""
    job = make_reading(800.0, name="job", unit="samples", start_s=0.0, seconds=seconds, quad=None, turn=None)
    return make_record(readings=(job,), quads=(), arrangement=Arrangement.SOLO)


def seldom(name: str, told: Callable[[float], float | str | None]) -> list[Sample]:
    """Samples of what is asked for once a second only."""
    return series(name, told, first_s=-1.0, step_s=1.0, last_s=10.0)


@WAYS
def test_pcie_traffic_that_comes_with_every_look_is_that_of_the_time_since_the_one_before(way: str):
    told = series(f"pcie_{way}_bytes_per_s", lambda at_s: 30 * MIB if in_treatment(at_s) else 0.0)
    mine, other = (readings(told, trial=trial)[f"pcie_{way}_bytes_per_s"] for trial in ("treatment", "baseline"))
    assert (pytest.approx(30 * MIB), pytest.approx(0.0), "bytes/s") == (mine.value, other.value, mine.unit)


@WAYS
def test_pcie_traffic_that_is_told_once_a_second_is_a_moment_s(way: str):
    found = readings(seldom(f"pcie_{way}_bytes_per_s", lambda at_s: at_s * MIB), record=alone())
    assert pytest.approx(4 * MIB) == value(found, f"pcie_{way}_bytes_per_s")


@pytest.mark.parametrize("name", ["pcie_rx_bytes_per_s", "nvlink_tx_bytes"])
def test_traffic_that_is_told_once_a_second_belongs_to_nobody_where_short_blocks_take_turns(name: str):
    found = readings(seldom(name, lambda at_s: (at_s + 1) * MIB))
    reason = "GPU 0: read every 1 s, which is too seldom for blocks of 1 s that take turns"
    assert reason == why(found, name if name.endswith("_s") else f"{name}_per_s")


@pytest.mark.parametrize("name", ["pcie_rx_bytes_per_s", "nvlink_tx_bytes"])
def test_traffic_that_is_told_once_a_second_says_nothing_of_a_call_of_two(name: str):
    found = readings(seldom(name, lambda at_s: (at_s + 1) * MIB), record=alone(seconds=2.0))
    assert "GPU 0: read every 1 s, which is too seldom for 2 s" == why(found, name if name.endswith("_s") else f"{name}_per_s")


@WAYS
def test_nvlink_traffic_is_the_growth_of_the_card_s_counter_over_time(way: str):
    reading = readings(seldom(f"nvlink_{way}_bytes", lambda at_s: 5e9 + at_s * 40 * MIB), record=alone())[f"nvlink_{way}_bytes_per_s"]
    assert (pytest.approx(40 * MIB), "bytes/s") == (reading.value, reading.unit)


def test_nvlink_traffic_beside_another_trial_s_blocks_is_the_trial_s_own():
    def counted(at_s: float) -> float:
        return MIB * sum(min(max(at_s - start_s, 0.0), end_s - start_s) for start_s, end_s in TREATMENT)

    told = series("nvlink_rx_bytes", counted)
    mine, other = (value(readings(told, trial=trial), "nvlink_rx_bytes_per_s") for trial in ("treatment", "baseline"))
    assert (MIB, 0.0) == pytest.approx((mine, other))


def test_links_that_carried_nothing_carried_nothing():
    assert 0.0 == value(readings(seldom("nvlink_rx_bytes", lambda at_s: 7e9), record=alone()), "nvlink_rx_bytes_per_s")


def test_a_link_s_counter_that_began_anew_is_no_traffic():
    told = seldom("nvlink_rx_bytes", lambda at_s: 5000.0 if at_s < 3.5 else 10.0)
    reason = "GPU 0: the counter ran backwards, from 5000 to 10 bytes (started anew, or went over its end)"
    assert reason == why(readings(told, record=alone()), "nvlink_rx_bytes_per_s")


def test_a_link_s_counter_that_leaps_holds_garbage():
    told = seldom("nvlink_rx_bytes", lambda at_s: 5000.0 if at_s < 3.5 else 1e15)
    reason = "GPU 0: the counter leapt from 5000 to 1000000000000000 bytes, which no link can carry in that time"
    assert reason == why(readings(told, record=alone()), "nvlink_rx_bytes_per_s")


def test_the_fastest_links_there_are_do_not_leap():
    """Joules at such a pace would be garbage."""
    assert pytest.approx(9e11) == value(readings(seldom("nvlink_rx_bytes", lambda at_s: (at_s + 1) * 9e11), record=alone()), "nvlink_rx_bytes_per_s")


def test_one_look_for_traffic_that_was_missed_is_no_hole_and_a_longer_silence_is():
    one, long = (seldom("pcie_rx_bytes_per_s", lambda at_s, gap=gap: None if 2.5 < at_s < gap else 3 * MIB) for gap in (3.5, 6.5))
    assert pytest.approx(3 * MIB) == value(readings(one, record=alone()), "pcie_rx_bytes_per_s")
    assert "GPU 0: samples are missing: pcie_rx_bytes_per_s is known for 38% of the time only" == why(
        readings(long, record=alone()), "pcie_rx_bytes_per_s"
    )


def test_a_card_without_links_has_the_reason():
    found = readings(seldom("nvlink_rx_bytes", lambda at_s: "not supported"), record=alone())
    assert ("GPU 0: not supported", "GPU 0: no sample was taken") == (why(found, "nvlink_rx_bytes_per_s"), why(found, "nvlink_tx_bytes_per_s"))


def test_traffic_of_two_cards_is_their_sum():
    found = readings(
        seldom("nvlink_rx_bytes", lambda at_s: at_s * MIB + 1e9),
        series("nvlink_rx_bytes", lambda at_s: at_s * 2 * MIB + 1e9, device="GPU-1", first_s=-1.0, step_s=1.0, last_s=10.0),
        series("pcie_tx_bytes_per_s", lambda at_s: 4 * MIB),
        series("pcie_tx_bytes_per_s", lambda at_s: 5 * MIB, device="GPU-1"),
        cards=(CARD, OTHER),
        record=alone(),
    )
    assert (3 * MIB, 9 * MIB) == pytest.approx((value(found, "nvlink_rx_bytes_per_s"), value(found, "pcie_tx_bytes_per_s")))


def test_what_trials_that_run_together_move_is_not_shared_out():
    told = (series("pcie_rx_bytes_per_s", lambda at_s: MIB), series("nvlink_rx_bytes", lambda at_s: (at_s + 1) * MIB))
    found = readings(*told, record=make_record(arrangement=Arrangement.TOGETHER))
    assert {"other trials ran at the same moment, and what each of them moved is not known"} == {
        why(found, name) for name in ("pcie_rx_bytes_per_s", "nvlink_rx_bytes_per_s")
    }


# ---------------------------------------------------------------- which time is the trial's


def test_blocks_of_a_quad_that_was_not_accepted_are_left_out():
    quads = tuple(replace(quad, accepted=quad.index == 2) for quad in make_quads())
    found = readings(series("power_w", ramp_w), series("energy_j", ramp_j), record=make_record(quads=quads))
    assert (150.0, 150.0, 200.0 / 150.0) == pytest.approx((value(found, "power_w"), value(found, "energy_j"), value(found, "work_per_j")))


def test_a_trial_of_which_no_block_was_accepted_has_no_readings():
    record = make_record(quads=tuple(replace(quad, accepted=False) for quad in make_quads()))
    found = readings(series("power_w", ramp_w), series("energy_j", ramp_j), record=record)
    assert {"none of its blocks was accepted"} == {reading.reason for reading in found.values()}


def test_blocks_of_the_absence_part_are_left_out():
    late = tuple(replace(reading, part="absence", quad=4) for reading in make_record().readings if reading.quad == 3)
    kept = tuple(reading for reading in make_record().readings if reading.quad != 3)
    quads = (*make_quads(2), Quad(4, "AA", accepted=True, part="absence"))
    found = readings(series("power_w", ramp_w), record=make_record(readings=kept + late, quads=quads))
    assert pytest.approx(140.0) == value(found, "power_w")


def test_a_job_has_the_time_of_its_job_and_the_work_it_told():
    whole = make_reading(500.0, name="job", unit="samples", start_s=1.0, seconds=4.0, quad=None, turn=None)
    save = make_reading(3.0, name="save_s", unit="s", start_s=4.0, seconds=3.0, quad=None, turn=None)
    record = make_record(readings=(save, whole), quads=(), arrangement=Arrangement.SOLO)
    found = readings(series("energy_j", steady_j(250.0)), record=record)
    assert (1000.0, 0.5, "samples/J") == (
        pytest.approx(value(found, "energy_j")), pytest.approx(value(found, "work_per_j")), found["work_per_j"].unit,
    )  # fmt: skip


def test_a_single_call_has_its_time_once_and_no_work():
    answers = tuple(make_reading(1.0, name=name, start_s=2.0, seconds=3.0, quad=None, turn=None) for name in ("accuracy", "loss"))
    found = readings(series("energy_j", steady_j(100.0)), record=make_record(readings=answers, quads=(), arrangement=Arrangement.SOLO))
    assert (pytest.approx(300.0), "it counts no work") == (value(found, "energy_j"), why(found, "work_per_j"))


def test_a_trial_that_timed_nothing_has_no_readings():
    found = readings(series("power_w", ramp_w), record=make_record(readings=(), quads=()))
    assert "nothing of it was timed" == why(found, "power_w")


def test_what_trials_that_run_together_draw_is_not_shared_out():
    record = make_record(arrangement=Arrangement.TOGETHER)
    found = readings(series("power_w", ramp_w), series("energy_j", ramp_j), series("kernel_busy_share", lambda at_s: 1.0), record=record)
    assert {"other trials ran at the same moment, and what each of them drew is not known"} == {
        why(found, name) for name in ("power_w", "energy_j", "work_per_j")
    }
    assert 1.0 == value(found, "kernel_busy")


def test_the_work_of_one_of_two_neighbours_is_not_set_against_the_energy_of_both():
    kept, lead = RoundSamples((CARD,)), make_trial("treatment")
    kept.take(series("energy_j", ramp_j))
    record = make_record(arrangement=Arrangement.TOGETHER, trials=(make_trial_record("treatment"),))
    told = kept.readings(record, replace(lead, processes=lead.processes * 2), (CARD,), {"GPU-0": PERIOD_S})
    found = {reading.name: reading for reading in told}
    assert (pytest.approx(450.0), "the work of its neighbours on the card is not counted") == (value(found, "energy_j"), why(found, "work_per_j"))


# ---------------------------------------------------------------- energy


def test_energy_is_the_growth_of_the_card_s_counter():
    found = readings(series("energy_j", ramp_j))
    assert (450.0, 600.0 / 450.0) == pytest.approx((value(found, "energy_j"), value(found, "work_per_j")))
    assert ("J", "samples/J", False) == (found["energy_j"].unit, found["work_per_j"].unit, "energy_integrated_j" in found)


def test_the_counter_is_interpolated_at_the_edges_of_blocks():
    assert pytest.approx(600.0) == value(readings(series("energy_j", steady_j(200.0), first_s=-0.07, last_s=8.23)), "energy_j")


def test_each_of_two_trials_that_take_turns_has_its_own_joules():
    """300 W in the treatment's blocks and 100 W in the others, counted exactly."""

    def counted_j(at_s: float) -> float:
        return 100.0 * at_s + 200.0 * sum(min(max(at_s - start_s, 0.0), end_s - start_s) for start_s, end_s in ((0.5, 1.5), *TREATMENT))

    told = series("energy_j", counted_j)
    assert (900.0, 300.0) == pytest.approx((value(readings(told), "energy_j"), value(readings(told, trial="baseline"), "energy_j")))


def test_a_counter_that_runs_backwards_is_no_energy_of_that_trial_only():
    told = series("energy_j", lambda at_s: ramp_j(at_s) if at_s < 5.05 else ramp_j(at_s) - 1e6)
    assert "GPU 0: the counter ran backwards, from 1000625 to 640 J (started anew, or went over its end)" == why(readings(told), "energy_j")
    assert value(readings(told, trial="baseline"), "energy_j") > 0


def test_work_by_a_counter_that_failed_is_not_known_either():
    told = series("energy_j", lambda at_s: ramp_j(at_s) if at_s < 5.05 else 0.0)
    found = readings(told, series("power_w", ramp_w))
    assert (why(found, "energy_j"), False) == (why(found, "work_per_j"), "energy_integrated_j" in found)


def test_a_counter_that_leaps_holds_garbage():
    told = series("energy_j", lambda at_s: 1e3 * at_s if at_s < 5.05 else 1e9)
    assert "GPU 0: the counter leapt from 5000 to 1000000000 J, which no machine can use in that time" == why(readings(told), "energy_j")


@pytest.mark.parametrize(("first_s", "last_s"), [(2.6, 8.2), (-0.1, 7.4)])
def test_a_counter_is_not_extrapolated(first_s: float, last_s: float):
    told = series("energy_j", ramp_j, first_s=first_s, last_s=last_s)
    assert "GPU 0: the counter was not read both before and after" == why(readings(told), "energy_j")


def test_a_counter_that_was_not_read_at_the_edge_of_a_block_is_not_known():
    told = series("energy_j", lambda at_s: None if 5.31 < at_s < 5.69 else ramp_j(at_s))
    assert "GPU 0: the counter was not read for a while at the edge of a block" == why(readings(told), "energy_j")


@pytest.mark.parametrize(("start_s", "end_s"), [(5.41, 5.59), (4.71, 5.29)])
def test_a_late_sample_or_a_pause_within_a_block_does_a_counter_no_harm(start_s: float, end_s: float):
    told = series("energy_j", lambda at_s: None if start_s < at_s < end_s else steady_j(200.0)(at_s))
    assert pytest.approx(600.0) == value(readings(told), "energy_j")


def test_a_refusal_within_a_block_is_the_reason():
    told = series("energy_j", lambda at_s: "timed out" if 4.95 < at_s < 5.05 else ramp_j(at_s))
    assert "GPU 0: timed out" == why(readings(told), "energy_j")


def test_a_counter_that_stands_still_is_no_infinite_yield():
    found = readings(series("energy_j", lambda at_s: 5.0))
    assert (0.0, "the energy counter did not grow in that time") == (value(found, "energy_j"), why(found, "work_per_j"))


def test_without_a_counter_power_over_time_is_energy_under_another_name():
    found = readings(series("power_w", ramp_w), series("energy_j", lambda at_s: "not supported"))
    assert (450.0, 600.0 / 450.0) == pytest.approx((value(found, "energy_integrated_j"), value(found, "work_per_j")))
    assert "GPU 0 has no energy counter that could be read (not supported); see energy_integrated_j" == why(found, "energy_j")


def test_with_neither_counter_nor_power_there_is_no_energy():
    found = readings(series("power_w", lambda at_s: "not supported (MIG)"), series("energy_j", lambda at_s: "not supported (MIG)"))
    assert "GPU 0: not supported (MIG)" == why(found, "energy_integrated_j") == why(found, "work_per_j")
    assert "GPU 0 has no energy counter that could be read (not supported (MIG))" == why(found, "energy_j")


def test_work_that_is_not_known_is_no_work_by_joule():
    blocks = tuple(replace(r, value=None, reason="lost count") if r.quad == 2 else r for r in make_record().readings)
    found = readings(series("energy_j", ramp_j), record=make_record(readings=blocks))
    assert (pytest.approx(450.0), "its work is not known") == (value(found, "energy_j"), why(found, "work_per_j"))


# ---------------------------------------------------------------- gaps, and too few samples


def test_a_null_stands_until_the_next_value():
    """It is told once, so that what lies between it and the next value is not known, however long that is."""
    told = series("kernel_busy_share", lambda at_s: "timed out" if at_s < 4.0 else 0.5)
    found = readings([told[0]], [sample for sample in told if sample.value is not None])
    assert "GPU 0: timed out: kernel_busy_share is known for 67% of the time only" == why(found, "kernel_busy")


def test_one_sample_that_was_missed_is_no_gap():
    assert pytest.approx(150.0) == value(readings(series("power_w", lambda at_s: None if 4.95 < at_s < 5.05 else ramp_w(at_s))), "power_w")


def test_a_mean_needs_nine_tenths_of_the_time():
    long = series("power_w", lambda at_s: None if 4.55 < at_s < 5.45 else ramp_w(at_s))
    short = series("power_w", lambda at_s: None if 5.25 < at_s < 5.65 else 150.0)
    assert "GPU 0: samples are missing: power_w is known for 67% of the time only" == why(readings(long), "power_w")
    assert pytest.approx(150.0) == value(readings(short), "power_w")


@pytest.mark.parametrize("name", ["power_w", "energy_j", "kernel_busy", "sm_clock_mhz"])
def test_samples_that_are_rarer_than_blocks_take_turns_belong_to_nobody(name: str):
    sampled = {"kernel_busy": "kernel_busy_share"}.get(name, name)
    told = series(sampled, lambda at_s: 0.5 + at_s, first_s=-0.5, step_s=0.5, last_s=9.0)
    found = readings(told, periods={"GPU-0": 0.5})
    assert "GPU 0: read every 0.5 s, which is too seldom for blocks of 1 s that take turns" == why(found, name)


def test_where_each_trial_is_alone_rare_samples_will_do():
    record = make_record(arrangement=Arrangement.TURNS_OF_TRIALS)
    told = series("energy_j", steady_j(200.0), first_s=-0.5, step_s=0.5, last_s=9.0)
    assert pytest.approx(600.0) == value(readings(told, record=record, periods={"GPU-0": 0.5}), "energy_j")


def test_a_card_that_was_never_sampled_has_a_reason_for_everything():
    found = readings()
    assert {"GPU 0: no sample was taken", "GPU 0 has no energy counter that could be read (no sample was taken)"} == {
        r.reason for r in found.values()
    }


# ---------------------------------------------------------------- several cards


def test_of_two_cards_shares_and_clocks_are_means_and_power_and_energy_are_sums():
    found = readings(
        series("kernel_busy_share", lambda at_s: 0.9),
        series("kernel_busy_share", lambda at_s: 0.5, device="GPU-1"),
        series("sm_clock_mhz", lambda at_s: 1980.0),
        series("sm_clock_mhz", lambda at_s: 1500.0, device="GPU-1"),
        series("power_w", lambda at_s: 400.0),
        series("power_w", lambda at_s: 100.0, device="GPU-1"),
        series("energy_j", steady_j(400.0)),
        series("energy_j", steady_j(100.0), device="GPU-1"),
        series("temperature_c", lambda at_s: 50.0),
        series("temperature_c", lambda at_s: 70.0, device="GPU-1"),
        cards=(CARD, OTHER),
    )
    expected = {"kernel_busy": 0.7, "sm_clock_mhz": 1740.0, "power_w": 500.0, "energy_j": 1500.0, "work_per_j": 0.4, "temperature_c": 70.0}
    assert {name: pytest.approx(level) for name, level in expected.items()} == {name: value(found, name) for name in expected}


def test_a_card_that_the_trial_does_not_use_adds_nothing():
    kept = RoundSamples((CARD, OTHER))
    kept.take([*series("energy_j", steady_j(400.0)), *series("energy_j", steady_j(100.0), device="GPU-1")])
    found = kept.readings(make_record(), make_trial("treatment"), (OTHER,), {"GPU-0": PERIOD_S, "GPU-1": PERIOD_S})
    assert [300.0] == pytest.approx([reading.value for reading in found if reading.name == "energy_j"])


def test_if_one_card_of_two_is_lost_no_figure_stands_for_both():
    lost = "GPU is lost: it no longer answers"
    found = readings(
        series("power_w", lambda at_s: 400.0),
        series("power_w", lambda at_s: 400.0 if at_s < 5.0 else lost, device="GPU-1"),
        series("energy_j", steady_j(400.0)),
        series("energy_j", lambda at_s: 400.0 * (at_s + 1) if at_s < 5.0 else lost, device="GPU-1"),
        cards=(CARD, OTHER),
    )
    assert f"GPU 1: {lost}" == why(found, "energy_j") == why(found, "work_per_j")
    assert f"GPU 1: {lost}: power_w is known for 47% of the time only" == why(found, "power_w")


def test_if_one_card_of_two_counts_no_energy_both_are_integrated():
    found = readings(
        series("power_w", lambda at_s: 400.0),
        series("power_w", lambda at_s: 100.0, device="GPU-1"),
        series("energy_j", steady_j(400.0)),
        series("energy_j", lambda at_s: "not supported", device="GPU-1"),
        cards=(CARD, OTHER),
    )
    assert (1500.0, 0.4) == pytest.approx((value(found, "energy_integrated_j"), value(found, "work_per_j")))
    assert "GPU 1 has no energy counter that could be read (not supported); see energy_integrated_j" == why(found, "energy_j")


# ---------------------------------------------------------------- the host


def test_a_trial_without_cards_has_the_host_s_energy_alone():
    found = readings(series("cpu_energy_j", steady_j(60.0), device=HOST), cards=(), periods={HOST: PERIOD_S})
    assert {"host_energy_j": 180.0, "host_work_per_j": 600.0 / 180.0} == {name: pytest.approx(r.value) for name, r in found.items()}
    assert ["J", "samples/J"] == [reading.unit for reading in found.values()]


def test_energy_that_this_user_may_not_read_is_a_reason():
    told = series("cpu_energy_j", lambda at_s: "this user may not read the energy counters", device=HOST)
    found = readings(told, cards=(), periods={HOST: 1.0})
    assert {"this user may not read the energy counters"} == {reading.reason for reading in found.values()}


def test_a_host_that_is_watched_once_a_second_has_no_energy_of_short_blocks():
    told = series("cpu_energy_j", steady_j(60.0), device=HOST, first_s=-1.0, step_s=1.0, last_s=9.0)
    found = readings(told, cards=(), periods={HOST: 1.0})
    assert "read every 1 s, which is too seldom for blocks of 1 s that take turns" == why(found, "host_energy_j")


def test_a_host_that_is_not_watched_has_no_readings():
    assert {} == readings(cards=(), periods={})


# ---------------------------------------------------------------- through the library

WATCHED = """
import threading, time
from harness.measure.telemetry.beside import Telemetry
from harness.model import Arrangement, COMPLETED, Process, Quad, Reading, Round, RoundRecord, Trial, TrialRecord
gpus = nvml.devices()[0]
written = []
telemetry = Telemetry([reader(clock=time.perf_counter_ns)], lambda round_, samples: written.extend(samples), gpus)
trial = Trial("a", "cell-a", (Process("lead", "x:y"),))
round_ = Round("solo", 0, 0, (trial,), Arrangement.SOLO, 1)
def measure():
    time.sleep(0.3)
    blocks = []
    for turn in range(2):
        t0_ns = time.perf_counter_ns()
        time.sleep(0.4)
        blocks.append(Reading("a", "work", 100.0, "samples", t0_ns=t0_ns, t1_ns=time.perf_counter_ns(), n=4, quad=1, turn=turn))
    time.sleep(0.3)
    quads = (Quad(1, "AA", accepted=True),)
    return RoundRecord("solo/0.0", "solo", 0, 0, Arrangement.SOLO, "AA", 1, COMPLETED, (TrialRecord("a", "cell-a", COMPLETED),), tuple(blocks), quads, (), "", 1.0, "boot")
record = telemetry.over(round_, measure)
told = {r.name: [r.value, r.reason] for r in record.readings if r.name != "work"}
blocks = [[r.t0_ns, r.t1_ns] for r in record.readings if r.name == "work"]
counted = {gpu.uuid: [[s.t_ns, s.value] for s in written if s.device == gpu.uuid and s.name == "energy_j"] for gpu in gpus}
{"told": told, "blocks": blocks, "counted": counted}
"""
"""A round of two blocks of 0.4 s beside the stand-in for NVIDIA's library, which is sampled twelve times a second."""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compile_stub(tmp_path_factory.mktemp("nvml"))


def between(samples: list[list[float]], at_ns: float) -> float:
    """The straight line through samples, at a moment."""
    (t0_ns, before), (t1_ns, after) = next(pair for pair in pairwise(samples) if pair[0][0] <= at_ns <= pair[1][0])
    return before + (after - before) * (at_ns - t0_ns) / (t1_ns - t0_ns)


def watched(library, **stub: object) -> dict[str, Any]:
    return ask(textwrap.dedent(WATCHED), library, {"CARDS": 2, **stub})


def test_what_two_cards_told_through_the_library_becomes_readings(library):
    found = watched(library, BUSY_0=80, BUSY_1=60, POWER_MW_0=400000, POWER_MW_1=150000, SM_CLOCK=1755, ENERGY_MJ="9000000+40000")
    told = {name: pair[0] for name, pair in found["told"].items()}
    expected = {"kernel_busy": 0.7, "memory_busy": 0.4, "power_w": 550.0, "sm_clock_mhz": 1755.0, "gpu_memory_used_bytes": 2.0**30}
    assert {name: pytest.approx(level) for name, level in expected.items()} == {name: told[name] for name in expected}
    joules = sum(between(samples, t1_ns) - between(samples, t0_ns) for samples in found["counted"].values() for t0_ns, t1_ns in found["blocks"])
    assert (pytest.approx(joules), pytest.approx(200.0 / joules)) == (told["energy_j"], told["work_per_j"])


def test_what_a_card_refuses_is_null_in_its_readings_and_hides_no_other(library):
    found = watched(library, DeviceGetTotalEnergyConsumption_1=3, POWER_MW=300000, DeviceGetClockInfo_0=999)
    told = found["told"]
    assert [None, "GPU 1 has no energy counter that could be read (not supported); see energy_integrated_j"] == told["energy_j"]
    assert (0.87, None) == (pytest.approx(told["kernel_busy"][0]), told["sm_clock_mhz"][0])
    seconds = sum(t1_ns - t0_ns for t0_ns, t1_ns in found["blocks"]) / 1e9
    assert pytest.approx(600.0 * seconds) == told["energy_integrated_j"][0]
