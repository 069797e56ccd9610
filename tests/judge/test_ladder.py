"""Whether rungs multiply to their total."""

from __future__ import annotations

import pytest

from harness.judge.ladder import judge_ladder
from harness.model import Ladder
from tests.helpers import make_estimate

LADDER = Ladder("ladder", "all switches", ("one", "two"), (), "total")


def result(**estimates):
    return judge_ladder(LADDER, estimates)


def test_rungs_that_multiply_to_the_total_agree():
    assert result(one=make_estimate(2.0, 1.9, 2.1), two=make_estimate(1.5, 1.4, 1.6), total=make_estimate(3.1, 2.9, 3.3)).agrees


def test_rungs_that_do_not_multiply_to_the_total_disagree():
    assert result(one=make_estimate(2.0, 1.9, 2.1), two=make_estimate(1.5, 1.4, 1.6), total=make_estimate(2.0, 1.9, 2.1)).agrees is False


def test_the_product_is_that_of_the_points():
    assert 3.0 == pytest.approx(result(one=make_estimate(2.0), two=make_estimate(1.5, 1.4, 1.6), total=None).product)


def test_independent_rungs_have_a_narrower_product_than_the_product_of_their_ends():
    found = result(one=make_estimate(2.0, 1.9, 2.1), two=make_estimate(1.5, 1.4, 1.6), total=None)

    assert 1.9 * 1.4 < found.product_low < 3.0 < found.product_high < 2.1 * 1.6


def test_a_missing_rung_leaves_no_product():
    found = result(one=make_estimate(2.0), two=None, total=make_estimate(3.0, 2.9, 3.1))

    assert (None, 3.0, None) == (found.product, found.total, found.agrees)


def test_a_bound_is_no_rung():
    assert result(one=make_estimate(None, 0.0, 0.5), two=make_estimate(1.5), total=make_estimate(3.0)).product is None


def test_without_a_total_nothing_agrees_or_disagrees():
    assert result(one=make_estimate(2.0), two=make_estimate(1.5, 1.4, 1.6)).agrees is None
