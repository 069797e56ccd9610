"""The sections of the report: each a figure with its heading, a sentence on how to read it, and the same numbers as a table.

Everything here is plain text; a section whose frame is empty is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.model import Word
from harness.report import feeds, numbers
from harness.report.blocks import device_memory
from harness.report.cards import Table
from harness.report.jobs import MOST_LANES, lanes_of
from harness.report.saves import SAVE_MEASURES
from harness.report.words import LOOKS

if TYPE_CHECKING:
    from harness.report.index import Index
    from harness.report.tables import LadderTable


@dataclass(frozen=True)
class Section:
    """A figure with its heading, the sentence that says how to read it, and the same numbers as a table; `more` tables stand below under their captions."""

    id: str
    title: str
    says: str
    alt: str = ""
    table: Table | None = None
    more: tuple[Table, ...] = ()


def make_sections(index: Index, tables: dict[str, Any]) -> list[Section]:
    """Return the sections that have something to show, in the order of the page. `tables` are the frames that the figures are drawn from."""
    made = [_forest_section(tables), _speedups_section(tables)]
    ladders: list[LadderTable] = tables["ladders"]
    if ladders:
        rows = tuple((_KINDS[str(row.kind)], str(row.label), str(row.measured)) for ladder in ladders for row in ladder.rows.itertuples())
        table = Table("Ladder", ("part", "switch", "measured (interval)"), rows)
        made.append(Section("ladder", "The ladder, and leaving one out", " ".join(ladder.says for ladder in ladders), alt_text(table), table))
    batch = tables["throughput"]
    if len(batch):
        curves = tuple((r.panel, r.label, numbers.count(r.batch), numbers.rate(r.rate, r.unit)) for r in batch.itertuples())
        table = Table("Throughput", ("workload", "arm", "batch", "throughput"), curves, numeric=(2, 3))
        says = "All work of the accepted blocks over all their time; the thin bars span the lowest and the highest round."
        made.append(Section("throughput", "Throughput against batch size", says, alt_text(table), table))
    made += [_pipelines_section(tables), _waits_section(tables), *_replay_sections(tables)]
    made += [_stalls_section(tables), _saves_section(tables), _slowdown_section(tables)]
    made += _resource_sections(index, tables)
    return [section for section in made if section is not None]


_KINDS = {"rung": "step", "without": "worth at the end", "product": "product", "total": "total"}


def _forest_section(tables: dict[str, Any]) -> Section | None:
    frame, others = tables["forest"], tables["others"]
    if frame.empty and others.empty:
        return None
    rows = tuple(
        (r.claim, r.title, r.band, r.measured, f"{LOOKS[Word(r.word)].symbol} {r.word}") for r in [*frame.itertuples(), *others.itertuples()]
    )
    table = Table("Judged claims", ("claim", "case", "claimed", "measured (interval)", "verdict"), rows)
    says = (
        "The dark block is the measured interval, the stroke in it the point; the pale box is what was claimed. A verdict is read from the regions that the whole "
        "interval touches. One round alone is a hollow circle without an interval; an arrow is an open side."
    )
    return Section("forest", "Claimed against measured", says, alt_text(table), table)


def _speedups_section(tables: dict[str, Any]) -> Section | None:
    frame = tables["speedups"]
    if frame.empty:
        return None
    rows = tuple((r.switch, r.title, r.measured, "no" if r.unproven else "") for r in frame.itertuples())
    flagged = any(row[3] for row in rows)
    rows_out = rows if flagged else tuple(row[:3] for row in rows)
    columns = ("switch", "measured with", "ratio (interval)", "equal results")
    table = Table("Speed-ups", columns if flagged else columns[:3], rows_out)
    says = "Throughput with the switch over throughput without it. Below 1x the switch makes training slower, and is shown so."
    return Section("speedups", "What each switch does", says, alt_text(table), table)


def _resource_sections(index: Index, tables: dict[str, Any]) -> list[Section]:
    made = []
    memory, phases = tables["memory"], tables["phases"]
    if len(memory):
        devices = device_memory(index.records)
        names = sorted({name for entry in devices.values() for name in entry})
        rows = tuple(
            (r.label, numbers.size(r.peak_rss_bytes), *(numbers.size(devices.get(r.cell, {}).get(name)) for name in names))
            for r in memory.itertuples()
        )
        table = Table("Memory", ("arm", "host peak RSS", *(name.replace("_", " ") for name in names)), rows, numeric=tuple(range(1, 2 + len(names))))
        told = "The highest resident memory of the process that trained, over its whole life."
        if any(name.startswith(("allocator_peak", "gpu_memory_used_bytes")) for name in names):
            told += (
                " Of a card: the allocator's peak is what the net needed (over its whole life, which decides what fits; steady: after warm-up); memory used is "
                "what anybody had taken of it. The two are never compared with one another."
            )
        made.append(Section("memory", "Memory", told, alt_text(table), table))
    if len(phases):
        names = [name for name in ("spawn", "import", "build", "trace", "first", "warmup") if name in phases and phases[name].sum() > 0]
        rows = tuple((str(r["label"]), *(numbers.seconds(r[name]) for name in names), numbers.count(r["starts"])) for r in phases.to_dict("records"))
        says = {"first": "first call", "warmup": "warm-up"}
        table = Table("Start-up", ("arm", *(says.get(n, n) for n in names), "starts"), rows, numeric=tuple(range(1, len(names) + 2)))
        made.append(Section("phases", "Start-up, phase by phase", "Median of starts that nothing else overlapped.", alt_text(table), table))
    return made


# ---------------------------------------------------------------- feeding


def _pipelines_section(tables: dict[str, Any]) -> Section | None:
    frame, need = tables["pipelines"], tables["need"]
    if frame.empty:
        return None
    rows = tuple((r.label, r.text, numbers.count(r.rounds)) for r in frame.itertuples())
    table = Table("Pipelines alone", ("pipeline", "delivered (lowest to highest round)", "rounds"), rows, numeric=(2,))
    says = "Nothing but the pipeline runs. The stroke is all work over all time, the dark block in the bar the lowest and the highest round."
    if need:
        rate = numbers.rate(need[1], str(frame["unit"].iloc[0]))
        says += f" The fastest training measured here on data that lie on the device ({need[0]}) takes {rate}: a pipeline below that starves it."
    return Section("pipelines", "What input pipelines deliver by themselves", says, alt_text(table), table)


def _waits_section(tables: dict[str, Any]) -> Section | None:
    frame = tables["waits"]
    if frame.empty:
        return None
    rows = tuple((r.label, numbers.percent(r.share), numbers.percent(1 - r.share), numbers.count(r.blocks)) for r in frame.itertuples())
    table = Table("Waiting for input", ("arm", "waiting for input", "computing", "blocks or jobs"), rows, numeric=(1, 2, 3))
    says = "How much of the time of the accepted blocks, or of whole jobs, went into waiting for the next batch."
    return Section("input_wait", "Waiting for input", says, alt_text(table), table)


def _replay_sections(tables: dict[str, Any]) -> list[Section]:
    frame, curves = tables["replay"], tables["feeding"]
    made = []
    if len(frame):
        rows = tuple(
            (r.label, r.text, numbers.rate(r.asked, r.unit), numbers.count(r.devices), numbers.significant(r.fed), numbers.count(r.rounds))
            for r in frame.itertuples()
        )
        columns = ("arm", "what came (lowest to highest round)", "what they ask for", "stand-ins", "stand-ins fed", "rounds")
        table = Table("Stand-in accelerators", columns, rows, numeric=(2, 3, 4, 5))
        says = "A stand-in takes a batch and then sleeps for the time of a step, so that all cores are left to the pipeline, as beside a real accelerator."
        made.append(Section("replay", "What stand-in accelerators get", f"{feeds.feeds(frame)} {says}".strip(), alt_text(table), table))
    if len(curves):
        points = tuple((r.series, _with(r.axis, r.x), numbers.rate(r.point, r.unit), _share(r.point, r.one)) for r in curves.itertuples())
        table = Table("Feeding", ("pipeline", "with", "delivered", "stand-ins fed"), points, numeric=(2, 3))
        says = "What reached the stand-ins, over what whole numbers of them ask for; the thin bars span the lowest and the highest round."
        made.append(Section("feeding", "How many accelerators this host can feed", says, alt_text(table), table))
    return made


def _with(axis: str, x: float) -> str:
    return numbers.plural(round(x), "core") if axis == "cores" else f"steps of {numbers.plain(x)} ms"


def _share(value: float, one: float | None) -> str:
    return numbers.significant(value / one) if numbers.known(one) and one > 0 else numbers.NA


# ---------------------------------------------------------------- jobs and their saves


def _stalls_section(tables: dict[str, Any]) -> Section | None:
    frame = tables["timeline"]
    if frame.empty:
        return None
    rows = tuple((panel, label, *_lane_row(lane)) for panel, lanes in lanes_of(frame) for label, lane in lanes)
    columns = (
        "comparison",
        "job",
        "length",
        "steps",
        "held by saves",
        "steps while a save is written",
        "pauses to check saves",
        "saves",
        "last save on the disk after",
    )
    table = Table("Timeline of jobs", columns, rows, numeric=tuple(range(2, 9)))
    says = (
        "One round of each comparison, the one of median length. Black is a save that holds training, drawn at least a hair wide; hatched are the steps during "
        "which a save is written; a triangle is the moment from which it is safe on the disk."
    )
    says += f" The figure shows the first {MOST_LANES} jobs, the table all." if len(rows) > MOST_LANES else ""
    return Section("stalls", "Where the time of a job goes", says, alt_text(table), table)


def _lane_row(lane: pd.DataFrame) -> tuple[str, ...]:
    spent = (lane["end_s"] - lane["start_s"]).groupby(lane["kind"]).sum()
    count = lane["kind"].value_counts()
    durable = lane.loc[lane["kind"].eq("durable"), "end_s"]
    return (
        numbers.seconds(float(lane["job_s"].iloc[0])),
        *(numbers.seconds(float(spent[kind])) if kind in spent else "none" for kind in ("clear", "blocked", "overlap", "pause")),
        numbers.count(int(count.get("blocked", 0))),
        numbers.seconds(float(durable.max())) if len(durable) else "none",
    )


def _saves_section(tables: dict[str, Any]) -> Section | None:
    frame, restored = tables["saves"], tables["restored"]
    if frame.empty:
        return None
    rows = []
    for cell, part in frame.groupby("cell", sort=False):
        texts = dict(zip(part["measure"], part["text"], strict=True))
        same, checked = restored.get(str(cell), (0, 0))
        equal = f"{same:,} of {checked:,}" if checked else "none was restored"
        rows.append(
            (
                str(part["label"].iloc[0]),
                *(texts.get(m, numbers.NA) for m in SAVE_MEASURES),
                equal,
                numbers.count(part["rounds"].max()),
            )
        )
    columns = (
        "how it saves",
        "held by a save, saves 2 and later",
        "longer steps while it is written",
        "until it is on the disk",
        "restored bit for bit",
        "rounds",
    )
    table = Table("What a save costs", columns, tuple(rows), numeric=(5,))
    says = f"{_held(frame)}Medians of the rounds with their lowest and highest. Steps are longer while a save is written; the sum of that is shown for one save."
    return Section("saves", "What a save costs", says, alt_text(table), table)


def _held(frame: pd.DataFrame) -> str:
    """Say which way of saving holds training the least and which the longest."""
    held = frame[frame["measure"].eq("blocked") & frame["point"].notna()].sort_values("point", key=pd.to_numeric, kind="stable")
    if held.empty:
        return ""
    texts = [f"{numbers.seconds(float(point))} ({label})" for point, label in zip(held["point"], held["label"], strict=True)]
    return f"A save holds training for {texts[0]}{f' to {texts[-1]}' if len(texts) > 1 else ''}. "


def _slowdown_section(tables: dict[str, Any]) -> Section | None:
    frame = tables["slowdown"]
    if frame.empty:
        return None
    rows = tuple(
        (
            r.series, numbers.seconds(r.interval_s), r.text, _expected(r.blocked_s, r.interval_s),
            f"{numbers.band(_given(r.lo), _given(r.hi), '')} ({r.claim})" if _given(r.lo) is not None or _given(r.hi) is not None else "nothing",
            numbers.count(r.rounds),
        )
        for r in frame.itertuples()
    )  # fmt: skip
    columns = ("how it saves", "between saves", "job with saves over job without", "1 + held / interval", "claimed", "rounds")
    table = Table("Slowdown", columns, rows, numeric=(1, 3, 5))
    says = (
        "How much longer a whole job takes with saves than without, step for step. If a save did nothing but hold training, the job would take "
        "1 + held time / interval times as long: that is the dashed line."
    )
    return Section("slowdown", "Slowdown against the time between saves", says, alt_text(table), table)


def _expected(held: float | None, interval: float | None) -> str:
    return numbers.ratio(1 + held / interval) if numbers.known(held) and numbers.known(interval) and interval > 0 else numbers.NA


def _given(value: float | None) -> float | None:
    return value if numbers.known(value) else None


def alt_text(table: Table, most: int = 12) -> str:
    """What a figure shows, for those who cannot see it: its first rows as text."""
    rows = "; ".join(", ".join(str(cell) for cell in row) for row in table.rows[:most])
    more = f"; and {len(table.rows) - most} more in the table" if len(table.rows) > most else ""
    return f"{table.caption}: {rows}{more}"
