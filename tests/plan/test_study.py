"""A study asks for the next round from the records alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.model import Arrangement, Done, Outcome, Plan, Process, Purpose, Reading, Reason, Round, RoundRecord, Search, State, TrialRecord
from harness.plan.study import Ledger, Situation, next_of_all, next_round, round_cost_s
from tests.plan.builders import idle_partner, make_contrast, make_record, make_trial_record


def ask(*records: Any, contrast: Any = None, settled: bool = False, situation: Any = None) -> Round | Done:
    return next_round(contrast or make_contrast(), Ledger(records), lambda _: settled, situation or Situation(), seed=0)


def completed(count: int, **changes: Any) -> list[Any]:
    return [make_record(index=index, **changes) for index in range(count)]


def test_the_first_round_of_a_contrast_is_round_zero() -> None:
    answer = ask()
    assert isinstance(answer, Round)
    assert (0, 0) == (answer.index, answer.attempt)


def test_a_settled_contrast_ends_at_a_look() -> None:
    answer = ask(*completed(3), settled=True)
    assert isinstance(answer, Done)
    assert "settled" == answer.reason.code


def test_between_two_looks_nobody_looks() -> None:
    assert isinstance(ask(*completed(4), settled=True), Round)


def test_the_last_look_ends_a_contrast_that_never_settles() -> None:
    answer = ask(*completed(12))
    assert isinstance(answer, Done)
    assert "looks_spent" == answer.reason.code


def test_a_lost_round_is_repeated_under_its_own_index() -> None:
    answer = ask(*completed(1), make_record(State.FAILED, index=1))
    assert isinstance(answer, Round)
    assert (1, 1) == (answer.index, answer.attempt)


def test_an_interrupted_round_is_always_repeated() -> None:
    answer = ask(make_record(State.INTERRUPTED, attempt=5))
    assert isinstance(answer, Round)
    assert (0, 6) == (answer.index, answer.attempt)


def test_two_failures_without_one_good_round_end_a_contrast_with_their_reason() -> None:
    answer = ask(make_record(State.INVALID), make_record(State.INVALID, attempt=1))
    assert isinstance(answer, Done)
    assert "invalid" == answer.reason.code


@pytest.mark.parametrize("search", [None, Search("batch")])
def test_what_cannot_be_had_here_is_not_tried_again(search: Search | None) -> None:
    answer = ask(make_record(State.SKIPPED), contrast=replace(make_contrast(), search=search))
    assert isinstance(answer, Done)
    assert "skipped" == answer.reason.code


def test_two_time_outs_are_a_bound() -> None:
    answer = ask(make_record(State.TIMED_OUT), make_record(State.TIMED_OUT, index=1))
    assert isinstance(answer, Done)
    assert "bound" == answer.reason.code


def test_time_outs_beside_completed_rounds_are_no_bound() -> None:
    late = [make_record(State.TIMED_OUT, index=3), make_record(State.TIMED_OUT, index=4)]
    assert isinstance(ask(*completed(3), *late), Round)


def test_rounds_that_a_later_attempt_completed_are_not_lost() -> None:
    repaired = [record for i in range(3) for record in (make_record(State.FAILED, index=i), make_record(index=i, attempt=1))]
    assert isinstance(ask(*repaired), Round)


def test_a_time_out_side_by_side_does_not_count_for_turns_of_trials() -> None:
    beside = make_record(State.TIMED_OUT, flags=(idle_partner(),))
    alone = make_record(State.TIMED_OUT, index=1, arrangement=Arrangement.TURNS_OF_TRIALS)
    assert isinstance(ask(beside, alone), Round)


def test_arms_that_ran_out_of_memory_side_by_side_take_turns_as_trials() -> None:
    trial = TrialRecord("a", "cell-a", Outcome(State.FAILED, Reason("killed", "killed", {"possibly_out_of_memory": True})))
    answer = ask(make_record(State.FAILED, trials=(trial,)))
    assert isinstance(answer, Round)
    assert Arrangement.TURNS_OF_TRIALS is answer.arrangement


def test_a_passing_dip_of_memory_throws_no_finished_round_away() -> None:
    peaks = make_record(contrast="other", trials=(make_trial_record("cell-a", 500), make_trial_record("cell-b", 500)))
    answer = ask(peaks, *completed(1), situation=Situation(free_bytes=1000))
    assert isinstance(answer, Round)
    assert Arrangement.TURNS_OF_BLOCKS is answer.arrangement


def test_a_contrast_that_later_noise_unsettles_is_opened_again() -> None:
    ledger, closed = Ledger(completed(3)), {"duet": Reason("settled", "settled after 3 rounds")}
    answer = next_of_all(make_plan(make_contrast()), ledger, lambda _: False, Situation(), closed)
    assert isinstance(answer, Round)
    assert 3 == answer.index


def test_one_time_out_asks_for_an_independent_second_one() -> None:
    answer = ask(make_record(State.TIMED_OUT))
    assert isinstance(answer, Round)
    assert (1, 0) == (answer.index, answer.attempt)


def test_more_than_a_third_of_the_rounds_lost_is_unstable() -> None:
    lost = [make_record(State.FAILED, index=i + 3) for i in range(3)]
    answer = ask(*completed(3), *lost)
    assert isinstance(answer, Done)
    assert "unstable" == answer.reason.code


def test_an_idle_partner_that_works_turns_the_duet_into_turns_of_trials() -> None:
    answer = ask(make_record(flags=(idle_partner(),)))
    assert isinstance(answer, Round)
    assert Arrangement.TURNS_OF_TRIALS is answer.arrangement


def test_rounds_of_the_old_arrangement_do_not_count_for_the_new_one() -> None:
    old = completed(3, flags=(idle_partner(),))
    assert isinstance(ask(*old, settled=True), Round)


def test_arms_that_do_not_fit_side_by_side_take_turns_as_trials() -> None:
    peaks = make_record(contrast="other", trials=(make_trial_record("cell-a", 500), make_trial_record("cell-b", 500)))
    answer = ask(peaks, situation=Situation(free_bytes=1000))
    assert isinstance(answer, Round)
    assert Arrangement.TURNS_OF_TRIALS is answer.arrangement


def on_card(contrast: str = "other", *, name: str = "allocator_peak", arrangement: Arrangement = Arrangement.TURNS_OF_BLOCKS) -> RoundRecord:
    """Return a round whose two trials told of 500 bytes of a card's memory each."""
    readings = tuple(Reading(cell, name, 500.0, "bytes") for cell in ("cell-a", "cell-b"))
    trials = tuple(make_trial_record(cell, 0) for cell in ("cell-a", "cell-b"))
    return make_record(contrast=contrast, trials=trials, readings=readings, arrangement=arrangement)


@pytest.mark.parametrize(
    ("record", "free_bytes", "expected"),
    [
        (on_card(), 1000, Arrangement.TURNS_OF_TRIALS),
        (on_card(), 1250, Arrangement.TURNS_OF_BLOCKS),  # 1000 bytes are exactly four fifths
        (on_card(), None, Arrangement.TURNS_OF_BLOCKS),
        (on_card(name="gpu_memory_used_bytes", arrangement=Arrangement.SOLO), 1000, Arrangement.TURNS_OF_TRIALS),
        (on_card(name="gpu_memory_used_bytes"), 1000, Arrangement.TURNS_OF_BLOCKS),  # side by side, it is both arms' memory
        (on_card("duet"), 1000, Arrangement.TURNS_OF_BLOCKS),  # they have fitted before
    ],
)
def test_arms_that_do_not_fit_on_the_card_side_by_side_take_turns_as_trials(
    record: RoundRecord, free_bytes: int | None, expected: Arrangement
) -> None:
    answer = ask(record, situation=Situation(free_gpu_bytes=free_bytes))
    assert isinstance(answer, Round)
    assert expected is answer.arrangement


def test_nobody_lives_beside_an_arm_that_takes_the_whole_card() -> None:
    greedy = Process("lead", "m:build", {"device": "gpu", "allocator": "all"})
    contrast = make_contrast()
    answer = ask(contrast=replace(contrast, trials=(replace(contrast.trials[0], processes=(greedy,)), contrast.trials[1])))
    assert isinstance(answer, Round)
    assert Arrangement.TURNS_OF_TRIALS is answer.arrangement


def test_a_resumed_part_repeats_its_controls() -> None:
    control = make_contrast(purpose=Purpose.CONTROL, looks=(3,))
    assert isinstance(ask(*completed(3), contrast=control), Done)
    assert isinstance(ask(*completed(3), contrast=control, situation=Situation(part=1)), Round)


def test_the_same_records_give_the_same_round() -> None:
    assert ask(*completed(2)) == ask(*completed(2))


def make_plan(*contrasts: Any) -> Plan:
    return Plan("full", 0.01, False, 0, {}, contrasts, (), (), ())


def test_controls_come_before_proofs_and_proofs_before_claims() -> None:
    claim = make_contrast(id="claim")
    proof = make_contrast(id="proof", purpose=Purpose.PROOF, looks=(1,))
    control = make_contrast(id="control", purpose=Purpose.CONTROL, looks=(1,))
    ledger, order = Ledger(), []
    for _ in range(3):
        answer = next_of_all(make_plan(claim, proof, control), ledger, lambda _: False, Situation(), {})
        assert isinstance(answer, Round)
        order.append(answer.contrast)
        ledger.add(make_record(contrast=answer.contrast))
    assert ["control", "proof", "claim"] == order


def test_every_contrast_reaches_its_first_look_before_any_takes_its_second() -> None:
    ledger = Ledger([make_record(contrast="first", index=i) for i in range(3)])
    answer = next_of_all(make_plan(make_contrast(id="first"), make_contrast(id="second")), ledger, lambda _: False, Situation(), {})
    assert isinstance(answer, Round)
    assert "second" == answer.contrast


def test_at_the_same_look_what_decides_most_for_its_time_goes_first() -> None:
    plan = make_plan(make_contrast(id="long", expected_round_s=500.0), make_contrast(id="reading", priority=2), make_contrast(id="deciding"))
    answer = next_of_all(plan, Ledger(), lambda _: False, Situation(), {})
    assert isinstance(answer, Round)
    assert "deciding" == answer.contrast


def test_a_round_that_many_claims_read_is_worth_its_time() -> None:
    plan = make_plan(make_contrast(id="one", expected_round_s=50.0, decides=1), make_contrast(id="four", expected_round_s=120.0, decides=4))
    answer = next_of_all(plan, Ledger(), lambda _: False, Situation(), {})
    assert isinstance(answer, Round)
    assert "four" == answer.contrast


def test_a_budget_leaves_out_what_no_longer_fits_and_says_so() -> None:
    closed: dict[str, Any] = {}
    plan = make_plan(make_contrast(id="long", expected_round_s=100.0), make_contrast(id="short", expected_round_s=1.0))
    answer = next_of_all(plan, Ledger(), lambda _: False, Situation(time_left_s=10.0), closed)
    assert isinstance(answer, Round)
    assert "short" == answer.contrast
    answer = next_of_all(plan, Ledger(), lambda _: False, Situation(time_left_s=0.5), closed)
    assert isinstance(answer, Done)
    assert "budget" == closed["long"].code


def test_the_cost_of_a_round_is_measured_once_there_is_one() -> None:
    contrast = make_contrast(expected_round_s=99.0)
    assert round_cost_s(contrast, Ledger()) == pytest.approx(99.0)
    assert round_cost_s(contrast, Ledger(completed(3, cost_s=7.0))) == pytest.approx(7.0)


def standby_plan() -> Plan:
    spare = make_contrast(id="spare", purpose=Purpose.CONTROL, arrangement=Arrangement.TURNS_OF_TRIALS, looks=(1,), standby=True)
    return make_plan(spare, make_contrast(id="duet"))


def test_a_control_on_standby_is_not_measured_while_nothing_takes_its_arrangement() -> None:
    answer = next_of_all(standby_plan(), Ledger(), lambda _: False, Situation(), {})
    assert isinstance(answer, Round)
    assert "duet" == answer.contrast


def test_a_control_on_standby_comes_first_once_a_duet_has_become_turns_of_trials() -> None:
    pair = (make_trial_record("a", 0), make_trial_record("b", 0))
    ledger = Ledger([make_record(arrangement=Arrangement.TURNS_OF_TRIALS, trials=pair)])
    answer = next_of_all(standby_plan(), ledger, lambda _: False, Situation(), {})
    assert isinstance(answer, Round)
    assert "spare" == answer.contrast


def test_a_plan_is_done_without_the_controls_that_never_became_due() -> None:
    ledger = Ledger([make_record(index=i) for i in range(12)])
    answer = next_of_all(standby_plan(), ledger, lambda _: True, Situation(), {})
    assert isinstance(answer, Done)
    assert "complete" == answer.reason.code


def test_a_round_killed_for_want_of_memory_is_followed_by_an_independent_one() -> None:
    killed = Outcome(State.FAILED, Reason("out_of_memory", "killed at its limit"))
    contrast = make_contrast(arrangement=Arrangement.TURNS_OF_TRIALS)
    record = make_record(outcome=killed, arrangement=Arrangement.TURNS_OF_TRIALS)
    answer = ask(record, contrast=contrast)
    assert isinstance(answer, Round)
    assert (1, 0) == (answer.index, answer.attempt)
