"""What the hardware did: which rounds are shown, what stands in their strips, tables of cards, host and energy, and a reason for every missing number."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.model import (
    IDLE_ROUND,
    ArmEnergy,
    Arrangement,
    Cell,
    Outcome,
    Purpose,
    Quad,
    Reading,
    Reason,
    Role,
    RoundRecord,
    Search,
    State,
    Word,
)
from harness.report import canvas, figures, make_tables, render, telemetry, telemetry_figures, usage
from harness.report.__main__ import main
from harness.report.content import make_content
from harness.report.index import build_index
from harness.store import Bundle
from tests.report.builders import (
    Builder,
    make_alone_round,
    make_cell,
    make_contrast,
    make_estimate,
    make_full,
    make_gpu,
    make_machine,
    make_round,
    make_samples,
)

LAYOUTS = pytest.mark.parametrize("layout", [canvas.WIDE, canvas.NARROW], ids=["wide", "narrow"])
CARD = "GPU-1"
EAGER, GRAPH = (replace(make_cell(execution=level), device="gpu") for level in ("eager", "graph"))
ROUND_S = 16
"""Length of a builder's round: four quads of four blocks of a second; its blocks begin at 0 s in round 0."""


def make_run(machine: Any = None, base: Cell = EAGER, treatment: Cell = GRAPH, rounds: int = 1) -> Builder:
    """One judged claim, measured."""
    builder = Builder(machine=machine or make_machine(gpus=(replace(make_gpu(), uuid=CARD),), gpu_reason=None))
    builder.ratio_claim("graph-speedup", base, treatment, 2.4, Word.CONFIRMED)
    builder.records = builder.records[:rounds]
    return builder


def card_samples(
    round_: str = "graph-speedup/0.0", device: str = CARD, start_s: float = 0.0, seconds: int = ROUND_S, busy: float = 0.8, **more: Any
) -> pd.DataFrame:
    """A card that is steadily busy, at 400 W and 1,980 MHz, with 12 GiB in use."""
    n = seconds + 1
    series = {"kernel_busy_share": [busy] * n, "power_w": [400.0] * n, "sm_clock_mhz": [1980.0] * n, "memory_used_bytes": [12.0 * 2**30] * n}
    return make_samples(round_, device, start_s, **{**series, **more})


def host_samples(round_: str = "graph-speedup/0.0", start_s: float = 0.0, **more: Any) -> pd.DataFrame:
    """A host with half of its cores busy, which writes a MiB a second."""
    n = ROUND_S + 1
    series = {
        "cpu_share": [0.5] * n,
        "rss_bytes": [3.0 * 2**30] * n,
        "disk_read_bytes": [0.0] * n,
        "disk_written_bytes": [i * 2.0**20 for i in range(n)],
    }
    return make_samples(round_, "host", start_s, why="the kernel keeps it for root", **{**series, "cpu_energy_j": [None], **more})


def index_of(builder: Builder):
    manifest, records, verdicts, _ = builder.run()
    return build_index(manifest, records, verdicts)


def scenes_of(builder: Builder, *samples: pd.DataFrame) -> list[telemetry.Scene]:
    return telemetry.scenes_of(index_of(builder), pd.concat(samples) if samples else None)


def scene_of(builder: Builder, *samples: pd.DataFrame) -> telemetry.Scene:
    (scene,) = scenes_of(builder, *samples)
    return scene


def strip_of(scene: telemetry.Scene, key: str) -> telemetry.Strip:
    (strip,) = [strip for strip in scene.strips if strip.key == key]
    return strip


def sections_of(builder: Builder, *samples: pd.DataFrame) -> dict:
    index = index_of(builder)
    tables = make_tables(index, pd.concat(samples) if samples else None)
    return {section.id: section for section in make_content(index, tables, []).sections}


def with_readings(record: RoundRecord, trial: str, **values: tuple[float | None, str] | tuple[None, str, str]) -> RoundRecord:
    """The round with readings of a trial: (value, unit), or (None, unit, reason)."""
    told = tuple(Reading(trial, name, value[0], value[1], value[2] if len(value) > 2 else None) for name, value in values.items())
    return replace(record, readings=(*record.readings, *told))


# ---------------------------------------------------------------- which rounds are shown


def test_without_samples_there_is_no_scene():
    assert [] == scenes_of(make_run())


def test_a_round_that_was_not_watched_is_not_shown():
    assert [] == scenes_of(make_run(), card_samples("elsewhere/0.0"))


def test_the_completed_round_of_median_length_is_shown():
    builder = make_run(rounds=4)
    lost = Outcome(State.FAILED, Reason("killed", "killed"))
    for i, (stretch, outcome) in enumerate(((3, None), (1, None), (2, None), (1, lost))):
        record = builder.records[i]
        start = min(r.t0_ns for r in record.readings)
        readings = tuple(replace(r, t0_ns=start + (r.t0_ns - start) * stretch, t1_ns=start + (r.t1_ns - start) * stretch) for r in record.readings)
        builder.records[i] = replace(record, readings=readings, outcome=outcome or record.outcome)
    samples = [card_samples(f"graph-speedup/{i}.0", start_s=i * 1000.0, seconds=60) for i in range(4)]
    assert "graph-speedup (round 3)" == scene_of(builder, *samples).title


def test_at_most_six_scenes_are_shown():
    builder = Builder()
    for i in range(8):
        builder.ratio_claim(f"claim-{i}", make_cell(i + 1, execution="eager"), make_cell(i + 1), 2.0, Word.CONFIRMED)
    samples = [host_samples(f"claim-{i}/0.0") for i in range(8)]
    assert [f"claim-{i}" for i in range(6)] == [scene.contrast for scene in scenes_of(builder, *samples)]


def test_contrasts_that_decide_a_judged_claim_come_before_readings():
    builder = Builder()
    builder.ratio_claim("informs", EAGER, GRAPH, 2.0, Word.READING, role=Role.READING)
    builder.measure("read-by-nothing", make_cell(8), make_cell(8, execution="xla"), 3.0, 2.0)
    builder.ratio_claim("decides", make_cell(4, execution="eager"), make_cell(4), 2.0, Word.CONFIRMED)
    assert ["decides", "informs", "read-by-nothing"] == [contrast.id for contrast in telemetry.chosen_contrasts(index_of(builder))]


def test_each_group_s_first_claim_comes_before_any_group_s_second():
    builder = Builder()
    for i, group in enumerate(("execution", "execution", "input")):
        builder.ratio_claim(f"claim-{i}", make_cell(i + 1, execution="eager"), make_cell(i + 1), 2.0, Word.CONFIRMED, group=group)
    assert ["claim-0", "claim-2", "claim-1"] == [contrast.id for contrast in telemetry.chosen_contrasts(index_of(builder))]


def test_controls_and_proofs_are_not_shown():
    builder = make_run()
    builder.contrasts = [replace(contrast, purpose=Purpose.CONTROL) for contrast in builder.contrasts]
    assert [] == telemetry.chosen_contrasts(index_of(builder))


# ---------------------------------------------------------------- when arms were at work


def test_blocks_are_shades_in_seconds_since_the_round_s_start():
    scene = scene_of(make_run(), card_samples(start_s=-5.0, seconds=30))
    assert [(0, 5.0, 6.0, False), (1, 6.0, 7.0, False), (1, 7.0, 8.0, False)] == [(s.arm, s.start_s, s.end_s, s.counts) for s in scene.shades[:3]]
    assert (5.0, 21.0) == (scene.start_s, scene.end_s)


def test_blocks_of_quads_that_were_not_accepted_are_pale():
    builder = make_run()
    record = builder.records[0]
    builder.records[0] = replace(record, quads=tuple(replace(quad, accepted=quad.index == 2) for quad in record.quads))
    scene = scene_of(builder, card_samples())
    assert [8.0, 9.0, 10.0, 11.0] == [shade.start_s for shade in scene.shades if shade.counts]


def test_blocks_after_a_partner_was_ended_are_pale():
    builder = make_run()
    record = builder.records[0]
    late = Reading(EAGER.id, "work", 4.0, "samples", t0_ns=16 * 10**9, t1_ns=17 * 10**9, n=1, quad=1, turn=0, part="absence")
    builder.records[0] = replace(record, readings=(*record.readings, late), quads=(*record.quads, Quad(1, "A", accepted=True, part="absence")))
    assert not scene_of(builder, card_samples()).shades[-1].counts


def test_a_job_is_one_span():
    record = make_run().records[0]
    job = Reading(EAGER.id, "job", 9.0, "s", t0_ns=10**9, t1_ns=10 * 10**9, n=12)
    save = Reading(EAGER.id, "blocked_s", 1.0, "s", t0_ns=2 * 10**9, t1_ns=3 * 10**9)
    assert [(EAGER.id, 10**9, 10 * 10**9, True)] == telemetry.spans_of(replace(record, readings=(job, save), quads=()))


def test_a_trial_of_lone_readings_is_one_span_from_first_to_last():
    record = make_run().records[0]
    one, two = (Reading(EAGER.id, "traces", 1.0, "traces", t0_ns=i * 10**9, t1_ns=(i + 1) * 10**9) for i in (1, 4))
    power = Reading(EAGER.id, "power_w", 1.0, "W")
    assert [(EAGER.id, 10**9, 5 * 10**9, True)] == telemetry.spans_of(replace(record, readings=(one, two, power), quads=()))


# ---------------------------------------------------------------- strips


def test_a_card_s_strips_are_in_units_for_people():
    scene = scene_of(make_run(), card_samples())
    shown = {strip.key: (strip.unit, strip.lines[0].label, strip.lines[0].value[0]) for strip in scene.strips}
    assert {
        "kernel_busy_share": ("%", "GPU 0", pytest.approx(80.0)),
        "power_w": ("W", "GPU 0", 400.0),
        "sm_clock_mhz": ("MHz", "GPU 0", 1980.0),
        "memory_used_bytes": ("GiB", "GPU 0", 12.0),
    } == shown


def test_a_processor_s_run_shows_the_host():
    scene = scene_of(make_run(make_machine(), make_cell(execution="eager"), make_cell()), host_samples())
    assert ["cpu_share", "rss_bytes", "disk", "cpu_energy_j"] == [strip.key for strip in scene.strips]
    assert [("read", 0.0), ("written", 1.0)] == [(line.label, line.value[0]) for line in strip_of(scene, "disk").lines]
    assert "MiB/s" == strip_of(scene, "disk").unit


def test_an_arm_on_a_processor_shows_the_host_even_beside_a_card():
    scene = scene_of(make_run(base=make_cell(execution="eager"), treatment=make_cell()), card_samples(), host_samples())
    assert "cpu_share" == scene.strips[0].key


def test_a_strip_that_could_not_be_read_has_the_reason():
    strip = strip_of(scene_of(make_run(make_machine(), make_cell(execution="eager"), make_cell()), host_samples()), "cpu_energy_j")
    assert ((), "the kernel keeps it for root") == (strip.lines, strip.reason)


def test_energy_is_drawn_as_power():
    joules = host_samples(cpu_energy_j=[30.0 * i for i in range(ROUND_S + 1)])
    strip = strip_of(scene_of(make_run(make_machine(), make_cell(execution="eager"), make_cell()), joules), "cpu_energy_j")
    assert ("W", {30.0}) == (strip.unit, set(strip.lines[0].value))


def test_memory_that_counts_the_driver_s_own_says_so():
    reserved = card_samples(memory_used_bytes=[None], memory_used_with_reserved_bytes=[2.0**30] * 17)
    assert "memory in use, the driver's own included" == scene_of(make_run(), reserved).strips[-1].title


def test_cards_that_ran_nothing_are_left_out():
    scene = scene_of(make_run(), card_samples(), card_samples(device="GPU-2", busy=0.0))
    assert ["GPU 0"] == [line.label for line in scene.strips[0].lines]


def test_of_many_cards_the_busiest_four_are_shown_in_their_order():
    cards = tuple(replace(make_gpu(), index=i, uuid=f"GPU-{i}") for i in range(6))
    builder = make_run(make_machine(gpus=cards))
    scene = scene_of(builder, *(card_samples(device=f"GPU-{i}", busy=0.1 * ((i + 4) % 6 + 1)) for i in range(6)))
    assert ["GPU 0", "GPU 1", "GPU 4", "GPU 5"] == [line.label for line in scene.strips[0].lines]


def test_a_missing_sample_breaks_the_line():
    samples = card_samples(power_w=[400.0] * 8 + [None] + [400.0] * 8)
    values = strip_of(scene_of(make_run(), samples), "power_w").lines[0].value
    assert [8] == np.flatnonzero(np.isnan(values)).tolist()


def test_lines_reach_one_sample_beyond_the_blocks_and_no_further():
    scene = scene_of(make_run(), card_samples(start_s=-20.0, seconds=80))
    assert (19.0, 37.0) == (scene.strips[0].lines[0].t_s[0], scene.strips[0].lines[0].t_s[-1])


def test_many_samples_are_drawn_as_mean_and_range():
    n = 1601
    samples = make_samples("graph-speedup/0.0", CARD, period_s=0.01, power_w=[400.0 + (100.0 if i % 2 else 0.0) for i in range(n)])
    (line,) = strip_of(scene_of(make_run(), samples), "power_w").lines
    assert telemetry.MOST_POINTS == len(line.t_s)
    assert (400.0, 500.0) == (min(line.low), max(line.high))
    assert pytest.approx(450.0, rel=0.02) == np.mean(line.value)


def test_a_counter_that_began_anew_leaves_a_gap_and_no_fall():
    rates = telemetry.growth((np.array([0, 10**9, 2 * 10**9, 3 * 10**9]), np.array([5.0, 7.0, 1.0, 4.0])))[1]
    assert [2.0, None, 3.0] == [None if np.isnan(rate) else rate for rate in rates]


# ---------------------------------------------------------------- pictures


@LAYOUTS
def test_a_scene_has_a_strip_a_series_and_one_time_axis(layout):
    with canvas.style():
        figure = telemetry_figures.telemetry(scenes_of(make_run(), card_samples()), layout)
    limits = {axes.get_xlim() for axes in figure.axes}
    assert (4, 1) == (len(figure.axes), len(limits))
    assert ["seconds since the round's start"] == [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]
    titles = [axes.texts[-1].get_text() for axes in figure.axes]
    assert ["kernels busy (%)", "power (W)", "SM clock (MHz)", "memory in use (GiB)"] == titles


@LAYOUTS
def test_arms_have_the_colours_of_their_execution(layout):
    with canvas.style():
        figure = telemetry_figures.telemetry(scenes_of(make_run(), card_samples()), layout)
    from matplotlib.colors import to_hex

    shades = [to_hex(patch.get_facecolor()) for patch in figure.axes[0].patches]
    assert [canvas.EXECUTION["eager"]] * 2 + [canvas.EXECUTION["graph"]] * 2 == shades


def test_arms_of_one_execution_have_colours_of_their_own():
    assert list(canvas.SERIES[:2]) == telemetry_figures.arm_colors(["graph", "graph"])


def test_a_strip_that_no_scene_can_show_is_left_out():
    builder = make_run(make_machine(), make_cell(execution="eager"), make_cell())
    with canvas.style():
        figure = telemetry_figures.telemetry(scenes_of(builder, host_samples()), canvas.WIDE)
    assert 3 == len(figure.axes)
    assert "Not shown: power of the processors (n/a: the kernel keeps it for root)." in sections_of(builder, host_samples())["telemetry"].says


def test_a_strip_that_only_one_scene_lacks_says_why():
    builder = make_run()
    builder.ratio_claim("other", make_cell(4, execution="eager"), replace(make_cell(4), device="gpu"), 2.0, Word.CONFIRMED)
    blind = card_samples("other/0.0", power_w=[None]).assign(reason=lambda frame: frame["reason"].where(frame["value"].notna(), "not supported"))
    with canvas.style():
        figure = telemetry_figures.telemetry(scenes_of(builder, card_samples(), blind), canvas.WIDE)
    assert ["n/a: not supported"] == [text.get_text() for axes in figure.axes for text in axes.texts if text.get_text().startswith("n/a")]


def test_several_cards_are_told_apart_by_their_dashes():
    cards = (replace(make_gpu(), uuid=CARD), replace(make_gpu(), index=1, uuid="GPU-2"))
    builder = make_run(make_machine(gpus=cards))
    with canvas.style():
        figure = telemetry_figures.telemetry(scenes_of(builder, card_samples(), card_samples(device="GPU-2")), canvas.WIDE)
    assert ["GPU 0", "GPU 1"] == [text.get_text() for text in figure.legends[0].get_texts()]
    assert 2 == len({line.get_linestyle() for line in figure.axes[0].lines})


def assert_texts_apart(figure) -> None:
    """No text leaves the picture, and no two lie on one another. To be called with the style that the picture was made in."""
    figure.canvas.draw()
    texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts), *(axes.xaxis.label for axes in figure.axes)]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert [] == [box for box in boxes if box.x0 < 0 or box.x1 > figure.bbox.width + 1]
    assert [] == [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b) and min(a.y1, b.y1) - max(a.y0, b.y0) > 2]


@LAYOUTS
def test_no_two_texts_of_a_scene_overlap(layout):
    builder = make_run(base=replace(make_cell(execution="eager", precision="mixed_float16", input="tfdata_by_hand"), device="gpu"))
    builder.contrasts[0] = replace(builder.contrasts[0], title="a rather long title of a comparison that nobody would read to its end " * 2)
    with canvas.style():
        assert_texts_apart(telemetry_figures.telemetry(scenes_of(builder, card_samples()), layout))


# ---------------------------------------------------------------- many arms


def make_crowd(arms: int = 13, work_s: int = 8, pause_s: int = 4) -> tuple[Builder, pd.DataFrame]:
    """A round of many arms of one execution, each for itself, and its samples."""
    cells = [replace(make_cell(batch=i + 1), device="gpu") for i in range(arms)]
    builder = Builder(machine=make_machine(gpus=(replace(make_gpu(), uuid=CARD),), gpu_reason=None))
    contrast = make_contrast("pipelines", *cells, arrangement=Arrangement.SOLO)
    builder.cells |= {cell.id: cell for cell in cells}
    builder.contrasts.append(contrast)
    builder.records.append(make_alone_round(contrast, work_s, pause_s))
    return builder, card_samples("pipelines/0.0", seconds=arms * (work_s + pause_s))


def make_thin() -> tuple[Builder, pd.DataFrame]:
    """Two arms whose many blocks are too narrow for letters at any width."""
    builder = make_run()
    builder.records = [make_round(builder.contrasts[0], {EAGER.id: 4.0, GRAPH.id: 8.0}, quads=60)]
    return builder, card_samples(seconds=61 * 4)


def drawn(run: tuple[Builder, pd.DataFrame], layout):
    return telemetry_figures.telemetry(scenes_of(*run), layout)


def letters_of(figure) -> list[str]:
    """What stands above or beside the first strip, without its title."""
    return [text.get_text() for text in figure.axes[0].texts[:-1]]


THIRTEEN = list("ABCDEFGHIJKLM")


@LAYOUTS
def test_each_of_thirteen_arms_has_its_letter_above_its_blocks(layout):
    with canvas.style():
        figure = drawn(make_crowd(), layout)
    assert THIRTEEN == letters_of(figure)
    centres = [text.get_position()[0] for text in figure.axes[0].texts[:-1]]
    assert [12 * i + 4 for i in range(13)] == pytest.approx(centres)


@LAYOUTS
def test_short_work_between_pauses_keeps_its_letter(layout):
    with canvas.style():
        assert THIRTEEN == letters_of(drawn(make_crowd(work_s=1, pause_s=11), layout))


@LAYOUTS
def test_the_legend_lists_each_arm_s_letter_with_its_colour(layout):
    from matplotlib.colors import to_hex

    with canvas.style():
        figure = drawn(make_crowd(), layout)
    assert [f"{letter} batch {i + 1}" for i, letter in enumerate(THIRTEEN)] == [text.get_text() for text in figure.texts[1:]]
    assert telemetry_figures.arm_colors(["graph"] * 13) == [to_hex(patch.get_facecolor()) for patch in figure.artists]


def test_no_two_arms_share_a_letter_though_they_share_a_colour():
    colors = telemetry_figures.arm_colors(["graph"] * 60)
    letters = [telemetry.arm_letter(i) for i in range(60)]
    assert (len(canvas.SERIES), 60) == (len(set(colors)), len(set(letters)))
    assert ["A", "Z", "AA", "AZ", "BA"] == [letters[i] for i in (0, 25, 26, 51, 52)]


@LAYOUTS
def test_blocks_too_narrow_for_letters_have_a_lane_an_arm_with_its_letter(layout):
    with canvas.style():
        figure = drawn(make_thin(), layout)
    axes = figure.axes[0]
    assert ["A", "B"] == letters_of(figure)
    assert all(text.get_position()[0] < 0 and text.get_horizontalalignment() == "right" for text in axes.texts[:-1])
    lanes = [patch.get_path().get_extents() for patch in axes.patches if not patch.get_clip_on()]
    heights = sorted({(round(lane.y0, 6), round(lane.y1, 6)) for lane in lanes})
    (low, high) = heights
    assert 1 < low[0] < low[1] < high[0] < high[1]
    assert [high, low] == [(round(lane.y0, 6), round(lane.y1, 6)) for lane in lanes[::2]]  # A stands above B; of each what counts and what does not


@LAYOUTS
def test_arms_that_work_at_the_same_moment_have_lanes(layout):
    builder = make_run()
    record = builder.records[0]
    spans = [Reading(trial, "work", 4.0, "samples", t0_ns=0, t1_ns=16 * 10**9, n=1, quad=1, turn=0) for trial in (EAGER.id, GRAPH.id)]
    builder.records[0] = replace(record, readings=tuple(spans), arrangement=Arrangement.TOGETHER)
    with canvas.style():
        figure = drawn((builder, card_samples()), layout)
    assert 2 == sum(not patch.get_clip_on() for patch in figure.axes[0].patches)


@pytest.mark.parametrize(("letters", "wide"), [([], 3.9), (["A", "B", "A"], 9.6)])
def test_no_letter_hangs_over_another_arm_s_time(letters, wide):
    spans = ((0, 0.0, 10.0), (1, 10.0, 10.3), (0, 10.3, 20.0))
    shades = tuple(telemetry.Shade(arm, start_s, end_s, True) for arm, start_s, end_s in spans)
    scene = telemetry.Scene("c", "c", ("one", "two"), ("graph", "graph"), shades, ())
    assert letters == [telemetry.arm_letter(shade.arm) for shade in telemetry_figures.lettered(scene, wide)]


@LAYOUTS
@pytest.mark.parametrize("make", [make_crowd, make_thin])
def test_no_two_texts_of_many_arms_or_lanes_overlap(layout, make):
    with canvas.style():
        assert_texts_apart(drawn(make(), layout))


def test_the_picture_s_text_names_each_arm_with_its_letter():
    section = sections_of(*make_crowd(2))["telemetry"]
    assert "pipelines (round 1): A batch 1, B batch 2." in section.alt


# ---------------------------------------------------------------- traffic

MIB = 2.0**20


def busy_link(device: str = CARD, **more: Any) -> pd.DataFrame:
    """A card that takes 3 MiB a second over PCIe and gives one back, and takes 2 GiB a second from another card."""
    n = ROUND_S + 1
    traffic = {"pcie_rx_bytes_per_s": [3 * MIB] * n, "pcie_tx_bytes_per_s": [MIB] * n, "nvlink_rx_bytes": [i * 2.0**31 for i in range(n)]}
    return card_samples(device=device, **{**traffic, "nvlink_tx_bytes": [7e9] * n, "memory_busy_share": [0.4] * n, **more})


def titles_of(figure) -> list[str]:
    return [axes.texts[-1].get_text() for axes in figure.axes]


def test_traffic_into_and_out_of_the_card_stands_in_one_strip_a_link():
    scene = scene_of(make_run(), busy_link())
    told = {
        key: (strip_of(scene, key).unit, [(line.second, line.value[1]) for line in strip_of(scene, key).lines])
        for key in ("pcie_rx_bytes_per_s", "nvlink_rx_bytes")
    }
    assert {"pcie_rx_bytes_per_s": ("MiB/s", [(False, 3.0), (True, 1.0)]), "nvlink_rx_bytes": ("GiB/s", [(False, 2.0), (True, 0.0)])} == told


def test_memory_busy_is_drawn_with_kernels_busy():
    lines = strip_of(scene_of(make_run(), busy_link()), "kernel_busy_share").lines
    assert [("GPU 0", False, pytest.approx(80.0)), ("GPU 0", True, pytest.approx(40.0))] == [
        (line.label, line.second, line.value[0]) for line in lines
    ]


@LAYOUTS
def test_of_one_card_what_stands_beside_is_dashed(layout):
    with canvas.style():
        figure = telemetry_figures.telemetry(scenes_of(make_run(), busy_link()), layout)
    assert [
        "kernels busy, memory busy dashed (%)", "power (W)", "SM clock (MHz)", "memory in use (GiB)",
        "PCIe: into the card, out of it dashed (MiB/s)", "NVLink: into the card, out of it dashed (GiB/s)",
    ] == titles_of(figure)  # fmt: skip
    assert [["-", "--"], ["-"], ["-", "--"]] == [[line.get_linestyle() for line in figure.axes[i].lines] for i in (0, 1, 4)]


@LAYOUTS
def test_of_several_cards_which_their_dashes_tell_apart_it_is_thin(layout):
    cards = (replace(make_gpu(), uuid=CARD), replace(make_gpu(), index=1, uuid="GPU-2"))
    with canvas.style():
        figure = telemetry_figures.telemetry(scenes_of(make_run(make_machine(gpus=cards)), busy_link(), busy_link("GPU-2")), layout)
        assert_texts_apart(figure)
    assert "PCIe: into the card, out of it thin (MiB/s)" == titles_of(figure)[4]
    assert [("-", False), ("--", False), ("-", True), ("--", True)] == [
        (line.get_linestyle(), line.get_linewidth() < 1) for line in figure.axes[4].lines
    ]


def test_traffic_that_nobody_asked_for_is_not_mentioned():
    scene = scene_of(make_run(), card_samples())
    assert [] == [strip.key for strip in scene.strips if "pcie" in strip.key or "nvlink" in strip.key]
    assert "Not shown" not in sections_of(make_run(), card_samples())["telemetry"].says


def test_traffic_that_a_card_does_not_tell_takes_no_room_but_has_its_reason():
    refused = busy_link(why="not supported", nvlink_rx_bytes=[None] * 17, nvlink_tx_bytes=[None] * 17)
    with canvas.style():
        figure = telemetry_figures.telemetry(scenes_of(make_run(), refused), canvas.WIDE)
    assert 5 == len(figure.axes)
    assert "Not shown: NVLink (n/a: not supported)." in sections_of(make_run(), refused)["telemetry"].says


def test_a_link_of_which_one_way_is_known_is_drawn():
    refused = busy_link(pcie_rx_bytes_per_s=[None] * 17)
    strip = strip_of(scene_of(make_run(), refused), "pcie_rx_bytes_per_s")
    assert ([True], "out of it") == ([line.second for line in strip.lines], strip.beside)


@LAYOUTS
def test_a_long_series_makes_a_small_picture(layout):
    long = make_samples(
        "graph-speedup/0.0", CARD, period_s=0.002, **{name: list(np.sin(np.arange(8000)) + 2) for name in ("kernel_busy_share", "power_w")}
    )
    with canvas.style():
        svg = canvas.to_svg(telemetry_figures.telemetry(scenes_of(make_run(), long), layout))
    assert len(svg) < 60_000
    assert [] == [node for node in ET.fromstring(svg).iter() if node.tag.endswith("script")]


def test_a_hostile_title_stays_text():
    builder = make_run()
    builder.contrasts[0] = replace(builder.contrasts[0], title="<script>alert(1)</script> $x^{$")
    page = render(*builder.run(), card_samples())["report.html"].decode()
    assert "<script>" not in page


# ---------------------------------------------------------------- tables


def measured_run(rounds: int = 2) -> Builder:
    builder = make_run(rounds=rounds)
    for i, record in enumerate(builder.records):
        told = with_readings(
            record, GRAPH.id, kernel_busy=(0.8 + 0.1 * i, "share"), power_w=(400.0 + 100 * i, "W"), sm_clock_mhz=(1980.0, "MHz"), temperature_c=(60.0 + i, "°C"),
            gpu_memory_used_bytes=(2.0**30 * (1 + i), "bytes"), energy_j=(1000.0 + 200 * i, "J"), work_per_j=(0.02 + 0.01 * i, "samples/J"),
            sm_active=(None, "share", "this card has no GPM"),
        )  # fmt: skip
        builder.records[i] = with_readings(told, EAGER.id, kernel_busy=(0.3, "share"), energy_j=(500.0, "J"), work_per_j=(0.01, "samples/J"))
    judge_energy(builder, GRAPH, rounds, work_per_j=(0.025, 0.021, 0.029), j_per_work=(40.0, 34.5, 47.6), power_w=(450.0, 430.0, 470.0))
    judge_energy(builder, EAGER, rounds, work_per_j=(0.01, 0.009, 0.011), j_per_work=(100.0, 90.9, 111.1))
    return builder


PER_JOULE, A_ROUND = "work per joule (interval)", "energy of a round (lowest to highest)"
UNITS = {"work_per_j": "samples/J", "j_per_work": "J/sample", "power_w": "W"}


def judge_energy(builder: Builder, cell: Cell, rounds: int, contrast: str = "", **figures: tuple[float, float, float]) -> None:
    """Add what the judge says of an arm's energy: by measure its point and interval."""
    for measure, (point, low, high) in figures.items():
        unit = UNITS[measure.removeprefix("host_")]
        name = contrast or builder.contrasts[0].id
        builder.energy.append(ArmEnergy(name, cell.id, cell.id, measure, unit, make_estimate(point, low, high, rounds)))


def row_of(table, label: str) -> dict[str, str]:
    (row,) = [row for row in table.rows if row[0] == label]
    return dict(zip(table.columns, row, strict=True))


def test_an_arm_s_use_of_the_cards_is_the_mean_of_its_rounds():
    row = row_of(sections_of(measured_run(), card_samples())["telemetry"].table, "graph")
    assert {
        "arm": "graph",
        "kernels busy": "85.0\u00a0%",
        "SMs active": "n/a (1)",
        "power": "450 W",
        "SM clock": "1,980 MHz",
        "temperature, highest": "61 °C",
        "memory in use, highest": "2.00 GiB",
        "rounds": "2",
    } == row


def test_traffic_and_busy_memory_are_columns_where_anything_was_told_of_them():
    builder = make_run()
    builder.records[0] = with_readings(
        builder.records[0], GRAPH.id, memory_busy=(0.4, "share"), pcie_rx_bytes_per_s=(3 * 2.0**30, "bytes/s"), pcie_tx_bytes_per_s=(0.0, "bytes/s"),
        nvlink_rx_bytes_per_s=(None, "bytes/s", "GPU 0: not supported"),
    )  # fmt: skip
    (row,) = sections_of(builder, card_samples())["telemetry"].table.rows
    columns = sections_of(builder, card_samples())["telemetry"].table.columns
    assert {"memory busy": "40.0\u00a0%", "PCIe in": "3.00 GiB/s", "PCIe out": "0 B/s", "NVLink in": "n/a (1)", "rounds": "1"} == dict(
        list(zip(columns, row, strict=True))[1:]
    )


def test_a_missing_use_has_its_reason_below_the_table():
    assert sections_of(measured_run(), card_samples())["telemetry"].table.note.endswith("(1) this card has no GPM.")


def test_an_arm_of_which_a_measure_was_not_told_is_no_zero():
    assert "n/a" == row_of(sections_of(measured_run(), card_samples())["telemetry"].table, "eager")["power"]


def test_rounds_that_failed_say_nothing_of_the_cards():
    builder = measured_run()
    builder.records[1] = replace(builder.records[1], outcome=Outcome(State.FAILED, Reason("killed", "killed")))
    assert "80.0\u00a0%" == row_of(sections_of(builder, card_samples())["telemetry"].table, "graph")["kernels busy"]


def test_a_trial_that_is_slowed_on_purpose_says_nothing_of_its_arm():
    builder = measured_run()
    trials = tuple(replace(trial, ghost_every=10) for trial in builder.contrasts[0].trials)
    builder.contrasts[0] = replace(builder.contrasts[0], trials=trials)
    assert usage.usage_frame(index_of(builder)).empty


def test_the_host_s_table_is_of_comparisons():
    builder = make_run(make_machine(), make_cell(execution="eager"), make_cell(), rounds=2)
    second = host_samples("graph-speedup/1.0", start_s=1000.0, cpu_share=[0.7] * 17, rss_bytes=[4.0 * 2**30] * 17)
    table = sections_of(builder, host_samples(), second)["telemetry"].table
    expected = ("graph-speedup", "60.0\u00a0%", "4.00 GiB", "0 B/s", "1.00 MiB/s", "n/a (1)", "2")
    assert expected == table.rows[0]
    assert "(1) the kernel keeps it for root." in table.note


def test_energy_stands_with_its_intervals_beside_what_is_drawn_at_rest():
    idle = make_samples(IDLE_ROUND, CARD, period_s=0.1, power_w=[70.0, 72.0])
    row = row_of(sections_of(measured_run(), card_samples(), idle)["energy"].table, "graph")
    assert {
        "arm": "graph",
        "of what": "cards, their own counters",
        PER_JOULE: "0.0250 samples/J (0.0210 samples/J to 0.0290 samples/J)",
        "joules for each unit of work (interval)": "40 J/sample (34.5 J/sample to 47.6 J/sample)",
        "power (interval)": "450 W (430 W to 470 W)",
        A_ROUND: "1,000 J to 1,200 J",
        "idle power": "71 W",
        "rounds": "2",
    } == row


def test_the_page_and_the_markdown_say_how_sure_the_intervals_of_energy_are():
    files = render(*measured_run().run(), card_samples())
    for page in (files[name].decode().replace("\u00a0", " ") for name in ("report.html", "report.md")):
        assert "an interval of at least 99 % confidence" in page
        assert "40 J/sample (34.5 J/sample to 47.6 J/sample)" in page


def test_one_round_of_energy_says_so():
    row = row_of(sections_of(measured_run(1), card_samples())["energy"].table, "graph")
    assert ("1,000 J (one round)", "0.0250 samples/J (no spread from n=1)") == (row[A_ROUND], row[PER_JOULE])


def test_energy_of_a_run_that_was_judged_before_there_were_such_intervals_says_so():
    builder = measured_run()
    builder.energy.clear()
    table = sections_of(builder, card_samples())["energy"].table
    row = row_of(table, "graph")
    assert ("0.0250 samples/J (not judged yet)", "450 W (not judged yet)", True) == (
        row[PER_JOULE],
        row["power (interval)"],
        "not judged yet." in table.note,
    )


def test_an_arm_of_several_comparisons_is_told_by_the_one_with_most_rounds():
    builder = measured_run()
    other = builder.measure("batch-norm", GRAPH, replace(make_cell(batch_norm="fused"), device="gpu"), 4.0, 1.1, rounds=3)
    builder.records[-3:] = [
        with_readings(record, GRAPH.id, energy_j=(2000.0, "J"), work_per_j=(0.04, "samples/J")) for record in builder.records[-3:]
    ]
    judge_energy(builder, GRAPH, 3, contrast=other.id, work_per_j=(0.04, 0.039, 0.041))
    row = row_of(sections_of(builder, card_samples())["energy"].table, "graph")
    assert ("0.0400 samples/J (0.0390 samples/J to 0.0410 samples/J)", "2,000 J", "3") == (row[PER_JOULE], row[A_ROUND], row["rounds"])


def test_what_is_wrong_with_an_interval_of_energy_stands_behind_it():
    builder = measured_run()
    builder.energy[0] = replace(builder.energy[0], reason=Reason("unstable", "4 of 6 rounds were lost"))
    row = row_of(sections_of(builder, card_samples())["energy"].table, "graph")
    assert "0.0250 samples/J (0.0210 samples/J to 0.0290 samples/J); 4 of 6 rounds were lost" == row[PER_JOULE]


def test_a_counter_that_did_not_grow_counted_neither_nothing_nor_endless_work():
    builder, why = measured_run(1), "the energy counter did not grow in that time"
    others = tuple(reading for reading in builder.records[0].readings if reading.trial != EAGER.id or reading.name == "work")
    told = replace(builder.records[0], readings=others)
    builder.records[0] = with_readings(told, EAGER.id, energy_j=(0.0, "J"), work_per_j=(None, "samples/J", why))
    none = Reason("no_reading", f"has no reading: {why}")
    builder.energy = [replace(one, estimate=None, reason=none) if one.cell == EAGER.id else one for one in builder.energy]
    table = sections_of(builder, card_samples())["energy"].table
    row = row_of(table, "eager")
    assert ["n/a (1)"] * 3 == [row[PER_JOULE], row["joules for each unit of work (interval)"], row[A_ROUND]]
    assert f"(1) {why}." in table.note


def test_the_probes_of_a_search_have_no_row_of_energy():
    builder = measured_run()
    builder.contrasts[0] = replace(builder.contrasts[0], search=Search("batch"))
    assert "energy" not in sections_of(builder, card_samples())


def test_without_samples_at_rest_idle_power_has_a_reason():
    table = sections_of(measured_run(), card_samples())["energy"].table
    assert "n/a (1)" == row_of(table, "graph")["idle power"]
    assert "(1) no power was read before the first round." == table.note


def test_idle_power_of_several_cards_is_a_range():
    watts = {"host": 12.0, "GPU-1": 70.0, "GPU-2": 75.0}
    assert ("70 W to 75 W a card", "12 W") == (usage.idle_text(watts, host=False), usage.idle_text(watts, host=True))


def test_power_added_up_is_told_from_a_counter():
    builder = make_run()
    builder.records[0] = with_readings(
        builder.records[0],
        GRAPH.id,
        energy_j=(None, "J", "the card has no energy counter"),
        energy_integrated_j=(900.0, "J"),
        work_per_j=(0.1, "samples/J"),
    )
    row = row_of(sections_of(builder, card_samples())["energy"].table, "resnet50")  # alone, it is named by its workload
    assert ("cards, power added up over time", "900 J (one round)") == (row["of what"], row[A_ROUND])


def test_the_processors_have_a_row_of_their_own_with_their_power():
    builder = make_run(make_machine(), make_cell(execution="eager"), make_cell())
    builder.records[0] = with_readings(builder.records[0], make_cell().id, host_energy_j=(180.0, "J"), host_work_per_j=(0.3, "samples/J"))
    judge_energy(builder, make_cell(), 1, host_work_per_j=(0.3, 0.0, 1.0), host_power_w=(30.0, 0.0, 60.0))
    row = row_of(sections_of(builder)["energy"].table, "resnet50")
    assert ("processors", "180 J (one round)", "0.300 samples/J (no spread from n=1)", "30 W (no spread from n=1)") == (
        row["of what"],
        row[A_ROUND],
        row[PER_JOULE],
        row["power (interval)"],
    )


def test_energy_that_nobody_could_measure_is_one_sentence():
    builder = make_run(make_machine(), make_cell(execution="eager"), make_cell())
    for cell in (make_cell(execution="eager"), make_cell()):
        why = (None, "J", "this user may not read the energy counters (RAPL); the kernel keeps them for root")
        builder.records[0] = with_readings(builder.records[0], cell.id, host_energy_j=why, host_work_per_j=why)
    section = sections_of(builder)["energy"]
    assert section.table is None
    assert "No energy was measured here: n/a: this user may not read the energy counters (RAPL); the kernel keeps them for root." == section.says


def test_a_reason_is_told_once():
    notes = usage.Footnotes()
    assert ["n/a (1)", "n/a (2)", "n/a (1)", "n/a"] == [notes.missing(why) for why in ("none.", "gone", "none.", None)]
    assert "(1) none. (2) gone." == notes.text()


# ---------------------------------------------------------------- the page


def test_a_run_without_telemetry_has_no_section_of_it():
    assert set() == {"telemetry", "energy"} & set(sections_of(make_full()))


def test_page_markdown_and_plots_show_the_hardware():
    idle = make_samples(IDLE_ROUND, CARD, period_s=0.1, power_w=[70.0, 72.0])
    files = render(*measured_run().run(), pd.concat([card_samples(), idle]))
    assert {"plots/telemetry.svg", "plots/telemetry.png"} <= set(files)
    assert 'id="energy"' in files["report.html"].decode()
    assert "## What the hardware did" in files["report.md"].decode()


def test_the_same_samples_give_the_same_bytes():
    run, samples = measured_run().run(), card_samples()
    assert render(*run, samples) == render(*run, samples)


def test_figures_without_samples_are_not_drawn():
    with canvas.style():
        drawn = figures.draw(make_tables(index_of(make_run())))
    assert set() == {"telemetry", "mfu", "roofline"} & set(drawn)


@dataclass(frozen=True)
class Taken:
    """A sample as a reader gives it."""

    device: str
    t_ns: int
    name: str
    value: float | None
    reason: str | None = None


def bundle_of(tmp_path, builder: Builder, frame: pd.DataFrame) -> Bundle:
    manifest, records, verdicts, _ = builder.run()
    bundle = Bundle.create(tmp_path, manifest)
    for record in records:
        bundle.append(record)
        mine = frame[frame["round"] == record.round]
        rows = zip(*(mine[name].tolist() for name in ("device", "t_ns", "name", "value")), strict=True)
        bundle.append_telemetry(record.round, [Taken(*row) for row in rows])
    bundle.pack_telemetry()
    bundle.write_verdicts(verdicts)
    return bundle


def test_the_command_reads_a_bundle_s_samples(tmp_path):
    bundle = bundle_of(tmp_path, make_run(), card_samples())
    assert 0 == main([bundle.path.name, f"results_dir={tmp_path}"])
    assert (bundle.path / "plots" / "telemetry.svg").exists()


def test_a_damaged_file_of_samples_costs_the_picture_only_and_is_told(tmp_path):
    bundle = bundle_of(tmp_path, make_run(), card_samples())
    (bundle.path / "telemetry.parquet").write_bytes(b"PAR1 and nothing else")
    assert 0 == main([bundle.path.name, f"results_dir={tmp_path}"])
    assert not (bundle.path / "plots" / "telemetry.svg").exists()
    assert "telemetry.parquet" in (bundle.path / "report.html").read_text()
