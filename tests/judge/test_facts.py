"""What is stated needs no round; and a comparison is no finer than the coarser of its devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.judge import judge
from harness.judge.book import Book
from harness.model import Case, ClaimResult, Estimand, Plan, Role, Scale, Word
from tests.helpers import make_cell, make_claim, make_contrast, make_plan, make_ratio, make_trial
from tests.judge.builders import rounds_of


def make_fact(case: str, title: str, value: float) -> Case:
    return Case(case, title, Role.FACT, Estimand(Scale.EXACT, (), value), unit="cores")


def result_of(*cases: Case) -> ClaimResult:
    plan = make_plan(controls=(), proofs=(), claims=(make_claim(cases=cases),))
    return judge(plan, [], lambda name: {name: 0}).claims[0]


def test_a_fact_is_stated_without_a_round():
    (case,) = result_of(make_fact("gpu", "CUDA cores", 6912)).cases
    assert case.estimate is not None
    assert (6912, 0, "stated") == (case.estimate.point, case.estimate.n, case.estimate.method)
    assert (Word.FACT, "states what is so") == (case.verdict.word, case.verdict.reason.text)


def test_a_claim_of_facts_says_them_all():
    verdict = result_of(make_fact("gpu", "CUDA cores", 6912), make_fact("cpu", "CPU cores", 64)).verdict
    assert (Word.FACT, "CUDA cores: 6912; CPU cores: 64", {"CUDA cores": 6912, "CPU cores": 64}) == (
        verdict.word,
        verdict.reason.text,
        verdict.reason.numbers,
    )


def plan_between(baseline: str, treatment: str) -> Plan:
    cells = [make_cell("eager", device=baseline), make_cell("graph", device=treatment)]
    trials = (make_trial("baseline", cell=cells[0]), make_trial("treatment", cell=cells[1]))
    contrast = replace(make_contrast(trials=()), trials=trials)
    return make_plan(controls=(), proofs=(), contrasts=(contrast,), cells={cell.id: cell for cell in cells})


@pytest.mark.parametrize(("devices", "floor"), [(("cpu", "cpu"), 0.01), (("cpu", "gpu"), 0.01), (("gpu", "gpu"), 0.005)])
def test_a_comparison_has_the_floor_of_its_coarser_device(devices: tuple[str, str], floor: float):
    book = Book(plan_between(*devices), rounds_of([2.0, 2.0, 2.0]))
    assert floor == book.floors(make_ratio()).systematic
