"""A training job that is saved on the way, on real TensorFlow, as small as it goes."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - after the check for TensorFlow

from benchmarks import durability, saving  # noqa: E402
from benchmarks.checkpoint import CheckpointError, build  # noqa: E402
from benchmarks.contract import Tally  # noqa: E402
from benchmarks.restoring import Twin, digest, digests, tracked  # noqa: E402
from benchmarks.saving import save_points  # noqa: E402
from benchmarks.storage import slow_available  # noqa: E402

from .builders import TINY, make_training  # noqa: E402

STRETCHES = {"clear_step_s", "overlap_first_step_s", "overlap_step_s"}
"""Events that between them hold every step of a job once."""


def make_job(scratch, **settings):
    """A job of 8 steps with 2 saves, of a tiny net; `settings` are laid over, and an interval in seconds takes the place of the steps."""
    steps = {} if "interval_s" in settings else {"steps": 8, "interval_steps": 4}
    return build(**{**TINY, "batch": 4, **steps, "scratch_dir": str(scratch), **settings})


def done(job):
    """Do the job and return all its events."""
    events = []
    job.job(events.append)
    return events


def values(events, name):
    return [event.value for event in events if event.name == name]


def test_saves_fall_into_the_middle_of_each_whole_interval():
    assert [2, 6] == save_points(8, 4)
    assert [3, 8] == save_points(12, 5)
    assert [1, 2, 3] == save_points(3, 1)
    assert [] == save_points(3, 4)


@pytest.mark.parametrize("level", ["sync", "io_device", "async", "sharded"])
def test_every_level_tells_each_save_and_restores_it_bit_for_bit(tmp_path, level):
    job = make_job(tmp_path, checkpoint=level)
    events = done(job)
    counts = Counter(event.name for event in events)

    assert dict.fromkeys(("blocked_first_s", "blocked_s", "durable_first_s", "durable_s"), 1) == {
        n: counts[n] for n in counts if n[:7] in {"blocked", "durable"}
    }
    assert {"save_bytes": 2, "verify_pause_s": 2, "restored_equal": 2} == {n: counts[n] for n in ("save_bytes", "verify_pause_s", "restored_equal")}
    assert [1, 1] == values(events, "restored_equal")
    assert all(size >= job.facts()["checkpoint_bytes"] for size in values(events, "save_bytes"))


def test_a_job_without_saves_times_its_steps_alone(tmp_path):
    events = done(make_job(tmp_path, checkpoint="none"))

    assert [1, 3, 7] == [event.step for event in events if event.name == "clear_step_s"]
    told = {"clear_step_s", "verify_pause_s", "job", "timed_traces", "job_rate", "end_to_end_s", "end_to_end_step_s"}
    assert told == {event.name for event in events}
    assert [] == list(tmp_path.glob("**/*.index"))


def test_stretches_begin_with_clear_steps_and_cover_every_step_once(tmp_path):
    events = done(make_job(tmp_path, checkpoint="sync"))
    stretches = [event for event in events if event.name in STRETCHES]
    firsts = [event.step for event in stretches] + [9]
    clear = [(number, event) for number, event in enumerate(stretches) if event.name == "clear_step_s"]

    assert ("clear_step_s", 1) == (stretches[0].name, stretches[0].step)
    assert all(firsts[number] + round((event.t1_ns - event.t0_ns) / 1e9 / event.value) == firsts[number + 1] for number, event in clear)
    assert all(one.t1_ns <= other.t0_ns for one, other in pairwise(stretches))


def test_the_job_counts_its_steps_and_samples(tmp_path):
    (job,) = [event for event in done(make_job(tmp_path)) if event.name == "job"]

    assert (8, 8 * 4, "samples") == (job.step, job.value, job.unit)


def test_the_loops_time_is_its_span_without_the_pauses(tmp_path):
    events = done(make_job(tmp_path))
    (whole,) = [event for event in events if event.name == "end_to_end_s"]

    assert pytest.approx((whole.t1_ns - whole.t0_ns) / 1e9 - sum(values(events, "verify_pause_s"))) == whole.value
    assert [pytest.approx(whole.value / 8)] == values(events, "end_to_end_step_s")
    assert [pytest.approx(8 * 4 / whole.value)] == values(events, "job_rate")


def test_a_blocked_save_lies_between_stretches(tmp_path):
    events = done(make_job(tmp_path))
    held = [event for event in events if event.name in {"blocked_first_s", "blocked_s"}]
    stretches = [event for event in events if event.name in STRETCHES]

    assert [1, 2] == [event.step for event in held]
    assert not any(one.t0_ns < other.t1_ns and other.t0_ns < one.t1_ns for one in held for other in stretches)


def test_a_save_is_durable_no_sooner_than_it_was_called(tmp_path):
    events = done(make_job(tmp_path))
    called = {event.step: event.t0_ns for event in events if event.name.startswith("blocked")}
    durable = {event.step: event for event in events if event.name.startswith("durable")}

    assert {1, 2} == set(durable)
    assert all(durable[number].t0_ns == called[number] < durable[number].t1_ns for number in durable)


def test_our_asynchronous_saves_survive_the_second_save(tmp_path):
    events = done(make_job(tmp_path, checkpoint="async", interval_steps=2))

    assert [1, 1, 1, 1] == values(events, "restored_equal")


def test_keras_objects_do_not_survive_the_second_asynchronous_save(tmp_path):
    # An upstream failure. Once this test fails it is repaired, and the variables underneath need no longer be tracked by themselves.
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    checkpoint = tf.train.Checkpoint(model=model)
    options = tf.train.CheckpointOptions(enable_async=True)
    checkpoint.save(str(tmp_path / "ckpt"), options=options)
    checkpoint.sync()

    with pytest.raises(ValueError, match="singleton"):
        checkpoint.save(str(tmp_path / "ckpt"), options=options)


def test_a_sharded_checkpoint_has_several_files(tmp_path):
    job = make_job(tmp_path, checkpoint="sharded")
    done(job)

    assert job.facts()["shards"] >= 4
    assert job.facts()["shards"] == len(list(tmp_path.glob("checkpoints/ckpt-1.data-*")))


@pytest.mark.parametrize("optimizer", ["keras", "lean"])
def test_statistics_momentum_and_loss_scale_are_saved_with_the_weights(optimizer):
    training = make_training(optimizer=optimizer, precision="mixed_float16", policy_float32=True)
    before = {name: digest(variable.numpy()) for name, variable in tracked(training).items()}
    training.run(1)
    after = {name: digest(variable.numpy()) for name, variable in tracked(training).items()}
    weights, slots = training.net.model.weights, training.optimizer.slots

    assert len(weights) + len(slots) + 2 <= len(before)
    assert any(float(variable.numpy()) == 2.0**15 for variable in tracked(training).values() if not variable.shape.rank)
    assert sum(before[name] != after[name] for name in before) >= len(weights) + len(slots)


def test_a_checkpoint_is_restored_into_a_fresh_training_from_another_start(tmp_path):
    training = make_training(optimizer="keras", precision="mixed_float16", policy_float32=True)
    twin = Twin(training.settings)
    training.run(2)
    saved = digests(tracked(training))
    begun = digests(twin._state)
    prefix = tf.train.Checkpoint(**tracked(training)).save(str(tmp_path / "ckpt"))
    restored = twin.restore(prefix)

    assert saved == restored == digests(twin._state)
    assert sum(begun[name] != saved[name] for name in saved) >= len(training.net.model.weights)
    assert not {id(variable) for variable in tracked(training).values()} & {id(variable) for variable in twin._state.values()}


def test_no_value_passes_for_restored_that_the_checkpoint_does_not_have(tmp_path):
    training = make_training()
    state = tracked(training)
    twin = Twin(training.settings)
    prefix = tf.train.Checkpoint(**{name: variable for name, variable in state.items() if name != "v0000"}).save(str(tmp_path / "ckpt"))

    with pytest.raises(AssertionError):
        twin.restore(prefix)
    assert all(np.isnan(twin._state["v0000"].numpy()).ravel())


def test_what_was_restored_before_is_not_taken_for_what_is_restored_now(tmp_path):
    training = make_training()
    checkpoint = tf.train.Checkpoint(**tracked(training))
    prefixes, saved = [], []
    for _ in range(2):
        training.run(1)
        saved.append(digests(tracked(training)))
        prefixes.append(checkpoint.save(str(tmp_path / "ckpt")))
    twin = Twin(training.settings)

    assert saved == [twin.restore(prefix) for prefix in prefixes]
    assert saved[0] == twin.restore(prefixes[0])


def tamper(job, change):
    """Let `change` at the folder of checkpoints after the loop and before it is verified."""
    verify = job.verify

    def change_and_verify(saved, tell):
        change(job.folder)
        verify(saved, tell)

    job.verify = change_and_verify


def flip_a_byte(folder):
    path = folder / "ckpt-2.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def put_another_in_its_place(folder):
    for ending in ("index", "data-00000-of-00001"):
        shutil.copy(folder / f"ckpt-1.{ending}", folder / f"ckpt-2.{ending}")


def lose_the_index(folder):
    (folder / "ckpt-2.index").unlink()


@pytest.mark.parametrize(
    ("change", "said", "told"),
    [
        (put_another_in_its_place, "save 2 .* does not hold what was saved: .* variables differ, first v", {"save", "variables_different"}),
        (flip_a_byte, r"save 2 .* cannot be restored \(\w+Error", {"save"}),
        (lose_the_index, r"save 2 .* cannot be restored \(\w+Error", {"save"}),
    ],
)
def test_a_checkpoint_that_was_tampered_with_is_noticed(tmp_path, change, said, told):
    job, events = make_job(tmp_path), []
    tamper(job, change)
    with pytest.raises(CheckpointError, match=said) as caught:
        job.job(events.append)

    assert ("checkpoint_differs", told, 2) == (caught.value.code, set(caught.value.numbers), caught.value.numbers["save"])
    assert caught.value.numbers.get("variables_different", 1) >= 1
    assert [1] == [event.step for event in events if event.name == "restored_equal"]


def test_a_digest_tells_type_shape_and_bits_apart():
    zeros = np.zeros((2, 3), np.float32)
    others = [zeros.astype(np.int32), zeros.reshape(3, 2), np.full((2, 3), -0.0, np.float32)]

    assert digest(zeros) == digest(zeros.copy())
    assert 4 == len({digest(array) for array in [zeros, *others]})


@pytest.fixture
def tiny_disk(tmp_path, request):
    """A file system of so many MB. A checkpoint of the tiny net takes less than one."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tiny file system needs root")
    folder = tmp_path / "tiny"
    folder.mkdir()
    options = f"size={request.param}m"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"this user may not mount a file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder):
    """Leave no room for a checkpoint in a file system, but for the few lines that TensorFlow writes beside it."""
    (folder / "filler").write_bytes(bytes(durability.free_bytes(folder) - (1 << 17)))


def after_saves(job, last):
    """Let no step begin before the saves up to `last` are on the disk."""
    run = job.training.run

    def run_then(steps):
        for thread in threading.enumerate():
            if isinstance(thread, durability.Watcher) and thread.number <= last:
                thread.join(60)
        return run(steps)

    job.training.run = run_then


@pytest.mark.parametrize("tiny_disk", [8], indirect=True)
@pytest.mark.parametrize("level", ["sync", "async"])
def test_a_full_disk_is_told_with_its_numbers_and_leaves_the_steps_before_it(tiny_disk, level):
    job, events = make_job(tiny_disk, checkpoint=level, steps=16), []
    after_saves(job, 2)

    def tell(event):
        events.append(event)
        if event.name == "durable_s":  # of save 2
            fill(tiny_disk)

    with pytest.raises(CheckpointError, match="its storage is full") as caught:
        job.job(tell)
    numbers = caught.value.numbers

    assert ("disk_full", 3, job.facts()["checkpoint_bytes"]) == (caught.value.code, numbers["save"], numbers["needed_bytes"])
    assert numbers["free_bytes"] < numbers["needed_bytes"]
    assert [1, 2] == [event.step for event in events if event.name.startswith("durable")]
    assert values(events, "clear_step_s")
    assert [] == values(events, "end_to_end_s")
    assert str(job.folder) in str(caught.value)
    assert "ckpt-3_temp" in str(caught.value)


@pytest.mark.parametrize("tiny_disk", [2], indirect=True)
def test_where_the_disk_holds_few_checkpoints_each_is_restored_and_deleted_before_the_next(tiny_disk):
    job = make_job(tiny_disk, checkpoint="sync", steps=24)
    after_saves(job, 6)
    events = done(job)

    assert [1, 2, 3, 4, 5, 6] == [event.step for event in events if event.name == "restored_equal"]
    assert "until restored" == job.facts()["checkpoints_kept"]
    assert ["ckpt-6"] == [path.stem for path in job.folder.glob("*.index")]


def test_where_there_is_room_all_checkpoints_are_kept_until_the_job_is_over(tmp_path):
    job = make_job(tmp_path)
    done(job)

    assert "all" == job.facts()["checkpoints_kept"]
    assert {"ckpt-1", "ckpt-2"} == {path.stem for path in job.folder.glob("*.index")}


def test_a_save_that_never_becomes_durable_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(durability, "is_complete", lambda prefix: False)
    events = []
    with pytest.raises(CheckpointError, match="save 1 .* did not become durable") as caught:
        make_job(tmp_path).job(events.append)

    assert "not_durable" == caught.value.code
    assert values(events, "blocked_first_s")
    assert values(events, "clear_step_s")


def test_a_save_that_takes_too_long_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(saving.Watcher, "writing_is_over", lambda watcher: None)
    monkeypatch.setattr(durability, "is_complete", lambda prefix: False)
    with pytest.raises(CheckpointError, match="no complete index file after 0.05 s") as caught:
        make_job(tmp_path, durable_s=0.05).job(lambda event: None)

    assert "not_durable" == caught.value.code


def test_facts_tell_of_the_job_the_storage_and_the_training(tmp_path):
    facts = make_job(tmp_path, checkpoint="async").facts()

    assert {"steps": 8, "interval_steps": 4, "checkpoint": "async", "storage": "own", "execution": "graph", "batch": 4, "saves_planned": 2} == {
        name: facts[name] for name in ("steps", "interval_steps", "checkpoint", "storage", "execution", "batch", "saves_planned")
    }
    assert facts["file_system"]
    assert facts["variables"] > 20
    assert facts["checkpoint_bytes"] > 8 * facts["parameters"]


def test_an_interval_in_seconds_becomes_steps(tmp_path):
    job = make_job(tmp_path, interval_s=0.5, saves=2)
    events = done(job)
    facts = job.facts()
    (whole,) = [event for event in events if event.name == "job"]

    assert "steps" not in facts
    assert facts["steps_chosen"] == 2 * facts["interval_steps_chosen"] == whole.step > 2
    assert [1, 1] == values(events, "restored_equal")


@pytest.mark.parametrize("level", ["none", "sync"])
def test_a_job_traces_its_step_once(tmp_path, level):
    job = make_job(tmp_path, checkpoint=level)
    done(job)

    assert 1 == job.traces()


def test_health_tells_the_first_step_whose_loss_was_no_number(tmp_path):
    job = make_job(tmp_path, lr=1e30)
    done(job)

    # The step that warms up already learns, so that the first counted one is lost.
    assert {"loss": None, "finite": False, "first_non_finite_step": 1} == job.health()


def test_a_healthy_job_tells_its_last_loss(tmp_path):
    job = make_job(tmp_path)
    done(job)
    health = job.health()

    assert (True, None) == (health["finite"], health["first_non_finite_step"])
    assert 0 < health["loss"] < 10


def test_an_input_that_runs_dry_ends_the_job_with_the_steps_that_were_done(tmp_path):
    job = make_job(tmp_path)
    run, left = job.training.run, [6]

    def run_some(steps):
        ran = min(steps, left[0])
        left[0] -= ran
        return Tally(ran, run(ran).work, "samples", (("input_wait_s", 0.5, "s"), ("skipped_files", 3.0, "files")))

    job.training.run = run_some
    events = {event.name: event for event in done(job)}

    assert (5, 5 * 4) == (events["job"].step, events["job"].value)
    assert events["input_wait_s"].value >= 1
    assert 3 == events["skipped_files"].value


@pytest.mark.skipif(slow_available() is not None, reason=f"no slow folder here: {slow_available()}")
def test_a_slow_folder_holds_a_save_for_about_as_long_as_its_rate_says(tmp_path):
    job = make_job(tmp_path, storage="slow", storage_mib_s=1)
    try:
        events = done(job)
        facts = job.facts()
    finally:
        job.close()
    expected_s = facts["checkpoint_bytes"] / 2**20

    assert ("slow", 1, "fuse.throttled") == (facts["storage"], facts["storage_mib_s"], facts["file_system"])
    assert all(0.8 * expected_s < seconds < 5 * expected_s + 1 for seconds in values(events, "durable_s"))
    assert [1, 1] == values(events, "restored_equal")


def sleeping(step_s):
    """A step that takes its time whatever else a machine does, in place of a training's own."""

    def run(steps):
        time.sleep(step_s * steps)
        return Tally(steps, 4.0 * steps, "samples")

    return run


@pytest.mark.slow
@pytest.mark.skipif(slow_available() is not None, reason=f"no slow folder here: {slow_available()}")
def test_saves_that_hold_a_job_for_a_fifth_of_their_interval_make_it_a_fifth_longer(tmp_path):
    """What nfs-20pct is about, in small: saves of a second every five, to a directory that is really so slow."""
    unsaved = make_job(make_folder(tmp_path / "none"), checkpoint="none", interval_s=5, saves=2)
    in_a_second = unsaved.needed_bytes / 2**20
    saved = make_job(make_folder(tmp_path / "sync"), storage="slow", storage_mib_s=in_a_second, interval_s=5, saves=2)
    step_s, held = {}, []
    for job in (unsaved, saved):
        job.training.run = sleeping(0.05)
        try:
            events = done(job)
        finally:
            job.close()
        (step_s[job.level],) = values(events, "end_to_end_step_s")
        held += values(events, "blocked_first_s") + values(events, "blocked_s")
    slowdown = step_s["sync"] / step_s["none"]

    assert 2 == len(held)
    assert pytest.approx(1 + sum(held) / 2 / 5, abs=0.03) == slowdown
    assert 1.15 < slowdown < 1.25


def make_folder(path):
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"checkpoint": "often"}, "checkpoint=often is no level"),
        ({"storage": "tape"}, "storage=tape is no level"),
        ({"steps": 0}, "steps=0 is too few"),
        ({"interval_steps": 9}, "steps=8 ends before the first save of interval_steps=9"),
        ({"interval_s": 0}, "interval_s=0 is no interval"),
        ({"interval_s": 5, "interval_steps": 4}, "interval_s=5 contradicts interval_steps=4: an interval is given in seconds or in steps"),
        ({"interval_s": 5, "steps": 8, "interval_steps": 4}, "interval_s=5 contradicts steps=8 and interval_steps=4"),
        ({"input": "feed_dict"}, "input=feed_dict has no variables to save, asked was checkpoint=sync"),
        ({"scratch_dir": "nowhere"}, "scratch_dir=nowhere is no folder"),
        ({"scratch_dir": None}, "scratch_dir=None is no folder"),
    ],
)
def test_what_cannot_be_saved_is_refused_with_the_setting(tmp_path, settings, said):
    with pytest.raises(ConfigError, match=said):
        make_job(tmp_path, **settings)


def test_where_fuse_is_missing_a_slow_folder_is_refused_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.storage.slow_available", lambda: "there is none")
    with pytest.raises(ConfigError, match="storage=slow cannot be had here: there is none"):
        make_job(tmp_path, storage="slow")


def test_a_job_that_fails_closes_what_it_opened(tmp_path, monkeypatch):
    closed = []

    class Slow:
        def __init__(self, scratch: Path, mib_per_s: float) -> None:
            self.path = scratch

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr("benchmarks.checkpoint.SlowFolder", Slow)
    job = make_job(tmp_path, storage="slow")
    tamper(job, flip_a_byte)
    with pytest.raises(CheckpointError):
        job.job(lambda event: None)

    assert [True] == closed
