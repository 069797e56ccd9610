"""What NVML tells and refuses, through the real binding: against a library of our own that says what a test wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.measure.telemetry.nvml import nested, throttle_words
from harness.measure.telemetry.provider import THROTTLE_WORDS
from tests.measure.nvml_stub import CARD, OTHER, SECOND_SLICE, SLICE, THIRD, ask, compile_stub

GIB = 2**30
MIB = 2**20


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


def values(library: Path, code: str = "read(reader())", card: str = CARD, env: dict[str, str] | None = None, **stub: object) -> dict[str, Any]:
    """Return what is told of one card: values, and reasons where there are none."""
    return ask(code, library, stub, **(env or {}))[card]


# ---------------------------------------------------------------- what there is


def test_a_card_s_identity_is_read_whole(library):
    (gpu,) = ask("[asdict(gpu) for gpu in nvml.devices()[0]]", library, {"COMPUTE_MODE": 3, "ECC": 0, "POWER_LIMIT_MW": 650000})
    assert {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": CARD,
        "memory_bytes": 143771 * MIB,
        "compute_capability": 9.0,
        "pci_id": "00000000:17:00.0",
        "vbios": "96.00.BC.00.00",
        "power_limit_w": 650.0,
        "ecc": False,
        "mig": "disabled",
        "compute_mode": "exclusive_process",
        "cuda_cores": 16896,
        "numa_node": None,  # the kernel's word, not NVML's
        "default_sm_clock_mhz": 1900,
        "default_memory_clock_mhz": 3201,
        "max_sm_clock_mhz": 1985,
        "max_memory_clock_mhz": 3211,
        "nvlinks": 18,
        "nvlink_bytes_per_s": 26562e6,
    } == gpu


def test_the_driver_s_versions_are_read(library):
    assert ["570.86.10", "12.8"] == ask("[(found := nvml.inventory()).driver, found.cuda]", library)


REFUSED_IDENTITY = {
    f"DeviceGet{name}": 3
    for name in (
        "PciInfo",
        "VbiosVersion",
        "PowerManagementLimit",
        "EccMode",
        "ComputeMode",
        "MigMode",
        "NumGpuCores",
        "DefaultApplicationsClock",
        "MaxClockInfo",
        "NvLinkState",
    )
}


def test_what_a_card_does_not_tell_of_itself_is_null(library):
    (gpu,) = ask("[asdict(gpu) for gpu in nvml.devices()[0]]", library, REFUSED_IDENTITY)
    untold = {name: value for name, value in gpu.items() if name not in {"index", "name", "uuid", "memory_bytes", "compute_capability"}}
    assert (14, {None}) == (len(untold), set(untold.values()))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "NVML could not be started: the NVIDIA driver is not loaded"),
        (18, "NVML could not be started: the driver and its library are of different versions: restart the machine, or reload the driver"),
        (999, "NVML could not be started: unknown error of the driver"),
    ],
)
def test_a_driver_that_does_not_start_is_a_reason(library, code: int, reason: str):
    assert [[], reason] == ask("nvml.devices()", library, {"Init": code})


def test_a_machine_without_a_driver_is_a_reason(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("no library, and found before any that this machine may have\n")
    assert [[], "NVML could not be started: there is no NVIDIA driver: libnvidia-ml.so.1 was not found"] == ask("nvml.devices()", tmp_path)


def test_another_module_of_the_binding_s_name_is_a_reason(library, tmp_path):
    (tmp_path / "pynvml.py").write_text("def nvmlInit(): pass\n")
    told = ask("nvml.devices()", library, first_on_path=tmp_path)
    assert [[], "the module pynvml on the path is not nvidia-ml-py: it has no NVMLError"] == told


def test_a_module_of_the_binding_s_name_that_cannot_be_imported_is_a_reason(library, tmp_path):
    (tmp_path / "pynvml.py").write_text("print 'for Python 2'\n")
    gpus, reason = ask("nvml.devices()", library, first_on_path=tmp_path)
    assert ([], True) == (gpus, reason.startswith("the NVML binding (nvidia-ml-py) is missing: "))


def test_a_lost_card_hides_no_other(library):
    gpus, reason = ask("[[gpu.uuid for gpu in nvml.devices()[0]], nvml.devices()[1]]", library, {"CARDS": 2, "LOST": 0})
    assert ([OTHER], "card 0 could not be read: GPU is lost: it no longer answers") == (gpus, reason)


# ---------------------------------------------------------------- how cards hang together

PAIRS = "[list(asdict(pair).values()) for pair in nvml.inventory().topology]"
STRAIGHT: dict[str, object] = {"CARDS": 2, "NVLINK_TO_0": 1, "NVLINK_TO_1": 0}


def pair(library: Path, **stub: object) -> list[Any]:
    """Return where the ways of two cards meet, how many NVLinks they share, and whether through a switch."""
    (told,) = ask(PAIRS, library, {"CARDS": 2, **stub})
    assert [CARD, OTHER] == told[:2]
    return told[2:]


@pytest.mark.parametrize(("level", "word"), [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"), (35, None), (-1, None)])
def test_where_the_ways_of_two_cards_meet_is_told_in_the_words_of_nvidia_smi(library, level: int, word: str | None):
    assert word == pair(library, ANCESTOR=level)[0]


def test_cards_at_one_switch_share_the_links_that_each_has_to_it(library):
    assert ["SYS", 18, True] == pair(library)


def test_through_a_switch_two_cards_share_as_many_links_as_the_lesser_has(library):
    assert ["SYS", 16, True] == pair(library, NVLINKS_UP_1=16)


def test_links_from_card_to_card_are_counted(library):
    assert ["SYS", 4, False] == pair(library, **STRAIGHT, NVLINKS_UP=4)


def test_cards_that_count_the_links_between_them_otherwise_are_not_believed(library):
    assert ["SYS", None, None] == pair(library, **STRAIGHT, NVLINKS_UP_0=4, NVLINKS_UP_1=3)


def test_a_card_without_nvlink_shares_none_that_is_known(library):
    assert ["SYS", None, None] == pair(library, NVLINKS_0=0)


def test_links_of_which_none_is_up_are_none(library):
    code = "[nvml.inventory().gpus[0].nvlinks, nvml.inventory().gpus[0].nvlink_bytes_per_s]"
    assert [[0, None], ["SYS", 0, False]] == [ask(code, library, {"NVLINKS_UP": 0}), pair(library, NVLINKS_UP_0=0)]


@pytest.mark.parametrize(("stub", "told"), [(STRAIGHT, [18, False]), ({}, [None, None])])
@pytest.mark.parametrize("untold", [{"DeviceGetNvLinkRemoteDeviceType": 13}, {"NVLINK_KIND": 255}, {"NVLINK_KIND": -1}])
def test_where_it_is_not_told_what_a_link_ends_at_only_a_card_of_ours_is_known(
    library, stub: dict[str, object], told: list[Any], untold: dict[str, object]
):
    assert told == pair(library, **stub, **untold)[1:]


def test_links_to_a_card_at_a_place_that_is_no_text_are_not_known(library):
    assert ["SYS", None, None] == pair(library, **STRAIGHT, BUS_1="\udcff")


def test_each_two_of_the_cards_that_the_mask_leaves_are_told_in_bus_order(library):
    code = "[[[pair.first, pair.second] for pair in nvml.inventory({'CUDA_VISIBLE_DEVICES': mask} if mask else {}).topology] for mask in (None, '2,0', '1')]"
    assert [[[CARD, OTHER], [CARD, THIRD], [OTHER, THIRD]], [[CARD, THIRD]], []] == ask(code, library, {"CARDS": 3})


def test_a_slice_has_its_card_s_clocks_and_no_way_to_others(library):
    code = "found = nvml.inventory()\n[(gpu.default_sm_clock_mhz, gpu.max_memory_clock_mhz, gpu.nvlinks) for gpu in found.gpus] + [found.topology]"
    assert [[1900, 3211, None], []] == ask(code, library, {"CARDS": 2, "MIG_0": 2})


# ---------------------------------------------------------------- which cards are ours

TWO = {"CARDS": 2, "USED_MIB_0": 1024, "USED_MIB_1": 9216}
UNLIKE = {**TWO, "NAME_0": "NVIDIA T4"}
USED = "{device: values['memory_used_bytes'] for device, values in read(reader()).items()}"
LISTED = "[[gpu.uuid for gpu in nvml.devices()[0]], nvml.devices()[1]]"


@pytest.mark.parametrize("mask", ["1", OTHER, OTHER[:12], "1,0x"])
def test_only_the_card_that_the_mask_names_is_read(library, mask: str):
    assert {OTHER: 9 * GIB} == ask(USED, library, TWO, CUDA_VISIBLE_DEVICES=mask)


def test_an_index_among_cards_that_differ_counts_by_bus_if_cuda_is_told_so(library):
    assert {OTHER: 9 * GIB} == ask(USED, library, UNLIKE, CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")


@pytest.mark.parametrize("order", [{}, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}])
def test_an_index_among_cards_that_differ_is_not_guessed_at(library, order: dict[str, str]):
    gpus, reason = ask(LISTED, library, UNLIKE, CUDA_VISIBLE_DEVICES="1", **order)
    assert ([], True) == (gpus, reason.endswith("set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name cards by UUID"))


@pytest.mark.parametrize("mask", [OTHER, "1,0"])
def test_cards_that_differ_are_no_question_by_uuid_or_all_together(library, mask: str):
    gpus, reason = ask(LISTED, library, UNLIKE, CUDA_VISIBLE_DEVICES=mask)
    assert ([OTHER, *([CARD] if mask == "1,0" else [])], None) == (gpus, reason)


def test_an_empty_mask_shows_nothing(library):
    assert [[], "CUDA_VISIBLE_DEVICES='' lets no card through"] == ask(LISTED, library, TWO, CUDA_VISIBLE_DEVICES="")


def test_a_reader_follows_the_uuid_not_the_place_in_the_list(library):
    code = "gpu = Gpu(0, 'renumbered', '" + OTHER + "', None, None)\n{d: v['memory_used_bytes'] for d, v in read(reader([gpu])).items()}"
    assert {OTHER: 9 * GIB} == ask(code, library, TWO)


def test_a_card_whose_uuid_is_not_found_is_found_where_it_sits(library):
    told = values(library, "read(reader())", OTHER, {"CUDA_VISIBLE_DEVICES": "1"}, **TWO, DeviceGetHandleByUUID=6)
    assert 9 * GIB == told["memory_used_bytes"]


# ---------------------------------------------------------------- MIG


def test_a_card_in_mig_mode_is_its_first_slice(library):
    code = "[[(gpu.uuid, gpu.name, gpu.memory_bytes, gpu.mig) for gpu in nvml.devices()[0]], nvml.devices()[1]]"
    assert [[[SLICE, "NVIDIA H200 MIG 1g.18gb", 143771 * MIB // 8, "slice"]], None] == ask(code, library, {"CARDS": 2, "MIG_0": 2})


@pytest.mark.parametrize("mask", [SECOND_SLICE, f"{SECOND_SLICE},1", f"1,{SECOND_SLICE}"])
def test_a_slice_that_the_mask_names_is_the_only_one(library, mask: str):
    assert [[SECOND_SLICE], None] == ask(LISTED, library, {"CARDS": 2, "MIG_0": 2}, CUDA_VISIBLE_DEVICES=mask)


def test_a_card_in_mig_mode_without_slices_cannot_be_used(library):
    assert [[OTHER], None] == ask(LISTED, library, {"CARDS": 2, "MIG_0": 0})


def test_a_slice_tells_what_it_has_and_why_not_the_rest(library):
    told = values(library, card=SLICE, MIG_0=2, PROCESSES="7:1048576")
    assert {"memory_used_bytes": GIB, "sm_active_share": 0.31, "foreign_processes": 1.0} == {
        name: told[name] for name in ("memory_used_bytes", "sm_active_share", "foreign_processes")
    }
    refused = ("kernel_busy_share", "memory_busy_share", "power_w", "energy_j", "nvlink_tx_bytes")
    assert dict.fromkeys(refused, "not supported (MIG)") == {name: told[name] for name in refused}


def test_a_slice_shares_its_card_s_clocks_and_heat(library):
    told = values(library, card=SLICE, MIG_0=2, SM_CLOCK=1200, TEMPERATURE=70, THROTTLE=0x40)
    assert (1200.0, 70.0, 1.0) == (told["sm_clock_mhz"], told["temperature_c"], told["throttle_hardware_thermal"])


def test_a_whole_card_in_mig_mode_says_that_mig_is_why(library):
    code = "read(reader([Gpu(0, 'H200', '" + CARD + "', None, None, mig='enabled')]))"
    told = values(library, code, MIG_0=2)
    assert ("not supported (MIG)", GIB) == (told["kernel_busy_share"], told["memory_used_bytes"])


# ---------------------------------------------------------------- counters


def test_every_counter_is_read_in_the_unit_of_its_name(library):
    told = values(library, PROCESSES="41:1048576,42:2097152,43:7", code="read(reader(ours=lambda pid: pid in (41, 42)))", THROTTLE=0x4)
    assert {
        "kernel_busy_share": 0.87,
        "memory_busy_share": 0.4,
        "sm_active_share": 0.73,
        "tensor_active_share": 0.255,
        "memory_used_bytes": GIB,
        "memory_reserved_bytes": 512 * MIB,
        "power_w": 412.345,
        "energy_j": 9000000.123,
        "sm_clock_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "default_sm_clock_mhz": 1900.0,
        "temperature_c": 61.0,
        "pcie_generation": 5.0,
        "pcie_width": 16.0,
        "pcie_tx_bytes_per_s": 2.0 * MIB,
        "pcie_rx_bytes_per_s": 3.5 * MIB,
        "nvlink_tx_bytes": 3000.0 * 1024,
        "nvlink_rx_bytes": 5000.0 * 1024,
        "process_memory_bytes": 3.0 * MIB,
        "foreign_processes": 1.0,
        "gpu_lost": 0.0,
        **{f"throttle_{word}": float(word == "power_cap") for word in THROTTLE_WORDS},
    } == pytest.approx(told)


@pytest.mark.parametrize("code", [3, 13, 999])
def test_one_counter_that_is_refused_takes_no_other_with_it(library, code: int):
    told = values(library, DeviceGetUtilizationRates=code)
    words = {3: "not supported", 13: "the installed driver's library has no such function", 999: "unknown error of the driver"}
    assert (words[code], 412.345) == (told["kernel_busy_share"], told["power_w"])


def test_a_card_that_is_really_idle_is_at_zero(library):
    assert 0.0 == values(library, BUSY=0)["kernel_busy_share"]


AFTERWARDS = """
watching = reader()
before = read(watching)
del os.environ["NVML_STUB_DeviceGetPowerUsage"]
[before[device]["power_w"] for device in before] + [told["power_w"] for told in read(watching).values()]
"""


@pytest.mark.parametrize(("code", "later"), [(3, "not supported"), (999, 412.345)])
def test_only_a_refusal_for_good_is_not_asked_about_again(library, code: int, later: object):
    assert later == ask(AFTERWARDS, library, {"DeviceGetPowerUsage": code})[1]


def test_used_memory_is_told_without_the_driver_s_reserve(library):
    told = values(library)
    assert (1024 * MIB, 512 * MIB, False) == (told["memory_used_bytes"], told["memory_reserved_bytes"], "memory_used_with_reserved_bytes" in told)


@pytest.mark.parametrize("define", ["NO_MEMORY_V2", None])
def test_memory_with_the_reserve_in_it_has_a_name_of_its_own(tmp_path, library, define: str | None):
    old = compile_stub(tmp_path, define) if define else library
    told = values(old, **({} if define else {"DeviceGetMemoryInfo_v2": 13}))
    assert 1536 * MIB == told["memory_used_with_reserved_bytes"]
    assert "the driver tells used and reserved memory in one figure only (memory info v1)" == told["memory_used_bytes"]


def test_energy_without_a_counter_leaves_the_power(library):
    told = values(library, DeviceGetTotalEnergyConsumption=3)
    assert ("not supported", 412.345) == (told["energy_j"], told["power_w"])


def test_neither_energy_nor_power_is_two_reasons(library):
    told = values(library, DeviceGetTotalEnergyConsumption=3, DeviceGetPowerUsage=3)
    assert ("not supported", "not supported") == (told["energy_j"], told["power_w"])


def test_an_old_driver_names_its_throttle_reasons_otherwise(tmp_path):
    assert 1.0 == values(compile_stub(tmp_path, "NO_EVENT_REASONS"), THROTTLE=0x80)["throttle_power_brake"]


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ("idle",)),
        (0x48, ("hardware_slowdown", "hardware_thermal")),
        (0x1FF, THROTTLE_WORDS[:-1]),
        (0x8000, ("other",)),
    ],
)
def test_throttle_reasons_become_words(bits: int, words: tuple[str, ...]):
    assert set(words) == set(throttle_words(bits))


def test_a_card_without_performance_monitoring_tells_its_pcie_traffic_nevertheless(library):
    told = values(library, GPM=0)
    assert ("not supported", "not supported", 2500e3, 125000e3) == tuple(
        told[name] for name in ("sm_active_share", "tensor_active_share", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
    )


def test_one_monitored_figure_that_is_refused_leaves_the_other(library):
    told = values(library, TENSOR_CODE=3)
    assert (0.73, "not supported") == (told["sm_active_share"], told["tensor_active_share"])


def test_monitored_figures_need_two_looks(library):
    assert "sm_active_share" not in values(library, "read(reader(), times=1)")


def test_a_look_at_once_after_another_is_none(library):
    assert "sm_active_share" not in values(library, "read(reader(clock=lambda: 5))")


def test_a_gap_between_rounds_is_no_average(library):
    code = "moments = iter([0, 0, 10**8, 10**8, 10**11, 10**11])\nwatching = reader(clock=lambda: next(moments))\n[read(watching, 1) for _ in 'abc']"
    assert [False, True, False] == ["sm_active_share" in told[CARD] for told in ask(code, library)]


def test_a_card_without_nvlink_says_so(library):
    assert "not supported" == values(library, NVLINK_CODE=3)["nvlink_tx_bytes"]


@pytest.mark.parametrize(("update_us", "period_s"), [(200000, 0.1), (20000, 1 / 12), (2000000, 0.5)])
def test_a_card_is_sampled_twice_an_update_within_bounds(library, update_us: int, period_s: float):
    assert pytest.approx(period_s) == ask("reader().period_s", library, {"UPDATE_US": update_us})


def test_a_card_that_dates_no_samples_is_sampled_at_the_usual_rate(library):
    assert pytest.approx(1 / 12) == ask("reader().period_s", library, {"DeviceGetSamples": 3})


def test_slow_questions_go_to_one_card_at_a_time(library):
    code = "watching = reader(clock=lambda: 5)\n[[device for device, told in read(watching, 1).items() if 'temperature_c' in told] for _ in range(3)]"
    assert [[CARD], [OTHER], []] == ask(code, library, TWO)


# ---------------------------------------------------------------- processes


def processes(library: Path, listed: str, *, nested: bool = False) -> tuple[Any, Any]:
    told = values(library, f"read(reader(ours=lambda pid: pid == 41, nested={nested}))", PROCESSES=listed)
    return told["process_memory_bytes"], told["foreign_processes"]


def test_the_memory_of_our_process_is_told_apart_from_that_of_others(library):
    assert (1048576.0, 1.0) == processes(library, "41:1048576,99:5")


def test_memory_that_the_driver_does_not_tell_is_null(library):
    assert ("the driver does not tell a process's memory", 0.0) == processes(library, "41:none")


@pytest.mark.parametrize(("listed", "foreign"), [("", 0.0), ("1:1048576", 1.0)])
def test_a_process_of_ours_that_is_not_listed_has_no_memory_figure(library, listed: str, foreign: float):
    assert ("none of our processes is in the card's list", foreign) == processes(library, listed)


@pytest.mark.parametrize("listed", ["", "1:1048576"])
def test_in_a_container_with_ids_of_its_own_nothing_is_concluded_from_strange_ids(library, listed: str):
    reason = "the driver lists processes by the host's ids, which mean nothing inside this container"
    assert (reason, reason) == processes(library, listed, nested=True)


def test_a_process_of_ours_in_the_list_shows_that_ids_can_be_compared(library):
    assert (7.0, 1.0) == processes(library, "41:7,99:5", nested=True)


def test_an_unknown_namespace_counts_as_one_of_its_own(tmp_path):
    assert (True, True) == (nested(tmp_path), nested(tmp_path / "missing"))


# ---------------------------------------------------------------- lost cards

LOSING = """
watching = reader()
before = read(watching)
os.environ["NVML_STUB_LOST"] = "1"
[before, read(watching), read(watching, 1)]
"""


def test_a_card_that_is_lost_on_the_way_has_no_values_and_takes_no_other_with_it(library):
    before, after, later = ask(LOSING, library, TWO)
    assert 9 * GIB == before[OTHER]["memory_used_bytes"]
    assert 1.0 == after[OTHER].pop("gpu_lost")
    assert {"GPU is lost: it no longer answers"} == set(after[OTHER].values())
    assert set(before[OTHER]) - {"gpu_lost"} == set(after[OTHER])
    assert (GIB, 0.87) == (later[CARD]["memory_used_bytes"], later[CARD]["kernel_busy_share"])


def test_a_card_that_was_lost_before_is_told_as_lost(library):
    code = "gpus = nvml.devices()[0]\nos.environ['NVML_STUB_LOST'] = '0'\nread(reader(gpus))"
    told = values(library, code)
    assert (1.0, "GPU is lost: it no longer answers") == (told["gpu_lost"], told["power_w"])


def test_a_card_that_is_not_there_any_more_is_a_reason(library):
    told = values(library, "read(reader([Gpu(0, 'gone', 'GPU-gone', None, None)]))", "GPU-gone")
    assert {"not found"} == set(told.values())


def test_a_reader_without_a_driver_tells_why_and_raises_nothing(library):
    told = values(library, f"watching = reader([Gpu(0, 'H200', '{CARD}', None, None)])\nread(watching)", Init=9)
    assert {"NVML could not be started: the NVIDIA driver is not loaded"} == set(told.values())


def test_a_closed_reader_can_be_closed_again(library):
    assert ask("watching = reader()\nread(watching)\nwatching.close()\nwatching.close()\nTrue", library)


def test_nvml_is_given_back_once_for_each_start(library):
    code = "import pynvml\nwatching = reader()\nwatching.close()\npynvml._nvmlLib_refcount"
    assert 0 == ask(code, library)
