"""A training job that goes on for a time, on real TensorFlow, as small and short as it goes."""

from __future__ import annotations

import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from benchmarks.contract import Tally  # noqa: E402 - after the check for TensorFlow
from benchmarks.soak import APART, Part, build, ends  # noqa: E402

from .builders import TINY  # noqa: E402

SECOND_NS = 10**9


def make_soak(**settings):
    return build(**{**TINY, "batch": 4, "lasts_s": 1.0, **settings})


def done(soak):
    """Do the job and return all its events."""
    events = []
    soak.job(events.append)
    return events


def named(events, name):
    return [event for event in events if event.name == name]


def parts_of(count, *, part_s=10.0, steps=7):
    """Parts that follow on one another, each with work of its own."""
    edges = [round(number * part_s * SECOND_NS) for number in range(count + 1)]
    return [Part(edges[i], edges[i + 1], steps, float(i)) for i in range(count)]


@pytest.fixture(scope="module")
def told():
    soak = make_soak()
    return soak, done(soak)


def test_a_soak_goes_on_for_its_time(told):
    _, events = told
    (job,) = named(events, "job")
    assert job.t1_ns - job.t0_ns >= 0.99 * SECOND_NS


def test_the_whole_is_the_sum_of_its_parts(told):
    soak, events = told
    parts, (job,) = named(events, "part"), named(events, "job")
    assert (sum(part.value for part in parts), sum(part.step for part in parts)) == (job.value, job.step)
    assert (job.step * 4, "samples") == (job.value, job.unit)
    assert (len(parts), job.step) == (soak.facts()["parts"], soak.facts()["steps_done"])


def test_a_soak_tells_that_nothing_was_traced_while_it_was_timed(told):
    _, events = told
    assert [0] == [event.value for event in named(events, "timed_traces")]


def test_the_windows_are_parts_from_both_ends_and_no_longer_than_a_third(told):
    _, events = told
    parts, (first,), (last,) = named(events, "part"), named(events, "window_first"), named(events, "window_last")
    assert (parts[0].t0_ns, parts[-1].t1_ns) == (first.t0_ns, last.t1_ns)
    assert first.t1_ns <= last.t0_ns
    assert {True} == {(window.t1_ns - window.t0_ns) * APART <= 1.01 * SECOND_NS or window.step == parts[0].step for window in (first, last)}


def test_what_was_computed_is_the_training_that_was_asked_for(told):
    soak, _ = told
    facts = soak.facts()
    assert ("convnet_small", "graph", 4) == (facts["model"], facts["execution"], facts["batch"])
    assert True is soak.health()["finite"]


@pytest.mark.parametrize(("window_s", "count"), [(30.0, 3), (29.0, 2), (9.0, 1), (10.0, 1)])
def test_a_window_holds_the_parts_that_lie_wholly_in_it_and_at_least_one(window_s, count):
    first, last = ends(parts_of(12), window_s)
    assert (list(range(count)), list(range(12 - count, 12))) == ([part.work for part in first], [part.work for part in last])


def test_a_loss_that_was_no_number_on_the_way_is_not_forgotten():
    soak = make_soak()
    told = iter([{"loss": 1.0, "finite": True}, {"loss": None, "finite": False, "first_non_finite_step": 9}])
    soak.training.health = lambda: next(told, {"loss": 1.0, "finite": True})
    done(soak)
    assert {"loss": None, "finite": False, "first_non_finite_step": 9} == soak.health()


def test_an_input_that_ends_ends_the_soak():
    soak = make_soak(lasts_s=600.0)
    run, left = soak.training.run, iter([1] * 33)

    def running_dry(steps):
        steps = sum(1 for _ in zip(range(steps), left, strict=False))
        return run(steps) if steps else Tally(0, 0.0, "samples")

    soak._step_s = lambda: 1.0
    soak.training.run = running_dry
    (job,) = named(done(soak), "job")
    assert 33 == job.step


def test_steps_that_are_too_long_for_the_time_are_refused():
    soak = make_soak(lasts_s=1e-3)
    soak._step_s = lambda: 1.0
    with pytest.raises(ConfigError, match=r"lasts_s=0\.001 held [12] parts of 1 steps"):
        soak.job(lambda event: None)


def test_saves_that_a_soak_does_not_make_are_refused():
    with pytest.raises(ConfigError, match="checkpoint=sync cannot be had here: training that goes on for a time is not saved"):
        make_soak(checkpoint="sync")


@pytest.mark.parametrize("changes", [{"lasts_s": -1}, {"lasts_s": 0}, {"window_s": -5}])
def test_times_that_are_none_are_refused(changes):
    with pytest.raises(ConfigError, match="is no time"):
        make_soak(**changes)
