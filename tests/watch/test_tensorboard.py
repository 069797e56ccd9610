"""What a run's log holds for TensorBoard, as TensorFlow itself reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.model import Gpu
from harness.watch.tensorboard import Log, log_to
from tests.helpers import make_record
from tests.watch.builders import CARD, OTHER, make_block, make_gpu_plan, make_host_sample, make_phase, make_round, make_sample

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

PLAN = make_gpu_plan()


class Drawn(NamedTuple):
    """A point of a curve."""

    tag: str
    step: int
    value: float
    wall_s: float


def events(folder: Path) -> list[Any]:
    """Every event of the folder's files. TensorFlow refuses a record whose check sums are wrong."""
    files = sorted(map(str, folder.rglob("events.out.tfevents.*")))
    return [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(files)]


def points(folder: Path) -> list[Drawn]:
    return [Drawn(v.tag, e.step, pytest.approx(v.simple_value, rel=1e-6), e.wall_time) for e in events(folder) for v in e.summary.value]


class Clock:
    """Stands still until it is moved; nanoseconds."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000_000

    def __call__(self) -> int:
        return self.now_ns


def make_log(folder: Path, complaints: list[str] | None = None, gpus: tuple[Gpu, ...] = (CARD, OTHER)) -> tuple[Log, Clock]:
    """A log in the duet's first round, which was opened at second 5 of its clock and second 1000 of the calendar."""
    clock = Clock()
    complain = complaints.append if complaints is not None else pytest.fail
    log = Log(folder, PLAN, gpus, complain, clock=clock, wall_ns=lambda: 1_000_000_000_000)
    log.round(make_round(PLAN), 0, None)
    return log, clock


def test_a_log_begins_with_the_version_of_its_format(tmp_path):
    make_log(tmp_path)[0].close()
    assert ["brain.Event:2"] == [event.file_version for event in events(tmp_path)]


def test_a_files_name_is_one_that_tensorboard_looks_for_and_tells_no_host(tmp_path):
    make_log(tmp_path)[0].close()
    assert [True] == [bool(re.fullmatch(r"events\.out\.tfevents\.1000\.[0-9a-f]{8}", path.name)) for path in tmp_path.iterdir()]


def test_every_block_is_a_point_of_its_arms_curve(tmp_path):
    log, clock = make_log(tmp_path)
    for trial, rate in (("baseline", 100.0), ("treatment", 210.0), ("treatment", 220.0), ("baseline", 110.0)):
        clock.now_ns += 500_000_000
        log.tell(make_block(trial, rate))
    log.tell(make_phase())
    log.close()
    eager, graph = "samples_per_s/graph-speedup.article/A_eager", "samples_per_s/graph-speedup.article/B_graph"
    assert [(eager, 1, 100.0, 1000.5), (graph, 1, 210.0, 1001.0), (graph, 2, 220.0, 1001.5), (eager, 2, 110.0, 1002.0)] == points(tmp_path)


def test_a_curve_goes_on_from_round_to_round(tmp_path):
    log, _ = make_log(tmp_path)
    log.tell(make_block("baseline", 100.0))
    log.ended(make_record())
    log.round(make_round(PLAN, index=1), 1, None)
    log.tell(make_block("baseline", 101.0))
    log.close()
    assert [(1, 100.0), (2, 101.0)] == [(point.step, point.value) for point in points(tmp_path)]


def test_samples_are_drawn_over_the_seconds_of_the_run_by_device(tmp_path):
    log, _ = make_log(tmp_path)
    log.sampled([make_sample("power_w", 300.0, seconds=5.0), make_sample("power_w", 200.0, OTHER.uuid, seconds=7.5)])
    log.close()
    assert [("gpu0/power_w", 0, 300.0, 1000.0), ("gpu1/power_w", 2, 200.0, 1002.5)] == points(tmp_path)


def test_of_each_value_one_sample_a_second_is_drawn(tmp_path):
    log, _ = make_log(tmp_path)
    for tenths in range(25):
        log.sampled([make_sample("power_w", float(tenths), seconds=5 + tenths / 10)])
    log.close()
    assert [0.0, 10.0, 20.0] == [point.value for point in points(tmp_path)]


def test_what_is_not_known_leaves_a_gap(tmp_path):
    log, _ = make_log(tmp_path)
    log.sampled([make_sample("power_w", None, seconds=6.0), make_host_sample("cpu_share", 0.5)])
    log.close()
    assert ["host/cpu_share"] == [point.tag for point in points(tmp_path)]


def test_how_the_sampling_went_is_no_curve(tmp_path):
    log, _ = make_log(tmp_path)
    log.sampled([make_host_sample("sampler_overruns", 3.0)])
    log.close()
    assert [] == points(tmp_path)


def test_slices_of_one_card_have_curves_of_their_own(tmp_path):
    slices = tuple(Gpu(0, "NVIDIA H200 MIG", uuid, None, None, mig="slice") for uuid in ("MIG-0", "MIG-1"))
    log, _ = make_log(tmp_path, gpus=slices)
    log.sampled([make_sample("memory_used_bytes", 1.0, "MIG-0"), make_sample("memory_used_bytes", 2.0, "MIG-1")])
    log.close()
    assert ["gpu0-1/memory_used_bytes", "gpu0-2/memory_used_bytes"] == [point.tag for point in points(tmp_path)]


def test_nothing_is_written_before_the_round_has_ended(tmp_path):
    log, _ = make_log(tmp_path)
    (path,) = tmp_path.iterdir()
    before = path.stat().st_size
    log.tell(make_block("baseline", 100.0))
    log.sampled([make_sample("power_w", 300.0)])
    assert before == path.stat().st_size
    log.ended(make_record())
    assert 2 == len(points(tmp_path))
    log.close()


def test_a_folder_that_cannot_be_made_is_told_once_and_ends_no_run(tmp_path):
    (tmp_path / "file").touch()
    complaints: list[str] = []
    log, _ = make_log(tmp_path / "file" / "sweep", complaints)
    log.tell(make_block("baseline", 100.0))
    log.ended(make_record())
    log.close()
    assert ["the TensorBoard log cannot be written any more (Not a directory); the run goes on without it"] == complaints


def test_a_disk_that_is_full_is_told_once_and_ends_no_run(tmp_path):
    class Full:
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    complaints: list[str] = []
    log, _ = make_log(tmp_path, complaints)
    log._file.close()
    log._file = Full()
    for index in range(3):
        log.tell(make_block("baseline", 100.0))
        log.ended(make_record(index))
    log.close()
    assert ["the TensorBoard log cannot be written any more (No space left on device); the run goes on without it"] == complaints


def test_no_log_is_kept_unless_it_is_asked_for(tmp_path):
    with log_to(None, PLAN, (), pytest.fail) as log:
        assert log is None
    with log_to(tmp_path, PLAN, (), pytest.fail) as log:
        assert isinstance(log, Log)
    assert ["sweep"] == [path.name for path in tmp_path.iterdir()]
