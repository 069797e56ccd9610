"""Carries out a plan: asks the studies for the next round, lets a session measure it, keeps the record, and asks again.

Joins the rooms; knows neither Hydra nor any framework. Whatever happens after the first round, what has finished is on disk.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from harness.errors import CONTROL_FAILED
from harness.judge import judge, running_estimate, settled
from harness.measure.blocks import quad_rules
from harness.measure.machine import free_memory_bytes
from harness.measure.session import Place, Progress, run_round
from harness.measure.telemetry.beside import Telemetry, open_telemetry
from harness.measure.telemetry.flags import FlagRules, flag_rules
from harness.measure.telemetry.nvml.room import free_bytes
from harness.measure.telemetry.provider import Sample
from harness.model import Estimate, Gpu, Outcome, Plan, Reason, Round, RoundRecord, Scalar, State, Verdicts
from harness.plan.cells import localise
from harness.plan.specs import Factor
from harness.plan.study import MOST_LOST, REPORT_RESERVE_S, Ledger, Situation, next_of_all, remaining_s
from harness.store import Bundle
from harness.watch.places import with_places


class Watcher(Protocol):
    """What wants to see a run as it goes: the live display, logs, an endpoint. None of it may raise: a run does not end because of who looks on."""

    def round(self, round_: Round, done: int, time_left_s: float | None) -> None: ...
    def tell(self, progress: Progress) -> None: ...
    def sampled(self, samples: Sequence[Sample]) -> None: ...
    def ended(self, record: RoundRecord) -> None: ...
    def estimate(self, title: str, estimate: Estimate | None) -> None: ...


class Stop:
    """Set by the first Ctrl-C or SIGTERM; sessions poll it. A second Ctrl-C ends the wait for an orderly stop too."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Turn SIGINT and SIGTERM into a polite request for as long as the context lasts."""
    stop = Stop()
    before = {number: signal.signal(number, stop.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Ended:
    """How a run ended: why nothing more was measured, and why each contrast was closed."""

    reason: Reason
    closed: dict[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True)
class Local:
    """What belongs to this machine and goes into no bundle: interpreters of levels, paths, where workers import from."""

    factors: dict[str, Factor]
    settings: dict[str, Scalar]
    import_roots: tuple[Path, ...]
    scratch: Path | None = None  # where jobs may write: on the storage that they are about
    cpus: tuple[int, ...] = ()  # those that this process may use
    host_period_s: float | None = None  # seconds between two samples of the host; None: no telemetry
    curves: bool = False  # whether workers leave their losses in the bundle, for TensorBoard


def carry_out(
    plan: Plan,
    bundle: Bundle,
    local: Local,
    watcher: Watcher,
    stop: Stop,
    *,
    budget_s: float | None = None,
    part: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Ended:
    """Measure until the plan is done, the budget is used up or a stop is asked for. Each round is in the bundle before the next begins.

    Returns why it ended. Raises nothing for a worker's failure; an error of the bundle's disk is raised.
    """
    started = clock()
    records: list[RoundRecord] = list(bundle.records())
    ledger = Ledger(records)
    closed: dict[str, Reason] = {}
    rules = quad_rules(plan.thresholds)
    cards = cards_of(plan, bundle.manifest.machine.gpus)

    def spent() -> bool:
        return budget_s is not None and clock() - started > budget_s - REPORT_RESERVE_S

    place = Place(bundle.logs, bundle.proofs, bundle.live, local.import_roots, local.scratch)
    with _watched(bundle, local, flag_rules(plan.thresholds), watcher) as telemetry:
        telemetry.idle()
        while not stop():
            left = None if budget_s is None else budget_s - (clock() - started) - REPORT_RESERVE_S
            lost_share = plan.thresholds.get("lost_share", MOST_LOST)
            situation = Situation(free_memory_bytes(), left, part, lost_share, None if telemetry.stuck else free_bytes(cards))
            answer = next_of_all(plan, ledger, lambda name: settled(plan, name, records), situation, closed)
            if not isinstance(answer, Round):
                return Ended(answer.reason, closed)
            open_s = remaining_s(plan, ledger, closed)
            watcher.round(answer, len(records), open_s if left is None else min(left, open_s))
            here = localise(answer, plan.cells, local.factors, local.settings, local.cpus)
            here = with_places(here, plan.cells, bundle.tensorboard, curves=local.curves)
            measure = partial(run_round, here, place, tell=watcher.tell, stop=lambda: stop() or spent(), part=part, thresholds=rules)
            record = telemetry.over(here, measure)
            bundle.append(record)
            records.append(record)
            ledger.add(record)
            watcher.ended(record)
            _show_estimate(plan, answer, records, watcher)
            if spent() and not stop():
                return Ended(Reason("budget", "the budget is used up"), closed)
    return Ended(Reason("interrupted", "stopped by request; what had finished is kept"), closed)


def cards_of(plan: Plan, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the cards that anything of the plan computes on."""
    processes = (process for contrast in plan.contrasts for trial in contrast.trials for process in trial.processes)
    wanted = {uuid for process in processes for uuid in process.gpus or ()}
    return tuple(gpu for gpu in gpus if gpu.uuid in wanted)


@contextmanager
def _watched(bundle: Bundle, local: Local, rules: FlagRules, watcher: Watcher) -> Iterator[Telemetry]:
    """Open telemetry for a part of a run, and pack what it has written when the part ends. Cards are watched even if the plan computes on none."""
    bundle.pack_telemetry()  # what an earlier part left, that was killed

    def write(round_: str, samples: Sequence[Sample]) -> None:
        bundle.append_telemetry(round_, samples)
        watcher.sampled(samples)

    telemetry = open_telemetry(bundle.manifest.machine.gpus, bundle.live, write, local.host_period_s, rules)
    try:
        yield telemetry
    finally:
        telemetry.close()
        bundle.pack_telemetry()


def _show_estimate(plan: Plan, round_: Round, records: Sequence[RoundRecord], watcher: Watcher) -> None:
    shown = running_estimate(plan, round_.contrast, records)
    if shown is not None:
        watcher.estimate(*shown)


def conclude(plan: Plan, bundle: Bundle) -> Verdicts:
    """Judge what is in the bundle and write verdicts.json."""
    verdicts = judge(plan, bundle.records(), bundle.load_proof)
    bundle.write_verdicts(verdicts)
    return verdicts


def exit_code(plan: Plan, records: Sequence[RoundRecord], verdicts: Verdicts, ended: Ended) -> int:
    """Return 130 after an interruption, 3 after a failed control, 2 where trials failed, else 0.

    A round that was lost but made good is no failure: nothing is missing. Time-outs are results (bounds), not failures.
    """
    if ended.reason.code == "interrupted":
        return 130
    if any(control.word == "failed" for control in verdicts.controls):
        return CONTROL_FAILED
    return 2 if failed_contrasts(plan, records) else 0


def failed_contrasts(plan: Plan, records: Sequence[RoundRecord]) -> dict[str, Outcome]:
    """Return the contrasts that lack results because rounds were lost, with the outcome of the last of those.

    A contrast that came to its first look lacks nothing, however many attempts that took, nor does a search once one probe gave an answer, nor one
    whose claim takes a kill for its result.
    """
    ledger = Ledger(records)
    missing: dict[str, Outcome] = {}
    kills = {t.contrast for claim in plan.claims for case in claim.cases if case.killed_counts_as is not None for t in case.estimand.terms}
    for contrast in plan.contrasts:
        lost = [r.outcome for r in ledger.of(contrast.id) if r.outcome.state in {State.FAILED, State.INVALID}]
        if contrast.id in kills:
            lost = [outcome for outcome in lost if not outcome.out_of_memory]
        if lost and ledger.completed[contrast.id] < (1 if contrast.search else contrast.looks[0]):
            missing[contrast.id] = lost[-1]
    return missing
