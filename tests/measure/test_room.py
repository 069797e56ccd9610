"""How much memory is free on a card, through the real binding; whatever is not known is null."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.measure.telemetry.nvml.room import free_bytes
from tests.measure.nvml_stub import ask, compile_stub

MIB = 2**20
HERE = "from harness.measure.telemetry.nvml.room import free_bytes\n"
LISTED = f"{HERE}free_bytes(nvml.devices()[0])"
KNOWN = f"{HERE}free_bytes([Gpu(0, 'a card', 'GPU-00000000-1111-2222-3333-444444444444', None, None)])"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


def test_what_is_free_is_what_nobody_uses_and_the_driver_does_not_keep(library):
    assert (143771 - 1024 - 512) * MIB == ask(LISTED, library)


def test_of_several_cards_the_one_with_the_least_counts(library):
    assert (143771 - 9216 - 512) * MIB == ask(LISTED, library, {"CARDS": 2, "USED_MIB_1": 9216})


@pytest.mark.parametrize("code", [1, 2, 3, 6, 13, 15, 999])
@pytest.mark.parametrize("call", ["DeviceGetMemoryInfo", "DeviceGetMemoryInfo_1", "DeviceGetHandleByUUID"])
def test_a_card_that_does_not_tell_makes_it_unknown(library, call: str, code: int):
    refused = {"CARDS": 2, call: code, **({"DeviceGetHandleByPciBusId": code} if "Handle" in call else {})}
    assert ask(LISTED, library, refused) is None


def test_more_memory_in_use_than_there_is_makes_it_unknown(library):
    assert ask(LISTED, library, {"USED_MIB": 200_000}) is None


def test_a_driver_that_does_not_start_makes_it_unknown(library):
    assert ask(KNOWN, library, {"Init": 9}) is None


def test_a_machine_without_a_driver_makes_it_unknown(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("no library, and found before any that this machine may have\n")
    assert ask(KNOWN, tmp_path) is None


def test_without_cards_nothing_is_asked():
    assert free_bytes(()) is None
