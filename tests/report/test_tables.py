"""Tables say what the records say: rates divide to ratios, missing baselines have a reason, slowdowns stay slowdowns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model import ArmResult, Reading, Word
from harness.report import blocks, make_tables, tables
from harness.report.index import build_index, short_labels
from tests.report.builders import Builder, add_ladder, make_cell, make_contrast, make_estimate, make_round


def tables_of(builder: Builder) -> dict:
    manifest, records, verdicts, _ = builder.run()
    return make_tables(build_index(manifest, records, verdicts))


def one_ratio(ratio: float = 2.0, **more) -> Builder:
    builder = Builder()
    builder.ratio_claim("graph-speedup", make_cell(execution="eager"), make_cell(), ratio, more.pop("word", Word.CONFIRMED), **more)
    return builder


def test_a_round_s_rate_is_all_work_over_all_time_of_accepted_blocks():
    cell = make_cell()
    contrast = make_contrast("a", cell, make_cell(execution="eager"))
    record = make_round(contrast, {t.id: 6.0 for t in contrast.trials}, quads=1)
    late = Reading(cell.id, "work", 3.0, "samples", t0_ns=0, t1_ns=2 * 10**9, n=1, quad=1, turn=4)
    rounds = blocks.round_rates(blocks.timed_blocks([replace(record, readings=(*record.readings, late))]))
    assert (6.0 + 6.0 + 3.0) / 4.0 == rounds.set_index("trial")["rate"][cell.id]


def test_the_warm_up_quad_does_not_count():
    contrast = make_contrast("a", make_cell(), make_cell(execution="eager"))
    frame = blocks.timed_blocks([make_round(contrast, {t.id: 6.0 for t in contrast.trials}, quads=2)])
    assert {1, 2} == set(frame[frame["accepted"]]["quad"])


@pytest.mark.parametrize(
    ("expected", "rate", "reason"),
    [
        ("n/a: baseline failed: out of memory", None, "out of memory"),
        ("n/a: baseline failed: out of memory", None, "n/a: out of memory"),
        ("n/a: baseline missing", None, "n/a: missing"),
        ("n/a: baseline did no work (0 samples/s)", 0.0, None),
    ],
)
def test_a_ratio_without_a_sound_baseline_names_the_baseline(expected, rate, reason):
    base, treatment = make_cell(execution="eager"), make_cell()
    arms = (ArmResult(treatment.id, treatment.id, 5.0, "samples/s", 3, None), ArmResult(base.id, base.id, rate, "samples/s", 0, None, reason))
    builder = one_ratio(estimate=None, arms=arms)
    assert expected == tables_of(builder)["forest"]["measured"][0]


def test_a_baseline_that_the_judge_did_not_find_is_missing():
    treatment = make_cell()
    builder = one_ratio(estimate=None, arms=(ArmResult(treatment.id, treatment.id, 5.0, "samples/s", 3, None),))
    assert "n/a: baseline missing" == tables_of(builder)["speedups"]["measured"][0]


def test_a_slowdown_keeps_its_ratio_below_one():
    assert 0.6 == tables_of(one_ratio(0.6, word=Word.REVERSED))["speedups"]["point"][0]


def test_one_round_leaves_the_interval_empty():
    frame = tables_of(one_ratio(estimate=make_estimate(2.0, 0.0, None, n=1)))["forest"]
    assert frame[["low", "high"]].isna().all(axis=None)


def test_a_switch_has_one_row_and_the_deciding_case_wins():
    builder = one_ratio(2.0)
    add_ladder(builder)
    switches = list(tables_of(builder)["speedups"]["switch"])
    assert 1 == switches.count("execution: eager → graph")


def test_a_batch_sweep_becomes_a_curve_for_each_execution():
    builder = Builder()
    for batch in (1, 4):
        builder.measure(f"batch-{batch}", make_cell(batch, execution="eager"), make_cell(batch), 3.0, 2.0, rounds=2)
    frame = tables_of(builder)["throughput"]
    assert {("eager", 1), ("eager", 4), ("graph", 1), ("graph", 4)} == set(zip(frame["label"], frame["batch"], strict=True))


def test_a_single_batch_draws_no_curve():
    assert tables_of(one_ratio())["throughput"].empty


def test_a_ladder_says_whether_its_steps_multiply_to_the_total():
    builder = Builder()
    add_ladder(builder)
    manifest, records, verdicts, _ = builder.run()
    (ladder,) = tables.ladder_tables(build_index(manifest, records, verdicts))
    assert ["rung"] * 4 + ["without"] * 4 + ["total", "product"] == list(ladder.rows["kind"])
    assert "The steps multiply to the measured total within their intervals." == ladder.says


def test_labels_name_only_what_varies():
    assert ["eager", "graph"] == short_labels([make_cell(execution="eager"), make_cell()])


def test_input_wait_is_the_share_of_accepted_time():
    contrast = make_contrast("a", make_cell(), make_cell(execution="eager"))
    cell = make_cell().id
    record = make_round(contrast, {t.id: 6.0 for t in contrast.trials}, quads=1)
    waits = tuple(Reading(cell, "input_wait_s", 0.5, "s", quad=quad, turn=0) for quad in (0, 1))
    frame = blocks.waits_frame([replace(record, readings=(*record.readings, *waits))], blocks.timed_blocks([record]))
    assert [(cell, 0.25, 2)] == list(frame.itertuples(index=False, name=None))


def test_where_no_input_is_the_usual_one_every_arm_names_its_own():
    inputs = ("tfdata", "tfdata_cache", "tfrecord", "python_loop")
    cells = [*(make_cell(input=name) for name in inputs), replace(make_cell(input="tfdata"), sizes={**make_cell().sizes, "decode": False})]
    assert [*inputs, "tfdata, decode False"] == short_labels(cells)


def test_an_arm_with_nothing_unusual_is_named_by_its_input_where_inputs_differ():
    assert ["tfdata", "feed_dict"] == short_labels([make_cell(input="tfdata"), make_cell(input="feed_dict")])


def test_what_searches_found_is_no_agreement_of_rounds():
    assert "64 samples (by search, 7 probes)" == tables.estimate_text(make_estimate(64.0, 64.0, 64.0, 7, method="exact"), "samples")
    assert "40 traces (all rounds agree)" == tables.estimate_text(make_estimate(40.0, 40.0, 40.0, 2, method="exact", rounds=(40.0, 40.0)), "traces")
