"""What a parent takes as an answer, as an event, and as something that nobody asked for."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from harness.measure.channel import Channel
from harness.measure.crew import Crew, Member, Stage, TrialEnded
from tests.measure.builders import make_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = {"type": "job", "seconds": 1.0}


def event(step: int) -> dict[str, Any]:
    return {"type": "event", "event": ["step", 1.0, "s", None, None, step, None]}


@contextmanager
def said(folder: Path, *messages: dict[str, Any], dead: bool = False) -> Iterator[Stage]:
    """Yield a stage with one crew, whose only worker has sent all of `messages` in one go, and has died if so wanted."""
    read_fd, write_fd = os.pipe()
    channel = Channel(read_fd, os.open(os.devnull, os.O_WRONLY))
    os.write(write_fd, b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    if dead:
        os.close(write_fd)
    child = SimpleNamespace(channel=channel, pidfd=None, dead=lambda within_s=0.0: dead, reap=lambda: -9, memory_kill=None)
    trial = make_job("a")
    try:
        yield Stage(lambda: False, folder / "live.json", (), folder, crews=[Crew(trial, [Member(trial.processes[0], child, "log")])])
    finally:
        channel.close()
        if not dead:
            os.close(write_fd)


def ask(stage: Stage, **ports: Any) -> dict[str, Any]:
    return stage.ask(stage.crews, "job", "job", "job", lambda _: 5.0, **ports)["a"]


def test_events_that_arrive_with_the_answer_are_heard_before_it(tmp_path: Path):
    heard: list[int] = []
    with said(tmp_path, event(1), event(2), JOB) as stage:
        answer = ask(stage, on_event=lambda crew, told: heard.append(told[5]))
    assert ([1, 2], JOB) == (heard, answer)


def test_the_last_words_of_a_worker_that_died_are_heard_before_its_death_counts(tmp_path: Path):
    heard: list[int] = []
    with said(tmp_path, event(1), event(2), dead=True) as stage, pytest.raises(TrialEnded, match="killed by signal 9"):
        ask(stage, on_event=lambda crew, told: heard.append(told[5]))
    assert [1, 2] == heard


def test_an_answer_that_arrived_before_a_death_is_an_answer(tmp_path: Path):
    with said(tmp_path, event(1), JOB, dead=True) as stage:
        assert JOB == ask(stage, on_event=lambda crew, told: None)


@pytest.mark.parametrize("more", [event(1), JOB])
def test_whatever_comes_with_an_answer_but_behind_it_was_not_asked_for(tmp_path: Path, more: dict[str, Any]):
    with said(tmp_path, JOB, more) as stage, pytest.raises(TrialEnded, match="said more than it was asked"):
        ask(stage, on_event=lambda crew, told: None)


def test_an_event_where_none_was_asked_for_breaks_the_protocol(tmp_path: Path):
    with said(tmp_path, event(1), JOB) as stage, pytest.raises(TrialEnded, match="'event' where 'job' was due"):
        ask(stage)


@pytest.mark.parametrize("told", [None, [], ["step", 1.0, "s"], "step"])
def test_an_event_that_is_none_breaks_the_protocol(tmp_path: Path, told: object):
    with said(tmp_path, {"type": "event", "event": told}, JOB) as stage, pytest.raises(TrialEnded, match="told an event that is none"):
        ask(stage, on_event=lambda crew, told: None)


def test_an_error_keeps_the_code_and_numbers_that_it_brought(tmp_path: Path):
    error = {"type": "error", "error": "Odd", "text": "so", "code": "own", "numbers": {"n": 1, "list": [1]}}
    with said(tmp_path, error) as stage, pytest.raises(TrialEnded) as ended:
        ask(stage)
    assert ("own", {"n": 1, "list": "[1]", "error": "Odd"}) == (ended.value.outcome.reason.code, ended.value.outcome.reason.numbers)
