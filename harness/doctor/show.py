"""Findings for people (a table) and for programs (strict JSON). Pure but for the table, which rich prints."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from typing import TextIO

from harness.console import clean, console
from harness.doctor.checks import Row, overall
from harness.doctor.findings import WORST_FIRST, Level
from harness.model import Scalar

SCHEMA = 1
"""Of the JSON. 1: the first."""

LOOKS = {Level.OK: ("✓", "green"), Level.INFO: ("•", ""), Level.WARNING: ("!", "bold yellow"), Level.ERROR: ("✗", "bold red")}


def as_json(machine: str, rows: tuple[Row, ...]) -> str:
    """Return the findings as strict JSON; its fields are documented in harness/doctor/__main__.py."""
    data = {
        "schema": SCHEMA,
        "machine": clean(machine),
        "fit": overall(rows) is not Level.ERROR,
        "worst": overall(rows).value,
        "findings": [_plain(row) for row in rows],
    }
    return json.dumps(data, allow_nan=False, indent=1)


def _plain(row: Row) -> dict[str, object]:
    found = row.finding
    return {
        "area": row.area,
        "check": row.check,
        "subject": row.subject or None,
        "code": found.code,
        "level": found.level.value,
        "found": clean(found.found),
        "why": clean(found.why),
        "advice": clean(found.advice),
        "numbers": {name: _finite(value) for name, value in found.numbers.items()},
    }


def _finite(value: Scalar) -> Scalar:
    if isinstance(value, str):
        return clean(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def summary(rows: tuple[Row, ...]) -> str:
    """Return the answer in one line: fit or not, and how many findings of each level."""
    counts = Counter(row.finding.level for row in rows)
    said = ", ".join(f"{counts[level]} {level.value}" for level in WORST_FIRST if counts[level])
    return f"{'Not fit' if counts[Level.ERROR] else 'Fit'} to be measured: {said}."


def print_table(machine: str, rows: tuple[Row, ...], stream: TextIO) -> None:
    """Print the findings grouped by area."""
    from rich import box  # noqa: PLC0415 - not every call shows a table
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=clean(machine), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("area", "check", "level", "found; why it matters; what to do"):
        table.add_column(name, overflow="fold")
    for area, group in itertools.groupby(rows, key=lambda row: row.area):
        for row in group:
            symbol, colour = LOOKS[row.finding.level]
            level = Text(f"{symbol} {row.finding.level.value}", style=colour)
            table.add_row(Text(area), Text(f"{row.subject} {row.check}".strip()), level, Text(sentences(row)))
            area = ""  # noqa: PLW2901 - named once
        table.add_section()
    out = console(stream)
    out.print(table)
    out.print(Text(summary(rows), style="bold"))


def sentences(row: Row) -> str:
    """Return what the table says of a finding: what was found, why it matters, what to do, each on lines of its own."""
    found = row.finding
    why = f"Why: {found.why}." if found.why else ""
    advice = f"Do: {found.advice}." if found.advice else ""
    return "\n".join(clean(part) for part in (found.found, why, advice) if part)
