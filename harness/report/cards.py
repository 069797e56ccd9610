"""One card a claim: what was said, what was compared, what others found, what came out, why, how to repeat it, and the raw rounds."""

from __future__ import annotations

import re
import shlex
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.model import Case, CaseResult, Claim, Reading, Role, RoundRecord, State, Statistic, Word
from harness.report import numbers
from harness.report.index import Index, decides, difference, pair_of, settings, short_labels
from harness.report.tables import estimate_text, measured
from harness.report.words import LOOKS

if TYPE_CHECKING:
    import pandas as pd

MOST_ROUNDS = 60  # rows a table of rounds shows; records.jsonl holds all
SOURCES = {"S": "article S, on slow training", "D": "article D, on the GPU's full power", "ours": "our own, from no article"}
Rates = dict[tuple[str, int, str], tuple[float, str]]


@dataclass(frozen=True)
class Table:
    """Text in rows. `numeric` are the columns that are set flush right; `note` stands below."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Card:
    """A claim's card; `word` None where nothing was judged yet."""

    id: str
    group: str
    word: Word | None
    summary: str
    statement: str
    source: str
    hardware: str
    why: str
    adjusted: str
    compared: tuple[tuple[str, str], ...]
    results: Table
    arms: tuple[Table, ...]
    looks: Table | None
    published: Table | None
    notes: str
    command: str
    rounds: tuple[Table, ...]


def make_cards(index: Index, rounds: pd.DataFrame) -> list[Card]:
    """Return the cards of all claims that could be planned, in the plan's order."""
    columns = (rounds[name].tolist() for name in ("contrast", "index", "trial", "rate", "unit"))
    rates: Rates = {(contrast, i, trial): (rate, unit) for contrast, i, trial, rate, unit in zip(*columns, strict=True)}
    return [_card(index, claim, rates) for claim in index.plan.claims if claim.not_testable is None and _testable(index, claim)]


def _testable(index: Index, claim: Claim) -> bool:
    result = index.results.get(claim.id)
    return result is None or result.verdict.word is not Word.NOT_TESTABLE or bool(result.cases)


def _card(index: Index, claim: Claim, rates: Rates) -> Card:
    result = index.results.get(claim.id)
    found = {r.case: r for r in result.cases} if result else {}
    deciding = [case for case in claim.cases if decides(claim, case)] or list(claim.cases)
    main = deciding[0] if deciding else None
    adjusted = index.verdicts.holm.get(claim.id, "")
    contrasts = dict.fromkeys((term.contrast, case.id) for case in [*deciding, *claim.cases] for term in case.estimand.terms)
    shown = dict(reversed(contrasts))  # the deciding case comes first and wins
    cases = {case.id: case for case in claim.cases}
    tables = [rounds_table(index, contrast, cases[case], found.get(case), rates) for contrast, case in reversed(shown.items())]
    return Card(
        id=claim.id,
        group=claim.group,
        word=result.verdict.word if result else None,
        summary=measured(main, found.get(main.id)) if main else numbers.NA,
        statement=claim.statement,
        source=", ".join(SOURCES.get(letter, letter) for letter in (claim.source if set(claim.source) <= {"S", "D"} else [claim.source])),
        hardware=_hardware(claim, index),
        why=result.verdict.reason.text if result else "No verdict yet: the run has not come this far.",
        adjusted=f"Adjusted for the number of verdicts (Holm): {adjusted}" if adjusted and result and adjusted != result.verdict.word.value else "",
        compared=tuple(_compared(index, main)) if main else (),
        results=_results(claim, found),
        arms=tuple(arms_table(index, found[case.id]) for case in claim.cases if case.id in found and found[case.id].found),
        looks=_looks(main, found.get(main.id)) if main else None,
        published=Table("What others published", ("what", "figure", "where"), tuple((p.what, p.value, p.source) for p in claim.published))
        if claim.published
        else None,
        notes=" ".join([claim.notes, *([f"Not measured here: {'; '.join(claim.left_out)}."] if claim.left_out else [])]).strip(),
        command=command(index, claim.id),
        rounds=tuple(table for table in tables if table is not None),
    )


def command(index: Index, claim: str) -> str:
    """Return the shell line that measures this claim again; an id with odd characters is quoted."""
    only = f"only=[{claim}]" if re.fullmatch(r"[\w.-]+", claim) else shlex.quote(f"only=[{claim}]")
    sweep = index.plan.sweep if re.fullmatch(r"[\w-]+", index.plan.sweep) else "full"
    return " ".join(["python -m harness", f"+sweep={sweep}", *_other_overrides(index), only])


def _other_overrides(index: Index) -> list[str]:
    """What else the run was asked for (`workload.batch=32`): without it the line would measure something else. Odd words are left out."""
    said = index.manifest.provenance.get("command")
    words = said.split() if isinstance(said, str) else []
    own = {"sweep", "only", "plan", "budget", "resume", "verbosity"}
    pairs = [word for word in words if re.fullmatch(r"\+?[\w.]+=[\w.,:-]+", word)]
    return [word for word in pairs if word.lstrip("+").partition("=")[0] not in own]


def _hardware(claim: Claim, index: Index) -> str:
    if claim.carried_over or (claim.id in index.results and index.results[claim.id].carried_over):
        return f"carried over: the article's figure is for {claim.exact_hardware or 'other hardware'}"
    return f"on the article's own hardware ({claim.exact_hardware})" if claim.exact_hardware else "the article names no hardware"


def _compared(index: Index, case: Case) -> list[tuple[str, str]]:
    """What the deciding case sets against what: the difference first, then all that both arms share."""
    if case.over is not None:
        return [("case", case.title), ("arms", f"{len(case.over.cells):,}, all that are compared in training on the GPU in this run")]
    if not case.estimand.terms:
        return [("case", case.title), ("measure", "stated, not measured")]
    pair = pair_of(index, case)
    if pair is None:
        cells = list(
            dict.fromkeys(cell for t in case.estimand.terms if (cell := index.cell_of.get((t.contrast, t.trial))) in index.plan.cells and cell)
        )
        labels = short_labels([index.plan.cells[cell] for cell in cells]) if cells else []
        return [("case", case.title), ("arms", "; ".join(labels) or numbers.NA), ("measure", _measure(case))]
    changed = difference(*pair)
    same = {key: value for key, value in settings(pair[0]).items() if key not in changed and key != "seed"}
    rows = [("case", case.title)]
    rows += [(key, f"{off} → {on}") for key, (off, on) in changed.items()]
    return [*rows, ("the same in both", ", ".join(f"{key} {value}" for key, value in same.items())), ("measure", _measure(case))]


def _measure(case: Case) -> str:
    return ", ".join(dict.fromkeys(term.measure.replace("_", " ") for term in case.estimand.terms))


def _results(claim: Claim, found: dict[str, CaseResult]) -> Table:
    rows = []
    for case in claim.cases:
        result = found.get(case.id)
        word = result.verdict.word if result else None
        said = f"{LOOKS[word].symbol} {word.value}" if word else "not judged yet"
        n = numbers.count(result.estimate.n) if result and result.estimate else "0"
        kind = "decides" if case.role is Role.JUDGED and decides(claim, case) else case.role.value
        spread = _spread(case, result)
        why = case.why_reading or (result.verdict.reason.text if result else "")
        equal = (result.equivalence if result else None) or ""
        rows.append((case.title, kind, numbers.band(case.lo, case.hi, case.unit, case.null), measured(case, result), n, spread, said, equal, why))
    columns = ("case", "role", "claimed", "measured (interval)", "n", "spread", "verdict", "equal results", "why")
    return Table("What came out", columns, tuple(rows), numeric=(4, 5))


def arms_table(index: Index, result: CaseResult) -> Table:
    """Return what a rule found of each arm; a column in which no arm has anything is left out."""
    known = [arm for arm in result.found if arm.cell in index.plan.cells]
    labels = short_labels([index.plan.cells[arm.cell] for arm in known])
    rows = [
        (
            label,
            estimate_text(arm.busy, "share") if arm.busy else numbers.NA,
            estimate_text(arm.wait, "share") if arm.wait else "",
            arm.switch,
            estimate_text(arm.gain, "") if arm.gain else "",
            arm.says,
        )
        for label, arm in zip(labels, known, strict=True)
    ]
    columns = ("arm", "a kernel runs", "waits for input", "best measured switch", "worth", "what the rule says")
    kept = [at for at, _ in enumerate(columns) if any(row[at] for row in rows)]
    caption = f"Arm by arm: {result.title[:1].lower()}{result.title[1:]}"
    return Table(caption, tuple(columns[at] for at in kept), tuple(tuple(row[at] or numbers.NA for at in kept) for row in rows))


def _spread(case: Case, result: CaseResult | None) -> str:
    estimate = result.estimate if result else None
    if estimate is None or estimate.n < 2 or estimate.spread is None:
        return numbers.NA
    return numbers.percent(estimate.spread) if case.estimand.scale.value == "log" else numbers.quantity(estimate.spread, case.unit or "share")


def _looks(case: Case, result: CaseResult | None) -> Table | None:
    if result is None or result.estimate is None or not result.estimate.looks:
        return None
    rows = tuple((numbers.count(n), numbers.interval(low, high, case.unit, max(n, 2))) for n, low, high in result.estimate.looks)
    note = f"The interval shown is what all looks have in common; level {numbers.percent(result.estimate.level)}, method {result.estimate.method}."
    return Table("Looks taken", ("after rounds", "interval"), rows, note=note)


def rounds_table(index: Index, contrast: str, case: Case, result: CaseResult | None, rates: Rates) -> Table | None:
    """Return the raw rows of a contrast: what each arm did in each round, the effect, the foreign load, the flags. None where nothing ran."""
    records = index.by_contrast.get(contrast, [])
    planned = index.contrasts.get(contrast)
    if not records or planned is None:
        return None
    trials = [trial.id for trial in planned.trials]
    cells = [index.plan.cells.get(trial.cell) for trial in planned.trials]
    known = [cell for cell in cells if cell is not None]
    labels = short_labels(known) if len(known) == len(trials) else trials
    done = [r for r in records if r.outcome.state is State.COMPLETED]
    values = result.estimate.rounds if result and result.estimate and len(result.estimate.rounds) == len(done) else ()
    by_round = {record.round: value for record, value in zip(done, values, strict=False)}
    rows = tuple(_round_row(record, trials, case, rates, by_round.get(record.round)) for record in records[:MOST_ROUNDS])
    rest = len(records) - MOST_ROUNDS
    note = f"{numbers.plural(rest, 'more round is', 'more rounds are')} in records.jsonl." if rest > 0 else ""
    columns = ("round", "order", *labels, "effect", "foreign load", "quads", "outcome and flags")
    return Table(f"Rounds of {planned.title or contrast}", columns, rows, numeric=tuple(range(2, 4 + len(trials))), note=note)


def _round_row(record: RoundRecord, trials: list[str], case: Case, rates: Rates, value: float | None) -> tuple[str, ...]:
    found = (
        [rates.get((record.contrast, record.index, trial)) for trial in trials] if record.outcome.state is State.COMPLETED else [None] * len(trials)
    )
    arms = [numbers.rate(*entry) if entry else _reading(record, trial, case) for entry, trial in zip(found, trials, strict=True)]
    effect = numbers.quantity(value, case.unit)
    terms = {term.trial: term.weight for term in case.estimand.terms if term.contrast == record.contrast and term.measure == "throughput"}
    by_trial = dict(zip(trials, found, strict=True))
    if sorted(terms.values()) == [-1, 1] and all(by_trial.get(t) for t in terms):
        base, treatment = sorted(terms, key=lambda t: terms[t])
        low, high = by_trial[base], by_trial[treatment]
        effect = numbers.ratio(high[0] / low[0]) if low and high and low[0] > 0 else numbers.NA
    accepted = [quad for quad in record.quads if quad.accepted and quad.part == "main"]
    loads = [quad.foreign_cores for quad in accepted if quad.foreign_cores is not None]
    loads = loads or [reading.value for reading in record.readings if reading.name == "foreign_cores" and reading.value is not None]
    said = (
        []
        if record.outcome.state is State.COMPLETED
        else [f"{record.outcome.state.value}: {record.outcome.reason.text if record.outcome.reason else ''}"]
    )
    said += [flag.text for flag in record.flags] + [flag for quad in record.quads for flag in quad.flags]
    name = f"{record.index + 1}" if record.attempt == 0 else f"{record.index + 1}, attempt {record.attempt + 1}"
    quads = f"{len(accepted)} of {sum(1 for q in record.quads if q.index > 0 and q.part == 'main')}" if record.quads else numbers.NA
    load = numbers.cores(max(loads)) if loads else numbers.NA
    return (name, record.order, *arms, effect, load, quads, "; ".join(dict.fromkeys(said)) or "completed")


def _one_number(readings: list[Reading], statistic: Statistic) -> str:
    """Return readings of one name as the number that the judge takes: work by time, the largest, else the median."""
    values = [reading.value for reading in readings if reading.value is not None]
    seconds = [(reading.t1_ns - reading.t0_ns) / 1e9 for reading in readings if reading.t0_ns is not None and reading.t1_ns is not None]
    if statistic is Statistic.TOTAL_RATE and sum(seconds) > 0 and len(seconds) == len(values):
        return numbers.rate(sum(values) / sum(seconds), readings[0].unit)
    return numbers.quantity(max(values) if statistic is Statistic.MAX else statistics.median(values), readings[0].unit)


def _reading(record: RoundRecord, trial: str, case: Case) -> str:
    """An arm that has no rate shows the readings that the case is about as one number, or why there is none."""
    terms = [term for term in case.estimand.terms if term.trial == trial] or case.estimand.terms[:1]
    for term in terms:
        found = [reading for reading in record.readings if reading.trial == trial and reading.name == term.measure]
        known = [reading for reading in found if reading.value is not None]
        if known:
            return _one_number(known, term.statistic)
        if found:
            return numbers.missing(found[-1].reason)
    ended = record.trial(trial)
    probe = next((reading for reading in record.readings if reading.trial == trial and reading.name == "trains"), None)
    if ended is not None and probe is not None:
        return f"batch {ended.asked.get('batch', numbers.NA)}: {'trains' if probe.value else 'no room'}"
    if ended is not None and ended.outcome.state is not State.COMPLETED:
        return f"{numbers.NA}: {ended.outcome.state.value.replace('_', ' ')}"
    return numbers.NA
