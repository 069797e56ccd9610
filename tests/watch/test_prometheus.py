"""A real Prometheus scrapes a real sweep on two cards that a stand-in for NVIDIA's library shows, and is asked what it has seen."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from harness.store import Bundle
from tests.measure.nvml_stub import CARD, OTHER, compile_stub
from tests.test_command import FAST, bundles, environment
from tests.watch.builders import get

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
PATIENCE_S = 120.0
STUB = {"CARDS": 2, "BUSY_0": 87, "BUSY_1": 25, "SM_CLOCK": 1980, "USED_MIB_0": 1024, "DeviceGetPowerUsage_1": 3, "POWER_MW_0": 412345}
"""The second card does not tell its power (3: not supported)."""

pytestmark = pytest.mark.slow


class Seen(NamedTuple):
    """What came of it: the sweep's exit code, its bundle, and a question to Prometheus by PromQL."""

    exit_code: int
    stderr: str
    bundle: Path
    ask: Callable[[str], dict[tuple[str, ...], float]]
    api: Callable[[str], Any]


def sweep(results: Path) -> list[str]:
    """The command, with blocks that go on for some seconds in each round: Prometheus looks once a second."""
    fast = [word for word in FAST if not word.startswith(("+sweep.block_s=", "+sweep.quads="))]
    control = ["sweep.control.workload=custom", "sweep.control.sizes={}", "+sweep.block_s=0.2", "+sweep.quads=3"]
    deaf = ["+thresholds.foreign_cores=1000", "+thresholds.idle_partner_cores=1000"]  # Prometheus itself is a foreign load
    target = ["workload.target=tests.fakes:build", f"results_dir={results}", "devices.kind=gpu"]
    return [sys.executable, "-m", "harness", *fast, *control, *deaf, *target, "telemetry.prometheus_port=0"]


def stubbed(results: Path, library: Path) -> dict[str, str]:
    kept = {name: value for name, value in environment(results).items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**kept, "LD_LIBRARY_PATH": str(library), **{f"NVML_STUB_{name}": str(value) for name, value in STUB.items()}}


def wait_for(what: str, found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = found()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {PATIENCE_S:g} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    try:
        get(url)
    except OSError:
        return False
    return True


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """Run a Prometheus with the configuration that we ship, but for the target and how often it is scraped; yields where it is."""
    settings = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    settings["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(DEPLOY / "alerts.yml")]
    settings["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("w") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process:
        try:
            wait_for("Prometheus", lambda: process.poll() is not None or answers(f"http://{address}/-/ready"))
            assert process.poll() is None, (folder / "prometheus.log").read_text()[-2000:]
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    for name in ("prometheus", "promtool"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is missing: install Debian's package prometheus, and nothing has scraped a sweep until then")
    results, folder, library = (tmp_path_factory.mktemp(name) for name in ("results", "prometheus", "library"))
    compile_stub(library)
    told = folder / "sweep.log"
    with told.open("w") as log, subprocess.Popen(sweep(results), cwd=ROOT, stdout=log, stderr=log, env=stubbed(results, library)) as process:
        try:
            said = re.compile(r"metrics for Prometheus: http://(\S+)/metrics")
            url = wait_for("the endpoint", lambda: process.poll() is not None or said.search(told.read_text()))
            assert process.poll() is None, told.read_text()[-2000:]
            with prometheus(folder, url.group(1)) as server:
                process.wait(PATIENCE_S)

                def api(path: str) -> Any:
                    return json.loads(get(f"{server}/api/v1/{path}"))["data"]

                def ask(query: str) -> dict[tuple[str, ...], float]:
                    found = api(f"query?{urllib.parse.urlencode({'query': query})}")["result"]
                    aside = {"__name__", "job", "instance"}
                    return {tuple(v for k, v in sorted(s["metric"].items()) if k not in aside): float(s["value"][1]) for s in found}

                yield Seen(process.returncode, told.read_text(), bundles(results)[0], ask, api)
        finally:
            if process.poll() is None:
                process.kill()


def test_a_sweep_that_is_scraped_ends_as_any_other(seen):
    assert 0 == seen.exit_code, seen.stderr[-2000:]
    assert (seen.bundle / "report.html").is_file()


def test_the_sweep_was_scraped_while_it_ran_and_is_gone_now(seen):
    assert {(): 1.0} == seen.ask("max_over_time(up[10m])")
    assert 3 <= seen.ask("count_over_time(speedproof_rounds_recorded[10m])")[()]
    wait_for("the end of the endpoint", lambda: seen.ask("up") == {(): 0.0})
    assert {} == seen.ask("speedproof_run_info")


def test_both_cards_series_hold_what_the_driver_told(seen):
    assert {("0", CARD): 0.87, ("1", OTHER): 0.25} == seen.ask("last_over_time(speedproof_gpu_kernel_busy_ratio[10m])")
    assert {("0", CARD): 1.98e9, ("1", OTHER): 1.98e9} == seen.ask("last_over_time(speedproof_gpu_sm_clock_hertz[10m])")
    assert 1024 * 2**20 == seen.ask("last_over_time(speedproof_gpu_memory_used_bytes[10m])")["0", CARD]


def test_what_a_card_does_not_tell_has_no_series(seen):
    assert {("0", CARD): 412.345} == seen.ask("last_over_time(speedproof_gpu_power_watts[10m])")


def test_only_the_card_that_is_computed_on_was_measured(seen):
    assert {("0", CARD): 1.0, ("1", OTHER): 0.0} == seen.ask("max_over_time(speedproof_gpu_measured[10m])")


def test_rounds_were_counted_as_the_record_has_them(seen):
    rounds = [record.outcome.state.value for record in Bundle.open(seen.bundle, seen.bundle.parent).records()]
    counted = seen.ask("last_over_time(speedproof_rounds_ended_total[10m])")
    assert {("completed",)} == set(counted)
    assert 1 <= counted["completed",] <= rounds.count("completed")


def test_the_run_and_each_comparison_were_named(seen):
    ((_, run, sweep_name),) = seen.ask("last_over_time(speedproof_run_info[10m])")
    assert (seen.bundle.name, "training") == (run, sweep_name)
    named = {label for key in seen.ask("last_over_time(speedproof_contrast_info[10m])") for label in key}
    assert "graph-speedup.article" in named


def test_the_throughput_of_both_arms_was_told(seen):
    arms = seen.ask('last_over_time(speedproof_arm_work_per_second{label=~"eager|graph"}[10m])')
    assert {"eager", "graph"} == {label for _, label, _ in arms}
    assert {"samples"} == {unit for _, _, unit in arms}


def test_a_run_makes_few_series(seen):
    every = seen.api("series?" + urllib.parse.urlencode({"match[]": '{__name__=~"speedproof_.+"}'}))
    assert len(every) < 150


def test_the_rules_that_we_ship_were_evaluated_without_an_error(seen):
    rules = [rule for group in seen.api("rules")["groups"] for rule in group["rules"]]
    assert {"ok"} == {rule["health"] for rule in rules}
    measured = seen.ask("last_over_time(speedproof:gpu_kernel_busy_ratio:measured[10m])")
    assert {("0", CARD): 0.87} == measured
