"""The machine at rest: its power is written under a name of its own before the first round, where anything tells power at all."""

from __future__ import annotations

from collections.abc import Sequence

from harness.measure.telemetry.beside import Telemetry
from harness.measure.telemetry.provider import HOST, Sample
from harness.model import IDLE_ROUND
from tests.measure.test_telemetry import FakeReader, Written


class Moving(FakeReader):
    """Stamps its samples with how often it was asked."""

    def __init__(self, samples: Sequence[Sample], device: str = HOST) -> None:
        super().__init__(samples, device)
        self.times = 0

    def sample(self) -> list[Sample]:
        self.times += 1
        return [Sample(sample.device, self.times, sample.name, sample.value, sample.reason) for sample in super().sample()]


def test_power_at_rest_is_written_under_its_own_name():
    written = Written()
    Telemetry([Moving([Sample("GPU-0", 0, "power_w", 71.0)], "GPU-0")], written).idle(0.5)
    assert [IDLE_ROUND] == list(written.rounds)
    assert {("GPU-0", "power_w", 71.0)} == {(sample.device, sample.name, sample.value) for sample in written.rounds[IDLE_ROUND]}
    assert len({sample.t_ns for sample in written.rounds[IDLE_ROUND]}) >= 2


def test_where_nothing_tells_power_nothing_is_written_and_nobody_waits():
    written = Written()
    reader = FakeReader([Sample(HOST, 0, "cpu_energy_j", None, "not readable"), Sample(HOST, 0, "cpu_share", 0.1)])
    Telemetry([reader], written).idle(3600.0)
    assert {} == written.rounds


def test_a_reader_that_raises_keeps_no_run_from_starting():
    Telemetry([FakeReader(OSError("gone"))], Written()).idle(3600.0)


def test_a_disk_that_is_full_keeps_no_run_from_starting():
    def full(round_: str, samples: Sequence[Sample]) -> None:
        raise OSError(28, "No space left on device")

    Telemetry([FakeReader([Sample("GPU-0", 0, "power_w", 71.0)], "GPU-0")], full).idle(0.02)


def test_turned_off_it_does_not_wait():
    written = Written()
    Telemetry((), written).idle(3600.0)
    assert {} == written.rounds
