"""Some steps under TensorFlow's profiler, with the trace left where TensorBoard looks for it. Never beside anything that is timed: profiling takes time.

The trace is made fit to be handed on: TensorFlow writes the host's name and the folder into it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.contract import Tally, Value
from harness.errors import ConfigError

WARM_STEPS = 3
STEPS = 10
HOST = "machine"
"""What stands for the host's name, in the trace and as the first part of its file's name."""


def profiled(run: Callable[[int], Tally], folder: str | None) -> list[Value]:
    """Run WARM_STEPS steps and then STEPS under the profiler; leaves `folder`/machine.xplane.pb.

    Readings: `profile_steps` (steps) and, where a GPU is used, `profile_gpu_events` (events; null with a reason where the driver let none be seen).
    Raises ConfigError without a folder.
    """
    if not folder:
        raise ConfigError("a profile needs profile_dir, the folder to leave its trace in; it is planned by telemetry.profile=true")
    run(WARM_STEPS)
    tf.test.experimental.sync_devices()
    with tempfile.TemporaryDirectory() as own:
        steps = _traced(run, own)
        space = _space(own)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{HOST}.xplane.pb").write_bytes(_without_places(_clean(space).SerializeToString()))
    readings = [Value("profile_steps", steps, "steps")]
    return [*readings, _gpu_events(space)] if tf.config.get_visible_devices("GPU") else readings


def _traced(run: Callable[[int], Tally], logdir: str) -> int:
    """Run the steps under the profiler and return how many ran. Calls of Python functions are not traced: that slows a step, and names files."""
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=1)
    tf.profiler.experimental.start(logdir, options=options)
    try:
        steps = 0
        for number in range(STEPS):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                steps += run(1).steps
        tf.test.experimental.sync_devices()
    finally:
        tf.profiler.experimental.stop()
    return steps


def _space(logdir: str) -> Any:
    """Return the trace that the profiler has written under `logdir`."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    found = sorted(Path(logdir).glob("plugins/profile/*/*.xplane.pb"))
    if not found:
        raise RuntimeError("TensorFlow's profiler has written no trace")
    return xplane_pb2.XSpace.FromString(found[0].read_bytes())


def _clean(space: Any) -> Any:
    """Take out of a trace, in place, the host's name and the options, which name the folder."""
    del space.hostnames[:]
    space.hostnames.append(HOST)
    for plane in space.planes:
        names = {number: told.name for number, told in plane.stat_metadata.items()}
        for index in reversed(range(len(plane.stats))):
            if names.get(plane.stats[index].metadata_id) == "profile_options":
                del plane.stats[index]
    return space


def _without_places(data: bytes) -> bytes:
    """Return a serialized trace in which this machine's folders are dashes. As many of them: a message tells the lengths of its parts beforehand."""
    for folder in (str(Path(__file__).resolve().parents[1]), sys.prefix, sys.base_prefix, str(Path.home())):
        if folder.count("/") > 1:  # "/usr" or "/" says nothing of anybody
            data = data.replace(folder.encode(), b"-" * len(folder.encode()))
    return data


def _gpu_events(space: Any) -> Value:
    events = sum(len(line.events) for plane in space.planes if plane.name.startswith("/device:GPU") for line in plane.lines)
    if events:
        return Value("profile_gpu_events", events, "events")
    return Value("profile_gpu_events", None, "events", "; ".join(space.errors) or "the profiler saw nothing of the GPU, and did not say why")
