"""Numbers become text by one convention, and what cannot be shown says why."""

from __future__ import annotations

import math

import pytest

from harness.report import numbers


@pytest.mark.parametrize(
    ("expected", "n_bytes"),
    [("16.0 GiB", 17179869184), ("1.00 KiB", 1024), ("1,023 B", 1023), ("1.00 MiB", 2**20 - 1), ("0 B", 0), ("n/a", None), ("n/a", math.inf)],
)
def test_bytes_are_shown_in_binary_units(expected, n_bytes):
    assert expected == numbers.size(n_bytes)


@pytest.mark.parametrize(
    ("expected", "value_s"),
    [("250 ms", 0.25), ("1.00 s", 0.9999), ("2.00 min", 120.0), ("12.0 µs", 12e-6), ("3.00 h", 10800.0), ("0 s", 0.0), ("n/a", math.nan)],
)
def test_durations_are_shown_in_the_unit_that_fits(expected, value_s):
    assert expected == numbers.seconds(value_s)


@pytest.mark.parametrize(
    ("expected", "value"), [("2.41x", 2.4149), ("0.803x", 0.8031), ("10.0x", 9.996), ("1,230x", 1234.0), ("1.00x", 0.99951), ("n/a", None)]
)
def test_a_ratio_has_three_significant_digits(expected, value):
    assert expected == numbers.ratio(value)


def test_a_ratio_below_one_stays_below_one():
    assert "0.620x (0.589x to 0.651x)" == numbers.measured(0.62, 0.589, 0.651, "", 5, "t")


def test_one_round_has_no_spread():
    assert "2.00x (no spread from n=1)" == numbers.measured(2.0, 0.0, None, "", 1, "t")


def test_equal_rounds_keep_their_interval():
    assert "2.00x to 2.00x" == numbers.interval(2.0, 2.0, "", 3)


@pytest.mark.parametrize(
    ("expected", "n", "rounds"),
    [
        ("64 samples (all rounds agree)", 3, (64.0, 64.0, 64.0)),
        ("64 samples (one round)", 1, (64.0,)),
        ("64 samples (by search, 7 probes)", 7, ()),
        ("64 samples (by search, 1 probe)", 1, ()),
    ],
)
def test_rounds_that_agree_are_told_from_a_search_which_has_one_value(expected, n, rounds):
    assert expected == numbers.measured(64.0, 64.0, 64.0, "samples", n, numbers.how("exact", rounds))


def test_a_search_that_left_something_open_has_its_ends():
    assert "64 samples (64 samples to 66 samples)" == numbers.measured(64.0, 64.0, 66.0, "samples", 7, numbers.how("bound", ()))


@pytest.mark.parametrize(
    ("expected", "low", "high", "method"),
    [("at least 1.60x", 1.6, None, "bound"), ("at most 0.500x", 0.0, 0.5, "bound"), ("at most 3.00x", -1.7976931348623157e308, 3.0, "bound")],
)
def test_an_open_side_is_said_in_words(expected, low, high, method):
    assert expected == numbers.interval(low, high, "", 3, method)


@pytest.mark.parametrize(
    ("expected", "lo", "hi", "unit", "null"),
    [
        ("2x to 5x", 2, 5, "", 1),
        ("above 1x", 1, None, "", 1),
        ("at least 0.2 s", 0.2, None, "s", None),
        ("below 1x", None, 1, "", 1),
        ("at most 5\u00a0%", None, 0.05, "share", None),
        ("exactly 1 trace", 1, 1, "traces", None),
        ("no band", None, None, "", 1),
    ],
)
def test_a_claimed_band_reads_as_it_was_said(expected, lo, hi, unit, null):
    assert expected == numbers.band(lo, hi, unit, null)


@pytest.mark.parametrize(
    ("expected", "value", "unit"),
    [
        ("4.20 samples/s", 4.2, "samples"),
        ("4.20 samples/s", 4.2, "samples/s"),
        ("1.50 GiB/s", 1.5 * 2**30, "bytes"),
        ("2.50 TFLOP/s", 2.5e12, "FLOP"),
    ],
)
def test_a_rate_names_its_work(expected, value, unit):
    assert expected == numbers.rate(value, unit)


@pytest.mark.parametrize(
    ("expected", "value", "unit"),
    [
        ("1 trace", 1.0, "traces"),
        ("40 traces", 40.0, "traces"),
        ("0 steps", 0.0, "steps"),
        ("0.500 traces", 0.5, "traces"),
        ("1 batch", 1.0, "batches"),
        ("1 holds", 1.0, "holds"),
        ("1 loss", 1.0, "loss"),
        ("1 count", 1.0, "count"),
    ],
)
def test_one_of_a_thing_is_named_in_the_singular(expected, value, unit):
    assert expected == numbers.quantity(value, unit)


@pytest.mark.parametrize(
    ("expected", "value", "unit"),
    [
        ("1,100 J", 1100.0, "J"),
        ("12.5 J", 12.5, "J"),
        ("40 J/sample", 40.0, "J/sample"),
        ("41.2 mJ/sample", 0.0412, "J/sample"),
        ("20.0 pJ/FLOP", 2.0000001e-11, "J/FLOP"),
        ("0.0250 samples/J", 0.025, "samples/J"),
        ("12.3 GFLOP/J", 12.3e9, "FLOP/J"),
        ("1.00 MiB/J", 2.0**20, "B/J"),
        ("0 J", 0.0, "J"),
    ],
)
def test_energy_has_units_for_people(expected, value, unit):
    assert expected == numbers.quantity(value, unit)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("unit", ["", "bytes", "s", "share", "samples/s", "samples/J", "J/sample", "traces"])
def test_what_is_no_number_is_shown_as_not_available(value, unit):
    assert numbers.NA == numbers.quantity(value, unit)
