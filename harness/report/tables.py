"""From the index and the frames of blocks to the tables that the report shows: one row a case, a switch, an arm, a rung. Numbers stay raw here,
except the column `measured`, so that picture, page and Markdown show one and the same text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.model import ArmResult, Case, CaseResult, Claim, Estimate, Role, Scale, Word
from harness.report import numbers
from harness.report.index import Index, decides, difference, pair_of, short_labels

CASE_COLUMNS = [
    "claim", "group", "case", "title", "role", "decides", "scale", "unit", "lo", "hi", "null", "band",
    "point", "low", "high", "n", "measured", "word", "carried_over", "equivalence",
]  # fmt: skip
SWITCH_COLUMNS = ["switch", "title", "point", "low", "high", "n", "measured", "unproven", "trains"]
TRAINS_NOTHING = {"pipeline", "replay", "epoch", "roof"}
"""Workloads that only feed, or only compute: what they gain is no gain of training."""

ARM_COLUMNS = ["cell", "rate", "low", "high", "unit", "rounds", "reason"]


def why_missing(case: Case, result: CaseResult | None) -> str:
    """Return why a case shows no number, the baseline's fault first: `baseline failed: out of memory`."""
    if result is None:
        return "not judged yet"
    if result.verdict.reason.code == "no_rounds" and not any(arm.rounds for arm in result.arms):
        return result.verdict.reason.text  # nobody is at fault: it was not measured, or not a single round came to an end
    arms = {arm.trial: arm for arm in result.arms}
    terms = case.estimand.terms
    for term in sorted(terms, key=lambda t: t.weight):
        name = "trial" if len(terms) == 1 else "baseline" if term.weight < 0 else "treatment"
        fault = _fault(arms.get(term.trial), told=bool(arms))
        if fault:
            return f"{name} {fault}"
    return result.verdict.reason.text


def _fault(arm: ArmResult | None, *, told: bool) -> str | None:
    """Return what is wrong with an arm, None where it is sound or only lost its partner. `told`: the judge listed the arms at all."""
    if arm is None:
        return "missing" if told else None
    reason = (arm.reason or "").removeprefix(f"{numbers.NA}: ")
    if arm.rate is None and reason and "partner" not in reason:
        return "missing" if reason == "missing" else f"failed: {reason.removeprefix('failed: ')}"
    return f"did no work (0 {arm.unit})" if arm.rate == 0 else None


def measured(case: Case, result: CaseResult | None) -> str:
    """Return a case's point and interval as text, or `n/a` with the reason."""
    estimate = result.estimate if result else None
    if estimate is None:
        return numbers.missing(why_missing(case, result))
    return estimate_text(estimate, case.unit)


def estimate_text(estimate: Estimate, unit: str) -> str:
    """Return an estimate as text; see `numbers.measured`."""
    return numbers.measured(estimate.point, estimate.low, estimate.high, unit, estimate.n, numbers.how(estimate.method, estimate.rounds))


def cases_frame(index: Index) -> pd.DataFrame:
    """Return one row a planned case in the plan's order, with its estimate (missing numbers are NaN) and its text."""
    frame: pd.DataFrame = pd.DataFrame.from_records([_case_row(*entry) for entry in index.joined()], columns=CASE_COLUMNS)
    return frame


def _case_row(claim: Claim, case: Case, result: CaseResult | None) -> tuple[object, ...]:
    estimate = result.estimate if result else None
    spread = estimate is not None and (estimate.n > 1 or estimate.method not in {"t", "welch"})
    return (
        claim.id, claim.group, case.id, case.title, case.role.value, decides(claim, case), case.estimand.scale.value, case.unit,
        case.lo, case.hi, case.null, numbers.band(case.lo, case.hi, case.unit, case.null),
        estimate.point if estimate else None, estimate.low if estimate and spread else None, estimate.high if estimate and spread else None,
        estimate.n if estimate else 0, measured(case, result), (result.verdict.word if result else Word.INCONCLUSIVE).value,
        claim.carried_over, result.equivalence if result else None,
    )  # fmt: skip


def forest_frame(cases: pd.DataFrame) -> pd.DataFrame:
    """Return the judged ratios: what the forest plot shows. Judged cases on other scales go to `other_scales`."""
    chosen = cases["role"].eq(Role.JUDGED.value) & cases["decides"].astype(bool)
    frame: pd.DataFrame = cases[chosen & cases["scale"].eq(Scale.LOG.value)].reset_index(drop=True)
    return frame


def other_scales(cases: pd.DataFrame) -> pd.DataFrame:
    """Return the judged cases that no ratio axis can show: counts, shares, levels."""
    chosen = cases["role"].eq(Role.JUDGED.value) & cases["decides"].astype(bool)
    frame: pd.DataFrame = cases[chosen & ~cases["scale"].eq(Scale.LOG.value)].reset_index(drop=True)
    return frame


def speedups_frame(index: Index) -> pd.DataFrame:
    """Return one row a switch: the throughput ratio of two cells that differ in levels only (`trains`: of training, not of feeding alone).

    Deciding cases come before judged ones, then readings. Cases in a ladder are left to the ladder, except the total.
    """
    best: dict[str, tuple[int, tuple[object, ...]]] = {}
    rungs = {rung for ladder in index.plan.ladders for rung in (*ladder.rungs, *ladder.leave_one_out)}
    for claim, case, result in index.joined():
        pair = pair_of(index, case)
        if pair is None or case.estimand.terms[0].measure not in {"throughput", "job_rate"} or case.id in rungs:
            continue
        changed = difference(*pair)
        if not changed or not set(changed) <= set(pair[0].levels) | set(pair[1].levels):
            continue
        switch = "; ".join(f"{factor}: {off} → {on}" for factor, (off, on) in changed.items())
        name, detail = (switch, case.title) if len(changed) < 3 else (case.title, switch)
        rank = 0 if decides(claim, case) and case.role is Role.JUDGED else 1 if case.role is Role.JUDGED else 2
        if result is None or result.estimate is None:
            rank += 3
        row = (name, detail, *_switch_row("", case, result)[2:], pair[0].workload not in TRAINS_NOTHING)
        if switch not in best or rank < best[switch][0]:
            best[switch] = (rank, row)
    frame: pd.DataFrame = pd.DataFrame.from_records([row for _, row in best.values()], columns=SWITCH_COLUMNS)
    best_first: pd.DataFrame = frame.sort_values("point", ascending=False, na_position="last", key=pd.to_numeric, kind="stable", ignore_index=True)
    return best_first


def _switch_row(switch: str, case: Case, result: CaseResult | None) -> tuple[object, ...]:
    estimate = result.estimate if result else None
    spread = estimate is not None and (estimate.n > 1 or estimate.method not in {"t", "welch"})
    unproven = bool(result and result.equivalence and result.equivalence.startswith("not proven"))
    low, high = (estimate.low, estimate.high) if estimate and spread else (None, None)
    point = estimate.point if estimate else None
    return switch, case.title, point, low, high, estimate.n if estimate else 0, measured(case, result), unproven


@dataclass(frozen=True)
class LadderTable:
    """A ladder as rows (`kind`: rung, without, product, total), with the sentence on whether the rungs multiply to the total."""

    title: str
    rows: pd.DataFrame
    says: str


def ladder_tables(index: Index) -> list[LadderTable]:
    """Return every planned ladder; rungs without a result are kept, with their reason."""
    entries = {case.id: (case, result) for _, case, result in index.joined()}
    results = {result.ladder: result for result in index.verdicts.ladders}
    tables = []
    for ladder in index.plan.ladders:
        rows: list[tuple[object, ...]] = []
        for kind, ids in (("rung", ladder.rungs), ("without", ladder.leave_one_out), ("total", (ladder.total,))):
            for case, result in (entries[i] for i in ids if i in entries):
                row = _switch_row("", case, result)
                pair = pair_of(index, case)
                label = (
                    "; ".join(f"{f}: {a} → {b}" for f, (a, b) in difference(*pair).items()) if pair and kind != "total" else f"measured: {case.title}"
                )
                rows.append((kind, label, *row[2:7]))
        found = results.get(ladder.id)
        if found is not None and found.product is not None:
            around = numbers.interval(found.product_low, found.product_high, "", 2)
            text = f"{numbers.ratio(found.product)} ({around})"
            rows.append(("product", "product of the steps", found.product, found.product_low, found.product_high, 0, text))
        says = {
            True: "The steps multiply to the measured total within their intervals.",
            False: "The steps do not multiply to the measured total: the switches act on one another, or a step was measured under other conditions.",
            None: "Whether the steps multiply to the total cannot be said: a step or the total is missing.",
        }[found.agrees if found else None]
        frame = pd.DataFrame.from_records(rows, columns=["kind", "label", "point", "low", "high", "n", "measured"])
        tables.append(LadderTable(ladder.title, frame, says))
    return tables


def arms_frame(index: Index, levels: pd.DataFrame) -> pd.DataFrame:
    """Return one row a cell: its throughput over the most rounds, with the range of these rounds; failed cells keep their reason."""
    rows: dict[str, tuple[object, ...]] = {}
    item: Any
    for item in levels.sort_values("rounds", ascending=False, kind="stable").itertuples():
        cell = index.cell_of.get((item.contrast, item.trial))
        if cell:
            rows.setdefault(cell, (cell, item.rate, item.low, item.high, item.unit, item.rounds, None))
    for arm in _arms(index):
        rows.setdefault(arm.cell, (arm.cell, arm.rate, None, None, arm.unit, arm.rounds, arm.reason))
    ordered = [rows[cell] for cell in index.plan.cells if cell in rows]
    frame: pd.DataFrame = pd.DataFrame.from_records(ordered, columns=ARM_COLUMNS)
    return frame


def _arms(index: Index) -> list[ArmResult]:
    return [arm for claim in index.verdicts.claims for case in claim.cases for arm in case.arms]


def batch_frame(index: Index, arms: pd.DataFrame) -> pd.DataFrame:
    """Return panel, curve, execution, batch, rate, low, high, unit for every family of cells measured at two or more batch sizes."""
    rows = []
    item: Any
    for item in arms.itertuples():
        cell = index.plan.cells[item.cell]
        batch = cell.sizes.get("batch")
        if isinstance(batch, int) and not isinstance(batch, bool) and pd.notna(item.rate):
            rest = {key: value for key, value in cell.sizes.items() if key not in {"batch", "seed"}}
            panel = ", ".join([cell.workload, cell.device, *(f"{key} {value}" for key, value in sorted(rest.items()))])
            curve = tuple(sorted(cell.levels.items()))
            rows.append((panel, curve, cell.levels.get("execution", ""), batch, item.rate, item.low, item.high, item.unit))
    frame: pd.DataFrame = pd.DataFrame.from_records(rows, columns=["panel", "curve", "execution", "batch", "rate", "low", "high", "unit"])
    if frame.empty:
        return frame
    several = frame.groupby(["panel", "curve"])["batch"].transform("nunique") > 1
    frame = frame[several].copy()
    for _, part in frame.groupby("panel"):
        curves = list(dict.fromkeys(part["curve"]))
        factors = [f for f, _ in curves[0] if len({dict(c).get(f) for c in curves}) > 1] if curves else []
        names = {c: ", ".join(dict(c).get(f, "") for f in factors) or dict(c).get("execution", "all arms") for c in curves}
        frame.loc[part.index, "label"] = [names[c] for c in part["curve"]]
    if len(frame):
        frame = frame.drop(columns="curve").sort_values(["panel", "batch"]).reset_index(drop=True)
    return frame


def labelled(index: Index, frame: pd.DataFrame) -> pd.DataFrame:
    """Return `frame` (which has a column `cell`) with a column `label` that names what varies among its cells; unknown cells are dropped."""
    known = frame[frame["cell"].isin(list(index.plan.cells))].reset_index(drop=True)
    named: pd.DataFrame = known.assign(label=short_labels([index.plan.cells[cell] for cell in known["cell"]]))
    return named
