"""A run seen from the report's side: manifest, records and verdicts joined by their ids. Knows no format and computes no statistics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.model import Case, CaseResult, Cell, Claim, ClaimResult, Contrast, Decide, Manifest, Plan, Role, RoundRecord, Scale, Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Index:
    """What `build_index` joined. `cell_of` maps (contrast, trial) to the cell's id; `by_contrast` keeps the records' own order."""

    manifest: Manifest
    records: Sequence[RoundRecord]
    verdicts: Verdicts
    results: dict[str, ClaimResult]
    contrasts: dict[str, Contrast]
    cell_of: dict[tuple[str, str], str]
    by_contrast: dict[str, list[RoundRecord]] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        return self.manifest.plan

    def cell(self, contrast: str, trial: str) -> Cell | None:
        return self.plan.cells.get(self.cell_of.get((contrast, trial), ""))

    def joined(self) -> Iterator[tuple[Claim, Case, CaseResult | None]]:
        """Every planned case with its claim and its result, in the plan's order."""
        for claim in self.plan.claims:
            result = self.results.get(claim.id)
            found = {r.case: r for r in result.cases} if result else {}
            for case in claim.cases:
                yield claim, case, found.get(case.id)


def build_index(manifest: Manifest, records: Sequence[RoundRecord], verdicts: Verdicts) -> Index:
    """Return the joined view. Records of contrasts that the plan does not know are kept (they count in the totals)."""
    by_contrast: dict[str, list[RoundRecord]] = {}
    for record in records:
        by_contrast.setdefault(record.contrast, []).append(record)
    cell_of = {(contrast.id, trial.id): trial.cell for contrast in manifest.plan.contrasts for trial in contrast.trials}
    return Index(
        manifest=manifest,
        records=records,
        verdicts=verdicts,
        results={result.claim: result for result in verdicts.claims},
        contrasts={contrast.id: contrast for contrast in manifest.plan.contrasts},
        cell_of=cell_of,
        by_contrast=by_contrast,
    )


def decides(claim: Claim, case: Case) -> bool:
    """Whether this case takes part in the claim's verdict."""
    if claim.decide is Decide.CASE and claim.deciding_case is not None:
        return claim.deciding_case in {case.id, case.id.removeprefix(f"{claim.id}.")}
    return case.role is Role.JUDGED


def slowed_trials(index: Index) -> set[tuple[str, str]]:
    """Return (contrast, trial) of the trials that do uncounted work on purpose, as a positive control does: they say nothing of their cell."""
    return {(contrast.id, trial.id) for contrast in index.plan.contrasts for trial in contrast.trials if trial.ghost_every}


def pair_of(index: Index, case: Case) -> tuple[Cell, Cell] | None:
    """Return (baseline, treatment) of a plain ratio within one contrast, None for every other estimand."""
    terms = case.estimand.terms
    if case.estimand.scale is not Scale.LOG or len(terms) != 2 or terms[0].contrast != terms[1].contrast or terms[0].measure != terms[1].measure:
        return None
    if sorted(t.weight for t in terms) != [-1, 1]:
        return None
    base, treatment = sorted(terms, key=lambda t: t.weight)
    cells = index.cell(base.contrast, base.trial), index.cell(treatment.contrast, treatment.trial)
    return (cells[0], cells[1]) if cells[0] is not None and cells[1] is not None else None


def difference(base: Cell, treatment: Cell) -> dict[str, tuple[str, str]]:
    """Return what differs between two cells: factor or size -> (baseline's, treatment's)."""
    first = {"workload": base.workload, "device": base.device, **base.levels, **{k: str(v) for k, v in base.sizes.items()}}
    second = {"workload": treatment.workload, "device": treatment.device, **treatment.levels, **{k: str(v) for k, v in treatment.sizes.items()}}
    keys = [*first, *(k for k in second if k not in first)]
    return {k: (first.get(k, "none"), second.get(k, "none")) for k in keys if first.get(k) != second.get(k)}


def settings(cell: Cell) -> dict[str, str]:
    """Return all that defines a cell as one flat mapping of text."""
    sizes = {k: str(v) for k, v in cell.sizes.items() if (k, v) != ("model", cell.workload)}
    return {"workload": cell.workload, "device": cell.device, **cell.levels, **sizes}


_DULL = {"seed", "classes", "model", "vocabulary", "depth", "width"}  # fixed by the workload; a chosen one is in the card's table
_SELF_EVIDENT = {"workload", "execution", "precision", "input"}  # their levels' names need no factor beside them


def short_labels(cells: Sequence[Cell]) -> list[str]:
    """Return a label a cell that names what is unusual among `cells`.

    Execution and sizes are named where they vary, workload and other factors where they differ from most.
    """
    flat = [settings(cell) for cell in cells]
    keys = list(dict.fromkeys(key for entry in flat for key in entry if key != "seed"))
    varying = [key for key in keys if len({entry.get(key) for entry in flat}) > 1]
    usual = {key: Counter(entry.get(key) for entry in flat).most_common(1)[0][0] for key in varying}
    sizes = {key for cell in cells for key in cell.sizes}
    # Where no way of feeding is most arms' own, none goes without saying.
    plural = {key for key in ("input",) if key in usual and sum(entry.get(key) == usual[key] for entry in flat) <= len(cells) / 2}
    labels = []
    for entry in flat:
        always = {"execution", *sizes, *plural} if len(cells) > 3 else set(entry)
        named = [key for key in varying if key in entry and (key in always or entry[key] != usual[key]) and key not in _DULL]
        # Among arms that differ in their input, the usual one is known by its input, not by the workload that it shares with the others.
        named = named or [key for key in varying if key in entry and key in _SELF_EVIDENT][:1]
        parts = [entry[key] if key in _SELF_EVIDENT else f"{key} {entry[key]}" for key in named]
        labels.append(", ".join(parts) or entry["workload"])
    return labels
