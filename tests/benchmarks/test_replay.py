"""The stand-in for accelerators: deadlines on a clock that the tests turn themselves."""

from __future__ import annotations

from itertools import islice, repeat

import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from benchmarks.replay import Replay, build  # noqa: E402 - after the check for TensorFlow

from .conftest import FILES  # noqa: E402

MS = 1_000_000


class Clock:
    """Time that passes only when somebody sleeps or waits for a batch."""

    def __init__(self):
        self.ns = 5 * MS

    def now(self):
        return self.ns

    def sleep(self, seconds):
        self.ns += round(seconds * 1e9)

    def batches(self, every_ms, count=None):
        """A pipeline that takes `every_ms` for each batch."""
        for _ in repeat(None) if count is None else range(count):
            self.ns += round(every_ms * MS)
            yield "a batch"


def make_replay(clock, source, step_ms=10.0, devices=1):
    return Replay({"batch": 4, "image": 8, "input": "tfdata", "step_ms": step_ms, "devices": devices}, source, clock.now, clock.sleep)


def run(every_ms, steps=5, **settings):
    """Run so many steps on a pipeline of this speed, to the end of the last; returns the tally and the ms that passed."""
    clock = Clock()
    replay, began = make_replay(clock, clock.batches(every_ms), **settings), clock.ns
    tally = replay.run(steps)
    replay.sync()
    return tally, (clock.ns - began) / MS


def events(tally):
    return {name: value * 1000 for name, value, _ in tally.events}


def test_a_device_that_is_always_fed_is_busy_from_end_to_end():
    tally, passed_ms = run(every_ms=0)

    assert (5, 20, "samples") == (tally.steps, tally.work, tally.unit)
    assert 50 == passed_ms
    assert {"input_wait_s": 0, "device_idle_s": 0} == events(tally)


def test_a_pipeline_that_is_faster_costs_its_first_batch_only():
    tally, passed_ms = run(every_ms=4)

    assert 4 + 50 == passed_ms
    assert {"input_wait_s": pytest.approx(20), "device_idle_s": pytest.approx(4)} == events(tally)


def test_a_pipeline_that_is_slower_sets_the_pace_and_leaves_the_device_idle():
    tally, passed_ms = run(every_ms=15)

    assert 5 * 15 + 10 == passed_ms
    assert {"input_wait_s": pytest.approx(75), "device_idle_s": pytest.approx(15 + 4 * 5)} == events(tally)


def test_the_host_runs_no_further_ahead_than_one_waiting_batch():
    clock = Clock()
    replay, began = make_replay(clock, repeat("a batch")), clock.ns
    replay.run(2)
    ahead = clock.ns - began
    replay.run(1)

    assert (0, 10 * MS) == (ahead, clock.ns - began)


def test_a_sync_waits_for_all_that_was_handed_over_and_for_nothing_more():
    clock = Clock()
    replay = make_replay(clock, repeat("a batch"))
    replay.run(2)
    replay.sync()
    done = clock.ns
    replay.sync()

    assert (25 * MS, 25 * MS) == (done, clock.ns)


def test_time_between_runs_is_nobodys_idleness():
    clock = Clock()
    replay = make_replay(clock, repeat("a batch"))
    replay.run(1)
    replay.sync()
    clock.sleep(1)

    assert 0 == events(replay.run(1))["device_idle_s"]


def test_several_devices_share_one_pipeline_and_each_takes_its_own_batch():
    tally, passed_ms = run(every_ms=0, devices=4)

    assert (5, 4 * 20) == (tally.steps, tally.work)
    assert 50 == passed_ms


def test_four_devices_on_a_pipeline_for_one_are_idle_for_most_of_the_time():
    tally, passed_ms = run(every_ms=10, steps=10, devices=4)

    assert 400 + 10 == passed_ms
    assert 400 == pytest.approx(events(tally)["input_wait_s"])
    assert 30 * 9 + (10 + 20 + 30 + 40) / 4 == pytest.approx(events(tally)["device_idle_s"])


def test_an_input_that_ends_early_is_counted_in_whole_steps():
    clock = Clock()
    tally = make_replay(clock, clock.batches(1, count=7), devices=2).run(5)

    assert (3, 24) == (tally.steps, tally.work)


def test_a_stand_in_pulls_from_a_real_pipeline(data_dir):
    replay = build(input="tfdata", data_dir=str(data_dir), files=FILES, batch=4, image=16, step_ms=1, devices=2)
    tally = replay.run(3)
    replay.sync()

    assert (3, 24) == (tally.steps, tally.work)
    assert {"input": "tfdata", "batch": 4, "image": 16, "step_ms": 1, "devices": 2, "pipeline_device": "cpu"}.items() <= replay.facts().items()


def test_synthetic_batches_lie_in_memory():
    replay = build(batch=4, image=16, step_ms=0)
    samples, labels = next(islice(replay._source, 1))

    assert ((4, 16, 16, 3), (4,)) == (samples.shape, labels.shape)
    assert {"step_ms": 0, "devices": 1, "input": "synthetic", "batch": 4, "image": 16} == replay.facts()


def test_a_stand_in_has_no_session_to_be_fed():
    with pytest.raises(ConfigError, match="input=feed_dict is fed to a session"):
        build(input="feed_dict")


@pytest.mark.parametrize("settings", [{"devices": 0}, {"step_ms": -1}])
def test_a_stand_in_that_is_none_is_refused(settings):
    with pytest.raises(ConfigError, match="no stand-in"):
        build(**settings)
