"""A plan holds every claim, measures equal cells once, and proves what it compares."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from harness.errors import ConfigError
from harness.model import Arrangement, ControlKind, Driver, Plan, Purpose, Role, Statistic
from harness.plan.build import Request, make_plan
from harness.plan.specs import Factor, Level, Needs, Rung
from tests.plan.builders import make_bench, make_case, make_claim, make_factors, make_gpu, make_machine, make_sweep, make_workload


def plan_of(*claims: Any, sweep: Any = None, bench: Any = None, rungs: Any = (), request: Any = None) -> Plan:
    return make_plan(list(claims) or [make_claim()], sweep or make_sweep(), bench or make_bench(), list(rungs), request or Request())


def claim_contrasts(plan: Plan) -> list[Any]:
    return [contrast for contrast in plan.contrasts if contrast.purpose is Purpose.CLAIM]


def test_two_claims_about_the_same_cells_share_one_contrast() -> None:
    plan = plan_of(make_claim(), make_claim(id="other"))
    assert 1 == len(claim_contrasts(plan))
    assert plan.claims[0].cases[0].estimand.terms[0].contrast == plan.claims[1].cases[0].estimand.terms[0].contrast


def test_a_claim_whose_part_is_missing_stays_in_the_list_with_the_reason() -> None:
    plan = plan_of(make_claim(not_built="checkpoints", cases=[]))
    reason = plan.claims[0].not_testable
    assert reason is not None
    assert "not built yet: checkpoints" == reason.text


def test_a_level_that_the_machine_lacks_makes_the_claim_not_testable() -> None:
    case = make_case(arms={"baseline": {"precision": "fp32"}, "treatment": {"precision": "tf32"}})
    reason = plan_of(make_claim(cases=[case])).claims[0].not_testable
    assert reason is not None
    assert "precision=tf32 needs a GPU: no driver" == reason.text


def test_a_scaled_case_is_a_reading_and_says_what_was_scaled() -> None:
    case = make_case(scaled={"cpu": {"batch": 4}})
    planned = plan_of(make_claim(cases=[case]), sweep=make_sweep(sizes="scaled")).claims[0].cases[0]
    assert Role.READING is planned.role
    assert "scaled down for this sweep: batch 4 instead of 32" == planned.why_reading


def test_sizes_chosen_by_hand_make_a_judged_case_a_reading() -> None:
    planned = plan_of(request=Request(sizes={"batch": 8})).claims[0].cases[0]
    assert Role.READING is planned.role


def test_one_case_can_be_asked_for_by_name_whatever_its_sweeps() -> None:
    claim = make_claim(cases=[make_case(), make_case(id="second", sweeps=[])])
    plan = plan_of(claim, sweep=make_sweep(name="smoke", tag="smoke", preliminary=True), request=Request(only=("faster.second",)))
    assert ["faster.second"] == [case.id for case in plan.claims[0].cases]


def test_another_workload_takes_the_place_of_the_standard_one() -> None:
    plan = plan_of(request=Request(workload="tiny"))
    assert {"tiny"} == {plan.cells[trial.cell].workload for contrast in claim_contrasts(plan) for trial in contrast.trials}


def test_a_case_runs_only_in_the_sweeps_that_it_names_and_in_full() -> None:
    small = make_sweep(name="smoke", tag="smoke", preliminary=True)
    reason = plan_of(sweep=small).claims[0].not_testable
    assert reason is not None
    assert "not_in_sweep" == reason.code


def test_the_arm_that_differs_from_the_reference_is_proven() -> None:
    plan = plan_of()
    assert ["resnet50 execution=eager"] == [proof.title for proof in plan.proofs]
    assert plan.claims[0].cases[0].proofs == (plan.proofs[0].id,)


def test_a_reduced_precision_arm_is_proven_with_its_policy_at_float32_first() -> None:
    case = make_case(arms={"baseline": {}, "treatment": {"precision": "mixed_float16"}})
    proofs = plan_of(make_claim(cases=[case])).proofs
    assert ["fp32", "mixed_float16"] == [proof.precision for proof in proofs]


def test_controls_cover_each_arrangement_in_which_arms_are_compared() -> None:
    trials = make_case(id="apart", arrangement=Arrangement.TURNS_OF_TRIALS)
    plan = plan_of(make_claim(cases=[make_case(), trials]))
    found = {(control.arrangement, control.kind) for control in plan.controls}
    assert (Arrangement.TURNS_OF_BLOCKS, ControlKind.ABSENCE) in found
    assert {ControlKind.NEGATIVE, ControlKind.POSITIVE} == {kind for arrangement, kind in found if arrangement is Arrangement.TURNS_OF_TRIALS}


def test_a_plan_that_compares_nothing_has_no_controls() -> None:
    case = make_case(form="level", driver="once", arms={"treatment": {}})
    assert () == plan_of(make_claim(cases=[msgspec.convert(msgspec.to_builtins(case), type(case))])).controls


def test_the_ladder_adds_each_switch_and_leaves_each_out() -> None:
    rungs = [Rung(factor="execution", off="eager", on="graph"), Rung(factor="precision", off="fp32", on="mixed_float16")]
    total = make_case(id="ladder", form="ladder", arms={})
    plan = plan_of(make_claim(id="all", cases=[total]), sweep=make_sweep(ladder=True), rungs=rungs)
    ladder = plan.ladders[0]
    assert ("all.ladder-add-execution", "all.ladder-add-precision") == ladder.rungs
    assert ("all.ladder-without-execution", "all.ladder-without-precision") == ladder.leave_one_out
    assert "all.ladder" == ladder.total


def test_an_interaction_weighs_four_arms() -> None:
    arms = {"a1": {"precision": "mixed_float16"}, "b1": {}, "a2": {"precision": "mixed_float16", "execution": "eager"}, "b2": {"execution": "eager"}}
    plan = plan_of(make_claim(cases=[make_case(form="interaction", arms=arms)]))
    assert [1.0, -1.0, -1.0, 1.0] == [term.weight for term in plan.claims[0].cases[0].estimand.terms]
    assert 4 == len(claim_contrasts(plan)[0].trials)


def test_contrasts_are_ranked_by_what_hangs_on_them() -> None:
    cases = [make_case(), make_case(id="beside", sizes={"batch": 1}), make_case(id="reading", role=Role.READING, sizes={"batch": 2})]
    plan = plan_of(make_claim(cases=cases, decide="case", deciding_case="main"))
    assert [0, 1, 2] == [contrast.priority for contrast in claim_contrasts(plan)]


def test_a_contrast_counts_the_claims_whose_verdicts_hang_on_it_and_no_readings() -> None:
    judged = [make_claim(id=name) for name in ("one", "two")]
    reading = make_claim(id="three", cases=[make_case(role=Role.READING, band=None), make_case(id="other", sizes={"batch": 1})])
    assert [2, 1] == [contrast.decides for contrast in claim_contrasts(plan_of(*judged, reading))]


def test_a_slope_reads_one_contrast_for_each_size_with_least_squares_weights() -> None:
    plan = plan_of(make_claim(cases=[make_case(form="slope", over={"batch": [1, 2, 4]})]))
    weights = [term.weight for term in plan.claims[0].cases[0].estimand.terms]
    assert [-0.5, 0.5, 0.0, 0.0, 0.5, -0.5] == pytest.approx(weights)
    assert 3 == len(claim_contrasts(plan))


def test_a_slope_shows_the_ratio_at_each_of_its_sizes() -> None:
    plan = plan_of(make_claim(cases=[make_case(form="slope", over={"batch": [1, 2]})]))
    assert ["faster.main", "faster.main-batch1", "faster.main-batch2"] == [case.id for case in plan.claims[0].cases]
    assert plan.claims[0].cases[1].estimand.terms[0].contrast == plan.claims[0].cases[0].estimand.terms[0].contrast


def test_a_size_asked_for_by_hand_leaves_a_slope_its_points() -> None:
    plan = plan_of(make_claim(cases=[make_case(form="slope", over={"batch": [1, 2]})]), request=Request(sizes={"batch": 32}))
    measured = {trial.id for contrast in claim_contrasts(plan) for trial in contrast.trials}
    assert {1, 2} == {plan.cells[cell].sizes["batch"] for cell in measured}
    assert measured == {term.trial for case in plan.claims[0].cases for term in case.estimand.terms}


def test_tf32_is_proven_in_fp32_as_well() -> None:
    case = make_case(arms={"baseline": {"execution": "eager"}, "treatment": {"execution": "eager", "precision": "tf32"}})
    bench = make_bench(machine=make_machine(gpus=(make_gpu(),)), device="gpu")
    assert ["fp32", "tf32"] == sorted(proof.precision for proof in plan_of(make_claim(cases=[case]), bench=bench).proofs)


def test_a_total_takes_the_levels_that_it_names_beside_the_ladder() -> None:
    rungs = [Rung(factor="execution", off="eager", on="graph")]
    total = make_case(form="ladder_total", arms={"treatment": {"precision": "mixed_float16"}})
    plan = plan_of(make_claim(cases=[total]), rungs=rungs)
    levels = [plan.cells[term.trial].levels for term in plan.claims[0].cases[0].estimand.terms]
    assert [("graph", "mixed_float16"), ("eager", "fp32")] == [(found["execution"], found["precision"]) for found in levels]
    assert () == plan.ladders


def test_an_unknown_claim_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"only=\[fastr\]: there is no such claim \(did you mean faster\?\)"):
        plan_of(request=Request(only=("fastr",)))


def test_an_unknown_level_in_a_claim_is_refused_with_its_place() -> None:
    case = make_case(arms={"baseline": {"execution": "eagr"}, "treatment": {}})
    with pytest.raises(ConfigError, match=r"claim faster, case main, arm baseline: factor execution has no level 'eagr' \(did you mean 'eager'\?\)"):
        plan_of(make_claim(cases=[case]))


def test_levels_that_contradict_each_other_are_refused() -> None:
    case = make_case(arms={"baseline": {"execution": "eager", "input": "feed"}, "treatment": {}})
    with pytest.raises(ConfigError, match="input=feed with execution=eager contradict"):
        plan_of(make_claim(cases=[case]))


def test_a_claim_about_other_hardware_is_carried_over() -> None:
    assert plan_of(make_claim(exact_hardware={"gpu": "A100"})).claims[0].carried_over


def test_the_same_plan_has_the_same_ids_everywhere() -> None:
    assert plan_of() == plan_of()


def test_a_level_brings_its_environment_to_the_worker() -> None:
    trial = next(t for c in claim_contrasts(plan_of()) for t in c.trials if t.processes[0].settings["execution"] == "graph")
    assert {"SOME": "1"} == trial.processes[0].env


def test_a_claim_that_needs_more_than_the_machine_has_says_so() -> None:
    reason = plan_of(make_claim(needs=Needs(gpus=8))).claims[0].not_testable
    assert reason is not None
    assert "needs 8 GPUs: 0 found" == reason.text


# ---------------------------------------------------------------- deliveries


def bench_with_inputs(**changes: Any) -> Any:
    levels = {"synthetic": Level(), "tfdata": Level(delivers=True), "loop": Level(delivers=True), "feed": Level(delivers=True, arithmetic=True)}
    factors = make_factors() | {"input": Factor(arithmetic=False, default="synthetic", levels=levels)}
    pipeline = make_workload(name="pipeline", target="m:pipe", computes=False, proof={"batch": 2})
    job = make_workload(name="job", target="m:job", proven_as="resnet50")
    return make_bench(factors=factors, workloads={"resnet50": make_workload(), "pipeline": pipeline, "job": job}, **changes)


def proofs_between(baseline: dict[str, Any], treatment: dict[str, Any], **case: Any) -> list[str]:
    arms = {"baseline": baseline, "treatment": treatment}
    plan = plan_of(make_claim(cases=[make_case(arms=arms, **case)]), bench=bench_with_inputs())
    return [proof.title for proof in plan.proofs]


def test_arms_that_read_files_are_proven_to_read_the_same_samples() -> None:
    assert ["input=loop delivers what tfdata does"] == proofs_between({"input": "loop"}, {"input": "tfdata"})


def test_a_level_that_feeds_with_code_of_its_own_is_proven_to_compute_the_same_too() -> None:
    assert ["resnet50 input=feed", "input=feed delivers what tfdata does"] == proofs_between({"input": "feed"}, {"input": "tfdata"})


def test_a_pipeline_alone_is_proven_by_what_it_delivers_and_by_nothing_else() -> None:
    assert ["input=loop delivers what tfdata does"] == proofs_between({"input": "loop"}, {"input": "tfdata"}, workload="pipeline")


def test_a_job_is_proven_as_the_workload_whose_step_it_takes() -> None:
    assert ["resnet50 execution=eager"] == proofs_between(
        {"execution": "eager"}, {"execution": "graph"}, workload="job", driver=Driver.JOB, prove=True
    )


# ---------------------------------------------------------------- ladders of whole jobs

JOB_RUNGS = [Rung("input", "loop", "tfdata", job=True), Rung("execution", "eager", "graph"), Rung("precision", "fp32", "mixed_float16")]


def ladder_plan(driver: Driver) -> Plan:
    case = make_case(form="ladder", arms={}, driver=driver, workload="job", prove=False, measure="job", statistic=Statistic.TOTAL_RATE)
    return plan_of(make_claim(cases=[case]), bench=bench_with_inputs(), sweep=make_sweep(ladder=True), rungs=JOB_RUNGS)


def test_all_rungs_of_a_ladder_of_jobs_read_one_contrast() -> None:
    (contrast,) = claim_contrasts(ladder_plan(Driver.JOB))
    # off, two rungs below the top, the top, and two of three left out: the third is the rung below the top
    assert 6 == len(contrast.trials)


def test_the_rungs_of_a_ladder_of_jobs_multiply_to_its_total() -> None:
    plan = ladder_plan(Driver.JOB)
    cases = {case.id: case for case in plan.claims[0].cases}
    total: Counter[str] = Counter()
    for rung in plan.ladders[0].rungs:
        for term in cases[rung].estimand.terms:
            total[term.trial] += int(term.weight)
    whole = {term.trial: int(term.weight) for term in cases[plan.ladders[0].total].estimand.terms}
    assert whole == {trial: weight for trial, weight in total.items() if weight}


def test_rungs_that_show_in_jobs_alone_are_left_out_of_a_ladder_of_blocks() -> None:
    (ladder,) = ladder_plan(Driver.BLOCKS).ladders
    assert ["faster.main-add-execution", "faster.main-add-precision"] == list(ladder.rungs)


# ---------------------------------------------------------------- controls that may become due


def test_a_plan_of_duets_has_a_control_of_turns_of_trials_on_standby() -> None:
    controls = {c.arrangement: c.standby for c in plan_of().contrasts if c.purpose is Purpose.CONTROL}
    assert {Arrangement.TURNS_OF_BLOCKS: False, Arrangement.TURNS_OF_TRIALS: True} == controls


def test_a_control_of_an_arrangement_that_was_planned_is_not_on_standby() -> None:
    plan = plan_of(make_claim(cases=[make_case(), make_case(id="alone", arrangement=Arrangement.TURNS_OF_TRIALS)]))
    assert not any(contrast.standby for contrast in plan.contrasts)


def test_arms_that_run_once_each_have_a_control_too() -> None:
    plan = plan_of(make_claim(cases=[make_case(arrangement=Arrangement.SOLO)]))
    assert {Arrangement.SOLO} == {control.arrangement for control in plan.controls}


def cases_of(sweep: str, *only: str) -> list[str]:
    """The cases of a claim that are planned: one in all large sweeps, and a short form of it for the sweep `check`."""
    brief = make_case(id="brief", sizes={"batch": 64}, sweeps=["check"], apart=True)
    (claim,) = make_plan([make_claim(cases=[make_case(), brief])], make_sweep(name=sweep, tag=sweep), make_bench(), [], Request(only=only)).claims
    return [case.id for case in claim.cases]


@pytest.mark.parametrize(
    ("expected", "sweep", "only"),
    [
        (["faster.main"], "full", ()),
        (["faster.brief"], "check", ()),
        (["faster.main"], "full", ("faster",)),
        (["faster.brief"], "full", ("faster.brief",)),
    ],
)
def test_a_case_apart_is_measured_in_its_own_sweep_or_where_it_is_named_itself(expected: list[str], sweep: str, only: tuple[str, ...]) -> None:
    assert expected == cases_of(sweep, *only)
