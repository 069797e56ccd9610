"""A trace of some steps: there, readable, of the right steps, and without a word about whose machine it was."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from benchmarks.contract import Workload
from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from benchmarks.profiling import HOST, STEPS, WARM_STEPS, _without_places  # noqa: E402

from .builders import make_training  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A training that was profiled, what it answered, and the file that it left."""
    folder = tmp_path_factory.mktemp("bundle") / "plugins" / "profile" / "convnet_small"
    training = make_training(profile_dir=str(folder))
    answer = {value.name: value for value in training.profile()}
    (path,) = folder.iterdir()
    return training, answer, path


def trace(path):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    return xplane_pb2.XSpace.FromString(path.read_bytes())


def test_a_profile_answers_with_the_steps_that_it_saw(profiled):
    _, answer, _ = profiled
    assert {"profile_steps": (STEPS, "steps")} == {name: (value.value, value.unit) for name, value in answer.items()}


def test_the_trace_lies_where_tensorboard_looks_under_a_name_without_the_host(profiled):
    _, _, path = profiled
    assert ("machine.xplane.pb", "plugins/profile/convnet_small") == (path.name, "/".join(path.parts[-4:-1]))


def test_the_trace_holds_each_profiled_step_and_no_warm_up(profiled):
    training, _, path = profiled
    named = [(plane.event_metadata[event.metadata_id].name) for plane in trace(path).planes for line in plane.lines for event in line.events]
    assert STEPS == named.count("train")
    assert WARM_STEPS + STEPS == training._steps


def test_the_trace_says_nothing_of_whose_machine_it_was(profiled):
    _, _, path = profiled
    data = path.read_bytes()
    assert [HOST] == list(trace(path).hostnames)
    for place in (str(ROOT), sys.prefix, str(path.parent)):
        assert place.encode() not in data
    told = [plane.stat_metadata[stat.metadata_id].name for plane in trace(path).planes for stat in plane.stats]
    assert "profile_options" not in told
    if len(platform.node()) > 8:  # a short name may stand for anything
        assert platform.node().encode() not in data


def test_a_folder_is_taken_out_of_a_trace_without_a_change_of_length():
    place = str(ROOT).encode()
    told = b"\x0a" + bytes([len(place) + 5]) + place + b"/a.py"
    assert b"\x0a" + bytes([len(place) + 5]) + b"-" * len(place) + b"/a.py" == _without_places(told)


def test_a_profile_without_a_folder_is_refused():
    with pytest.raises(ConfigError, match="a profile needs profile_dir"):
        make_training().profile()


def test_a_workload_without_a_profile_says_so():
    (value,) = Workload().profile()
    assert (None, "this workload offers no profile of its own") == (value.value, value.reason)
