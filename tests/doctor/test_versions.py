"""The tables of published configurations, and versions as numbers."""

from __future__ import annotations

import pytest

from harness.doctor.versions import minimum_driver, minor, parts, row_of, suffices, tables


@pytest.mark.parametrize(
    ("enough", "driver", "cuda"),
    [
        (True, "450.80.02", "11.8"),
        (False, "450.80.01", "11.8"),
        (False, "450.79", "11.0"),
        (True, "520.61.05", "11.8"),
        (False, "520.61.05", "12.3"),
        (True, "525.60.13", "12.5.1"),
        (True, "525", "12.0"),
        (False, "524.99", "12.5"),
        (True, "580.65.06", "13.0"),
        (False, "575.57.08", "13.0"),
        (True, "580.65.06", "11.8"),
        (None, None, "12.5"),
        (None, "580.65.06", "10.2"),
        (None, "580.65.06", None),
        (None, "unknown", "12.5"),
    ],
)
def test_a_driver_is_new_enough_from_the_first_of_its_cuda_major_on(enough, driver, cuda):
    assert enough is suffices(driver, cuda)


def test_the_first_driver_of_cuda_11_is_older_than_the_520_that_came_with_11_8():
    assert ("450.80.02", True) == (minimum_driver("11.8"), parts("450.80.02") < parts("520"))


@pytest.mark.parametrize(
    ("version", "cuda", "cudnn", "python"),
    [
        ("2.12.1", "11.8", "8.6", ("3.8", "3.11")),
        ("2.14.0", "11.8", "8.7", ("3.9", "3.11")),
        ("2.15.1", "12.2", "8.9", ("3.9", "3.11")),
        ("2.17.0", "12.3", "8.9", ("3.9", "3.12")),
        ("2.21.0rc1", "12.5", "9.3", ("3.10", "3.13")),
    ],
)
def test_a_patch_release_has_the_configuration_of_its_minor_version(version, cuda, cudnn, python):
    row = row_of(version)
    assert (cuda, cudnn, python) == (row.cuda, row.cudnn, row.python)


@pytest.mark.parametrize("version", ["2.11.0", "2.22.0", "nightly", "", None])
def test_a_version_that_the_table_does_not_hold_has_none(version):
    assert None is row_of(version)


def test_each_cuda_of_the_table_has_a_first_driver():
    assert None not in {minimum_driver(row.cuda) for row in tables().tensorflow.values()}


@pytest.mark.parametrize(("numbers", "version"), [((450, 80, 2), "450.80.02"), ((2, 21, 0), "2.21.0-rc1"), ((9,), "9"), ((), "x1"), ((), None)])
def test_a_version_is_its_leading_numbers(numbers, version):
    assert numbers == parts(version)


def test_a_single_number_has_no_minor_version():
    assert (None, "12.5") == (minor("9"), minor("12.5.1"))
