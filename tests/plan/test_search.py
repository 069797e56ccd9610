"""The largest batch is found by doubling and bisecting, and what is measured at it waits for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.model import (
    COMPLETED,
    LARGEST,
    Arrangement,
    Contrast,
    Done,
    Driver,
    Outcome,
    Plan,
    Process,
    Purpose,
    Reading,
    Reason,
    Round,
    RoundRecord,
    Search,
    State,
    Trial,
    TrialRecord,
)
from harness.plan.build import Request, make_plan
from harness.plan.search import next_value
from harness.plan.study import Ledger, Situation, next_of_all, next_round
from tests.plan.builders import make_bench, make_case, make_claim, make_contrast, make_gpu, make_machine, make_record, make_sweep

FINE = 1e-9
"""So precise that a search goes on to the last unit."""


def search_contrast(search: Search, name: str = "search-cell-a", cell: str = "cell-a") -> Contrast:
    trial = Trial(cell, cell, (Process("lead", "m:build", {"batch": LARGEST}),), driver=Driver.ONCE, call="probe")
    return Contrast(name, "largest batch of a", Purpose.CLAIM, (trial,), Arrangement.SOLO, (8,), search=search)


def answered(round_: Round, *, trains: bool = True, outcome: Outcome = COMPLETED) -> RoundRecord:
    """Return the record of a probe: it trained, there was no room for it, or it ended in another way."""
    (trial,) = round_.trials
    value = trial.processes[0].settings["batch"]
    readings = (Reading(trial.id, "trains", float(trains), ""),) if outcome == COMPLETED else ()
    record = make_record(contrast=round_.contrast, index=round_.index, attempt=round_.attempt, arrangement=round_.arrangement)
    return replace(record, outcome=outcome, trials=(TrialRecord(trial.id, trial.cell, outcome, {"batch": value}),), readings=readings)


def values_probed(search: Search, answer: Callable[[Round], RoundRecord]) -> tuple[list[int], Done]:
    """Let a search run to its end; returns what it tried, in order, and why it ended."""
    contrast, ledger, tried = search_contrast(search), Ledger(), []
    while isinstance(round_ := next_round(contrast, ledger, lambda _: False, Situation(), 0), Round):
        value = round_.trials[0].processes[0].settings["batch"]
        assert isinstance(value, int)
        tried.append(value)
        ledger.add(answer(round_))
        assert len(tried) < 50, "the search has no end"
    return tried, round_


def room_for(most: int) -> Callable[[Round], RoundRecord]:
    return lambda round_: answered(round_, trains=round_.trials[0].processes[0].settings["batch"] <= most)


def failing(value: int, most: int, *, times: int = 99) -> Callable[[Round], RoundRecord]:
    """Answer as if there were room for `most`, but let `value` fail for another reason, so many times."""
    left = [times]

    def answer(round_: Round) -> RoundRecord:
        if round_.trials[0].processes[0].settings["batch"] == value and left[0]:
            left[0] -= 1
            return answered(round_, outcome=Outcome(State.FAILED, Reason("error", "InternalError: something else")))
        return room_for(most)(round_)

    return answer


def test_a_batch_is_doubled_until_there_is_no_room_and_then_bisected() -> None:
    tried, done = values_probed(Search("batch", 8, precision=FINE), room_for(21))
    assert [8, 16, 32, 24, 20, 22, 21] == tried
    assert ("found", {"batch": 21, "fails": 22}) == (done.reason.code, done.reason.numbers)


@pytest.mark.parametrize("most", [*range(1, 40), 63, 64, 65, 1000])
def test_whatever_the_room_the_largest_batch_is_found_and_no_batch_is_tried_twice(most: int) -> None:
    tried, done = values_probed(Search("batch", 8, precision=FINE), room_for(most))
    assert most == done.reason.numbers["batch"]
    assert len(tried) == len(set(tried))


def test_a_start_without_room_is_halved() -> None:
    tried, done = values_probed(Search("batch", 64, precision=FINE), room_for(3))
    assert [64, 32, 16, 8, 4, 2, 3] == tried
    assert 3 == done.reason.numbers["batch"]


def test_without_room_for_a_batch_of_one_nothing_fits() -> None:
    _, done = values_probed(Search("batch", 4), room_for(0))
    assert "nothing_fits" == done.reason.code


def test_a_search_stops_when_the_rest_is_not_worth_a_probe() -> None:
    tried, done = values_probed(Search("batch", 1024, precision=1 / 32), room_for(1600))
    assert (1600, 1632) == (done.reason.numbers["batch"], done.reason.numbers["fails"])
    assert 7 == len(tried)


def test_a_search_goes_no_farther_than_the_most() -> None:
    tried, done = values_probed(Search("batch", 8, most=20), room_for(1000))
    assert ([8, 16, 20], "found") == (tried, done.reason.code)


def test_another_failure_is_tried_again_and_forgotten_if_that_succeeds() -> None:
    tried, done = values_probed(Search("batch", 8, precision=FINE), failing(16, 20, times=1))
    assert [8, 16, 16, 32] == tried[:4]
    assert 20 == done.reason.numbers["batch"]


def test_a_batch_that_fails_twice_for_another_reason_does_not_train() -> None:
    tried, done = values_probed(Search("batch", 8, precision=FINE), failing(16, 1000))
    assert [8, 16, 16, 12] == tried[:4]
    assert 15 == done.reason.numbers["batch"]


def test_a_trial_that_fails_whatever_its_size_ends_the_search_with_its_reason() -> None:
    tried, done = values_probed(Search("batch", 8), failing(8, 1000))
    assert ([8, 8], "InternalError: something else") == (tried, done.reason.text)


def test_a_step_that_is_too_slow_to_wait_for_does_not_train() -> None:
    slow = Outcome(State.TIMED_OUT, Reason("deadline", "did not finish"), "first")
    tried, _ = values_probed(Search("batch", 8), lambda r: answered(r, outcome=slow) if r.trials[0].processes[0].settings["batch"] == 16 else room_for(99)(r))
    assert [8, 16, 12] == tried[:3]


def test_an_interrupted_probe_is_repeated_under_its_own_index() -> None:
    contrast = search_contrast(Search("batch", 8))
    first = next_round(contrast, Ledger(), lambda _: False, Situation(), 0)
    assert isinstance(first, Round)
    again = next_round(contrast, Ledger([answered(first, outcome=Outcome(State.INTERRUPTED))]), lambda _: False, Situation(), 0)
    assert isinstance(again, Round)
    assert (0, 1, 8) == (again.index, again.attempt, again.trials[0].processes[0].settings["batch"])


def test_probes_have_rounds_of_their_own() -> None:
    contrast, ledger = search_contrast(Search("batch", 8)), Ledger()
    ids = []
    while isinstance(round_ := next_round(contrast, ledger, lambda _: False, Situation(), 0), Round):
        ids.append(round_.id)
        ledger.add(room_for(21)(round_))
    assert len(ids) == len(set(ids))


def test_room_that_was_there_outweighs_a_smaller_batch_that_once_had_none() -> None:
    contrast = search_contrast(Search("batch", 8))
    shrunk = Round(contrast.id, 0, 0, (replace(contrast.trials[0], processes=(Process("lead", "m:build", {"batch": 8}),)),), Arrangement.SOLO, 0)
    larger = replace(shrunk, index=1, trials=(replace(contrast.trials[0], processes=(Process("lead", "m:build", {"batch": 16}),)),))
    assert (16, None) == Search("batch", 8).limits([answered(shrunk, trains=False), answered(larger)], "cell-a")


def test_the_next_value_follows_from_the_records_alone() -> None:
    assert 8 == next_value(Search("batch", 8), [], "cell-a")


# ---------------------------------------------------------------- what is measured at the largest batch


def at_largest() -> Contrast:
    trials = tuple(Trial(f"cell-{name}", f"cell-{name}", (Process("lead", "m:build", {"batch": LARGEST}),)) for name in ("a", "b"))
    return make_contrast(id="duet", trials=trials, arrangement=Arrangement.TURNS_OF_TRIALS)


def plan_with(*contrasts: Contrast) -> Plan:
    return Plan("full", 0.01, False, 0, {}, contrasts, (), (), ())


def rooms_plan() -> Plan:
    return plan_with(at_largest(), search_contrast(Search("batch", 8)), search_contrast(Search("batch", 8), "search-cell-b", "cell-b"))


def carried_out(plan: Plan, rooms: dict[str, int]) -> tuple[Round, dict[str, Reason]]:
    """Answer every probe until something else is asked for."""
    ledger, closed = Ledger(), {}
    for _ in range(50):
        answer = next_of_all(plan, ledger, lambda _: False, Situation(), closed)
        assert isinstance(answer, Round)
        if not answer.contrast.startswith("search-"):
            return answer, closed
        ledger.add(room_for(rooms[answer.contrast])(answer))
    raise AssertionError("the searches have no end")


def test_arms_at_their_largest_batch_are_measured_once_it_is_found_each_at_its_own() -> None:
    answer, closed = carried_out(rooms_plan(), {"search-cell-a": 10, "search-cell-b": 24})
    assert ("duet", Arrangement.TURNS_OF_TRIALS) == (answer.contrast, answer.arrangement)
    assert [10, 24] == [trial.processes[0].settings["batch"] for trial in answer.trials]
    assert "found" == closed["search-cell-a"].code


def test_arms_whose_largest_batch_was_not_found_are_closed_with_the_reason() -> None:
    plan, ledger, closed = rooms_plan(), Ledger(), {}
    while isinstance(answer := next_of_all(plan, ledger, lambda _: False, Situation(), closed), Round):
        assert answer.contrast.startswith("search-")
        ledger.add(room_for(0 if answer.contrast == "search-cell-a" else 8)(answer))
    assert "nothing_fits" == closed["duet"].code


def test_arms_that_wait_for_a_search_the_budget_has_no_time_for_are_named_with_it() -> None:
    closed: dict[str, Reason] = {}
    answer = next_of_all(rooms_plan(), Ledger(), lambda _: False, Situation(time_left_s=1.0), closed)
    assert isinstance(answer, Done)
    assert {"duet": "budget", "search-cell-a": "budget", "search-cell-b": "budget"} == {name: reason.code for name, reason in closed.items()}


# ---------------------------------------------------------------- from a case to its searches


def gpu_bench(**gpu: Any) -> Any:
    return make_bench(machine=make_machine(gpus=(make_gpu(**gpu),)), device="gpu")


def plan_of(case: Any, bench: Any = None, request: Request | None = None) -> Plan:
    return make_plan([make_claim(cases=[case])], make_sweep(), bench or gpu_bench(), [], request or Request())


def test_a_case_about_the_largest_batch_searches_for_that_of_each_arm() -> None:
    plan = plan_of(make_case(measure="largest_batch", driver=Driver.ONCE, band=None, sizes={}))
    found = {contrast.id: contrast for contrast in plan.contrasts if contrast.search}
    assert 2 == len(found)
    assert {term.contrast for term in plan.claims[0].cases[0].estimand.terms} == set(found)
    assert {("probe", 128, LARGEST)} == {(c.trials[0].call, c.search.start, c.trials[0].processes[0].settings["batch"]) for c in found.values() if c.search}


def test_arms_at_their_largest_batch_bring_their_searches_and_take_turns_as_trials() -> None:
    plan = plan_of(make_case(sizes={"batch": LARGEST}, prove=False))
    (duet,) = [contrast for contrast in plan.contrasts if contrast.purpose is Purpose.CLAIM and not contrast.search]
    assert Arrangement.TURNS_OF_TRIALS is duet.arrangement
    assert {trial.cell for trial in duet.trials} == {contrast.trials[0].cell for contrast in plan.contrasts if contrast.search}


def test_a_search_is_shared_by_all_who_ask_for_it() -> None:
    cases = [make_case(id="rate", sizes={"batch": LARGEST}, prove=False), make_case(id="size", measure="largest_batch", driver=Driver.ONCE, sizes={})]
    plan = make_plan([make_claim(cases=cases)], make_sweep(), gpu_bench(), [], Request())
    assert 2 == sum(contrast.search is not None for contrast in plan.contrasts)


def test_the_largest_batch_can_be_asked_for_by_hand() -> None:
    plan = plan_of(make_case(prove=False), request=Request(sizes={"batch": LARGEST}))
    assert 2 == sum(contrast.search is not None for contrast in plan.contrasts)
    assert "sizes chosen by hand: batch max" == plan.claims[0].cases[0].why_reading


def test_a_batch_chosen_by_hand_does_not_end_a_search_for_the_largest() -> None:
    plan = plan_of(make_case(measure="largest_batch", driver=Driver.ONCE, sizes={}), request=Request(sizes={"batch": 4}))
    assert 2 == sum(contrast.search is not None for contrast in plan.contrasts)


def test_on_a_cpu_without_a_memory_limit_no_largest_batch_is_looked_for() -> None:
    claim = plan_of(make_case(measure="largest_batch", driver=Driver.ONCE, sizes={}), bench=make_bench()).claims[0]
    assert claim.not_testable is not None
    assert "needs_memory_limit" == claim.not_testable.code


def test_on_a_cpu_a_memory_limit_makes_the_search_safe() -> None:
    plan = plan_of(make_case(measure="largest_batch", driver=Driver.ONCE, sizes={"memory_limit_mib": 900}), bench=make_bench())
    assert {900 << 20} == {contrast.trials[0].processes[0].cgroup_memory_bytes for contrast in plan.contrasts if contrast.search}


def test_an_arm_with_a_batch_of_its_own_cannot_be_searched() -> None:
    arms = {"baseline": {"execution": "eager", "sizes": {"batch": 4}}, "treatment": {"execution": "graph"}}
    with pytest.raises(ConfigError, match="none of its arms may have a batch of its own"):
        plan_of(make_case(measure="largest_batch", driver=Driver.ONCE, arms=arms, sizes={}))
