"""Two figures belong together only where machine and software are the same; what changes from minute to minute is no part of that."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from harness.__main__ import _fingerprint
from harness.model import Machine
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
]


CARD_CHANGES = [{"pci_id": "00000000:17:00.0"}, {"vbios": "96"}, {"power_limit_w": 300.0}, {"ecc": False}, {"mig": "enabled"}, {"compute_mode": "exclusive_process"}, {"cuda_cores": 6912}]


@pytest.mark.parametrize("change", CARD_CHANGES, ids=lambda change: next(iter(change)))
def test_a_card_set_otherwise_is_another_fingerprint(change):
    assert _fingerprint(make_machine(gpus=(make_gpu(),))) != _fingerprint(make_machine(gpus=(make_gpu(**change),)))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_another_machine_or_other_software_is_another_fingerprint(change):
    assert _fingerprint(make_machine()) != _fingerprint(replace(make_machine(), **change))


def test_the_name_in_reports_is_no_part_of_identity():
    assert _fingerprint(make_machine()) == _fingerprint(replace(make_machine(), slug="renamed"))


def test_a_machine_holds_nothing_momentary():
    momentary = ("load", "free", "clock", "temperature", "used", "usage")
    assert [] == [item.name for item in fields(Machine) for word in momentary if word in item.name]
