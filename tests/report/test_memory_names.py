"""Figures of a card's memory that mean different things stay apart: what a framework took from the card is not what its net needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model import Reading
from harness.report import make_tables, numbers
from harness.report.content import Content, make_content
from harness.report.index import build_index
from harness.report.markdown import to_markdown
from harness.report.page import to_html
from tests.report.builders import Builder, make_cell

GIB = 2**30
WHOLE, GROWING = make_cell(allocator="all"), make_cell(allocator="growth")
PEAK, TAKEN = 2 * GIB, {WHOLE.id: 130 * GIB, GROWING.id: 3 * GIB}


@pytest.fixture(scope="module")
def content() -> Content:
    """Two arms that need the same memory; one of them took the whole card."""
    builder = Builder()
    builder.measure("growth", WHOLE, GROWING, 4.0, 1.0)
    for i, record in enumerate(builder.records):
        told = [
            reading
            for cell in (WHOLE.id, GROWING.id)
            for reading in (Reading(cell, "allocator_peak", PEAK, "bytes"), Reading(cell, "gpu_memory_used_bytes", TAKEN[cell], "bytes"))
        ]
        builder.records[i] = replace(record, readings=(*record.readings, *told))
    manifest, records, verdicts, notes = builder.run()
    index = build_index(manifest, records, verdicts)
    return make_content(index, make_tables(index), notes)


def test_what_was_needed_and_what_was_taken_are_two_columns(content):
    table = next(section.table for section in content.sections if section.id == "memory")
    needed, taken = (table.columns.index(name) for name in ("allocator peak", "gpu memory used bytes"))
    assert {(numbers.size(PEAK), numbers.size(size)) for size in TAKEN.values()} == {(row[needed], row[taken]) for row in table.rows}


def test_a_card_that_was_taken_whole_makes_no_saving_of_the_other_arm(content):
    for text in (to_markdown(content, {}), to_html(content, {})):
        assert not [words for words in ("memory saving", "saves memory", "less memory", "of the memory") if words in text.lower()]
