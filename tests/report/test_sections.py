"""The sections on jobs and feeding: there with data, absent without, and the same figures on the page, in Markdown and in the picture's text."""

from __future__ import annotations

import html
import re

import pytest

from harness.model import Word
from harness.report import make_tables, render
from harness.report.cards import Table
from harness.report.content import make_content
from harness.report.index import build_index
from harness.report.sections import Section
from tests.report.builders import Builder, make_cell
from tests.report.job_builders import (
    NONE,
    SYNC,
    add_jobs,
    add_rates,
    claim_level,
    claim_slowdown,
    make_feed_cell,
    make_job,
    make_job_contrast,
    make_saving_run,
)  # fmt: skip

NEW = {"stalls", "saves", "slowdown", "pipelines", "input_wait", "replay", "feeding"}


def make_rich_run() -> Builder:
    builder = make_saving_run(0.3, 0.5, 0.4)
    claim_level(builder, SYNC)
    claim_slowdown(builder, "saving", NONE, SYNC)
    add_rates(builder, "pipes", (make_feed_cell(level="python_loop"), [240.0, 250.0]), (make_feed_cell(), [900.0, 1000.0]))
    add_rates(builder, "replays", *((make_feed_cell("replay", devices=8, cores=cores), [400.0 * cores, 420.0 * cores]) for cores in (1, 2)))
    builder.measure("graph", make_cell(execution="eager"), make_cell(), 3.0, 2.0, rounds=2)
    waits = [reading for record in builder.records if record.contrast == "saving" for reading in record.readings if reading.name == "job"]
    builder.records = [record if record.contrast != "saving" else _waited(record, waits[0].trial) for record in builder.records]
    return builder


def _waited(record, trial: str):
    from dataclasses import replace

    from harness.model import Reading

    return replace(record, readings=(*record.readings, Reading(trial, "input_wait_s", 1.5, "s")))


def sections_of(builder: Builder) -> dict[str, Section]:
    manifest, records, verdicts, notes = builder.run()
    index = build_index(manifest, records, verdicts)
    return {section.id: section for section in make_content(index, make_tables(index), notes).sections}


def table_of(builder: Builder, name: str) -> Table:
    table = sections_of(builder)[name].table
    assert table is not None
    return table


def row_of(table: Table, first: str) -> dict[str, str]:
    (row,) = [row for row in table.rows if row[0] == first]
    return dict(zip(table.columns, row, strict=True))


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return render(*make_rich_run().run())


@pytest.fixture(scope="module")
def rich() -> dict[str, Section]:
    return sections_of(make_rich_run())


def test_every_section_appears_with_its_data(rich):
    assert set(rich) >= NEW


def test_no_section_appears_without_its_data():
    builder = Builder()
    builder.ratio_claim("graph-speedup", make_cell(execution="eager"), make_cell(), 2.4, Word.CONFIRMED)
    assert set() == NEW & set(sections_of(builder))


def test_an_empty_run_has_no_section():
    assert set() == set(sections_of(Builder()))


def test_every_section_has_its_picture(files):
    assert {f"plots/{name}.{kind}" for name in NEW for kind in ("svg", "png")} <= set(files)


def test_every_picture_has_its_words(rich):
    assert [] == [name for name in NEW if not rich[name].alt or not rich[name].says]


def test_page_and_markdown_show_the_same_figures(files):
    number = re.compile(r"\d[\d,]*(?:\.\d+)?(?:x| samples/s| ms| s)\b")
    page = re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>|data:[^\" ]+|alt=\"[^\"]*\"", "", files["report.html"].decode(), flags=re.DOTALL))
    assert set(number.findall(html.unescape(page))) == set(number.findall(html.unescape(files["report.md"].decode()).replace("\\", "")))


def test_what_a_save_costs_stands_in_one_row():
    assert {
        "how it saves": "sync",
        "held by a save, saves 2 and later": "400 ms (300 ms to 500 ms)",
        "longer steps while it is written": "n/a: no step ran while a save was written",
        "until it is on the disk": "600 ms (450 ms to 750 ms)",
        "restored bit for bit": "9 of 9",
        "rounds": "3",
    } == row_of(table_of(make_rich_run(), "saves"), "sync")


def test_the_shortest_and_the_longest_hold_are_named(rich):
    assert rich["saves"].says.startswith("A save holds training for 10.0 ms (async) to 400 ms (sync). ")


def test_a_slowdown_stands_beside_what_was_expected_and_claimed():
    row = row_of(table_of(make_rich_run(), "slowdown"), "sync")
    assert ("2.00 s", "1.20x", "1.15x to 1.25x (nfs-20pct)") == (row["between saves"], row["1 + held / interval"], row["claimed"])


def test_a_slowdown_of_which_nothing_is_claimed_says_so():
    assert "nothing" == row_of(table_of(make_rich_run(), "slowdown"), "async")["claimed"]


def test_the_timeline_counts_saves_and_their_time():
    table = table_of(make_rich_run(), "stalls")
    row = next(dict(zip(table.columns, row, strict=True)) for row in table.rows if row[1] == "sync")
    # The round in which a save holds for 0.4 s, the first for ten times that: 4.8 s in all.
    assert ("10.8 s", "6.00 s", "4.80 s", "none", "3") == tuple(
        row[name] for name in ("length", "steps", "held by saves", "steps while a save is written", "saves")
    )


def test_a_job_without_saves_has_none_in_the_timeline():
    table = table_of(make_rich_run(), "stalls")
    row = next(dict(zip(table.columns, row, strict=True)) for row in table.rows if row[1] == "no saves")
    assert ("none", "0", "none") == (row["held by saves"], row["saves"], row["last save on the disk after"])


def test_a_pipeline_is_held_against_what_training_takes(rich):
    assert "(resnet50, 96 px, graph) takes 5.97 samples/s: a pipeline below that starves it." in rich["pipelines"].says


def test_waiting_and_computing_add_up():
    assert ("25.0\u00a0%", "75.0\u00a0%") == table_of(make_rich_run(), "input_wait").rows[0][1:3]


def test_one_core_is_named_in_the_singular():
    assert ["1 core", "2 cores"] == [row[1] for row in table_of(make_rich_run(), "feeding").rows]


def test_a_run_of_failed_jobs_shows_the_reasons_and_no_picture():
    builder = Builder()
    add_jobs(builder, make_job_contrast("saving", NONE, SYNC), [NONE, SYNC], make_job(NONE), failed={SYNC.id: "no space left on the device"})
    assert "n/a: failed: no space left on the device" == table_of(builder, "saves").rows[0][1]
    assert "plots/saves.svg" not in render(*builder.run())
