"""The whole command on a machine with two cards, those of the stand-in for NVIDIA's library: what is watched, whose figures they are, what becomes of trouble.

The workload has no framework and computes on no card. Where it is planned for one all the same, samples of that card are the round's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.measure.telemetry.beside import Telemetry
from harness.measure.telemetry.host import HostReader, Places
from harness.measure.telemetry.nvml import nested
from harness.measure.telemetry.provider import HOST, Sample
from harness.model import IDLE_ROUND, Arrangement, Manifest, Reading, RoundRecord, State
from harness.store import Bundle
from tests.helpers import make_record
from tests.measure.builders import make_round, make_trial
from tests.measure.nvml_stub import CARD, OTHER, compile_stub
from tests.test_command import FAST, ROOT

if TYPE_CHECKING:
    import pandas as pd

GIB = 2**30
LIMIT_S = 300.0
TWO: dict[str, object] = {"CARDS": 2, "USED_MIB_0": 1024, "USED_MIB_1": 9216, "ENERGY_MJ_0": "9000000+40000", "ENERGY_MJ_1": "7000000+20000"}
LONG_BLOCK_S = 0.6
"""A block must hold several samples if figures of a card are to be told of the arm that ran in it."""

REFUSED = {
    "DeviceGetUtilizationRates": ["kernel_busy_share", "memory_busy_share"],
    "GpmQueryDeviceSupport": ["sm_active_share", "tensor_active_share"],
    "DeviceGetMemoryInfo_v2": ["memory_used_bytes", "memory_reserved_bytes"],
    "DeviceGetMemoryInfo": [],
    "DeviceGetPowerUsage": ["power_w"],
    "DeviceGetTotalEnergyConsumption": ["energy_j"],
    "DeviceGetClockInfo": ["sm_clock_mhz", "memory_clock_mhz"],
    "DeviceGetCurrentClocksEventReasons": ["throttle_power_cap", "throttle_hardware_thermal"],
    "DeviceGetTemperature": ["temperature_c"],
    "DeviceGetDefaultApplicationsClock": ["default_sm_clock_mhz"],
    "DeviceGetComputeRunningProcesses": ["process_memory_bytes", "foreign_processes"],
    "DeviceGetCurrPcieLinkGeneration": ["pcie_generation", "pcie_width"],
    "DeviceGetPcieThroughput": ["pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"],
    "DeviceGetFieldValues": ["nvlink_tx_bytes", "nvlink_rx_bytes"],
}
"""The questions that the first card refuses, and the samples that are null for it."""


@dataclass(frozen=True)
class Setting:
    """A machine and a run on it. Those of one group are run at the same time: they sleep for the most part."""

    stub: Mapping[str, object] = field(default_factory=lambda: TWO)
    variables: Mapping[str, str] = field(default_factory=dict)
    kind: str = "gpu"
    block_s: float = 0.02
    group: str = ""
    driver: bool = True


SETTINGS = {
    "beside": Setting({**TWO, "THROTTLE": 0x40, "SM_CLOCK": 345}, kind="cpu", group="short"),
    "driverless": Setting(kind="auto", group="short", driver=False),
    "by index": Setting(variables={"CUDA_VISIBLE_DEVICES": "1"}, group="masked"),
    "by UUID": Setting(variables={"CUDA_VISIBLE_DEVICES": OTHER}, group="masked"),
    "by the UUID's first letters": Setting(variables={"CUDA_VISIBLE_DEVICES": OTHER[:12]}, group="masked"),
    "beside a card in MIG mode": Setting({**TWO, "MIG_0": 0}, group="masked"),
    "lost": Setting({**TWO, "FALLS_OFF_0": "0;1@360"}, group="short"),
    "healthy": Setting(block_s=LONG_BLOCK_S, group="long"),
    "refusing": Setting({**TWO, **{f"{question}_0": 3 for question in REFUSED}}, block_s=LONG_BLOCK_S, group="long"),
    "troubled": Setting({**TWO, "THROTTLE_0": 0x60, "SM_CLOCK_0": "1980;900@20", "PROCESSES_0": "1:1048576"}, block_s=LONG_BLOCK_S, group="long"),
}
MASKED = [name for name, setting in SETTINGS.items() if setting.group == "masked"]


@dataclass(frozen=True)
class Ran:
    """A run that has ended: its exit code, what it said of errors, and its bundle."""

    code: int
    errors: str
    results: Path

    @cached_property
    def bundle(self) -> Bundle:
        (manifest,) = self.results.glob("*/manifest.json")
        return Bundle.open(manifest.parent, self.results)

    @property
    def manifest(self) -> Manifest:
        return self.bundle.manifest

    @cached_property
    def records(self) -> list[RoundRecord]:
        return self.bundle.records()

    @cached_property
    def samples(self) -> pd.DataFrame:
        return self.bundle.telemetry()

    def of(self, device: str, *names: str) -> pd.DataFrame:
        mine = self.samples[self.samples["device"] == device]
        return mine[mine["name"].isin(names)] if names else mine

    @property
    def pages(self) -> dict[str, str]:
        """The report's two forms, with names as they are and not as Markdown has to write them."""
        return {name: (self.bundle.path / name).read_text().replace("\\", "") for name in ("report.md", "report.html")}

    def timed(self) -> list[tuple[RoundRecord, str]]:
        """The rounds, with each trial, in which blocks were accepted."""
        whole = [r for r in self.records if r.outcome.state is State.COMPLETED and any(quad.accepted and quad.part == "main" for quad in r.quads)]
        return [(record, trial.id) for record in whole for trial in record.trials]

    def readings(self, name: str) -> list[Reading]:
        return [reading for record, trial in self.timed() for reading in record.readings if (reading.trial, reading.name) == (trial, name)]


def start(setting: Setting, library: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start the run; its own temporary folder makes its machine's lock its own."""
    results, temporary = folder / "results", folder / "tmp"
    results.mkdir()
    temporary.mkdir()
    if not setting.driver:
        library = folder
        (folder / "libnvidia-ml.so.1").write_text("no library, and found before any that this machine may have\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVML_STUB_", "LD_LIBRARY_PATH"))}
    env |= {"TMPDIR": str(temporary), "LD_LIBRARY_PATH": str(library), **setting.variables}
    env |= {f"NVML_STUB_{name}": str(value) for name, value in setting.stub.items()}
    sweep = [word for word in FAST if "block_s" not in word]
    words = [
        *(sys.executable, "-m", "harness", *sweep, f"+sweep.block_s={setting.block_s}", "sweep.control.workload=custom", "sweep.control.sizes={}"),
        *("workload.target=tests.fakes:build", f"results_dir={results}", f"devices.kind={setting.kind}"),
    ]
    with (folder / "errors").open("wb") as errors:
        return subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=errors)


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Callable[[str], Ran]:
    """Gives a run by its setting's name; it and its group are run when one of them is asked for."""
    library = compile_stub(tmp_path_factory.mktemp("nvml"))
    known: dict[str, Ran] = {}

    def of(name: str) -> Ran:
        if name not in known:
            mine = {other: setting for other, setting in SETTINGS.items() if setting.group == SETTINGS[name].group}
            folders = {other: tmp_path_factory.mktemp("run") for other in mine}
            started = {other: start(setting, library, folders[other]) for other, setting in mine.items()}
            deadline_s = time.monotonic() + LIMIT_S
            try:
                codes = {other: process.wait(max(1.0, deadline_s - time.monotonic())) for other, process in started.items()}
            finally:
                for process in started.values():
                    process.kill()
                    process.wait()
            known.update({other: Ran(codes[other], (folder / "errors").read_text(), folder / "results") for other, folder in folders.items()})
        return known[name]

    return of


def test_no_run_ends_with_a_traceback(ran):
    assert {"beside": 0, "driverless": 0, "lost": 2} == {name: ran(name).code for name in ("beside", "driverless", "lost")}
    assert not any("Traceback" in ran(name).errors for name in ("beside", "driverless", "lost"))


# ---------------------------------------------------------------- two cards


def test_both_cards_are_watched_in_every_round_even_if_the_work_is_the_processor_s(ran):
    beside = ran("beside")
    rounds = {record.round for record in beside.records}
    assert {HOST, CARD, OTHER} == set(beside.samples["device"])
    assert {"cpu"} == {cell.device for cell in beside.manifest.plan.cells.values()}
    for device in (CARD, OTHER):
        seen = beside.of(device, "kernel_busy_share").dropna(subset=["value"])
        assert rounds <= set(seen["round"]) <= {*rounds, IDLE_ROUND}


def test_each_card_s_figures_are_its_own(ran):
    beside = ran("beside")
    used = {device: set(beside.of(device, "memory_used_bytes")["value"]) for device in (CARD, OTHER)}
    assert {CARD: {GIB}, OTHER: {9 * GIB}} == used


def test_cards_are_watched_at_rest_before_the_first_round(ran):
    rest = ran("beside").samples
    rest = rest[(rest["round"] == IDLE_ROUND) & (rest["name"] == "power_w")]
    assert {CARD: {412.345}, OTHER: {412.345}} == {device: set(rest[rest["device"] == device]["value"]) for device in (CARD, OTHER)}


def test_trouble_on_a_card_that_the_work_does_not_use_is_no_trouble(ran):
    codes = {flag.code for record in ran("beside").records for flag in record.flags}
    assert not codes & {"thermal_throttling", "low_clocks", "gpu_lost", "gpu_unwatched", "foreign_gpu_process", "foreign_gpu_unknown"}


def test_work_on_the_processor_has_no_figure_of_a_card(ran):
    assert not {reading.name for record in ran("beside").records for reading in record.readings} & {"kernel_busy", "power_w", "energy_j"}


def test_the_report_lists_both_cards(ran):
    for page in ran("beside").pages.values():
        assert "GPU 0" in page
        assert "GPU 1" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel_busy", 0.87),
        ("memory_busy", 0.4),
        ("sm_active", 0.73),
        ("tensor_active", 0.255),
        ("sm_clock_mhz", 1980.0),
        ("memory_clock_mhz", 3201.0),
        ("gpu_memory_used_bytes", GIB),
    ],
)
def test_an_arm_s_figures_are_those_of_its_own_card(ran, name: str, value: float):
    told = [reading.value for reading in ran("healthy").readings(name)]
    assert any(one is not None for one in told)
    assert [value] * len(told) == pytest.approx([value if one is None else one for one in told])


@pytest.mark.slow
def test_an_arm_s_energy_is_what_its_card_counted_meanwhile(ran):
    """The stand-in's counter grows by 40 J a question, and a question is put ten times a second."""
    healthy = ran("healthy")
    joules = [reading.value for reading in healthy.readings("energy_j") if reading.value is not None]
    assert joules
    assert all(0 < one < 40_000 for one in joules)
    assert all(reading.value is None or reading.value > 0 for reading in healthy.readings("work_per_j"))


@pytest.mark.slow
def test_an_arm_s_work_per_joule_has_an_interval_once_two_rounds_know_it(ran):
    healthy, checked = ran("healthy"), 0
    for figure in healthy.bundle.verdicts().energy:
        if figure.measure == "work_per_j":
            rounds = [r for r in healthy.records if r.contrast == figure.contrast and r.outcome.state is State.COMPLETED]
            told = [reading.value for r in rounds for reading in r.readings if (reading.trial, reading.name) == (figure.trial, "work_per_j")]
            known = [value for value in told if value is not None]
            assert len(known) == (figure.estimate.n if figure.estimate else 0)
            if len(known) > 1:
                assert 0 <= figure.estimate.low < figure.estimate.point < figure.estimate.high
                assert sum(known) / len(known) == pytest.approx(figure.estimate.point)
                checked += 1
    assert checked
    assert all("joules for each unit of work (interval)" in page for page in healthy.pages.values())


@pytest.mark.slow
def test_an_arm_s_power_beside_the_other_arm_is_its_energy_over_its_time(ran):
    """The driver of such a card tells the mean power of the last second, which both arms share."""
    checked = 0
    for record, trial in ran("healthy").timed():
        told = {reading.name: reading.value for reading in record.readings if reading.trial == trial and reading.name in {"power_w", "energy_j"}}
        accepted = {quad.index for quad in record.quads if quad.accepted and quad.part == "main"}
        blocks = [r for r in record.readings if (r.trial, r.name, r.part) == (trial, "work", "main") and r.quad in accepted]
        if record.arrangement is Arrangement.TURNS_OF_BLOCKS and None not in told.values():
            seconds = sum(block.t1_ns - block.t0_ns for block in blocks) / 1e9
            assert pytest.approx(told["energy_j"]) == told["power_w"] * seconds
            checked += 1
    assert checked


@pytest.mark.slow
def test_the_report_shows_what_the_card_did(ran):
    for page in ran("healthy").pages.values():
        assert "What the hardware did" in page
        assert "kernels busy" in page
        assert "87.0 %" in page.replace("\N{NO-BREAK SPACE}", " ")


# ---------------------------------------------------------------- which card


@pytest.mark.parametrize("name", MASKED)
def test_the_card_that_the_mask_leaves_is_the_one_that_is_used_and_watched(ran, name: str):
    masked = ran(name)
    assert (0, [OTHER]) == (masked.code, [gpu.uuid for gpu in masked.manifest.machine.gpus]), masked.errors[-2000:]
    assert {HOST, OTHER} == set(masked.samples["device"])
    assert {9 * GIB} == set(masked.of(OTHER, "memory_used_bytes")["value"])
    trials = [trial for contrast in masked.manifest.plan.contrasts for trial in contrast.trials]
    assert {(OTHER,)} == {process.gpus for trial in trials for process in trial.processes}


@pytest.mark.parametrize("name", MASKED)
def test_the_report_calls_a_masked_card_by_its_place_on_the_machine(ran, name: str):
    page = ran(name).pages["report.md"]
    assert ("GPU 1" in page, "GPU 0" in page) == (True, False)


# ---------------------------------------------------------------- nothing there


def test_without_a_driver_a_run_is_one_on_the_processor(ran):
    driverless = ran("driverless")
    machine = driverless.manifest.machine
    assert ((), "NVML could not be started: there is no NVIDIA driver: libnvidia-ml.so.1 was not found") == (machine.gpus, machine.gpu_reason)
    assert {"cpu"} == {cell.device for cell in driverless.manifest.plan.cells.values()}
    assert {HOST} == set(driverless.samples["device"])
    assert all(record.outcome.state is State.COMPLETED for record in driverless.records)


def test_without_a_driver_the_report_says_why_in_one_line(ran):
    lines = [line for line in ran("driverless").pages["report.md"].splitlines() if "there is no NVIDIA driver" in line]
    assert ["| GPU | none: NVML could not be started: there is no NVIDIA driver: libnvidia-ml.so.1 was not found |"] == lines


# ---------------------------------------------------------------- refusals


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for names in REFUSED.values() for name in names])
def test_what_a_card_refuses_is_null_with_the_reason_in_the_bundle_and_the_other_card_s_is_not(ran, name: str):
    refusing = ran("refusing")
    refused = refusing.of(CARD, name)
    rounds = {record.round for record in refusing.records if record.trials[0].outcome.state is State.COMPLETED and record.quads}
    assert rounds <= set(refused["round"])
    assert (True, {"not supported"}) == (bool(refused["value"].isna().all()), set(refused["reason"]))
    if name not in {"process_memory_bytes", "foreign_processes"}:  # of processes that are not listed, or by other ids, they are null on any card
        assert refusing.of(OTHER, name)["value"].notna().any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("kernel_busy", "memory_busy", "sm_active", "tensor_active", "power_w", "energy_j", "work_per_j", "sm_clock_mhz", "memory_clock_mhz"),
        *("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"),
    ],
)
def test_a_figure_made_of_refused_samples_is_null_with_the_reason(ran, name: str):
    told = ran("refusing").readings(name)
    assert told
    assert {(None, True)} == {(reading.value, "not supported" in (reading.reason or "")) for reading in told}


@pytest.mark.slow
@pytest.mark.parametrize("page", ["report.md", "report.html"])
def test_the_report_says_not_available_and_why(ran, page: str):
    text = ran("refusing").pages[page]
    assert "n/a (1)" in text
    assert "not supported" in text
    assert "kernels busy" in text


@pytest.mark.slow
def test_an_energy_that_nobody_could_count_is_neither_nothing_nor_endless(ran):
    for text in ran("refusing").pages.values():
        assert not [word for word in ("0 J", "0.00 J", "inf", "0 W") if f" {word} " in text]


@pytest.mark.slow
def test_refusals_do_not_stop_a_run(ran):
    refusing = ran("refusing")
    assert 0 == refusing.code, refusing.errors[-2000:]
    assert all(record.outcome.state is State.COMPLETED for record in refusing.records)


# ---------------------------------------------------------------- a lost card


def test_a_round_during_which_its_card_fell_off_has_failed(ran):
    lost = ran("lost")
    gone = {record.round for record in lost.records if "gpu_lost" in {flag.code for flag in record.flags}}
    assert gone
    for record in lost.records:
        reason = record.outcome.reason
        assert (record.round in gone) == (record.outcome.state is State.FAILED and reason is not None and reason.code == "gpu_lost")


def test_of_a_lost_card_nothing_is_told_but_that(ran):
    lost = ran("lost")
    mine = lost.of(CARD)
    fell_ns = mine[(mine["name"] == "gpu_lost") & (mine["value"] == 1.0)]["t_ns"].min()
    assert mine[(mine["t_ns"] < fell_ns) & (mine["name"] == "kernel_busy_share")]["value"].notna().any()
    after = mine[(mine["t_ns"] >= fell_ns) & ~mine["name"].isin(["gpu_lost"]) & ~mine["name"].astype(str).str.startswith("sampler_")]
    assert (True, {"GPU is lost: it no longer answers"}) == (bool(after["value"].isna().all()), set(after["reason"]))


def test_the_other_card_s_series_stay_whole(ran):
    lost = ran("lost")
    for name in ("kernel_busy_share", "power_w", "energy_j", "sm_clock_mhz", "memory_used_bytes"):
        series = lost.of(OTHER, name)
        assert series["value"].notna().all(), name
        assert {record.round for record in lost.records} <= set(series["round"]), name


def test_a_lost_card_is_named_in_the_validity_box(ran):
    for text in ran("lost").pages.values():
        assert "GPU 0 was lost during this round: it no longer answers" in text


# ---------------------------------------------------------------- trouble


TROUBLE = {
    "thermal_throttling": "GPU 0 was slowed down for heat",
    "low_clocks": "GPU 0 was busy at 900 MHz, below 75% of its default of 1900 MHz",
    # Inside a container the driver's process ids mean nothing, and strangers cannot be told from our own.
    **(
        {"foreign_gpu_unknown": "whether others computed on GPU 0 meanwhile is not known"}
        if nested(Path("/proc/self/ns/pid"))
        else {"foreign_gpu_process": "another program computed on GPU 0 meanwhile"}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("code", TROUBLE)
def test_trouble_is_a_flag_on_every_round_that_was_timed_and_drops_none(ran, code: str):
    troubled = ran("troubled")
    assert (0, {State.COMPLETED}) == (troubled.code, {record.outcome.state for record in troubled.records}), troubled.errors[-2000:]
    timed = [record for record in troubled.records if record.quads]
    assert timed
    assert [] == [record.round for record in timed if code not in {flag.code for flag in record.flags}]


@pytest.mark.slow
@pytest.mark.parametrize("page", ["report.md", "report.html"])
@pytest.mark.parametrize("code", TROUBLE)
def test_trouble_stands_in_the_validity_box(ran, code: str, page: str):
    text = ran("troubled").pages[page]
    assert f"{code} (" in text
    assert TROUBLE[code] in text


def test_swapping_during_a_round_is_a_flag_on_its_record(tmp_path):
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "vmstat").write_text("pswpin 100\npswpout 100\n")
    reader = HostReader(list, period_s=0.1, places=Places(proc, tmp_path / "powercap", tmp_path / "block"))
    taken: list[Sample] = []

    def measure() -> RoundRecord:
        until_s = time.monotonic() + 10
        while not taken and time.monotonic() < until_s:
            time.sleep(0.01)
        (proc / "vmstat").write_text("pswpin 700\npswpout 600\n")
        return make_record(readings=())

    record = Telemetry([reader], lambda _, samples: taken.extend(samples)).over(make_round(make_trial("a")), measure)
    moved = 1100 * os.sysconf("SC_PAGE_SIZE")
    assert [("swap_used", {"swapped_bytes": moved})] == [(flag.code, flag.numbers) for flag in record.flags]
