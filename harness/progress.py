"""What a person sees while a run goes.

On a terminal a live panel; elsewhere plain lines without control codes, so that a log stays readable. Only shows what it is told: it must not
know how anything is measured or judged. rich is imported when the first thing is shown.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from harness.console import clean, console, not_here, print_verdicts
from harness.model import Case, Contrast, Estimate, Plan, Reason, Round, RoundRecord, Verdicts
from harness.report import numbers
from harness.report.index import short_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from rich.console import RenderableType
    from rich.live import Live

    from harness.measure.session import Progress
    from harness.measure.telemetry.provider import Sample


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

            self._live = Live(get_renderable=self._panel, console=console(self._stream), refresh_per_second=4, transient=True)
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
            f"in {numbers.plural(len(plan.contrasts), 'comparison')}, {not_here(plan)}"
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
        """Take in what a session says: a phase, that something is timed as a whole, a block, a quad, or that a round has ended."""
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

    def sampled(self, samples: Sequence[Sample]) -> None:
        """The panel shows nothing of the machine but its foreign load."""

    def ended(self, record: RoundRecord) -> None:
        """What is shown of a round that has ended was told by its session."""

    def estimate(self, title: str, estimate: Estimate | None) -> None:
        """Show the estimate so far of a case; it is no verdict."""
        if estimate is None:
            return
        case = self._cases.get(title)
        how = numbers.how(estimate.method, estimate.rounds)
        text = numbers.measured(estimate.point, estimate.low, estimate.high, case.unit if case else "", estimate.n, how)
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

            self._live.console.print(Text(clean(text)))
        else:
            print(clean(text), file=self._stream, flush=True)

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _unit(progress: Progress) -> str:
    unit = progress.numbers.get("unit")
    return unit if isinstance(unit, str) else ""
