"""The loop without the instrument."""

from __future__ import annotations

import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from benchmarks.transparency import build, main  # noqa: E402 - after the check for TensorFlow

from .builders import TINY  # noqa: E402


def test_the_bare_loop_tells_a_rate_that_follows_from_its_step_time():
    read = {v.name: v.value for v in build(**TINY, warm_s=0.01, timed_s=0.05).outcome()}

    assert pytest.approx(TINY["batch"] / read["bare_step_time"]) == read["bare_rate"]
    assert read["bare_steps"] >= 2


def test_the_bare_loop_runs_the_step_that_training_runs():
    bare = build(**TINY, execution="graph", warm_s=0.01, timed_s=0.01)
    bare.outcome()

    assert ("graph", 1) == (bare.facts()["execution"], bare.traces())


def test_the_bare_loop_refuses_an_input_pipeline():
    with pytest.raises(ConfigError, match="input=tfdata"):
        build(**TINY, input="tfdata")


def test_the_command_prints_the_figures(capsys):
    main([*(f"{name}={value}" for name, value in TINY.items()), "timed_s=1"])

    assert ["bare_rate", "bare_step_time", "bare_steps"] == [line.split()[0] for line in capsys.readouterr().out.splitlines()]
