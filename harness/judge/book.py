"""A plan's records, grouped by contrast once, with what the judge asks again and again: which rounds count, effects, spreads, stops.

Must not know verdicts.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from harness.judge.effects import Value, control_pair, effect, value_of
from harness.judge.stats import Floors, half_width, mean, pooled
from harness.judge.thresholds import Thresholds, thresholds_of
from harness.model import Contrast, Control, ControlKind, Estimand, Plan, Purpose, Reason, RoundRecord, Scale, State, Statistic, Term

if TYPE_CHECKING:
    from collections.abc import Sequence

RATES = frozenset({"throughput", "step_time"})
"""Measures of timed blocks, whose spreads are alike whatever is compared."""

TIMED = frozenset({"throughput", "step_time", "first_call", "input_wait"})

OF_ENERGY = frozenset({"work_per_j", "power_w", "host_work_per_j", "host_power_w"})
"""What is told of each arm's energy by itself, whether or not a case is about it."""

LOST = frozenset({State.FAILED, State.INVALID, State.TIMED_OUT})
"""How a round is lost. One that was interrupted, skipped or never run says nothing against its arms."""

PoolKey = tuple[str, str, Scale, frozenset[str], bool]


def is_timed(measure: str) -> bool:
    """Return whether a measure comes from the instrument's clock: names end in their unit."""
    return measure in TIMED or measure.startswith("phase_") or measure.endswith("_s")


class Book:
    """Made anew from (plan, records) whenever something is asked; holds nothing of its own."""

    def __init__(self, plan: Plan, records: Sequence[RoundRecord]) -> None:
        self.plan = plan
        self.thresholds: Thresholds = thresholds_of(plan.thresholds)
        self.contrasts: dict[str, Contrast] = {contrast.id: contrast for contrast in plan.contrasts}
        self.last_part = records[-1].part if records else 0
        self._by_contrast: dict[str, list[RoundRecord]] = {}
        for record in records:
            self._by_contrast.setdefault(record.contrast, []).append(record)
        self._completed: dict[str, list[RoundRecord]] = {}
        self._effects: dict[Estimand, tuple[list[float], Reason | None]] = {}
        self._pools: dict[PoolKey, float] = {}

    # ------------------------------------------------------------ rounds

    def records(self, contrast: str) -> list[RoundRecord]:
        """Return the records of the contrast's last arrangement, in order: what was measured otherwise before is another quantity.

        A round that was interrupted measured nothing, so it does not make its arrangement the last one.
        """
        mine = self._by_contrast.get(contrast, [])
        told = [record for record in mine if record.outcome.state is not State.INTERRUPTED] or mine
        return [record for record in mine if record.arrangement is told[-1].arrangement] if mine else []

    def completed(self, contrast: str) -> list[RoundRecord]:
        if contrast not in self._completed:
            self._completed[contrast] = [record for record in self.records(contrast) if record.outcome.state is State.COMPLETED]
        return self._completed[contrast]

    def lost(self, contrast: str) -> list[RoundRecord]:
        """Return the last record of each round that no attempt completed."""
        last: dict[int, RoundRecord] = {}
        for record in self.records(contrast):
            known = last.get(record.index)
            if known is None or known.outcome.state is not State.COMPLETED:
                last[record.index] = record
        return [record for record in last.values() if record.outcome.state in LOST]

    def looks(self, estimand: Estimand) -> tuple[int, ...]:
        """Return the planned looks: of the contrast that will have the fewest rounds, since rounds are paired."""
        return min((self.contrasts[name].looks for name in contrasts_of(estimand) if name in self.contrasts), key=lambda looks: looks[-1], default=())

    def stops(self, estimand: Estimand) -> list[int]:
        """Return the numbers of usable rounds at which earlier parts of the run had ended (the present end is not among them)."""
        counts: dict[int, int] = {}
        for name in contrasts_of(estimand):
            done = self.completed(name)
            for part in range(self.last_part):
                n = sum(record.part <= part for record in done)
                counts[part] = min(counts.get(part, n), n)
        return [counts[part] for part in sorted(counts)]

    # ------------------------------------------------------------ effects

    def effects(self, estimand: Estimand) -> tuple[list[float], Reason | None]:
        """Return one effect per round on the estimand's scale, and the last reason why a round gave none.

        Rounds of several contrasts are paired in the order in which they completed: they are independent, so any pairing blind to values will do.
        """
        if estimand not in self._effects:
            self._effects[estimand] = self._paired(estimand)
        return self._effects[estimand]

    def _paired(self, estimand: Estimand) -> tuple[list[float], Reason | None]:
        names = contrasts_of(estimand)
        place = {name: at for at, name in enumerate(names)}
        found: list[float] = []
        reason: Reason | None = None
        for rounds in zip(*(self.completed(name) for name in names), strict=False):
            values: list[Value] = [value_of(rounds[place[term.contrast]], term) for term in estimand.terms]
            one = effect(estimand, values)
            if isinstance(one, Reason):
                reason = one
            else:
                found.append(one)
        return found, reason

    def levels(self, measure: str) -> list[Estimand]:
        """Return the level of a measure by itself, once for each trial of each contrast of a claim, in the plan's order.

        Trials that are slowed on purpose say nothing of their arm, and the probes of a search are of a different size each.
        """
        contrasts = [contrast for contrast in self.plan.contrasts if contrast.purpose is Purpose.CLAIM and contrast.search is None]
        arms = [(contrast.id, trial.id) for contrast in contrasts for trial in contrast.trials if not trial.ghost_every]
        return [Estimand(Scale.LINEAR, (Term(1.0, contrast, trial, measure, Statistic.VALUE),)) for contrast, trial in arms]

    # ------------------------------------------------------------ floors

    def device(self, estimand: Estimand) -> str:
        """Return the kind of device that an estimand's arms run on. What has an arm on the CPU is no finer than the CPU's own comparisons, so it counts
        with those; so does what the plan does not know."""
        found = set()
        for term in estimand.terms:
            for trial in self.contrasts[term.contrast].trials if term.contrast in self.contrasts else ():
                if trial.id == term.trial and trial.cell in self.plan.cells:
                    found.add(self.plan.cells[trial.cell].device)
        return found.pop() if len(found) == 1 else "cpu"

    def floors(self, estimand: Estimand) -> Floors:
        """Return the least spread (half the pooled one of its kind) and the systematic floor on the estimand's scale."""
        if estimand.scale is Scale.EXACT:
            return Floors()
        unit = abs(mean(values)) if _is_amount(estimand) and (values := self.effects(estimand)[0]) else 1.0
        return Floors(self.thresholds.pooled_share * self._pooled(self.pool_key(estimand)) * unit, self._systematic(estimand))

    def pool_key(self, estimand: Estimand) -> PoolKey:
        """Return what spreads are pooled by: device, arrangement, scale. Rates go together, as ratios or each by itself; first calls, phases, bytes,
        shares and what a lesson reads vary each in its own way, and on the linear scale in its own unit, so they are pooled by measure; amounts, whose
        spreads are shares of their mean, apart from differences.
        """
        measures = frozenset(term.measure for term in estimand.terms)
        amount = _is_amount(estimand)
        alike = measures <= RATES and (estimand.scale is Scale.LOG or amount)
        return self.device(estimand), self._arrangement(estimand), estimand.scale, RATES if alike else measures, amount

    def _arrangement(self, estimand: Estimand) -> str:
        return self._arrangement_of(estimand.terms[0].contrast) if estimand.terms else ""

    def _arrangement_of(self, contrast: str) -> str:
        records = self.records(contrast)
        if records:
            return records[-1].arrangement.value
        return self.contrasts[contrast].arrangement.value if contrast in self.contrasts else ""

    @cached_property
    def _estimands(self) -> dict[PoolKey, list[Estimand]]:
        groups: dict[PoolKey, list[Estimand]] = {}
        for estimand in dict.fromkeys(case.estimand for claim in self.plan.claims for case in claim.cases):
            groups.setdefault(self.pool_key(estimand), []).append(estimand)
        return groups

    def _pooled(self, key: PoolKey) -> float:
        if key not in self._pools:
            *_, measures, amount = key
            levels = [level for measure in measures & OF_ENERGY for level in self.levels(measure) if self.pool_key(level) == key] if amount else []
            alike = dict.fromkeys([*self._estimands.get(key, []), *levels])
            self._pools[key] = pooled([self._comparable(estimand) for estimand in alike])
        return self._pools[key]

    def _comparable(self, estimand: Estimand) -> list[float]:
        """Return the effects in a unit that the spreads of others may be compared with: amounts as shares of their mean."""
        values = self.effects(estimand)[0]
        if not values or not _is_amount(estimand):
            return values
        unit = abs(mean(values))
        return [value / unit for value in values] if unit else []

    def _systematic(self, estimand: Estimand) -> float:
        """On the log scale the floor holds for one ratio, so a ratio of ratios has it twice. On the linear scale it is a share of the largest timed
        term; what was counted or weighed has none.
        """
        device = self.device(estimand)
        arrangements = {self._arrangement_of(name) for name in contrasts_of(estimand)}
        floor = max(self.thresholds.floor(device), *(self.bias_shown(device, arrangement) for arrangement in arrangements), 0.0)
        if estimand.scale is Scale.LOG:
            return floor * max(1.0, sum(abs(term.weight) for term in estimand.terms) / 2)
        timed = [term for term in estimand.terms if is_timed(term.measure)]
        sizes = [abs(term.weight * mean(values)) for term in timed if (values := self._term_values(estimand, term.trial, term.measure))]
        return floor * max(sizes, default=0.0)

    def _term_values(self, estimand: Estimand, trial: str, measure: str) -> list[float]:
        terms = [term for term in estimand.terms if term.trial == trial and term.measure == measure]
        return [v for term in terms for r in self.completed(term.contrast) if not isinstance(v := value_of(r, term), Reason)]

    # ------------------------------------------------------------ what the controls show

    def control_effects(self, control: Control, part: int | None = None) -> list[tuple[float, float]]:
        """Return (log ratio measured, log ratio known) of the control's rounds, of one part of the run or of all.

        Of a part, at most as many as its one look takes.
        """
        contrast = self.contrasts.get(control.contrast)
        if contrast is None or not contrast.trials:
            return []
        rounds = [r for r in self.completed(control.contrast) if part is None or r.part == part]
        most = None if part is None else contrast.looks[-1]
        pairs = (control_pair(r, control.kind, contrast.trials[0].id, contrast.trials[-1].id) for r in rounds[:most])
        return [pair for pair in pairs if pair is not None]

    @cached_property
    def _biases(self) -> dict[tuple[str, str], float]:
        shown: dict[tuple[str, str], float] = {}
        for control in self.plan.controls:
            values = [value for value, _ in self.control_effects(control)] if control.kind is ControlKind.NEGATIVE else []
            if len(values) > 1 and abs(mean(values)) > half_width(values, self.thresholds.control_alpha, Floors()):
                key = (control.device, control.arrangement.value)
                shown[key] = max(shown.get(key, 0.0), abs(mean(values)))
        return shown

    def bias_shown(self, device: str, arrangement: str) -> float:
        """Return the bias, in log units, that a negative control shows beyond its own noise; 0 where it shows none."""
        return self._biases.get((device, arrangement), 0.0)


def _is_amount(estimand: Estimand) -> bool:
    """Whether it is one rate, one time, one power or one work per joule by itself: 400 images a second and 200 billion operations a second vary by so
    many per cent, not by so many."""
    measures = [term.measure for term in estimand.terms]
    if estimand.scale is not Scale.LINEAR or len(measures) != 1:
        return False
    return measures[0] in OF_ENERGY or (measures[0] != "input_wait" and is_timed(measures[0]))


def contrasts_of(estimand: Estimand) -> list[str]:
    """Return the ids of the contrasts that the terms read, each once, in their order."""
    return list(dict.fromkeys(term.contrast for term in estimand.terms))
