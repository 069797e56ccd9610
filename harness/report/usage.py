"""From readings and samples of telemetry to tables: what each arm kept of the cards and took in energy, what the host did. Must not know how a figure looks.

Only completed rounds count. What could not be had is None with its reason, never 0.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.model import IDLE_ROUND, Purpose, Scale, State
from harness.report import numbers
from harness.report.idle_power import idle_watts
from harness.report.index import short_labels, slowed_trials
from harness.report.tables import estimate_text
from harness.report.telemetry import HOST, gauge, growth, mean_between, spans_of, why_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.model import Reading
    from harness.report.index import Index

USAGE = {
    "kernel_busy": "kernels busy", "sm_active": "SMs active", "tensor_active": "tensor cores active", "power_w": "power", "sm_clock_mhz": "SM clock",
    "memory_clock_mhz": "memory clock", "temperature_c": "temperature, highest", "gpu_memory_used_bytes": "memory in use, highest",
}  # fmt: skip
PROCESSORS = "processors"
HIGHEST = {"temperature_c", "gpu_memory_used_bytes"}

USAGE_COLUMNS = ["cell", "label", "measure", "point", "low", "high", "rounds", "text", "reason"]
ENERGY_COLUMNS = ["cell", "label", "of", "joules", "watts", "per_joule", "rounds", "idle", "why_no_idle", "reasons"]
HOST_COLUMNS = ["contrast", "title", "cpu_share", "rss_bytes", "read", "written", "watts", "rounds", "reasons"]


@dataclass
class Footnotes:
    """Reasons of missing numbers, each told once: `n/a (2)` in a table, `(2) why` below it."""

    _marks: dict[str, int] = field(default_factory=dict)

    def missing(self, reason: str | None) -> str:
        """Return `n/a` with the mark of its reason."""
        if not isinstance(reason, str) or not reason:
            return numbers.NA
        return f"{numbers.NA} ({self._marks.setdefault(reason, len(self._marks) + 1)})"

    def text(self) -> str:
        """Return all reasons by their marks."""
        return " ".join(f"({mark}) {reason.rstrip('.')}." for reason, mark in self._marks.items())


@dataclass
class _Values:
    """A value a round, and the reasons of the rounds that have none."""

    known: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    unit: str = ""

    def add(self, reading: Reading) -> None:
        if reading.value is not None and math.isfinite(reading.value):
            self.known.append(reading.value)
            self.unit = reading.unit
        else:
            self.reasons.append(reading.reason or "not told")

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.known) if self.known else None

    @property
    def reason(self) -> str | None:
        return self.reasons[-1] if self.reasons and not self.known else None


def _by_cell(index: Index, names: Iterable[str]) -> dict[tuple[str, str], _Values]:
    """Return (cell, name) -> its readings in completed rounds. Proofs and profiles time nothing, so there is nothing to say of their arms."""
    aside = {contrast.id for contrast in index.plan.contrasts if contrast.purpose in {Purpose.PROOF, Purpose.PROFILE}}
    wanted, slowed, found = set(names), slowed_trials(index), defaultdict[tuple[str, str], _Values](_Values)
    for record in index.records:
        if record.outcome.state is not State.COMPLETED or record.contrast in aside:
            continue
        trials = [trial for trial in record.trials if trial.outcome.state is State.COMPLETED and (record.contrast, trial.id) not in slowed]
        cells = {trial.id: trial.cell for trial in trials}
        for reading in record.readings:
            if reading.name in wanted and reading.trial in cells:
                found[cells[reading.trial], reading.name].add(reading)
    return dict(found)


def _labels(index: Index, cells: Iterable[str]) -> dict[str, str]:
    wanted = set(cells)
    known = [cell for name, cell in index.plan.cells.items() if name in wanted]
    return dict(zip((cell.id for cell in known), short_labels(known), strict=True)) if known else {}


def usage_frame(index: Index) -> pd.DataFrame:
    """Return one row an arm and measure of USAGE that its readings name: the mean of the rounds (the highest, for HIGHEST) and their range.

    An arm of which nothing but nulls was told keeps its rows, with the reason. Arms without any such reading are left out.
    """
    found = _by_cell(index, USAGE)
    labels = _labels(index, (cell for cell, _ in found))
    rows = []
    for cell, label in labels.items():
        for name in USAGE:
            told = found.get((cell, name))
            if told is not None:
                point = max(told.known, default=None) if name in HIGHEST else told.mean
                low, high = min(told.known, default=None), max(told.known, default=None)
                rows.append((cell, label, name, point, low, high, len(told.known), amount(point, told.unit), told.reason))
    frame: pd.DataFrame = pd.DataFrame.from_records(rows, columns=USAGE_COLUMNS)
    return frame


def amount(value: float | None, unit: str) -> str:
    """Return a reading of telemetry as text: 71.2 W, 1,980 MHz, 64 °C, 83.1 %, 12.4 GiB, 3.20 samples/J, 41.0 GFLOP/J."""
    if unit in {"FLOP/J", "B/J", "bytes/J"}:
        return numbers.rate(value, unit.removesuffix("/J")).replace("/s", "/J")
    return numbers.quantity(value, unit)


# ---------------------------------------------------------------- energy


def idle_text(watts: dict[str, float], *, host: bool) -> str | None:
    """Return the idle power of the processors, or of the cards (of each, from lowest to highest, where there are several); None where it is not known."""
    mine = [value for device, value in watts.items() if (device == HOST) == host]
    if not mine:
        return None
    low, high = amount(min(mine), "W"), amount(max(mine), "W")
    return low if len(mine) == 1 else f"{low} a card" if low == high else f"{low} to {high} a card"


def _why_no_idle(samples: pd.DataFrame | None, *, host: bool) -> str:
    if samples is None or not bool((samples["round"] == IDLE_ROUND).any()):
        return "no power was read before the first round"
    rest = samples[samples["round"] == IDLE_ROUND]
    devices = [str(device) for device in rest["device"].unique() if (device == HOST) == host]
    return why_none(rest, ["cpu_energy_j"] if host else ["energy_j", "power_w"], devices)


def energy_frame(index: Index, samples: pd.DataFrame | None, seconds: dict[tuple[str, int, str], float]) -> pd.DataFrame:
    """Return one row an arm and source of energy (the cards, the processors): texts of joules, watts, work per joule and idle watts.

    Work per joule has an interval where a judged or informing case is about it, else the range of the rounds. `seconds` maps (contrast, round, trial) to the time
    of its accepted blocks. `reasons` maps a column to why it is missing. Arms without a value keep their row; without any reading there is none.
    """
    names = ("energy_j", "energy_integrated_j", "work_per_j", "power_w", "host_energy_j", "host_work_per_j")
    found = _by_cell(index, names)
    idle = idle_watts(samples) if samples is not None else {}
    host_watts = _host_watts(index, seconds)
    estimates = _estimates(index)
    labels = _labels(index, (cell for cell, name in found if "energy" in name or "work" in name))
    found_rows: list[tuple[object, ...]] = [
        (cell, label, *row)
        for cell, label in labels.items()
        for host in (False, True)
        if (row := _energy_row(found, cell, estimates, host_watts.get(cell) if host else None, host=host)) is not None
    ]
    shown = {host: (idle_text(idle, host=host), _why_no_idle(samples, host=host)) for host in (False, True)}
    rows = [(*row[:-1], *shown[row[2] == PROCESSORS], row[-1]) for row in found_rows]
    frame: pd.DataFrame = pd.DataFrame.from_records(rows, columns=ENERGY_COLUMNS)
    return frame


def _energy_row(
    found: dict[tuple[str, str], _Values], cell: str, estimates: dict[tuple[str, str], str], host_watts: float | None, *, host: bool
) -> tuple[object, ...] | None:
    """Return of, joules, watts, work per joule, rounds and reasons of one arm; None where nothing was told of it."""
    prefix = "host_" if host else ""
    counted, work = found.get((cell, f"{prefix}energy_j")), found.get((cell, f"{prefix}work_per_j"))
    integrated = None if host else found.get((cell, "energy_integrated_j"))
    summed = integrated is not None and bool(integrated.known)
    joules = integrated if summed else counted
    if joules is None and work is None:
        return None
    power = None if host else found.get((cell, "power_w"))
    watts = host_watts if host else power.mean if power else None
    why_watts = (joules.reason if joules else None) if host else (power.reason if power else None)
    reasons = {"joules": joules.reason if joules else None, "per_joule": work.reason if work else None, "watts": why_watts}
    per = estimates.get((cell, f"{prefix}work_per_j")) or (_ranged(work) if work and work.known else None)
    of = PROCESSORS if host else "cards, power added up over time" if summed else "cards, their own counters"
    text = _ranged(joules) if joules and joules.known else None
    rounds = max(len(told.known) for told in (joules, work) if told is not None)
    return of, text, amount(watts, "W") if watts is not None else None, per, rounds, reasons


def _ranged(told: _Values) -> str:
    mean = amount(told.mean, told.unit)
    return f"{mean} ({amount(min(told.known), told.unit)} to {amount(max(told.known), told.unit)})" if len(told.known) > 1 else f"{mean} (one round)"


def _estimates(index: Index) -> dict[tuple[str, str], str]:
    """Return (cell, measure) -> point and interval of the cases that are about one arm's work per joule."""
    found: dict[tuple[str, str], str] = {}
    for _, case, result in index.joined():
        terms = case.estimand.terms
        if (
            len(terms) == 1
            and terms[0].measure in {"work_per_j", "host_work_per_j"}
            and case.estimand.scale is not Scale.LOG
            and result
            and result.estimate
        ):
            cell = index.cell_of.get((terms[0].contrast, terms[0].trial))
            if cell is not None and numbers.known(result.estimate.point):
                found.setdefault((cell, terms[0].measure), estimate_text(result.estimate, case.unit))
    return found


def _host_watts(index: Index, seconds: dict[tuple[str, int, str], float]) -> dict[str, float]:
    """Return cell -> the processors' mean power during its accepted blocks; cells of which energy or time is not known are missing."""
    slowed, spent = slowed_trials(index), defaultdict[str, list[tuple[float, float]]](list)
    for record in index.records:
        if record.outcome.state is State.COMPLETED:
            cells = {trial.id: trial.cell for trial in record.trials if (record.contrast, trial.id) not in slowed}
            for reading in record.readings:
                key = (record.contrast, record.index, reading.trial)
                if reading.name == "host_energy_j" and reading.value is not None and reading.trial in cells and key in seconds:
                    spent[cells[reading.trial]].append((reading.value, seconds[key]))
    return {cell: math.fsum(joules for joules, _ in parts) / math.fsum(time_s for _, time_s in parts) for cell, parts in spent.items()}


# ---------------------------------------------------------------- the host


def host_frame(index: Index, samples: pd.DataFrame | None) -> pd.DataFrame:
    """Return one row a contrast of a claim: what the machine did while its arms were at work, in the mean of the rounds (memory: the most).

    Shares of the cores, bytes of our processes, bytes a second of all disks, watts of the processors; NaN with the reason in `reasons`.
    """
    if samples is None or samples.empty:
        return pd.DataFrame.from_records([], columns=HOST_COLUMNS)
    planned = [c for c in index.plan.contrasts if c.purpose is Purpose.CLAIM]
    records = {r.round: r for c in planned for r in index.by_contrast.get(c.id, []) if r.outcome.state is State.COMPLETED}
    part = samples[(samples["device"] == HOST) & samples["round"].isin(list(records))]
    found: dict[str, list[dict[str, float]]] = {}
    reasons: dict[str, dict[str, str]] = {}
    for name, mine in part.groupby("round", observed=True, sort=False):
        record = records[str(name)]
        spans = spans_of(record)
        if spans:
            told, why = _host_values(mine, (min(start for _, start, *_ in spans), max(end for _, _, end, _ in spans)))
            found.setdefault(record.contrast, []).append(told)
            reasons.setdefault(record.contrast, {}).update(why)
    rows = []
    for contrast in planned:
        rounds = found.get(contrast.id)
        if rounds:
            means = {key: _mean([told[key] for told in rounds if key in told]) for key in ("cpu_share", "read", "written", "watts")}
            most = max((told["rss_bytes"] for told in rounds if "rss_bytes" in told), default=math.nan)
            values = (means["cpu_share"], most, means["read"], means["written"], means["watts"])
            rows.append((contrast.id, contrast.title or contrast.id, *values, len(rounds), reasons[contrast.id]))
    frame: pd.DataFrame = pd.DataFrame.from_records(rows, columns=HOST_COLUMNS)
    return frame


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _host_values(mine: pd.DataFrame, span: tuple[int, int]) -> tuple[dict[str, float], dict[str, str]]:
    """Return what one round's samples say between two moments, and why the rest is not known."""
    series = {
        "cpu_share": ("cpu_share", gauge(mine, HOST, "cpu_share")),
        "rss_bytes": ("rss_bytes", gauge(mine, HOST, "rss_bytes")),
        "read": ("disk_read_bytes", growth(gauge(mine, HOST, "disk_read_bytes"))),
        "written": ("disk_written_bytes", growth(gauge(mine, HOST, "disk_written_bytes"))),
        "watts": ("cpu_energy_j", growth(gauge(mine, HOST, "cpu_energy_j"))),
    }
    told, why = {}, {}
    for key, (name, one) in series.items():
        inside = one[1][(one[0] >= span[0]) & (one[0] <= span[1])]
        known = inside[np.isfinite(inside)]
        if len(known):
            told[key] = float(known.max()) if key == "rss_bytes" else float(mean_between(one, span) or 0.0)
        else:
            why[key] = why_none(mine, [name], [HOST])
    return told, why
