"""Telemetry beside rounds: every sample goes with its round, what it shows is laid on the record, and no trouble of its own reaches the session."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.measure.load import read_load
from harness.measure.orphans import living, write_live
from harness.measure.telemetry import beside, sampler
from harness.measure.telemetry.beside import Telemetry, cards_of, open_telemetry
from harness.measure.telemetry.provider import HOST, Sample
from harness.model import Gpu, RoundRecord, State
from tests.helpers import make_record
from tests.measure.builders import make_round, make_trial, run

CARD = Gpu(0, "NVIDIA H200", "GPU-0", None, None)
OTHER = Gpu(1, "NVIDIA H200", "GPU-1", None, None)


class FakeReader:
    """Gives the same samples at every question, or raises."""

    def __init__(self, samples: Sequence[Sample] | Exception, device: str = HOST) -> None:
        self.samples = samples
        self.devices = (device,)
        self.period_s = 0.01
        self.asked = threading.Event()
        self.closed = False

    def sample(self) -> list[Sample]:
        self.asked.set()
        if isinstance(self.samples, Exception):
            raise self.samples
        return list(self.samples)

    def close(self) -> None:
        self.closed = True


class Written:
    """Keeps what is written, by round."""

    def __init__(self) -> None:
        self.rounds: dict[str, list[Sample]] = {}

    def __call__(self, round_: str, samples: Sequence[Sample]) -> None:
        self.rounds.setdefault(round_, []).extend(samples)


def round_on(*uuids: str | None, index: int = 0):
    """A round of one trial on these cards; on all of them for None."""
    trial = make_trial("a")
    gpus = None if uuids == (None,) else uuids
    return make_round(replace(trial, processes=(replace(trial.processes[0], gpus=gpus),)), index=index)


def watch(reader: FakeReader, write=None, round_=None, gpus: Sequence[Gpu] = (CARD,)) -> tuple[RoundRecord, Written]:
    written = Written()
    telemetry = Telemetry([reader], write or written, gpus)

    def measure() -> RoundRecord:
        assert reader.asked.wait(10)
        return make_record(readings=())

    return telemetry.over(round_ or round_on("GPU-0"), measure), written


def test_samples_are_written_with_their_round():
    _, written = watch(FakeReader([Sample(HOST, 7, "cpu_share", 0.5)]), round_=round_on(index=4))
    assert ["duet/4.0"] == list(written.rounds)
    assert {(HOST, "cpu_share", 0.5)} <= {(sample.device, sample.name, sample.value) for sample in written.rounds["duet/4.0"]}


def test_samples_are_written_about_once_a_second_and_the_rest_at_the_end():
    now_ns, sizes = [0], []
    batch = beside._Batch("duet/0.0", lambda _, samples: sizes.append(len(samples)), lambda: now_ns[0])
    for tenth in range(1, 26):
        now_ns[0] = tenth * 100_000_000
        batch.take([Sample(HOST, now_ns[0], "cpu_share", 0.5)])
    assert [] == batch.written([Sample(HOST, now_ns[0], "sampler_samples", 25.0)])
    assert [10, 10, 6] == sizes


def test_how_the_sampling_went_is_written_for_each_device():
    _, written = watch(FakeReader([], "GPU-0"))
    told = {sample.name: sample.value for sample in written.rounds["duet/0.0"]}
    assert {"sampler_samples", "sampler_period_s", "sampler_overruns", "sampler_errors", "sampler_untaken"} == set(told)
    assert told["sampler_samples"] >= 2
    assert (0.01, 0.0) == (told["sampler_period_s"], told["sampler_errors"])


def test_a_round_on_a_lost_card_fails():
    record, _ = watch(FakeReader([Sample("GPU-0", 7, "gpu_lost", 1.0)], "GPU-0"))
    assert (State.FAILED, "gpu_lost") == (record.outcome.state, record.outcome.reason.code)


def test_a_round_on_another_card_goes_on():
    record, _ = watch(
        FakeReader([Sample("GPU-0", 7, "gpu_lost", 1.0), Sample("GPU-1", 7, "power_w", 1.0)], "GPU-0"), round_=round_on("GPU-1"), gpus=(CARD, OTHER)
    )
    assert (State.COMPLETED, ()) == (record.outcome.state, record.flags)


def test_a_reader_that_raises_is_a_flag_and_no_failure():
    record, written = watch(FakeReader(OSError("gone")), gpus=())
    assert (State.COMPLETED, ["telemetry_incomplete"]) == (record.outcome.state, [flag.code for flag in record.flags])
    assert 0.0 == next(sample.value for sample in written.rounds["duet/0.0"] if sample.name == "sampler_samples")


def test_a_disk_that_is_full_is_a_flag_and_no_failure():
    def full(round_: str, samples: Sequence[Sample]) -> None:
        raise OSError(28, "No space left on device")

    record, _ = watch(FakeReader([Sample(HOST, 7, "cpu_share", 0.5)]), write=full, gpus=())
    (flag,) = record.flags
    assert ("telemetry_incomplete", True) == (flag.code, "No space left on device" in flag.text)


def test_a_session_that_raises_ends_the_sampling_and_is_heard():
    telemetry = Telemetry([FakeReader([])], Written())

    def measure() -> RoundRecord:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        telemetry.over(round_on(), measure)
    assert "telemetry" not in {thread.name for thread in threading.enumerate()}


def test_a_question_that_does_not_come_back_is_known(monkeypatch):
    monkeypatch.setattr(sampler, "JOIN_S", 0.05)
    answered, reader = threading.Event(), FakeReader([])
    monkeypatch.setattr(reader, "sample", lambda: answered.wait(60) and [])
    telemetry = Telemetry([reader], Written())
    before = telemetry.stuck
    telemetry.over(round_on(), lambda: make_record(readings=()))
    stuck = telemetry.stuck
    answered.set()
    assert (False, True) == (before, stuck)


def test_readers_are_closed_with_the_run():
    reader = FakeReader([])
    Telemetry([reader], Written()).close()
    assert reader.closed


def test_turned_off_it_starts_no_thread_and_writes_nothing(tmp_path):
    written = Written()
    telemetry = open_telemetry((CARD,), tmp_path / "live.json", written, None)
    names = []

    def measure() -> RoundRecord:
        names.extend(thread.name for thread in threading.enumerate())
        return make_record()

    assert make_record() == telemetry.over(round_on(), measure)
    assert ({}, False) == (written.rounds, "telemetry" in names)


@pytest.mark.parametrize(("uuids", "cards"), [((None,), (CARD, OTHER)), (("GPU-1",), (OTHER,)), ((), ())])
def test_a_round_is_judged_by_the_cards_that_its_processes_were_given(uuids: tuple[str | None, ...], cards: tuple[Gpu, ...]):
    assert cards == cards_of(round_on(*uuids), (CARD, OTHER))


def test_the_workers_that_live_are_those_of_live_json(tmp_path):
    live = tmp_path / "live.json"
    assert () == living(live)
    write_live(live, [(11, 5, "a", "lead"), (12, None, "b", "lead")])
    assert (11, 12) == living(live)
    live.write_text("{")
    assert () == living(live)


def test_a_session_without_cards_has_samples_of_the_host_and_its_workers_only(tmp_path):
    written = Written()
    telemetry = open_telemetry((), tmp_path / "live.json", written, 0.1)
    round_ = make_round(make_trial("a"), make_trial("b"))
    record = telemetry.over(round_, lambda: run(round_, tmp_path))
    telemetry.close()
    samples = written.rounds["duet/0.0"]
    assert (State.COMPLETED, {HOST}) == (record.outcome.state, {sample.device for sample in samples})
    assert max(sample.value for sample in samples if sample.name == "rss_bytes" and sample.value is not None) > 0


def test_stamps_are_of_the_clock_that_blocks_are_timed_by(tmp_path):
    written = Written()
    telemetry = open_telemetry((), tmp_path / "live.json", written, 0.1)
    round_ = make_round(make_trial("a"), make_trial("b"))
    record = telemetry.over(round_, lambda: run(round_, tmp_path))
    stamps = [sample.t_ns for sample in written.rounds["duet/0.0"]]
    blocks = [reading for reading in record.readings if reading.name == "work"]
    assert min(stamps) <= min(reading.t0_ns for reading in blocks)
    assert max(stamps) >= max(reading.t1_ns for reading in blocks)


def test_a_machine_without_a_driver_is_watched_without_its_cards(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    written = Written()
    telemetry = open_telemetry((CARD,), tmp_path / "live.json", written, 1.0)
    record = telemetry.over(round_on("GPU-0"), lambda: make_record(readings=()))
    telemetry.close()
    assert (State.COMPLETED, ["gpu_unwatched"]) == (record.outcome.state, [flag.code for flag in record.flags])
    assert "nvidia-ml-py" in record.flags[0].text


def test_a_thread_of_the_parent_is_no_foreign_load():
    """What is taken off the machine's busy time as the parent's own holds the time of all its threads, the sampler's too."""

    def work() -> None:
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.05:
            pass

    before = read_load({})
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert read_load({}).parent_s - before.parent_s >= 0.05
