"""The loop of a job that is saved on the way, by a clock that only moves when a step, a save or a look at something takes its time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from benchmarks import saving  # noqa: E402 - after the check for TensorFlow
from benchmarks.contract import Tally  # noqa: E402
from benchmarks.durability import Written  # noqa: E402
from benchmarks.saving import Loop, Saves  # noqa: E402

BATCH = 4
ASYNC = {"enable_async": True}
TIMES = {"step_s": 0.1, "beside_s": 0.3, "held_s": 0.0, "look_s": 0.0, "digest_s": 0.0, "durable_s": (0.0, 0.0, 0.0)}


class Clock:
    """In place of the module `time`."""

    def __init__(self):
        self.now_ns = 10**9

    def perf_counter_ns(self):
        return self.now_ns

    def take(self, seconds):
        self.now_ns += round(seconds * 1e9)


class Watched:
    """A save that is durable so long after it was called; its own event."""

    error = None

    def __init__(self, clock, number, called_ns, durable_s):
        self._clock, self.number, self.called_ns, self.durable_ns = clock, number, called_ns, called_ns + round(durable_s * 1e9)
        self.written, self.finished = Written(10, folder=True), self

    def is_set(self):
        return self._clock.now_ns >= self.durable_ns

    def wait(self, _):
        self._clock.now_ns = max(self._clock.now_ns, self.durable_ns)

    def start(self):
        pass

    def writing_is_over(self):
        pass

    def remaining_s(self):
        return 60.0


class Bench:
    """A loop whose parts take as long as the test says (`times`): `step_s` a clear step, `beside_s` one beside a save, `held_s` the call of a save,
    `look_s` each look at losses, `digest_s` the digests; a save is durable after its `durable_s`."""

    def __init__(self, monkeypatch, folder, *, saves=True, options=None, release=None, retrace_at=None, **times):
        self.clock, self.events, self.watched = Clock(), [], []
        self.times = SimpleNamespace(**{**TIMES, **times})
        self.batch, self.ran, self.traced, self.retrace_at = BATCH, 0, 0, retrace_at
        self._monkeypatch = monkeypatch
        chosen = tf.train.CheckpointOptions(**options) if options else None
        asked = Saves(folder, {"v": tf.Variable(0.0)}, chosen, 4, 60.0, self.digests, release) if saves else None
        self.loop = Loop(self, asked, self.events.append, lambda: self.clock.take(self.times.look_s))
        self.loop._manager = SimpleNamespace(save=self.save)

    def watch(self, _prefix, number, called_ns, _deadline_s):
        self.watched.append(Watched(self.clock, number, called_ns, self.times.durable_s[number - 1]))
        return self.watched[-1]

    def digests(self):
        self.clock.take(self.times.digest_s)
        return {}

    def save(self, options):
        self.clock.take(self.times.held_s)
        return f"ckpt-{len(self.watched) + 1}"

    # -- as training

    def trace(self):
        self.traced += 1

    def traces(self):
        return self.traced

    def run(self, steps):
        for _ in range(steps):
            beside = any(not watched.is_set() for watched in self.watched)
            self.clock.take(self.times.beside_s if beside else self.times.step_s)
            self.ran += 1
            self.traced += self.ran == self.retrace_at
        return Tally(steps, steps * BATCH, "samples")

    # -- what came of it

    def done(self, steps, interval):
        """Do the job; returns the saves that were not released."""
        with self._monkeypatch.context() as patched:
            patched.setattr(saving, "time", self.clock)
            patched.setattr(saving, "Watcher", self.watch)
            self.loop.run(steps, interval)
            left = self.loop.finish()
            self.loop.conclude()
        return left

    def values(self, name):
        return [round(event.value, 9) for event in self.events if event.name == name]


def test_slow_saves_and_slow_looks_are_no_part_of_a_step_and_the_saves_alone_are_part_of_the_whole(monkeypatch, tmp_path):
    saved = Bench(monkeypatch, tmp_path, held_s=5.0, look_s=3.0, digest_s=2.0)
    unsaved = Bench(monkeypatch, tmp_path, saves=False, look_s=3.0)
    for one in (saved, unsaved):
        one.done(8, 4)

    assert ([0.1] * 3, [0.1] * 3) == (saved.values("clear_step_s"), unsaved.values("clear_step_s"))
    assert ([5.0], [5.0]) == (saved.values("blocked_first_s"), saved.values("blocked_s"))
    assert ([5.0] * 2, [3.0] * 2) == (saved.values("verify_pause_s"), unsaved.values("verify_pause_s"))
    assert ([0.8 + 2 * 5.0], [0.8]) == (saved.values("end_to_end_s"), unsaved.values("end_to_end_s"))
    assert ([round(32 / 10.8, 9)], [40.0]) == (saved.values("job_rate"), unsaved.values("job_rate"))


def test_steps_beside_the_first_save_have_a_name_of_their_own_and_later_ones_as_many_clear_ones_timed_alike(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path, options=ASYNC, durable_s=(0.5, 0.5, 0.5))
    bench.done(12, 4)

    # Of saves after steps 2, 6 and 10, two steps of 0.3 s each go by before they are durable.
    assert ([0.3], [0.3, 0.3], [0.1, 0.1]) == tuple(map(bench.values, ("overlap_first_step_s", "overlap_step_s", "clear_single_step_s")))
    assert [3, 7, 11] == [event.step for event in bench.events if event.name.startswith("overlap")]
    assert (12, 4) == (bench.loop.done, bench.loop.uncounted)


def test_clear_steps_for_comparison_are_no_part_of_the_job(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path, options=ASYNC, durable_s=(0.5, 0.5, 0.5))
    bench.done(12, 4)

    assert [round(6 * 0.1 + 6 * 0.3, 9)] == bench.values("end_to_end_s")
    assert [12 * BATCH] == bench.values("job")


def test_a_first_save_that_is_still_under_way_beside_the_second_keeps_its_name(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path, options=ASYNC, durable_s=(1.5, 1.5))
    bench.done(8, 4)

    # Save 1, after step 2, is durable with step 7; save 2 after the last one.
    named = [(event.step, event.name) for event in bench.events if event.name.startswith("overlap")]
    assert [(3, "overlap_first_step_s"), (7, "overlap_first_step_s"), (8, "overlap_step_s")] == named


def test_no_clear_steps_are_added_for_those_during_which_a_synchronous_save_is_written_through(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path, durable_s=(0.5, 0.5, 0.5))
    bench.done(12, 4)

    assert ([0.3, 0.3], [], 0) == (bench.values("overlap_step_s"), bench.values("clear_single_step_s"), bench.loop.uncounted)


def test_of_many_steps_beside_a_save_ten_are_repeated_clear(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path, options=ASYNC, durable_s=(0.0, 4.0), beside_s=0.1)
    bench.done(80, 40)

    assert (10, [0.1]) == (bench.loop.uncounted, bench.values("clear_single_step_s"))


def test_no_step_is_timed_as_clear_while_a_save_is_under_way(monkeypatch, tmp_path):
    bench = Bench(monkeypatch, tmp_path, options=ASYNC, durable_s=(0.0, 100.0, 0.0))
    bench.done(12, 4)
    (single,) = [event for event in bench.events if event.name == "clear_single_step_s"]

    assert single.t0_ns >= bench.watched[1].durable_ns
    assert 6 == bench.loop.uncounted


def test_traces_in_the_timed_part_are_told_and_those_before_are_not(monkeypatch, tmp_path):
    anew, steady = Bench(monkeypatch, tmp_path, saves=False, retrace_at=5), Bench(monkeypatch, tmp_path, saves=False)
    for one in (anew, steady):
        one.loop.warm_up()
        one.done(8, 4)

    assert ([1], [0]) == (anew.values("timed_traces"), steady.values("timed_traces"))


def test_where_room_is_short_durable_saves_are_released_before_the_next_one(monkeypatch, tmp_path):
    released = []
    bench = Bench(monkeypatch, tmp_path, release=lambda save: released.append((save.number, bench.loop.done)))
    left = bench.done(12, 4)

    assert [(1, 6), (2, 10)] == released
    assert [3] == [save.number for save in left]


def test_a_save_that_is_under_way_is_not_released(monkeypatch, tmp_path):
    released = []
    left = Bench(monkeypatch, tmp_path, options=ASYNC, durable_s=(100.0, 100.0), release=released.append).done(8, 4)

    assert ([], [1, 2]) == (released, [save.number for save in left])


@pytest.mark.parametrize("folder", [True, False])
def test_the_loop_knows_whether_the_saves_folder_could_be_written_through(monkeypatch, tmp_path, folder):
    bench = Bench(monkeypatch, tmp_path)
    watch = bench.watch
    bench.watch = lambda *asked: with_folder(watch(*asked), folder)
    bench.done(8, 4)

    assert folder is bench.loop.folder_written


def with_folder(watched, folder):
    watched.written = Written(10, folder=folder)
    return watched
