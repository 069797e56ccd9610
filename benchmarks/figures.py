"""Prints how fast and how small the suite itself is: `make bench`, or `python -m benchmarks.figures [--input] [--long]`.

The short part needs no TensorFlow. `--input` also times what the input side is made of: its data set, its decoder, a session's step. `--long` also
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

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = 100_000
ROUNDS = 10_000
FILES = 2_000


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
    told = _in_a_process(f"render_many(__import__('pathlib').Path({str(run)!r}))")
    return time.perf_counter() - began, told["peak_mib"]


def _in_a_process(call: str) -> dict[str, float]:
    """Return what a function of this module prints as JSON in a process of its own."""
    done = subprocess.run([sys.executable, "-c", f"import benchmarks.figures as f; f.{call}"], cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def render_many(run: Path) -> None:
    """Render a report over 100,000 blocks and print this process's peak memory as JSON."""
    from harness.report import render
    from harness.store import Bundle

    bundle = Bundle.open(str(run), run.parent)
    real = [record for record in bundle.records() if record.quads]
    blocks = sum(1 for record in real for reading in record.readings if reading.name == "work")
    verdicts = bundle.verdicts()
    assert blocks and verdicts is not None, "the bundle has no blocks to repeat"
    records = [replace(record, round=f"{record.round}-{n}", index=record.index + 1000 * n) for n in range(-(-BLOCKS // blocks)) for record in real]
    render(bundle.manifest, records, verdicts, [])
    print(json.dumps({"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def bundle_bytes(run: Path) -> int:
    """Bytes of a bundle without its telemetry."""
    return sum(path.stat().st_size for path in run.rglob("*") if path.is_file() and path.name != "telemetry.parquet")


def make_seconds() -> float:
    """Seconds that the command takes to make 2,000 photographs and their TFRecords, TensorFlow's import included."""
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.input", "make", place, "--files", str(FILES)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return time.perf_counter() - began


def decode_rates() -> None:
    """Print, as JSON, how many photographs a second tf.data decodes on all usable cores, and how many libjpeg-turbo itself does, called by Pillow from as
    many threads. Medians of ABBA turns of about a second over the same files, read from the page cache."""
    import tensorflow as tf
    from PIL import Image

    from benchmarks.input.photographs import own
    from benchmarks.input.storing import in_threads

    paths = [photograph.path for photograph in own(ROOT / "data")] * 8

    def height(path: object) -> object:
        return tf.shape(tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE"))[0]

    decoded = tf.data.Dataset.from_tensor_slices(paths).map(height, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def by_tf() -> None:
        decoded.reduce(0, tf.maximum).numpy()

    def by_pillow() -> None:
        in_threads(lambda path: Image.open(path).load(), paths)

    seconds = _turns(by_tf, by_pillow)
    print(json.dumps({name: len(paths) / seconds[which] for which, name in enumerate(("tfdata", "pillow"))}))


def step_seconds() -> None:
    """Print, as JSON, the seconds of five steps of ResNet-50 on the same synthetic batch: by tf.function, and in a session that is fed. Medians of ABBA turns."""
    import tensorflow as tf

    from benchmarks.training import build

    sizes = {"model": "resnet50", "image": 96, "batch": 16}
    arms = build(**sizes), build(**sizes, input="feed_dict", feed_synthetic=True)

    def timed(arm: int) -> Callable[[], None]:
        return lambda: (arms[arm].run(5), tf.test.experimental.sync_devices())

    seconds = _turns(timed(0), timed(1))
    print(json.dumps({"function": seconds[0], "session": seconds[1]}))


def _turns(*works: Callable[[], None]) -> list[float]:
    """Median seconds of each of `works`, run in ABBA turns after a first one each that does not count."""
    seconds: list[list[float]] = [[] for _ in works]
    for turn in range(7):
        for which, work in list(enumerate(works))[:: -1 if turn % 2 else 1]:
            began = time.perf_counter()
            work()
            seconds[which].append(time.perf_counter() - began)
    return [statistics.median(times[1:]) for times in seconds]


def measured(claims: str) -> list[str]:
    """Measure claims about the suite itself with its own judge; one line a case."""
    with tempfile.TemporaryDirectory() as results:
        subprocess.run([sys.executable, "-m", "harness", "+sweep=training", f"only=[{claims}]", f"results_dir={results}"], cwd=ROOT, check=False)
        found = sorted(Path(results).glob("*/verdicts.json"))
        verdicts = json.loads(found[0].read_text()) if found else {"claims": []}
    return [f"{case['title']}: {case['verdict']['word']} {_interval(case['estimate'])}" for claim in verdicts["claims"] for case in claim["cases"]]


def _interval(estimate: dict[str, float] | None) -> str:
    return "no estimate" if not estimate else f"{estimate['point']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}], n = {estimate['n']}"


def _print(what: str, allowed: str, measure: Callable[[], str], bound: str = "at most ") -> None:
    print(f"{what:<58} {measure():>16}   ({bound}{allowed})", flush=True)


def _print_input() -> None:
    _print(f"{FILES} photographs and their TFRecords", "60 s on two cores", lambda: f"{make_seconds():.1f} s")
    rates = _in_a_process("decode_rates()")
    _print("decoding by tf.data over libjpeg-turbo's own rate", "1 is its speed", lambda: f"{rates['tfdata'] / rates['pillow']:.2f}", bound="")
    _print("  libjpeg-turbo on all usable cores", "for comparison", lambda: f"{rates['pillow']:.0f} images/s", bound="")
    steps = _in_a_process("step_seconds()")
    _print("a session's step over tf.function's, synthetic data", "1.05", lambda: f"{steps['session'] / steps['function']:.3f}")


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
        _print_input()
    if "--long" in arguments:
        print(*measured("instrument-transparent,best-arm"), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
