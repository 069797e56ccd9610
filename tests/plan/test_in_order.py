"""A sweep that goes in order measures what stands first in its list first; another one goes by what decides most for its time."""

from __future__ import annotations

from typing import Any

from harness.config import make_bench as real_bench
from harness.config import read_settings, to_plan
from harness.model import Arrangement, Plan, Purpose, Reason, Role, Round
from harness.plan.build import Request, make_plan
from harness.plan.specs import Expected
from harness.plan.study import Ledger, Situation, next_of_all
from tests.plan.builders import (
    make_bench,
    make_case,
    make_claim,
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


def measured(plan: Plan) -> list[str]:
    """Carry out a plan whose comparisons are settled at their first look; returns its contrasts in the order in which they were begun."""
    ledger, order = Ledger(), []
    closed: dict[str, Reason] = {}
    while isinstance(answer := next_of_all(plan, ledger, lambda _: True, Situation(), closed), Round):
        order.append(answer.contrast)
        trials = tuple(make_trial_record(trial.cell, 0) for trial in answer.trials)
        ledger.add(make_record(contrast=answer.contrast, index=answer.index, arrangement=answer.arrangement, trials=trials))
    return list(dict.fromkeys(order))


def test_in_order_proofs_come_right_before_the_first_claim_that_needs_them() -> None:
    plan = plan_of(["decides", "informs"], in_order=True)
    order = measured(plan)
    early, late = ([order.index(proof.treatment) for proof in plan.proofs if ("mixed" in proof.title) is mixed] for mixed in (False, True))
    assert max(early) < order.index("decides.main") < min(late)
    assert max(late) < order.index("informs.look")


def test_in_order_only_the_first_arrangement_has_its_control_before_it_is_needed() -> None:
    told = [make_claim(id="one"), make_claim(id="two", cases=[make_case(id="alone", arrangement=Arrangement.SOLO, sizes={"batch": 64})])]
    plan = make_plan(told, make_sweep(claims=["one", "two"], in_order=True), make_bench(), [], Request())
    expected = ["control-cpu-turns-of-blocks", "one.main", "two.alone", "control-cpu-solo"]
    assert expected == [name for name in measured(plan) if not name.startswith("proof-")]


# ---------------------------------------------------------------- make gpu-check


def gpu_check(device: str) -> Plan:
    settings = read_settings(["+sweep=gpu_check"])
    return to_plan(settings, real_bench(settings, make_machine(gpus=(make_gpu(),) if device == "gpu" else ())))


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


def test_gpu_check_ends_before_eight_minutes_are_over_and_begins_with_the_doctor() -> None:
    settings = read_settings(["+sweep=gpu_check"])
    assert settings.sweep is not None
    assert (420.0, True) == (settings.budget_s, settings.sweep.doctor)


def test_gpu_check_runs_on_a_cpu_as_far_as_that_goes() -> None:
    measured = {claim.id for claim in gpu_check("cpu").claims if claim.not_testable is None}
    assert {"graph-speedup", "sync-stall", "async-free", "tfdata-fixes"} <= measured
