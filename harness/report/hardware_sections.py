"""The sections of the report on hardware: what the doctor found of it, what it did while arms were at work, what energy that took, how much of its
arithmetic was used.

Everything here is plain text, like the other sections; a section that has nothing to show is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.report import numbers
from harness.report.cards import Table
from harness.report.doctor import doctor_section
from harness.report.jobs import rows_of
from harness.report.mfu import MOST_ROWS
from harness.report.sections import Section, alt_text
from harness.report.telemetry import MOST_CARDS, MOST_SCENES, arm_letter, shown_keys
from harness.report.usage import PROCESSORS, USAGE, Footnotes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.report.mfu import Roof, Roofline
    from harness.report.telemetry import Scene


def hardware_sections(tables: dict[str, Any]) -> list[Section]:
    """Return the sections in the order of the page. `tables` are the frames and values that the figures are drawn from."""
    made = [doctor_section(tables["doctor"]), _telemetry_section(tables), _energy_section(tables), _mfu_section(tables), _roofline_section(tables)]
    return [section for section in made if section is not None]


# ---------------------------------------------------------------- what the hardware did


def _telemetry_section(tables: dict[str, Any]) -> Section | None:
    scenes: list[Scene] = tables["telemetry"]
    table = _usage_table(tables["usage"]) or _host_table(tables["host"])
    if not scenes and table is None:
        return None
    return Section("telemetry", "What the hardware did", _says(scenes), _telemetry_alt(scenes, table), table)


def _says(scenes: Sequence[Scene]) -> str:
    if not scenes:
        return "No round was watched closely enough for a picture."
    says = (
        "One round of each comparison, the one of median length; those that decide a claim come first, at most "
        f"{MOST_SCENES}, and the table has all. A coloured ground below an arm's letter, or its own lane, shows when it was at work, pale where it enters no figure "
        "(warm-up, foreign load). "
        f"Many samples are drawn as their mean, and their range as a grey band. Of several cards the {MOST_CARDS} busiest are shown."
    )
    shown = shown_keys(scenes)
    missing = {strip.title.partition(":")[0]: strip.reason for scene in scenes for strip in scene.strips if strip.key not in shown}
    return says + "".join(f" Not shown: {title} ({numbers.missing(reason)})." for title, reason in missing.items())


def _telemetry_alt(scenes: Sequence[Scene], table: Table | None) -> str:
    compared = "; ".join(f"{scene.title}: {', '.join(f'{arm_letter(i)} {arm}' for i, arm in enumerate(scene.arms))}" for scene in scenes)
    return f"Over time: {compared}. {alt_text(table, 6) if table else ''}".strip()


def _usage_table(frame: pd.DataFrame) -> Table | None:
    """One row an arm; measures that nobody told of any arm have no column."""
    if frame.empty:
        return None
    names = [name for name in USAGE if name in set(frame["measure"])]
    notes = Footnotes()
    rows = []
    for _, part in frame.groupby("cell", sort=False):
        told: dict[str, Any] = {str(row.measure): row for row in part.itertuples()}
        cells = [_shown(told.get(name), notes) for name in names]
        rows.append((str(part["label"].iloc[0]), *cells, numbers.count(int(part["rounds"].max()))))
    columns = ("arm", *(USAGE[name] for name in names), "rounds")
    note = "Of the arm's own accepted blocks: means over time and its cards (power, PCIe, NVLink: their sums), then over rounds; the highest is that of all rounds."
    return Table("The cards, by arm", columns, tuple(rows), numeric=tuple(range(1, len(columns))), note=f"{note} {notes.text()}".strip())


def _shown(row: Any, notes: Footnotes) -> str:  # noqa: ANN401 - a row of a frame
    if row is None:
        return numbers.NA
    return notes.missing(row.reason) if pd.isna(row.point) else str(row.text)


def _host_table(frame: pd.DataFrame) -> Table | None:
    """One row a comparison: arms that take turns within a second cannot be told apart by counters of the whole machine."""
    if frame.empty:
        return None
    notes = Footnotes()
    rows = tuple(
        (
            str(row.title), _known(numbers.percent, row, "cpu_share", notes), _known(numbers.size, row, "rss_bytes", notes),
            *(_known(lambda value: f"{numbers.size(value)}/s", row, key, notes) for key in ("read", "written")),
            _known(lambda value: numbers.quantity(value, "W"), row, "watts", notes), numbers.count(row.rounds),
        )
        for row in rows_of(frame)
    )  # fmt: skip
    columns = ("comparison", "cores busy", "memory of our processes", "read from disks", "written to disks", "power of the processors", "rounds")
    note = "Of the whole machine, whoever used it, from the first block of a round to its last; in the mean of the rounds (memory: the most)."
    return Table("The host, by comparison", columns, rows, numeric=tuple(range(1, 7)), note=f"{note} {notes.text()}".strip())


def _known(text: Any, row: Any, key: str, notes: Footnotes) -> str:  # noqa: ANN401 - a formatter, a row of a frame
    value = float(getattr(row, key))
    return str(text(value)) if numbers.known(value) else notes.missing(row.reasons.get(key))


# ---------------------------------------------------------------- energy


def _energy_section(tables: dict[str, Any]) -> Section | None:
    frame: pd.DataFrame = tables["energy"]
    if frame.empty:
        return None
    measured = [row for row in rows_of(frame) if isinstance(row.joules, str) or isinstance(row.per_joule, str)]
    if not measured:
        reasons = dict.fromkeys(reason for why in frame["reasons"] for reason in why.values() if reason)
        return Section("energy", "Energy", f"No energy was measured here: {numbers.missing('; '.join(reasons))}.")
    sources = {row.of == PROCESSORS for row in measured}
    notes = Footnotes()
    rows = tuple(
        (row.label, row.of, *(text or notes.missing(why) for text, why in _energy_cells(row)), numbers.count(row.rounds))
        for row in rows_of(frame)
        if (row.of == PROCESSORS) in sources
    )
    columns = (
        "arm", "of what", "work per joule (interval)", "joules for each unit of work (interval)", "power (interval)", "energy of a round (lowest to highest)",
        "idle power", "rounds",
    )  # fmt: skip
    says = (
        "What the arm's own accepted blocks, or its whole job, took. Work per joule and power are the mean of the rounds, with an interval of at least "
        f"{numbers.edge(measured[0].confidence, 'share')} confidence, made as those of the claims are; joules for each unit of work are the inverse of work per joule, interval "
        "and all. Rounds need not hold the same work, so the joules of a whole round have no interval. Where several comparisons measured an arm, the one "
        "with most rounds is shown. Idle power is what was drawn before the first round, while nothing ran; it is contained in all other figures. "
        "The processors' energy is that of the whole machine."
    )
    table = Table("Energy", columns, rows, numeric=(7,), note=notes.text())
    return Section("energy", "Energy", says, alt_text(table), table)


def _energy_cells(row: Any) -> list[tuple[str | None, str | None]]:  # noqa: ANN401 - a row of a frame
    """Return (text, why there is none) of work per joule, its inverse, watts, joules and idle watts."""
    told = [(getattr(row, key), row.reasons.get(key)) for key in ("per_joule", "per_work", "watts", "joules")]
    return [
        *((text if isinstance(text, str) else None, why) for text, why in told),
        (row.idle if isinstance(row.idle, str) else None, row.why_no_idle),
    ]


# ---------------------------------------------------------------- arithmetic


def _mfu_section(tables: dict[str, Any]) -> Section | None:
    frame: pd.DataFrame = tables["mfu"]
    if frame.empty:
        return None
    notes = Footnotes()
    rows = tuple(
        (
            row.label, row.device.upper(), _flop(row.flops_per_step, row.reason, notes), numbers.rate(row.point, "FLOP") if pd.notna(row.point) else
            notes.missing(row.reason), numbers.rate(row.roof, "FLOP"), _share_of_roof(row, notes), numbers.count(row.rounds),
        )
        for row in rows_of(frame)
    )  # fmt: skip
    columns = ("arm", "device", "a step", "reached", "matrix product of its precision", "MFU (lowest to highest round)", "rounds")
    says = (
        "FLOPs of a step, counted from its graph (a multiply-add is two), times steps a second. MFU is the share of what a large matrix product of the same "
        "precision reached on the same device in this run; a convolution by way of a transform needs fewer multiplications than are counted, and may pass 100 %."
    )
    says += f" The figure shows the first {MOST_ROWS} arms, the table all." if len(rows) > MOST_ROWS else ""
    table = Table("Arithmetic", columns, rows, numeric=(2, 3, 4, 6), note=notes.text())
    return Section("mfu", "How much of the arithmetic is used", says, alt_text(table), table)


def _flop(value: float, reason: str | None, notes: Footnotes) -> str:
    return numbers.rate(value, "FLOP").replace("/s", "") if numbers.known(value) else notes.missing(reason)


def _share_of_roof(row: Any, notes: Footnotes) -> str:  # noqa: ANN401 - a row of a frame
    if pd.isna(row.mfu):
        return notes.missing(row.reason)
    spread = "one round" if row.rounds < 2 else f"{numbers.percent(row.mfu_low)} to {numbers.percent(row.mfu_high)}"
    return f"{numbers.percent(row.mfu)} ({spread})"


def _place(roof: Roof) -> str:
    """Return where a roof was reached: on which kind of device, or on which storage."""
    return roof.device.upper() if roof.storage is None else f"storage ({roof.storage or 'not told which'})"


def _roofline_section(tables: dict[str, Any]) -> Section | None:
    lines: list[Roofline] = tables["rooflines"]
    roofs: list[Roof] = tables["roofs"]
    if not roofs:
        return None
    ridges = {peak.cell: line.ridge(peak) for line in lines for peak in line.peaks}
    rows = tuple(
        (
            roof.label, _place(roof), roof.op.replace("_", " "), roof.dtype or numbers.NA, numbers.rate(roof.rate, roof.unit),
            numbers.significant(roof.intensity), numbers.significant(ridges.get(roof.cell)),
        )
        for roof in roofs
    )  # fmt: skip
    columns = ("roof", "device", "operation", "type", "reached", "FLOP for each byte", "arithmetic is the limit from")
    says = (
        "What the device can do at most: left of the bend of a line its memory is the limit, right of it its arithmetic. Matrix products are placed by the bytes "
        "that they must at least move. Whole training steps are not placed, because nobody counts the bytes that they move; their FLOP/s stand in the figure of the arms."
    )
    if any(roof.storage is not None for roof in roofs):
        says += " Files are written and read on the storage that is named in place of a device."
    note = "Where a roof has no FLOP for each byte, either none are counted, or the bytes that it moves are not known."
    table = Table("Roofs", columns, rows, numeric=(4, 5, 6), note=note)
    return Section("roofline", "Roofs of this machine", says, alt_text(table), table)
