"""What a person sees while a run goes: plain lines off a terminal, a panel on one, and tables before and after."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from harness.console import print_plan, print_verdicts
from harness.measure.session import Progress
from harness.model import Reason, Round
from harness.plan.outlook import Row
from harness.progress import Display
from tests.report.builders import make_estimate, make_full


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(verbosity: str = "normal", stream: io.StringIO | None = None) -> str:
    """A short run told to a display: a round with a block, a quad, an estimate, then the verdicts."""
    out = stream if stream is not None else io.StringIO()
    manifest, _, verdicts, _ = make_full().run()
    contrast = manifest.plan.contrasts[0]
    round_ = Round(contrast.id, 0, 0, contrast.trials, contrast.arrangement, 1)
    trial = contrast.trials[0].id
    with Display(verbosity, stream=out, clock=lambda: 0.0) as display:
        display.plan(manifest.plan, "20261130-run", "xeon")
        display.round(round_, 4, 600.0)
        display.tell(Progress("phase", round_.id, trial, "importing", {}))
        display.tell(Progress("block", round_.id, trial, "12 steps", {"seconds": 1.0, "work": 4.0, "rate": 4.0}))
        display.tell(Progress("quad", round_.id, None, "ABBA", {"foreign_cores": 0.01, "accepted": True, "index": 1}))
        display.tell(Progress("round", round_.id, None, "completed", {"cost_s": 40.0}))
        display.estimate(manifest.plan.claims[0].cases[0].title, make_estimate())
        display.note("Waiting for \x1b[31manother run.")
        display.verdicts(verdicts, Reason("done", "nothing more to measure"), Path("results/run"))
    return out.getvalue()


def test_lines_off_a_terminal_carry_no_control_codes():
    assert "\x1b" not in show("debug")


@pytest.mark.parametrize(
    "said",
    [
        "round 5: graph-speedup (eager | graph), its round 1, about 10.0 min left",
        "2.41x (2.30x to 2.53x), n=5",
        "1 of 1 quads accepted",
        "report: results",
    ],
)
def test_a_log_tells_how_the_run_goes(said):
    assert said in show()


def test_quiet_shows_verdicts_and_notes_only():
    text = show("quiet")
    assert "round 5" not in text
    assert "Waiting for" in text
    assert "claims: 4 confirmed" in text


def test_debug_shows_every_block():
    assert "block eager: 4.00" in show("debug")


def test_normal_shows_no_blocks():
    assert "block eager" not in show()


def test_a_terminal_gets_a_panel():
    text = show("normal", Terminal())
    assert "foreign load" in text
    assert "round 5:" not in text


def test_the_plan_lists_what_runs_and_what_cannot():
    manifest = make_full().run()[0]
    out = io.StringIO()
    rows = [
        Row("graph-speedup", "1 judged", "3-12", 240.0, 0.083, None, None),
        Row("scaling-8gpu", "", "", None, None, "needs 8 GPUs", "a machine with 8 GPUs"),
    ]
    print_plan(manifest.plan, rows, [("controls", 5, 60.0)], (300.0, 900.0), 120.0, stream=out)
    text = " ".join(out.getvalue().split())
    assert "graph-speedup 1 judged 3-12 4.00 min 8.30\u00a0%".replace("\u00a0", " ") in text
    assert "scaling-8gpu needs 8 GPUs a machine with 8 GPUs" in text
    assert "too short for every first look" in text


def test_verdicts_show_their_word_with_a_symbol():
    manifest, _, verdicts, _ = make_full().run()
    out = io.StringIO()
    print_verdicts(verdicts, manifest.plan, stream=out)
    text = " ".join(out.getvalue().split())
    assert "graph-speedup ✓ CONFIRMED 2.41x" in text
    assert "controls: 1 held, 1 not shown" in text


def test_importing_the_display_loads_no_heavy_library():
    code = "import sys, harness.progress; print(sorted({'rich', 'pandas', 'matplotlib', 'numpy', 'jinja2'} & set(sys.modules)))"
    assert "[]" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
