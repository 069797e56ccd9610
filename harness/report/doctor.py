"""The section on what the doctor found before the first round: its findings, worst first, and what NVML and nvidia-smi said of the cards. Plain text.

A bundle may come from anyone: how much of it is shown is bounded here, and whoever prints it escapes it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.report import numbers
from harness.report.cards import Table
from harness.report.sections import Section
from harness.report.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.model import DoctorFinding, Examination, Scalar

MOST_FINDINGS, MOST_PAIRS, MOST_LETTERS = 60, 40, 400
"""Rows of the two tables, and letters of a text. A machine with eight cards has about fifty findings that are not well."""
LARGEST = 1e15
"""A number beyond it is none that a card tells."""

LEVELS = {"error": ("✗", "error", "errors"), "warning": ("!", "warning", "warnings"), "info": ("•", "for information", "for information")}
WELL = "ok"
"""Of findings, worst first: symbol, and how one and several are counted. What is well is only named."""

OURS, THEIRS = "_nvml", "_nvidia_smi"
"""End the names of two numbers that are one quantity, as each of the two tells it."""
QUANTITIES = {
    "memory_mib": ("memory in use", "MiB"), "power_w": ("power", "W"), "sm_clock_mhz": ("SM clock", "MHz"), "memory_clock_mhz": ("memory clock", "MHz"),
    "temperature_c": ("temperature", "°C"),
}  # fmt: skip


def doctor_section(examination: Examination | None) -> Section | None:
    """Return the section; None for a run that the doctor did not begin."""
    if examination is None or not examination.findings:
        return None
    ranked = sorted(examination.findings, key=lambda finding: _rank(finding.level))
    ill = [finding for finding in ranked if finding.level != WELL]
    table = _findings(ill, [finding for finding in ranked if finding.level == WELL])
    beside = _beside(examination.findings)
    return Section("doctor", "What the doctor found", _says(ranked), table=table, more=(beside,) if beside is not None else ())


def _rank(level: str) -> int:
    """A level that is not known comes after those that are, and before what is well."""
    return list(LEVELS).index(level) if level in LEVELS else len(LEVELS) + (level == WELL)


def _says(findings: Sequence[DoctorFinding]) -> str:
    counts = Counter(finding.level if finding.level in {*LEVELS, WELL} else "info" for finding in findings)
    told = [numbers.plural(counts[level], one, many) for level, (_, one, many) in LEVELS.items() if counts[level]]
    told += [f"{counts[WELL]:,} well"] if counts[WELL] else []
    fit = "is not fit" if counts["error"] else "is fit"
    return f"Before the first round this machine was examined, and nothing was changed. It {fit} to be measured: {', '.join(told)}."


def _findings(ill: Sequence[DoctorFinding], well: Sequence[DoctorFinding]) -> Table | None:
    """Return what is not well, one row a finding; what is well is named below."""
    notes = [f"Well: {_short(', '.join(dict.fromkeys(_place(one) for one in well[:MOST_FINDINGS])))}."] if well else []
    notes += [f"{len(ill) - MOST_FINDINGS:,} more are in doctor.json."] if len(ill) > MOST_FINDINGS else []
    if not ill:
        return None
    rows = tuple((_place(one), _level(one.level), _short(one.found), _short(one.why), _short(one.advice)) for one in ill[:MOST_FINDINGS])
    columns = ("of what", "level", "what was found", "why it matters", "what to do")
    return Table("Findings of the doctor", columns, rows, note=" ".join(notes))


def _place(finding: DoctorFinding) -> str:
    """Return what a finding is about: its area where the check's name does not tell, the card where it is one card's."""
    parts = [finding.subject or finding.area, finding.check]
    return _short(" ".join(parts) if parts[0].lower() != parts[1].lower() else parts[0])


def _level(level: str) -> str:
    symbol, word = (LEVELS[level][0], level) if level in LEVELS else ("•", _short(level))
    return f"{symbol} {word}"


def _beside(findings: Iterable[DoctorFinding]) -> Table | None:
    """Return the quantities that both NVML and nvidia-smi were asked for, None where there are none."""
    pairs = [
        (finding, name.removesuffix(OURS))
        for finding in findings
        for name in finding.numbers
        if name.endswith(OURS) and name.removesuffix(OURS) + THEIRS in finding.numbers
    ]
    if not pairs:
        return None
    rows = tuple(_row(finding, name) for finding, name in pairs[:MOST_PAIRS])
    note = "Of the last look; NVML was asked a moment after nvidia-smi, and a card does not keep still meanwhile. Whether the two agree stands above."
    note += f" {len(pairs) - MOST_PAIRS:,} more are in doctor.json." if len(pairs) > MOST_PAIRS else ""
    return Table("NVML, as this suite reads it, beside nvidia-smi", ("card", "quantity", "NVML", "nvidia-smi"), rows, numeric=(2, 3), note=note)


def _row(finding: DoctorFinding, name: str) -> tuple[str, ...]:
    what, unit = QUANTITIES.get(name) or (_short(name.replace("_", " ")), "")
    return _short(finding.subject or finding.check), what, *(_amount(finding.numbers[name + side], unit) for side in (OURS, THEIRS))


def _amount(value: Scalar, unit: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST < value < LARGEST:
        return numbers.NA
    return f"{numbers.count(value)} {unit}".strip()


def _short(text: str) -> str:
    flat = one_line(text[: 4 * MOST_LETTERS])
    return flat if len(flat) <= MOST_LETTERS else f"{flat[: MOST_LETTERS - 1].rstrip()}…"
