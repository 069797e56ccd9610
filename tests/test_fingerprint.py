"""Two figures belong together only where machine and software are the same; what changes from minute to minute is no part of that."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pytest

from harness.__main__ import _fingerprint
from harness.measure.machine import TOLD_LATER, as_told
from harness.model import BENCHMARK_VERSION, CardPair, Machine, stable_id
from tests.plan.builders import make_gpu, make_machine

CHANGES = [
    {"cpu_model": "Another CPU"},
    {"cores": 4},
    {"memory_bytes": 2**35},
    {"gpus": (make_gpu(),)},
    {"kernel": "7"},
    {"python": "3.12"},
    {"packages": {"tensorflow": "2.20.0"}},
    {"gpu_driver": "570.86.10"},
    {"cuda_driver": "12.8"},
    {"cpu_governor": "powersave"},
    {"cpu_sockets": 2},
    {"cpu_physical_cores": 64},
    {"topology": (CardPair("GPU-1", "GPU-2", "NODE", 18, True),)},
]


TOLD_OF_A_CARD = {
    "default_sm_clock_mhz": 1095,
    "default_memory_clock_mhz": 2619,
    "max_sm_clock_mhz": 1980,
    "max_memory_clock_mhz": 2619,
    "nvlinks": 18,
    "nvlink_bytes_per_s": 26562e6,
}
CARD_CHANGES = [
    {"pci_id": "00000000:17:00.0"},
    {"vbios": "96"},
    {"power_limit_w": 300.0},
    {"ecc": False},
    {"mig": "enabled"},
    {"compute_mode": "exclusive_process"},
    {"cuda_cores": 6912},
    *({name: value} for name, value in TOLD_OF_A_CARD.items()),
]
LINKED = CardPair("GPU-1", "GPU-2", "NODE", 18, True)


@pytest.mark.parametrize("change", CARD_CHANGES, ids=lambda change: next(iter(change)))
def test_a_card_set_otherwise_is_another_fingerprint(change):
    assert _fingerprint(make_machine(gpus=(make_gpu(),))) != _fingerprint(make_machine(gpus=(make_gpu(**change),)))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_another_machine_or_other_software_is_another_fingerprint(change):
    assert _fingerprint(make_machine()) != _fingerprint(replace(make_machine(), **change))


def test_the_name_in_reports_is_no_part_of_identity():
    assert _fingerprint(make_machine()) == _fingerprint(replace(make_machine(), slug="renamed"))


def two_cards(topology: tuple[CardPair, ...] = (LINKED,), **told: object) -> Machine:
    return make_machine(gpus=tuple(make_gpu(uuid=pair, **{**TOLD_OF_A_CARD, **told}) for pair in ("GPU-1", "GPU-2")), topology=topology)


UNKNOWN = [
    *({name: None} for name in TOLD_OF_A_CARD),
    dict.fromkeys(TOLD_OF_A_CARD),
    {"topology": ()},
    {"topology": (CardPair("GPU-1", "GPU-2", None, 18, True),)},
    {"topology": (CardPair("GPU-1", "GPU-2", "NODE"),)},
    {"topology": (), **dict.fromkeys(TOLD_OF_A_CARD)},
]
OTHERWISE = [
    *({name: value + 1} for name, value in TOLD_OF_A_CARD.items()),
    {"topology": (replace(LINKED, ancestor="SYS"),)},
    {"topology": (replace(LINKED, nvlinks=17),)},
    {"topology": (replace(LINKED, switched=False),)},
]


def test_everything_that_cards_tell_since_the_first_bundles_is_named():
    assert set(TOLD_LATER) == set(TOLD_OF_A_CARD)


def test_a_machine_whose_cards_did_not_tell_more_has_the_fingerprint_of_the_first_bundles():
    cards = two_cards((), **dict.fromkeys(TOLD_OF_A_CARD))
    told = asdict(cards)
    del told["topology"]
    for gpu in told["gpus"]:
        for name in TOLD_LATER:
            del gpu[name]
    assert stable_id("machine", {**told, "slug": "", "benchmark": BENCHMARK_VERSION}) == _fingerprint(cards)


@pytest.mark.parametrize("unknown", UNKNOWN, ids=str)
def test_what_was_not_known_then_makes_no_other_machine(unknown):
    assert _fingerprint(two_cards(**unknown)) == _fingerprint(as_told(two_cards(), two_cards(**unknown)))


@pytest.mark.parametrize("unknown", [case for case in UNKNOWN if case.get("topology") != ()], ids=str)
def test_what_is_not_known_now_makes_no_other_machine(unknown):
    assert _fingerprint(two_cards()) == _fingerprint(as_told(two_cards(**unknown), two_cards()))


@pytest.mark.parametrize("change", OTHERWISE, ids=str)
def test_what_was_known_then_and_is_otherwise_now_makes_another_machine(change):
    assert _fingerprint(two_cards()) != _fingerprint(as_told(two_cards(**change), two_cards()))


def test_another_card_in_its_place_makes_another_machine():
    then = make_machine(gpus=(make_gpu(uuid="GPU-1"),))
    assert _fingerprint(then) != _fingerprint(as_told(make_machine(gpus=(make_gpu(uuid="GPU-2"),)), then))


def test_a_machine_holds_nothing_momentary():
    momentary = ("load", "free", "clock", "temperature", "used", "usage")
    assert [] == [item.name for item in fields(Machine) for word in momentary if word in item.name]
