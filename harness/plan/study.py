"""What to measure next: a pure function of the plan, the records so far and the time left.

A contrast's study asks for rounds until its cases are settled, its looks are spent, or its arms cannot be measured. The schedule over all studies
runs controls first, then proofs, then every contrast up to its first look, then the open ones look by look: what tells most comes first.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.model import Arrangement, Contrast, Done, Plan, Purpose, Reason, Round, RoundRecord, Search, State, Trial
from harness.plan.search import next_value, probe, searches_of, with_largest

ATTEMPTS = 3
"""A round whose partner died is repeated whole, at most twice."""

MOST_LOST = 1 / 3
"""A contrast that has lost more than this share of its rounds gets no verdict: it is unstable."""

MEMORY_SHARE = 0.8
"""Both peaks of a duet must fit into this share of the free memory, the host's and the card's, else its arms take turns as trials."""

DEARNESS = (1, 2, 5)
"""By a contrast's priority: how many times its length it counts for. People wait for verdicts, and a short reading may still come before a long one."""

REPORT_RESERVE_S = 20.0
"""Seconds of a budget that are kept for judging and for the report."""

BOUND_ROUNDS = 2
"""Independent time-outs that make a bound."""

IsSettled = Callable[[str], bool]

Stage = tuple[int, int, int, float]
"""The place of a contrast in the order: which kind, which look (or round), where in the sweep's list, at what cost."""


@dataclass(frozen=True)
class Situation:
    """What a study may know of the world: the free memory in bytes (None: unknown), seconds left (None: no limit), the part of the run (resumes),
    the share of lost rounds above which a contrast is unstable, and the free memory of the fullest card in bytes (None: unknown, or none is used)."""

    free_bytes: int | None = None
    time_left_s: float | None = None
    part: int = 0
    lost_share: float = MOST_LOST
    free_gpu_bytes: int | None = None


class Ledger:
    """The records so far, by contrast, with what studies ask again and again. Grows by `add` in constant time."""

    def __init__(self, records: Sequence[RoundRecord] = ()) -> None:
        self.by_contrast: dict[str, list[RoundRecord]] = {}
        self.completed: Counter[str] = Counter()
        self.arrangements: set[Arrangement] = set()
        self.peak_bytes: dict[str, int] = {}
        self.gpu_peak_bytes: dict[str, float] = {}
        self.stages: dict[str, Stage] = {}  # of contrasts that were asked after, until their next record
        for record in records:
            self.add(record)

    def add(self, record: RoundRecord) -> None:
        self.by_contrast.setdefault(record.contrast, []).append(record)
        self.stages.pop(record.contrast, None)
        if len(record.trials) > 1:  # else it compares nothing
            self.arrangements.add(record.arrangement)
        self.completed[record.contrast] += record.outcome.state is State.COMPLETED
        for trial in record.trials:
            if trial.peak_rss_bytes:
                self.peak_bytes[trial.cell] = max(self.peak_bytes.get(trial.cell, 0), trial.peak_rss_bytes)
            self.gpu_peak_bytes[trial.cell] = max(self.gpu_peak_bytes.get(trial.cell, 0.0), card_bytes(record, trial.id))

    def of(self, contrast: str) -> list[RoundRecord]:
        return self.by_contrast.get(contrast, [])


def card_bytes(record: RoundRecord, trial: str) -> float:
    """Return how much of a card's memory a trial has shown to need: its allocator's peak, or all that was taken while it had the card to itself,
    which its libraries and their contexts are part of; 0 where neither is known."""
    alone = len(record.trials) == 1 or record.arrangement in {Arrangement.SOLO, Arrangement.TURNS_OF_TRIALS}
    names = {"allocator_peak", "gpu_memory_used_bytes"} if alone else {"allocator_peak"}
    return max((r.value for r in record.readings if r.trial == trial and r.name in names and r.value is not None), default=0.0)


def next_round(contrast: Contrast, ledger: Ledger, settled: IsSettled, situation: Situation, seed: int) -> Round | Done:
    """Return the next round of one contrast, or Done with the reason. Pure: the same records give the same answer."""
    records = ledger.of(contrast.id)
    skipped = next((record.outcome for record in records if record.outcome.state is State.SKIPPED), None)
    if skipped is not None:  # what cannot be had here will not be had in another round either
        return Done(skipped.reason or Reason("skipped", "was skipped"))
    if contrast.search is not None:
        return _next_probe(contrast, contrast.search, records, seed)
    if contrast.purpose is Purpose.CONTROL:
        # Each resumed part tests the instrument anew.
        records = [record for record in records if record.part == situation.part]
    arrangement = _arrangement(contrast, records, ledger, situation)
    mine = [record for record in records if record.arrangement is arrangement]
    ended = _ended(contrast, mine, situation.lost_share)
    if ended:
        return Done(ended)
    completed = [record for record in mine if record.outcome.state is State.COMPLETED]
    if len(completed) >= contrast.looks[-1]:
        return Done(Reason("looks_spent", f"all {contrast.looks[-1]} rounds are done", {"rounds": len(completed)}))
    if len(completed) in contrast.looks and settled(contrast.id):
        return Done(Reason("settled", f"settled after {len(completed)} rounds", {"rounds": len(completed)}))
    index, attempt = _position(ledger.of(contrast.id), mine)
    return Round(contrast.id, index, attempt, contrast.trials, arrangement, _seed(seed, contrast.id, index), contrast.quads, contrast.block_s, contrast.absence)


def _next_probe(contrast: Contrast, search: Search, records: list[RoundRecord], seed: int) -> Round | Done:
    """Return the next probe of a search, which has one trial."""
    trial = contrast.trials[0]
    value = next_value(search, records, trial.id)
    if isinstance(value, Reason):
        return Done(value)
    index, attempt = _position(records, records)
    return Round(contrast.id, index, attempt, (probe(trial, search, value),), contrast.arrangement, _seed(seed, contrast.id, index))


def _seed(seed: int, contrast: str, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{contrast}/{index}".encode()).digest()[:4], "big")


def _position(everything: list[RoundRecord], mine: list[RoundRecord]) -> tuple[int, int]:
    """Index and attempt of the next round: a lost round is repeated under its own index, any other opens a new one.

    A kill for want of memory is no accident that a repeat would make good: the next round is an independent witness of it.
    """
    if mine and not mine[-1].outcome.out_of_memory and mine[-1].outcome.state in {State.FAILED, State.INVALID, State.INTERRUPTED}:
        attempts = [r.attempt for r in everything if r.index == mine[-1].index]
        if max(attempts) + 1 < ATTEMPTS or mine[-1].outcome.state is State.INTERRUPTED:
            return mine[-1].index, max(attempts) + 1
    return max((r.index for r in everything), default=-1) + 1, 0


def _ended(contrast: Contrast, records: list[RoundRecord], lost_share: float) -> Reason | None:
    """Why a contrast cannot go on: bounded by time-outs, refused every time, or unstable. A round that a later attempt completed is not lost."""
    good = {r.index for r in records if r.outcome.state is State.COMPLETED}
    timed_out = [r for r in records if r.outcome.state is State.TIMED_OUT]
    failed = [r for r in records if r.outcome.state in {State.FAILED, State.INVALID} and r.index not in good]
    if len(timed_out) >= BOUND_ROUNDS and not good:
        return Reason("bound", "timed out twice: a bound, not a rate", {"rounds": len(timed_out)})
    if len(failed) >= BOUND_ROUNDS and not good:
        return failed[-1].outcome.reason or Reason("failed", "failed twice without one completed round")
    lost = {r.index for r in [*failed, *timed_out] if r.index not in good}
    if len(lost) >= ATTEMPTS and len(lost) > lost_share * len(lost | good):
        return Reason("unstable", f"{len(lost)} of {len(lost | good)} rounds were lost: {contrast.title}", {"lost": len(lost), "rounds": len(lost | good)})
    return None


def _arrangement(contrast: Contrast, records: list[RoundRecord], ledger: Ledger, situation: Situation) -> Arrangement:
    """Turns of blocks become turns of trials where an idle partner works on, or where the arms do not fit into memory side by side."""
    if contrast.arrangement is not Arrangement.TURNS_OF_BLOCKS or contrast.purpose is Purpose.CONTROL:
        return contrast.arrangement
    if any(record.arrangement is Arrangement.TURNS_OF_TRIALS for record in records):
        return Arrangement.TURNS_OF_TRIALS
    if any(flag.code == "idle_partner" for record in records for flag in record.flags):
        return Arrangement.TURNS_OF_TRIALS
    starved = any(trial.outcome.out_of_memory for record in records for trial in record.trials)
    if starved or (len(contrast.trials) > 1 and any(_takes_the_card(trial) for trial in contrast.trials)):
        return Arrangement.TURNS_OF_TRIALS
    # Once a round has been completed side by side, the arms do fit: a passing dip of free memory must not throw finished rounds away.
    fitted = any(record.outcome.state is State.COMPLETED for record in records)
    peaks = [ledger.peak_bytes.get(trial.cell, 0) for trial in contrast.trials]
    on_card = [ledger.gpu_peak_bytes.get(trial.cell, 0.0) for trial in contrast.trials]
    if not fitted and (_crowded(peaks, situation.free_bytes) or _crowded(on_card, situation.free_gpu_bytes)):
        return Arrangement.TURNS_OF_TRIALS
    return contrast.arrangement


def _crowded(peaks_bytes: Sequence[float], free_bytes: int | None) -> bool:
    """Whether these peaks together are known to be more than their share of the free memory."""
    return free_bytes is not None and sum(peaks_bytes) > MEMORY_SHARE * free_bytes


def _takes_the_card(trial: Trial) -> bool:
    """Whether a trial reserves all of a card's memory when it starts, whatever it needs: nobody can live beside it."""
    return any(process.settings.get("device") == "gpu" and process.settings.get("allocator") == "all" for process in trial.processes)


# ---------------------------------------------------------------- the schedule over all studies


def round_cost_s(contrast: Contrast, ledger: Ledger) -> float:
    """Return what a round of this contrast costs: the median of those measured, else the plan's estimate."""
    costs = [record.cost_s for record in ledger.of(contrast.id)]
    return statistics.median(costs) if costs else contrast.expected_round_s


def _stage(contrast: Contrast, ledger: Ledger) -> Stage:
    """The place of a contrast in the order, kept in the ledger until it changes: with many contrasts everyone is asked after every round."""
    if contrast.id not in ledger.stages:
        ledger.stages[contrast.id] = _stage_now(contrast, ledger)
    return ledger.stages[contrast.id]


def _stage_now(contrast: Contrast, ledger: Ledger) -> Stage:
    """Controls, proofs, profiles, first looks, then the looks after; at each look what decides most for its time.

    A sweep with an order goes round by round instead, in that order: where its budget ends it early, something is known of everything that stands first.
    A single round decides nothing, so proofs, and the controls of what is not measured first, can wait until each has had one.
    The time is the planned one, so that the order does not jump about while a contrast is being measured.
    """
    if contrast.purpose is Purpose.CONTROL:
        return (2, 1, 0, 0.0) if contrast.place else (0, 0, 0, 0.0)
    if contrast.purpose is Purpose.PROOF:
        return (2, 1, contrast.place, 0.0) if contrast.place else (1, 0, 0, 0.0)
    if contrast.purpose is Purpose.PROFILE:  # it was asked for by name, and a budget would leave nothing for the end
        return 1, 1, 0, 0.0
    done = ledger.completed[contrast.id]
    by_rounds = contrast.place > 0 and contrast.search is None  # what waits for a search would wait for one probe a turn
    turn = done if by_rounds else sum(done >= look for look in contrast.looks)
    return 2, turn, contrast.place, contrast.expected_round_s * contrast.looks[0] * DEARNESS[contrast.priority] / max(1, contrast.decides)


def is_due(contrast: Contrast, ledger: Ledger) -> bool:
    """Whether a contrast is to be measured: a control on standby only once something was compared in its arrangement."""
    return not contrast.standby or contrast.arrangement in ledger.arrangements


def next_of_all(plan: Plan, ledger: Ledger, settled: IsSettled, situation: Situation, closed: dict[str, Reason]) -> Round | Done:
    """Return the most informative round that still fits into the time left, or Done. What is measured at its largest batch waits for the search.

    `closed` holds the contrasts that are done, with their reasons; it is extended here, so that none is asked twice.
    """
    too_long: list[str] = []
    behind: list[str] = []  # of a search that goes on
    searches = searches_of(plan)
    waiting = [contrast for contrast in plan.contrasts if contrast.id not in closed and is_due(contrast, ledger)]
    while waiting:
        contrast = min(waiting, key=lambda c: _stage(c, ledger))
        waiting.remove(contrast)
        ready = with_largest(contrast, searches, ledger.by_contrast)
        if ready is None:
            behind.append(contrast.id)
            continue
        answer = Done(ready) if isinstance(ready, Reason) else next_round(ready, ledger, settled, situation, plan.seed)
        if not isinstance(answer, Round):
            closed[contrast.id] = answer.reason
        elif situation.time_left_s is not None and round_cost_s(contrast, ledger) > situation.time_left_s:
            too_long.append(contrast.id)
        else:
            return answer
    too_long += behind
    if too_long:
        closed |= {name: Reason("budget", "the budget left no time for another round") for name in too_long}
        return Done(Reason("budget", f"the budget is used up; {len(too_long)} comparisons would have had more rounds", {"contrasts": len(too_long)}))
    # Rounds of other contrasts may have shown that this machine spreads more than it seemed when a contrast was settled.
    reopened = [name for name, reason in closed.items() if reason.code == "settled" and not settled(name)]
    for name in reopened:
        del closed[name]
    return next_of_all(plan, ledger, settled, situation, closed) if reopened else Done(Reason("complete", "everything planned is done"))


def remaining_s(plan: Plan, ledger: Ledger, closed: Mapping[str, Reason]) -> float:
    """Return roughly how many seconds the open contrasts still need to reach their next look."""
    total = 0.0
    for contrast in plan.contrasts:
        if contrast.id in closed or not is_due(contrast, ledger):
            continue
        done = ledger.completed[contrast.id]
        target = next((look for look in contrast.looks if look > done), contrast.looks[-1])
        total += max(0, target - done) * round_cost_s(contrast, ledger)
    return total


