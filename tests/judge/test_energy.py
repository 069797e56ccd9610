"""What energy each arm took: means of the rounds with their intervals, the inverse, and what is said where there is no figure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy import stats

from harness.judge import judge
from harness.judge.book import Book
from harness.judge.energy import inverse, judge_energy, per_unit
from harness.judge.stats import t_factor
from harness.model import (
    ArmEnergy,
    Arrangement,
    Estimand,
    Plan,
    Purpose,
    Reading,
    Role,
    RoundRecord,
    Scale,
    Search,
    Statistic,
    Term,
    Verdicts,
)
from tests.helpers import make_case, make_cell, make_contrast, make_estimate, make_failure, make_quads, make_record, make_trial_record
from tests.judge.builders import lost_round, plan_of

QUIET = [0.020, 0.021, 0.019]
REFUSED = "GPU 0: not supported"


def energy_rounds(
    values: Sequence[float | None], name: str = "work_per_j", unit: str = "samples/J", *, trial: str = "treatment", **changes: object
) -> list[RoundRecord]:
    """Completed rounds in which an arm has one such reading; a null comes with its reason."""
    records = [make_record(at, **changes) for at in range(len(values))]
    told = [Reading(trial, name, value, unit, reason=REFUSED if value is None else None) for value in values]
    return [replace(record, readings=(*record.readings, one)) for record, one in zip(records, told, strict=True)]


def judged(plan: Plan, records: Sequence[RoundRecord]) -> Verdicts:
    return judge(plan, records, {}.__getitem__)


def figures_of(records: Sequence[RoundRecord], plan: Plan | None = None) -> dict[tuple[str, str], ArmEnergy]:
    """(trial, measure) -> the figure, of a plan with one contrast."""
    return {(figure.trial, figure.measure): figure for figure in judge_energy(Book(plan or plan_of(), records))}


def figure(records: Sequence[RoundRecord], measure: str = "work_per_j", plan: Plan | None = None) -> ArmEnergy:
    return figures_of(records, plan)["treatment", measure]


def level(measure: str = "work_per_j") -> Estimand:
    return Estimand(Scale.LINEAR, (Term(1.0, "contrast-1", "treatment", measure, Statistic.VALUE),))


# ---------------------------------------------------------------- the interval


def test_work_per_joule_is_the_mean_of_the_rounds_with_student_s_interval():
    estimate = figure(energy_rounds(QUIET)).estimate
    low, high = stats.t.interval(1 - 0.05 / 4, df=2, loc=0.02, scale=0.001 / math.sqrt(3))

    assert (0.02, low, high) == pytest.approx((estimate.point, estimate.low, estimate.high))
    assert (3, 0.95) == (estimate.n, estimate.level)


def test_where_one_look_is_planned_it_has_all_of_alpha():
    plan = plan_of(contrasts=(replace(plan_of().contrasts[0], looks=(3,)),))
    estimate = figure(energy_rounds(QUIET), plan=plan).estimate

    assert 0.02 + 4.302653 * 0.001 / math.sqrt(3) == pytest.approx(estimate.high)


def test_a_figure_names_its_arm_and_its_unit():
    found = figure(energy_rounds(QUIET))

    assert ("contrast-1", make_cell("graph").id, "samples/J", None) == (found.contrast, found.cell, found.unit, found.reason)


def test_a_case_on_the_same_arm_has_the_same_estimate():
    case = make_case(estimand=level(), role=Role.READING, lo=None, null=None)
    records = energy_rounds([*QUIET, 0.0205, 0.0199])
    found = judged(plan_of(case), records)

    assert found.claims[0].cases[0].estimate == found.energy[0].estimate


def test_a_noisy_arm_of_another_unit_widens_a_quiet_one_by_per_cents():
    quiet, noisy = energy_rounds([0.02, 0.02, 0.02]), energy_rounds([1e9, 2e9, 3e9], unit="FLOP/J", trial="baseline")
    both = [replace(one, readings=(*one.readings, other.readings[-1])) for one, other in zip(quiet, noisy, strict=True)]
    estimate = figure(both).estimate
    pooled = math.sqrt((2 * 0.5**2 + 0.0) / 4)  # of both, as shares of their means

    assert 0.5 * pooled * 0.02 * t_factor(3, 0.05 / 4) == pytest.approx(estimate.high - 0.02)


def test_an_interval_does_not_reach_below_zero():
    assert 0.0 == figure(energy_rounds([0.01, 0.03])).estimate.low


def test_intervals_hardly_ever_miss_the_truth():
    """Four hundred arms of one truth, in three rounds each that vary by a tenth."""
    random = np.random.default_rng(7)
    contrasts = [make_contrast(f"contrast-{at}", ("treatment",), looks=(3,)) for at in range(400)]
    records = [
        replace(record, arrangement=Arrangement.SOLO)
        for contrast in contrasts
        for record in energy_rounds(
            (2.0 + 0.2 * random.normal(size=3)).tolist(), contrast=contrast.id, rates={}, trials=(make_trial_record("treatment"),)
        )
    ]
    estimates = [one.estimate for one in judge_energy(Book(plan_of(contrasts=contrasts), records)) if one.measure == "work_per_j"]

    assert 400 == len(estimates)
    assert sum(not one.low <= 2.0 <= one.high for one in estimates) <= 0.05 * 400


# ---------------------------------------------------------------- the inverse


def test_joules_for_each_unit_of_work_are_the_inverse_with_its_interval():
    found = figures_of(energy_rounds(QUIET))
    work, joules = found["treatment", "work_per_j"].estimate, found["treatment", "j_per_work"].estimate

    assert (50.0, 1 / work.high, 1 / work.low) == pytest.approx((joules.point, joules.low, joules.high))
    assert ("J/sample", pytest.approx([50.0, 1 / 0.021, 1 / 0.019])) == (found["treatment", "j_per_work"].unit, list(joules.rounds))


def test_where_the_interval_reaches_zero_the_inverse_is_open_above():
    joules = figure(energy_rounds([0.01, 0.03]), "j_per_work").estimate

    assert (50.0, None, True) == (pytest.approx(joules.point), joules.high, 0 < joules.low < 50)


@pytest.mark.parametrize("rounds", [(0.0, 2.0), (5e-324, 2.0)], ids=["nothing", "next to nothing"])
def test_there_is_no_inverse_of_nothing(rounds: tuple[float, ...]):
    assert inverse(make_estimate(1.0, 0.5, 1.5, rounds=rounds)) is None


def test_no_work_for_some_joules_has_no_inverse_and_says_so():
    found = figures_of(energy_rounds([0.0, 0.0]))

    assert (0.0, None, "no_work") == (
        found["treatment", "work_per_j"].estimate.point,
        found["treatment", "j_per_work"].estimate,
        found["treatment", "j_per_work"].reason.code,
    )


@pytest.mark.parametrize(
    ("work", "unit"), [("samples/J", "J/sample"), ("FLOP/J", "J/FLOP"), ("B/J", "J/B"), ("batches/J", "J/batch"), ("work/J", "J/work")]
)
def test_the_inverse_s_unit_is_joules_for_one(work: str, unit: str):
    assert unit == per_unit(work)


# ---------------------------------------------------------------- power


def test_power_of_the_cards_has_an_interval():
    found = figure(energy_rounds([400.0, 410.0, 390.0], "power_w", "W"), "power_w")
    high = stats.t.interval(1 - 0.05 / 4, df=2, loc=400.0, scale=10.0 / math.sqrt(3))[1]

    assert ("W", 400.0, high) == (found.unit, pytest.approx(found.estimate.point), pytest.approx(found.estimate.high))


def test_power_of_the_processors_is_their_joules_by_the_time_of_the_accepted_blocks():
    found = figure(energy_rounds([90.0, 90.0, 90.0], "host_energy_j", "J"), "host_power_w")

    assert ("W", 30.0) == (found.unit, pytest.approx(found.estimate.point))  # two blocks of half a second in each of three quads


def test_power_of_the_processors_during_a_job_is_by_the_time_of_the_job():
    job = Reading("treatment", "job", 10.0, "steps", t0_ns=0, t1_ns=2 * 10**9)
    records = [
        replace(record, arrangement=Arrangement.SOLO, quads=(), readings=(job, *record.readings))
        for record in energy_rounds([100.0, 100.0, 100.0], "host_energy_j", "J", readings=())
    ]

    assert 50.0 == pytest.approx(figure(records, "host_power_w").estimate.point)


def test_power_of_the_processors_is_not_known_of_what_was_not_timed():
    records = energy_rounds([100.0, 100.0, 100.0], "host_energy_j", "J", readings=(), quads=make_quads())
    found = figure(records, "host_power_w")

    assert (None, "not_timed") == (found.estimate, found.reason.code)


# ---------------------------------------------------------------- what there is none of


def test_one_round_has_no_interval_and_says_why():
    found = figure(energy_rounds([0.02]))

    assert (0.02, 1, 0.0, None, None) == (found.estimate.point, found.estimate.n, found.estimate.low, found.estimate.high, found.estimate.spread)
    assert "too_few_rounds" == found.reason.code


def test_an_arm_without_any_such_reading_has_no_figure():
    assert () == judge_energy(Book(plan_of(), [make_record(at) for at in range(3)]))


def test_a_run_without_rounds_has_no_figures():
    assert () == judge_energy(Book(plan_of(), []))


@pytest.mark.parametrize("measure", ["work_per_j", "j_per_work"])
def test_what_was_not_measured_in_any_round_is_null_with_the_reading_s_reason(measure: str):
    found = figure(energy_rounds([None, None, None]), measure)

    assert (None, True) == (found.estimate, found.reason.text.endswith(REFUSED))


def test_rounds_without_a_value_are_left_out():
    estimate = figure(energy_rounds([0.021, None, 0.019])).estimate

    assert (2, 0.02) == (estimate.n, pytest.approx(estimate.point))


def test_joules_of_zero_are_neither_no_watts_nor_endless_work():
    records = [
        replace(
            record,
            readings=(
                *record.readings,
                Reading("treatment", "host_work_per_j", None, "samples/J", reason="the energy counter did not grow in that time"),
            ),
        )
        for record in energy_rounds([0.0, 0.0, 0.0], "host_energy_j", "J")
    ]
    found = figures_of(records)

    assert {"host_work_per_j", "host_j_per_work", "host_power_w"} == {measure for _, measure in found}
    assert all(one.estimate is None and "did not grow" in one.reason.text for one in found.values())


def test_the_unit_is_that_of_a_round_that_knows_it():
    records = [*energy_rounds([0.02, 0.02]), replace(energy_rounds([None], unit="work/J")[0], index=2)]

    assert "samples/J" == figure(records).unit


def test_lost_rounds_do_not_count_and_too_many_of_them_are_told():
    lost = [replace(lost_round(at, outcome=make_failure()), readings=(Reading("treatment", "work_per_j", 9.0, "samples/J"),)) for at in (3, 4)]
    found = figure([*energy_rounds(QUIET), *lost])

    assert (3, pytest.approx(0.02), "unstable") == (found.estimate.n, found.estimate.point, found.reason.code)


def test_rounds_of_an_earlier_arrangement_do_not_count():
    later = [replace(record, arrangement=Arrangement.TURNS_OF_TRIALS, index=3 + record.index) for record in energy_rounds([0.03, 0.03])]

    estimate = figure([*energy_rounds(QUIET), *later]).estimate

    assert (2, 0.03) == (estimate.n, pytest.approx(estimate.point))


# ---------------------------------------------------------------- whose figures


def test_a_trial_that_is_slowed_on_purpose_says_nothing_of_its_arm():
    contrast = plan_of().contrasts[0]
    slowed = replace(contrast, trials=tuple(replace(trial, ghost_every=10) for trial in contrast.trials))

    assert {} == figures_of(energy_rounds(QUIET), plan_of(contrasts=(slowed,)))


@pytest.mark.parametrize(
    "changes", [{"purpose": Purpose.CONTROL}, {"purpose": Purpose.PROFILE}, {"search": Search("batch")}], ids=["control", "profile", "search"]
)
def test_what_is_not_measured_for_a_claim_or_is_of_many_sizes_has_no_figure(changes: dict[str, object]):
    plan = plan_of(contrasts=(replace(plan_of().contrasts[0], **changes),))

    assert {} == figures_of(energy_rounds(QUIET), plan)


def test_a_cell_of_several_contrasts_has_figures_of_each():
    contrasts = tuple(make_contrast(name, ("treatment",)) for name in ("one", "two"))
    records = [*energy_rounds([0.02] * 3, contrast="one"), *energy_rounds([0.03] * 3, contrast="two")]
    found = [one for one in judge_energy(Book(plan_of(contrasts=contrasts), records)) if one.measure == "work_per_j"]

    assert [("one", 0.02), ("two", 0.03)] == [(one.contrast, pytest.approx(one.estimate.point)) for one in found]
    assert 1 == len({one.cell for one in found})


# ---------------------------------------------------------------- the file


def test_figures_survive_strict_json():
    found = judged(plan_of(), [*energy_rounds([0.02]), replace(energy_rounds([None])[0], index=1)])

    assert found.energy
    assert found == msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(found), allow_nan=False)), Verdicts)


def test_figures_are_no_verdicts():
    with_figures, without = judged(plan_of(), energy_rounds(QUIET)), judged(plan_of(), [make_record(at) for at in range(3)])

    assert (without.judged, without.expected_wrong, without.holm) == (with_figures.judged, with_figures.expected_wrong, with_figures.holm)
