"""What the checks say of a card, at the values where it changes."""

from __future__ import annotations

import pytest

from harness.doctor import check_cards as check
from harness.doctor.checks import CARD_CHECKS
from harness.doctor.facts import BesideSmi, Cards
from harness.doctor.findings import Level
from tests.doctor.builders import make_card, make_cards, make_facts, make_framework, on_cpu

OK, INFO, WARNING, ERROR = Level.OK, Level.INFO, Level.WARNING, Level.ERROR


@pytest.mark.parametrize(
    ("expected", "find", "changes"),
    [
        (("ok", OK), check.pcie_width, {}),
        (("narrow", WARNING), check.pcie_width, {"pcie_width": 8}),
        (("ok", OK), check.pcie_generation, {}),
        (("lowered", INFO), check.pcie_generation, {"pcie_generation": 1}),
        (("ok", OK), check.persistence, {}),
        (("off", WARNING), check.persistence, {"persistence": False}),
        (("ok", OK), check.compute_mode, {}),
        (("exclusive", WARNING), check.compute_mode, {"compute_mode": "exclusive_process"}),
        (("prohibited", ERROR), check.compute_mode, {"compute_mode": "prohibited"}),
        (("unknown", INFO), check.compute_mode, {"compute_mode": "mode 7"}),
        (("ok", OK), check.power_limit, {}),
        (("lowered", WARNING), check.power_limit, {"power_limit_w": 699.0}),
        (("raised", INFO), check.power_limit, {"power_limit_w": 701.0}),
        (("on", INFO), check.ecc, {}),
        (("off", INFO), check.ecc, {"ecc": False}),
        (("ok", OK), check.mig, {}),
        (("on", INFO), check.mig, {"mig": True}),
        (("ok", OK), check.other_processes, {}),
        (("shared", WARNING), check.other_processes, {"others": 1}),
    ],
)
def test_a_cards_setting_is_judged(expected, find, changes):
    finding = find(make_facts(), make_card(**changes))
    assert expected == (finding.code, finding.level)


FIELDS = {
    "pcie width": "pcie_width",
    "pcie generation": "pcie_generation_max",
    "persistence": "persistence",
    "compute mode": "compute_mode",
    "power limit": "power_default_w",
    "ecc": "ecc",
    "mig": "mig",
    "other processes": "others",
    "architecture": "compute_capability",
    "nvidia-smi": "smi",
}


@pytest.mark.parametrize("card_check", CARD_CHECKS, ids=lambda card_check: card_check.name)
def test_what_a_card_does_not_tell_is_unknown_with_its_reason(card_check):
    name = FIELDS[card_check.name]
    untold = BesideSmi(reason="NVML says Not Supported") if name == "smi" else None
    finding = card_check.find(make_facts(), make_card(**{name: untold}, missing={name: "NVML says Not Supported"}))
    assert ("unknown", INFO, True) == (finding.code, finding.level, "Not Supported" in finding.found)


def test_the_number_of_lanes_is_named():
    assert "8 lanes of 16" in check.pcie_width(make_facts(), make_card(pcie_width=8)).found


def test_where_there_is_a_card_nothing_is_said_of_none():
    assert None is check.absent(make_facts())


def test_a_gpu_that_only_tensorflow_sees_is_there():
    facts = make_facts(cards=Cards(reason="the NVML binding is missing"))
    assert (None, "unknown") == (check.absent(facts), check.listed(facts).code)


def test_no_gpu_is_information_with_the_reason():
    finding = check.absent(on_cpu())
    assert (INFO, True) == (finding.level, "Driver Not Loaded" in finding.found)


def test_a_card_on_the_bus_that_cannot_be_used_is_a_warning():
    facts = make_facts(framework=make_framework(gpus=0), cards=Cards(reason="NVML could not be started", on_bus=2))
    assert (WARNING, True) == ((finding := check.absent(facts)).level, "2 NVIDIA devices" in finding.found)


def test_one_lost_card_of_several_is_a_warning():
    finding = check.listed(make_facts(cards=make_cards(reason="card 1 could not be read: GPU is lost")))
    assert (WARNING, True) == (finding.level, "GPU is lost" in finding.found)
