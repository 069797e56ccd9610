"""What a person sees while a run goes, before it (the plan) and after it (the verdicts).

On a terminal a live panel; elsewhere plain lines without control codes, so that a log stays readable. Only shows what it is told: it must not
know how anything is measured or judged. rich is imported when the first thing is shown.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from harness.model import Case, Contrast, Estimate, Plan, Reason, Round, Verdicts, Word
from harness.report import numbers
from harness.report.index import short_labels
from harness.report.text import one_line
from harness.report.words import IN_A_SENTENCE, JUDGED, LOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console, RenderableType
    from rich.live import Live

    from harness.measure.session import Progress
    from harness.plan.outlook import Row

VERBOSITIES = ("quiet", "normal", "debug")


@dataclass
class _State:
    """What the panel shows now. Rates are units of work per second by trial, of the latest block."""

    contrast: str = ""
    purpose: str = ""
    index: int = 0
    done: int = 0
    time_left_s: float | None = None
    doing: str = ""
    rates: dict[str, tuple[float, str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    estimate: tuple[str, str] | None = None
    load: float | None = None
    quads: tuple[int, int] = (0, 0)  # accepted, measured


class Display:
    """A context manager that shows a run. `verbosity`: quiet shows only verdicts and notes, debug every block as well.

    `stream` is stderr by default; `clock` gives seconds and is only used to say how long the run has gone.
    """

    def __init__(self, verbosity: str = "normal", *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._verbosity = verbosity
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._started = clock()
        self._state = _State()
        self._contrasts: dict[str, Contrast] = {}
        self._cases: dict[str, Case] = {}
        self._plan: Plan | None = None
        self._live: Live | None = None

    def __enter__(self) -> Display:  # noqa: PYI034 - Self needs Python 3.11
        if self._verbosity != "quiet" and self._stream.isatty():
            from rich.live import Live  # noqa: PLC0415 - not every run shows something

            self._live = Live(get_renderable=self._panel, console=_console(self._stream), refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop_live()

    def plan(self, plan: Plan, name: str, machine: str) -> None:
        """Say what is about to run. `name` is the bundle's, `machine` the machine's."""
        self._plan = plan
        self._contrasts = {contrast.id: contrast for contrast in plan.contrasts}
        self._cases = {case.title: case for claim in plan.claims for case in claim.cases}
        testable = sum(1 for claim in plan.claims if claim.not_testable is None)
        self._say(
            f"{name}: sweep {plan.sweep} on {machine}, {numbers.plural(testable, 'claim')} to measure "
            f"in {numbers.plural(len(plan.contrasts), 'comparison')}, {_not_here(plan)}"
        )

    def note(self, text: str) -> None:
        """Say a sentence at once, whatever the verbosity."""
        self._print(text)

    def round(self, round_: Round, done: int, time_left_s: float | None) -> None:
        """A round begins: `done` rounds are behind, about `time_left_s` seconds lie ahead (None: unknown)."""
        contrast = self._contrasts.get(round_.contrast)
        cells = [self._plan.cells.get(trial.cell) for trial in round_.trials] if self._plan else []
        known = [cell for cell in cells if cell is not None]
        names = short_labels(known) if len(known) == len(round_.trials) else [trial.id for trial in round_.trials]
        title = contrast.title if contrast else round_.contrast
        fresh = self._state.contrast != title
        self._state = _State(
            contrast=title,
            purpose=contrast.purpose.value if contrast else "",
            index=round_.index,
            done=done,
            time_left_s=time_left_s,
            labels=dict(zip((trial.id for trial in round_.trials), names, strict=True)),
            estimate=None if fresh else self._state.estimate,
        )
        left = f", about {numbers.seconds(time_left_s)} left" if numbers.known(time_left_s) else ""
        again = f", attempt {round_.attempt + 1}" if round_.attempt else ""
        self._line(f"round {done + 1}: {title} ({' | '.join(names)}), its round {round_.index + 1}{again}{left}")

    def tell(self, progress: Progress) -> None:
        """Take in what a session says: a phase, a block, a quad, or that a round has ended."""
        state, trial = self._state, progress.trial or ""
        label = state.labels.get(trial, trial)
        if progress.kind == "block":
            rate = progress.numbers.get("rate")
            if isinstance(rate, int | float):
                state.rates[trial] = (float(rate), _unit(progress))
                state.doing = "measuring"
                self._debug(f"  block {label}: {numbers.rate(float(rate), _unit(progress))} ({progress.text})")
        elif progress.kind == "quad":
            load, accepted = progress.numbers.get("foreign_cores"), bool(progress.numbers.get("accepted"))
            state.load = float(load) if isinstance(load, int | float) else None
            if progress.numbers.get("index") != 0:  # quad 0 is warm-up
                state.quads = (state.quads[0] + accepted, state.quads[1] + 1)
            self._debug(f"  quad {progress.text}: {'accepted' if accepted else 'not counted'}, foreign load {numbers.cores(state.load)}")
        elif progress.kind == "round":
            self._line(f"  {progress.text}{self._round_summary()}")
        else:
            state.doing = f"{label}: {progress.text}" if label else progress.text
            self._debug(f"  {state.doing}")
        self._refresh()

    def estimate(self, title: str, estimate: Estimate | None) -> None:
        """Show the estimate so far of a case; it is no verdict."""
        if estimate is None:
            return
        case = self._cases.get(title)
        text = numbers.measured(estimate.point, estimate.low, estimate.high, case.unit if case else "", estimate.n, estimate.method)
        self._state.estimate = (title, f"{text}, n={estimate.n}")
        self._line(f"  so far {title}: {text}, n={estimate.n}")
        self._refresh()

    def verdicts(self, verdicts: Verdicts, ended: Reason, where: Path) -> None:
        """Show the table of verdicts, why the run ended, and where its report is."""
        self._stop_live()
        print_verdicts(verdicts, self._plan, stream=self._stream)
        self._print(f"ended: {ended.text}")
        if verdicts.preliminary:
            self._print("preliminary: few rounds at a loose error rate; run the full sweep before acting on it")
        self._print(f"report: {where / 'report.html'}")

    # ------------------------------------------------------------ showing

    def _round_summary(self) -> str:
        parts = [f"{self._state.labels.get(trial, trial)} {numbers.rate(*rate)}" for trial, rate in self._state.rates.items()]
        accepted, measured = self._state.quads
        parts += [f"{accepted} of {measured} quads accepted"] if measured else []
        return f": {', '.join(parts)}" if parts else ""

    def _panel(self) -> RenderableType:
        from rich.panel import Panel  # noqa: PLC0415 - as above
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        state = self._state
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column()
        grid.add_row("comparing", Text(f"{state.contrast or 'starting'}{f' ({state.purpose})' if state.purpose else ''}"))
        for trial, label in state.labels.items():
            rate = state.rates.get(trial)
            grid.add_row("", Text(f"{label}  {numbers.rate(*rate) if rate is not None else '...'}"))
        grid.add_row("so far", Text(f"{state.estimate[1]}  {state.estimate[0]}" if state.estimate else "no interval before two rounds"))
        grid.add_row("foreign load", Text(f"{numbers.cores(state.load)}; {state.quads[0]} of {state.quads[1]} quads accepted in this round"))
        grid.add_row("now", Text(state.doing or "..."))
        left = f", about {numbers.seconds(state.time_left_s)} left" if numbers.known(state.time_left_s) else ""
        grid.add_row("rounds", Text(f"{state.done} done, running for {numbers.seconds(self._clock() - self._started)}{left}"))
        return Panel(grid, title="Speedproof", title_align="left", border_style="blue")

    def _say(self, text: str) -> None:
        if self._verbosity != "quiet":
            self._print(text)

    def _line(self, text: str) -> None:
        """A line of the log: shown where there is no panel, or where everything is wanted."""
        if self._verbosity == "debug" or (self._verbosity == "normal" and self._live is None):
            self._print(text)

    def _debug(self, text: str) -> None:
        if self._verbosity == "debug":
            self._print(text)

    def _print(self, text: str) -> None:
        if self._live is not None:
            from rich.text import Text  # noqa: PLC0415

            self._live.console.print(Text(_clean(text)))
        else:
            print(_clean(text), file=self._stream, flush=True)

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _not_here(plan: Plan) -> str:
    elsewhere = sum(claim.in_another_sweep for claim in plan.claims)
    lacking = sum(claim.not_testable is not None for claim in plan.claims) - elsewhere
    return f"{lacking} not testable here" + (f", {elsewhere} in other sweeps" if elsewhere else "")


def _unit(progress: Progress) -> str:
    unit = progress.numbers.get("unit")
    return unit if isinstance(unit, str) else ""


def _clean(text: str) -> str:
    """Return a text without control characters: titles and reasons must not steer a terminal."""
    return one_line(text) if text[:1] != " " else f"  {one_line(text)}"


def _console(stream: TextIO) -> Console:
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
        table.add_row(*(Text(_clean(cell)) if isinstance(cell, str) else Text(_clean(cell[0]), style=cell[1]) for cell in row))
    _console(stream).print(table)


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
        shown = numbers.measured(estimate.point, estimate.low, estimate.high, unit, estimate.n, estimate.method) if estimate else numbers.NA
        claimed = numbers.band(case.lo, case.hi, unit, case.null) if case else ""
        rows.append((result.claim, (f"{look.symbol} {result.verdict.word.value}", f"bold {look.ink}"), shown, claimed, result.verdict.reason.text))
    if rows:
        _table("Verdicts", (("claim", False), ("verdict", False), ("measured", False), ("claimed", False), ("why", False)), rows, out)
    words = Counter(result.verdict.word for result in verdicts.claims)
    controls = Counter(control.word for control in verdicts.controls)
    said = [f"{words[word]} {IN_A_SENTENCE[word]}" for word in JUDGED if words[word]] or ["nothing judged"]
    said += [_not_here(plan)] if plan and words[Word.NOT_TESTABLE] else []
    print(_clean(f"claims: {', '.join(said)}"), file=out)
    if controls:
        print(_clean(f"controls: {', '.join(f'{n} {word}' for word, n in controls.items())}"), file=out)
