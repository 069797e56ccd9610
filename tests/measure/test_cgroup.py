"""Memory control groups of both versions on a tree of plain files, and one real kill where the machine permits it."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from harness.measure import cgroup, process
from harness.measure.cgroup import GroupError, MemoryGroup, make_memory_group, memory_group_version
from harness.measure.process import exit_reason
from harness.model import Arrangement, Driver, RoundRecord, State, Trial
from tests.measure.builders import make_round, make_trial, run

MIB = 1 << 20
V1_FILES = {"cgroup.procs": "", "memory.limit_in_bytes": "9", "memory.memsw.limit_in_bytes": "9", "memory.failcnt": "0"}
V2_FILES = {"cgroup.procs": "", "cgroup.subtree_control": "", "memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0"}


class Kernel:
    """A tree of groups made of plain files. `own` is this process's group; new groups get the files of `version`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "v1", root: str = "/", own: str = "/mine/own") -> None:
        self.folder, self.version = folder, version
        self.top = folder / "a tree"
        self.files = dict(V1_FILES if version == "v1" else V2_FILES)
        self.own = self.top / own.removeprefix(root).lstrip("/")
        self.own.mkdir(parents=True)
        for group in {self.top, self.own, self.own.parent}:
            self.fill(group)
        self.list_groups(f"9:cpu:/else\n{'4:memory' if version == 'v1' else '0:'}:{own}\n")
        self.list_mounts(self.mount(root, self.top, "cgroup" if version == "v1" else "cgroup2", "rw,memory" if version == "v1" else "rw"))
        monkeypatch.setattr(cgroup, "make_directory", self.make_directory)
        monkeypatch.setattr(cgroup, "remove_directory", shutil.rmtree)

    @staticmethod
    def mount(root: str, at: Path, kind: str, options: str) -> str:
        place = str(at).replace(" ", r"\040")
        return f"35 31 0:32 {root} {place} rw,relatime shared:5 - {kind}  {options}\n"  # an empty word between the last two

    def list_groups(self, text: str) -> None:
        (self.folder / "membership").write_text(text)

    def list_mounts(self, text: str) -> None:
        (self.folder / "mounts").write_text("22 1 0:20 / /proc rw - proc  rw\n" + text)

    def fill(self, group: Path) -> None:
        for name, text in self.files.items():
            (group / name).write_text(text)

    def make_directory(self, path: Path) -> None:
        path.mkdir()
        self.fill(path)

    @property
    def lists(self) -> dict[str, Path]:
        return {"membership": self.folder / "membership", "mounts": self.folder / "mounts"}

    def make(self, limit_bytes: int = 64 * MIB) -> MemoryGroup:
        return make_memory_group(limit_bytes, **self.lists)


@pytest.fixture
def v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.fixture
def v2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path, monkeypatch, "v2")
    (kernel.own.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    return kernel


# ---------------------------------------------------------------- making


def test_version_1_limits_memory_and_swap_together_below_this_process_s_own_group(v1: Kernel):
    group = v1.make()
    limits = [(group.path / name).read_text() for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")]
    assert ("v1", v1.own, [str(64 * MIB)] * 2) == (group.version, group.path.parent, limits)


def test_where_swap_is_not_counted_there_is_no_limit_of_it(v1: Kernel):
    del v1.files["memory.memsw.limit_in_bytes"]
    assert not (v1.make().path / "memory.memsw.limit_in_bytes").exists()


def test_version_2_forbids_swap_and_kills_the_whole_group(v2: Kernel):
    group = v2.make()
    assert [str(64 * MIB), "0", "1"] == [(group.path / name).read_text() for name in ("memory.max", "memory.swap.max", "memory.oom.group")]


def test_in_version_2_a_group_is_made_beside_the_own_one_which_cannot_pass_the_controller_on(v2: Kernel):
    assert v2.own.parent == v2.make().path.parent


def test_in_version_2_the_own_group_comes_first_if_it_passes_the_controller_on(v2: Kernel):
    (v2.own / "cgroup.subtree_control").write_text("memory")
    assert v2.own == v2.make().path.parent


def test_a_controller_that_is_not_passed_on_is_named(v2: Kernel):
    (v2.own.parent / "cgroup.subtree_control").write_text("cpu")
    version, why = memory_group_version(**v2.lists)
    assert (None, True, True) == (version, "cgroup.subtree_control" in why, "systemd-run" in why)


def test_version_1_goes_before_version_2_where_both_are_mounted(v1: Kernel):
    v1.list_groups("4:memory:/mine/own\n0::/elsewhere\n")
    v1.list_mounts(v1.mount("/", v1.folder, "cgroup2", "rw") + v1.mount("/", v1.top, "cgroup", "rw,memory"))
    assert ("v1", v1.own) == ((group := v1.make()).version, group.path.parent)


@pytest.mark.parametrize(("root", "own", "place"), [("/docker/x", "/docker/x/sub", "sub"), ("/docker/x", "/docker/x", ""), ("/", "/../../up", "")])
def test_a_container_sees_a_part_of_the_tree_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, own: str, place: str):
    kernel = Kernel(tmp_path, monkeypatch, root="/", own="/sub")
    kernel.list_groups(f"4:memory:{own}\n")
    kernel.list_mounts(kernel.mount(root, kernel.top, "cgroup", "rw,memory"))
    assert kernel.top / place == kernel.make().path.parent


def test_a_group_outside_of_what_is_mounted_is_made_at_the_top(v1: Kernel):
    v1.list_mounts(v1.mount("/docker/x", v1.top, "cgroup", "rw,memory"))
    assert v1.top == v1.make().path.parent


@pytest.mark.parametrize("mounts", ["", "22 1 0:20 / /sys rw - sysfs sysfs rw\n"])
def test_a_kernel_without_the_controller_is_told(v1: Kernel, mounts: str):
    v1.list_mounts(mounts)
    with pytest.raises(GroupError, match="no memory control group that is mounted; it takes a kernel"):
        v1.make()


def test_a_group_that_may_not_be_made_is_refused_with_what_would_permit_it_and_no_path(v1: Kernel, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(cgroup, "make_directory", refuse)
    with pytest.raises(GroupError, match="Read-only file system; it takes root") as refused:
        v1.make()
    assert str(v1.folder) not in str(refused.value)


def test_a_group_whose_limit_is_refused_is_removed_again(v1: Kernel, monkeypatch: pytest.MonkeyPatch):
    def make_with_a_folder_in_the_way(path: Path) -> None:
        (path / "memory.limit_in_bytes").mkdir(parents=True)

    monkeypatch.setattr(cgroup, "make_directory", make_with_a_folder_in_the_way)
    with pytest.raises(GroupError, match="refused a memory control group's limit of 67108864 bytes"):
        v1.make()
    assert [] == list(v1.own.glob("speedproof-*"))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_version_that_works_is_found_by_making_and_removing_a_group(request: pytest.FixtureRequest, version: str):
    kernel = request.getfixturevalue(version)
    assert version == memory_group_version(**kernel.lists)[0]
    assert [] == list(kernel.top.rglob("speedproof-*"))


# ---------------------------------------------------------------- asking and removing


@pytest.mark.parametrize(
    ("version", "file", "text", "killed"),
    [
        ("v1", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", True),
        ("v1", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", False),
        ("v1", "memory.failcnt", "3\n", True),
        ("v1", "memory.failcnt", "0\n", False),
        ("v2", "memory.events", "oom 2\noom_kill 2\noom_group_kill 1\n", True),
        ("v2", "memory.events", "max 7\noom 0\noom_kill 0\n", False),
    ],
)
def test_a_kill_is_read_from_the_kernel_s_counters(request: pytest.FixtureRequest, version: str, file: str, text: str, killed: bool):
    group = request.getfixturevalue(version).make()
    (group.path / file).write_text(text)
    assert killed is group.killed()


def test_a_limit_that_was_only_hit_is_no_kill_where_kills_are_counted(v1: Kernel):
    group = v1.make()
    (group.path / "memory.oom_control").write_text("oom_kill 0\n")
    (group.path / "memory.failcnt").write_text("12\n")
    assert not group.killed()


@pytest.mark.parametrize(("version", "file"), [("v1", "memory.max_usage_in_bytes"), ("v2", "memory.peak")])
def test_the_most_that_a_group_held_is_null_where_the_kernel_does_not_tell(request: pytest.FixtureRequest, version: str, file: str):
    group = request.getfixturevalue(version).make()
    assert None is group.peak_bytes()
    (group.path / file).write_text("1234\n")
    assert 1234 == group.peak_bytes()


def test_removing_waits_until_the_kernel_lets_go(v1: Kernel, monkeypatch: pytest.MonkeyPatch):
    group, tries = v1.make(), count()

    def busy_at_first(path: Path) -> None:
        if next(tries) < 2:
            raise OSError(errno.EBUSY, "Device or resource busy")
        shutil.rmtree(path)

    monkeypatch.setattr(cgroup, "remove_directory", busy_at_first)
    assert (True, False, 3) == (group.remove(60.0), group.path.exists(), next(tries))


def test_a_group_that_will_not_go_is_left(v1: Kernel, monkeypatch: pytest.MonkeyPatch):
    def busy(path: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    group = v1.make()
    monkeypatch.setattr(cgroup, "remove_directory", busy)
    assert not group.remove(0.05)


def test_removing_a_group_twice_does_no_harm(v1: Kernel):
    group = v1.make()
    assert [True, True] == [group.remove(), group.remove()]


def test_a_death_at_the_limit_says_so_with_its_size():
    reason = exit_reason(-9, "the worker", {"limit_bytes": 96 * MIB, "peak_bytes": None})
    assert ("out_of_memory", "the worker was killed by the kernel at its memory limit of 96 MiB") == (reason.code, reason.text)
    assert {"limit_bytes": 96 * MIB, "peak_bytes": None, "signal": 9} == reason.numbers


@pytest.mark.parametrize("code", [0, 1, -11, None])
def test_other_deaths_are_no_matter_of_memory(code: int | None):
    assert "out_of_memory" != exit_reason(code, "the worker", {"limit_bytes": MIB}).code


# ---------------------------------------------------------------- workers in groups


def limited(trial: Trial, limit_bytes: int = 64 * MIB) -> Trial:
    return replace(trial, processes=tuple(replace(one, cgroup_memory_bytes=limit_bytes) for one in trial.processes))


def solo(folder: Path, *trials: Trial) -> RoundRecord:
    return run(make_round(*trials, arrangement=Arrangement.SOLO, quads=1), folder)


def stand_in(monkeypatch: pytest.MonkeyPatch, group: MemoryGroup) -> None:
    monkeypatch.setattr(process, "make_memory_group", lambda limit_bytes: group)


def test_a_worker_enters_its_group_by_its_own_pid(v2: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    group = v2.make()
    stand_in(monkeypatch, group)
    entered: list[int] = []
    monkeypatch.setattr(cgroup, "remove_directory", lambda path: entered.append(int((path / "cgroup.procs").read_text())) or shutil.rmtree(path))
    record = solo(tmp_path, limited(make_trial("a")))
    assert (State.COMPLETED, 1) == (record.outcome.state, len(entered))
    assert os.getpid() != entered[0] > 1


def test_a_worker_killed_at_its_limit_is_out_of_memory(v2: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    group = v2.make()
    (group.path / "memory.events").write_text("oom_kill 1\n")
    stand_in(monkeypatch, group)
    record = solo(tmp_path, limited(make_trial("a", fault="sigkill", at="build")))
    assert (State.FAILED, "out_of_memory", "build") == (record.outcome.state, record.outcome.reason.code, record.outcome.phase)
    assert (64 * MIB, True) == (record.outcome.reason.numbers["limit_bytes"], record.outcome.out_of_memory)


def test_a_group_that_will_not_go_is_a_flag_of_the_round(v2: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def busy(path: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    stand_in(monkeypatch, v2.make())
    monkeypatch.setattr(cgroup, "remove_directory", busy)
    monkeypatch.setattr(process, "REMOVE_S", 0.0)
    record = solo(tmp_path, limited(make_trial("a")))
    assert (State.COMPLETED, [("memory_group_left", {"groups": 1})]) == (record.outcome.state, [(f.code, f.numbers) for f in record.flags])


def test_a_worker_that_may_not_enter_its_group_has_failed_by_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stand_in(monkeypatch, MemoryGroup(tmp_path / "gone", "v1", MIB))
    outcome = solo(tmp_path, limited(make_trial("a"))).outcome
    assert (State.FAILED, "cgroup_refused", "import") == (outcome.state, outcome.reason.code, outcome.phase)
    assert "No such file" in outcome.reason.text


def test_a_group_that_cannot_be_made_fails_the_trial_with_what_would_permit_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(limit_bytes: int) -> MemoryGroup:
        raise GroupError(f"no memory control group could be made: Permission denied; {cgroup.PERMITS}")

    monkeypatch.setattr(process, "make_memory_group", refuse)
    outcome = solo(tmp_path, limited(make_trial("a"))).outcome
    assert (State.FAILED, "cgroup_refused", "spawn") == (outcome.state, outcome.reason.code, outcome.phase)
    assert ({"limit_bytes": 64 * MIB}, True) == (outcome.reason.numbers, "it takes root" in outcome.reason.text)


def test_a_missing_interpreter_leaves_no_group_behind(v2: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    group = v2.make()
    stand_in(monkeypatch, group)
    trial = limited(make_trial("a"))
    missing = replace(trial, processes=(replace(trial.processes[0], interpreter="/no/such/python9.9"),))
    assert ("spawn_failed", False) == (solo(tmp_path, missing).outcome.reason.code, group.path.exists())


def test_the_kernel_kills_what_holds_more_than_its_limit_and_nobody_else(tmp_path: Path):
    version, why = memory_group_version()
    if version is None:
        pytest.skip(why)
    hungry = [limited(make_trial(name, target="build_glutton", driver=Driver.ONCE, mib=mib), 96 * MIB) for name, mib in (("much", 256), ("little", 8))]
    record = solo(tmp_path, *hungry)
    outcome = record.trial("much").outcome
    assert (State.FAILED, "out_of_memory", "once") == (outcome.state, outcome.reason.code, outcome.phase)
    assert "the worker was killed by the kernel at its memory limit of 96 MiB" == outcome.reason.text
    assert (96 * MIB, 9) == (outcome.reason.numbers["limit_bytes"], outcome.reason.numbers["signal"])
    assert (State.COMPLETED, []) == (record.trial("little").outcome.state, list(record.flags))
