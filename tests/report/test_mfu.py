"""MFU and roofs: steps a second times FLOPs a step over the matrix product of the same precision, and a reason for whatever is missing."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from harness.model import (
    COMPLETED,
    Arrangement,
    Cell,
    Driver,
    Outcome,
    Purpose,
    Reading,
    Reason,
    RoundRecord,
    Scalar,
    State,
    TrialRecord,
)
from harness.report import canvas, make_tables, mfu, mfu_figures, render
from harness.report.content import make_content
from harness.report.index import build_index
from tests.report.builders import Builder, make_cell, make_contrast, make_round

LAYOUTS = pytest.mark.parametrize("layout", [canvas.WIDE, canvas.NARROW], ids=["wide", "narrow"])
MATMUL = 2e12
"""FLOP/s of the float32 product in these runs."""


def make_roof(op: str = "matmul", dtype: str = "float32", device: str = "cpu", **sizes: Scalar) -> Cell:
    return Cell("roof", device, {}, {"op": op, "dtype": dtype, "size": 1024, **sizes})


def add_roof(builder: Builder, cell: Cell, rate: float, unit: str = "FLOP") -> None:
    """One block a quad of one second; all rounds alike."""
    contrast = make_contrast(f"roof-{cell.id}", cell, arrangement=Arrangement.SOLO)
    builder.cells[cell.id] = cell
    builder.contrasts.append(contrast)
    record = make_round(contrast, {cell.id: rate})
    builder.records.append(replace(record, readings=tuple(replace(r, unit=unit) for r in record.readings)))


def counted(record: RoundRecord, **used: Scalar) -> RoundRecord:
    """The round with these facts told by every trial."""
    return replace(record, trials=tuple(replace(trial, used={**trial.used, **used}) for trial in record.trials))


def make_run(flops: Scalar = 1e11, *, precision: str = "fp32", steps: tuple[int | None, ...] = (10,), **used: Scalar) -> tuple[Builder, Cell]:
    """One arm; each round does `steps` steps in each block of a second."""
    builder, cell = Builder(), make_cell(precision=precision)
    contrast = make_contrast("train", cell, arrangement=Arrangement.SOLO)
    builder.cells[cell.id] = cell
    builder.contrasts.append(contrast)
    for i, n in enumerate(steps):
        record = make_round(contrast, {cell.id: 160.0}, i)
        record = replace(record, readings=tuple(replace(r, n=n) for r in record.readings))
        builder.records.append(counted(record, flops_per_step=flops, **used))
    return builder, cell


def tables_of(builder: Builder) -> dict:
    manifest, records, verdicts, _ = builder.run()
    return make_tables(build_index(manifest, records, verdicts))


def row_of(builder: Builder):
    (row,) = tables_of(builder)["mfu"].itertuples()
    return row


def sections_of(builder: Builder) -> dict:
    manifest, records, verdicts, notes = builder.run()
    index = build_index(manifest, records, verdicts)
    return {section.id: section for section in make_content(index, make_tables(index), notes).sections}


# ---------------------------------------------------------------- arms


def test_steps_a_second_times_flops_over_the_roof_is_the_mfu():
    builder, _ = make_run()
    add_roof(builder, make_roof(), MATMUL)
    row = row_of(builder)
    assert (1e12, 2e12, 0.5) == (row.point, row.roof, row.mfu)


def test_the_mfu_has_the_range_of_the_rounds():
    builder, _ = make_run(steps=(8, 12))
    add_roof(builder, make_roof(), MATMUL)
    row = row_of(builder)
    assert (0.5, 0.4, 0.6, 2) == (row.mfu, pytest.approx(row.mfu_low), pytest.approx(row.mfu_high), row.rounds)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", "float32"), ("tf32", "tf32"), ("mixed_float16", "float16"), ("float16", "float16"), ("mixed_bfloat16", "bfloat16")],
)
def test_an_arm_is_held_against_the_product_of_its_own_precision(precision, dtype):
    builder, _ = make_run(precision=precision)
    for k, name in enumerate(("float32", "tf32", "float16", "bfloat16")):
        add_roof(builder, make_roof(dtype=name), (4 if name == dtype else k + 5) * 1e12)
    assert 4e12 == row_of(builder).roof


def test_the_fastest_of_several_products_is_the_roof():
    builder, _ = make_run()
    for size, rate in ((512, 1e12), (2048, 4e12), (4096, 3e12)):
        add_roof(builder, make_roof(size=size), rate)
    assert 0.25 == row_of(builder).mfu


def test_a_roof_of_another_kind_of_device_is_no_roof():
    builder, _ = make_run()
    add_roof(builder, make_roof(device="gpu"), MATMUL)
    row = row_of(builder)
    assert pd.isna(row.mfu)
    assert "no matrix product in float32 was measured on this CPU in this run (the sweeps roofs and full do)" == row.reason


def test_other_operations_are_no_roof_of_arithmetic():
    builder, _ = make_run()
    add_roof(builder, make_roof("convolution"), MATMUL)
    assert pd.isna(row_of(builder).mfu)


def test_without_a_roof_the_flops_a_second_still_stand():
    builder, _ = make_run()
    assert 1e12 == row_of(builder).point


def test_more_than_the_roof_is_not_clamped():
    builder, _ = make_run(flops=3e11)
    add_roof(builder, make_roof(), MATMUL)
    assert 1.5 == row_of(builder).mfu


@pytest.mark.parametrize("flops", [None, 0, True, "many"])
def test_flops_that_were_not_counted_are_a_null_with_its_reason(flops):
    builder, _ = make_run(flops)
    row = row_of(builder)
    assert pd.isna(row.point)
    assert "the FLOPs of its step could not be counted from a graph" == row.reason


def test_rounds_that_counted_different_flops_are_not_believed():
    builder, _ = make_run(steps=(10, 10))
    builder.records[1] = counted(builder.records[1], flops_per_step=2e11)
    assert "its rounds counted different FLOPs: 100,000,000,000 and 200,000,000,000 a step" == row_of(builder).reason


def test_several_devices_are_not_held_against_the_roof_of_one():
    builder, _ = make_run(replicas=2)
    add_roof(builder, make_roof(), MATMUL)
    assert "it trains on several devices at once, a roof is of one" == row_of(builder).reason


def test_a_block_that_does_not_count_its_steps_leaves_the_rate_unknown():
    builder, _ = make_run(steps=(10, None))
    assert "its blocks do not say how many steps they hold" == row_of(builder).reason


def test_an_arm_without_a_completed_round_says_so():
    builder, _ = make_run()
    lost = Outcome(State.FAILED, Reason("killed", "killed"))
    builder.records = [replace(record, outcome=lost) for record in builder.records]
    assert "no round of it was completed" == row_of(builder).reason


@pytest.mark.parametrize(
    "aside",
    [
        pytest.param(lambda c: replace(c, purpose=Purpose.PROOF), id="a proof"),
        pytest.param(lambda c: replace(c, trials=tuple(replace(trial, driver=Driver.JOB) for trial in c.trials)), id="a job"),
    ],
)
def test_what_is_not_timed_by_blocks_is_left_out(aside):
    builder, _ = make_run()
    builder.contrasts = [aside(contrast) for contrast in builder.contrasts]
    assert tables_of(builder)["mfu"].empty


def test_a_failed_trial_says_nothing_of_its_flops():
    builder, _ = make_run()
    lost = Outcome(State.FAILED, Reason("killed", "killed"))
    builder.records = [replace(r, outcome=lost, trials=tuple(replace(t, outcome=lost) for t in r.trials)) for r in builder.records]
    assert tables_of(builder)["mfu"].empty


def test_a_run_that_knows_nothing_of_flops_has_no_ladder():
    builder = Builder()
    builder.measure("graph", make_cell(execution="eager"), make_cell(), 3.0, 2.0, rounds=2)
    assert tables_of(builder)["mfu"].empty


def test_blocks_that_were_not_accepted_do_not_count():
    builder, _ = make_run()
    record = builder.records[0]
    slow = tuple(replace(r, n=1) if r.quad == 2 else r for r in record.readings)
    quads = tuple(replace(quad, accepted=quad.accepted and quad.index != 2) for quad in record.quads)
    builder.records[0] = replace(record, readings=slow, quads=quads)
    assert 1e12 == row_of(builder).point


def test_a_trial_that_is_slowed_on_purpose_is_not_read():
    builder, cell = make_run()
    contrast = make_contrast("control", cell, arrangement=Arrangement.SOLO)
    builder.contrasts.append(replace(contrast, trials=(replace(contrast.trials[0], ghost_every=10),)))
    builder.records += [make_round(contrast, {cell.id: 1.0}, i) for i in range(3)]
    assert 1 == row_of(builder).rounds


def test_the_highest_mfu_comes_first_and_the_unknown_last():
    builder, _ = make_run()
    add_roof(builder, make_roof(), MATMUL)
    for batch, flops in ((32, 1.5e11), (64, None)):
        cell = make_cell(batch)
        contrast = make_contrast(f"b{batch}", cell, arrangement=Arrangement.SOLO)
        builder.cells[cell.id] = cell
        builder.contrasts.append(contrast)
        builder.records.append(counted(make_round(contrast, {cell.id: 160.0}), flops_per_step=flops))
    assert [0.75, 0.5] == [mfu for mfu in tables_of(builder)["mfu"]["mfu"] if pd.notna(mfu)]
    assert pd.isna(tables_of(builder)["mfu"]["point"].iloc[-1])


# ---------------------------------------------------------------- roofs


@pytest.mark.parametrize(
    ("expected", "cell"),
    [
        (2 * 1024 / (3 * 4), make_roof()),
        (2 * 1024 / (3 * 2), make_roof(dtype="bfloat16")),
        (2 * 6.0 / (4 * (2 + 6 + 3)), make_roof(m=1, n=3, k=2)),
        (None, make_roof("convolution")),
        (None, make_roof(dtype="int8")),
        (None, make_roof(size="large")),
    ],
)
def test_a_product_s_intensity_follows_from_its_size(expected, cell):
    assert (expected if expected is None else pytest.approx(expected)) == mfu.intensity(cell)


def test_a_roofline_joins_the_fastest_product_of_each_type_with_the_fastest_copy():
    builder = Builder()
    for cell, rate, unit in (
        (make_roof(), 1e12, "FLOP"), (make_roof(size=2048), 2e12, "FLOP"), (make_roof(dtype="bfloat16"), 5e12, "FLOP"),
        (make_roof("host_copy", threads=1), 1e10, "B"), (make_roof("host_copy", threads=2), 2e10, "B"), (make_roof("disk_read"), 9e10, "B"),
    ):  # fmt: skip
        add_roof(builder, cell, rate, unit)
    (line,) = tables_of(builder)["rooflines"]
    assert [("bfloat16", 5e12), ("float32", 2e12)] == [(peak.dtype, peak.rate) for peak in line.peaks]
    assert 2e10 == line.copy.rate
    assert [250.0, 100.0] == [line.ridge(peak) for peak in line.peaks]


def test_without_a_copy_no_bend_is_known():
    builder = Builder()
    add_roof(builder, make_roof(), 1e12)
    (line,) = tables_of(builder)["rooflines"]
    assert line.ridge(line.peaks[0]) is None


def test_gpus_come_before_processors():
    builder = Builder()
    for device in ("cpu", "gpu"):
        add_roof(builder, make_roof(device=device), 1e12)
    assert ["gpu", "cpu"] == [line.device for line in tables_of(builder)["rooflines"]]


def add_disk(builder: Builder, op: str, rates: tuple[float | None, ...], **used: Scalar) -> Cell:
    """A roof that answers once a round; None is a round whose reading is null."""
    cell = make_roof(op, mib=512)
    contrast = make_contrast(f"roof-{op}", cell, arrangement=Arrangement.SOLO)
    builder.cells[cell.id] = cell
    builder.contrasts.append(contrast)
    for i, rate in enumerate(rates):
        told = Reading(cell.id, f"{op}_rate", rate, "B/s", None if rate is not None else "not told")
        aside = Reading(cell.id, "disk_pass_s", 0.5, "s")
        trials = (TrialRecord(cell.id, cell.id, COMPLETED, used=used),)
        builder.records.append(replace(make_round(contrast, {cell.id: 1.0}, i), readings=(told, aside), quads=(), trials=trials))
    return cell


def disk_rows(builder: Builder) -> list[tuple[str, ...]]:
    return [row[1:] for row in sections_of(builder)["roofline"].table.rows]


def test_disks_stand_among_the_roofs_with_the_storage_that_they_are():
    builder = Builder()
    add_roof(builder, make_roof("host_copy"), 2.0**33, "B")
    add_disk(builder, "disk_write", (2.0**30,), file_system="ext4", storage_device="vda1 (254:1)")
    add_disk(builder, "disk_read", (2.0**31,), file_system="tmpfs", storage_device=None)
    assert [
        ("CPU", "host copy", "float32", "8.00 GiB/s", "n/a", "n/a"),
        ("storage (ext4, vda1 (254:1))", "disk write", "float32", "1.00 GiB/s", "n/a", "n/a"),
        ("storage (tmpfs)", "disk read", "float32", "2.00 GiB/s", "n/a", "n/a"),
    ] == disk_rows(builder)


def test_a_disk_s_rate_is_that_of_all_rounds_which_move_equally_many_bytes():
    builder = Builder()
    cell = add_disk(builder, "disk_write", (1e9, None, 3e9))
    (roof,) = tables_of(builder)["roofs"]
    assert (cell.id, "B/s", "") == (roof.cell, roof.unit, roof.storage)
    assert 1.5e9 == pytest.approx(roof.rate)  # 2 files in 1 + 1/3 of the time of one


def test_a_storage_that_the_record_does_not_tell_is_said_to_be_unknown():
    builder = Builder()
    add_disk(builder, "disk_read", (2.0**30,))
    assert [("storage (not told which)", "1.00 GiB/s")] == [(row[0], row[3]) for row in disk_rows(builder)]


def test_a_disk_that_gave_no_rate_is_no_roof():
    builder = Builder()
    add_disk(builder, "disk_write", (None,))
    assert "roofline" not in sections_of(builder)


def test_what_a_roof_gains_is_no_speed_up_of_training():
    from harness.report.tables import TRAINS_NOTHING

    assert mfu.ROOF in TRAINS_NOTHING


# ---------------------------------------------------------------- page and pictures


def make_rich() -> Builder:
    builder, _ = make_run(steps=(8, 12))
    add_roof(builder, make_roof(), MATMUL)
    add_roof(builder, make_roof("host_copy"), 2e10, "B")
    bare, contrast = make_cell(64), make_contrast("bare", make_cell(64), arrangement=Arrangement.SOLO)
    builder.cells[bare.id] = bare
    builder.contrasts.append(contrast)
    builder.records.append(counted(make_round(contrast, {bare.id: 160.0}), flops_per_step=None))
    return builder


def test_the_table_shows_the_mfu_and_marks_the_reason_of_a_missing_one():
    table = sections_of(make_rich())["mfu"].table
    assert ("CPU", "100 GFLOP", "1.00 TFLOP/s", "2.00 TFLOP/s", "50.0\u00a0% (40.0\u00a0% to 60.0\u00a0%)", "2") == table.rows[0][1:]
    assert ("n/a (1)", "n/a (1)", "n/a (1)") == (table.rows[1][2], table.rows[1][3], table.rows[1][5])
    assert "(1) the FLOPs of its step could not be counted from a graph." == table.note


def test_the_roofs_stand_in_a_table_with_the_bend():
    rows = sections_of(make_rich())["roofline"].table.rows
    assert ("matmul", "float32", "2.00 TFLOP/s", "171", "100") == rows[0][2:]
    assert ("host copy", "float32", "18.6 GiB/s", "n/a", "n/a") == rows[1][2:]


def test_ladder_and_roofs_have_their_pictures_and_are_on_the_page():
    files = render(*make_rich().run())
    assert {f"plots/{name}.{kind}" for name in ("mfu", "roofline") for kind in ("svg", "png")} <= set(files)
    assert 'id="mfu"' in files["report.html"].decode()
    assert "## Roofs of this machine" in files["report.md"].decode()


def test_a_run_of_uncounted_arms_shows_the_reason_and_no_picture():
    builder, _ = make_run(None)
    assert "plots/mfu.svg" not in render(*builder.run())
    assert "mfu" in sections_of(builder)


@LAYOUTS
def test_each_bar_carries_its_mfu_in_per_cent(layout):
    frame = tables_of(make_rich())["mfu"]
    with canvas.style():
        texts = [text.get_text() for text in mfu_figures.mfu(frame, layout).axes[0].texts]
    assert any("MFU 50.0 %" in " ".join(text.split()) for text in texts)


@LAYOUTS
def test_bars_and_roofs_lie_inside_a_log_axis(layout):
    with canvas.style():
        ax = mfu_figures.mfu(tables_of(make_rich())["mfu"], layout).axes[0]
    low, high = ax.get_xlim()
    assert "log" == ax.get_xscale()
    assert low < 0.8e12
    assert high > MATMUL


@LAYOUTS
def test_a_roof_bends_where_memory_and_arithmetic_meet(layout):
    with canvas.style():
        ax = mfu_figures.roofline(tables_of(make_rich())["rooflines"], layout).axes[0]
    (line,) = [line for line in ax.lines if str(line.get_label()).startswith("float32")]
    flat = [x for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if y == MATMUL]
    assert min(flat) == pytest.approx(100, rel=0.2)


def test_no_two_texts_of_the_ladder_overlap():
    with canvas.style():
        figure = mfu_figures.mfu(tables_of(make_rich())["mfu"], canvas.NARROW)
        figure.canvas.draw()
        boxes = [text.get_window_extent() for axes in figure.axes for text in axes.texts if text.get_text()]
    assert [] == [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b) and min(a.y1, b.y1) - max(a.y0, b.y0) > 2]


@pytest.mark.parametrize(("expected", "value"), [("500 M", 5e8), ("2 G", 2e9), ("1.5 T", 1.5e12), ("1 T", 1e12), ("30", 30.0)])
def test_ticks_of_large_numbers_have_prefixes(expected, value):
    assert expected == mfu_figures.prefixed(value)
