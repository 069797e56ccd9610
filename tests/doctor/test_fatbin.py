"""What a library's fat binaries carry, read from files made by hand."""

from __future__ import annotations

import pytest

from harness.doctor.facts import MachineCode
from harness.doctor.fatbin import ELF, PTX, from_build_info, read_libraries
from tests.doctor.builders import make_container, make_elf

TWO = make_container((ELF, 80), (ELF, 90), (PTX, 90))


def carried_by(tmp_path, *files: bytes):
    paths = []
    for position, data in enumerate(files):
        paths.append(tmp_path / f"lib{position}.so")
        paths[-1].write_bytes(data)
    return read_libraries(paths)


def test_machine_code_and_ptx_are_told_apart(tmp_path):
    assert MachineCode((80, 90), (90,), "here") == carried_by(tmp_path, make_elf(b".nv_fatbin", TWO)).machine_code("here")


def test_containers_of_one_section_and_of_several_files_count_together(tmp_path):
    carried = carried_by(tmp_path, make_elf(b".nv_fatbin", TWO + TWO), make_elf(b"__nv_relfatbin", make_container((ELF, 70))))
    assert (3, {70: 1, 80: 2, 90: 2}, {90: 2}) == (carried.containers, dict(carried.native), dict(carried.ptx))


def test_containers_need_not_follow_one_another_at_once(tmp_path):
    assert 2 == carried_by(tmp_path, make_elf(b".nv_fatbin", b"\0" * 24 + TWO + b"\0" * 8 + TWO)).containers


def test_an_architecture_that_few_kernels_have_does_not_count(tmp_path):
    carried = carried_by(tmp_path, make_elf(b".nv_fatbin", make_container((ELF, 90), (ELF, 120)) + make_container((ELF, 90)) * 2))
    assert (90,) == carried.machine_code("here").native


def test_a_kernel_that_has_an_architecture_twice_counts_once(tmp_path):
    assert {90: 1} == dict(carried_by(tmp_path, make_elf(b".nv_fatbin", make_container((ELF, 90), (ELF, 90)))).native)


def test_a_library_without_the_section_carries_nothing(tmp_path):
    assert None is carried_by(tmp_path, make_elf(b".text", TWO)).machine_code("here")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no library",
        b"\x7fELF\x01\x01" + bytes(80),  # 32 bits
        b"\x7fELF\x02\x02" + bytes(80),  # most significant byte first
        b"\x7fELF\x02\x01",
        make_elf(b".nv_fatbin", TWO)[:-100],  # ends in its tables
        b"\x7fELF\x02\x01" + b"\xff" * 80,
    ],
)
def test_what_is_no_library_carries_nothing(tmp_path, data):
    assert 0 == carried_by(tmp_path, data).containers


def test_a_missing_file_carries_nothing(tmp_path):
    assert 0 == read_libraries([tmp_path / "gone.so"]).containers


@pytest.mark.parametrize("cut", range(1, len(TWO)))
def test_a_container_cut_short_tells_what_is_left_of_it(tmp_path, cut):
    carried = carried_by(tmp_path, make_elf(b".nv_fatbin", TWO[:-cut]))
    assert set(carried.native) <= {80, 90}
    assert set(carried.ptx) <= {90}


def test_entries_of_length_zero_end_the_search(tmp_path):
    head = TWO[:8] + (64).to_bytes(8, "little")
    assert {} == dict(carried_by(tmp_path, make_elf(b".nv_fatbin", head + bytes(64))).native)


@pytest.mark.parametrize(
    ("native", "ptx", "said"),
    [
        ((60, 90), (90,), ["sm_60", "compute_90"]),
        ((120,), (), ["sm_120"]),
        ((80,), (), ["sm_80", "sm_xy", "9.0"]),
    ],
)
def test_a_build_says_compute_for_machine_code_with_ptx(native, ptx, said):
    assert (native, ptx) == ((code := from_build_info(said)).native, code.ptx)


def test_a_build_that_says_nothing_is_not_known():
    assert None is from_build_info([])
