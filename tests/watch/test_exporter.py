"""What a run's endpoint tells Prometheus: what is known under a metric's name and unit, and nothing where nothing is known."""

from __future__ import annotations

import socket
import urllib.error
from dataclasses import replace

import pytest

from harness.errors import ConfigError
from harness.measure.session import Progress
from harness.model import Flag, Outcome, Reason, State
from harness.watch.exporter import METRICS, OF_CARDS, OF_HOST, Exporter, serve
from tests.helpers import make_estimate, make_record
from tests.watch.builders import (
    CARD,
    MACHINE,
    OTHER,
    get,
    make_block,
    make_gpu_plan,
    make_host_sample,
    make_phase,
    make_quad,
    make_round,
    make_sample,
    make_timed,
)

PLAN = make_gpu_plan()


def make_exporter(*, in_round: bool = True) -> Exporter:
    """An exporter that knows its run and, if asked, is in the duet's first round."""
    exporter = Exporter()
    exporter.plan(PLAN, "20261130-run", MACHINE)
    if in_round:
        exporter.round(make_round(PLAN), 4, 600.0)
    return exporter


def series(exporter: Exporter, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by the values of its labels, which are in the order of their names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for metric in exporter.collect()
        for sample in metric.samples
        if sample.name == name
    }


def test_before_a_run_tells_anything_no_metric_has_a_value():
    assert [] == [sample for metric in Exporter().collect() for sample in metric.samples]


def test_every_metric_is_described_and_every_description_is_of_a_metric():
    suffixes = {"counter": "_total", "info": "_info"}
    told = {metric.name + suffixes.get(metric.type, ""): metric.documentation for metric in make_exporter().collect()}
    assert METRICS == told


@pytest.mark.parametrize("shown", [*OF_CARDS, *OF_HOST], ids=lambda shown: shown.metric)
def test_a_metric_ends_in_its_base_unit(shown):
    units = ("_ratio", "_bytes", "_celsius", "_watts", "_joules_total", "_hertz", "_lost")
    assert shown.metric.endswith(units)
    assert shown.counter == shown.metric.endswith("_total")


@pytest.mark.parametrize(
    ("sample", "value", "metric", "expected"),
    [
        ("kernel_busy_share", 0.87, "speedproof_gpu_kernel_busy_ratio", 0.87),
        ("memory_used_bytes", 2.0**30, "speedproof_gpu_memory_used_bytes", 1073741824.0),
        ("temperature_c", 61.0, "speedproof_gpu_temperature_celsius", 61.0),
        ("power_w", 412.345, "speedproof_gpu_power_watts", 412.345),
        ("energy_j", 9000.5, "speedproof_gpu_energy_joules_total", 9000.5),
        ("sm_clock_mhz", 1980.0, "speedproof_gpu_sm_clock_hertz", 1.98e9),
        ("gpu_lost", 1.0, "speedproof_gpu_lost", 1.0),
    ],
)
def test_a_sample_of_a_card_is_told_in_base_units_under_its_index_and_uuid(sample, value, metric, expected):
    exporter = make_exporter()
    exporter.sampled([make_sample(sample, value, OTHER.uuid)])
    assert {("1", "GPU-1"): pytest.approx(expected)} == series(exporter, metric)


def test_a_value_that_has_become_null_is_absent_and_not_zero():
    exporter = make_exporter()
    exporter.sampled([make_sample("power_w", 300.0), make_sample("power_w", 200.0, OTHER.uuid)])
    exporter.sampled([make_sample("power_w", None)])
    assert {("1", "GPU-1"): 200.0} == series(exporter, "speedproof_gpu_power_watts")


def test_a_name_that_has_no_turn_keeps_its_last_value():
    exporter = make_exporter()
    exporter.sampled([make_sample("temperature_c", 61.0)])
    exporter.sampled([make_sample("power_w", 300.0)])
    assert {("0", "GPU-0"): 61.0} == series(exporter, "speedproof_gpu_temperature_celsius")


def test_the_reasons_of_throttling_are_told_one_by_one():
    exporter = make_exporter()
    exporter.sampled([make_sample("throttle_power_cap", 1.0), make_sample("throttle_hardware_thermal", 0.0)])
    assert {("0", "power_cap", "GPU-0"): 1.0, ("0", "hardware_thermal", "GPU-0"): 0.0} == series(exporter, "speedproof_gpu_throttled")


def test_the_host_and_the_workers_are_told():
    exporter = make_exporter()
    exporter.sampled([make_host_sample("cpu_share", 0.5), make_host_sample("rss_bytes", 4096.0)])
    assert {(): 0.5} == series(exporter, "speedproof_host_cpu_busy_ratio")
    assert {(): 4096.0} == series(exporter, "speedproof_workers_resident_memory_bytes")


def test_the_memory_of_workers_is_absent_once_none_lives():
    exporter = make_exporter()
    exporter.sampled([make_host_sample("rss_bytes", 4096.0)])
    exporter.sampled([make_host_sample("rss_bytes", None)])
    assert {} == series(exporter, "speedproof_workers_resident_memory_bytes")


def test_rounds_are_counted_by_outcome():
    exporter = make_exporter()
    failed = Outcome(State.FAILED, Reason("killed", "killed by signal 9"))
    for record in (make_record(0), make_record(1), make_record(2, outcome=failed)):
        exporter.ended(record)
    assert {("completed",): 2.0, ("failed",): 1.0} == series(exporter, "speedproof_rounds_ended_total")
    assert {(): 7.0} == series(exporter, "speedproof_rounds_recorded")


def test_flags_are_counted_by_code():
    exporter = make_exporter()
    flags = (Flag("power_cap", "GPU 0 ran at its power limit"), Flag("swap_used", "the machine swapped"))
    exporter.ended(make_record(flags=flags))
    exporter.ended(make_record(flags=flags[:1]))
    assert {("power_cap",): 2.0, ("swap_used",): 1.0} == series(exporter, "speedproof_flags_total")


def test_planned_rounds_leave_out_what_is_only_on_standby():
    assert {("first_looks",): 3.0, ("last_looks",): 9.0} == series(make_exporter(), "speedproof_rounds_planned")


def test_time_left_is_absent_where_it_is_not_known():
    exporter = make_exporter()
    assert {(): 600.0} == series(exporter, "speedproof_time_left_seconds")
    exporter.round(make_round(PLAN), 5, None)
    assert {} == series(exporter, "speedproof_time_left_seconds")


def test_only_the_comparison_of_the_moment_is_told():
    exporter = make_exporter()
    exporter.round(make_round(PLAN, "control-1"), 5, 10.0)
    assert {("turns_of_blocks", "control-1", "claim", "graph against eager"): 1.0} == series(exporter, "speedproof_contrast_info")


def test_each_arm_tells_its_last_block():
    exporter = make_exporter()
    for progress in (make_block("baseline", 100.0), make_block("treatment", 210.0), make_block("baseline", 120.0)):
        exporter.tell(progress)
    assert {("A", "eager", "samples"): 120.0, ("B", "graph", "samples"): 210.0} == series(exporter, "speedproof_arm_work_per_second")


def test_the_arms_of_an_earlier_round_are_forgotten():
    exporter = make_exporter()
    exporter.tell(make_block("baseline", 100.0))
    exporter.round(make_round(PLAN, index=1), 5, 10.0)
    assert {} == series(exporter, "speedproof_arm_work_per_second")


def test_equal_arms_are_two_series():
    exporter = make_exporter(in_round=False)
    exporter.round(make_round(PLAN, "control-1"), 0, None)
    exporter.tell(make_block("a", 100.0))
    exporter.tell(make_block("b", 90.0))
    assert [100.0, 90.0] == list(series(exporter, "speedproof_arm_work_per_second").values())


def test_a_card_is_measured_while_blocks_run_on_it():
    exporter = make_exporter()
    assert {("0", "GPU-0"): 0.0, ("1", "GPU-1"): 0.0} == series(exporter, "speedproof_gpu_measured")
    exporter.tell(make_block("baseline", 100.0))
    exporter.tell(make_quad(0))
    assert {("0", "GPU-0"): 1.0, ("1", "GPU-1"): 0.0} == series(exporter, "speedproof_gpu_measured")


def test_a_card_is_measured_while_a_job_of_an_arm_on_it_is_timed():
    exporter = make_exporter()
    exporter.tell(make_timed("baseline"))
    assert {("0", "GPU-0"): 1.0, ("1", "GPU-1"): 0.0} == series(exporter, "speedproof_gpu_measured")
    assert {(): 0.0} == series(exporter, "speedproof_blocks_running")
    exporter.tell(make_phase("ending"))
    assert {("0", "GPU-0"): 0.0, ("1", "GPU-1"): 0.0} == series(exporter, "speedproof_gpu_measured")


def test_no_card_is_measured_while_a_job_of_an_arm_without_one_is_timed():
    exporter = make_exporter(in_round=False)
    on_card, beside = make_round(PLAN).trials
    beside = replace(beside, processes=tuple(replace(process, gpus=()) for process in beside.processes))
    exporter.round(replace(make_round(PLAN), trials=(on_card, beside)), 0, None)
    exporter.tell(make_timed("treatment"))
    assert {("0", "GPU-0"): 0.0, ("1", "GPU-1"): 0.0} == series(exporter, "speedproof_gpu_measured")
    exporter.tell(make_timed("baseline"))
    assert {("0", "GPU-0"): 1.0, ("1", "GPU-1"): 0.0} == series(exporter, "speedproof_gpu_measured")


def test_after_a_round_no_job_is_timed():
    exporter = make_exporter()
    exporter.tell(make_timed("baseline"))
    exporter.ended(make_record(0))
    assert {("0", "GPU-0"): 0.0, ("1", "GPU-1"): 0.0} == series(exporter, "speedproof_gpu_measured")


@pytest.mark.parametrize("end", [make_phase(), Progress("round", "duet/0.0", None, "completed", {"cost_s": 9.0})], ids=["phase", "round"])
def test_nothing_is_measured_while_workers_get_ready_or_after_the_round(end):
    exporter = make_exporter()
    exporter.tell(make_block("baseline", 100.0))
    assert {(): 1.0} == series(exporter, "speedproof_blocks_running")
    exporter.tell(end)
    assert {(): 0.0} == series(exporter, "speedproof_blocks_running")


def test_quads_are_counted_without_the_warm_up():
    exporter = make_exporter()
    for quad in (make_quad(0, accepted=False), make_quad(1), make_quad(2, accepted=False), make_quad(3)):
        exporter.tell(quad)
    assert {("true",): 2.0, ("false",): 1.0} == series(exporter, "speedproof_quads_total")


def test_a_foreign_load_that_could_not_be_read_is_absent():
    exporter = make_exporter()
    exporter.tell(make_quad(1, foreign_cores=0.25))
    assert {(): 0.25} == series(exporter, "speedproof_foreign_load_cores")
    exporter.tell(make_quad(2, foreign_cores=None))
    assert {} == series(exporter, "speedproof_foreign_load_cores")


def test_a_long_run_has_no_more_series_than_a_short_one():
    def count(rounds: int) -> int:
        exporter = make_exporter(in_round=False)
        for index in range(rounds):
            exporter.round(make_round(PLAN, index=index), index, 60.0)
            exporter.tell(make_block("baseline", 100.0 + index))
            exporter.sampled([make_sample("power_w", 300.0 + index)])
            exporter.estimate("graph over eager", make_estimate())
            exporter.ended(make_record(index))
        return sum(len(metric.samples) for metric in exporter.collect())

    assert count(1) == count(50)


# ---------------------------------------------------------------- the endpoint


def test_an_endpoint_answers_in_prometheus_own_format():
    with serve(0, "127.0.0.1") as endpoint:
        endpoint.exporter.plan(PLAN, "20261130-run", MACHINE)
        endpoint.exporter.sampled([make_sample("kernel_busy_share", 0.87)])
        lines = get(endpoint.url).splitlines()
    assert "# TYPE speedproof_gpu_kernel_busy_ratio gauge" in lines
    assert f'speedproof_gpu_kernel_busy_ratio{{gpu="0",uuid="{CARD.uuid}"}} 0.87' in lines
    assert 'speedproof_run_info{machine="xeon-2c",run="20261130-run",sweep="quick"} 1.0' in lines


def test_an_endpoint_ends_with_the_run():
    with serve(0, "127.0.0.1") as endpoint:
        get(endpoint.url)
    with pytest.raises(urllib.error.URLError):
        get(endpoint.url)


def test_without_a_port_nothing_is_opened():
    with serve(None, "127.0.0.1") as endpoint:
        assert endpoint is None


def test_a_port_that_is_taken_is_refused_in_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = rf"^telemetry\.prometheus_port={port}: cannot be opened on 127\.0\.0\.1 \(Address already in use\)"
        with pytest.raises(ConfigError, match=said), serve(port, "127.0.0.1"):
            pass


@pytest.mark.parametrize("address", ["203.0.113.7", "a..b"], ids=["another machine's", "no host's name"])
def test_an_address_that_is_not_of_this_machine_is_refused_in_one_line(address):
    with pytest.raises(ConfigError, match=f"^telemetry.prometheus_address={address}: cannot be listened on") as refused, serve(0, address):
        pass
    assert 1 == len(str(refused.value).splitlines())


def test_an_address_that_others_reach_is_said_to_be_open_to_them():
    with serve(0, "127.0.0.1") as endpoint:
        assert f"metrics for Prometheus: {endpoint.url}" == endpoint.text
        assert "open to everyone" in replace(endpoint, loopback=False).text
    with serve(0, "0.0.0.0") as endpoint:
        assert not endpoint.loopback
