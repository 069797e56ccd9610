"""Every call that is made to NVML fails with every code that NVML knows, from the first call on or later, for one card of two, or gives garbage.

Nothing may be raised, what cannot be read is null with a reason, and the other card's values stay as they are. Through the real binding, against the
stand-in for NVIDIA's library; one process goes through all of it, and each test reads its part of what that found.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.measure.telemetry.beside import _session
from harness.measure.telemetry.provider import BOUNDS, THROTTLE_WORDS, sound
from tests.measure.nvml_stub import CARD, OTHER, ROOT, SLICE, ask, compile_stub

THROTTLING = [f"throttle_{word}" for word in THROTTLE_WORDS]
MONITORED = ["sm_active_share", "tensor_active_share"]
TRAFFIC = ["pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"]
LINK = ["pcie_generation", "pcie_width"]
OLD_THROTTLING = {"DeviceGetCurrentClocksEventReasons": 13}

CARD_QUESTIONS: dict[str, tuple[list[str], dict[str, object]]] = {
    "DeviceGetUtilizationRates": (["kernel_busy_share", "memory_busy_share"], {}),
    "DeviceGetMemoryInfo_v2": (["memory_used_bytes", "memory_reserved_bytes"], {}),
    "DeviceGetMemoryInfo": (["memory_used_bytes", "memory_reserved_bytes"], {"DeviceGetMemoryInfo_v2": 13}),
    "DeviceGetPowerUsage": (["power_w"], {}),
    "DeviceGetTotalEnergyConsumption": (["energy_j"], {}),
    "DeviceGetClockInfo": (["sm_clock_mhz", "memory_clock_mhz"], {}),
    "DeviceGetDefaultApplicationsClock": (["default_sm_clock_mhz"], {}),
    "DeviceGetCurrentClocksEventReasons": (THROTTLING, {}),
    "DeviceGetCurrentClocksThrottleReasons": (THROTTLING, OLD_THROTTLING),
    "DeviceGetTemperature": (["temperature_c"], {"DeviceGetTemperatureV": 13}),
    "DeviceGetTemperatureV": (["temperature_c"], {"DeviceGetTemperature": 13}),
    "DeviceGetComputeRunningProcesses": (["process_memory_bytes", "foreign_processes"], {}),
    "DeviceGetCurrPcieLinkGeneration": (LINK, {}),
    "DeviceGetCurrPcieLinkWidth": (LINK, {}),
    "DeviceGetPcieThroughput": (TRAFFIC, {"GPM": 0}),
    "DeviceGetFieldValues": (["nvlink_tx_bytes", "nvlink_rx_bytes"], {}),
    "GpmSampleGet": (MONITORED, {}),
    "GpmMetricsGet": (MONITORED, {}),
    "DeviceGetSamples": ([], {}),
}
"""A question about a card -> the samples that have no value while it is refused, and the settings under which it is asked at all."""

AT_FIRST: dict[str, tuple[list[str], dict[str, object]]] = {
    "GpmQueryDeviceSupport": (MONITORED, {}),
    "DeviceGetHandleByPciBusId": (["*"], {"DeviceGetHandleByUUID": 6}),
    "DeviceGetDeviceHandleFromMigDeviceHandle": (["*"], {"MIG_0": 2}),
    "DeviceGetGpuInstanceId": (["*"], {"MIG_0": 2}),
}
"""Questions that are put when a card is connected to, or looked at for the first time, and the samples that are null then; * is all of them."""

OF_A_SLICE: dict[str, tuple[list[str], dict[str, object]]] = {"GpmMigSampleGet": (MONITORED, {"MIG_0": 2})}

RULES = {
    # Older drivers know the question by another name, which is tried where this one is not known.
    "ANSWERED_BY_ANOTHER": {"DeviceGetCurrentClocksEventReasons": [13]},
    # Where it is refused, the older question is put instead, and its answer is worth having.
    "ASKED_AGAIN": ["DeviceGetMemoryInfo_v2"],
    "TOLD_WITH_A_VALUE_ONLY": "memory_used_with_reserved_bytes",
    # Who does not monitor itself for good is asked for its traffic otherwise.
    "TRAFFIC": TRAFFIC,
}

OF_THE_LIBRARY = ("Init", "Shutdown", "DeviceGetHandleByUUID", "GpmSampleAlloc", "GpmSampleFree")
"""They concern all cards alike."""

IDENTITY: dict[str, list[str] | None] = {
    "DeviceGetHandleByIndex": None,
    "DeviceGetName": None,
    "DeviceGetUUID": None,
    "DeviceGetMemoryInfo": ["memory_bytes"],
    "DeviceGetCudaComputeCapability": ["compute_capability"],
    "DeviceGetPciInfo": ["pci_id"],
    "DeviceGetVbiosVersion": ["vbios"],
    "DeviceGetPowerManagementLimit": ["power_limit_w"],
    "DeviceGetEccMode": ["ecc"],
    "DeviceGetMigMode": ["mig"],
    "DeviceGetComputeMode": ["compute_mode"],
    "DeviceGetNumGpuCores": ["cuda_cores"],
    "DeviceGetDefaultApplicationsClock": ["default_sm_clock_mhz", "default_memory_clock_mhz"],
    "DeviceGetMaxClockInfo": ["max_sm_clock_mhz", "max_memory_clock_mhz"],
    "DeviceGetNvLinkState": ["nvlinks", "nvlink_bytes_per_s"],
    "DeviceGetFieldValues": ["nvlink_bytes_per_s"],
}
"""A question about what a card is -> the fields that are null without its answer; None: without it the card cannot be named, and is left out."""

OF_PAIRS: dict[str, tuple[list[str], dict[str, object]]] = {
    "DeviceGetTopologyCommonAncestor": (["ancestor"], {}),
    "DeviceGetNvLinkState": (["nvlinks", "switched"], {}),
    "DeviceGetNvLinkRemoteDeviceType": (["nvlinks", "switched"], {}),
    "DeviceGetNvLinkRemotePciInfo": (["nvlinks", "switched"], {"NVLINK_TO_0": 1, "NVLINK_TO_1": 0}),
    "DeviceGetPciInfo": (["nvlinks", "switched"], {"NVLINK_TO_0": 1, "NVLINK_TO_1": 0}),
}
"""A question about how a card hangs together with others -> what is null of each pair with it, and the settings under which it is asked."""

OF_THE_LIST = ("DeviceGetCount", "SystemGetDriverVersion", "SystemGetCudaDriverVersion")
OF_SLICES = ("DeviceGetMaxMigDeviceCount", "DeviceGetMigDeviceHandleByIndex")

PRELUDE = f"""
import math
import pynvml
CARD, OTHER, SLICE = {CARD!r}, {OTHER!r}, {SLICE!r}
CODES = sorted(code for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_"))
LOST, FOR_GOOD = 15, (3, 13)

def put(settings):
    for name, value in settings.items():
        os.environ["NVML_STUB_" + name] = str(value)

def take(settings):
    for name in settings:
        os.environ.pop("NVML_STUB_" + name, None)

def cards(*masks):
    return [gpu for mask in masks for gpu in nvml.devices({{"CUDA_VISIBLE_DEVICES": mask}})[0]]

def watch(gpus):
    return reader(gpus, clock=itertools.count(0, 4 * 10**8).__next__)

def states(gpus, settings, later):
    watching = watch(gpus) if later else None
    before = read(watching, 3) if later else None
    put(settings)
    try:
        watching = watching or watch(gpus)
        during = read(watching, 3)
        period_s = watching.period_s
    finally:
        take(settings)
    after = read(watching, 3)
    watching.close()
    return before, during, after, period_s

def odd(told):
    for name, value in told.items():
        if isinstance(value, str):
            if not value.strip():
                yield name + " is null without a reason"
        elif not math.isfinite(value):
            yield f"{{name}} is {{value}}"

def differing(told, usual):
    return [name for name in usual if told.get(name, "not told") != usual[name]]
"""

ASKED = """
found = {}
for function, (names, base) in QUESTIONS.items():
    put(base)
    gpus = cards(SLICE if "MIG_0" in base else CARD, OTHER)
    who = gpus[0].uuid
    usual = read(watch(gpus), 3)
    everything = set(usual[who])
    complaints = found.setdefault(function, [])
    for code in CODES:
        for later in (False, True):
            where = f"code {code}, {'later' if later else 'at first'}: "
            try:
                before, during, after, period_s = states(gpus, {function + "_0": code}, later)
            except Exception as error:
                complaints.append(where + repr(error))
                continue
            answered = code in ANSWERED_BY_ANOTHER.get(function, ())
            heard = not answered and (not later or not ONLY_AT_FIRST)
            nulls = everything - {TOLD_WITH_A_VALUE_ONLY} if "*" in names or (code == LOST and names) else set(names)
            told = during[who]
            complaints += [where + text for text in odd(told)]
            if not 1 / 12 - 1e-9 <= period_s <= 0.5:
                complaints.append(f"{where}sampled every {period_s} s")
            if differing(during[OTHER], usual[OTHER]) or differing(after[OTHER], usual[OTHER]):
                complaints.append(where + "the other card was touched")
            for name in nulls if heard else ():
                if name == "gpu_lost" and code == LOST:
                    if told[name] != 1.0:
                        complaints.append(where + "not told as lost")
                elif name in told and not isinstance(told[name], str):
                    complaints.append(f"{where}{name} is {told[name]}, not null")
                elif name not in told:
                    complaints.append(f"{where}{name} is not told")
            lost_word = "GPU is lost"
            if code == LOST and heard and names and not all(lost_word in str(value) for name, value in told.items() if name != "gpu_lost"):
                complaints.append(where + "lost without a word")
            again = differing(after[who], usual[who])
            if heard and ("*" in names or (code == LOST and names)):
                if after[who].get("power_w") != told["power_w"]:
                    complaints.append(where + "came back from nowhere")
            elif heard and code in FOR_GOOD and function not in ASKED_AGAIN:
                if not set(names) <= set(again):
                    complaints.append(f"{where}asked again after a refusal for good")
                if set(again) - {*names, *TRAFFIC, TOLD_WITH_A_VALUE_ONLY}:
                    complaints.append(f"{where}it took {again} with it")
            elif again:
                complaints.append(f"{where}{again} did not come back")
    take(base)
found
"""


def program(code: str, **names: object) -> str:
    given = "\n".join(f"{name} = {value!r}" for name, value in names.items())
    return f"{PRELUDE}\n{given}\n{code}"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="module")
def asked(library) -> dict[str, list[str]]:
    """What is wrong with the answers when a question about a card is refused, by question."""
    return ask(program(ASKED, QUESTIONS=CARD_QUESTIONS | OF_A_SLICE, ONLY_AT_FIRST=False, **RULES), library, {"CARDS": 2})


@pytest.fixture(scope="module")
def connected(library) -> dict[str, list[str]]:
    """The same for the questions that are put only once."""
    return ask(program(ASKED, QUESTIONS=AT_FIRST, ONLY_AT_FIRST=True, **RULES), library, {"CARDS": 2})


# ---------------------------------------------------------------- every call, every code


def test_every_call_that_is_made_to_the_library_is_in_one_of_these_lists():
    source = "".join(path.read_text() for path in sorted((ROOT / "harness/measure/telemetry/nvml").glob("*.py")) if path.name != "setup.py")
    called = {re.sub(r"_v\d$", "", name) for name in re.findall(r'"nvml([A-Z]\w+)"', source)}
    listed = {*CARD_QUESTIONS, *AT_FIRST, *OF_A_SLICE, *OF_THE_LIBRARY, *IDENTITY, *OF_PAIRS, *OF_THE_LIST, *OF_SLICES} - {"DeviceGetMemoryInfo_v2"}
    assert called == listed


@pytest.mark.parametrize("function", [*CARD_QUESTIONS, *OF_A_SLICE])
def test_a_question_that_is_refused_at_any_time_is_null_with_a_reason_and_touches_nothing_else(asked, function: str):
    assert [] == asked[function]


@pytest.mark.parametrize("function", AT_FIRST)
def test_a_card_that_cannot_be_connected_to_is_null_with_a_reason_and_touches_no_other(connected, function: str):
    assert [] == connected[function]


LIBRARY = """
found = {}
gpus = cards(CARD, OTHER)
for function in FUNCTIONS:
    complaints = found.setdefault(function, [])
    for code in CODES:
        for later in (False, True):
            where = f"code {code}, {'later' if later else 'at first'}: "
            try:
                before, during, after, period_s = states(gpus, {function: code}, later)
            except Exception as error:
                complaints.append(where + repr(error))
                continue
            for gpu in gpus:
                complaints += [where + text for text in odd(during[gpu.uuid])]
            if function == "Init" and not later and any(not isinstance(during[gpu.uuid]["power_w"], str) for gpu in gpus):
                complaints.append(where + "a library that was not started told something")
            if later and differing(during[CARD], before[CARD]):
                complaints.append(where + "a call that was not due changed something")
found
"""


@pytest.fixture(scope="module")
def of_the_library(library) -> dict[str, list[str]]:
    return ask(program(LIBRARY, FUNCTIONS=OF_THE_LIBRARY), library, {"CARDS": 2})


@pytest.mark.parametrize("function", OF_THE_LIBRARY)
def test_a_library_that_refuses_to_work_is_a_reason_for_every_card(of_the_library, function: str):
    assert [] == of_the_library[function]


LISTED = """
found = {}
usual = {gpu.uuid: asdict(gpu) for gpu in nvml.devices({"CUDA_VISIBLE_DEVICES": CARD + "," + OTHER})[0]}
for function, fields in FUNCTIONS.items():
    complaints = found.setdefault(function, [])
    for code in CODES:
        where = f"code {code}: "
        put({function + "_0": code})
        try:
            inventory = nvml.inventory({})
        except Exception as error:
            complaints.append(where + repr(error))
            continue
        finally:
            take({function + "_0": code})
        listed = {gpu.uuid: asdict(gpu) for gpu in inventory.gpus}
        if listed.get(OTHER) != usual[OTHER]:
            complaints.append(where + "the other card was touched")
        if fields is None:
            if CARD in listed or not (inventory.reason or "").startswith("card 0 could not be read: "):
                complaints.append(f"{where}a card that cannot be named is listed, or left out without a reason: {inventory.reason}")
        elif listed.get(CARD) != {**usual[CARD], **dict.fromkeys(fields)}:
            complaints.append(f"{where}it is listed as {listed.get(CARD)}")
found
"""


@pytest.fixture(scope="module")
def listed(library) -> dict[str, list[str]]:
    return ask(program(LISTED, FUNCTIONS=IDENTITY), library, {"CARDS": 2})


@pytest.mark.parametrize("function", IDENTITY)
def test_what_a_card_is_is_null_where_it_is_refused_and_hides_no_other_card(listed, function: str):
    assert [] == listed[function]


PAIRED = """
found = {}
for function, (fields, base) in FUNCTIONS.items():
    put(base)
    usual = [asdict(pair) for pair in nvml.inventory({}).topology]
    complaints = found.setdefault(function, [f"in the first place: {pair}" for pair in usual if None in pair.values()])
    for code in CODES:
        put({function + "_0": code})
        try:
            told = [asdict(pair) for pair in nvml.inventory({}).topology]
        except Exception as error:
            complaints.append(f"code {code}: {error!r}")
            continue
        finally:
            take({function + "_0": code})
        if told != [{**pair, **dict.fromkeys(fields if pair["first"] == CARD else ())} for pair in usual]:
            complaints.append(f"code {code}: {told}")
    take(base)
found
"""


@pytest.fixture(scope="module")
def paired(library) -> dict[str, list[str]]:
    return ask(program(PAIRED, FUNCTIONS=OF_PAIRS), library, {"CARDS": 3})


@pytest.mark.parametrize("function", OF_PAIRS)
def test_how_a_card_is_connected_is_null_where_it_is_refused_and_the_others_connections_stay(paired, function: str):
    assert [] == paired[function]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("Init", "[[], True, None]"),
        ("DeviceGetCount", "[[], True, None]"),
        ("SystemGetDriverVersion", "[[CARD, OTHER], False, None]"),
        ("SystemGetCudaDriverVersion", '[[CARD, OTHER], False, "570.86.10"]'),
        ("Shutdown", '[[CARD, OTHER], False, "570.86.10"]'),
    ],
)
def test_a_list_of_cards_that_is_refused_is_a_reason(library, function: str, expected: str):
    code = f"""
odd_ones = []
for code in CODES:
    put({{{function!r}: code}})
    found = nvml.inventory({{}})
    told = [[gpu.uuid for gpu in found.gpus], bool(found.reason), found.driver]
    odd_ones += [] if told == {expected} else [[code, told]]
odd_ones
"""
    assert [] == ask(program(code), library, {"CARDS": 2})


@pytest.mark.parametrize("function", OF_SLICES)
def test_slices_that_are_refused_hide_no_whole_card(library, function: str):
    code = f"""
odd_ones = []
for code in CODES:
    put({{"{function}_0": code}})
    uuids = [gpu.uuid for gpu in nvml.inventory({{}}).gpus]
    odd_ones += [] if uuids == [OTHER] else [[code, uuids]]
odd_ones
"""
    assert [] == ask(program(code), library, {"CARDS": 2, "MIG_0": 2})


SET_UP = """
odd_ones = []
gpus = cards(CARD, OTHER)
usual = nvml.read_setup(gpus)
for function in FUNCTIONS:
    for code in CODES:
        put({function + "_0": code})
        told = nvml.read_setup(gpus)
        take({function + "_0": code})
        first, second = told.cards
        complete = set(first.told) | set(first.missing) == set(usual.cards[0].told) | set(usual.cards[0].missing)
        if second != usual.cards[1] or not complete or not all(reason.strip() for reason in first.missing.values()):
            odd_ones.append([function, code, dict(first.missing)])
odd_ones
"""


def test_how_a_card_is_set_up_is_told_as_far_as_it_is_not_refused(library):
    source = (ROOT / "harness/measure/telemetry/nvml/setup.py").read_text()
    functions = sorted({re.sub(r"_v\d$", "", name) for name in re.findall(r'"nvml(Device\w+)"', source)} | {"DeviceGetComputeRunningProcesses"})
    assert [] == ask(program(SET_UP, FUNCTIONS=functions), library, {"CARDS": 2})


# ---------------------------------------------------------------- at any moment

FALLING = """
gpus = cards(CARD, OTHER)
usual = read(watch(gpus), 4)
complaints, fell = [], []
for question in range(1, LAST + 1):
    setting = {"FALLS_OFF_0": f"0;1@{question}"}
    put(setting)
    watching = watch(gpus)
    told = read(watching, 4)
    watching.close()
    take(setting)
    fell.append(told[CARD]["gpu_lost"])
    complaints += [f"question {question}: {text}" for text in odd(told[CARD])]
    if differing(told[OTHER], usual[OTHER]):
        complaints.append(f"question {question}: the other card was touched")
    if fell[-1] and not all("GPU is lost" in str(value) for name, value in told[CARD].items() if name != "gpu_lost"):
        complaints.append(f"question {question}: a lost card told something")
[complaints, fell]
"""


def test_a_card_may_fall_off_the_bus_at_any_question(library):
    complaints, fell = ask(program(FALLING, LAST=150), library, {"CARDS": 2})
    assert [] == complaints
    # The first questions are those by which it is connected to; some of them may go unanswered. It is found out by the next at the latest.
    assert 100 > fell.count(1.0) > 40
    assert [1.0] * fell.count(1.0) + [0.0] * fell.count(0.0) == fell


# ---------------------------------------------------------------- garbage

GARBAGE: dict[str, tuple[list[str], dict[str, object]]] = {
    "BUSY": (["kernel_busy_share"], {}),
    "MEMORY_BUSY": (["memory_busy_share"], {}),
    "USED_MIB": (["memory_used_bytes"], {}),
    "RESERVED_MIB": (["memory_reserved_bytes"], {}),
    "POWER_MW": (["power_w"], {}),
    "ENERGY_MJ": (["energy_j"], {}),
    "SM_CLOCK": (["sm_clock_mhz"], {}),
    "MEMORY_CLOCK": (["memory_clock_mhz"], {}),
    "DEFAULT_SM_CLOCK": (["default_sm_clock_mhz"], {}),
    "THROTTLE": (THROTTLING, {}),
    "TEMPERATURE": (["temperature_c"], {}),
    "PCIE_GENERATION": (["pcie_generation"], {}),
    "PCIE_WIDTH": (["pcie_width"], {}),
    "PCIE_TX_KB": (["pcie_tx_bytes_per_s"], {"GPM": 0}),
    "PCIE_RX_KB": (["pcie_rx_bytes_per_s"], {"GPM": 0}),
    "NVLINK_TX_KIB": (["nvlink_tx_bytes"], {}),
    "NVLINK_RX_KIB": (["nvlink_rx_bytes"], {}),
    "NVLINK_TYPE": (["nvlink_tx_bytes", "nvlink_rx_bytes"], {}),
    "SM_ACTIVE": (["sm_active_share"], {}),
    "TENSOR_ACTIVE": (["tensor_active_share"], {}),
}
"""A value of the stand-in -> the samples that it makes, and the settings under which it is asked for."""

GARBLED = """
found = {}
for value, (names, base) in VALUES.items():
    put(base)
    gpus = cards(CARD, OTHER)
    usual = read(watch(gpus), 3)
    complaints = found.setdefault(value, [])
    for garbage in WORDS:
        for later in (False, True):
            before, during, after, period_s = states(gpus, {value + "_0": garbage}, later)
            complaints += [f"{garbage}: {text}" for text in odd(during[CARD])]
            complaints += [f"{garbage}: {name} is {during[CARD][name]}" for name in names if not isinstance(during[CARD][name], str)]
            if set(differing(during[CARD], usual[CARD])) != set(names) or differing(during[OTHER], usual[OTHER]):
                complaints.append(f"{garbage}: more was touched: {differing(during[CARD], usual[CARD])}, {differing(during[OTHER], usual[OTHER])}")
            if differing(after[CARD], usual[CARD]):
                complaints.append(f"{garbage}: {differing(after[CARD], usual[CARD])} did not come back")
    take(base)
found
"""


@pytest.fixture(scope="module")
def garbled(library) -> dict[str, list[str]]:
    return ask(program(GARBLED, VALUES=GARBAGE, WORDS=["-1"]), library, {"CARDS": 2})


@pytest.mark.parametrize("value", GARBAGE)
def test_all_bits_set_are_no_value(garbled, value: str):
    assert [] == garbled[value]


@pytest.mark.parametrize("garbage", ["nan", "inf", "-inf", "-5", "250"])
@pytest.mark.parametrize("value", ["SM_ACTIVE", "TENSOR_ACTIVE"])
def test_a_share_that_is_none_is_null(library, value: str, garbage: str):
    found = ask(program(GARBLED, VALUES={value: GARBAGE[value]}, WORDS=[garbage]), library, {"CARDS": 2})
    assert {value: []} == found


def test_more_than_the_whole_time_is_null(library):
    told = ask(program("read(watch(cards(CARD)))"), library, {"BUSY": 250, "MEMORY_BUSY": 1000})[CARD]
    assert ["the driver gave 2.5, which cannot be", "the driver gave 10, which cannot be"] == [told["kernel_busy_share"], told["memory_busy_share"]]


def test_zero_is_a_value_where_it_can_be_one(library):
    zeros = dict.fromkeys(
        ("BUSY", "MEMORY_BUSY", "USED_MIB", "RESERVED_MIB", "POWER_MW", "ENERGY_MJ", "SM_CLOCK", "MEMORY_CLOCK", "TEMPERATURE", "SM_ACTIVE"), 0
    )
    told = ask(program("read(watch(cards(CARD)))"), library, zeros)[CARD]
    names = ["kernel_busy_share", "memory_used_bytes", "power_w", "energy_j", "sm_clock_mhz", "temperature_c", "sm_active_share"]
    assert [0.0] * len(names) == [told[name] for name in names]


def test_zero_is_no_value_where_it_can_be_none(library):
    told = ask(program("read(watch(cards(CARD)))"), library, {"DEFAULT_SM_CLOCK": 0, "PCIE_GENERATION": 0, "PCIE_WIDTH": 0})[CARD]
    assert {"the driver gave 0, which cannot be"} == {told[name] for name in ("default_sm_clock_mhz", *LINK)}


def test_a_newer_driver_s_temperature_may_lie_below_zero(library):
    told = ask(program("read(watch(cards(CARD)))"), library, {"DeviceGetTemperature": 13, "TEMPERATURE": -7})[CARD]
    assert -7.0 == told["temperature_c"]


@pytest.mark.parametrize("updates_us", ["0", "-1", "1"])
def test_samples_that_are_dated_at_random_leave_a_sensible_period(library, updates_us: str):
    assert 1 / 12 - 1e-9 <= ask(program("watch(cards(CARD)).period_s"), library, {"UPDATE_US": updates_us}) <= 0.5


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"CAPABILITY_MAJOR": -1}, "compute_capability"),
        ({"CAPABILITY_MINOR": -1}, "compute_capability"),
        ({"CAPABILITY_MAJOR": 0}, "compute_capability"),
        ({"POWER_LIMIT_MW": -1}, "power_limit_w"),
        ({"POWER_LIMIT_MW": 0}, "power_limit_w"),
        ({"TOTAL_MIB": -1}, "memory_bytes"),
        ({"TOTAL_MIB": 0}, "memory_bytes"),
        ({"COMPUTE_MODE": -1}, "compute_mode"),
        ({"CUDA_CORES": -1}, "cuda_cores"),
        ({"CUDA_CORES": 0}, "cuda_cores"),
        ({"MIG_MODE": -1}, "mig"),
        ({"DEFAULT_SM_CLOCK": -1}, "default_sm_clock_mhz"),
        ({"DEFAULT_SM_CLOCK": 0}, "default_sm_clock_mhz"),
        ({"DEFAULT_MEMORY_CLOCK": -1}, "default_memory_clock_mhz"),
        ({"DEFAULT_MEMORY_CLOCK": 0}, "default_memory_clock_mhz"),
        ({"MAX_SM_CLOCK": -1}, "max_sm_clock_mhz"),
        ({"MAX_SM_CLOCK": 0}, "max_sm_clock_mhz"),
        ({"MAX_MEMORY_CLOCK": -1}, "max_memory_clock_mhz"),
        ({"MAX_MEMORY_CLOCK": 0}, "max_memory_clock_mhz"),
        ({"NVLINK_MB": -1}, "nvlink_bytes_per_s"),
        ({"NVLINK_MB": 0}, "nvlink_bytes_per_s"),
        ({"NVLINK_TYPE": -1}, "nvlink_bytes_per_s"),
        ({"NVLINK_CODE": 3}, "nvlink_bytes_per_s"),
        ({"BUS": "\udcff"}, "pci_id"),
        ({"BUS": ""}, "pci_id"),
    ],
)
def test_what_a_card_is_is_null_where_it_is_garbage(library, settings: dict[str, object], field: str):
    code = "[asdict(gpu) for gpu in nvml.inventory({}).gpus]"
    (usual, other) = ask(code, library, {"CARDS": 2})
    assert [{**usual, field: None}, other] == ask(code, library, {"CARDS": 2, **{f"{name}_0": value for name, value in settings.items()}})


LINKS = "[[gpu.nvlinks, gpu.nvlink_bytes_per_s] for gpu in nvml.inventory({}).gpus]"


@pytest.mark.parametrize("state", [-1, 2])
def test_links_in_a_state_that_is_none_are_not_counted(library, state: int):
    assert [[None, None], [18, 26562e6]] == ask(LINKS, library, {"CARDS": 2, "NVLINK_STATE_0": state})


@pytest.mark.parametrize(("code", "told"), [(2, [4, 26562e6]), (3, [4, 26562e6]), (999, [None, None])])
def test_a_link_that_cannot_be_asked_about_is_not_one_that_does_not_exist(library, code: int, told: list[object]):
    assert told == ask(LINKS, library, {"DeviceGetNvLinkState": f"0;{code}@5"})[0]


LIST = "[[gpu.uuid for gpu in nvml.inventory({}).gpus], nvml.inventory({}).reason, nvml.inventory({}).cuda]"


def test_as_many_cards_as_no_machine_has_are_not_counted_up_to(library):
    assert [[], "NVML could not list the cards: it claims to have 4294967295 of them", None] == ask(LIST, library, {"CARDS": -1})


def test_as_many_slices_as_no_card_has_are_not_counted_up_to(library):
    assert [[SLICE], None, "12.8"] == ask(LIST, library, {"MIG_0": 2, "MIG_SLOTS": -1})


def test_a_card_without_a_uuid_is_left_out_with_a_reason(library):
    assert [[OTHER], "card 0 could not be read: it tells no UUID", "12.8"] == ask(LIST, library, {"CARDS": 2, "UUID_0": ""})


def test_a_name_that_is_no_text_hides_no_other_card(library):
    uuids, reason, _ = ask(LIST, library, {"CARDS": 2, "NAME_0": "\udcff"})
    assert ([OTHER], True) == (uuids, reason.startswith("card 0 could not be read: "))


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_is_none_is_not_told(library, version: int):
    assert [[CARD], None, None] == ask(LIST, library, {"CUDA": version})


def test_a_process_id_that_no_process_can_have_is_a_stranger(library):
    assert None is _session(2**32 - 1)
    told = ask(program("read(watch(cards(CARD)))"), library, {"PROCESSES": "4294967295:1048576"})[CARD]
    assert (1.0, "none of our processes is in the card's list") == (told["foreign_processes"], told["process_memory_bytes"])


@pytest.mark.parametrize("ending", BOUNDS)
def test_the_bounds_themselves_are_values_and_what_lies_beyond_them_is_none(ending: str):
    least, most = BOUNDS[ending]
    name = f"some{ending}" if ending.startswith("_") else ending
    assert (least, min(1.0, most) if ending == "_share" else most) == (sound(name, least)[0], sound(name, most)[0])
    assert [None, None] == [sound(name, value)[0] for value in (least - 1e-3 * max(1.0, abs(least)), most * 1.001)]


# ---------------------------------------------------------------- over time


def test_a_counter_that_starts_anew_is_told_as_it_is(library):
    code = "watching = watch(cards(CARD))\n[read(watching, 1)[CARD]['energy_j'] for _ in range(5)]"
    assert [5.0, 5.25, 5.5, 0.0, 0.25] == ask(program(code), library, {"ENERGY_MJ": "5000+250;0+250@4"})


def test_a_clock_that_drops_after_some_time_is_told_from_then_on(library):
    # It is asked for every other time.
    code = "watching = watch(cards(CARD))\n[read(watching, 2)[CARD]['sm_clock_mhz'] for _ in range(5)]"
    assert [1980.0, 1980.0, 345.0, 345.0, 1980.0] == ask(program(code), library, {"SM_CLOCK": "1980;345@3;1980@5"})
