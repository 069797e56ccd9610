"""Prints how fast and how small the suite itself is: `make bench`, or `python -m benchmarks.figures [--input] [--long]`.

The short part needs no TensorFlow. `--input` also times what the input side is made of (`benchmarks.figures_input`). `--long` also
measures, with the suite's own judge, whether the instrument is transparent and what the best training arm is worth.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.turns import ROOT, in_a_process

BLOCKS = 100_000
ROUNDS = 10_000


def plan_seconds() -> float:
    """Median wall time of five `plan=true` on the full sweep, in seconds."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "harness", "+sweep=full", "plan=true"], cwd=ROOT, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def many_rounds_seconds() -> float:
    """Seconds to schedule 10,000 rounds of the full plan's contrasts, each round taken as completed."""
    from harness.config import make_bench, read_settings, to_plan
    from harness.measure.machine import read_machine
    from harness.model import COMPLETED, Round, RoundRecord
    from harness.plan.study import Ledger, Situation, next_of_all

    settings = read_settings(["+sweep=full"])
    plan = to_plan(settings, make_bench(settings, read_machine(None)))
    copies = -(-ROUNDS // sum(contrast.looks[-1] for contrast in plan.contrasts))
    plan = replace(plan, contrasts=tuple(replace(c, id=f"{c.id}-{n}") for n in range(copies) for c in plan.contrasts))
    ledger, closed, done = Ledger(), {}, 0
    began = time.perf_counter()
    while done < ROUNDS:
        answer = next_of_all(plan, ledger, lambda _: False, Situation(), closed)
        if not isinstance(answer, Round):
            break
        ledger.add(RoundRecord(answer.id, answer.contrast, answer.index, 0, answer.arrangement, "", 0, COMPLETED, (), (), (), (), "", 1.0, ""))
        done += 1
    return (time.perf_counter() - began) * ROUNDS / done


def report_figures(run: Path) -> tuple[float, float]:
    """Seconds and peak MiB of a process that renders a report over 100,000 blocks, made by repeating a real bundle's rounds."""
    began = time.perf_counter()
    peak_mib = in_a_process("benchmarks.figures", f"it.render_many(it.Path({str(run)!r}))")
    return time.perf_counter() - began, peak_mib


def render_many(run: Path) -> float:
    """Render a report over 100,000 blocks and return this process's peak memory in MiB."""
    from harness.report import render
    from harness.store import Bundle

    bundle = Bundle.open(str(run), run.parent)
    real = [record for record in bundle.records() if record.quads]
    blocks = sum(1 for record in real for reading in record.readings if reading.name == "work")
    verdicts = bundle.verdicts()
    assert blocks and verdicts is not None, "the bundle has no blocks to repeat"
    records = [replace(record, round=f"{record.round}-{n}", index=record.index + 1000 * n) for n in range(-(-BLOCKS // blocks)) for record in real]
    render(bundle.manifest, records, verdicts, [])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bundle_bytes(run: Path) -> int:
    """Bytes of a bundle without its telemetry."""
    return sum(path.stat().st_size for path in run.rglob("*") if path.is_file() and path.name != "telemetry.parquet")


def measured(claims: str) -> list[str]:
    """Measure claims about the suite itself with its own judge; one line a case."""
    with tempfile.TemporaryDirectory() as results:
        subprocess.run([sys.executable, "-m", "harness", "+sweep=training", f"only=[{claims}]", f"results_dir={results}"], cwd=ROOT, check=False)
        found = sorted(Path(results).glob("*/verdicts.json"))
        verdicts = json.loads(found[0].read_text()) if found else {"claims": []}
    return [f"{case['title']}: {case['verdict']['word']} {_interval(case['estimate'])}" for claim in verdicts["claims"] for case in claim["cases"]]


def _interval(estimate: dict[str, float] | None) -> str:
    return "no estimate" if not estimate else f"{estimate['point']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}], n = {estimate['n']}"


def _print(what: str, allowed: str, measure: Callable[[], str]) -> None:
    _show(what, measure(), f"at most {allowed}")


def _show(what: str, value: str, note: str) -> None:
    print(f"{what:<58} {value:>16}   ({note})", flush=True)


def main(arguments: list[str]) -> int:
    """Print the figures; a bundle's path may be given for the report's and the bundle's."""
    runs = [Path(a) for a in arguments if not a.startswith("-")] or sorted((ROOT / "results").glob("reference-*"))
    _print("plan=true on the full sweep, median of 5", "1.5 s", lambda: f"{plan_seconds():.2f} s")
    _print("schedule of 10,000 rounds", "5 s", lambda: f"{many_rounds_seconds():.2f} s")
    if runs:
        seconds, peak_mib = report_figures(runs[0])
        _print("report over 100,000 blocks", "20 s", lambda: f"{seconds:.1f} s")
        _print("its peak memory", "1024 MiB", lambda: f"{peak_mib:.0f} MiB")
        _print("bundle without telemetry", "5 MB", lambda: f"{bundle_bytes(runs[0]) / 1e6:.2f} MB")
    if "--input" in arguments:
        from benchmarks import figures_input

        for line in figures_input.lines():
            _show(*line)
    if "--long" in arguments:
        print(*measured("instrument-transparent,best-arm"), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
