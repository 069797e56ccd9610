"""The keys by which a person asks to watch a run, and what of them is refused before anything runs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.config import make_bench, read_settings, to_plan
from harness.errors import ConfigError
from harness.model import Purpose
from tests.helpers import make_machine

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_is_served_logged_or_profiled_unless_it_is_asked_for():
    settings = read_settings(["+sweep=smoke"])
    assert (None, "127.0.0.1") == (settings.prometheus_port, settings.prometheus_address)
    assert (False, False) == (settings.tensorboard, settings.request.profile)


def test_an_endpoint_is_on_the_loopback_unless_another_address_is_written():
    assert "127.0.0.1" == read_settings(["+sweep=smoke", "telemetry.prometheus_port=0"]).prometheus_address
    settings = read_settings(["+sweep=smoke", "telemetry.prometheus_port=9400", "telemetry.prometheus_address=0.0.0.0"])
    assert (9400, "0.0.0.0") == (settings.prometheus_port, settings.prometheus_address)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["telemetry.prometheus_port=-1"], "telemetry.prometheus_port=-1: must lie between 0 (any free one) and 65535"),
        (["telemetry.prometheus_port=65536"], "telemetry.prometheus_port=65536: must lie between 0 (any free one) and 65535"),
        (["telemetry.prometheus_port=9400", "telemetry.prometheus_address=''"], "telemetry.prometheus_address=: is empty"),
        (["telemetry.prometheus_address=0.0.0.0"], "telemetry.prometheus_address=0.0.0.0: nothing is served without a port"),
    ],
)
def test_an_endpoint_that_cannot_be_meant_is_refused(keys, message):
    with pytest.raises(ConfigError) as refused:
        read_settings(["+sweep=smoke", *keys])
    assert str(refused.value).startswith(message)


def test_a_port_that_is_no_number_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"^telemetry.prometheus_port=http: 'http' is not a whole number"):
        read_settings(["+sweep=smoke", "telemetry.prometheus_port=http"])


def test_where_a_run_could_be_watched_is_in_no_manifest():
    settings = read_settings(["+sweep=smoke", "telemetry.prometheus_port=9400", "telemetry.prometheus_address=10.1.2.3"])
    assert "10.1.2.3" not in json.dumps(settings.resolved)
    assert "tensorboard" in settings.resolved["telemetry"]
    assert [] == [name for name in settings.resolved["telemetry"] if name.startswith("prometheus")]


def test_profiles_are_planned_where_they_are_asked_for():
    def profiles(*keys: str) -> list[str]:
        settings = read_settings(["+sweep=training", "only=[graph-speedup.article]", *keys])
        plan = to_plan(settings, make_bench(settings, make_machine()))
        return [contrast.id for contrast in plan.contrasts if contrast.purpose is Purpose.PROFILE]

    assert [] == profiles()
    assert ["profile-resnet50"] == profiles("telemetry.profile=true")


def test_a_port_that_is_taken_ends_the_command_before_anything_is_written(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["+sweep=smoke", "devices.kind=cpu", f"telemetry.prometheus_port={taken.getsockname()[1]}", f"results_dir={tmp_path}"]
        done = subprocess.run([sys.executable, "-m", "harness", *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (1, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert "choose another port, or 0 for any free one" in done.stderr
    assert [] == list(tmp_path.iterdir())
