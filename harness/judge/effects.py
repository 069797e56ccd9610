"""From the record of a round to the value of a term, and from there to one effect a round.

Only completed rounds of a contrast's last arrangement and only accepted quads count. A value that cannot be had comes with its reason, never as 0.
Must not know statistics or verdicts.
"""

from __future__ import annotations

import math
import statistics
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.model import Arrangement, ControlKind, Estimand, Reading, Reason, RoundRecord, Scale, State, Statistic, Term, TrialRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAIN, ABSENCE = "main", "absence"

Value = float | Reason


@dataclass(frozen=True)
class Work:
    """All counted work, steps and uncounted (ghost) steps of some blocks, and all their time in seconds."""

    amount: float
    steps: int
    ghosts: int
    seconds: float
    unit: str

    @property
    def rate(self) -> float:
        """Work by time: never a mean of rates."""
        return self.amount / self.seconds


def _everything(reading: Reading) -> bool:
    del reading
    return True


def accepted_quads(record: RoundRecord, part: str = MAIN) -> set[int]:
    """Return the indices of the quads whose blocks count."""
    return {quad.index for quad in record.quads if quad.accepted and quad.part == part}


def work_of(record: RoundRecord, trial: str, part: str = MAIN, only: Callable[[Reading], bool] = _everything) -> Work | None:
    """Return what `trial` did in the accepted quads, summed over its blocks; None where there is no such block or one has no value."""
    accepted = accepted_quads(record, part)
    blocks = [r for r in record.readings if r.trial == trial and r.name == "work" and r.part == part and r.quad in accepted and only(r)]
    amounts = [block.value for block in blocks if block.value is not None]
    seconds = math.fsum(_seconds(block) for block in blocks)
    if not blocks or len(amounts) < len(blocks) or seconds <= 0:
        return None
    steps, ghosts = sum(block.n or 0 for block in blocks), sum(block.ghost for block in blocks)
    return Work(math.fsum(amounts), steps, ghosts, seconds, blocks[0].unit)


def _seconds(reading: Reading) -> float:
    return 0.0 if reading.t0_ns is None or reading.t1_ns is None else (reading.t1_ns - reading.t0_ns) / 1e9


# ---------------------------------------------------------------- the value of a term

_values: dict[int, tuple[weakref.ref[RoundRecord], dict[tuple[str, str, Statistic], Value]]] = {}
# Records never change, yet they cannot be hashed (they hold dicts): values are remembered by identity for as long as the record lives.
# Without this, asking after each of ten thousand rounds would read every block ten thousand times.


def value_of(record: RoundRecord, term: Term) -> Value:
    """Return what a completed round says of the term's trial and measure, or the reason why it says nothing.

    throughput: work/s of the accepted blocks; step_time: s; first_call: trace + first, s; phase_<name>: s; peak_rss: bytes; input_wait: share of the
    blocks' time; host_power_w: the processors' joules by the time of the accepted blocks or of the job; anything else: readings of that name.
    """
    key = (term.trial, term.measure, term.statistic)
    known = _values.get(id(record))
    if known is None or known[0]() is not record:
        number = id(record)
        known = (weakref.ref(record, lambda _: _values.pop(number, None)), {})
        _values[number] = known
    if key not in known[1]:
        known[1][key] = _read(record, term)
    return known[1][key]


def _read(record: RoundRecord, term: Term) -> Value:
    trial = record.trial(term.trial)
    if trial is None:
        return Reason("missing", "was not measured in this round")
    if trial.outcome.state is not State.COMPLETED:
        return outcome_reason(trial)
    value = _of_work(record, term) if term.measure in {"throughput", "step_time", "input_wait"} else _of_trial(record, trial, term)
    if isinstance(value, float) and not math.isfinite(value):
        return Reason("not_finite", f"{term.measure} is not a finite number")
    return value


def outcome_reason(trial: TrialRecord) -> Reason:
    """Return why a trial has no value, as its outcome says it."""
    outcome = trial.outcome
    where = f" in {outcome.phase}" if outcome.phase else ""
    why = f": {outcome.reason.text}" if outcome.reason else ""
    return Reason(outcome.state.value, f"{outcome.state.value.replace('_', ' ')}{where}{why}", outcome.reason.numbers if outcome.reason else {})


def _of_work(record: RoundRecord, term: Term) -> Value:
    work = work_of(record, term.trial)
    if work is None:
        return Reason("no_blocks", "has no accepted block")
    if term.measure == "throughput":
        return work.rate
    if term.measure == "step_time":
        return work.seconds / work.steps if work.steps else Reason("no_steps", "counted no steps")
    waits = _readings(record, term.trial, "input_wait_s")
    return math.fsum(waits) / work.seconds if waits else Reason("no_reading", "has no reading input_wait_s")


def _of_trial(record: RoundRecord, trial: TrialRecord, term: Term) -> Value:
    if term.measure == "peak_rss":
        return float(trial.peak_rss_bytes) if trial.peak_rss_bytes is not None else Reason("no_reading", "has no peak_rss_bytes")
    if term.measure == "first_call":
        return trial.phases_s.get("trace", 0.0) + trial.phases_s["first"] if "first" in trial.phases_s else Reason("no_reading", "has no phase first")
    if term.measure.startswith("phase_"):
        seconds = trial.phases_s.get(term.measure.removeprefix("phase_"))
        return seconds if seconds is not None else Reason("no_reading", f"has no phase {term.measure.removeprefix('phase_')}")
    if term.measure == "host_power_w":
        return _host_power(record, term)
    return _of_readings(record, term)


def _host_power(record: RoundRecord, term: Term) -> Value:
    """The joules are those of the same time: telemetry counts them over the accepted blocks, of a trial without blocks over its job."""
    joules = _of_readings(record, replace(term, measure="host_energy_j", statistic=Statistic.VALUE))
    if isinstance(joules, Reason):
        return joules
    if joules <= 0:
        return Reason("no_energy", "has no power: the energy counter did not grow in that time")
    work = work_of(record, term.trial)
    jobs = [r for r in record.readings if r.trial == term.trial and r.name == "job"]
    seconds = work.seconds if work is not None else math.fsum(_seconds(job) for job in jobs)
    return joules / seconds if seconds > 0 else Reason("not_timed", "was timed neither by blocks nor as a job, so that its power is not known")


def _of_readings(record: RoundRecord, term: Term) -> Value:
    if term.statistic is Statistic.TOTAL_RATE:
        timed = [r for r in _counting(record, term.trial, term.measure) if r.value is not None and _seconds(r) > 0]
        if not timed:
            return _no_reading(record, term)
        return math.fsum(r.value or 0.0 for r in timed) / math.fsum(_seconds(r) for r in timed)
    values = _readings(record, term.trial, term.measure)
    if not values:
        return _no_reading(record, term)
    if term.statistic is Statistic.VALUE and record.arrangement is Arrangement.TURNS_OF_TRIALS:
        return math.fsum(values) / len(values)  # A, B, B, A: the mean of both starts, so that drift cancels
    if term.statistic is Statistic.VALUE and len(set(values)) > 1:
        text = f"{term.measure} has {len(values)} readings that differ where one is expected"
        return Reason("several_values", text, {"first": values[0], "last": values[-1]})
    return max(values) if term.statistic is Statistic.MAX else float(statistics.median(values))


def _no_reading(record: RoundRecord, term: Term) -> Reason:
    nulls = [r.reason for r in record.readings if r.trial == term.trial and r.name == term.measure and r.reason]
    return Reason("no_reading", f"has no reading {term.measure}" + (f": {nulls[-1]}" if nulls else ""))


def _counting(record: RoundRecord, trial: str, name: str) -> Iterable[Reading]:
    """Readings of that name outside blocks, or within accepted quads."""
    accepted = accepted_quads(record)
    return (r for r in record.readings if r.trial == trial and r.name == name and r.part == MAIN and (r.quad is None or r.quad in accepted))


def _readings(record: RoundRecord, trial: str, name: str) -> list[float]:
    return [float(r.value) for r in _counting(record, trial, name) if r.value is not None]


# ---------------------------------------------------------------- effects


def effect(estimand: Estimand, values: Sequence[Value]) -> Value:
    """Return the estimand on its scale from its terms' values, or the reason of the first term that has none (baselines before treatments).

    On the log scale a value of 0 or below has no logarithm: the reason says which arm it is.
    """
    numbers: list[float] = []
    for term, value in sorted(zip(estimand.terms, values, strict=True), key=lambda pair: pair[0].weight > 0):
        arm = arm_name(term)
        if isinstance(value, Reason):
            return Reason(f"{arm}_{value.code}", f"{arm} {value.text}", value.numbers)
        if estimand.scale is Scale.LOG and value <= 0:
            return Reason(f"{arm}_zero", f"{arm} {term.measure} is {value:g}, of which no ratio can be taken", {"value": value})
        numbers.append(term.weight * (math.log(value) if estimand.scale is Scale.LOG else value))
    return math.fsum(numbers) + estimand.offset


def arm_name(term: Term) -> str:
    """Return which side of the comparison a term stands for."""
    return "baseline" if term.weight < 0 else "treatment"


# ---------------------------------------------------------------- controls


def control_pair(record: RoundRecord, kind: ControlKind, first: str, second: str) -> tuple[float, float] | None:
    """Return (log ratio measured, log ratio known) of a control round, None where the blocks it needs are missing.

    Negative: second arm over first, blocks without ghost steps. Positive: the second arm's blocks with ghost steps over the first arm; known is
    counted steps over all that ran. Absence: the first arm alone over the first arm beside its partner.
    """
    beside = work_of(record, first)
    blocks = _haunted if kind is ControlKind.POSITIVE else _calm
    other = work_of(record, first, ABSENCE) if kind is ControlKind.ABSENCE else work_of(record, second, MAIN, blocks)
    if beside is None or other is None or beside.amount <= 0 or other.amount <= 0:
        return None
    known = other.steps / (other.steps + other.ghosts) if other.steps else 1.0
    return math.log(other.rate / beside.rate), math.log(known)


def _haunted(reading: Reading) -> bool:
    return reading.ghost > 0


def _calm(reading: Reading) -> bool:
    return reading.ghost == 0
