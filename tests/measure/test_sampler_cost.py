"""What watching costs: the time on a core that the sampling thread itself has used, held against known work at the same moment, as the core may be slow."""

from __future__ import annotations

from tests.measure.nvml_stub import ask, compile_stub

TURNS = 375_000
"""Of an empty loop, which take a core of a server of 2023 a hundredth of a second: watching for a second may cost a hundredth of a core."""

WATCHED = """
import tempfile, time
from pathlib import Path
from harness.measure.telemetry.beside import Telemetry
from harness.model import Arrangement, COMPLETED, Process, Round, RoundRecord, Trial, TrialRecord
from harness.store.telemetry import Lines
lines = Lines(Path(tempfile.mkdtemp()))
spent = []
def write(round_, samples):
    lines.append(round_, samples, str)
asked = reader(clock=time.perf_counter_ns)
ask_all = asked.sample
def sample():
    spent.append(time.thread_time())
    return ask_all()
asked.sample = sample
telemetry = Telemetry([asked], write, nvml.devices()[0])
round_ = Round("solo", 0, 0, (Trial("a", "cell-a", (Process("lead", "x:y"),)),), Arrangement.SOLO, 1)
def measure():
    began = time.perf_counter()
    time.sleep(3.0)
    walls.append(time.perf_counter() - began)
    return RoundRecord("solo/0.0", "solo", 0, 0, Arrangement.SOLO, "A", 1, COMPLETED, (TrialRecord("a", "cell-a", COMPLETED),), (), (), (), "", 1.0, "boot")
walls = []
def loop():
    turns, began = TURNS, time.thread_time()
    while turns:
        turns -= 1
    return time.thread_time() - began
loops = [loop() for _ in range(3)]
telemetry.over(round_, measure)
loops += [loop() for _ in range(3)]
{"cores": (spent[-1] - spent[0]) / walls[0], "asked": len(spent), "loop_s": sorted(loops)[len(loops) // 2]}
"""


def test_watching_two_cards_for_a_second_costs_less_than_a_short_loop(tmp_path):
    library = compile_stub(tmp_path)
    told = [ask(f"TURNS = {TURNS}\n{WATCHED}", library, {"CARDS": 2, "ENERGY_MJ": "9000000+40000"}) for _ in range(5)]
    assert min(one["asked"] for one in told) > 20  # ten times a second, and some slack for a machine that is busy
    # Whatever else runs on the machine only adds to it.
    assert min(one["cores"] / one["loop_s"] for one in told) < 1
