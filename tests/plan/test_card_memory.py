"""Neighbours on one card, shares of its memory, and a card that serves one process at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.model import Arrangement, Plan, Purpose, Reason, Scale
from harness.plan.build import Request, make_plan
from tests.plan.builders import make_bench, make_case, make_claim, make_gpu, make_machine, make_sweep


def plan_of(case: Any, **gpu: Any) -> Plan:
    bench = make_bench(machine=make_machine(gpus=(make_gpu(**gpu),)), device="gpu")
    return make_plan([make_claim(cases=[case])], make_sweep(), bench, [], Request())


def neighbours(**changes: Any) -> Any:
    defaults: dict[str, Any] = {
        "form": "level",
        "measure": "both_lived",
        "scale": Scale.EXACT,
        "arms": {"treatment": {}},
        "arrangement": Arrangement.TOGETHER,
        "crew": 2,
        "band": (1, 1),
    }
    return make_case(**(defaults | changes))


def test_neighbours_are_processes_of_one_trial_that_do_the_same() -> None:
    (contrast,) = [c for c in plan_of(neighbours()).contrasts if c.purpose is Purpose.CLAIM]
    (trial,) = contrast.trials
    lead, neighbour = trial.processes
    assert (Arrangement.TOGETHER, "lead", "neighbour", 1) == (contrast.arrangement, lead.role, neighbour.role, neighbour.rank)
    assert (lead.settings, lead.target, lead.gpus) == (neighbour.settings, neighbour.target, neighbour.gpus)


def test_whether_neighbours_live_is_asked_twice_and_needs_no_control() -> None:
    plan = plan_of(neighbours())
    assert [(2,)] == [contrast.looks for contrast in plan.contrasts]
    assert () == plan.controls


def test_a_pair_and_a_single_process_of_the_same_cell_are_different_comparisons() -> None:
    bench = make_bench(machine=make_machine(gpus=(make_gpu(),)), device="gpu")
    cases = [neighbours(), neighbours(id="alone", crew=1)]
    plan = make_plan([make_claim(cases=cases)], make_sweep(), bench, [], Request())
    assert [1, 2] == sorted(len(contrast.trials[0].processes) for contrast in plan.contrasts)


def not_testable(plan: Plan) -> Reason:
    reason = plan.claims[0].not_testable
    assert reason is not None
    return reason


def test_on_a_card_that_serves_one_process_at_a_time_there_are_no_neighbours() -> None:
    reason = not_testable(plan_of(neighbours(), compute_mode="exclusive_process"))
    assert ("needs_shared_card", True) == (reason.code, "exclusive_process" in reason.text)


@pytest.mark.parametrize("asked", [None, Arrangement.TURNS_OF_BLOCKS])
def test_on_a_card_that_serves_one_process_at_a_time_arms_take_turns_as_trials(asked: Arrangement | None) -> None:
    plan = plan_of(make_case(arrangement=asked), compute_mode="exclusive_process")
    claims = [contrast for contrast in plan.contrasts if contrast.purpose is Purpose.CLAIM]
    assert [Arrangement.TURNS_OF_TRIALS] == [contrast.arrangement for contrast in claims]
    assert {Arrangement.TURNS_OF_TRIALS} == {control.arrangement for control in plan.controls}


def test_on_a_cpu_a_card_s_mode_changes_nothing() -> None:
    bench = make_bench(machine=make_machine(gpus=(make_gpu(compute_mode="exclusive_process"),)))
    plan = make_plan([make_claim()], make_sweep(), bench, [], Request())
    assert Arrangement.TURNS_OF_BLOCKS in {contrast.arrangement for contrast in plan.contrasts}


def share(**changes: Any) -> Any:
    defaults: dict[str, Any] = {"form": "level", "measure": "gpu_memory_used_bytes", "scale": Scale.LOG, "arms": {"treatment": {}}, "of_card": True, "unit": "share"}
    return make_case(**(defaults | changes))


def test_bytes_become_a_share_of_the_card_s_memory() -> None:
    (case,) = plan_of(share(), memory_bytes=2**33).claims[0].cases
    assert 0.25 == pytest.approx(math.exp(math.log(2**31) + case.estimand.offset))


def test_a_card_that_does_not_tell_its_memory_has_no_shares_of_it() -> None:
    assert "needs_card_memory" == not_testable(plan_of(share(), memory_bytes=None)).code


def test_a_share_of_the_card_is_a_level_on_the_log_scale() -> None:
    with pytest.raises(ConfigError, match="of_card is for the form level on the log scale"):
        plan_of(share(scale=Scale.LINEAR))
