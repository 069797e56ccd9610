"""What a run knows of its plan: which cards it computes on, and which comparisons lack results."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Arrangement, Gpu, Search, State
from harness.run import cards_of, failed_contrasts
from tests.helpers import make_contrast, make_failure, make_plan, make_record

CARDS = tuple(Gpu(index, "a card", f"GPU-{index}", 2**33, 8.0) for index in range(3))


def test_a_run_s_cards_are_those_that_its_plan_computes_on() -> None:
    contrast = make_contrast()
    process = replace(contrast.trials[0].processes[0], gpus=("GPU-1",))
    on_card = replace(contrast, trials=(replace(contrast.trials[0], processes=(process,)),))
    assert CARDS[1:2] == cards_of(make_plan(contrasts=(contrast, on_card)), CARDS)


def test_a_plan_that_computes_on_no_card_has_none() -> None:
    assert () == cards_of(make_plan(contrasts=(make_contrast(),)), CARDS)


def lost(index: int) -> object:
    return make_record(index, contrast="search", rates={}, outcome=make_failure("it broke", code="error"), arrangement=Arrangement.SOLO)


def test_a_search_that_had_an_answer_lacks_nothing() -> None:
    plan = make_plan(contrasts=(make_contrast("search", looks=(8,), search=Search("batch")),))
    records = [make_record(0, contrast="search", rates={}, arrangement=Arrangement.SOLO), lost(1), lost(2)]
    assert {} == failed_contrasts(plan, records)


def test_a_search_that_only_broke_lacks_its_result() -> None:
    plan = make_plan(contrasts=(make_contrast("search", looks=(8,), search=Search("batch")),))
    assert {"search": State.FAILED} == {name: outcome.state for name, outcome in failed_contrasts(plan, [lost(0), lost(1)]).items()}
