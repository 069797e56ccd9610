"""One look inside each workload that is trained: planned only where it is asked for, before what is timed, and read by no case."""

from __future__ import annotations

from typing import Any

from harness.model import Arrangement, Contrast, Driver, Plan, Purpose, Round
from harness.plan.build import Request, make_plan
from harness.plan.outlook import overhead_rows
from harness.plan.study import Ledger, Situation, next_of_all
from tests.plan.builders import make_bench, make_case, make_claim, make_record, make_sweep, make_workload

PROFILED = Request(profile=True)


def plan_of(*claims: Any, request: Request = PROFILED, **workload: Any) -> Plan:
    """`workload` are fields of the one called tiny."""
    workloads = {"resnet50": make_workload(), "tiny": make_workload(name="tiny", **workload)}
    return make_plan(list(claims) or [make_claim()], make_sweep(), make_bench(workloads=workloads), [], request)


def profiles(plan: Plan) -> list[Contrast]:
    return [contrast for contrast in plan.contrasts if contrast.purpose is Purpose.PROFILE]


def test_without_being_asked_for_nothing_is_profiled() -> None:
    assert [] == profiles(plan_of(request=Request()))


def test_each_workload_is_profiled_once() -> None:
    other = make_claim(id="other", cases=[make_case(id="one"), make_case(id="two", workload="tiny")])
    assert ["profile-resnet50", "profile-tiny"] == [contrast.id for contrast in profiles(plan_of(make_claim(), other))]


def test_the_arm_without_a_switch_thrown_is_the_one_that_is_profiled() -> None:
    plan = plan_of()
    (contrast,) = profiles(plan)
    (trial,) = contrast.trials
    assert {"execution": "graph", "input": "synthetic", "precision": "fp32"} == plan.cells[trial.cell].levels


def test_a_profile_has_a_cell_that_nothing_timed_shares() -> None:
    plan = plan_of()
    timed = {trial.cell for contrast in plan.contrasts if contrast.purpose is not Purpose.PROFILE for trial in contrast.trials}
    assert set() == timed & {trial.cell for contrast in profiles(plan) for trial in contrast.trials}


def test_a_profile_is_one_call_of_its_own_in_a_process_of_its_own() -> None:
    (contrast,) = profiles(plan_of())
    (trial,) = contrast.trials
    assert (Arrangement.SOLO, (1,), Driver.ONCE, "profile") == (contrast.arrangement, contrast.looks, trial.driver, trial.call)


def test_no_case_reads_a_profile() -> None:
    plan = plan_of()
    read = {term.contrast for claim in plan.claims for case in claim.cases for term in case.estimand.terms}
    assert set() == read & {contrast.id for contrast in profiles(plan)}


def test_what_computes_nothing_or_runs_without_tensorflow_is_not_profiled() -> None:
    tiny = make_claim(cases=[make_case(workload="tiny", prove=False)])
    assert ["profile-tiny"] == [contrast.id for contrast in profiles(plan_of(tiny))]
    assert [] == profiles(plan_of(tiny, computes=False))
    assert [] == profiles(plan_of(tiny, runtime="host"))


def test_what_is_not_timed_in_blocks_is_not_profiled() -> None:
    case = make_case(driver=Driver.ONCE, measure="traces", prove=False)
    assert [] == profiles(plan_of(make_claim(cases=[case])))


def test_profiles_come_after_proofs_and_before_what_is_timed() -> None:
    plan, ledger, order = plan_of(), Ledger(), []
    while Purpose.CLAIM not in order:
        answer = next_of_all(plan, ledger, lambda _: False, Situation(), {})
        assert isinstance(answer, Round)
        order.append(next(contrast.purpose for contrast in plan.contrasts if contrast.id == answer.contrast))
        ledger.add(make_record(contrast=answer.contrast, index=answer.index, arrangement=answer.arrangement))
    assert [Purpose.CONTROL, Purpose.PROOF, Purpose.PROFILE, Purpose.CLAIM] == list(dict.fromkeys(order))
    assert 1 == order.count(Purpose.PROFILE)


def test_the_plan_says_what_profiles_cost() -> None:
    assert 2 == len(overhead_rows(plan_of(request=Request())))
    what, rounds, seconds = overhead_rows(plan_of())[-1]
    assert ("profiles: where does a step's time go?", 1) == (what, rounds)
    assert seconds > 0
