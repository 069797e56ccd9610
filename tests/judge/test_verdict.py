"""Words from intervals: the table of examples, and properties that hold for every claim."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.verdict import CONFIRMED, EXCEEDED, Band, axis_of, claimed_words, decide, rounds_needed
from harness.model import Scale, Word
from tests.judge.builders import band_of_row, examples

HOLDS = {CONFIRMED, EXCEEDED}
DECIDED = {Word.CONFIRMED, Word.EXCEEDED, Word.WEAKER, Word.REFUTED, Word.REVERSED}


@pytest.mark.parametrize("row", examples(), ids=lambda row: row["description"])
def test_an_example_of_the_table_gets_its_verdict(row):
    word, open_ = decide(band_of_row(row), float(row["low"]), float(row["high"]))

    assert (row["verdict"], row["open"]) == (word.value, "+".join(open_))


# ---------------------------------------------------------------- strategies

positive = st.floats(1e-3, 1e3)


@st.composite
def log_bands(draw):
    """Claims about ratios: a band to one side of 1, on its edge or around it, or a threshold without a null."""
    ends = sorted(draw(st.tuples(positive, positive)))
    lo, hi = draw(st.sampled_from([(ends[0], ends[1]), (ends[0], None), (None, ends[1])]))
    null = draw(st.sampled_from([None, 1.0, ends[0], ends[1]]))
    return Band(Scale.LOG, lo, hi, null, draw(st.sampled_from([0.02, 0.05])), draw(st.sampled_from([0.0, 0.025])))


@st.composite
def linear_bands(draw):
    lo, hi = sorted(draw(st.tuples(st.floats(-10, 10), st.floats(-10, 10))))
    return Band(Scale.LINEAR, lo, hi, draw(st.sampled_from([None, 0.0, lo])), draw(st.sampled_from([0.01, 0.3])), draw(st.sampled_from([0.0, 0.025])))


@st.composite
def nested(draw, values):
    """Two intervals, the second within the first."""
    a, b, c, d = sorted(draw(st.tuples(values, values, values, values)))
    return (a, d), (b, c)


@given(log_bands(), st.floats(allow_nan=True, allow_infinity=True), st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)))
def test_every_interval_gets_a_word(band, low, high):
    word, _ = decide(band, low, high)

    assert word in DECIDED | {Word.INCONCLUSIVE}


@given(st.one_of(log_bands(), linear_bands()), nested(positive))
def test_a_narrower_interval_touches_no_region_that_the_wider_one_does_not(band, intervals):
    wide, narrow = (decide(band, *interval)[1] for interval in intervals)

    assert set(narrow) <= set(wide)


@given(st.one_of(log_bands(), linear_bands()), nested(positive))
def test_a_narrower_interval_never_turns_a_claim_that_holds_into_one_that_does_not_or_back(band, intervals):
    wide, narrow = (decide(band, *interval)[0] for interval in intervals)

    assert wide is Word.INCONCLUSIVE or (wide.value in HOLDS) == (narrow.value in HOLDS)


@given(st.one_of(log_bands(), linear_bands()), nested(positive))
def test_more_noise_never_creates_a_verdict(band, intervals):
    wide, narrow = (decide(band, *interval)[0] for interval in intervals)

    assert narrow is not Word.INCONCLUSIVE or wide is Word.INCONCLUSIVE


@given(log_bands(), nested(positive))
def test_inverting_a_ratio_changes_nothing(band, intervals):
    low, high = intervals[0]
    inverse = Band(
        Scale.LOG,
        None if band.hi is None else 1 / band.hi,
        None if band.lo is None else 1 / band.lo,
        None if band.null is None else 1 / band.null,
        band.margin,
        band.rounding,
    )

    # Of a claim without a null the regions run the other way; the word and the set of regions stay.
    assert (decide(band, low, high)[0], set(decide(band, low, high)[1])) == (decide(inverse, 1 / high, 1 / low)[0], set(decide(inverse, 1 / high, 1 / low)[1]))


@given(log_bands(), nested(positive), st.sampled_from([1e-9, 1e-3, 60.0, 1024.0]))
def test_changing_units_of_a_value_on_the_log_scale_changes_nothing(band, intervals, unit):
    low, high = intervals[0]
    scaled = Band(band.scale, *(None if x is None else x * unit for x in (band.lo, band.hi, band.null)), band.margin, band.rounding)

    assert decide(band, low, high) == decide(scaled, low * unit, high * unit)


@given(linear_bands(), nested(positive), st.sampled_from([1e-3, 100.0, 1024.0]))
def test_changing_units_of_a_difference_changes_nothing_when_its_margin_goes_along(band, intervals, unit):
    low, high = intervals[0]
    scaled = Band(band.scale, *(None if x is None else x * unit for x in (band.lo, band.hi, band.null)), band.margin * unit, band.rounding)

    assert decide(band, low, high) == decide(scaled, low * unit, high * unit)


# ---------------------------------------------------------------- edges


def test_the_edges_of_a_band_belong_to_the_claim():
    band = Band(Scale.LOG, 2.0, 5.0, 1.0)

    assert (Word.CONFIRMED, (CONFIRMED,)) == decide(band, 2.0, 5.0)


def test_regions_stay_in_order_where_a_claim_is_no_stronger_than_the_margin():
    edges = axis_of(Band(Scale.LOG, 1.0, 1.01, 1.0, margin=0.05)).edges

    assert sorted(edges) == list(edges)


def test_a_band_that_rounding_widens_beyond_the_null_still_points_the_way_it_was_claimed():
    assert Word.REVERSED is decide(Band(Scale.LOG, 1.01, 1.3, 1.0, rounding=0.025), 0.9, 0.95)[0]


def test_an_effect_that_may_be_none_at_all_is_not_called_weaker():
    assert (Word.INCONCLUSIVE, ("REFUTED", "WEAKER")) == decide(Band(Scale.LOG, 2.0, 5.0, 1.0), 1.0, 1.3)


def test_an_interval_around_a_whole_no_effect_band_is_open():
    assert (Word.INCONCLUSIVE, ("REFUTED", "CONFIRMED")) == decide(Band(Scale.LOG, 0.95, 1.05, 1.0), 0.5, 2.0)


def test_an_interval_that_is_open_above_can_exceed_but_not_lie_within():
    band = Band(Scale.LOG, 2.0, 5.0, 1.0)

    assert (Word.EXCEEDED, Word.CONFIRMED) == (decide(band, 6.0, None)[0], decide(band, 3.0, None)[0])


def test_a_ratio_below_zero_is_no_ratio():
    assert (Word.INCONCLUSIVE, ()) == decide(Band(Scale.LOG, 2.0, 5.0, 1.0), -1.0, 3.0)


def test_the_band_is_told_in_words():
    bands = [Band(Scale.LOG, 2.0, 5.0, 1.0), Band(Scale.LOG, 1.0, None, 1.0), Band(Scale.LOG, 18.0, None, 1.0), Band(Scale.LINEAR, None, 0.5), Band(Scale.EXACT, 40, 40)]

    assert ["2 to 5", "above 1", "at least 18", "at most 0.5", "exactly 40"] == [claimed_words(band) for band in bands]


def test_rounds_needed_is_the_first_number_that_decides():
    assert 7 == rounds_needed(lambda n: n >= 12, 5)


def test_rounds_needed_is_unknown_where_no_number_of_rounds_decides():
    assert rounds_needed(lambda n: False, 5) is None

