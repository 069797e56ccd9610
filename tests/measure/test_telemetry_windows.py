"""A job that marks parts of its time has the cards' readings over each of them, beside those over the whole."""

from __future__ import annotations

import pytest

from harness.measure.telemetry.provider import Sample
from harness.measure.telemetry.readings import RoundSamples
from harness.model import Arrangement, Driver, Gpu, Reading
from tests.helpers import make_record, make_trial, make_trial_record

CARD = Gpu(0, "NVIDIA H200", "GPU-0", None, None)
SECOND_NS = 10**9


def event(name: str, work: float, t0_s: int, t1_s: int) -> Reading:
    return Reading("soak", name, work, "samples", t0_ns=t0_s * SECOND_NS, t1_ns=t1_s * SECOND_NS, n=1)


def readings(*events: Reading) -> dict[str, float | None]:
    """What is told of a card that draws 300 W for ten seconds and 200 W at a lower clock from then on, up to twenty."""
    kept = RoundSamples((CARD,))
    for tenth in range(-5, 206):
        hot = tenth > 100
        values = {"power_w": 200.0 if hot else 300.0, "sm_clock_mhz": 900.0 if hot else 1500.0, "temperature_c": 80.0 if hot else 50.0 + tenth / 10}
        kept.take([Sample(CARD.uuid, tenth * SECOND_NS // 10, name, value) for name, value in values.items()])
    record = make_record(arrangement=Arrangement.SOLO, readings=events, quads=(), trials=(make_trial_record("soak"),))
    found = kept.readings(record, make_trial("soak", driver=Driver.JOB), (CARD,), {CARD.uuid: 0.1})
    return {reading.name: reading.value for reading in found}


JOB = event("job", 1000.0, 0, 20)
FIRST, LAST = event("window_first", 300.0, 0, 5), event("window_last", 200.0, 15, 20)


@pytest.mark.parametrize(("name", "first", "last"), [("power_w", 300.0, 200.0), ("sm_clock_mhz", 1500.0, 900.0), ("temperature_c", 55.0, 80.0)])
def test_a_window_has_what_happened_in_it(name, first, last):
    found = readings(JOB, FIRST, LAST)
    assert (pytest.approx(first), pytest.approx(last)) == (found[f"{name}_first"], found[f"{name}_last"])


def test_work_by_energy_is_that_of_the_window():
    found = readings(JOB, FIRST, LAST)
    assert (pytest.approx(0.2), pytest.approx(0.2)) == (found["work_per_j_first"], found["work_per_j_last"])
    assert pytest.approx(1500.0) == found["energy_integrated_j_first"]


def test_the_whole_keeps_its_readings_whatever_windows_there_are():
    whole, alone = readings(JOB, FIRST, LAST), readings(JOB)
    assert alone == {name: whole[name] for name in alone}


def test_a_job_that_marks_nothing_has_no_windows():
    assert not [name for name in readings(JOB) if name.endswith(("_first", "_last"))]
