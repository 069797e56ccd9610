"""What samples say of each trial of a round: how busy its cards were, what power they drew, and how many joules that took.

A figure belongs to the trial's own accepted blocks (of a job or a single call: to the time that it took). Samples and blocks share one clock.

| reading | unit | how it is made of samples |
|---|---|---|
| `kernel_busy`, `memory_busy`, `sm_active`, `tensor_active` | share | a sample speaks of the time since the one before; mean over time, then over the trial's cards |
| `power_w` | W | straight lines between samples (of averaged power beside another trial's blocks: growth of `energy_j`); mean over time, sum over cards |
| `sm_clock_mhz`, `memory_clock_mhz` | MHz | straight lines between samples; mean over time and cards |
| `temperature_c`, `gpu_memory_used_bytes` | °C, bytes | the highest sample |
| `pcie_rx_bytes_per_s`, `pcie_tx_bytes_per_s` | bytes/s | a sample speaks of the time since the one before; where it comes more seldom than looks do, straight lines; mean over time, sum |
| `nvlink_rx_bytes_per_s`, `nvlink_tx_bytes_per_s` | bytes/s | growth of the cards' own counters, over the trial's time; sum |
| `energy_j` | J | growth of the cards' own counters, which are interpolated at a block's edges; sum |
| `energy_integrated_j` | J | only where a card counts no energy: mean power times time; sum |
| `work_per_j` | work/J | by whichever of the two there is |
| `host_energy_j`, `host_work_per_j` | J, work/J | growth of the processors' counters (RAPL) |

What cannot be known is null with a reason: nothing is extrapolated, and nothing is shared out among trials that ran at the same moment.
"""

from __future__ import annotations

import math
import statistics
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from harness.measure.telemetry.provider import HOST, Sample
from harness.model import Arrangement, Gpu, Reading, RoundRecord, Trial

GAP_PERIODS = 3
"""Two samples farther apart than this say nothing about the time between them. One that is late or was missed is no gap."""
LEAST_COVERED = 0.9
"""A mean stands for the whole of a trial's time only if at least this share of it was watched."""
LEAST_PER_BLOCK = 4
"""Where blocks take turns, a sample between two of them mixes both. With fewer samples a block than this, a figure would be as much the other's."""
EVERY_LOOK = 1.5
"""What is told more seldom than once in so many looks is not told with each of them."""
AVERAGED_S, LEAST_AVERAGES = 1.0, 10
"""Most drivers tell as a card's power the mean of the last second. In a shorter block than so many of these that would be the other trial's, too."""
INSTANT = 8.0
"""Compute capability of GA100, the last chip whose power is told as it is at the moment (NVIDIA's documentation of nvmlDeviceGetPowerUsage)."""
MOST_W = 1e5
"""No card or machine draws more; a counter that grows faster holds garbage."""
MOST_BYTES_PER_S = 1e13
"""No card's links carry more in one direction, by an order of magnitude."""
HELD_S = 1.0
"""A counter may be renewed as seldom as this and then grow at once."""
SELDOM_S = 5.0
"""No name is asked for more seldom than this, of however many cards: a series that is sparser has holes."""

WINDOW = "window_"
"""Begins the names of readings by which a job marks parts of its time; the cards' readings over each are told under their names with `_<part>` behind."""

POWER, ENERGY, HOST_ENERGY = "power_w", "energy_j", "cpu_energy_j"
SHARES = {
    "kernel_busy": "kernel_busy_share", "memory_busy": "memory_busy_share", "sm_active": "sm_active_share", "tensor_active": "tensor_active_share",
}  # fmt: skip
CLOCKS = {"sm_clock_mhz": "sm_clock_mhz", "memory_clock_mhz": "memory_clock_mhz"}
HIGHEST = {"temperature_c": ("temperature_c", "°C"), "gpu_memory_used_bytes": ("memory_used_bytes", "bytes")}
RATES = {name: name for name in ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s")}
COUNTED = {"nvlink_rx_bytes_per_s": "nvlink_rx_bytes", "nvlink_tx_bytes_per_s": "nvlink_tx_bytes"}
"""Reading -> the name of the samples that it is made of."""

AT_ONCE = "other trials ran at the same moment, and what each of them {} is not known"

Span = tuple[int, int]


@dataclass
class _Series:
    """The samples of one device and name, in order. A moment without a value is NaN; `reason` is the last one's."""

    t_ns: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    reason: str | None = None
    known: int = 0

    def add(self, t_ns: int, value: float | None, reason: str | None) -> None:
        if self.t_ns and t_ns <= self.t_ns[-1]:
            return
        if value is None:
            self.reason = reason or "no value was told"
        else:
            self.known += 1
        # The time goes last: whoever looks meanwhile takes as many values as there are times.
        self.values.append(math.nan if value is None else value)
        self.t_ns.append(t_ns)

    @property
    def pace_s(self) -> float | None:
        """The usual time from one sample to the next, None where there are not two."""
        return statistics.median(after - before for before, after in pairwise(self.t_ns)) / 1e9 if len(self.t_ns) > 1 else None


@dataclass(frozen=True)
class Figure:
    """A value, or why there is none, and how many samples it is made of."""

    value: float | None
    reason: str | None = None
    n: int = 0


@dataclass(frozen=True)
class Stretch:
    """The time that a trial's figures belong to, and the work done in it. `why` says why there is no such time, `no_work` why no work is known."""

    spans: tuple[Span, ...] = ()
    work: float | None = None
    unit: str = ""
    why: str | None = None
    no_work: str | None = None

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return math.fsum(t1_ns - t0_ns for t0_ns, t1_ns in self.spans) / 1e9


class RoundSamples:
    """Keeps what readings are made of, for one round: sixteen bytes a sample. `cards` are those that the round computes on."""

    def __init__(self, cards: Sequence[Gpu]) -> None:
        """Samples of other cards, and of other names, are left alone."""
        names = (*SHARES.values(), *CLOCKS.values(), *(name for name, _ in HIGHEST.values()), *RATES.values(), *COUNTED.values(), POWER, ENERGY)
        self._series = {(card.uuid, name): _Series() for card in cards for name in names}
        self._series[HOST, HOST_ENERGY] = _Series()

    def take(self, samples: Iterable[Sample]) -> None:
        """Keep of a batch what is needed."""
        for sample in samples:
            series = self._series.get((sample.device, sample.name))
            if series is not None:
                series.add(sample.t_ns, sample.value, sample.reason)

    def readings(self, record: RoundRecord, trial: Trial, cards: Sequence[Gpu], periods_s: Mapping[str, float]) -> list[Reading]:
        """Return the readings of a trial that had `cards`; `periods_s` is how often each device was to be sampled, those that were not are missing.

        A trial without cards has readings of the host alone; a machine whose host is not watched has none of that.
        """
        stretch = stretch_of(record, trial)
        shared = _shared(record)
        told: list[tuple[str, str, Figure]] = []
        if cards:
            watches = [_Watch(self, card.uuid, f"GPU {card.index}", periods_s.get(card.uuid), record, _averages(card)) for card in cards]
            told += self._of_cards(stretch, shared, watches)
            for window, part in windows_of(record, trial).items():
                told += [(f"{name}_{window}", unit, figure) for name, unit, figure in self._of_cards(part, shared, watches)]
        if HOST in periods_s:
            spent = self._energy(stretch, shared, [_Watch(self, HOST, "", periods_s[HOST], record)], HOST_ENERGY)
            told += [("host_energy_j", "J", spent), ("host_work_per_j", per_joule(stretch), _work_per(stretch, spent))]
        return [Reading(trial.id, name, figure.value, unit, figure.reason, role=trial.lead, n=figure.n) for name, unit, figure in told]

    def series(self, device: str, name: str) -> _Series:
        """Return what was told of one device under one name so far."""
        return self._series.get((device, name)) or _Series()

    def _of_cards(self, stretch: Stretch, shared: bool, watches: Sequence[_Watch]) -> Iterator[tuple[str, str, Figure]]:
        for name, sampled in SHARES.items():
            yield name, "share", _combined((watch.mean(sampled, stretch, held=True) for watch in watches), _mean)
        for name, sampled in CLOCKS.items():
            yield name, "MHz", _combined((watch.mean(sampled, stretch) for watch in watches), _mean)
        for name, (sampled, unit) in HIGHEST.items():
            yield name, unit, _combined((watch.highest(sampled, stretch) for watch in watches), max)
        for name, sampled in RATES.items():
            moved = (watch.rate(sampled, stretch) for watch in watches)
            yield name, "bytes/s", Figure(None, AT_ONCE.format("moved")) if shared else _combined(moved, math.fsum)
        for name, sampled in COUNTED.items():
            moved = (watch.growth(sampled, stretch) for watch in watches)
            yield name, "bytes/s", Figure(None, AT_ONCE.format("moved")) if shared else _combined(moved, math.fsum)
        power = Figure(None, AT_ONCE.format("drew")) if shared else _combined((watch.power(stretch) for watch in watches), math.fsum)
        yield "power_w", "W", power
        uncounted = [watch for watch in watches if not self.series(watch.device, ENERGY).known]
        energy = spent = self._energy(stretch, shared, watches, ENERGY)
        if uncounted and stretch.why is None and not shared:
            spent = Figure(None, power.reason) if power.value is None else Figure(power.value * stretch.seconds, n=power.n)
            why = self.series(uncounted[0].device, ENERGY).reason or "no sample was taken"
            elsewhere = "; see energy_integrated_j" if spent.value is not None else ""
            energy = Figure(None, f"{uncounted[0].who} has no energy counter that could be read ({why}){elsewhere}")
            yield "energy_integrated_j", "J", spent
        yield "energy_j", "J", energy
        yield "work_per_j", per_joule(stretch), _work_per(stretch, spent)

    def _energy(self, stretch: Stretch, shared: bool, watches: Sequence[_Watch], name: str) -> Figure:
        return Figure(None, AT_ONCE.format("drew")) if shared else _combined((watch.grown(name, stretch) for watch in watches), math.fsum)


def stretch_of(record: RoundRecord, trial: Trial) -> Stretch:
    """Return when a trial did what is counted: its accepted blocks; without blocks its job, else all that it timed."""
    timed = [r for r in record.readings if r.trial == trial.id and r.t0_ns is not None and r.t1_ns is not None and r.t1_ns > r.t0_ns]
    accepted = {quad.index for quad in record.quads if quad.accepted and quad.part == "main"}
    blocks = [r for r in timed if r.quad is not None]
    if blocks:
        counted = [r for r in blocks if r.name == "work" and r.part == "main" and r.quad in accepted]
        stretch = _stretch(counted, counted, "none of its blocks was accepted")
        neighbours = record.arrangement is Arrangement.TOGETHER and len(trial.processes) > 1
        return replace(stretch, work=None, no_work="the work of its neighbours on the card is not counted") if neighbours else stretch
    jobs = [r for r in timed if r.name == "job"]
    return _stretch(jobs or timed, jobs, "nothing of it was timed")


def windows_of(record: RoundRecord, trial: Trial) -> dict[str, Stretch]:
    """Return the parts of a trial's time that it names itself, by name: those of its readings `window_<name>`."""
    named = [r for r in record.readings if r.trial == trial.id and r.name.startswith(WINDOW)]
    return {r.name.removeprefix(WINDOW): _stretch([r], [r], "") for r in named if r.t0_ns is not None and r.t1_ns is not None and r.t1_ns > r.t0_ns}


def _stretch(timed: Sequence[Reading], working: Sequence[Reading], otherwise: str) -> Stretch:
    if not timed:
        return Stretch(why=otherwise, no_work=otherwise)
    spans = _merged((r.t0_ns or 0, r.t1_ns or 0) for r in timed)
    amounts = [r.value for r in working if r.value is not None]
    if not working:
        return Stretch(spans, no_work="it counts no work")
    unit = working[0].unit
    if len(amounts) < len(working):
        return Stretch(spans, unit=unit, no_work="its work is not known")
    return Stretch(spans, math.fsum(amounts), unit)


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the same time as spans that do not overlap: events of one call may lie within one another."""
    merged: list[Span] = []
    for t0_ns, t1_ns in sorted(spans):
        if merged and t0_ns <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], t1_ns)
        else:
            merged.append((t0_ns, t1_ns))
    return tuple(merged)


def _averages(card: Gpu) -> bool:
    """Whether a card's power is told as the mean of the last second."""
    return card.compute_capability is not None and card.compute_capability > INSTANT


def _shared(record: RoundRecord) -> bool:
    """Whether trials ran at the same moment, so that energy and traffic are no single one's."""
    return record.arrangement is Arrangement.TOGETHER and len(record.trials) > 1


@dataclass(frozen=True)
class _Watch:
    """One device as one trial's figures are read off it. `who` names it in reasons; `averages`: its power is told as the mean of the last second."""

    samples: RoundSamples
    device: str
    who: str
    period_s: float | None
    record: RoundRecord
    averages: bool = False

    def power(self, stretch: Stretch) -> Figure:
        """Return the mean power. Where samples of it would reach back into another trial's blocks, only the energy counter knows it."""
        sampled = self.mean(POWER, stretch)
        if sampled.value is None or not (self.averages and self._takes_turns and _shortest_s(stretch) < LEAST_AVERAGES * AVERAGED_S):
            return sampled
        counted = self.grown(ENERGY, stretch)
        if counted.value is not None:
            return Figure(counted.value / stretch.seconds, n=counted.n)
        why = f"its driver tells the mean power of the last second, which is too long for blocks of {_shortest_s(stretch):.2g} s that take turns"
        return self._null(f"{why}, and its energy counter gives no figure")

    def mean(self, name: str, stretch: Stretch, *, held: bool = False) -> Figure:
        """Return the mean over time. `held`: a sample holds for the time since the one before it, instead of a straight line between both."""
        series = self.samples.series(self.device, name)
        why = self._why_not(series, stretch)
        if why is not None:
            return why
        area, covered_ns = 0.0, 0
        for span in stretch.spans:
            for part_ns, height in _pieces(series, span, self._gap_ns, held=held):
                area += part_ns * height
                covered_ns += part_ns
        share = covered_ns / 1e9 / stretch.seconds
        if share < LEAST_COVERED:
            return self._null(f"{series.reason or 'samples are missing'}: {name} is known for {share:.0%} of the time only")
        return Figure(area / covered_ns, n=_inside(series, stretch.spans))

    def highest(self, name: str, stretch: Stretch) -> Figure:
        """Return the highest sample."""
        series = self.samples.series(self.device, name)
        if stretch.why is not None:
            return Figure(None, stretch.why)
        seen = [value for span in stretch.spans for value in series.values[slice(*_within(series, span))] if not math.isnan(value)]
        if not seen:
            return self._null(series.reason or (f"no sample of {name} fell into its time" if series.known else "no sample was taken"))
        return Figure(max(seen), n=len(seen))

    def grown(self, name: str, stretch: Stretch) -> Figure:
        """Return by how much a counter grew over all spans."""
        series = self.samples.series(self.device, name)
        why = self._why_not(series, stretch)
        if why is not None:
            return why
        counts = BYTES if name in COUNTED.values() else JOULES
        total = 0.0
        for span in stretch.spans:
            grown = _grown(series, span, self._gap_ns, counts)
            if isinstance(grown, str):
                return self._null(grown)
            total += grown
        return Figure(total, n=_inside(series, stretch.spans))

    def rate(self, name: str, stretch: Stretch) -> Figure:
        """Return the mean of samples that are rates themselves. What is told with every look is the mean since the one before, what is told more seldom a moment."""
        watch = self._at_pace_of(name)
        every_look = watch.period_s is not None and self.period_s is not None and watch.period_s < EVERY_LOOK * self.period_s
        return watch.often_enough(watch.mean(name, stretch, held=every_look), stretch)

    def growth(self, name: str, stretch: Stretch) -> Figure:
        """Return by how much a counter grew in a second, however seldom it is told."""
        watch = self._at_pace_of(name)
        grown = watch.often_enough(watch.grown(name, stretch), stretch)
        return grown if grown.value is None else replace(grown, value=grown.value / stretch.seconds)

    def often_enough(self, figure: Figure, stretch: Stretch) -> Figure:
        """Return a figure, or why it is none: of a few seldom samples most would lie outside of the trial's time, or be chance."""
        if figure.value is None or self.period_s is None or stretch.seconds >= LEAST_PER_BLOCK * self.period_s:
            return figure
        return self._null(f"read every {self.period_s:.2g} s, which is too seldom for {stretch.seconds:.2g} s")

    def _at_pace_of(self, name: str) -> _Watch:
        """Return the same watch with the time between two samples of this name, which may be asked for more seldom than others."""
        pace_s = self.samples.series(self.device, name).pace_s
        return self if pace_s is None or self.period_s is None else replace(self, period_s=max(self.period_s, min(pace_s, SELDOM_S)))

    @property
    def _gap_ns(self) -> float:
        return GAP_PERIODS * (self.period_s or 0.0) * 1e9

    def _why_not(self, series: _Series, stretch: Stretch) -> Figure | None:
        """Say why no figure can come of these samples, if that can be told without looking at them one by one."""
        if stretch.why is not None:
            return Figure(None, stretch.why)
        if not series.known or self.period_s is None:
            return self._null(series.reason or "no sample was taken")
        if self._takes_turns and LEAST_PER_BLOCK * self.period_s > _shortest_s(stretch):
            return self._null(f"read every {self.period_s:.2g} s, which is too seldom for blocks of {_shortest_s(stretch):.2g} s that take turns")
        return None

    @property
    def _takes_turns(self) -> bool:
        return self.record.arrangement is Arrangement.TURNS_OF_BLOCKS and len(self.record.trials) > 1

    def _null(self, reason: str) -> Figure:
        return Figure(None, f"{self.who}: {reason}" if self.who else reason)


def _shortest_s(stretch: Stretch) -> float:
    return min(t1_ns - t0_ns for t0_ns, t1_ns in stretch.spans) / 1e9


def _pieces(series: _Series, span: Span, gap_ns: float, *, held: bool) -> Iterator[tuple[int, float]]:
    """Yield (nanoseconds, mean height) of all that is known within a span."""
    t0_ns, t1_ns = span
    first, last = max(1, bisect_right(series.t_ns, t0_ns)), min(len(series.t_ns) - 1, bisect_left(series.t_ns, t1_ns))
    for i in range(first, last + 1):
        before_ns, after_ns = series.t_ns[i - 1], series.t_ns[i]
        before, after = series.values[i - 1], series.values[i]
        if held:
            before = after
        start_ns, end_ns = max(before_ns, t0_ns), min(after_ns, t1_ns)
        if end_ns <= start_ns or after_ns - before_ns > gap_ns or math.isnan(before) or math.isnan(after):
            continue
        middle = ((start_ns - before_ns) + (end_ns - before_ns)) / 2 / (after_ns - before_ns)
        yield end_ns - start_ns, before + (after - before) * middle


@dataclass(frozen=True)
class _Counts:
    """What a counter counts: its unit, the most that it can grow by in a second, and who cannot do more."""

    unit: str
    most_per_s: float
    who: str


JOULES = _Counts("J", MOST_W, "no machine can use")
BYTES = _Counts("bytes", MOST_BYTES_PER_S, "no link can carry")


def _grown(series: _Series, span: Span, gap_ns: float, counts: _Counts) -> float | str:
    """Return how much a counter grew within a span, or why that is not known. A gap well inside the span does no harm."""
    t0_ns, t1_ns = span
    times = series.t_ns
    first, last = bisect_right(times, t0_ns) - 1, bisect_left(times, t1_ns)
    if first < 0 or last >= len(times):
        return "the counter was not read both before and after"
    values = series.values[first : last + 1]
    if any(map(math.isnan, values)):
        return series.reason or "the counter was not read all the time"
    if times[first + 1] - times[first] > gap_ns or times[last] - times[last - 1] > gap_ns:
        return "the counter was not read for a while at the edge of a block"
    for i, (before, after) in enumerate(pairwise(values), first):
        if after < before:
            return f"the counter ran backwards, from {before:.0f} to {after:.0f} {counts.unit} (started anew, or went over its end)"
        if after - before > counts.most_per_s * ((times[i + 1] - times[i]) / 1e9 + HELD_S):
            return f"the counter leapt from {before:.0f} to {after:.0f} {counts.unit}, which {counts.who} in that time"
    return _at(series, last - 1, t1_ns) - _at(series, first, t0_ns)


def _at(series: _Series, i: int, t_ns: int) -> float:
    """Return a series at a moment between its samples `i` and `i` + 1."""
    share = (t_ns - series.t_ns[i]) / (series.t_ns[i + 1] - series.t_ns[i])
    return series.values[i] + share * (series.values[i + 1] - series.values[i])


def _within(series: _Series, span: Span) -> Span:
    """Return from where to where samples lie within a span, for a slice."""
    return bisect_left(series.t_ns, span[0]), bisect_right(series.t_ns, span[1])


def _inside(series: _Series, spans: Iterable[Span]) -> int:
    return sum(1 for span in spans for value in series.values[slice(*_within(series, span))] if not math.isnan(value))


def _combined(figures: Iterable[Figure], how: Callable[[list[float]], float]) -> Figure:
    """Make one figure of several cards'. If one is not known, neither is the whole."""
    found = list(figures)
    null = next((figure for figure in found if figure.value is None), None)
    if null is not None:
        return Figure(None, null.reason)
    return Figure(how([figure.value for figure in found if figure.value is not None]), n=sum(figure.n for figure in found))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _work_per(stretch: Stretch, joules: Figure) -> Figure:
    if joules.value is None:
        return Figure(None, joules.reason)
    if stretch.work is None:
        return Figure(None, stretch.no_work)
    if joules.value <= 0:
        return Figure(None, "the energy counter did not grow in that time", joules.n)
    return Figure(stretch.work / joules.value, n=joules.n)


def per_joule(stretch: Stretch) -> str:
    """Return the unit of work by energy."""
    return f"{stretch.unit or 'work'}/J"
