"""What a killed run left behind is ended, and nothing else; two runs do not measure at once."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from harness.errors import Interrupted, MeasureError
from harness.measure.lock import machine_lock
from harness.measure.machine import boot_id
from harness.measure.orphans import end_orphans, write_live
from harness.measure.process import start_ticks

if TYPE_CHECKING:
    from pathlib import Path


def make_live(path: Path, workers: dict[int, int | None], **fields) -> Path:
    gone = {"pid": 1 << 22, "start_ticks": 1}
    rows = [{"pid": pid, "start_ticks": ticks, "trial": "a", "role": "lead"} for pid, ticks in workers.items()]
    path.write_text(json.dumps({"boot_id": boot_id(), "parent": gone, "workers": rows, **fields}))
    return path


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        yield child
        child.kill()


def test_a_worker_whose_start_time_matches_is_ended(tmp_path: Path, sleeper):
    live = make_live(tmp_path / "live.json", {sleeper.pid: start_ticks(sleeper.pid)})
    assert [sleeper.pid] == end_orphans(live)
    assert -15 == sleeper.wait(timeout=5)
    assert not live.exists()


def test_a_pid_that_was_reused_is_left_alone(tmp_path: Path, sleeper):
    assert [] == end_orphans(make_live(tmp_path / "live.json", {sleeper.pid: start_ticks(sleeper.pid) + 1}))
    assert None is sleeper.poll()


def test_nothing_is_ended_after_a_reboot(tmp_path: Path, sleeper):
    assert [] == end_orphans(make_live(tmp_path / "live.json", {sleeper.pid: start_ticks(sleeper.pid)}, boot_id="another"))
    assert None is sleeper.poll()


def test_workers_of_a_parent_that_still_lives_are_no_orphans(tmp_path: Path, sleeper):
    write_live(tmp_path / "live.json", [(sleeper.pid, start_ticks(sleeper.pid), "a", "lead")])
    assert [] == end_orphans(tmp_path / "live.json")
    assert None is sleeper.poll()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"workers": 3}', None])
def test_a_missing_or_damaged_file_ends_nobody(tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / "live.json").write_text(text)
    assert [] == end_orphans(tmp_path / "live.json")


def test_the_second_run_waits_and_is_told_for_whom(tmp_path: Path):
    said, order = [], []
    waiting = threading.Event()

    def tell(text: str) -> None:
        said.append(text)
        waiting.set()

    def second() -> None:
        with machine_lock("second", tell=tell, path=tmp_path / "lock", poll_s=0.01):
            order.append("second")

    with machine_lock("run-one", tell=said.append, path=tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert ["first", "second"] == order
    assert [f"Waiting for another measurement on this machine: run-one (process {os.getpid()})."] == said


def test_who_waits_can_be_stopped(tmp_path: Path):
    lock = tmp_path / "lock"
    with (
        machine_lock("one", tell=print, path=lock),
        pytest.raises(Interrupted),
        machine_lock("two", tell=lambda text: None, stop=lambda: True, path=lock),
    ):
        pass


def test_the_lock_is_free_again_after_its_holder(tmp_path: Path):
    for name in ("one", "two"):
        with machine_lock(name, tell=pytest.fail, path=tmp_path / "lock"):
            pass


def test_a_lock_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path):
    with pytest.raises(MeasureError, match="TMPDIR"), machine_lock("one", tell=print, path=tmp_path / "missing" / "lock"):
        pass
