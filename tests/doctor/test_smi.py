"""nvidia-smi beside NVML: what is asked, what is understood, and what is made of it. A command and a library of our own stand in for NVIDIA's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.doctor import check_cards as check
from harness.doctor.facts import BesideSmi, Sight
from harness.doctor.findings import Level
from harness.doctor.read_smi import COLUMNS, number, rows_of
from tests.doctor.builders import make_card, make_cards, make_facts
from tests.measure.nvml_stub import CARD, OTHER, ask, compile_stub

READ = """
from dataclasses import asdict
from harness.doctor.read_smi import read_smi
{index: asdict(told) for index, told in read_smi(nvml.devices()[0], looks=2).items()}
"""
ROW = f"{CARD}, 570.86.10, 1024, 412.35, 1980, 3201, 61"
"""What nvidia-smi says of the card of nvml_stub.c as it is by default."""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


def command(folder: Path, *lines: str, code: int = 0) -> Path:
    """Put an nvidia-smi into `folder` that says these lines, and leaves what it was asked in the file `asked`; return the folder."""
    said = "\n".join(lines)
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\necho \"$LC_ALL $*\" >> '{folder / 'asked'}'\ncat <<'END'\n{said}\nEND\nexit {code}\n")
    script.chmod(0o755)
    return folder


def read(library: Path, folder: Path, *, env: dict[str, str] | None = None, **stub: object) -> dict[str, Any]:
    """Return what is read of each card by index (as text), with `folder` first on the PATH."""
    return ask(READ, library, stub, PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", **(env or {}))


# ---------------------------------------------------------------- reading


def test_both_are_asked_for_the_same_in_the_same_units(library, tmp_path):
    told = read(library, command(tmp_path, ROW))["0"]
    assert ("570.86.10", None, 2) == (told["driver"], told["reason"], len(told["looks"]))
    assert {
        "memory_mib": {"before": 1024.0, "after": 1024.0, "theirs": 1024.0, "reason": None},
        "power_w": {"before": 412.345, "after": 412.345, "theirs": 412.35, "reason": None},
        "sm_clock_mhz": {"before": 1980.0, "after": 1980.0, "theirs": 1980.0, "reason": None},
        "memory_clock_mhz": {"before": 3201.0, "after": 3201.0, "theirs": 3201.0, "reason": None},
        "temperature_c": {"before": 61.0, "after": 61.0, "theirs": 61.0, "reason": None},
    } == told["looks"][0]


def test_the_command_is_asked_once_a_look_in_a_language_that_can_be_read(library, tmp_path):
    read(library, command(tmp_path, ROW))
    question = f"C --query-gpu={','.join(COLUMNS)} --format=csv,noheader,nounits"
    assert [question] * 2 == (tmp_path / "asked").read_text().splitlines()


def test_cards_are_matched_by_uuid_and_not_by_their_order(library, tmp_path):
    lines = (f"{OTHER}, 570.86.10, 9216, 100.00, 1980, 3201, 61", ROW)
    told = read(library, command(tmp_path, *lines), CARDS=2, USED_MIB_0=1024, USED_MIB_1=9216)
    looks = {index: told[index]["looks"][0]["memory_mib"] for index in ("0", "1")}
    assert {"0": (1024.0, 1024.0), "1": (9216.0, 9216.0)} == {index: (sight["after"], sight["theirs"]) for index, sight in looks.items()}


def test_of_several_cards_each_has_its_temperature(library, tmp_path):
    lines = (ROW, f"{OTHER}, 570.86.10, 1024, 412.35, 1980, 3201, 70")
    told = read(library, command(tmp_path, *lines), CARDS=2, TEMPERATURE_0=61, TEMPERATURE_1=70)
    assert [61.0, 70.0] == [told[index]["looks"][1]["temperature_c"]["after"] for index in ("0", "1")]


def test_only_the_visible_card_is_compared(library, tmp_path):
    lines = (ROW, f"{OTHER}, 570.86.10, 9216, 100.00, 1980, 3201, 61")
    told = read(library, command(tmp_path, *lines), env={"CUDA_VISIBLE_DEVICES": "1"}, CARDS=2)
    assert {"1": 9216.0} == {index: found["looks"][0]["memory_mib"]["theirs"] for index, found in told.items()}


def test_what_the_command_does_not_tell_is_null_with_its_words(library, tmp_path):
    told = read(library, command(tmp_path, f"{CARD}, 570.86.10, [Not Supported], [N/A], 1980, 3201, N/A"))["0"]["looks"][0]
    assert {
        "memory_mib": (None, "nvidia-smi says [Not Supported]"),
        "power_w": (None, "nvidia-smi says [N/A]"),
        "sm_clock_mhz": (1980.0, None),
        "memory_clock_mhz": (3201.0, None),
        "temperature_c": (None, "nvidia-smi says N/A"),
    } == {name: (sight["theirs"], sight["reason"]) for name, sight in told.items()}


def test_what_nvml_does_not_tell_is_null_with_its_reason(library, tmp_path):
    sight = read(library, command(tmp_path, ROW), DeviceGetPowerUsage=3)["0"]["looks"][0]["power_w"]
    assert {"before": None, "after": None, "theirs": 412.35, "reason": "NVML: not supported"} == sight


def test_a_machine_without_the_command_is_a_reason(library, tmp_path):
    told = ask(READ, library, {}, PATH=str(tmp_path))
    assert {"0": {"driver": None, "looks": [], "reason": "nvidia-smi is not on the PATH"}} == told


def test_a_command_that_fails_is_a_reason_with_its_first_line(library, tmp_path):
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    told = read(library, command(tmp_path, said, code=9))["0"]
    assert ([], f"nvidia-smi ended with exit code 9: {said}") == (told["looks"], told["reason"])


def test_a_command_that_cannot_be_started_is_a_reason(library, tmp_path):
    command(tmp_path).joinpath("nvidia-smi").write_text("#!/no/such/shell\n")
    assert "nvidia-smi could not be started: No such file or directory" == read(library, tmp_path)["0"]["reason"]


def test_a_card_that_the_command_does_not_list_is_a_reason(library, tmp_path):
    told = read(library, command(tmp_path, "No devices were found"))["0"]
    assert "nvidia-smi does not list it" == told["reason"]


def test_a_slice_is_not_compared(library, tmp_path):
    told = read(library, command(tmp_path, ROW), MIG_0=2)
    assert {"0": "nvidia-smi does not list it: it tells of whole cards, and this is a slice of one"} == {
        index: found["reason"] for index, found in told.items()
    }


def test_without_a_card_nothing_is_asked(tmp_path):
    command(tmp_path, ROW)
    code = "from harness.doctor.read_smi import read_smi\nread_smi(())"
    assert {} == ask(code, None, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("value", "cell"),
    [(412.35, "412.35"), (0.0, "0"), *((None, cell) for cell in ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "", "nan", "inf", "1 980"))],
)
def test_a_cell_is_a_number_or_nothing(value, cell):
    assert value == number(cell)


@pytest.mark.parametrize("text", ["", "\n", "No devices were found", f"{CARD}, 570", f"{ROW}, more", "\0\0"])
def test_lines_that_are_no_rows_are_left_out(text):
    assert {} == rows_of(text)


def test_a_row_is_found_among_other_lines():
    assert {CARD: "1024"} == {uuid: row["memory.used"] for uuid, row in rows_of(f"WARNING: infoROM is corrupted\n{ROW}\n").items()}


# ---------------------------------------------------------------- judging


def sight(before: float | None, theirs: float | None, after: float | None = None, reason: str | None = None) -> Sight:
    return Sight(before, before if after is None else after, theirs, reason)


AGREED = {
    "memory_mib": sight(1024, 1024),
    "power_w": sight(412.3, 412.35),
    "sm_clock_mhz": sight(1980, 1980),
    "memory_clock_mhz": sight(3201, 3201),
    "temperature_c": sight(61, 61),
}


def found(*looks: dict[str, Sight], driver: str | None = "580.65.06", **changes: Sight):
    """What the check says of a card whose looks are these, by default one in which all agreed but for `changes`."""
    smi = BesideSmi(driver, looks or ({**AGREED, **changes},))
    return check.nvidia_smi(make_facts(cards=make_cards()), make_card(smi=smi))


def test_two_that_say_the_same_are_fine_and_both_are_shown():
    finding = found()
    assert (Level.OK, True) == (finding.level, finding.found.startswith("NVML and nvidia-smi say the same of memory, power, SM clock"))
    assert (412.3, 412.35) == (finding.numbers["power_w_nvml"], finding.numbers["power_w_nvidia_smi"])


@pytest.mark.parametrize(
    ("agree", "name", "seen"),
    [
        (True, "memory_mib", sight(100, 164)),
        (False, "memory_mib", sight(100, 165)),
        (True, "memory_mib", sight(100_000, 102_000)),
        (False, "memory_mib", sight(100_000, 102_001)),
        (True, "power_w", sight(50, 40)),
        (False, "power_w", sight(50, 39.9)),
        (True, "power_w", sight(400, 440)),
        (False, "power_w", sight(400, 440.1)),
        (True, "sm_clock_mhz", sight(210, 1980, 1980)),
        (True, "sm_clock_mhz", sight(210, 1000, 1980)),
        (True, "sm_clock_mhz", sight(1980, 200, 210)),
        (False, "sm_clock_mhz", sight(1980, 1900)),
        (False, "memory_clock_mhz", sight(3201, 2619)),
        (True, "temperature_c", sight(61, 64)),
        (False, "temperature_c", sight(61, 65)),
        (False, "power_w", sight(None, 400)),
        (False, "power_w", Sight(400, None, 400)),
        (False, "power_w", sight(400, None)),
    ],
)
def test_nvidia_smi_may_lie_between_before_and_after_and_a_little_beyond(agree, name, seen):
    assert agree is check.agrees(name, seen)


def test_a_quantity_that_never_agrees_is_a_warning_with_both_figures():
    finding = found(power_w=sight(412, 230))
    assert ("differ", Level.WARNING, "power 412 to 412 W by NVML, 230 W by nvidia-smi") == (finding.code, finding.level, finding.found)


def test_one_look_in_which_they_agree_is_enough():
    moving = {**AGREED, "sm_clock_mhz": sight(210, 1980)}
    assert Level.OK is found(moving, AGREED, moving).level


def test_another_driver_s_version_is_a_difference():
    finding = found(driver="570.86.10")
    assert ("differ", "driver 580.65.06 by NVML, 570.86.10 by nvidia-smi") == (finding.code, finding.found)


def test_a_quantity_that_one_of_them_does_not_tell_is_left_out_with_its_reason():
    finding = found(power_w=sight(412, None, reason="nvidia-smi says [N/A]"))
    assert (Level.OK, True) == (finding.level, finding.found.endswith("; not compared: power: nvidia-smi says [N/A]"))
    assert "power_w_nvml" not in finding.numbers


def test_where_nothing_can_be_compared_it_is_not_known_and_why():
    nothing = {name: sight(None, 1.0, reason="NVML: not supported") for name in AGREED}
    finding = found(nothing)
    assert ("unknown", True) == (finding.code, "NVML: not supported" in finding.found)


def test_a_machine_without_nvidia_smi_is_not_known_and_why():
    finding = check.nvidia_smi(make_facts(), make_card(smi=BesideSmi(reason="nvidia-smi is not on the PATH")))
    assert ("unknown", Level.INFO, True) == (finding.code, finding.level, "nvidia-smi is not on the PATH" in finding.found)
