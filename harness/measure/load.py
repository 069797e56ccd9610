"""Who used the processors: cumulative counters of the machine, the workers and the parent, read around blocks.

The differences tell how busy others were. It only reads /proc and the control groups' files; what cannot be read is None. It judges nothing.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CPUCLOCK_SCHED = 2
"""Kernel's number for "time scheduled" in a process's CPU clock id (see clock_getcpuclockid(3))."""
LOST_S = 0.1
"""A group whose time has fallen by more than this, which no counter's grain explains, has lost a process that nobody of it waited for."""


@dataclass(frozen=True)
class Load:
    """Cumulative readings at one moment, in seconds of core time except `t_s` (monotonic). `groups`: worker's pid -> CPU time of its whole group, with
    those of its processes that have ended."""

    t_s: float
    cores: int
    idle_s: float | None
    steal_s: float | None
    throttled_s: float | None
    parent_s: float
    groups: Mapping[int, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Used:
    """What happened between two readings: averages in cores, `throttled_s` in seconds, and each worker group's CPU seconds."""

    elapsed_s: float
    foreign_cores: float | None
    steal_cores: float | None
    throttled_s: float | None
    groups_s: Mapping[int, float | None]


def read_load(groups: Mapping[int, Iterable[int]]) -> Load:
    """Read the counters now. `groups` maps each worker's pid to all the pids that count as it."""
    idle_s, steal_s = machine_times(os.sched_getaffinity(0))
    times = {leader: group_seconds(leader, pids) for leader, pids in groups.items()}
    return Load(time.monotonic(), len(os.sched_getaffinity(0)), idle_s, steal_s, throttled_seconds(), time.process_time(), times)


def used(before: Load, after: Load) -> Used:
    """Compare two readings. Busy time is what was neither idle nor stolen, because idle time is exact where busy time is sampled by the tick.

    Foreign load is busy time less the workers' and the parent's own (with all its threads: the telemetry's, an endpoint's). A slightly negative one
    comes of the counters' 10 ms grain and reads as 0. A group that was not there before has begun since.
    """
    elapsed_s = after.t_s - before.t_s
    steal_s = _difference(before.steal_s, after.steal_s)
    idle_s = _difference(before.idle_s, after.idle_s)
    groups_s = {pid: _spent(before.groups.get(pid, 0.0), seconds) for pid, seconds in after.groups.items()}
    ours_s = sum_or_none(groups_s.values())
    foreign_cores = None
    if elapsed_s > 0 and idle_s is not None and ours_s is not None:
        busy_s = after.cores * elapsed_s - idle_s - (steal_s or 0.0)
        foreign_cores = max(0.0, (busy_s - ours_s - (after.parent_s - before.parent_s)) / elapsed_s)
    steal_cores = None if steal_s is None or elapsed_s <= 0 else steal_s / elapsed_s
    return Used(elapsed_s, foreign_cores, steal_cores, _difference(before.throttled_s, after.throttled_s), groups_s)


def machine_times(cores: Iterable[int], stat: Path = Path("/proc/stat")) -> tuple[float | None, float | None]:
    """Return (idle, stolen) seconds since boot, summed over `cores`, from /proc/stat; None each where it cannot be read. Waiting for I/O is idle."""
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    wanted = {f"cpu{core}" for core in cores}
    try:
        rows = [line.split() for line in stat.read_text(encoding="ascii").splitlines() if line.startswith("cpu")]
    except OSError:
        return None, None
    mine = [[int(field) for field in row[1:]] for row in rows if row[0] in wanted]
    if len(mine) != len(wanted) or any(len(row) < 8 for row in mine):
        return None, None
    return sum(row[3] + row[4] for row in mine) * tick_s, sum(row[7] for row in mine) * tick_s


def grain_s(cores: int) -> float:
    """Return how much foreign or stolen time, in seconds of core time, the counters' grain alone may feign between two readings: three standard errors."""
    # Three counters a core (idle, waiting for I/O, stolen) are cut off to a tick, before and after: each difference errs by tick**2 / 6 in variance.
    return 3.0 / os.sysconf("SC_CLK_TCK") * math.sqrt(3 * cores / 6)


def group_seconds(leader: int, members: Iterable[int]) -> float | None:
    """Return the CPU time of a worker (`leader`) and the other `members` of its group, with that of their children that ended; None if it is gone.

    The kernel adds a child's time to the process that waits for it. Not seen is what ended without that: children of one that ignores SIGCHLD, and
    those whose own parent was gone before them.
    """
    total_s = 0.0
    # Parents, which have the lower ids, come after their children: whoever ends while we read is found with the one that waited for it.
    for pid in (*sorted((pid for pid in members if pid != leader), reverse=True), leader):
        own_s, waited_s = cpu_seconds(pid), waited_seconds(pid)
        if own_s is not None and waited_s is not None:
            total_s += own_s + waited_s
        elif pid == leader:
            return None
    return total_s


def waited_seconds(pid: int) -> float | None:
    """Return the CPU time of a process's children that have ended and were waited for, with theirs in turn (to a tick); None if it is gone."""
    fields = stat_fields(pid)
    return None if fields is None else (int(fields[16]) + int(fields[17])) / os.sysconf("SC_CLK_TCK")


def stat_fields(pid: int) -> dict[int, str] | None:
    """Return what the kernel tells of a process by the numbers of proc_pid_stat(5), from 3, its state, on; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return dict(enumerate(stat.rpartition(")")[2].split(), start=3))  # the second, a name, may hold anything


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of all threads of a process, living and ended, to the nanosecond by its CPU clock; None if it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED) / 1e9
    except OSError:
        return None


def group_members(leaders: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Return, for each worker's pid, the pids of its session: a workload's own children work on its account."""
    found: dict[int, list[int]] = {leader: [leader] for leader in leaders}
    for name in os.listdir("/proc"):  # noqa: PTH208 (a thousand Path objects a quad would be our own disturbance)
        if name.isdigit() and int(name) not in found and (session := _session(int(name))) in found:
            found[session].append(int(name))
    return {leader: tuple(pids) for leader, pids in found.items()}


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # it ended while we looked, or is not ours to ask
        return None


def throttled_seconds(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """Return for how long our control group was kept off the processors so far (cgroup v2 or v1), None where the kernel does not tell."""
    for directory in cgroup_directories("cpu", root, membership):
        try:
            lines = (directory / "cpu.stat").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        told = dict(line.split() for line in lines if len(line.split()) == 2)
        if "throttled_usec" in told:
            return int(told["throttled_usec"]) / 1e6
        if "throttled_time" in told:
            return int(told["throttled_time"]) / 1e9
    return None


def cgroup_directories(controller: str, root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> list[Path]:
    """Return where files of `controller` may lie for this process, most specific first: v1 has a tree for it, v2 one for all.

    Inside a container the path told may not exist in the tree mounted there; the tree's root stands in for it.
    """
    try:
        lines = membership.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    candidates: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controller in names:
            candidates += [root / controllers / path.lstrip("/"), root / controller / path.lstrip("/"), root / controller]
        elif controllers == "":
            candidates += [root / path.lstrip("/"), root / "unified" / path.lstrip("/"), root]
    return [directory for directory in candidates if directory.is_dir()]


def sum_or_none(values: Iterable[float | None]) -> float | None:
    """Return the sum, None as soon as one value is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _spent(before: float | None, after: float | None) -> float | None:
    """Return what a group used, None where part of it was lost: that would look like somebody else's."""
    spent_s = _difference(before, after)
    return None if spent_s is None or spent_s < -LOST_S else spent_s
