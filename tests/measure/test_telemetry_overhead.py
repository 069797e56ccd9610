"""Whether watching slows down what is watched, in turns with and without telemetry of the host and of two cards: known work on one core that both share, and
TensorFlow's training steps on the cores that a run has."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.judge.stats import Floors, Look, take_look
from tests.measure.nvml_stub import ask, compile_stub

MOST_SLOWDOWN = 1.03
ALPHA = 0.01

COUNTING = """
import sys, time
for line in sys.stdin:
    steps = int(line)
    began_s = time.perf_counter()
    while steps:
        steps -= 1
    print(time.perf_counter() - began_s, flush=True)
"""

TRAINING = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from benchmarks.training import build
training = build(model="convnet_small", image=32, batch=16, classes=10, seed=0, execution="graph")
for line in sys.stdin:
    began_s = time.perf_counter()
    training.run(int(line))
    tf.test.experimental.sync_devices()
    print(time.perf_counter() - began_s, flush=True)
"""
"""Workers: for each number of steps on a line, the seconds that they took. What the second one computes is what a run trains."""

IN_TURNS = """
import os, subprocess, sys, tempfile, time
from math import log
from pathlib import Path
from harness.measure.telemetry.beside import Telemetry
from harness.measure.telemetry.host import HostReader
from harness.store.telemetry import Lines
from tests.helpers import make_record
from tests.measure.builders import make_round, make_trial

if ONE_CORE:
    # On a core of its own the sampler would cost nothing that can be seen. The worker inherits this one core.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

worker = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def work(steps):
    print(steps, file=worker.stdin, flush=True)
    return float(worker.stdout.readline())

class Greedy:
    devices, period_s = ("greedy",), 0.1

    def sample(self):
        until_s = time.thread_time() + 0.05
        while time.thread_time() < until_s:
            pass
        return []

    def close(self):
        pass

lines = Lines(Path(tempfile.mkdtemp()))
written = []

def write(round_, samples):
    written.extend(samples)
    lines.append(round_, samples, str)

def measured_s(telemetry, steps):
    told = []

    def measure():
        told.append(work(steps))
        return make_record(readings=())

    telemetry.over(make_round(make_trial("a")), measure)
    return told[0]

readers = [HostReader(lambda: [worker.pid], period_s=1.0), reader(clock=time.perf_counter_ns)]
watched = Telemetry([*readers, *([Greedy()] if GREEDY else [])], write, nvml.devices()[0])
unwatched = Telemetry((), write)
for _ in range(2):
    work(TRIAL_STEPS)
steps = max(1, int(TRIAL_STEPS * BLOCK_S / work(TRIAL_STEPS)))
ratios = []
for pair in range(PAIRS):
    turns = [watched, unwatched] if pair % 2 else [unwatched, watched]
    took_s = {telemetry is watched: measured_s(telemetry, steps) for telemetry in turns}
    ratios.append(log(took_s[True] / took_s[False]))
watched.close()
worker.stdin.close()
worker.wait()
[ratios, len({sample.name for sample in written if sample.value is not None})]
"""


def slowdown(folder: Path, worker: str, trial_steps: int, *, pairs: int, greedy: bool = False, one_core: bool = True) -> tuple[Look, int]:
    """Return the interval of the logarithm of (time with telemetry / time without), and how many kinds of samples were taken."""
    given = f"WORKER, TRIAL_STEPS, PAIRS, BLOCK_S, GREEDY, ONE_CORE = {worker!r}, {trial_steps}, {pairs}, 0.5, {greedy}, {one_core}"
    ratios, kinds = ask(f"{given}\n{IN_TURNS}", compile_stub(folder), {"CARDS": 2, "ENERGY_MJ": "9000000+40000"})
    return take_look(ratios, ALPHA, Floors()), kinds


@pytest.mark.slow
def test_watching_is_not_shown_to_cost_more_than_three_per_cent(tmp_path):
    """Noise makes the interval wide and fails nothing; a cost that is really there lies beyond the mark with the whole interval."""
    look, kinds = slowdown(tmp_path, COUNTING, 1_000_000, pairs=14)
    assert kinds > 30
    assert look.low <= math.log(MOST_SLOWDOWN)


@pytest.mark.slow
def test_a_sampler_that_costs_much_would_be_found_out(tmp_path):
    look, _ = slowdown(tmp_path, COUNTING, 1_000_000, pairs=8, greedy=True)
    assert look.low > math.log(MOST_SLOWDOWN)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_watching_is_not_shown_to_slow_down_a_training_step_by_more_than_three_per_cent(tmp_path):
    pytest.importorskip("tensorflow")
    look, kinds = slowdown(tmp_path, TRAINING, 20, pairs=14, one_core=False)
    assert kinds > 30
    assert look.low <= math.log(MOST_SLOWDOWN)
