"""The command: what it understands, its exit codes, and what stands on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.doctor import examine as reading
from harness.doctor.__main__ import main, parse
from harness.errors import ConfigError, Interrupted
from harness.measure.lock import NAME, machine_lock
from tests.doctor.builders import make_facts, make_host, on_cpu

ROOT = Path(__file__).resolve().parents[2]


def answering(monkeypatch, facts):
    """Let the command see these facts; returns the list of what it was asked to watch."""
    asked = []

    def examine(noise_s, *, tell):
        asked.append(noise_s)
        tell("watching ...")
        return "xeon-4c", facts

    monkeypatch.setattr(reading, "examine", examine)
    return asked


def command(*arguments: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "harness.doctor", *arguments]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})


@pytest.mark.parametrize(("code", "facts"), [(0, make_facts()), (0, on_cpu()), (2, make_facts(host=make_host(memory_free_bytes=1)))])
def test_only_errors_make_the_command_fail(monkeypatch, code, facts):
    answering(monkeypatch, facts)
    assert code == main([])


def test_a_warning_does_not_make_the_command_fail(monkeypatch, capsys):
    answering(monkeypatch, make_facts(host=make_host(time_source="hpet")))
    assert (0, True) == (main([]), "1 warning" in capsys.readouterr().out)


def test_with_json_nothing_else_stands_on_stdout(monkeypatch, capsys):
    answering(monkeypatch, on_cpu())
    assert 0 == main(["--json"])
    said = capsys.readouterr()
    assert ("xeon-4c", "watching ...\n") == (json.loads(said.out)["machine"], said.err)


@pytest.mark.parametrize(
    ("seconds", "arguments"), [(10.0, []), (None, ["--no-noise"]), (4.0, ["--noise-seconds", "4"]), (600.0, ["--noise-seconds=600"])]
)
def test_how_long_to_watch_can_be_said(monkeypatch, seconds, arguments):
    asked = answering(monkeypatch, on_cpu())
    main(arguments)
    assert [seconds] == asked


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("--jason", ["--jason"]),
        ("--js", ["--js"]),
        ("RUN", ["RUN"]),
        ("3.9", ["--noise-seconds", "3.9"]),
        ("601", ["--noise-seconds", "601"]),
        ("nan", ["--noise-seconds", "nan"]),
        ("ten", ["--noise-seconds", "ten"]),
        ("noise-seconds", ["--noise-seconds"]),
    ],
)
def test_arguments_that_mean_nothing_are_refused_in_one_line(said, arguments):
    with pytest.raises(ConfigError, match=said) as caught:
        parse(arguments)
    assert 1 == len(str(caught.value).splitlines())


def test_ctrl_c_is_an_interruption(monkeypatch):
    def examine(noise_s, *, tell):
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "examine", examine)
    with pytest.raises(Interrupted) as caught:
        main([])
    assert 130 == caught.value.exit_code


def test_a_wrong_argument_ends_with_1_and_one_line(tmp_path):
    done = command("--jason", tmp_path=tmp_path)
    assert (1, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))


def test_help_names_the_options(tmp_path):
    done = command("--help", tmp_path=tmp_path)
    assert (0, True) == (done.returncode, all(option in done.stdout for option in ("--json", "--no-noise", "--noise-seconds")))


def test_while_another_run_measures_nothing_is_started_that_would_disturb_it(tmp_path):
    with machine_lock("run-one", tell=pytest.fail, path=tmp_path / NAME):
        done = command("--json", tmp_path=tmp_path)
    found = {(finding["area"], finding["check"]): finding for finding in json.loads(done.stdout)["findings"]}
    assert ("measuring", "unknown", "unknown") == tuple(
        found[place]["code"] for place in (("quiet", "other runs"), ("quiet", "noise"), ("TensorFlow", "tensorflow"))
    )
    assert ("", True) == (done.stderr, "run-one" in found["quiet", "other runs"]["found"])


def test_the_doctor_does_not_import_a_framework():
    code = (
        "import sys, harness.doctor.examine, harness.doctor.checks, harness.doctor.show; print(*{'tensorflow', 'keras', 'hydra'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ("", 0) == (done.stdout.strip(), done.returncode), done.stderr


@pytest.mark.tensorflow
def test_this_machine_is_examined_whole(tmp_path):
    done = command("--json", "--noise-seconds", "4", tmp_path=tmp_path)
    told = json.loads(done.stdout)
    found = {(finding["area"], finding["check"]): finding for finding in told["findings"]}
    assert ("ok", 3) == (found["TensorFlow", "tensorflow"]["code"], found["quiet", "noise"]["numbers"]["quads"])
    assert (0 if told["fit"] else 2) == done.returncode
