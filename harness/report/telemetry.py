"""From samples of cards and host to what the pictures of them show: which rounds, which series, when which arm was at work. Must not know how a figure looks.

Samples are the frame of `Bundle.telemetry`: round, device, t_ns, name, value (NaN where it could not be had), reason. They and the blocks share one clock.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.model import Purpose, Reading, Role, RoundRecord, State
from harness.report.index import decides, short_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from harness.model import Contrast
    from harness.report.index import Index

    Series = tuple[NDArray[np.int64], NDArray[np.float64]]
    """Moments in ns and a value each, in the order of time."""

HOST = "host"
"""The device of samples about the machine around the cards."""

MOST_SCENES = 6
MOST_POINTS = 160
"""More samples of a series than this are drawn as their mean and range in that many equal stretches of time."""
MOST_CARDS = 4

BUSY = ("kernel_busy_share", "kernels busy", "share", ("memory_busy_share", "memory busy"))
CARD_STRIPS = (
    ("power_w", "power", "W"),
    ("sm_clock_mhz", "SM clock", "MHz"),
    ("memory_used_bytes", "memory in use", "bytes"),
    ("memory_used_with_reserved_bytes", "memory in use, the driver's own included", "bytes"),
)
TRAFFIC_STRIPS = (
    ("pcie_rx_bytes_per_s", "PCIe: into the card", "bytes/s", ("pcie_tx_bytes_per_s", "out of it")),
    ("nvlink_rx_bytes", "NVLink: into the card", "bytes/s", ("nvlink_tx_bytes", "out of it")),
)
HOST_STRIPS = (
    ("cpu_share", "cores busy, whoever used them", "share"),
    ("rss_bytes", "memory of our processes", "bytes"),
    ("disk", "disks: read, and written (dashed)", "bytes/s"),
    ("cpu_energy_j", "power of the processors", "W"),
)
"""Key, title, unit of what is drawn of a card, of the host; key and title of what is drawn beside it. Counters (NVLink, `disk`, `cpu_energy_j`) are drawn as
growth in time."""
COUNTERS = frozenset({"nvlink_rx_bytes", "nvlink_tx_bytes"})


@dataclass(frozen=True)
class Line:
    """One series: seconds since the round's start, a value each in the strip's unit, and the range that it stands for. `second`: of the strip's second kind."""

    label: str
    t_s: tuple[float, ...]
    value: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    second: bool = False


@dataclass(frozen=True)
class Strip:
    """Series of one kind in one unit, or the reason why there is none. `beside` is the title of the second kind that some lines show."""

    key: str
    title: str
    unit: str
    lines: tuple[Line, ...]
    reason: str = ""
    beside: str = ""


@dataclass(frozen=True)
class Shade:
    """When an arm (by its place in the scene) was at work; `counts`: whether that enters a figure (no warm-up, no foreign load)."""

    arm: int
    start_s: float
    end_s: float
    counts: bool


@dataclass(frozen=True)
class Scene:
    """One round of one contrast. `executions` are the arms' levels of that factor, for their colours."""

    contrast: str
    title: str
    arms: tuple[str, ...]
    executions: tuple[str, ...]
    shades: tuple[Shade, ...]
    strips: tuple[Strip, ...]

    @property
    def start_s(self) -> float:
        return min(shade.start_s for shade in self.shades)

    @property
    def end_s(self) -> float:
        return max(shade.end_s for shade in self.shades)


def scenes_of(index: Index, samples: pd.DataFrame | None) -> list[Scene]:
    """Return at most MOST_SCENES scenes: contrasts that decide a judged claim first, of each the completed round of median length."""
    if samples is None or samples.empty:
        return []
    watched = set(samples["round"].unique())
    chosen: list[tuple[Contrast, RoundRecord]] = []
    for contrast in chosen_contrasts(index):
        record = typical_round([r for r in index.by_contrast.get(contrast.id, []) if r.round in watched])
        if record is not None and len(chosen) < MOST_SCENES:
            chosen.append((contrast, record))
    part = samples[samples["round"].isin([record.round for _, record in chosen])]
    made = [_scene(index, contrast, record, part[part["round"] == record.round]) for contrast, record in chosen]
    return [scene for scene in made if scene is not None and any(strip.lines for strip in scene.strips)]


def chosen_contrasts(index: Index) -> list[Contrast]:
    """Return the contrasts that claims read: what decides a claim first, then what is judged beside it, then what informs.

    Of each group of claims the first comes before any group's second, so that a few of them show every kind of work.
    """
    ranked: dict[str, tuple[int, int]] = {}
    met: Counter[tuple[int, str]] = Counter()
    for claim, case, _ in index.joined():
        rank = 2 if case.role is not Role.JUDGED else 0 if decides(claim, case) else 1
        for term in case.estimand.terms:
            if term.contrast not in ranked or rank < ranked[term.contrast][0]:
                ranked[term.contrast] = (rank, met[rank, claim.group])
                met[rank, claim.group] += 1
    contrasts = [c for c in index.plan.contrasts if c.purpose is Purpose.CLAIM]
    return sorted(contrasts, key=lambda contrast: ranked.get(contrast.id, (3, 0)))


def typical_round(records: Iterable[RoundRecord]) -> RoundRecord | None:
    """Return the completed round whose arms were at work for the median time, the shorter of two; None where no arm was timed."""
    timed = [(record, spans_of(record)) for record in records if record.outcome.state is State.COMPLETED]
    lengths = sorted(
        ((max(end for *_, end, _ in spans) - min(start for _, start, *_ in spans), record.index, record) for record, spans in timed if spans),
        key=lambda x: x[:2],
    )
    return lengths[(len(lengths) - 1) // 2][2] if lengths else None


def spans_of(record: RoundRecord) -> list[tuple[str, int, int, bool]]:
    """Return (trial, start in ns, end in ns, whether it counts) of all blocks; without blocks of all jobs; else of all that a trial timed, as one span."""
    accepted = {(quad.part, quad.index) for quad in record.quads if quad.accepted}
    timed = [(r, r.t0_ns, r.t1_ns) for r in record.readings if r.t0_ns is not None and r.t1_ns is not None and r.t1_ns > r.t0_ns]

    def counts(block: Reading) -> bool:
        return block.part == "main" and ((block.part, block.quad) in accepted if record.quads else block.quad != 0)

    blocks = [(r.trial, start, end, counts(r)) for r, start, end in timed if r.name == "work"]
    spans = blocks or [(r.trial, start, end, True) for r, start, end in timed if r.name == "job"]
    if spans:
        return spans
    whole: dict[str, tuple[int, int]] = {}
    for reading, start, end in timed:
        first, last = whole.get(reading.trial, (start, end))
        whole[reading.trial] = (min(first, start), max(last, end))
    return [(trial, first, last, True) for trial, (first, last) in whole.items()]


def _scene(index: Index, contrast: Contrast, record: RoundRecord, samples: pd.DataFrame) -> Scene | None:
    origin = int(samples["t_ns"].min())
    names = [trial.id for trial in contrast.trials]
    cells = [index.plan.cells.get(trial.cell) for trial in contrast.trials]
    known = [cell for cell in cells if cell is not None]
    labels = short_labels(known) if len(known) == len(names) else names
    spans = [span for span in spans_of(record) if span[0] in names]
    if not spans:
        return None
    shades = tuple(Shade(names.index(trial), (start - origin) / 1e9, (end - origin) / 1e9, counts) for trial, start, end, counts in spans)
    first, last = min(start for _, start, *_ in spans), max(end for _, _, end, _ in spans)
    gpu = any(cell.device == "gpu" for cell in known) and bool((samples["device"] != HOST).any())
    strips = _card_strips(index, samples, origin, (first, last)) if gpu else _host_strips(samples, origin, (first, last))
    executions = tuple(cell.levels.get("execution", "") if cell is not None else "" for cell in cells)
    return Scene(contrast.id, f"{contrast.title or contrast.id} (round {record.index + 1})", tuple(labels), executions, shades, strips)


def arm_letter(arm: int) -> str:
    """Return the letters that stand for a scene's arm by its place: A, B, ... Z, AA, AB, ... No two arms share them, as they may have to share a colour."""
    before, last = divmod(arm, 26)
    return (arm_letter(before - 1) if before else "") + chr(ord("A") + last)


def shown_keys(scenes: Sequence[Scene]) -> set[str]:
    """Return the kinds of strips that any scene has a line in."""
    return {strip.key for scene in scenes for strip in scene.strips if strip.lines}


# ---------------------------------------------------------------- strips


def _card_strips(index: Index, samples: pd.DataFrame, origin: int, span: tuple[int, int]) -> tuple[Strip, ...]:
    """Return the strips of the busiest cards. Traffic of which not even a reason was told has none."""
    names = {gpu.uuid: f"GPU {gpu.index}" for gpu in index.manifest.machine.gpus}
    uuids = [str(device) for device in samples["device"].unique() if device != HOST]
    uuids.sort(key=lambda uuid: (uuid not in names, names.get(uuid, uuid)))
    shown = _busiest({uuid: gauge(samples, uuid, "kernel_busy_share") for uuid in uuids}, span)
    labels = {uuid: names.get(uuid, f"card {i + 1}") for i, uuid in enumerate(uuids) if uuid in shown}
    told = set(samples.loc[samples["device"].isin(shown), "name"].unique())

    def found(key: str) -> list[tuple[str, Series]]:
        series = ((label, gauge(samples, uuid, key)) for uuid, label in labels.items())
        return [(label, growth(one) if key in COUNTERS else one) for label, one in series]

    def both(key: str, title: str, unit: str, beside: tuple[str, str]) -> Strip:
        reason = why_none(samples, [key, beside[0]], shown)
        return _strip(key, title, unit, found(key), reason, origin, span, found(beside[0]), beside[1])

    strips = [_strip(key, title, unit, found(key), why_none(samples, [key], shown), origin, span) for key, title, unit in CARD_STRIPS]
    plain, reserved = strips[-2:]
    traffic = [both(key, title, unit, beside) for key, title, unit, beside in TRAFFIC_STRIPS if told & {key, beside[0]}]
    return (both(*BUSY), *strips[:-2], plain if plain.lines or not reserved.lines else reserved, *traffic)


def _busiest(busy: dict[str, Series], span: tuple[int, int]) -> list[str]:
    """Return the cards that ran anything between two moments, at most MOST_CARDS; all of them where nobody told."""
    means = {uuid: mean_between(series, span) for uuid, series in busy.items()}
    worked = [uuid for uuid, mean in means.items() if mean is None or mean > 0] or list(means)
    return sorted(sorted(worked, key=lambda uuid: -(means[uuid] or 0.0))[:MOST_CARDS], key=list(means).index)


def _host_strips(samples: pd.DataFrame, origin: int, span: tuple[int, int]) -> tuple[Strip, ...]:
    series = {
        "cpu_share": [("host", gauge(samples, HOST, "cpu_share"))],
        "rss_bytes": [("host", gauge(samples, HOST, "rss_bytes"))],
        "disk": [("read", growth(gauge(samples, HOST, "disk_read_bytes"))), ("written", growth(gauge(samples, HOST, "disk_written_bytes")))],
        "cpu_energy_j": [("host", growth(gauge(samples, HOST, "cpu_energy_j")))],
    }
    told = {key: ["disk_read_bytes", "disk_written_bytes"] if key == "disk" else [key] for key in series}
    return tuple(_strip(key, title, unit, series[key], why_none(samples, told[key], [HOST]), origin, span) for key, title, unit in HOST_STRIPS)


def _strip(  # noqa: PLR0917
    key: str,
    title: str,
    unit: str,
    found: Sequence[tuple[str, Series]],
    reason: str,
    origin: int,
    span: tuple[int, int],
    second: Sequence[tuple[str, Series]] = (),
    beside: str = "",
) -> Strip:
    """Return a strip of the series that have a value in the span. `second` are those of the kind that `beside` names."""
    cut = [(label, *_around(series, span), kind) for kind, group in ((False, found), (True, second)) for label, series in group]
    known = [(label, t_ns, values, kind) for label, t_ns, values, kind in cut if np.isfinite(values).any()]
    highest = max((float(np.nanmax(values)) for _, _, values, _ in known), default=0.0)
    scale, shown_unit = _scaled(highest, unit)
    lines = tuple(replace(_line(label, (t_ns - origin) / 1e9, values / scale), second=kind) for label, t_ns, values, kind in known)
    return Strip(key, title, shown_unit, lines, "" if lines else reason, beside if any(line.second for line in lines) else "")


def _scaled(highest: float, unit: str) -> tuple[float, str]:
    """Return what values are divided by for display, and the unit that they are in then."""
    if unit == "share":
        return 0.01, "%"
    if not unit.startswith("bytes"):
        return 1.0, unit
    power = 30 if highest >= 2**30 else 20 if highest >= 2**20 else 10
    return 2.0**power, {30: "GiB", 20: "MiB", 10: "KiB"}[power] + unit.removeprefix("bytes")


def _around(series: Series, span: tuple[int, int]) -> Series:
    """Cut a series to a span, with one sample more on either side, so that lines reach the span's ends."""
    t_ns, values = series
    first, last = max(0, int(np.searchsorted(t_ns, span[0])) - 1), int(np.searchsorted(t_ns, span[1], side="right")) + 1
    return t_ns[first:last], values[first:last]


def _line(label: str, t_s: NDArray[np.float64], values: NDArray[np.float64]) -> Line:
    if len(t_s) <= MOST_POINTS:
        shown = tuple(values.tolist())
        return Line(label, tuple(t_s.tolist()), shown, shown, shown)
    edges = np.linspace(t_s[0], t_s[-1], MOST_POINTS + 1)
    place = np.minimum(np.searchsorted(edges, t_s, side="right") - 1, MOST_POINTS - 1)
    grouped = pd.DataFrame({"t": t_s, "v": values}).groupby(place)
    means, lows, highs = grouped.mean(), grouped["v"].min(), grouped["v"].max()
    return Line(label, tuple(means["t"].tolist()), tuple(means["v"].tolist()), tuple(lows.tolist()), tuple(highs.tolist()))


# ---------------------------------------------------------------- series


def gauge(samples: pd.DataFrame, device: str, name: str) -> Series:
    """Return the samples of one name of one device; NaN where the value could not be had."""
    chosen = samples[(samples["device"] == device) & (samples["name"] == name)].sort_values("t_ns", kind="stable")
    return chosen["t_ns"].to_numpy(dtype=np.int64), chosen["value"].to_numpy(dtype=np.float64)


def growth(total: Series) -> Series:
    """Return by how much a total grew in a second, at the middle between two samples. A total that fell (it began anew) gives NaN there."""
    t_ns, values = total
    kept = np.isfinite(values)
    t_ns, values = t_ns[kept], values[kept]
    dt_s, grown = np.diff(t_ns) / 1e9, np.diff(values)
    sound = (dt_s > 0) & (grown >= 0)
    rates = np.where(sound, grown / np.where(sound, dt_s, 1.0), np.nan)
    return t_ns[:-1] + np.diff(t_ns) // 2, rates


def mean_between(series: Series, span: tuple[int, int]) -> float | None:
    """Return the mean of the samples between two moments, None where there are none with a value."""
    t_ns, values = series
    inside = values[(t_ns >= span[0]) & (t_ns <= span[1])]
    inside = inside[np.isfinite(inside)]
    return float(inside.mean()) if len(inside) else None


def why_none(samples: pd.DataFrame, names: Sequence[str], devices: Sequence[str]) -> str:
    """Return the last reason that was given for a missing value of these names on these devices."""
    chosen = samples[samples["device"].isin(devices) & samples["name"].isin(names)]
    reasons = [str(reason) for reason in chosen["reason"].dropna().tolist() if reason]
    return reasons[-1] if reasons else "no sample of it was taken"
