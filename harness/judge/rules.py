"""Rules over all arms of a run: how many of the arms that a rule picks are as it says. A pure function of the plan and its records, like every verdict.

An arm lies on one side of an edge only if its whole interval does. Arms of which that cannot be said make the share an interval, and a verdict is read
from it as from any other: noise can leave it open, never turn it. Must not know what a claim makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.judge.book import Book, is_timed
from harness.judge.bounds import LEAST_LOST
from harness.judge.cases import doubt_of
from harness.judge.effects import value_of
from harness.judge.estimates import find, present
from harness.judge.stats import LEAST_ROUNDS, Floors, Look, mean, pooled, take_look
from harness.judge.verdict import band_of, decide
from harness.model import (
    ArmFound,
    Arrangement,
    Case,
    CaseResult,
    Cell,
    Contrast,
    Estimand,
    Estimate,
    OverArms,
    ProofResult,
    Purpose,
    Reason,
    Role,
    Rule,
    Scale,
    Statistic,
    Term,
    Verdict,
    Word,
)

Truth = bool | None
"""None: it cannot be told."""

BUSY, WAIT, RATE = "kernel_busy", "input_wait", "throughput"
UNCLEAR = "cannot be told yet"
ARMS = "arms"
"""The method of an estimate that is a share of arms."""


@dataclass(frozen=True)
class Place:
    """Where a cell was measured: as this trial of this contrast."""

    contrast: Contrast
    trial: str


@dataclass(frozen=True)
class Gain:
    """What one switch makes of an arm: the other arm's throughput over this one's. `sure`: nothing forbids to decide by it."""

    switch: str
    estimate: Estimate
    sure: bool


@dataclass(frozen=True)
class Arm:
    """An arm as measured. `rate` is the interval of log throughput; None each where it has no such reading.

    `open`: a comparison with another arm, one switch away, has yet to be tried. `untried`: no round of the arm at all has been.
    """

    cell: Cell
    busy: Estimate | None
    wait: Estimate | None
    rate: Look | None
    gains: tuple[Gain, ...]
    open: bool
    untried: bool


@dataclass(frozen=True)
class Entry:
    """Whether an arm is among those that a rule is about, and whether it is as the rule says: by its intervals, and by its points."""

    member: Truth
    holds: Truth
    member_point: bool
    holds_point: bool
    found: ArmFound | None = None


def judge_rule(book: Book, case: Case, over: OverArms, alpha: float, proofs: Mapping[str, ProofResult]) -> CaseResult:
    """Return the share of arms that are as the rule of the case says, with its verdict and what was found of each arm."""
    arms = arms_of(book, over, alpha, proofs)
    told = [arm for arm in arms if arm.busy is not None or arm.untried]
    if not any(arm.busy is not None for arm in arms):
        return CaseResult(case.id, case.title, None, _nothing(book, case, over))
    entries = _ENTRIES[over.rule](told, over)
    found = tuple(entry.found for entry in entries if entry.found is not None)
    estimate = share_of(entries, alpha)
    if estimate is None:
        return CaseResult(case.id, case.title, None, _none_picked(case, over, entries), found=found)
    return CaseResult(case.id, case.title, estimate, _verdict(case, over, estimate, entries), found=found)


# ---------------------------------------------------------------- the share and its verdict


def share_of(entries: Sequence[Entry], alpha: float) -> Estimate | None:
    """Return the share of the members that hold, with the lowest and the highest that the unclear entries allow; None where nothing is surely a member."""
    kinds = [(entry.member, entry.holds) for entry in entries]
    members = sum(member is True for member, _ in kinds)
    if not members:
        return None
    # The lowest share: whatever may fail does, and what is perhaps a member is one only if it may fail. The highest: the other way round.
    may_fail = sum(member is not False and holds is not True for member, holds in kinds)
    must_fail = sum(member is True and holds is False for member, holds in kinds)
    may_hold = sum(member is not False and holds is not False for member, holds in kinds)
    must_hold = sum(member is True and holds is True for member, holds in kinds)
    low, high = must_hold / (must_hold + may_fail), may_hold / (may_hold + must_fail)
    picked = [entry.holds_point for entry in entries if entry.member_point]
    point = sum(picked) / len(picked) if picked else None
    return Estimate(None if point is None else min(max(point, low), high), low, high, members, ARMS, 1 - alpha)


def _numbers(over: OverArms, entries: Sequence[Entry]) -> dict[str, str | int | float | bool | None]:
    sure = [entry for entry in entries if entry.member is True]
    return {
        "arms": len(entries),
        "picked": len(sure),
        "hold": sum(entry.holds is True for entry in sure),
        "fail": sum(entry.holds is False for entry in sure),
        "unclear": sum(_unclear(entry) for entry in entries),
        "busy_edge": over.busy,
        "gain_edge": over.gain,
        "wait_edge": over.wait,
    }


def _unclear(entry: Entry) -> bool:
    return entry.member is None or (entry.member is True and entry.holds is None)


def _verdict(case: Case, over: OverArms, estimate: Estimate, entries: Sequence[Entry]) -> Verdict:
    numbers = _numbers(over, entries)
    text = _TEXTS[over.rule].format(
        hold=numbers["hold"], picked=numbers["picked"], busy=f"{over.busy:.0%}", gain=f"{(over.gain or 1) - 1:.0%}", wait=f"{over.wait or 0:.0%}"
    )
    text += f"; of {numbers['unclear']} more it cannot be told yet" if numbers["unclear"] else ""
    word, open_ = Word.READING, _NO_REGIONS
    if (band := band_of(case)) is not None:
        word, open_ = decide(band, estimate.low, estimate.high)
    if case.role is not Role.JUDGED:
        why = f"{case.why_reading}; {text}" if case.why_reading else text
        return Verdict(Word.READING, Reason("reading", why, numbers), open_)
    return Verdict(word, Reason("open" if word is Word.INCONCLUSIVE else "decided", text, numbers), open_)


_NO_REGIONS: tuple[str, ...] = ()

_TEXTS = {
    Rule.ALARM_PRECISION: "{hold} of {picked} arms that use the GPU for less than {busy} of the time have a switch worth more than {gain}",
    Rule.ALARM_RECALL: "{hold} of {picked} arms that have a switch worth more than {gain} use the GPU for less than {busy} of the time",
    Rule.FASTEST_BUSY: "{hold} of {picked} fastest arms use the GPU for at least {busy} of the time",
    Rule.WAITING: "{hold} of {picked} arms that use the GPU for less than {busy} of the time wait for input during more than {wait} of it",
}


def _none_picked(case: Case, over: OverArms, entries: Sequence[Entry]) -> Verdict:
    """Nothing is surely among those that the rule is about: either nothing is, or it cannot be told."""
    numbers = _numbers(over, entries)
    if numbers["unclear"]:
        reason = Reason(
            "open", f"whether it is about any arm here cannot be told yet: {numbers['unclear']} of {numbers['arms']} arms are unclear", numbers
        )
        return Verdict(Word.INCONCLUSIVE if case.role is Role.JUDGED else Word.READING, reason)
    if not entries:
        text = "no two arms of one workload and its sizes" + (" were measured" if over.rule is Rule.FASTEST_BUSY else " are a single switch apart")
    elif over.rule is Rule.ALARM_RECALL:
        text = f"no arm has a switch worth more than {(over.gain or 1) - 1:.0%}"
    else:
        text = f"no arm was below {over.busy:.0%}"
    return Verdict(Word.NOT_TESTABLE if case.role is Role.JUDGED else Word.READING, Reason("no_arm", text, numbers))


def _nothing(book: Book, case: Case, over: OverArms) -> Verdict:
    """No arm has the reading: the card does not give it, or nothing was measured yet."""
    why = [value for place in _places(book, over) for value in _values(book, place, BUSY) if isinstance(value, Reason)]
    if not why:
        return Verdict(Word.INCONCLUSIVE if case.role is Role.JUDGED else Word.READING, Reason("no_rounds", "was not measured"))
    text = f"no arm tells for how much of the time it used the GPU: it {why[-1].text}"
    return Verdict(Word.NOT_TESTABLE if case.role is Role.JUDGED else Word.READING, Reason("no_reading", text, {"rounds": len(why)}))


# ---------------------------------------------------------------- the rules


def _below(estimate: Estimate | None, edge: float) -> Truth:
    """Whether a share lies below the edge; the edge itself does not."""
    if estimate is None or estimate.n < LEAST_ROUNDS or estimate.high is None:
        return None
    return True if estimate.high < edge else False if estimate.low >= edge else None


def _above(estimate: Estimate | None, edge: float) -> Truth:
    """Whether a value lies above the edge; the edge itself does not."""
    if estimate is None or (estimate.n < LEAST_ROUNDS and estimate.method == "t"):
        return None
    return True if estimate.low > edge else False if estimate.high is not None and estimate.high <= edge else None


def _point(estimate: Estimate | None) -> float:
    if estimate is None:
        return 0.0
    return estimate.low if estimate.point is None else estimate.point


def _worth(arm: Arm, edge: float) -> Truth:
    """Whether any measured switch gains more than the edge. A gain that may not decide, or that is not measured yet, leaves it open."""
    each = [_above(gain.estimate, edge) if gain.sure else None for gain in arm.gains]
    return True if True in each else None if None in each or arm.open or not each else False


def _best(arm: Arm) -> Gain | None:
    return max(arm.gains, key=lambda gain: _point(gain.estimate), default=None)


def _compared(arms: Iterable[Arm]) -> list[Arm]:
    """Arms that a single switch leads away from: of the others nobody can say what a switch would be worth."""
    return [arm for arm in arms if arm.gains or arm.open]


_ALARMS: Mapping[tuple[Truth, Truth], str] = {
    (True, True): "alarm, and a switch is worth it",
    (True, False): "false alarm: no measured switch is worth it",
    (False, True): "no alarm, although a switch is worth it",
    (False, False): "no alarm, and no measured switch is worth it",
}


def _alarms(arms: Sequence[Arm], over: OverArms) -> list[Entry]:
    edge = over.gain or 1.0
    return [_alarm(arm, over.busy, edge) for arm in _compared(arms)]


def _alarm(arm: Arm, busy_edge: float, gain_edge: float) -> Entry:
    below, worth, best = _below(arm.busy, busy_edge), _worth(arm, gain_edge), _best(arm)
    says = _ALARMS.get((below, worth), UNCLEAR)
    found = ArmFound(arm.cell.id, says, arm.busy, arm.wait, best.estimate if best else None, best.switch if best else "")
    low = arm.busy is not None and _point(arm.busy) < busy_edge
    return Entry(below, worth, low, best is not None and _point(best.estimate) > gain_edge, found)


def _recalled(arms: Sequence[Arm], over: OverArms) -> list[Entry]:
    """The alarms seen from the other side; their arms are listed once, with the precision."""
    return [Entry(e.holds, e.member, e.holds_point, e.member_point) for e in _alarms(arms, over)]


def _waiting(arms: Sequence[Arm], over: OverArms) -> list[Entry]:
    edge = over.wait or 0.0
    entries = []
    for arm in arms:
        below = _below(arm.busy, over.busy)
        # What reads no input (its batch lies on the device) has no such reading, and does not wait.
        waits = False if arm.wait is None and not arm.untried else _above(arm.wait, edge)
        says = UNCLEAR
        if below is False:
            says = f"uses the GPU for at least {over.busy:.0%}"
        elif below and waits is not None:
            says = "waits for input most of the time" if waits else "something else than input holds it back"
        found = ArmFound(arm.cell.id, says, arm.busy, arm.wait)
        low = arm.busy is not None and _point(arm.busy) < over.busy
        entries.append(Entry(below, waits, low, _point(arm.wait) > edge, found))
    return entries


def _fastest(arms: Sequence[Arm], over: OverArms) -> list[Entry]:
    groups: dict[tuple[str, str], list[Arm]] = {}
    for arm in arms:
        groups.setdefault((arm.cell.workload, repr(sorted(arm.cell.sizes.items()))), []).append(arm)
    return [_fastest_of(group, over.busy) for group in groups.values() if len(group) > 1]


def _fastest_of(group: Sequence[Arm], edge: float) -> Entry:
    """Any arm whose rate may be the highest may be the fastest: unless all of them are on one side, nothing can be told."""
    rated = [(arm, arm.rate) for arm in group if arm.rate is not None]
    if not rated:
        return Entry(True, None, True, False)
    least = max(rate.low for _, rate in rated)
    may = [arm for arm, rate in rated if rate.high >= least]
    below = [_below(arm.busy, edge) for arm in may]
    # An arm that nobody has tried yet may be faster still.
    untried = any(arm.untried for arm in group)
    holds = None if untried or len(set(below)) > 1 or below[0] is None else not below[0]
    top = max(rated, key=lambda pair: pair[1].low + pair[1].high if math.isfinite(pair[1].low) else -math.inf)[0]
    says = UNCLEAR if holds is None else f"the fastest, and {'busy' if holds else 'not busy'}"
    return Entry(True, holds, True, _point(top.busy) >= edge, ArmFound(top.cell.id, says, top.busy, top.wait))


_ENTRIES: Mapping[Rule, Callable[[Sequence[Arm], OverArms], list[Entry]]] = {
    Rule.ALARM_PRECISION: _alarms,
    Rule.ALARM_RECALL: _recalled,
    Rule.FASTEST_BUSY: _fastest,
    Rule.WAITING: _waiting,
}


# ---------------------------------------------------------------- the arms as measured


def arms_of(book: Book, over: OverArms, alpha: float, proofs: Mapping[str, ProofResult]) -> list[Arm]:
    """Return what was measured of each cell of a rule, over all its contrasts, each interval at 1 - alpha; the switches of one arm share that."""
    places: dict[str, list[Place]] = {}
    for place in _places(book, over):
        places.setdefault(_cell_of(place), []).append(place)
    looks = max((len(place.contrast.looks) for mine in places.values() for place in mine), default=1)
    busy, wait = (_shares(book, places, measure, alpha / looks) for measure in (BUSY, WAIT))
    rates = _rates(book, places, alpha / looks)
    doubtful = _doubtful(book, proofs)
    arms = []
    for cell, mine in places.items():
        gains, open_ = _gains(book, mine, alpha, doubtful)
        untried = not any(_tried(book, place.contrast) for place in mine)
        arms.append(Arm(book.plan.cells[cell], busy.get(cell), wait.get(cell), rates.get(cell), gains, open_, untried))
    return arms


def _places(book: Book, over: OverArms) -> list[Place]:
    """Return where the cells of a rule are compared with others, each at its own time."""
    cells = set(over.cells) & set(book.plan.cells)
    compared = (c for c in book.plan.contrasts if c.purpose is Purpose.CLAIM and len(c.trials) > 1 and c.arrangement is not Arrangement.TOGETHER)
    return [Place(contrast, trial.id) for contrast in compared for trial in contrast.trials if trial.cell in cells]


def _cell_of(place: Place) -> str:
    return next(trial.cell for trial in place.contrast.trials if trial.id == place.trial)


def _tried(book: Book, contrast: Contrast) -> bool:
    """Whether there is a result, if only that there will be none: one lost round may be an accident, and is repeated."""
    return bool(book.completed(contrast.id)) or len(book.lost(contrast.id)) >= LEAST_LOST


def _values(book: Book, place: Place, measure: str) -> list[float | Reason]:
    statistic = Statistic.TOTAL_RATE if measure == RATE else Statistic.VALUE
    term = Term(1.0, place.contrast.id, place.trial, measure, statistic)
    return [value_of(record, term) for record in book.completed(place.contrast.id)]


def _numbers_of(book: Book, places: Mapping[str, Sequence[Place]], measure: str) -> dict[str, list[float]]:
    """Return each cell's values of a measure, one a round of every contrast that it is in; cells without any are left out."""
    found = {cell: [v for place in mine for v in _values(book, place, measure) if not isinstance(v, Reason)] for cell, mine in places.items()}
    return {cell: values for cell, values in found.items() if values}


def _shares(book: Book, places: Mapping[str, Sequence[Place]], measure: str, alpha: float) -> dict[str, Estimate]:
    """Return the mean share of each cell. What lies below 0 or above 1 is no share."""
    values = _numbers_of(book, places, measure)
    spread = book.thresholds.pooled_share * pooled(list(values.values()))
    shares = {}
    for cell, mine in values.items():
        floors = Floors(spread, book.thresholds.floor("gpu") * mean(mine) if is_timed(measure) else 0.0)
        share = present(mine, alpha, floors, Scale.LINEAR)
        shares[cell] = replace(share, low=max(share.low, 0.0), high=1.0 if share.high is None else min(share.high, 1.0))
    return shares


def _rates(book: Book, places: Mapping[str, Sequence[Place]], alpha: float) -> dict[str, Look]:
    """Return the interval of each cell's log throughput, open on both sides where there are too few rounds."""
    logs = {cell: [math.log(v) for v in values if v > 0] for cell, values in _numbers_of(book, places, RATE).items()}
    logs = {cell: values for cell, values in logs.items() if values}
    floors = Floors(book.thresholds.pooled_share * pooled(list(logs.values())), book.thresholds.floor("gpu"))
    return {
        cell: take_look(values, alpha, floors) if len(values) >= LEAST_ROUNDS else Look(len(values), -math.inf, math.inf)
        for cell, values in logs.items()
    }


def _gains(book: Book, places: Sequence[Place], alpha: float, doubtful: frozenset[str]) -> tuple[tuple[Gain, ...], bool]:
    """Return what each single switch makes of an arm, and whether one has yet to be tried. A comparison that failed for good is no measured switch."""
    ways = [
        (place, trial.id, switch)
        for place in places
        for trial in place.contrast.trials
        if trial.cell in book.plan.cells and (switch := one_switch(book.plan.cells[_cell_of(place)], book.plan.cells[trial.cell]))
    ]
    gains = []
    for place, other, switch in ways:
        ratio = Estimand(Scale.LOG, (Term(1.0, place.contrast.id, other, RATE), Term(-1.0, place.contrast.id, place.trial, RATE)))
        found = find(book, Case("", switch, Role.READING, ratio), alpha / len(ways))
        if found.estimate is not None:
            gains.append(Gain(switch, found.estimate, found.defect is None and place.contrast.id not in doubtful))
    return tuple(gains), any(not _tried(book, place.contrast) for place, _, _ in ways)


def one_switch(base: Cell, other: Cell) -> str:
    """Return the one factor in which two cells differ, as "factor: level to level"; "" where they differ in none, in several, or in anything else."""
    if (base.workload, base.device, base.sizes) != (other.workload, other.device, other.sizes):
        return ""
    changed = [name for name in {**base.levels, **other.levels} if base.levels.get(name) != other.levels.get(name)]
    return f"{changed[0]}: {base.levels.get(changed[0])} to {other.levels.get(changed[0])}" if len(changed) == 1 else ""


def _doubtful(book: Book, proofs: Mapping[str, ProofResult]) -> frozenset[str]:
    """Return the contrasts of which some arm is not known to compute what the others do: there is no gain without that."""
    cases = [case for claim in book.plan.claims for case in claim.cases if case.proofs and doubt_of(case, book, proofs) is not None]
    return frozenset(term.contrast for case in cases for term in case.estimand.terms)
