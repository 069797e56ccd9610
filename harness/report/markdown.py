"""The report as Markdown: the same text as the page, in the same order. Text from bundles is escaped, so that it stays text in every renderer."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from harness.report.page import MARKS
from harness.report.text import clean, one_line
from harness.report.words import LOOKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.report.cards import Card, Table
    from harness.report.content import Content

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~!$])")
_BLOCK = re.compile(r"^(\s*)([-+>=]|\d+[.)])(?=\s|$)")
_LINK = re.compile(r"(?i)\b(https?|ftp|file|mailto|www)([:.])")


def escape(text: str) -> str:
    """Return `text` as one line of Markdown that renders as itself: no markup, no HTML, no link, no table cell ends."""
    flat = html.escape(one_line(text), quote=False)
    flat = _SPECIAL.sub(r"\\\1", flat)
    flat = _LINK.sub(r"\1&#8203;\2", flat)
    return _BLOCK.sub(r"\1\\\2", flat)


def code_block(text: str) -> str:
    """Return a fenced block whose fence is longer than any run of backticks inside."""
    text = clean(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def to_markdown(content: Content, figures: Mapping[str, str]) -> str:
    """Return the report. `figures` maps a section's id to the picture's path beside the file."""
    parts = [_head(content), _validity(content), _sections(content, figures), _claims(content), _facts(content)]
    return "\n".join(line for part in parts for line in part)


def _head(content: Content) -> list[str]:
    lines = ["# Speedproof", ""]
    if content.preliminary:
        lines += [f"> **PRELIMINARY** {escape(content.preliminary.removeprefix('Preliminary: '))}", ""]
    lines += [f"**{escape(content.headline)}**", ""]
    for line in content.highlights:
        lines += [escape(line), ""]
    rows = [(LOOKS[chip.word].symbol, chip.word.value, str(chip.count), chip.says) for chip in content.chips]
    lines += [_table(("", "verdict", "claims", "meaning"), rows), ""]
    return [*lines, f"{escape(content.machine_line)}. {escape(content.run_line)}.", ""]


def _validity(content: Content) -> list[str]:
    lines = ["## Can these figures be trusted?", ""]
    for check in content.checks:
        lines.append(f"- {MARKS[check.state]} **{escape(check.title)}**: {escape(check.text)}")
        lines += [f"  - {escape(line)}" for line in check.lines]
    return [*lines, "", _as_table(content.controls)] if content.controls else lines


def _sections(content: Content, figures: Mapping[str, str]) -> list[str]:
    lines = []
    for section in content.sections:
        lines += ["", f"## {escape(section.title)}", "", escape(section.says), ""]
        if section.id in figures:
            lines += [f"![{escape(section.title)}]({figures[section.id]})", ""]
        if section.table:
            lines += [_as_table(section.table)]
        for table in section.more:
            lines += ["", f"**{escape(table.caption)}**", "", _as_table(table)]
    return lines


def _claims(content: Content) -> list[str]:
    lines = ["", "## Claim by claim"] if content.groups else []
    for name, cards in content.groups:
        lines += ["", f"### {escape(name)}"]
        for card in cards:
            lines += ["", *_card(card)]
    if content.untestable:
        lines += ["", f"## {escape(content.untestable.caption)}", "", _as_table(content.untestable)]
    if content.elsewhere:
        lines += ["", escape(content.elsewhere)]
    return lines


def _facts(content: Content) -> list[str]:
    lines = ["", "## Machine, software, provenance", ""]
    for table in content.facts:
        lines += [f"### {escape(table.caption)}", "", _as_table(table), ""]
    return [*lines, f"Environment variables that workers did not get, by name: {escape(content.dropped)}.", "", code_block(content.config), ""]


def _card(card: Card) -> list[str]:
    word = f"{LOOKS[card.word].symbol} {card.word.value}" if card.word else "not judged yet"
    lines = [f"#### {escape(card.id)}: {escape(word)}, {escape(card.summary)}", "", f"> {escape(card.statement)}", ""]
    lines += [f"Said in {escape(card.source)}; {escape(card.hardware)}.", "", f"**Why:** {escape(card.why)}", ""]
    if card.adjusted:
        lines += [escape(card.adjusted), ""]
    lines += [f"- {escape(key.replace('_', ' '))}: {escape(value)}" for key, value in card.compared]
    lines += ["", _as_table(card.results), ""]
    for table in card.arms:
        lines += [f"**{escape(table.caption)}**", "", _as_table(table), ""]
    if card.published:
        lines += [f"**{escape(card.published.caption)}**", "", _as_table(card.published), ""]
    if card.notes:
        lines += [f"**Mind:** {escape(card.notes)}", ""]
    if card.looks:
        lines += [f"**{escape(card.looks.caption)}**", "", _as_table(card.looks), ""]
    lines += ["**Measure it again**", "", code_block(card.command), ""]
    for table in card.rounds:
        lines += [f"**{escape(table.caption)}**", "", _as_table(table), ""]
    return lines


def _as_table(table: Table) -> str:
    text = _table(table.columns, table.rows, table.numeric)
    return f"{text}\n\n{escape(table.note)}" if table.note else text


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]], numeric: tuple[int, ...] = ()) -> str:
    names = [escape(column) for column in columns]
    ruler = ["---:" if i in numeric else "---" for i in range(len(names))]
    body = [[escape(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [names, ruler, *body])
