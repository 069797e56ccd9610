"""A sweep that goes in order measures what stands first in its list first; another one goes by what decides most for its time. And what the sweeps that
promise to be short measure in that time."""

from __future__ import annotations

from typing import Any

import pytest

from harness.config import make_bench as real_bench
from harness.config import read_settings, to_plan
from harness.model import Arrangement, Plan, Purpose, Reason, Role, Round, Search
from harness.plan.build import Request, make_plan
from harness.plan.outlook import total_seconds
from harness.plan.specs import Expected
from harness.plan.study import REPORT_RESERVE_S, Ledger, Situation, next_of_all
from tests.plan.builders import (
    make_bench,
    make_case,
    make_claim,
    make_contrast,
    make_gpu,
    make_machine,
    make_record,
    make_sweep,
    make_trial_record,
    make_workload,
)


def first_of(plan: Plan, *, without: tuple[str, ...] = ()) -> str:
    """The contrast of a claim that is measured first, of those that are not left out."""
    closed = {c.id: Reason("aside", "") for c in plan.contrasts if c.purpose is not Purpose.CLAIM or c.id in without}
    answer = next_of_all(plan, Ledger(), lambda _: False, Situation(), closed)
    assert isinstance(answer, Round)
    return answer.contrast


def plan_of(claims: Any, **sweep: Any) -> Plan:
    reading = make_case(
        id="look", role=Role.READING, band=None, arms={"baseline": {"precision": "fp32"}, "treatment": {"precision": "mixed_float16"}}
    )
    told = [make_claim(id="decides", cases=[make_case()]), make_claim(id="informs", cases=[reading])]
    return make_plan(told, make_sweep(claims=claims, **sweep), make_bench(), [], Request())


def test_what_stands_first_in_the_list_is_measured_first() -> None:
    assert "informs.look" == first_of(plan_of(["informs", "decides"], in_order=True))
    assert "decides.main" == first_of(plan_of(["decides", "informs"], in_order=True))


def test_without_an_order_what_decides_goes_first() -> None:
    assert "decides.main" == first_of(plan_of(["informs", "decides"]))


def test_a_comparison_that_two_claims_read_stands_where_the_first_of_them_does() -> None:
    shared = [make_claim(id=name, cases=[make_case(id=f"of_{name}")]) for name in ("one", "two")]
    other = make_claim(id="between", cases=[make_case(id="apart", sizes={"batch": 64})])
    plan = make_plan([*shared, other], make_sweep(claims=["two", "between", "one"], in_order=True), make_bench(), [], Request())
    assert "one.of_one" == first_of(plan)


def test_without_a_list_there_is_no_order_and_nothing_is_refused() -> None:
    assert "decides.main" == first_of(plan_of("all", in_order=True))


def test_a_place_in_the_list_outweighs_what_a_comparison_costs() -> None:
    workloads = {"resnet50": make_workload(expected={"cpu": Expected(start_s=1000.0)}), "tiny": make_workload(name="tiny")}
    told = [make_claim(id=name, cases=[make_case(workload=on)]) for name, on in (("cheap", "tiny"), ("dear", "resnet50"))]
    first = make_claim(id="first", cases=[make_case(sizes={"batch": 64})])
    sweep = make_sweep(claims=["first", "dear", "cheap"], in_order=True)
    plan = make_plan([*told, first], sweep, make_bench(workloads=workloads), [], Request())
    assert "dear.main" == first_of(plan, without=("first.main",))


def rounds_of(plan: Plan, *, time_s: float | None = None, pace: float = 1.0) -> list[str]:
    """Carry out a plan whose comparisons are settled at their first look, each round in `pace` times the planned time and in all within `time_s`; returns
    the contrasts of its rounds in their order."""
    ledger, order = Ledger(), []
    closed: dict[str, Reason] = {}
    cost_s = {contrast.id: pace * contrast.expected_round_s for contrast in plan.contrasts}
    spent_s = 0.0
    while True:
        left_s = None if time_s is None else time_s - spent_s
        answer = next_of_all(plan, ledger, lambda _: True, Situation(time_left_s=left_s), closed)
        if not isinstance(answer, Round):
            return order
        order.append(answer.contrast)
        spent_s += cost_s[answer.contrast]
        trials = tuple(make_trial_record(trial.cell, 0) for trial in answer.trials)
        arrangement = answer.arrangement
        ledger.add(make_record(contrast=answer.contrast, index=answer.index, arrangement=arrangement, trials=trials, cost_s=cost_s[answer.contrast]))


def measured(plan: Plan) -> list[str]:
    """Carry out such a plan to its end; returns its contrasts in the order in which they were begun."""
    return list(dict.fromkeys(rounds_of(plan)))


def test_in_order_everything_has_its_first_round_before_anything_has_its_second() -> None:
    order = [name for name in rounds_of(plan_of(["informs", "decides"], in_order=True)) if "." in name]
    assert ["informs.look", "decides.main"] * 3 == order


def test_in_order_proofs_come_after_the_first_rounds_and_before_the_second_of_what_needs_them() -> None:
    plan = plan_of(["decides", "informs"], in_order=True)
    order = rounds_of(plan)
    early, late = ([order.index(proof.treatment) for proof in plan.proofs if ("mixed" in proof.title) is mixed] for mixed in (False, True))
    second = {name: [at for at, other in enumerate(order) if other == name][1] for name in ("decides.main", "informs.look")}
    assert order.index("decides.main") < order.index("informs.look") < min(early)
    assert max(early) < second["decides.main"] < min(late)
    assert max(late) < second["informs.look"]


def test_in_order_a_search_goes_on_until_it_has_found_its_batch() -> None:
    search = make_contrast(id="search", place=2, looks=(8,), search=Search("batch"))
    plan = Plan("check", 0.05, True, 0, {}, (make_contrast(id="first", place=1), search), (), (), ())
    ledger = Ledger([make_record(contrast="first"), make_record(contrast="search")])
    answer = next_of_all(plan, ledger, lambda _: False, Situation(), {})
    assert isinstance(answer, Round)
    assert "search" == answer.contrast


def test_in_order_only_the_first_arrangement_has_its_control_before_the_first_rounds() -> None:
    told = [make_claim(id="one"), make_claim(id="two", cases=[make_case(id="alone", arrangement=Arrangement.SOLO, sizes={"batch": 64})])]
    plan = make_plan(told, make_sweep(claims=["one", "two"], in_order=True), make_bench(), [], Request())
    expected = ["control-cpu-turns-of-blocks", "one.main", "two.alone", "control-cpu-solo"]
    assert expected == measured(plan)[:4]


# ---------------------------------------------------------------- make gpu-check


def plan_on(device: str, sweep: str) -> Plan:
    settings = read_settings([f"+sweep={sweep}"])
    return to_plan(settings, real_bench(settings, make_machine(gpus=(make_gpu(),) if device == "gpu" else ())))


def gpu_check(device: str) -> Plan:
    return plan_on(device, "gpu_check")


def test_gpu_check_begins_with_execution_and_precision_at_two_batches() -> None:
    plan = gpu_check("gpu")
    large = first_of(plan)
    small = first_of(plan, without=(large,))
    assert ("mixed-needs-graph.same_batch", "mixed-needs-graph.small_batch") == (large, small)
    for name, batch in ((large, 128), (small, 32)):
        (contrast,) = [contrast for contrast in plan.contrasts if contrast.id == name]
        cells = [plan.cells[trial.cell] for trial in contrast.trials]
        assert {(e, p, batch) for e in ("graph", "eager") for p in ("fp32", "mixed_float16")} == {
            (cell.levels["execution"], cell.levels["precision"], cell.sizes["batch"]) for cell in cells
        }


def test_the_four_cells_are_measured_once_and_read_in_pairs_with_the_allocators_peaks() -> None:
    (claim,) = [claim for claim in gpu_check("gpu").claims if claim.id == "mixed-needs-graph"]
    measures = {(term.contrast, term.measure) for case in claim.cases for term in case.estimand.terms}
    contrasts = ("mixed-needs-graph.same_batch", "mixed-needs-graph.small_batch")
    assert {(contrast, measure) for contrast in contrasts for measure in ("throughput", "allocator_peak")} == measures


DOCTOR_S = 60.0
"""More than the doctor takes, which comes before the budget begins to count."""

PROMISED = {"control-gpu-turns-of-blocks", "mixed-needs-graph.same_batch", "mixed-needs-graph.small_batch"}
"""What must have been measured when eight minutes are over, even where everything takes as long as the plan fears. The peaks are readings of the same rounds."""


def test_gpu_check_ends_before_eight_minutes_are_over_and_begins_with_the_doctor() -> None:
    settings = read_settings(["+sweep=gpu_check"])
    assert settings.sweep is not None
    assert (420.0, True, True) == (settings.budget_s, settings.sweep.doctor, "in eight minutes" in settings.sweep.about)
    assert settings.budget_s + DOCTOR_S <= 8 * 60


@pytest.mark.parametrize(
    ("pace", "also"),
    [
        (1.0, {"tensor-core-rate.fp16", "growth-on-demand.reserved_with_growth", "growth-on-demand.reserved_without_growth"}),
        (0.6, {"feed-starves.feed_dict", "sync-stall.resnet50_briefly", "growth-on-demand.reserved_without_growth"}),
    ],
)
def test_within_its_budget_gpu_check_measures_what_it_promises_and_the_more_the_faster_things_go(pace: float, also: set[str]) -> None:
    settings = read_settings(["+sweep=gpu_check"])
    assert settings.budget_s is not None
    order = rounds_of(gpu_check("gpu"), time_s=settings.budget_s - REPORT_RESERVE_S, pace=pace)
    assert PROMISED | also <= set(order)
    assert ["control-gpu-turns-of-blocks"] * 3 + ["mixed-needs-graph.same_batch", "mixed-needs-graph.small_batch"] == order[:5]


def test_in_gpu_check_saves_are_compared_by_fewer_arms_than_elsewhere() -> None:
    plan = gpu_check("gpu")
    (contrast,) = [contrast for contrast in plan.contrasts if contrast.id == "sync-stall.resnet50_briefly"]
    assert ["none", "sync", "async"] == [plan.cells[trial.cell].levels["checkpoint"] for trial in contrast.trials]
    cases = {case.id: case for claim in plan.claims if claim.id in {"sync-stall", "async-free"} for case in claim.cases}
    judged = {"sync-stall.resnet50_briefly", "async-free.blocked_briefly", "async-free.overlap_briefly"}
    assert judged == {name for name, case in cases.items() if case.role is Role.JUDGED}
    assert {contrast.id} == {term.contrast for case in cases.values() for term in case.estimand.terms}


# ---------------------------------------------------------------- quick


@pytest.mark.parametrize(("device", "minutes", "word"), [("cpu", 10, "in about ten minutes"), ("gpu", 20, "in at most twenty")])
def test_quick_takes_as_long_as_it_says_on_either_device(device: str, minutes: int, word: str) -> None:
    settings = read_settings(["+sweep=quick"])
    assert settings.sweep is not None
    first_s, _ = total_seconds(plan_on(device, "quick"))
    assert word in settings.sweep.about
    assert first_s + REPORT_RESERVE_S <= 60 * minutes
    assert 20 * 60 == settings.budget_s


def test_on_a_gpu_quick_measures_mixed_precision_before_its_readings() -> None:
    order = list(dict.fromkeys(name for name in rounds_of(plan_on("gpu", "quick")) if "." in name))
    assert order.index("mixed-speedup.same_batch") < min(order.index(name) for name in ("graph-speedup.small", "batch-norm-fused.resnet50"))


def test_gpu_check_runs_on_a_cpu_as_far_as_that_goes() -> None:
    measured = {claim.id for claim in gpu_check("cpu").claims if claim.not_testable is None}
    assert {"graph-speedup", "sync-stall", "async-free", "tfdata-fixes"} <= measured
