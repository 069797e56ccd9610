"""A training that is killed and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from benchmarks.restart import Diary, Entry, build, curve_difference, lost_steps  # noqa: E402 - after the check for TensorFlow

ROOT = Path(__file__).parents[2]

SETTINGS = {"image": 16, "batch": 4, "steps": 12, "interval_steps": 3, "deterministic": True, "device": "cpu", "seed": 5}

ONE_LIFE = """
import json, sys
from harness.measure.runtime import tf as runtime
settings = json.loads(sys.argv[1])
runtime.start(settings)
from benchmarks.restart import build

def tell(event):
    print(json.dumps(list(event)), flush=True)
    sys.stdin.readline()

build(**settings).job(tell)
"""


def live(scratch, life, kill_at=None):
    """Live one life in a process of its own, which waits after each event: killed once it has told of step `kill_at`. Returns the last event of each
    name, name -> value."""
    command = [sys.executable, "-c", ONE_LIFE, json.dumps({**SETTINGS, "scratch_dir": str(scratch), "life": life})]
    events = {}
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            name, value, _, _, _, step, _ = json.loads(line)
            events[name] = value
            if name == "step" and step == kill_at:
                process.send_signal(signal.SIGKILL)
                break
            process.stdin.write("\n")
            process.stdin.flush()
    assert (-signal.SIGKILL if kill_at else 0) == process.returncode
    return events


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path):
    live(tmp_path, 0, kill_at=5)
    with (tmp_path / "losses.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    told = live(tmp_path, 1)

    # Saved after step 3, so that steps 4, 5 and the torn 6 have to be done again.
    expected = {"survived": 1, "lives": 2, "curve_difference": 0, "step": 12, "steps_lost": 3, "steps_lost_over_interval": 1}
    assert expected == {name: told[name] for name in expected}


@pytest.fixture
def one_life(tmp_path):
    """A life that nobody killed, in this process."""
    work, events = build(**{**SETTINGS, "scratch_dir": str(tmp_path)}), []
    work.job(events.append)
    return work, events


def test_an_undisturbed_life_tells_every_step_and_loses_none(one_life):
    work, events = one_life
    told = {event.name: event.value for event in events}
    (job,) = [event for event in events if event.name == "job"]

    assert list(range(1, 13)) == [event.step for event in events if event.name == "step"]
    assert (0, 1) == (told["steps_lost"], told["lives"])
    assert (12, 48, "samples") == (job.step, job.value, job.unit)
    assert work.health()["finite"] is True


def test_a_life_that_finds_all_steps_done_tells_the_outcome_at_once(tmp_path, one_life):
    events = []
    build(**{**SETTINGS, "scratch_dir": str(tmp_path), "life": 1}).job(events.append)
    told = {event.name: event.value for event in events}

    assert "step" not in told
    assert (2, 0, 0) == (told["lives"], told["steps_lost"], told["job"])


def test_facts_tell_the_life_and_its_interval(tmp_path):
    facts = build(**{**SETTINGS, "scratch_dir": str(tmp_path), "life": 2}).facts()

    assert (2, 12, 3, True, "convnet_small") == tuple(facts[name] for name in ("life", "steps", "interval_steps", "deterministic", "model"))


def test_what_each_kill_lost_is_counted_from_the_last_step_before_it():
    entries = [
        Entry(life=0, restored=0), *(Entry(step=step, loss=1.0) for step in range(1, 6)),
        Entry(life=1, restored=3), Entry(step=4, loss=1.0),
        Entry(life=2, restored=3), *(Entry(step=step, loss=1.0) for step in range(4, 7)),
        Entry(life=3, restored=6),
    ]  # fmt: skip

    assert [2, 1, 0] == lost_steps(entries)


def test_a_life_that_was_killed_before_its_first_step_loses_what_the_one_before_had_done():
    entries = [Entry(life=0, restored=0), *(Entry(step=step, loss=1.0) for step in range(1, 6)), Entry(life=1, restored=3), Entry(life=2, restored=3)]

    assert [2, 2] == lost_steps(entries)


def test_curves_are_compared_over_every_step_done_also_those_done_again():
    entries = [Entry(step=1, loss=1.0), Entry(step=2, loss=2.0), Entry(life=1, restored=1), Entry(step=2, loss=2.25)]

    assert (0.25, None) == curve_difference(entries, [1.0, 2.0])
    assert (0.0, None) == curve_difference(entries[:2], [1.0, 2.0])


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([Entry(step=1, loss=1.0)], "no loss is known of step 2"),
        ([Entry(step=1, loss=1.0), Entry(step=2, loss=None)], "no loss is known of step 2"),
        ([Entry(step=1, loss=1.0), Entry(step=2, loss=float("nan"))], "a loss was not finite"),
    ],
)
def test_a_curve_with_a_gap_has_no_difference_but_a_reason(entries, reason):
    assert (None, reason) == curve_difference(entries, [1.0, 2.0])


@pytest.mark.parametrize(
    ("torn", "mended"),
    [
        ('{"step": 2, "l', [Entry(step=2, loss=None)]),
        ('{"step": 2, "loss": 0.5}', [Entry(step=2, loss=None)]),
        ('{"life": 1, "rest', []),
        ("", []),
    ],
)
def test_a_line_that_was_torn_counts_as_a_step_without_a_loss(tmp_path, torn, mended):
    diary = Diary(tmp_path / "losses.jsonl")
    diary.begin(0, 0)
    diary.note(1, 0.1)
    with (tmp_path / "losses.jsonl").open("a") as file:
        file.write(torn)
    diary.begin(1, 0)

    assert [Entry(life=0, restored=0), Entry(step=1, loss=0.1), *mended, Entry(life=1, restored=0)] == diary.read()


def test_losses_survive_the_diary_bit_for_bit(tmp_path):
    diary = Diary(tmp_path / "losses.jsonl")
    losses = [0.1 + 0.2, 1e-45, 2.302585092994046]
    for step, loss in enumerate(losses, 1):
        diary.note(step, loss)

    assert losses == [entry.loss for entry in diary.read()]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"steps": 0}, "steps=0 is too few"),
        ({"deterministic": False}, "set deterministic=true"),
        ({"input": "tfdata"}, "knows no input=tfdata"),
        ({"checkpoint": "async"}, "checkpoint=async cannot be had here: a restart saves in a way of its own"),
        ({"storage": "slow"}, "storage=slow cannot be had here"),
        ({"scratch_dir": None}, "scratch_dir=None is no folder"),
    ],
)
def test_what_cannot_be_restarted_is_refused_with_the_setting(tmp_path, settings, said):
    with pytest.raises(ConfigError, match=said):
        build(**{**SETTINGS, "scratch_dir": str(tmp_path), **settings})
