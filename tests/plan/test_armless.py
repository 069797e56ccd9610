"""Facts of a machine and rules over all arms are cases too, and an arm may be a guest on the CPU of a machine with a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import ConfigError
from harness.model import LARGEST, Arrangement, Case, Cell, Driver, Plan, Purpose, Role, Rule, Trial
from harness.plan.build import Request, make_plan
from harness.plan.specs import CaseSpec, RuleSpec
from tests.plan.builders import make_bench, make_case, make_claim, make_gpu, make_machine, make_sweep, make_workload

GUEST = {"baseline": {"device": "cpu", "execution": "eager"}, "treatment": {"execution": "graph"}}


def gpu_bench(**changes: Any) -> Any:
    machine = make_machine(gpus=(make_gpu(cuda_cores=6912),), cpu_physical_cores=64, **changes)
    workloads = {"resnet50": make_workload(), "feeder": make_workload(name="feeder", computes=False)}
    return make_bench(machine=machine, device="gpu", workloads=workloads)


def plan_of(*claims: Any, bench: Any = None, **request: Any) -> Plan:
    return make_plan(list(claims), make_sweep(), bench or gpu_bench(), [], Request(**request))


def make_rule(**changes: Any) -> CaseSpec:
    rule = RuleSpec(name=Rule.ALARM_PRECISION, busy=0.7, gain=1.1)
    return make_case(**({"id": "rule", "form": "rule", "rule": rule, "arms": {}, "band": (1.0, None), "sizes": {}} | changes))


def make_stated(**changes: Any) -> CaseSpec:
    return make_case(
        **({"id": "stated", "form": "stated", "measure": "gpu_cuda_cores", "role": Role.FACT, "arms": {}, "band": None, "sizes": {}} | changes)
    )


def only_case(plan: Plan, claim: int = 0) -> Case:
    (case,) = plan.claims[claim].cases
    return case


def arms_of(case: Case) -> tuple[str, ...]:
    assert case.over is not None
    return case.over.cells


def trials_of(plan: Plan, purpose: Purpose = Purpose.CLAIM) -> list[Trial]:
    return [trial for contrast in plan.contrasts if contrast.purpose is purpose for trial in contrast.trials]


# ---------------------------------------------------------------- rules over arms


def test_a_rule_is_about_the_arms_that_are_compared_in_training_on_the_gpu() -> None:
    compared = make_claim(id="compared")
    alone = make_claim(id="alone", cases=[make_case(form="level", arms={"treatment": {"precision": "mixed_float16"}}, band=None, role=Role.READING)])
    feeding = make_claim(id="feeding", cases=[make_case(workload="feeder")])
    guest = make_claim(id="guest", cases=[make_case(arms=GUEST)])
    plan = plan_of(make_claim(id="util", cases=[make_rule()]), compared, alone, feeding, guest)
    arms = [plan.cells[cell] for cell in arms_of(only_case(plan))]
    assert {("gpu", "resnet50", "eager", 32), ("gpu", "resnet50", "graph", 32)} == {
        (cell.device, cell.workload, cell.levels["execution"], cell.sizes["batch"]) for cell in arms
    }
    assert {"fp32"} == {cell.levels["precision"] for cell in arms}


@pytest.mark.parametrize("arrangement", [Arrangement.TURNS_OF_TRIALS, Arrangement.SOLO])
def test_trials_that_run_as_a_whole_are_arms_of_a_rule_and_jobs_are_none(arrangement: Arrangement) -> None:
    whole = make_claim(id="whole", cases=[make_case(arrangement=arrangement)])
    jobs = make_claim(id="jobs", cases=[make_case(driver=Driver.JOB, arrangement=Arrangement.TURNS_OF_TRIALS, sizes={"batch": 1})])
    plan = plan_of(make_claim(id="util", cases=[make_rule()]), whole, jobs)
    assert {32} == {plan.cells[cell].sizes["batch"] for cell in arms_of(only_case(plan))}


def test_arms_at_the_largest_batch_that_fits_are_none_of_a_rule_s() -> None:
    largest = make_claim(id="largest", cases=[make_case(sizes={"batch": LARGEST})])
    plan = plan_of(make_claim(id="util", cases=[make_rule()]), make_claim(), largest)
    assert {32} == {plan.cells[cell].sizes["batch"] for cell in arms_of(only_case(plan))}


def test_a_rule_measures_nothing_itself() -> None:
    plan = plan_of(make_claim(id="util", cases=[make_rule()]), make_claim())
    assert () == only_case(plan).estimand.terms
    assert {trial.cell for trial in trials_of(plan)} == set(arms_of(only_case(plan)))


def test_a_rule_without_arms_cannot_be_tested() -> None:
    claim = plan_of(make_claim(id="util", cases=[make_rule()])).claims[0]
    assert claim.not_testable is not None
    assert ("no_arms", ()) == (claim.not_testable.code, claim.cases)


def test_a_rule_without_its_edge_is_refused() -> None:
    case = make_rule(rule=RuleSpec(name=Rule.WAITING, busy=0.3))
    with pytest.raises(ConfigError, match="claim util, case rule: the rule waiting needs wait, the edge that it decides by, beside busy"):
        plan_of(make_claim(id="util", cases=[case]))


def test_a_rule_without_a_name_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(ConfigError, match="form rule needs `rule: .*known names: alarm_precision, alarm_recall, fastest_busy, waiting"):
        plan_of(make_claim(id="util", cases=[make_rule(rule=None)]))


# ---------------------------------------------------------------- facts


@pytest.mark.parametrize(("measure", "value"), [("gpu_cuda_cores", 6912.0), ("cpu_cores", 2.0), ("cpu_physical_cores", 64.0)])
def test_a_fact_holds_the_machine_s_figure(measure: str, value: float) -> None:
    case = only_case(plan_of(make_claim(cases=[make_stated(measure=measure)])))
    assert (Role.FACT, (), value) == (case.role, case.estimand.terms, case.estimand.offset)


def test_a_figure_that_the_machine_does_not_tell_is_left_out_with_the_reason() -> None:
    cases = [make_stated(id="cores"), make_stated(id="sockets", measure="cpu_sockets")]
    claim = plan_of(make_claim(cases=cases)).claims[0]
    assert ["faster.cores"] == [case.id for case in claim.cases]
    assert ("sockets: the kernel does not tell cpu sockets",) == claim.left_out


def test_a_machine_without_a_card_states_no_cuda_cores() -> None:
    claim = plan_of(make_claim(cases=[make_stated()]), bench=make_bench()).claims[0]
    assert claim.not_testable is not None
    assert "the card or its driver does not tell how many CUDA cores it has" == claim.not_testable.text


def test_a_figure_that_no_machine_states_is_refused() -> None:
    with pytest.raises(ConfigError, match="claim faster, case stated: a machine does not state 'weight'; known: gpu_cuda_cores, "):
        plan_of(make_claim(cases=[make_stated(measure="weight")]))


def test_sizes_chosen_by_hand_change_no_fact() -> None:
    case = only_case(plan_of(make_claim(cases=[make_stated()]), sizes={"batch": 1}))
    assert (Role.FACT, None) == (case.role, case.why_reading)


# ---------------------------------------------------------------- guests on the CPU


def cells_of(plan: Plan) -> dict[str, Cell]:
    return {plan.cells[trial.cell].device: plan.cells[trial.cell] for trial in trials_of(plan)}


def test_a_guest_arm_has_the_sizes_and_the_process_of_the_cpu() -> None:
    plan = plan_of(make_claim(cases=[make_case(arms=GUEST)]))
    processes = {plan.cells[trial.cell].device: trial.processes[0] for trial in trials_of(plan)}
    assert {"cpu": ((), "cpu"), "gpu": (("GPU-1",), "gpu")} == {on: (p.gpus, p.settings["device"]) for on, p in processes.items()}
    assert {"cpu": 96, "gpu": 224} == {on: cell.sizes["image"] for on, cell in cells_of(plan).items()}


def test_a_guest_arm_is_proven_against_the_reference_on_its_own_device() -> None:
    plan = plan_of(make_claim(cases=[make_case(arms=GUEST)]))
    (proof,) = plan.proofs
    proofs = {contrast.id: plan.cells[contrast.trials[0].cell].device for contrast in plan.contrasts if contrast.purpose is Purpose.PROOF}
    assert "resnet50 execution=eager on the CPU" == proof.title
    assert ["cpu"] * 3 == [proofs[name] for name in (proof.baseline, proof.perturbed, proof.treatment)]


def test_the_instrument_is_tested_on_both_devices() -> None:
    plan = plan_of(make_claim(cases=[make_case(arms=GUEST)]))
    assert {"control-gpu-turns-of-blocks": "gpu", "control-gpu-turns-of-trials": "gpu", "control-cpu-turns-of-blocks": "cpu"} == {
        contrast.id: plan.cells[contrast.trials[0].cell].device for contrast in plan.contrasts if contrast.purpose is Purpose.CONTROL
    }
    assert {"cpu", "gpu"} == {control.device for control in plan.controls}


def test_a_run_without_guests_has_no_controls_on_the_cpu() -> None:
    assert {"gpu"} == {control.device for control in plan_of(make_claim()).controls}


def test_a_guest_cannot_have_what_only_the_gpu_has() -> None:
    arms = {"baseline": {"device": "cpu", "precision": "tf32"}, "treatment": {}}
    claim = plan_of(make_claim(cases=[make_case(arms=arms)])).claims[0]
    assert claim.not_testable is not None
    assert "precision=tf32 needs a GPU: measured on the CPU by choice" == claim.not_testable.text


def test_an_arm_cannot_ask_for_a_gpu_that_is_not_measured() -> None:
    arms = {"baseline": {}, "treatment": {"device": "gpu"}}
    with pytest.raises(ConfigError, match="claim faster, case main, arm treatment: device 'gpu' cannot be asked for"):
        plan_of(make_claim(cases=[make_case(arms=arms)]), bench=make_bench())
