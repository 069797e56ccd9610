"""What samples say about a round: flagged where they fall into the measured time, and never a reason to drop anything silently."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.measure.telemetry.flags import Findings, blind, flag_rules, judged, span
from harness.measure.telemetry.provider import HOST, Sample
from harness.measure.telemetry.sampler import Summary
from harness.model import COMPLETED, Flag, Gpu, Outcome, Reason, State
from tests.helpers import make_failure, make_reading, make_record, make_trial_record

CARD = Gpu(0, "NVIDIA H200", "GPU-0", None, None)
OTHER = Gpu(1, "NVIDIA H200", "GPU-1", None, None)
START, END = 100, 200


def make_samples(t_ns: int = 150, device: str = "GPU-0", **values: float | str) -> list[Sample]:
    """One moment of a card; a text is the reason for a null."""
    return [
        Sample(device, t_ns, name, None, value) if isinstance(value, str) else Sample(device, t_ns, name, value) for name, value in values.items()
    ]


def flags(*batches: list[Sample], cards: tuple[Gpu, ...] = (CARD,)) -> dict[str, Flag]:
    findings = Findings(cards)
    for batch in batches:
        findings.take(batch)
    return {flag.code: flag for flag in findings.flags(START, END)}


QUIET = {"throttle_idle": 0.0, "sm_clock_mhz": 1980.0, "default_sm_clock_mhz": 1980.0, "foreign_processes": 0.0, "gpu_lost": 0.0}


def test_a_card_that_is_as_it_should_be_raises_no_flag():
    assert {} == flags(make_samples(**QUIET))


def test_another_program_on_the_card_is_flagged():
    flag = flags(make_samples(foreign_processes=2.0))["foreign_gpu_process"]
    assert ("another program computed on GPU 0 meanwhile", {"processes": 2.0, "samples": 1}) == (flag.text, flag.numbers)


@pytest.mark.parametrize(
    ("sample", "code"),
    [
        ("throttle_hardware_thermal", "thermal_throttling"),
        ("throttle_software_thermal", "thermal_throttling"),
        ("throttle_power_brake", "power_brake"),
        ("throttle_hardware_slowdown", "hardware_slowdown"),
        ("throttle_power_cap", "power_cap"),
    ],
)
def test_clocks_that_are_held_down_are_flagged_with_how_often(sample: str, code: str):
    told = flags(make_samples(120, **QUIET), make_samples(140, **{**QUIET, sample: 1.0}), make_samples(160, **{**QUIET, sample: 1.0}))
    assert {code: {"samples": 2, "of": 3}} == {name: flag.numbers for name, flag in told.items()}


def test_a_reason_that_is_not_told_again_still_holds():
    told = flags(make_samples(120, **QUIET, throttle_power_brake=1.0), make_samples(140, **QUIET), make_samples(150), make_samples(160, **QUIET))
    assert {"samples": 3, "of": 3} == told["power_brake"].numbers


def test_a_reason_that_is_taken_back_no_longer_holds():
    told = flags(make_samples(120, **QUIET, throttle_power_brake=1.0), make_samples(140, **QUIET, throttle_power_brake=0.0))
    assert {"samples": 1, "of": 2} == told["power_brake"].numbers


def test_a_reason_before_the_driver_fell_silent_holds_no_longer():
    silent = make_samples(140, throttle_idle="unknown error of the driver")
    told = flags(make_samples(120, **QUIET, throttle_power_brake=1.0), silent, make_samples(160, **QUIET))
    assert {"samples": 1, "of": 2} == told["power_brake"].numbers


def test_a_hardware_slowdown_that_is_explained_is_told_once():
    told = flags(make_samples(throttle_idle=0.0, throttle_hardware_slowdown=1.0, throttle_hardware_thermal=1.0))
    assert ["thermal_throttling"] == list(told)


def test_both_kinds_of_heat_at_one_moment_are_one_sample():
    told = flags(make_samples(throttle_idle=0.0, throttle_software_thermal=1.0, throttle_hardware_thermal=1.0))
    assert {"samples": 1, "of": 1} == told["thermal_throttling"].numbers


def test_a_busy_card_below_three_quarters_of_its_clock_is_flagged():
    told = flags(make_samples(120, **{**QUIET, "sm_clock_mhz": 1485.0}), make_samples(140, **{**QUIET, "sm_clock_mhz": 1480.0}))
    assert {"lowest_mhz": 1480.0, "default_mhz": 1980.0, "samples": 1, "of": 2} == told["low_clocks"].numbers


def test_how_low_a_clock_is_conspicuous_can_be_chosen():
    findings = Findings((CARD,), flag_rules({"low_clock_share": 0.5, "foreign_cores": 0.2}))
    findings.take(make_samples(**{**QUIET, "sm_clock_mhz": 1000.0}))
    assert [] == findings.flags(START, END)
    findings.take(make_samples(160, **{**QUIET, "sm_clock_mhz": 980.0}))
    assert ["GPU 0 was busy at 980 MHz, below 50% of its default of 1980 MHz"] == [flag.text for flag in findings.flags(START, END)]


def test_how_much_swapping_is_conspicuous_can_be_chosen():
    findings = Findings((), flag_rules({"swapped_bytes": 100.0}))
    findings.take([*make_samples(50, HOST, swapped_bytes=0.0), *make_samples(150, HOST, swapped_bytes=100.0)])
    assert ["swap_used"] == [flag.code for flag in findings.flags(START, END)]


def test_a_machine_that_did_not_swap_is_not_flagged_however_little_is_allowed():
    findings = Findings((), flag_rules({"swapped_bytes": 0.0}))
    findings.take([*make_samples(50, HOST, swapped_bytes=7.0), *make_samples(150, HOST, swapped_bytes=7.0)])
    assert [] == findings.flags(START, END)


def test_an_idle_card_may_clock_down():
    assert {} == flags(make_samples(**{**QUIET, "sm_clock_mhz": 345.0, "throttle_idle": 1.0}))


def test_a_card_whose_default_clock_is_not_known_is_not_judged_by_it():
    assert {} == flags(make_samples(sm_clock_mhz=345.0, throttle_idle=0.0, default_sm_clock_mhz="not supported", foreign_processes=0.0))


@pytest.mark.parametrize("t_ns", [START - 1, END + 1])
def test_what_happens_before_or_after_the_measured_time_is_no_flag(t_ns: int):
    assert {} == flags(make_samples(t_ns, foreign_processes=1.0, throttle_idle=0.0, throttle_hardware_thermal=1.0))


def test_a_card_that_the_round_does_not_use_raises_no_flag():
    assert {} == flags(make_samples(**QUIET), make_samples(device="GPU-1", foreign_processes=1.0, gpu_lost=1.0))


def test_others_that_cannot_be_known_are_not_taken_for_none():
    flag = flags(make_samples(power_w=1.0, foreign_processes="process ids of another namespace"))["foreign_gpu_unknown"]
    assert "whether others computed on GPU 0 meanwhile is not known: process ids of another namespace" == flag.text


def test_a_card_of_which_nothing_could_be_read_is_flagged_with_the_reason():
    assert (
        "nothing could be read of GPU 0: the NVIDIA driver is not loaded"
        == flags(make_samples(power_w="the NVIDIA driver is not loaded"))["gpu_unwatched"].text
    )
    assert "nothing could be read of GPU 0: no sample was taken" == flags()["gpu_unwatched"].text


def test_swapping_is_flagged_by_how_much_was_moved_in_the_measured_time():
    totals = [(50, 2**30), (90, 2**30 + 7), (150, 2**30 + 2**20 + 7), (190, 2**30 + 3 * 2**20 + 7), (250, 2**40)]
    told = flags(*(make_samples(t_ns, HOST, swapped_bytes=float(total)) for t_ns, total in totals), cards=())
    assert {"swap_used": {"swapped_bytes": 3 * 2**20}} == {name: flag.numbers for name, flag in told.items()}


def test_a_machine_that_swapped_long_ago_is_not_flagged():
    assert {} == flags(make_samples(50, HOST, swapped_bytes=2.0**30), make_samples(150, HOST, swapped_bytes=2.0**30), cards=())


def test_the_measured_time_spans_all_timed_readings():
    record = make_record(readings=(make_reading(start_s=3.0, seconds=1.0), make_reading(start_s=1.0, seconds=0.5)))
    assert (1_000_000_000, 4_000_000_000) == span(record)


def test_a_round_without_timed_readings_has_no_measured_time_of_its_own():
    assert None is span(make_record(readings=()))


# ---------------------------------------------------------------- a lost card


def lose(record, *cards: Gpu):
    return judged(record, [Flag("gpu_lost", "GPU 0 was lost")], cards or (CARD,))


def test_a_card_of_the_round_that_is_lost_is_known_as_lost():
    findings = Findings((CARD, OTHER))
    findings.take(make_samples(500, "GPU-1", gpu_lost=1.0))
    assert (OTHER,) == findings.lost()
    assert "gpu_lost" in {flag.code for flag in findings.flags(START, END)}


def test_a_round_whose_card_was_lost_has_failed():
    record = lose(make_record())
    assert (State.FAILED, "gpu_lost", ["gpu_lost"]) == (record.outcome.state, record.outcome.reason.code, [flag.code for flag in record.flags])


def test_a_time_out_by_a_lost_card_bounds_no_speed():
    late = Outcome(State.TIMED_OUT, Reason("deadline", "did not finish"), "blocks")
    record = lose(make_record(outcome=late, trials=(make_trial_record(outcome=late), make_trial_record("baseline"))))
    outcome = record.trials[0].outcome
    assert (State.FAILED, "gpu_lost", {"was": "deadline"}, "blocks") == (outcome.state, outcome.reason.code, outcome.reason.numbers, outcome.phase)
    assert COMPLETED == record.trials[1].outcome


def test_a_death_by_a_lost_card_is_no_want_of_memory():
    killed = replace(make_failure(), reason=Reason("killed", "killed by signal 9", {"possibly_out_of_memory": True}))
    assert not lose(make_record(outcome=killed, trials=(make_trial_record(outcome=killed),))).trials[0].outcome.out_of_memory


def test_a_round_that_was_stopped_stays_stopped():
    stopped = Outcome(State.INTERRUPTED, Reason("stopped", "stopped by request"))
    assert stopped == lose(make_record(outcome=stopped)).outcome


def test_without_a_lost_card_only_flags_are_added():
    before = make_record(flags=(Flag("steal", "stolen"),))
    after = judged(before, [Flag("swap_used", "swapped")], ())
    assert replace(before, flags=(Flag("steal", "stolen"), Flag("swap_used", "swapped"))) == after


# ---------------------------------------------------------------- sampling itself


def make_summary(**changes) -> Summary:
    return replace(Summary(("GPU-0",), 0.1, samples=5, overruns=3, errors=0, untaken=0, reason=None), **changes)


def test_sampling_that_went_well_is_no_flag():
    assert [] == blind([make_summary(), make_summary(devices=(HOST,))])


def test_sampling_that_never_or_not_always_worked_is_flagged():
    (flag,) = blind([make_summary(), make_summary(samples=0, errors=4, reason="OSError: gone")])
    assert ("telemetry_incomplete", {"samples": 0, "errors": 4, "untaken": 0}) == (flag.code, flag.numbers)
    assert "the machine was not, or not always, watched: OSError: gone" == flag.text


def test_no_sample_at_all_is_not_taken_for_nothing_there():
    assert "the round was over before the first sample" in blind([make_summary(samples=0)])[0].text
