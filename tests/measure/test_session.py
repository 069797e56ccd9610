"""Rounds with real processes: their arrangements, orders, counts and records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from harness.errors import MeasureError
from harness.measure.blocks import QuadRules
from harness.measure.load import read_load
from harness.model import Arrangement, Driver, Outcome, RoundRecord, State
from tests.measure.builders import DEAF, make_job, make_place, make_process, make_round, make_trial, quiet_machine, run


def work(record: RoundRecord, trial: str, part: str = "main"):
    return [reading for reading in record.readings if (reading.trial, reading.name, reading.part) == (trial, "work", part)]


@cache
def plain_duet() -> RoundRecord:
    """Return the record of an undisturbed duet, run once for all tests that only read it."""
    with tempfile.TemporaryDirectory() as folder:
        return run(make_round(make_trial("a"), make_trial("b"), quads=1), Path(folder))


@cache
def turns_of_trials() -> RoundRecord:
    with tempfile.TemporaryDirectory() as folder:
        return run(make_round(make_trial("a"), make_trial("b"), arrangement=Arrangement.TURNS_OF_TRIALS, quads=1), Path(folder))


def test_a_duet_completes_with_its_quads_and_the_first_one_is_never_accepted(tmp_path: Path):
    record = run(make_round(make_trial("a"), make_trial("b")), tmp_path)
    assert Outcome(State.COMPLETED) == record.outcome
    assert [False, True, True] == [quad.accepted for quad in record.quads]
    assert ("warmup",) == record.quads[0].flags


def test_each_quad_is_a_palindrome_of_both_trials():
    record = plain_duet()
    assert all(quad.order in {"ABBA", "BAAB"} for quad in record.quads)
    assert record.order == record.quads[0].order


def test_turns_follow_the_order_that_is_recorded():
    record = plain_duet()
    blocks = sorted((r for r in record.readings if r.name == "work"), key=lambda r: (r.quad, r.turn))
    assert "".join(quad.order for quad in record.quads) == "".join(block.trial.upper() for block in blocks)
    assert all(earlier.t1_ns <= later.t0_ns for earlier, later in pairwise(blocks))


def test_the_same_seed_gives_the_same_orders(tmp_path: Path):
    orders = [[quad.order for quad in run(make_round(make_trial("a"), make_trial("b"), seed=3), tmp_path).quads] for _ in range(2)]
    assert orders[0] == orders[1]


def test_four_trials_take_turns_there_and_back(tmp_path: Path):
    record = run(make_round(*(make_trial(name) for name in "abcd"), quads=1), tmp_path)
    order = record.quads[1].order
    assert (8, order[::-1]) == (len(order), order)
    assert {"A": 2, "B": 2, "C": 2, "D": 2} == Counter(order)


def test_blocks_have_equal_time_and_not_equal_steps(tmp_path: Path):
    record = run(make_round(make_trial("fast", step_s=0.002), make_trial("slow", step_s=0.01), block_s=0.04, quads=1), tmp_path)
    assert sum(r.n for r in work(record, "fast")) > 2 * sum(r.n for r in work(record, "slow"))


def test_a_step_longer_than_a_block_is_one_step_a_block(tmp_path: Path):
    record = run(make_round(make_trial("a", step_s=0.05), make_trial("b", step_s=0.05), quads=1), tmp_path)
    assert {1} == {reading.n for reading in record.readings if reading.name == "work"}


def test_work_is_what_the_workload_counted():
    record = plain_duet()
    assert all(4.0 * reading.n == reading.value and reading.unit == "samples" for reading in work(record, "a"))


def test_events_of_a_block_become_readings_of_their_own_name():
    record = plain_duet()
    waits = [reading for reading in record.readings if reading.trial == "a" and reading.name == "input_wait_s"]
    assert [(r.quad, r.turn, r.t0_ns) for r in work(record, "a")] == [(r.quad, r.turn, r.t0_ns) for r in waits]


def test_ghost_steps_go_into_every_other_block_and_are_not_counted(tmp_path: Path):
    record = run(make_round(make_trial("a"), make_trial("b", ghost_every=4), block_s=0.04), tmp_path)
    ghosts = work(record, "b")
    assert [0] * 6 == [reading.ghost for reading in work(record, "a")]
    assert [0, *[1] * 1] * 3 == [min(1, reading.ghost) for reading in ghosts]
    assert all(reading.ghost == max(1, reading.n // 4) and reading.value == 4.0 * reading.n for reading in ghosts[1::2])


def test_in_the_absence_part_the_others_go_on_alone_for_two_quads(tmp_path: Path):
    record = run(make_round(make_trial("a"), make_trial("b"), absence=True), tmp_path)
    assert ["AAAA", "AAAA"] == [quad.order for quad in record.quads if quad.part == "absence"]
    assert (8, 0) == (len(work(record, "a", "absence")), len(work(record, "b", "absence")))
    assert State.COMPLETED == record.outcome.state


def test_turns_of_trials_start_each_trial_twice_there_and_back():
    record = turns_of_trials()
    assert record.order in {"ABBA", "BAAB"}
    assert 4 == len({quad.index // 2 for quad in record.quads})
    assert [f"{letter}{letter}" for letter in record.order for _ in range(2)] == [quad.order for quad in record.quads]
    assert [False, True] * 4 == [quad.accepted for quad in record.quads]


def test_quads_of_different_starts_never_share_an_index():
    record = turns_of_trials()
    assert list(range(8)) == [quad.index for quad in record.quads]


def test_a_solo_round_records_phases_that_nothing_overlapped(tmp_path: Path):
    record = run(make_round(make_trial("a"), arrangement=Arrangement.SOLO, quads=1), tmp_path)
    (trial,) = record.trials
    assert ["spawn", "import", "build", "trace", "first", "warmup", "blocks", "end"] == list(trial.phases_s)
    assert not trial.overlapped_start


def test_start_ups_of_a_duet_overlap_and_say_so():
    record = plain_duet()
    assert [True, True] == [trial.overlapped_start for trial in record.trials]


def first_steps_overlap(folder: Path, device: str) -> bool:
    record = run(make_round(*(make_trial(name, device=device, step_s=0.2) for name in "ab"), quads=1), folder)
    (a_from, a_to), (b_from, b_to) = ((trial.used["first_from_s"], trial.used["first_to_s"]) for trial in record.trials)
    return a_from < b_to and b_from < a_to


def test_first_steps_on_a_gpu_come_one_trial_at_a_time(tmp_path: Path):
    assert not first_steps_overlap(tmp_path, "gpu")


def test_an_outcome_becomes_readings_and_what_is_no_number_is_null_with_a_reason(tmp_path: Path):
    record = run(make_round(make_trial("a", driver=Driver.ONCE), arrangement=Arrangement.SOLO), tmp_path)
    assert [("answer", 42, None), ("absent", None, "not here"), ("word", None, "not a number: text")] == [
        (reading.name, reading.value, reading.reason) for reading in record.readings[:3]
    ]
    assert (None, "the workload gave no finite number") == (record.readings[3].value, record.readings[3].reason)


def test_a_proof_goes_to_a_file_and_only_its_name_into_the_record(tmp_path: Path):
    numpy = pytest.importorskip("numpy")
    record = run(make_round(make_trial("a", driver=Driver.ONCE, call="proof"), arrangement=Arrangement.SOLO), tmp_path)
    name = record.trials[0].proof
    assert "/" not in name
    with numpy.load(tmp_path / "proofs" / name, allow_pickle=False) as arrays:
        assert [1.0, 2.0, 3.0] == arrays["weights"].tolist()


def test_a_crew_is_ready_together_and_its_lead_speaks_for_it(tmp_path: Path):
    crew = replace(make_trial("a"), processes=(make_process("helper", "build_bystander"), make_process("lead")))
    record = run(make_round(crew, arrangement=Arrangement.SOLO, quads=1), tmp_path)
    assert State.COMPLETED == record.outcome.state
    assert {"lead"} == {reading.role for reading in record.readings}
    assert 2 == len(list((tmp_path / "logs").glob("*.log")))


def test_all_ranks_of_a_crew_run_the_same_steps(tmp_path: Path):
    crew = replace(make_trial("a"), processes=(make_process("lead"), replace(make_process("worker", step_s=0.01), rank=1)))
    record = run(make_round(crew, arrangement=Arrangement.SOLO, quads=1), tmp_path)
    assert State.COMPLETED == record.outcome.state


def test_peak_memory_is_each_lead_s_own():
    record = plain_duet()
    assert all(trial.peak_rss_bytes > 1 << 20 for trial in record.trials)


def test_a_small_trial_s_peak_is_the_same_whatever_ran_before_it(tmp_path: Path):
    def heavy(name: str, mib: int):
        return make_trial(name, ballast_mib=mib)

    orders = [("big", "small"), ("small", "big"), ("small",)]
    peaks = []
    for at, names in enumerate(orders):
        trials = [heavy(name, 200 if name == "big" else 0) for name in names]
        (tmp_path / str(at)).mkdir()
        record = run(make_round(*trials, arrangement=Arrangement.SOLO, quads=1), tmp_path / str(at))
        peaks.append(record.trial("small").peak_rss_bytes)
    assert max(peaks) - min(peaks) < 20 << 20  # far below the 200 MiB of the big one


def test_a_socket_carries_a_round_as_well_as_pipes_do(tmp_path: Path):
    record = run(make_round(make_trial("a"), make_trial("b"), quads=1), tmp_path, transport="socket")
    assert State.COMPLETED == record.outcome.state


def test_a_record_survives_json(tmp_path: Path):
    record = run(make_round(make_trial("a"), make_trial("b", driver=Driver.ONCE), arrangement=Arrangement.SOLO, quads=1), tmp_path)
    assert record == msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(record), allow_nan=False)), RoundRecord)


def test_progress_tells_of_every_block_and_quad_and_of_the_end(tmp_path: Path):
    kinds: list[str] = []
    run(make_round(make_trial("a"), make_trial("b"), quads=1), tmp_path, tell=lambda progress: kinds.append(progress.kind))
    assert (8, 2, 1) == (kinds.count("block"), kinds.count("quad"), kinds.count("round"))


def test_foreign_load_makes_a_quad_be_repeated(tmp_path: Path):
    record = run(
        make_round(make_trial("a"), make_trial("b")),
        tmp_path,
        thresholds=replace(DEAF, foreign_cores=0.05),
        read=quiet_machine([0.0, 0.5]),
    )
    assert [False, False, True, True] == [quad.accepted for quad in record.quads]
    assert ("foreign_load",) == record.quads[1].flags


def test_when_foreign_load_never_stops_quads_are_kept_and_flagged(tmp_path: Path):
    record = run(
        make_round(make_trial("a"), make_trial("b")),
        tmp_path,
        thresholds=replace(DEAF, foreign_cores=0.05),
        read=quiet_machine([0.5] * 9),
    )
    assert [False, False, False, True, True] == [quad.accepted for quad in record.quads]
    assert ["foreign_load"] == [flag.code for flag in record.flags]


def test_load_that_cannot_be_read_is_null_and_flagged(tmp_path: Path):
    quiet = quiet_machine()
    record = run(make_round(make_trial("a"), make_trial("b"), quads=1), tmp_path, read=lambda groups: replace(quiet(groups), idle_s=None))
    assert [None, None] == [quad.foreign_cores for quad in record.quads]
    assert ["foreign_load_unknown"] == [flag.code for flag in record.flags]


def test_an_idle_partner_that_is_busy_is_noticed(tmp_path: Path):
    record = run(
        make_round(make_trial("a"), make_trial("b", target="build_restless"), quads=1),
        tmp_path,
        thresholds=replace(DEAF, idle_partner_cores=0.01),
    )
    assert ["idle_partner"] == [flag.code for flag in record.flags]
    assert record.quads[1].idle_partner_cores > 0.01


def test_a_first_quad_unlike_the_later_ones_is_dropped_as_late_warm_up(tmp_path: Path):
    # A tolerance below zero makes any two quads differ, so the soft cap is reached on every machine.
    record = run(
        make_round(make_trial("a"), make_trial("b")), tmp_path, thresholds=QuadRules(1e9, 1e9, warmup_ratio=-1.0, late_warmups=1)
    )
    assert [("warmup",), ("late_warmup",), (), ()] == [quad.flags for quad in record.quads]
    assert [False, False, True, True] == [quad.accepted for quad in record.quads]
    assert ["warmup_cap"] == [flag.code for flag in record.flags]


def test_a_proof_cannot_take_turns_of_blocks(tmp_path: Path):
    with pytest.raises(MeasureError, match="arrange it solo"):
        run(make_round(make_trial("a", driver=Driver.ONCE)), tmp_path)


def test_who_has_no_blocks_is_named_with_its_driver(tmp_path: Path):
    with pytest.raises(MeasureError, match="trial b has none: its driver is `job`"):
        run(make_round(make_trial("a"), make_job("b")), tmp_path)


def test_several_solo_trials_run_in_an_order_drawn_by_the_seed(tmp_path: Path):
    def order_of(seed: int) -> tuple[str, str]:
        record = run(make_round(*(make_job(name, steps=1) for name in "abc"), arrangement=Arrangement.SOLO, seed=seed), tmp_path)
        jobs = sorted((reading for reading in record.readings if reading.name == "job"), key=lambda reading: reading.t0_ns)
        return record.order, "".join(reading.trial.upper() for reading in jobs)

    orders = [order_of(seed) for seed in range(5)]
    assert all(told == ran and "ABC" == "".join(sorted(ran)) for told, ran in orders)
    assert len(set(orders)) > 1
    assert orders[0] == order_of(0)


def test_nothing_lives_and_no_live_file_remains_after_a_round(tmp_path: Path):
    run(make_round(make_trial("a"), make_trial("b"), quads=1), tmp_path)
    assert not make_place(tmp_path).live.exists()


def test_a_process_stays_on_the_cores_that_it_was_given(tmp_path: Path):
    core = min(os.sched_getaffinity(0))
    trial = replace(make_trial("a"), processes=(replace(make_process(), cpus=(core,)),))
    record = run(make_round(trial, arrangement=Arrangement.SOLO, quads=1), tmp_path)
    assert 1 == record.trials[0].used["visible_cpus"]


def test_a_foreign_process_is_seen_by_the_real_counters(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as stranger:
        record = run(make_round(make_trial("a"), make_trial("b"), quads=1, block_s=0.2), tmp_path, read=read_load)
        stranger.kill()
    assert record.quads[1].foreign_cores > 0.05
