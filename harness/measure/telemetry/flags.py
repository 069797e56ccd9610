"""What samples say about a round's validity: others on the card, clocks held down, swapping, a card that was lost. It reads nothing and drops nothing.

Samples come in as they are taken and only what is conspicuous is kept, so that a long round costs no memory.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from harness.measure.telemetry.provider import HOST, Sample
from harness.measure.telemetry.sampler import Summary
from harness.model import Flag, Gpu, Outcome, Reason, RoundRecord, Scalar, State, TrialRecord

KEPT = 20_000
"""Of each kind and card; at twelve samples a second this is half an hour of nothing but trouble."""

THROTTLING = {
    "thermal_throttling": (("throttle_hardware_thermal", "throttle_software_thermal"), "was slowed down for heat"),
    "power_brake": (("throttle_power_brake",), "was slowed down because its power supply asked for it (power brake)"),
    "hardware_slowdown": (("throttle_hardware_slowdown",), "was slowed down by its hardware, for heat or power"),
    "power_cap": (("throttle_power_cap",), "ran at its power limit (for information: many cards do so under load)"),
}
"""Flag -> the samples that raise it, and what a card did. The third says less than the two before it, and is told only without them."""


@dataclass(frozen=True)
class FlagRules:
    """From where on something is conspicuous."""

    low_clock_share: float = 0.75  # of the clock that applications get by default; a busy card below it is not itself
    swapped_bytes: float = float(1 << 20)  # less than this is the kernel tidying up


def flag_rules(overrides: Mapping[str, float]) -> FlagRules:
    """Return the defaults with `overrides` laid over them. Names that mean nothing here belong to other rooms and are left alone."""
    return replace(FlagRules(), **{item.name: float(overrides[item.name]) for item in fields(FlagRules) if item.name in overrides})


FLAG_RULES = FlagRules()


def _stamps() -> deque[int]:
    return deque(maxlen=KEPT)


def _moments() -> deque[tuple[int, float]]:
    return deque(maxlen=KEPT)


def _moments_by_code() -> defaultdict[str, deque[tuple[int, float]]]:
    return defaultdict(_moments)


@dataclass
class _Card:
    """What was seen of one card. Moments are of the clock that blocks are timed by."""

    read: int = 0
    default_mhz: float | None = None
    lost: bool = False
    reason: str | None = None
    others_told: bool = False
    others_reason: str | None = None
    looked: deque[int] = field(default_factory=_stamps)
    held: dict[str, float] = field(default_factory=dict)  # why clocks are held down, as far as it was told last
    seen: defaultdict[str, deque[tuple[int, float]]] = field(default_factory=_moments_by_code)


class Findings:
    """Takes in a round's samples and says what is to be known about it. `cards` are those that the round computes on."""

    def __init__(self, cards: Sequence[Gpu], rules: FlagRules = FLAG_RULES) -> None:
        """Samples of other cards are left alone: they are no part of this round."""
        self._rules = rules
        self._gpus = {gpu.uuid: gpu for gpu in cards}
        self._cards = {gpu.uuid: _Card() for gpu in cards}
        self._swapped = _moments()

    def take(self, samples: Iterable[Sample]) -> None:
        """Note what is conspicuous in a batch."""
        batches: dict[tuple[str, int], dict[str, Sample]] = {}
        for sample in samples:
            batches.setdefault((sample.device, sample.t_ns), {})[sample.name] = sample
        for (device, t_ns), told in batches.items():
            if device == HOST:
                self._host(t_ns, told)
            elif device in self._cards:
                self._card(self._cards[device], t_ns, told)

    def lost(self) -> tuple[Gpu, ...]:
        """Return the cards of this round that no longer answer."""
        return tuple(self._gpus[uuid] for uuid, card in self._cards.items() if card.lost)

    def flags(self, start_ns: int, end_ns: int) -> list[Flag]:
        """Return what happened between two moments, and for the whole round what could not be seen; one flag a code."""
        found: dict[str, Flag] = {}
        for uuid, card in self._cards.items():
            for flag in self._flags(card, f"GPU {self._gpus[uuid].index}", start_ns, end_ns):
                found.setdefault(flag.code, flag)
        swapped = _grown(self._swapped, start_ns, end_ns)
        if swapped >= self._rules.swapped_bytes and swapped > 0:
            text = f"the machine moved {swapped / 2**20:.0f} MiB to or from swap meanwhile"
            found["swap_used"] = Flag("swap_used", text, {"swapped_bytes": round(swapped)})
        return list(found.values())

    def _host(self, t_ns: int, told: dict[str, Sample]) -> None:
        sample = told.get("swapped_bytes")
        if sample is not None and sample.value is not None:
            self._swapped.append((t_ns, sample.value))

    def _card(self, card: _Card, t_ns: int, told: dict[str, Sample]) -> None:
        values = {name: sample.value for name, sample in told.items() if sample.value is not None}
        if values.get("gpu_lost"):
            card.lost = True
            return
        card.read += len(values)
        card.reason = next((sample.reason for sample in told.values() if sample.value is None), card.reason)
        card.default_mhz = values.get("default_sm_clock_mhz", card.default_mhz)
        if "throttle_idle" in values:
            card.looked.append(t_ns)
            card.held |= {name: value for name, value in values.items() if name.startswith("throttle_")}
            for code, (names, _) in THROTTLING.items():
                if any(card.held.get(name) for name in names):
                    card.seen[code].append((t_ns, 1.0))
        elif "throttle_idle" in told:
            card.held = {}  # no longer known
        clock, least = values.get("sm_clock_mhz"), self._rules.low_clock_share
        if clock is not None and card.default_mhz is not None and clock < least * card.default_mhz and not card.held.get("throttle_idle"):
            card.seen["low_clocks"].append((t_ns, clock))
        others = told.get("foreign_processes")
        if others is not None and others.value is None:
            card.others_reason = others.reason
        elif others is not None and others.value is not None:
            card.others_told = True
            if others.value > 0:
                card.seen["foreign_gpu_process"].append((t_ns, others.value))

    def _flags(self, card: _Card, who: str, start_ns: int, end_ns: int) -> Iterable[Flag]:
        inside = {code: [value for t_ns, value in moments if start_ns <= t_ns <= end_ns] for code, moments in card.seen.items()}
        if card.lost:
            yield Flag("gpu_lost", f"{who} was lost during this round: it no longer answers")
        elif not card.read:
            yield Flag("gpu_unwatched", f"nothing could be read of {who}: {card.reason or 'no sample was taken'}")
        if others := inside.get("foreign_gpu_process"):
            yield Flag("foreign_gpu_process", f"another program computed on {who} meanwhile", {"processes": max(others), "samples": len(others)})
        elif card.read and not card.others_told and card.others_reason is not None:
            yield Flag("foreign_gpu_unknown", f"whether others computed on {who} meanwhile is not known: {card.others_reason}")
        looked = sum(1 for t_ns in card.looked if start_ns <= t_ns <= end_ns)
        explained = bool(inside.get("thermal_throttling") or inside.get("power_brake"))
        for code, (_, text) in THROTTLING.items():
            if inside.get(code) and not (code == "hardware_slowdown" and explained):
                yield Flag(code, f"{who} {text}", {"samples": len(inside[code]), "of": looked})
        if clocks := inside.get("low_clocks"):
            text = f"{who} was busy at {min(clocks):.0f} MHz, below {self._rules.low_clock_share:.0%} of its default of {card.default_mhz:.0f} MHz"
            yield Flag("low_clocks", text, {"lowest_mhz": min(clocks), "default_mhz": card.default_mhz, "samples": len(clocks), "of": looked})


def _grown(totals: Iterable[tuple[int, float]], start_ns: int, end_ns: int) -> float:
    """Return by how much a total grew from the last sample before `start_ns` (or the first there is) to the last before `end_ns`."""
    known = [(t_ns, value) for t_ns, value in totals if t_ns <= end_ns]
    if not known:
        return 0.0
    before = [value for t_ns, value in known if t_ns <= start_ns]
    return known[-1][1] - (before[-1] if before else known[0][1])


def span(record: RoundRecord) -> tuple[int, int] | None:
    """Return from when to when a round's readings were timed; None if none was."""
    timed = [(reading.t0_ns, reading.t1_ns) for reading in record.readings if reading.t0_ns is not None and reading.t1_ns is not None]
    return (min(t0_ns for t0_ns, _ in timed), max(t1_ns for _, t1_ns in timed)) if timed else None


def blind(summaries: Iterable[Summary]) -> list[Flag]:
    """Return a flag if sampling itself went wrong: nobody shall take what was not seen for what was not there."""
    bad = [summary for summary in summaries if not summary.samples or summary.errors or summary.untaken]
    if not bad:
        return []
    text = f"the machine was not, or not always, watched: {bad[0].reason or 'the round was over before the first sample'}"
    counted = {name: sum(getattr(summary, name) for summary in bad) for name in ("samples", "errors", "untaken")}
    return [Flag("telemetry_incomplete", text, {**counted})]


def judged(record: RoundRecord, flags: Sequence[Flag], lost: Sequence[Gpu]) -> RoundRecord:
    """Return the record with these flags; a round whose card was lost has failed, and so has whatever of it was too slow or broke by that."""
    record = replace(record, flags=(*record.flags, *flags))
    if not lost or record.outcome.state in {State.INTERRUPTED, State.SKIPPED, State.NOT_RUN}:
        return record
    names = ", ".join(f"GPU {gpu.index}" for gpu in lost)
    reason = Reason("gpu_lost", f"{names} was lost during this round: it no longer answers; look at the kernel's log, and restart the machine")
    return replace(record, outcome=_failed(record.outcome, reason), trials=tuple(_without_card(trial, reason) for trial in record.trials))


def _without_card(trial: TrialRecord, reason: Reason) -> TrialRecord:
    """What such a trial's time-out or death says nothing about is its speed and its memory."""
    if trial.outcome.state in {State.FAILED, State.INVALID, State.TIMED_OUT}:
        return replace(trial, outcome=_failed(trial.outcome, reason))
    return trial


def _failed(outcome: Outcome, reason: Reason) -> Outcome:
    was: dict[str, Scalar] = {} if outcome.reason is None else {"was": outcome.reason.code}
    return Outcome(State.FAILED, replace(reason, numbers={**reason.numbers, **was}), outcome.phase)
