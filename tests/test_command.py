"""The whole command on a workload without a framework: plan, measure, judge, report, refuse, resume, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.model import IDLE_ROUND
from harness.store import Bundle

ROOT = Path(__file__).resolve().parent.parent
FAST = ["+sweep=training", "only=[graph-speedup.article]", "workload=custom", "workload.runtime=host", "+sweep.block_s=0.02", "+sweep.quads=1", "sweep.looks=[3]", "sweep.control_rounds=1"]
BUDGET_OF_TEST_S = 120.0


def command(*arguments: str, results: Path, target: str = "tests.fakes:build") -> list[str]:
    control = ["sweep.control.workload=custom", "sweep.control.sizes={}"]
    return [sys.executable, "-m", "harness", *FAST, *control, f"workload.target={target}", f"results_dir={results}", "devices.kind=cpu", *arguments]


def environment(results: Path) -> dict[str, str]:
    """A temporary folder of the test's own, and so a machine lock of its own: a real measurement on this machine is not waited for."""
    own = results / ".tmp"
    own.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(own)}


def start(*arguments: str, results: Path) -> subprocess.Popen[str]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command(*arguments, results=results), cwd=ROOT, text=True, env=environment(results), **quiet)


def run(*arguments: str, results: Path, target: str = "tests.fakes:build") -> subprocess.CompletedProcess[str]:
    words = command(*arguments, results=results, target=target)
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=BUDGET_OF_TEST_S, check=False, env=environment(results))


def plain(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "harness", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=BUDGET_OF_TEST_S, check=False)


def bundles(results: Path) -> list[Path]:
    return sorted(path.parent for path in results.glob("*/manifest.json"))


def lines(bundle: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (bundle / "records.jsonl").read_text().splitlines()]


def verdicts(bundle: Path) -> Any:
    return json.loads((bundle / "verdicts.json").read_text())


def case(bundle: Path, name: str) -> Any:
    return next(c for claim in verdicts(bundle)["claims"] for c in claim["cases"] if c["case"] == name)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    results = tmp_path_factory.mktemp("results")
    done = run(results=results)
    return done, bundles(results)[0]


def test_a_run_ends_with_a_bundle_verdicts_and_a_report(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, bundle = finished
    assert 0 == done.returncode, done.stderr[-2000:]
    assert {"manifest.json", "records.jsonl", "verdicts.json", "report.html", "report.md"} <= {path.name for path in bundle.iterdir()}


def test_a_graph_that_is_twice_as_fast_is_found_twice_as_fast(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    # A sleep ends late on a busy machine, by the same for both arms: the true ratio lies somewhat below two, never near one.
    assert 1.4 < case(finished[1], "graph-speedup.article")["estimate"]["point"] < 2.2


def test_the_arms_were_proven_to_compute_the_same(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    assert [True] == [proof["passed"] for proof in verdicts(finished[1])["proofs"]]


def test_no_line_of_a_bundle_names_a_path_of_this_machine(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    for path in finished[1].rglob("*"):
        if path.is_file() and path.suffix in {".json", ".jsonl", ".html", ".md", ".log"}:
            assert str(ROOT) not in path.read_text(errors="replace"), path.name


def test_the_host_was_watched_during_every_round(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    bundle = Bundle.open(finished[1], finished[1].parent)
    telemetry = bundle.telemetry()
    assert {record["round"] for record in lines(finished[1])} == set(telemetry["round"]) - {IDLE_ROUND}
    assert {"host", *(gpu.uuid for gpu in bundle.manifest.machine.gpus)} == set(telemetry["device"])
    assert not (finished[1] / "telemetry.jsonl").exists()


def test_a_report_is_rebuilt_from_the_bundle_alone(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    bundle = finished[1]
    (bundle / "report.html").unlink()
    done = subprocess.run([sys.executable, "-m", "harness.report", str(bundle)], cwd=ROOT, capture_output=True, text=True, timeout=BUDGET_OF_TEST_S, check=False)
    assert 0 == done.returncode, done.stderr
    assert (bundle / "report.html").is_file()


def test_judging_again_gives_the_same_verdicts(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    bundle = finished[1]
    before = verdicts(bundle)
    done = subprocess.run([sys.executable, "-m", "harness.judge", str(bundle)], cwd=ROOT, capture_output=True, text=True, timeout=BUDGET_OF_TEST_S, check=False)
    assert 0 == done.returncode, done.stderr
    assert before == verdicts(bundle)


def test_an_arm_that_fails_ends_with_code_2_and_takes_nothing_else_with_it(tmp_path: Path) -> None:
    done = run(results=tmp_path, target="tests.fakes:build_failing")
    assert 2 == done.returncode, done.stderr[-2000:]
    result = case(bundles(tmp_path)[0], "graph-speedup.article")
    assert result["estimate"] is None
    assert "Traceback" not in done.stderr
    assert "failed: graph-speedup.article: the worker: RuntimeError: this arm cannot run" in done.stderr


def test_a_loss_that_is_no_number_is_no_result_and_no_word_of_any_file(tmp_path: Path) -> None:
    done = run(results=tmp_path, target="tests.fakes:build_exploding")
    assert 2 == done.returncode, done.stderr[-2000:]
    bundle = bundles(tmp_path)[0]
    assert case(bundle, "graph-speedup.article")["estimate"] is None
    reasons = [record["outcome"]["reason"]["text"] for record in lines(bundle) if record["outcome"]["state"] == "invalid"]
    assert any("non-finite loss at step 3" in text for text in reasons)
    assert "nan" not in (bundle / "report.md").read_text().lower().split()


def test_arms_that_compute_different_things_are_no_speed_up(tmp_path: Path) -> None:
    run(results=tmp_path, target="tests.fakes:build_wrong")
    result = case(bundles(tmp_path)[0], "graph-speedup.article")
    assert "not_equivalent" == result["verdict"]["reason"]["code"]
    assert result["equivalence"].startswith("not proven")


def children_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def wait_for_rounds(process: subprocess.Popen[str], results: Path, count: int) -> Path:
    deadline = time.monotonic() + BUDGET_OF_TEST_S
    while time.monotonic() < deadline and process.poll() is None:
        found = bundles(results)
        if found and (found[0] / "records.jsonl").exists() and len((found[0] / "records.jsonl").read_text().splitlines()) >= count:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"no {count} rounds: {process.poll()}")


def test_ctrl_c_keeps_what_is_finished_and_leaves_no_child(tmp_path: Path) -> None:
    process = start(results=tmp_path)
    bundle = wait_for_rounds(process, tmp_path, 3)
    children = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=BUDGET_OF_TEST_S)
    assert 130 == process.returncode
    assert len(lines(bundle)) >= 3
    assert (bundle / "report.html").is_file()
    assert [] == [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def told(bundle: Path) -> Any:
    """What a reader takes from a verdict file, without the figures that differ from run to run."""
    return [
        (claim["claim"], claim["verdict"]["word"], [(c["case"], c["verdict"]["word"], c["equivalence"], c["estimate"]["n"]) for c in claim["cases"]])
        for claim in verdicts(bundle)["claims"]
    ]


def test_a_run_killed_in_the_middle_is_resumed_without_measuring_again(tmp_path: Path, finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    process = start(results=tmp_path)
    bundle = wait_for_rounds(process, tmp_path, 5)
    children = children_of(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=BUDGET_OF_TEST_S)
    before = lines(bundle)
    done = run(f"resume={bundle}", results=tmp_path)
    assert 0 == done.returncode, done.stderr[-2000:]
    after = lines(bundle)
    assert before == after[: len(before)]
    measured = [(r["contrast"], r["index"]) for r in after if not r["contrast"].startswith("control") and r["outcome"]["state"] == "completed"]
    assert len(set(measured)) == len(measured)
    assert told(finished[1]) == told(bundle)
    assert {record["round"] for record in after} <= set(Bundle.open(bundle, tmp_path).telemetry()["round"])
    assert [] == [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert 1 == len(bundles(tmp_path))


def test_a_half_written_line_does_not_stop_a_resume(tmp_path: Path) -> None:
    run(results=tmp_path)
    bundle = bundles(tmp_path)[0]
    records = bundle / "records.jsonl"
    text = records.read_text()
    records.write_text(text[: len(text) - 200])
    done = run(f"resume={bundle}", results=tmp_path)
    assert 0 == done.returncode, done.stderr[-2000:]
    assert any("torn" in path.name for path in bundle.iterdir())


def test_a_resume_takes_no_settings_but_the_runs_own(tmp_path: Path) -> None:
    run("budget=1s", results=tmp_path)
    bundle = bundles(tmp_path)[0]
    done = plain(f"resume={bundle}", "alpha=0.05")
    assert (1, True) == (done.returncode, "alpha=0.05: a run is resumed with its own settings" in done.stderr)
    done = plain(f"resume={bundle}", "plan=true")
    assert (1, True) == (done.returncode, "leave one of plan= and resume= out" in done.stderr)


def test_a_run_of_another_machine_is_not_gone_on_with(tmp_path: Path) -> None:
    run("budget=1s", results=tmp_path)
    bundle = bundles(tmp_path)[0]
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "fingerprint": "machine-0000000000"}))
    done = run(f"resume={bundle}", results=tmp_path)
    assert (1, True) == (done.returncode, "was measured on another machine or with other software" in done.stderr)


def test_a_resume_with_other_settings_is_refused(tmp_path: Path) -> None:
    run("budget=1s", results=tmp_path)
    bundle = bundles(tmp_path)[0]
    done = run(f"resume={bundle}", "workload.batch=3", results=tmp_path)
    assert 1 == done.returncode
    assert "was planned otherwise" in done.stderr


# ---------------------------------------------------------------- a person's images


def images(folder: Path, *names: str) -> Path:
    for name in names or ("cats/one.jpg", "dogs/two.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"no picture")
    return folder


def ground(bundle: Path) -> Any:
    return json.loads((bundle / "manifest.json").read_text())["ground"]


@pytest.fixture(scope="module")
def skipping(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A bundle that was begun on images, bad ones left out, stopped before its first round and resumed; and the folder of the images."""
    results = tmp_path_factory.mktemp("skipping")
    folder = images(results / "set")
    begun = run("budget=1s", f"data.dir={folder}", "data.on_bad=skip", results=results, target="tests.fakes:build_skipping")
    assert 0 == begun.returncode, begun.stderr[-2000:]
    (bundle,) = bundles(results)
    done = run(f"resume={bundle}", f"data.dir={folder}", results=results, target="tests.fakes:build_skipping")
    assert 0 == done.returncode, done.stderr[-2000:]
    return bundle, folder


def test_images_that_were_left_out_are_counted_and_named_in_the_report(skipping: tuple[Path, Path]) -> None:
    page = (skipping[0] / "report.html").read_text()
    assert "2 files or records of every pass over the images, as they cannot be decoded (data.on_bad=skip)." in page
    assert "2: cats/torn.jpg, dogs/empty.jpg" in page


def test_a_resume_goes_on_leaving_out_what_the_run_left_out(skipping: tuple[Path, Path]) -> None:
    asked = [trial["asked"] for record in lines(skipping[0]) for trial in record["trials"]]
    assert {"skip"} == {settings["on_bad"] for settings in asked}


def test_a_bundle_knows_its_images_and_storage_and_names_no_folder(skipping: tuple[Path, Path]) -> None:
    found = ground(skipping[0])
    assert (2, 20, True) == (found["images"]["files"], found["images"]["total_bytes"], found["images"]["digest"].startswith("images-"))
    assert str(skipping[1]) not in (skipping[0] / "manifest.json").read_text() + (skipping[0] / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "and would go on with the suite's own photographs; give data.dir= with the folder that it began with, unchanged, or start a new run"),
        (["data.dir={other}"], "was measured on a set of 2 files and 20 bytes"),
        (["data.dir={other}"], "would go on with a set of 1 file and 10 bytes"),
        (["data.dir={set}", "data.on_bad=fail"], "data.on_bad=fail: resume="),
    ],
    ids=["no images", "the run's", "others", "bad ones"],
)
def test_a_resume_on_other_images_is_refused_in_one_line(skipping: tuple[Path, Path], tmp_path: Path, arguments: list[str], said: str) -> None:
    bundle, folder = skipping
    words = {"other": images(tmp_path / "other", "one.jpg"), "set": folder}
    before = lines(bundle)
    done = plain(f"resume={bundle}", *(argument.format(**words) for argument in arguments))
    assert (1, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert said in done.stderr
    assert before == lines(bundle)


def test_a_resume_on_another_storage_is_refused_and_both_are_named(tmp_path: Path) -> None:
    run("budget=1s", results=tmp_path)
    (bundle,) = bundles(tmp_path)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["ground"] = {**manifest["ground"], "data": {"file_system": "nfs4", "drive": "mount-0123456789"}}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    done = plain(f"resume={bundle}")
    assert (1, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert "its images lay on nfs4, mount-0123456789, and would now lie on " in done.stderr


def test_a_run_that_was_begun_before_its_ground_was_kept_is_resumed(tmp_path: Path) -> None:
    run("budget=1s", results=tmp_path)
    (bundle,) = bundles(tmp_path)
    manifest = json.loads((bundle / "manifest.json").read_text())
    del manifest["ground"]
    del manifest["config"]["data"]
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    done = run(f"resume={bundle}", "budget=1s", f"data.dir={images(tmp_path / 'set')}", results=tmp_path)
    assert (0, 2) == (done.returncode, len(json.loads((bundle / "manifest.json").read_text())["parts"])), done.stderr


def test_a_budget_that_is_too_short_measures_nothing_and_says_so(tmp_path: Path) -> None:
    done = run("budget=1s", results=tmp_path)
    assert 0 == done.returncode, done.stderr[-2000:]
    assert "no_rounds" == case(bundles(tmp_path)[0], "graph-speedup.article")["verdict"]["reason"]["code"]


def test_a_busy_neighbour_is_seen_and_makes_no_wrong_verdict(tmp_path: Path) -> None:
    eater = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        run(results=tmp_path)
    finally:
        eater.kill()
        eater.wait()
    bundle = bundles(tmp_path)[0]
    quads = [quad for record in lines(bundle) for quad in record.get("quads", ())]
    assert any(not quad["accepted"] or "foreign_load" in quad.get("flags", ()) for quad in quads if quad["index"] > 0)
    assert verdicts(bundle)["claims"][0]["verdict"]["word"] in {"READING", "CONFIRMED", "INCONCLUSIVE"}
    assert 1.0 < case(bundle, "graph-speedup.article")["estimate"]["point"]


def test_runs_at_once_take_turns_and_lose_nothing(tmp_path: Path) -> None:
    started = [start("budget=21s", results=tmp_path) for _ in range(3)]
    for process in started:
        process.communicate(timeout=BUDGET_OF_TEST_S)
    assert [0, 0, 0] == [process.returncode for process in started]
    assert 3 == len(bundles(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["+sweep=smoke", "workload.batch=abc"], "workload.batch=abc"),
        (["+sweep=nope"], "+sweep=nope"),
        (["+sweep=smoke", "switch.input=feed_dict", "switch.execution=eager"], "input=feed_dict with execution=eager"),
        (["+sweep=smoke", "resume=no-such-run"], "no-such-run"),
        (["+sweep=input", "data.dir=no-such-folder"], "data.dir=no-such-folder: there is no such folder"),
        (["+sweep=checkpoint", "devices.kind=cpu", "checkpoint.interval=4", "only=[nfs-20pct.every_4_steps]"], "checkpoint.interval=4: no job that sweep checkpoint"),
        (["+sweep=training", "devices.kind=cpu", "switch.page_cache=cold"], "switch.page_cache=cold: nothing that sweep training measures here can take it"),
    ],
)
def test_a_refusal_is_one_line_with_code_1_and_writes_nothing(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = plain(*arguments, f"results_dir={tmp_path}")
    assert 1 == done.returncode
    assert 1 == len(done.stderr.splitlines())
    assert message in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "+sweep=smoke", "devices.kind=gpu", f"results_dir={tmp_path}"],
        cwd=ROOT, capture_output=True, text=True, timeout=BUDGET_OF_TEST_S, check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert 1 == done.returncode
    assert "asked for a GPU, found 0" in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_no_argument_lists_the_sweeps_and_runs_nothing(tmp_path: Path) -> None:
    done = plain()
    assert 0 == done.returncode
    assert all(f"  {sweep} " in done.stdout for sweep in ("full", "quick", "smoke", "training"))


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m harness +sweep=full plan=true devices.kind=cpu | head -1"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "" == done.stderr


def test_a_plan_lists_every_claim_and_runs_nothing(tmp_path: Path) -> None:
    done = plain("+sweep=full", "plan=true", "devices.kind=cpu", f"results_dir={tmp_path}")
    assert 0 == done.returncode, done.stderr
    missing = [path.stem for path in (ROOT / "conf" / "claims").glob("*.yaml") if path.stem not in done.stdout]
    assert [] == missing
    assert [] == list(tmp_path.iterdir())
