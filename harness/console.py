"""Tables on the terminal, before a run (the plan) and after it (the verdicts), and how text is made fit for one. rich is imported when something is shown."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from harness.model import Plan, Verdicts, Word
from harness.report import numbers
from harness.report.text import one_line
from harness.report.words import IN_A_SENTENCE, JUDGED, LOOKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from harness.plan.outlook import Row


def not_here(plan: Plan) -> str:
    """Return how many claims cannot be measured, and how many only another sweep would."""
    elsewhere = sum(claim.in_another_sweep for claim in plan.claims)
    lacking = sum(claim.not_testable is not None for claim in plan.claims) - elsewhere
    return f"{lacking} not testable here" + (f", {elsewhere} in other sweeps" if elsewhere else "")


def clean(text: str) -> str:
    """Return a text without control characters: titles and reasons must not steer a terminal."""
    return one_line(text) if text[:1] != " " else f"  {one_line(text)}"


def console(stream: TextIO) -> Console:
    """Return rich's console on a stream; without a terminal it is wide and has no colours."""
    from rich.console import Console  # noqa: PLC0415

    return Console(file=stream, highlight=False, width=None if stream.isatty() else 160, no_color=not stream.isatty())


def _table(title: str, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[tuple[str, str] | str]], stream: TextIO) -> None:
    """Print rows of text (or (text, colour)) under `columns` of (name, flush right)."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) if isinstance(cell, str) else Text(clean(cell[0]), style=cell[1]) for cell in row))
    console(stream).print(table)


def print_plan(
    plan: Plan,
    rows: Sequence[Row],
    overhead: Sequence[tuple[str, int, float]],
    total_s: tuple[float, float],
    budget_s: float | None,
    *,
    stream: TextIO | None = None,
) -> None:
    """Print what would run.

    `overhead` is (what, rounds, seconds) of controls and proofs; `total_s` the time to the first looks and to the last ones.
    """
    out = stream if stream is not None else sys.stdout
    runs = [row for row in rows if row.reason is None]
    shared = [(what, "", f"{rounds}", numbers.seconds(seconds), "") for what, rounds, seconds in overhead]
    body = [(row.claim, row.what, row.rounds, _shared_time(row.seconds), _effect(row.smallest_effect)) for row in runs]
    columns = (("claim", False), ("what runs", False), ("rounds", True), ("to first look", True), ("smallest effect", True))
    _table(f"Sweep {plan.sweep}: what would run", columns, [*shared, *body], out)
    lacking = [row for row in rows if row.reason is not None]
    if lacking:
        names = (("claim", False), ("not testable here because", False), ("what would make it testable", False))
        _table("Not testable here", names, [(row.claim, row.reason or "", row.makes_testable or "not known") for row in lacking], out)
    first, last = total_s
    print(f"{numbers.plural(len(runs), 'claim')} to measure, {len(lacking)} not testable here.", file=out)
    print(f"About {numbers.seconds(first)} to the first looks, {numbers.seconds(last)} if every comparison needs its last look.", file=out)
    if budget_s is not None:
        fits = "is enough for the first looks" if budget_s >= first else "is too short for every first look: the most informative rounds come first"
        print(f"The budget of {numbers.seconds(budget_s)} {fits}.", file=out)
    print(f"Error rate per verdict {numbers.edge(plan.alpha, 'share')}{'; verdicts will be preliminary' if plan.preliminary else ''}.", file=out)


def _shared_time(seconds: float | None) -> str:
    """A claim all of whose comparisons are measured for an earlier claim costs nothing more."""
    if seconds is None:
        return numbers.NA
    return numbers.seconds(seconds) if seconds > 0 else "shared"


def _effect(share: float | None) -> str:
    return numbers.percent(share) if share is not None else ""


def print_verdicts(verdicts: Verdicts, plan: Plan | None, *, stream: TextIO | None = None) -> None:
    """Print one line a claim that could be tested, then the controls and the counts."""
    out = stream if stream is not None else sys.stderr
    cases = {case.id: case for claim in plan.claims for case in claim.cases} if plan else {}
    decided = {claim.id: claim.deciding_case for claim in plan.claims} if plan else {}
    rows: list[Sequence[tuple[str, str] | str]] = []
    for result in verdicts.claims:
        if result.verdict.word is Word.NOT_TESTABLE:
            continue
        look = LOOKS[result.verdict.word]
        wanted = decided.get(result.claim)
        main = next((c for c in result.cases if wanted and c.case.endswith(wanted)), None) or next(
            (c for c in result.cases if c.verdict.word is result.verdict.word), result.cases[0] if result.cases else None
        )
        estimate, case = (main.estimate, cases.get(main.case)) if main else (None, None)
        unit = case.unit if case else ""
        how = numbers.how(estimate.method, estimate.rounds) if estimate else ""
        shown = numbers.measured(estimate.point, estimate.low, estimate.high, unit, estimate.n, how) if estimate else numbers.NA
        claimed = numbers.band(case.lo, case.hi, unit, case.null) if case else ""
        rows.append((result.claim, (f"{look.symbol} {result.verdict.word.value}", f"bold {look.ink}"), shown, claimed, result.verdict.reason.text))
    if rows:
        _table("Verdicts", (("claim", False), ("verdict", False), ("measured", False), ("claimed", False), ("why", False)), rows, out)
    words = Counter(result.verdict.word for result in verdicts.claims)
    controls = Counter(control.word for control in verdicts.controls)
    said = [f"{words[word]} {IN_A_SENTENCE[word]}" for word in JUDGED if words[word]] or ["nothing judged"]
    said += [not_here(plan)] if plan and words[Word.NOT_TESTABLE] else []
    print(clean(f"claims: {', '.join(said)}"), file=out)
    if controls:
        print(clean(f"controls: {', '.join(f'{n} {word}' for word, n in controls.items())}"), file=out)
