"""The judge's promises under random numbers: how often any look misses the truth, and how often a verdict is wrong near a band's edge.

Vectorised over many runs of twenty contrasts each, judged by the looks, the pooled floor and the systematic floor of the real judge.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.judge.stats import Floors, intersect, t_factor, take_look
from harness.judge.thresholds import Thresholds
from harness.judge.verdict import Band, decide
from harness.model import Scale, Word

LOOKS = (3, 5, 8, 12)
RUNS, CONTRASTS = 4000, 20
SHARE = Thresholds().pooled_share

NOISES = {
    "normal": lambda r, size: r.normal(size=size),
    "t3": lambda r, size: r.standard_t(3, size=size) / math.sqrt(3),
    "exponential": lambda r, size: r.exponential(size=size) - 1,
    "one outlier in ten": lambda r, size: r.normal(size=size) * np.where(r.random(size) < 0.1, 5, 1),
    "two states": lambda r, size: np.where(r.random(size) < 0.2, 2.0, -0.5) + 0.2 * r.normal(size=size),
}


def intervals(effects: np.ndarray, alpha: float, *, share: float = SHARE, systematic: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return low and high after each look, of shape (looks, runs, contrasts), for effects of shape (runs, contrasts, 12)."""
    n_most = LOOKS[-1]
    pool = np.sqrt(effects[..., :n_most].var(axis=2, ddof=1).mean(axis=1))[:, None]
    lows, highs = [], []
    for n in LOOKS:
        seen = effects[..., :n]
        half = np.maximum(seen.std(axis=2, ddof=1), share * pool) * t_factor(n, alpha / len(LOOKS)) + systematic
        lows.append(seen.mean(axis=2) - half)
        highs.append(seen.mean(axis=2) + half)
    return np.array(lows), np.array(highs)


def missed(effects: np.ndarray, truth: float, alpha: float, **floors: float) -> float:
    """Return how often any of the looks' intervals leaves out the truth."""
    low, high = intervals(effects, alpha, **floors)
    return float(((low > truth) | (high < truth)).any(axis=0).mean())


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_any_look_misses_hardly_more_often_than_it_may(name, alpha):
    effects = NOISES[name](np.random.default_rng(1), (RUNS, CONTRASTS, LOOKS[-1]))

    assert missed(effects, 0.0, alpha) <= 1.5 * alpha


def test_without_the_pooled_floor_skewed_rounds_miss_far_too_often():
    effects = NOISES["two states"](np.random.default_rng(1), (RUNS, CONTRASTS, LOOKS[-1]))

    assert missed(effects, 0.0, 0.01, share=0.0) > 0.03


def correlated(random: np.random.Generator, offset: float) -> np.ndarray:
    """Rounds of 2 % spread that remember half of the round before, in sessions that are each off by a common amount."""
    fresh = random.normal(scale=0.02 * math.sqrt(1 - 0.5**2), size=(RUNS, CONTRASTS, LOOKS[-1]))
    effects = np.empty_like(fresh)
    effects[..., 0] = random.normal(scale=0.02, size=(RUNS, CONTRASTS))
    for at in range(1, LOOKS[-1]):
        effects[..., at] = 0.5 * effects[..., at - 1] + fresh[..., at]
    return effects + random.uniform(-offset, offset, size=(RUNS, 1, 1))


def test_the_systematic_floor_covers_offsets_of_a_session_up_to_itself():
    offsets = np.random.default_rng(3).uniform(-0.01, 0.01, size=(RUNS, 1, 1))
    effects = np.random.default_rng(2).normal(scale=0.005, size=(RUNS, CONTRASTS, LOOKS[-1])) + offsets

    assert missed(effects, 0.0, 0.01, systematic=0.01) <= 0.015 < missed(effects, 0.0, 0.01)


def test_the_systematic_floor_halves_what_correlated_rounds_miss_at_least():
    effects = correlated(np.random.default_rng(4), offset=0.01)

    assert missed(effects, 0.0, 0.01, systematic=0.01) < missed(effects, 0.0, 0.01) / 2


def verdicts(truth: float, band: Band, *, spread: float = 0.02, alpha: float = 0.01, runs: int = 60) -> list[Word]:
    """Return the words that so many contrasts of this true ratio get after their last look."""
    effects = math.log(truth) + np.random.default_rng(5).normal(scale=spread, size=(runs, CONTRASTS, LOOKS[-1]))
    low, high = intervals(effects, alpha, systematic=0.01)
    return [decide(band, math.exp(a), math.exp(b))[0] for a, b in zip(low.max(axis=0).ravel(), high.min(axis=0).ravel(), strict=True) if a <= b]


TWO_TO_FIVE = Band(Scale.LOG, 2.0, 5.0, 1.0)


def share_of(words: list[Word], *wanted: Word) -> float:
    return sum(word in wanted for word in words) / len(words)


def test_a_truth_just_below_a_band_is_hardly_ever_confirmed():
    assert share_of(verdicts(1.99, TWO_TO_FIVE), Word.CONFIRMED, Word.EXCEEDED) <= 0.01


def test_a_truth_just_inside_a_band_is_hardly_ever_called_weaker():
    assert share_of(verdicts(2.01, TWO_TO_FIVE), Word.WEAKER, Word.REFUTED, Word.REVERSED) <= 0.01


def test_a_truth_on_the_edge_of_a_band_stays_open():
    assert share_of(verdicts(2.02, TWO_TO_FIVE), Word.INCONCLUSIVE) >= 0.9


@pytest.mark.parametrize(("truth", "word"), [(1.0, Word.REFUTED), (1.7, Word.WEAKER), (3.0, Word.CONFIRMED), (6.0, Word.EXCEEDED), (0.8, Word.REVERSED)])
def test_a_truth_well_within_a_region_gets_that_regions_word(truth, word):
    assert share_of(verdicts(truth, TWO_TO_FIVE), word) >= 0.99


def test_no_effect_is_hardly_ever_taken_for_one():
    assert share_of(verdicts(1.0, Band(Scale.LOG, 1.0, None, 1.0)), Word.CONFIRMED, Word.REVERSED) <= 0.01


def test_the_vectorised_looks_are_those_of_the_judge():
    effects = np.random.default_rng(6).normal(size=(1, CONTRASTS, LOOKS[-1]))
    low, high = intervals(effects, 0.01, systematic=0.01)
    pool = math.sqrt(effects.var(axis=2, ddof=1).mean())
    looks = [take_look(effects[0, 0, :n].tolist(), 0.01 / 4, Floors(SHARE * pool, 0.01)) for n in LOOKS]

    assert intersect(looks) == pytest.approx((low.max(axis=0)[0, 0], high.min(axis=0)[0, 0]))
