"""Jobs that go on for a time: how long in a sweep that fills its budget, what they cost in the plan, and where they run."""

from __future__ import annotations

from typing import Any

import pytest

from harness.config import make_bench as real_bench
from harness.config import read_settings, to_plan
from harness.errors import ConfigError
from harness.model import Deadlines, Driver, Plan, Purpose, Role
from harness.plan.build import Request, make_plan
from harness.plan.specs import Expected
from tests.plan.builders import make_bench, make_case, make_claim, make_gpu, make_machine, make_sweep, make_workload

SOAKING = make_workload(name="soaking", sizes={"cpu": {"lasts_s": 600}, "gpu": {"lasts_s": 600}}, expected={"cpu": Expected(start_s=12, step_s=0.7)})
LONG = make_case(
    form="level", workload="soaking", driver=Driver.JOB, arms={"treatment": {}}, sizes={}, band=None, role=Role.READING, sweeps=["soak"], apart=True
)


def plan_of(*, budget_s: float | None = None, case: Any = LONG, only: tuple[str, ...] = (), **sweep: Any) -> Plan:
    told = {"name": "soak", "tag": "soak", "looks": (3,), "fills_budget": True, **sweep}
    bench = make_bench(workloads={"resnet50": make_workload(), "soaking": SOAKING})
    return make_plan([make_claim(cases=[case])], make_sweep(**told), bench, [], Request(only=only, budget_s=budget_s))


def lasts_s(plan: Plan) -> Any:
    (cell,) = [cell for cell in plan.cells.values() if cell.workload == "soaking"]
    return cell.sizes["lasts_s"]


@pytest.mark.parametrize(("budget_s", "each_s"), [(1800.0, 522), (5400.0, 1602), (120.0, 18)])
def test_the_rounds_of_the_first_look_share_the_budget_less_their_starts_and_the_report(budget_s, each_s):
    assert each_s == lasts_s(plan_of(budget_s=budget_s))


def test_all_of_it_fits_into_the_budget_as_planned():
    plan = plan_of(budget_s=1800.0)
    (contrast,) = plan.contrasts
    assert (522 + 12, True) == (contrast.expected_round_s, 3 * contrast.expected_round_s < 1800 - 20)


def test_a_budget_that_leaves_no_time_is_refused_and_the_least_is_named():
    with pytest.raises(ConfigError, match="give at least budget=80s") as refused:
        plan_of(budget_s=60.0)
    assert "budget=60s" in str(refused.value)
    assert lasts_s(plan_of(budget_s=80.0)) >= 5


def test_a_sweep_that_does_not_fill_its_budget_leaves_the_time_as_it_is_written():
    assert 600 == lasts_s(plan_of(budget_s=1800.0, fills_budget=False))


def test_without_a_budget_a_job_goes_on_for_the_time_that_is_written():
    assert 600 == lasts_s(plan_of())


def test_a_job_has_its_own_time_on_top_of_what_jobs_may_take():
    (contrast,) = plan_of(budget_s=1800.0).contrasts
    assert Deadlines().job_s + 522 == contrast.trials[0].deadlines.job_s


def test_a_long_case_is_left_out_of_full_and_what_measures_it_is_named():
    (claim,) = plan_of(name="full", tag="full").claims
    assert ("not_in_sweep", "+sweep=soak") == (claim.not_testable.code if claim.not_testable else None, claim.makes_testable)


def test_a_long_case_runs_in_full_where_it_is_asked_for():
    (claim,) = plan_of(name="full", tag="full", only=("faster",)).claims
    assert ["faster.main"] == [case.id for case in claim.cases]


# ---------------------------------------------------------------- the sweep as it is written


def soak_plan(device: str, *arguments: str) -> Plan:
    settings = read_settings(["+sweep=soak", *arguments])
    return to_plan(settings, real_bench(settings, make_machine(gpus=(make_gpu(),) if device == "gpu" else ())))


@pytest.mark.parametrize(("device", "judged"), [("cpu", {"soak.throughput_cpu"}), ("gpu", {"soak.throughput", "soak.sm_clock"})])
def test_a_soak_is_one_comparison_on_either_device(device, judged):
    plan = soak_plan(device)
    assert judged == {case.id for claim in plan.claims for case in claim.cases if case.role is Role.JUDGED}
    (contrast,) = [contrast for contrast in plan.contrasts if contrast.purpose is Purpose.CLAIM]
    assert (Driver.JOB, (3,)) == (contrast.trials[0].driver, contrast.looks)


def test_half_an_hour_is_three_soaks_of_eight_minutes_or_so():
    (cell,) = [cell for cell in soak_plan("gpu").cells.values() if cell.workload == "soak"]
    assert 480 <= cell.sizes["lasts_s"] <= 520


def test_a_soak_is_not_part_of_full():
    settings = read_settings(["+sweep=full"])
    plan = to_plan(settings, real_bench(settings, make_machine()))
    assert "soak" not in {cell.workload for cell in plan.cells.values()}
