"""The rounds of a search show what was tried and whether there was room for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model import Arrangement, Estimand, Reading, Scale, Term
from harness.report.cards import _reading
from tests.helpers import make_case, make_outcome_reading, make_record, make_trial_record

CASE = make_case(estimand=Estimand(Scale.LINEAR, (Term(1.0, "search", "treatment", "largest_batch"),)), lo=None)


@pytest.mark.parametrize(
    ("reading", "shown"),
    [
        (make_outcome_reading("trains", 1.0), "batch 64: trains"),
        (make_outcome_reading("trains", 0.0, reason="the worker: ResourceExhaustedError: OOM (in first)"), "batch 64: no room"),
    ],
)
def test_a_probe_shows_its_batch_and_its_answer(reading: Reading, shown: str) -> None:
    record = make_record(contrast="search", rates={}, arrangement=Arrangement.SOLO, quads=())
    probed = replace(record, trials=(make_trial_record("treatment", asked={"batch": 64}),), readings=(reading,))
    assert shown == _reading(probed, "treatment", CASE)
