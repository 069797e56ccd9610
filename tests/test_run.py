"""What a run knows of its plan: which cards it computes on, and which comparisons lack results."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Arrangement, Gpu, Outcome, Reason, Search, State
from harness.run import Ended, cards_of, exit_code, failed_contrasts
from tests.helpers import make_contrast, make_failure, make_plan, make_record, make_verdicts

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


def test_what_cannot_be_had_here_is_no_failure_of_the_run() -> None:
    skipped = Outcome(State.SKIPPED, Reason("unsupported", "not to be had here: no such product"), "build")
    plan = make_plan(contrasts=(make_contrast("int8"),))
    records = [make_record(0, contrast="int8", rates={}, outcome=skipped)]
    assert {} == failed_contrasts(plan, records)
    assert 0 == exit_code(plan, records, make_verdicts(), Ended(Reason("complete", "everything planned is done")))


def test_a_failed_trial_is_one() -> None:
    plan = make_plan(contrasts=(make_contrast("search"),))
    assert 2 == exit_code(plan, [lost(0), lost(1)], make_verdicts(), Ended(Reason("complete", "everything planned is done")))
