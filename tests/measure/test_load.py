"""Counters of the machine, and what their differences mean."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from harness.measure.load import (
    Load,
    cgroup_directories,
    cpu_seconds,
    grain_s,
    group_members,
    group_seconds,
    read_load,
    throttled_seconds,
    used,
    waited_seconds,
)

if TYPE_CHECKING:
    from pathlib import Path


def make_load(t_s: float, idle_s: float | None = 0.0, **fields) -> Load:
    defaults = {"cores": 2, "steal_s": 0.0, "throttled_s": 0.0, "parent_s": 0.0, "groups": {}}
    return Load(t_s=t_s, idle_s=idle_s, **{**defaults, **fields})


def test_foreign_load_is_busy_time_less_ours():
    after = make_load(2.0, idle_s=1.5, parent_s=0.5, groups={7: 1.0, 8: 0.4})
    assert pytest.approx((4.0 - 1.5 - 0.5 - 1.4) / 2) == used(make_load(0.0, groups={7: 0.0, 8: 0.0}), after).foreign_cores


def test_stolen_time_is_not_foreign_load():
    result = used(make_load(0.0), make_load(1.0, idle_s=1.5, steal_s=0.5))
    assert (0.0, 0.5) == (result.foreign_cores, result.steal_cores)


def test_the_counters_grain_never_makes_load_negative():
    assert 0.0 == used(make_load(0.0), make_load(1.0, idle_s=2.01)).foreign_cores


def test_a_counter_that_cannot_be_read_makes_the_load_unknown():
    assert None is used(make_load(0.0), make_load(1.0, idle_s=None)).foreign_cores
    assert None is used(make_load(0.0), make_load(1.0, groups={7: None})).foreign_cores


def test_a_group_that_was_not_there_before_has_begun_since():
    result = used(make_load(0.0), make_load(1.0, idle_s=1.5, groups={7: 0.5}))
    assert (0.0, {7: 0.5}) == (result.foreign_cores, result.groups_s)


def test_a_group_that_has_lost_a_process_with_its_time_makes_the_load_unknown():
    assert None is used(make_load(0.0, groups={7: 30.0}), make_load(1.0, idle_s=1.5, groups={7: 0.5})).foreign_cores


def test_a_group_s_time_may_fall_by_the_counters_grain():
    assert 0.51 == pytest.approx(used(make_load(0.0, groups={7: 1.0}), make_load(1.0, idle_s=1.5, groups={7: 0.99})).foreign_cores)


def test_the_grain_is_three_standard_errors_of_counters_that_are_cut_off_to_a_tick():
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert [3 * tick_s, 6 * tick_s] == pytest.approx([grain_s(2), grain_s(8)])


def employer(burnt_s: float) -> str:
    """The code of a process whose child, started and waited for, burns so much core time; then it says so and rests."""
    child = f"import time\nwhile time.process_time() < {burnt_s}: pass"
    return f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {child!r}])\nprint(flush=True); time.sleep(60)"


def test_a_group_s_time_holds_that_of_its_ended_children():
    with subprocess.Popen([sys.executable, "-c", employer(0.2)], stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        own_s, waited_s, group_s = cpu_seconds(worker.pid), waited_seconds(worker.pid), group_seconds(worker.pid, [worker.pid])
        worker.kill()
    assert waited_s > 0.15  # less a tick each of user's and system's time
    assert own_s + waited_s <= group_s


def test_a_member_that_has_ended_leaves_its_time_to_who_waited_and_makes_nothing_unknown():
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert 0.0 < group_seconds(os.getpid(), [os.getpid(), gone.pid])
    assert None is group_seconds(gone.pid, [gone.pid])
    assert None is waited_seconds(gone.pid)


def test_a_worker_s_time_counts_its_ended_threads_finer_than_a_tick():
    code = (
        "import threading, time\ndef f():\n t = time.thread_time()\n while time.thread_time() - t < 0.05: pass\n"
        "t = threading.Thread(target=f); t.start(); t.join(); print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        spent_s = cpu_seconds(child.pid)
        child.kill()
    assert spent_s > 0.05
    assert spent_s * 100 != int(spent_s * 100)


def test_the_time_of_a_process_that_is_gone_is_unknown():
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert None is cpu_seconds(child.pid)


def test_children_of_a_worker_count_as_the_worker():
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True) as shell:
        grandchild = int(shell.stdout.readline())
        members = group_members([shell.pid])
        os.killpg(shell.pid, 9)
    assert {shell.pid: (shell.pid, grandchild)} == members


def test_reading_this_machine_gives_growing_counters():
    before = read_load({os.getpid(): [os.getpid()]})
    time.sleep(0.05)
    assert used(before, read_load({os.getpid(): [os.getpid()]})).elapsed_s > 0.04


@pytest.mark.parametrize(
    ("membership", "folder", "text"),
    [
        ("0::/job\n", "job", "usage_usec 5\nthrottled_usec 2500000\n"),
        ("3:cpu,cpuacct:/job\n", "cpu,cpuacct/job", "nr_throttled 3\nthrottled_time 2500000000\n"),
        ("1:cpu:/elsewhere\n", "cpu", "throttled_time 2500000000\n"),
    ],
)
def test_throttling_is_read_from_either_version_of_control_groups(tmp_path: Path, membership: str, folder: str, text: str):
    (tmp_path / "self").write_text(membership)
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "cpu.stat").write_text(text)
    assert 2.5 == throttled_seconds(tmp_path, tmp_path / "self")


def test_without_control_groups_throttling_is_unknown(tmp_path: Path):
    assert None is throttled_seconds(tmp_path, tmp_path / "missing")
    assert [] == cgroup_directories("cpu", tmp_path, tmp_path / "missing")
