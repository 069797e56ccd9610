"""The sampler asks when it should, counts what it could not, and never disturbs whoever started it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from harness.measure.telemetry import sampler as module
from harness.measure.telemetry.provider import Sample
from harness.measure.telemetry.sampler import Course, Sampler

SECOND_NS = 10**9


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.ns = 5 * SECOND_NS

    def __call__(self) -> int:
        return self.ns

    def advance(self, seconds: float) -> None:
        self.ns += round(seconds * SECOND_NS)


class FakeReader:
    """Answers with its number of answers so far, or with what `answer` says."""

    def __init__(self, period_s: float = 1.0, answer: Callable[[int], float | None] = float, device: str = "gpu") -> None:
        self.period_s = period_s
        self.devices = (device,)
        self.answer = answer
        self.asked = 0

    def sample(self) -> list[Sample]:
        self.asked += 1
        value = self.answer(self.asked)
        return [Sample(self.devices[0], 0, "power_w", value, None if value is not None else "not supported")]

    def close(self) -> None:
        pass


def failing(_: int) -> float:
    raise OSError("the driver is away")


def make_course(*readers: FakeReader, take: Callable[[list[Sample]], None] | None = None) -> tuple[Course, Clock, list[Sample]]:
    clock, taken = Clock(), []
    return Course(readers, take or taken.extend, clock), clock, taken


def run(course: Course, clock: Clock, seconds: float, step_s: float = 0.25) -> None:
    course.tick()
    for _ in range(round(seconds / step_s)):
        clock.advance(step_s)
        course.tick()


def test_each_reader_is_asked_at_its_own_period():
    fast, slow = FakeReader(0.5), FakeReader(2.0)
    course, clock, _ = make_course(fast, slow)
    run(course, clock, 4.0)
    assert (9, 3) == (fast.asked, slow.asked)


def test_it_says_how_long_there_is_nothing_to_do():
    course, clock, _ = make_course(FakeReader(0.5), FakeReader(2.0))
    assert 0.5 == course.tick()
    clock.advance(0.4)
    assert pytest.approx(0.1) == course.tick()


def test_times_that_went_by_are_counted_and_not_made_up_for():
    reader = FakeReader(1.0)
    course, clock, _ = make_course(reader)
    course.tick()
    clock.advance(3.5)
    course.tick()
    (summary,) = course.summaries()
    assert (2, 2, 2) == (reader.asked, summary.samples, summary.overruns)
    assert 0.5 == course.tick()


def test_a_reader_that_takes_longer_than_its_period_overruns():
    clock = Clock()

    def slow(asked: int) -> float:
        clock.advance(1.2)
        return float(asked)

    course = Course([FakeReader(0.5, slow)], lambda samples: None, clock)
    course.tick()
    assert 2 == course.summaries()[0].overruns


def test_a_reader_that_raises_each_time_is_counted_and_the_others_go_on():
    bad, good = FakeReader(1.0, failing), FakeReader(1.0)
    course, clock, taken = make_course(bad, good)
    run(course, clock, 2.0, step_s=1.0)
    wrong, right = course.summaries()
    assert (0, 3, "OSError: the driver is away") == (wrong.samples, wrong.errors, wrong.reason)
    assert (3, 0, None) == (right.samples, right.errors, right.reason)
    assert [1.0, 2.0, 3.0] == [sample.value for sample in taken]


def test_samples_that_cannot_be_handed_on_are_counted():
    def full(samples: list[Sample]) -> None:
        raise OSError("no space left on device")

    course, _, _ = make_course(FakeReader(), take=full)
    course.tick()
    (summary,) = course.summaries()
    assert (1, 1, "OSError: no space left on device") == (summary.samples, summary.untaken, summary.reason)


def test_a_null_is_told_once_until_there_is_a_value_again():
    answers = {1: None, 2: None, 3: 7.0, 4: None}
    course, clock, taken = make_course(FakeReader(1.0, answers.get))
    run(course, clock, 3.0, step_s=1.0)
    assert [None, 7.0, None] == [sample.value for sample in taken]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_a_null_with_a_reason(value: float):
    course, _, taken = make_course(FakeReader(1.0, lambda asked: value))
    course.tick()
    assert [(None, "no finite number")] == [(sample.value, sample.reason) for sample in taken]


def test_a_round_shorter_than_a_period_still_has_its_first_and_last_sample():
    reader, taken = FakeReader(3600.0), []
    sampler = Sampler([reader])
    first = threading.Event()

    def take(samples: list[Sample]) -> None:
        taken.extend(samples)
        first.set()

    sampler.start(take)
    assert first.wait(10)
    (summary,) = sampler.stop()
    assert ([1.0, 2.0], 2, 3600.0) == ([sample.value for sample in taken], summary.samples, summary.period_s)


def test_rounds_do_not_share_counts():
    sampler = Sampler([FakeReader(3600.0)])
    for _ in range(2):
        sampler.start(lambda samples: None)
        (summary,) = sampler.stop()
    assert summary.samples <= 2


def test_after_the_end_nothing_is_sampled():
    reader = FakeReader(0.01)
    sampler = Sampler([reader])
    sampler.start(lambda samples: None)
    sampler.stop()
    asked = reader.asked
    assert not sampler.stuck
    assert "telemetry" not in {thread.name for thread in threading.enumerate()}
    assert asked == reader.asked


def test_a_question_that_does_not_come_back_is_left_behind(monkeypatch):
    monkeypatch.setattr(module, "JOIN_S", 0.05)
    answered, asked = threading.Event(), threading.Event()

    def hang(_: int) -> float:
        asked.set()
        answered.wait(60)
        return 1.0

    sampler = Sampler([FakeReader(1.0, hang)])
    sampler.start(lambda samples: None)
    assert asked.wait(10)
    (summary,) = sampler.stop()
    stuck = sampler.stuck
    sampler.start(lambda samples: None)
    (next_round,) = sampler.stop()
    answered.set()
    assert (True, 0, "a question to a device has not come back") == (stuck, summary.samples, summary.reason)
    assert (0, "a question to a device has not come back") == (next_round.samples, next_round.reason)
