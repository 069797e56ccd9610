"""What a person chooses reaches the cases that it can change, is told by them, and is refused where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import ConfigError
from harness.model import Driver, Plan, Role
from harness.plan.build import Request, make_plan
from harness.plan.by_hand import stand_ins
from harness.plan.cells import Bench
from harness.plan.specs import Factor, Level, TermSpec
from tests.plan.builders import make_bench, make_case, make_claim, make_factors, make_sweep, make_workload

PLAIN = {"graph": {}, "eager": {"execution": "eager"}}
SAVING = {"none": {"checkpoint": "none"}, "sync": {"checkpoint": "sync"}, "every_2": {"checkpoint": "sync", "sizes": {"interval_steps": 2}}}


def bench_of(**changes: Any) -> Bench:
    """A bench with a net, a job that is saved, and a stand-in; saves can be had in the job alone."""
    saves = Factor(arithmetic=False, everywhere=False, default="none", levels={"none": Level(), "sync": Level(), "async": Level()})
    workloads = {
        "resnet50": make_workload(),
        "job": make_workload(name="job", sizes={"cpu": {"steps": 24, "interval_steps": 6}}, takes=["checkpoint"]),
        "replay": make_workload(name="replay", computes=False, sizes={"cpu": {"batch": 16, "step_ms": 16, "devices": 1}}),
    }
    factors = make_factors() | {"checkpoint": saves}
    baseline = {name: factor.default for name, factor in factors.items()} | changes
    return make_bench(factors=factors, workloads=workloads, baseline=baseline)


def plan_of(*cases: Any, request: Request | None = None, **baseline: str) -> Plan:
    return make_plan([make_claim(cases=list(cases))], make_sweep(), bench_of(**baseline), [], request or Request())


def job(terms: tuple[str, str] = ("sync", "none"), **changes: Any) -> Any:
    """A case about saves, whose value is made of two of the arms SAVING."""
    weighted = [TermSpec(weight=weight, arm=arm, measure="blocked_s") for weight, arm in zip((1.0, -1.0), terms, strict=True)]
    defaults = {"form": "terms", "workload": "job", "driver": Driver.JOB, "arms": SAVING, "sizes": {}, "prove": False, "terms": weighted}
    return make_case(**{**defaults, **changes})


def intervals(plan: Plan) -> dict[str, Any]:
    """How often each arm of the first contrast of jobs is saved, by what it is asked for."""
    contrast = next(c for c in plan.contrasts if c.purpose.value == "claim")
    asked = [trial.processes[0].settings for trial in contrast.trials]
    return {name: settings["interval_steps"] for name, settings in zip(SAVING, asked, strict=True)}


def test_an_interval_reaches_the_arms_that_name_none() -> None:
    plan = plan_of(job(), request=Request(save_every=4))
    assert {"none": 4, "sync": 4, "every_2": 2} == intervals(plan)
    assert (Role.READING, "interval between saves chosen by hand: 4 steps") == (plan.claims[0].cases[0].role, plan.claims[0].cases[0].why_reading)


def test_a_case_that_reads_arms_with_intervals_of_their_own_says_nothing_of_a_chosen_one() -> None:
    plan = plan_of(job(), job(("every_2", "none"), id="own"), request=Request(save_every=4))
    assert [Role.READING, Role.JUDGED] == [case.role for case in plan.claims[0].cases]
    assert 1 == sum(contrast.purpose.value == "claim" for contrast in plan.contrasts)  # both read the same rounds


@pytest.mark.parametrize(
    "case",
    [
        job(("every_2", "none")),
        job(sizes={"interval_s": 25}),
        job(("graph", "eager"), arms=PLAIN),
        job(driver=Driver.ONCE),
    ],
    ids=["its arms name their own", "it is in seconds", "nothing is saved", "it is no job"],
)  # fmt: skip
def test_an_interval_that_no_case_takes_is_refused(case: Any) -> None:
    with pytest.raises(ConfigError, match=r"^checkpoint.interval=4: no job that sweep full measures here takes it"):
        plan_of(case, request=Request(save_every=4))


def test_an_interval_in_which_no_save_comes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^checkpoint.interval=25: the jobs of faster.main end after 24 steps, before their first save; choose at most 24$"):
        plan_of(job(), request=Request(save_every=25))


def test_a_level_that_a_workload_cannot_have_leaves_its_case_out() -> None:
    plan = plan_of(make_case(id="net"), job(("graph", "eager"), arms=PLAIN), checkpoint="async")
    assert ["faster.main"] == [case.id for case in plan.claims[0].cases]
    assert ("net: checkpoint=async cannot be had in the workload resnet50, only in job",) == plan.claims[0].left_out


def test_an_arm_that_names_such_a_level_is_left_out_too() -> None:
    reason = plan_of(make_case(arms={"baseline": {}, "treatment": {"checkpoint": "sync"}})).claims[0].not_testable
    assert reason is not None
    assert ("not_in_workload", "sync") == (reason.code, reason.numbers["level"])


@pytest.mark.parametrize("case", [make_case(), job()], ids=["its workload cannot have it", "its arms name their own"])
def test_a_switch_that_no_case_takes_is_refused(case: Any) -> None:
    with pytest.raises(ConfigError, match=r"^switch.checkpoint=async: nothing that sweep full measures here can take it, only arms of job that name no level"):
        plan_of(case, checkpoint="async")


def test_controls_are_what_they_always_are() -> None:
    plan = plan_of(job(("graph", "eager"), arms=PLAIN), checkpoint="async")
    controls = {trial.cell for contrast in plan.contrasts if contrast.purpose.value == "control" for trial in contrast.trials}
    assert {"none"} == {plan.cells[cell].levels["checkpoint"] for cell in controls}


# ---------------------------------------------------------------- stand-ins

FED = make_case(
    id="fed", title="What reaches {stand_ins}", form="level", workload="replay", band=None, role=Role.READING, sizes={}, unit="samples/s",
    arms={"treatment": {"sizes": {"devices": 8}}},
)  # fmt: skip
CHOSEN = Request(workload="replay", sizes={"step_ms": 8, "devices": 2})


def test_a_title_says_what_is_stood_in_for() -> None:
    assert "What reaches 8 stand-ins of 1000 samples a second each" == plan_of(FED).claims[0].cases[0].title


def test_a_choice_goes_before_an_arms_own_size_and_is_told() -> None:
    case = plan_of(FED, request=CHOSEN).claims[0].cases[0]
    assert ("What reaches 2 stand-ins of 2000 samples a second each", "sizes chosen by hand: step_ms 8, devices 2") == (case.title, case.why_reading)


def test_a_workload_that_trains_nothing_takes_no_nets_place() -> None:
    claim = plan_of(make_case(), FED, request=CHOSEN).claims[0]
    assert ["faster.fed"] == [case.id for case in claim.cases]
    assert ("main: is about training, and workload=replay trains nothing",) == claim.left_out


def test_a_workload_that_trains_nothing_and_that_nothing_is_about_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^workload=replay: nothing that sweep full measures here is about it, and as it trains nothing"):
        plan_of(make_case(), request=CHOSEN)


def test_sizes_of_a_stand_in_are_no_sizes_of_what_is_not_one() -> None:
    plan = plan_of(job(), FED, request=CHOSEN)
    assert ("judged", None) == (plan.claims[0].cases[0].role.value, plan.claims[0].cases[0].why_reading)


def test_a_title_that_stands_in_for_nothing_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"claim faster, case main: its title names \{stand_ins\}, but it has no step_ms above 0, devices and batch"):
        plan_of(make_case(title="What reaches {stand_ins}"))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"devices": 1, "batch": 16, "step_ms": 16}, "a stand-in of 1000 samples a second"),
        ({"devices": 3, "batch": 16, "step_ms": 12.6}, "3 stand-ins of 1270 samples a second each"),
        ({"devices": 1, "batch": 1, "step_ms": 150}, "a stand-in of 6.67 samples a second"),
        ({"devices": 1, "batch": 16, "step_ms": 0}, None),
        ({"devices": 1, "batch": 16}, None),
        ({}, None),
    ],
)
def test_stand_ins_in_words(sizes: dict[str, Any], words: str | None) -> None:
    assert words == stand_ins(sizes)
