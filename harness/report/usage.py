"""From readings and samples of telemetry to tables: what each arm kept of the cards and took in energy, what the host did. Must not know how a figure looks.

Only completed rounds count. What could not be had is None with its reason, never 0.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.model import IDLE_ROUND, Arrangement, Purpose, State
from harness.report import numbers
from harness.report.idle_power import idle_watts
from harness.report.index import short_labels, slowed_trials
from harness.report.tables import estimate_text
from harness.report.telemetry import HOST, gauge, growth, mean_between, spans_of, why_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from harness.model import ArmEnergy, Reading, RoundRecord
    from harness.report.index import Index

USAGE = {
    "kernel_busy": "kernels busy", "memory_busy": "memory busy", "sm_active": "SMs active", "tensor_active": "tensor cores active", "power_w": "power",
    "sm_clock_mhz": "SM clock", "memory_clock_mhz": "memory clock", "temperature_c": "temperature, highest", "gpu_memory_used_bytes": "memory in use, highest",
    "pcie_rx_bytes_per_s": "PCIe in", "pcie_tx_bytes_per_s": "PCIe out", "nvlink_rx_bytes_per_s": "NVLink in", "nvlink_tx_bytes_per_s": "NVLink out",
}  # fmt: skip
PROCESSORS = "processors"
HIGHEST = {"temperature_c", "gpu_memory_used_bytes"}

USAGE_COLUMNS = ["cell", "label", "measure", "point", "low", "high", "rounds", "text", "reason"]
ENERGY_COLUMNS = [
    *("cell", "label", "of", "per_joule", "per_work", "watts", "joules", "rounds"),
    *("idle", "why_no_idle", "reasons", "confidence"),
]
CARD_ENERGY, HOST_ENERGY = ("energy_j", "energy_integrated_j", "work_per_j"), ("host_energy_j", "host_work_per_j")
NOT_JUDGED = "not judged yet"
NOT_GROWN = "the energy counter did not grow in that time"
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


def _told(index: Index, names: Iterable[str]) -> Iterator[tuple[RoundRecord, str, Reading]]:
    """Yield the readings of completed rounds with their record and cell. Proofs and profiles time nothing, so there is nothing to say of their arms."""
    aside = {contrast.id for contrast in index.plan.contrasts if contrast.purpose in {Purpose.PROOF, Purpose.PROFILE}}
    wanted, slowed = set(names), slowed_trials(index)
    for record in index.records:
        if record.outcome.state is not State.COMPLETED or record.contrast in aside:
            continue
        trials = [trial for trial in record.trials if trial.outcome.state is State.COMPLETED and (record.contrast, trial.id) not in slowed]
        cells = {trial.id: trial.cell for trial in trials}
        yield from ((record, cells[reading.trial], reading) for reading in record.readings if reading.name in wanted and reading.trial in cells)


def _by_cell(index: Index, names: Iterable[str]) -> dict[tuple[str, str], _Values]:
    """Return (cell, name) -> its readings in all contrasts."""
    found = defaultdict[tuple[str, str], _Values](_Values)
    for _, cell, reading in _told(index, names):
        found[cell, reading.name].add(reading)
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
                rows.append((cell, label, name, point, low, high, len(told.known), numbers.quantity(point, told.unit), told.reason))
    frame: pd.DataFrame = pd.DataFrame.from_records(rows, columns=USAGE_COLUMNS)
    return frame


# ---------------------------------------------------------------- energy


def idle_text(watts: dict[str, float], *, host: bool) -> str | None:
    """Return the idle power of the processors, or of the cards (of each, from lowest to highest, where there are several); None where it is not known."""
    mine = [value for device, value in watts.items() if (device == HOST) == host]
    if not mine:
        return None
    low, high = numbers.quantity(min(mine), "W"), numbers.quantity(max(mine), "W")
    return low if len(mine) == 1 else f"{low} a card" if low == high else f"{low} to {high} a card"


def _why_no_idle(samples: pd.DataFrame | None, *, host: bool) -> str:
    if samples is None or not bool((samples["round"] == IDLE_ROUND).any()):
        return "no power was read before the first round"
    rest = samples[samples["round"] == IDLE_ROUND]
    devices = [str(device) for device in rest["device"].unique() if (device == HOST) == host]
    return why_none(rest, ["cpu_energy_j"] if host else ["energy_j", "power_w"], devices)


def energy_frame(index: Index, samples: pd.DataFrame | None) -> pd.DataFrame:
    """Return one row an arm and source of energy (the cards, the processors): texts of work per joule, its inverse and power with their intervals, of the
    lowest to the highest joules of a round, and of idle power.

    Where several contrasts measured an arm, all of a row is of the one that has most rounds. `reasons` maps a column to why it is missing. Arms without a value
    keep their row; without any reading there is none.
    """
    measured = _measured(index)
    idle = idle_watts(samples) if samples is not None else {}
    labels = _labels(index, (arm.cell for arm in measured))
    rest = {host: (idle_text(idle, host=host), _why_no_idle(samples, host=host)) for host in (False, True)}
    rows: list[tuple[object, ...]] = []
    for cell, label in labels.items():
        for host in (False, True):
            mine = [(arm.rounds(host=host), arm) for arm in measured if arm.cell == cell and arm.tells(host=host)]
            if mine:
                rounds, arm = max(mine, key=itemgetter(0))
                *texts, reasons = _energy_row(arm, host=host)
                rows.append((cell, label, *texts, rounds, *rest[host], reasons, 1 - index.verdicts.alpha))
    frame: pd.DataFrame = pd.DataFrame.from_records(rows, columns=ENERGY_COLUMNS)
    return frame


@dataclass(frozen=True)
class _Arm:
    """What one contrast says of the energy of one arm: its readings, and what was judged of them, by name."""

    cell: str
    told: dict[str, _Values]
    judged: dict[str, ArmEnergy]

    def tells(self, *, host: bool) -> bool:
        return any(name in self.told for name in (HOST_ENERGY if host else CARD_ENERGY))

    def rounds(self, *, host: bool) -> int:
        return max(len(self.told[name].known) for name in (HOST_ENERGY if host else CARD_ENERGY) if name in self.told)


def _measured(index: Index) -> list[_Arm]:
    """Return the arms of all comparisons in the plan's order. The probes of a search are of a different size each."""
    found: dict[tuple[str, str], dict[str, _Values]] = {}
    for record, _, reading in _told(index, {*CARD_ENERGY, *HOST_ENERGY, "power_w"}):
        if record.arrangement is _arrangement(index, record.contrast):
            mine = found.setdefault((record.contrast, reading.trial), {})
            mine.setdefault(reading.name, _Values()).add(reading)
    judged: dict[tuple[str, str], dict[str, ArmEnergy]] = {}
    for figure in index.verdicts.energy:
        judged.setdefault((figure.contrast, figure.trial), {})[figure.measure] = figure
    planned = [c for c in index.plan.contrasts if c.purpose is Purpose.CLAIM and c.search is None]
    arms = [(trial.cell, (contrast.id, trial.id)) for contrast in planned for trial in contrast.trials]
    return [_Arm(cell, found[key], judged.get(key, {})) for cell, key in arms if key in found]


def _arrangement(index: Index, contrast: str) -> Arrangement:
    """Return the last arrangement of a contrast that was measured: rounds of an earlier one are another quantity, and are not judged."""
    mine = index.by_contrast[contrast]
    return next((record.arrangement for record in reversed(mine) if record.outcome.state is not State.INTERRUPTED), mine[-1].arrangement)


def _energy_row(arm: _Arm, *, host: bool) -> tuple[object, ...]:
    """Return of, work per joule, its inverse, watts, joules and reasons of one arm."""
    prefix = "host_" if host else ""
    work, power = f"{prefix}work_per_j", f"{prefix}power_w"
    integrated = arm.told.get("energy_integrated_j")
    summed = not host and integrated is not None and bool(integrated.known)
    joules = integrated if summed else arm.told.get(f"{prefix}energy_j")
    names = {"per_joule": (work, work), "per_work": (f"{prefix}j_per_work", work), "watts": (power, f"{prefix}energy_j" if host else power)}
    texts = {column: _figure(arm, measure) for column, (measure, _) in names.items()}
    reasons = {column: _why_no_figure(arm, measure, source) for column, (measure, source) in names.items()}
    reasons["joules"] = None if joules is None else joules.reason or NOT_GROWN
    of = PROCESSORS if host else "cards, power added up over time" if summed else "cards, their own counters"
    return of, texts["per_joule"], texts["per_work"], texts["watts"], _ranged(joules), reasons


def _figure(arm: _Arm, measure: str) -> str | None:
    """Return point and interval as text, with what is wrong with them; of a bundle that was judged before there were such figures, the mean alone."""
    figure, told = arm.judged.get(measure), arm.told.get(measure)
    if figure is None:
        return f"{numbers.quantity(told.mean, told.unit)} ({NOT_JUDGED})" if told is not None and told.known else None
    if figure.estimate is None or not numbers.known(figure.estimate.point):
        return None
    text = estimate_text(figure.estimate, figure.unit)
    return f"{text}; {figure.reason.text}" if figure.reason is not None and figure.reason.code != "too_few_rounds" else text


def _why_no_figure(arm: _Arm, measure: str, source: str) -> str | None:
    """Return the reading's own reason, or the judge's."""
    figure, told = arm.judged.get(measure), arm.told.get(source)
    if told is None or not told.known:
        return None if told is None else told.reason
    if figure is None:
        return NOT_JUDGED
    return None if figure.reason is None else figure.reason.text


def _ranged(told: _Values | None) -> str | None:
    """Return the lowest to the highest; a counter that did not grow counted nothing."""
    spent = [value for value in told.known if value > 0] if told is not None else []
    if told is None or not spent:
        return None
    low, high = numbers.quantity(min(spent), told.unit), numbers.quantity(max(spent), told.unit)
    return f"{low} (one round)" if len(spent) == 1 else low if low == high else f"{low} to {high}"


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
