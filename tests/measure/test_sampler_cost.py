"""What watching costs: a share of one core, by the time that the sampling thread itself has used."""

from __future__ import annotations

from tests.measure.nvml_stub import ask, compile_stub

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
telemetry.over(round_, measure)
{"cores": (spent[-1] - spent[0]) / walls[0], "asked": len(spent)}
"""


def test_watching_two_cards_costs_less_than_a_hundredth_of_a_core(tmp_path):
    library = compile_stub(tmp_path)
    told = [ask(WATCHED, library, {"CARDS": 2, "ENERGY_MJ": "9000000+40000"}) for _ in range(3)]
    assert min(one["asked"] for one in told) > 20  # ten times a second, and some slack for a machine that is busy
    # Whatever else runs on the machine only adds to it.
    assert min(one["cores"] for one in told) < 0.01
