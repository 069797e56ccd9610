"""A memory control group for one worker: made, limited, asked whether the kernel killed for it, and removed. Versions 1 and 2 of the kernel's groups.

Unlike a limit of the address space it counts all that a process makes the kernel hold, page cache and mapped files included. It knows the kernel's
files, not processes: a worker enters by itself, before its first import.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MEMBERSHIP = Path("/proc/self/cgroup")
MOUNTS = Path("/proc/self/mountinfo")
REMOVE_S = 2.0
"""A group can be removed once the kernel has let go of its last process, which may be a moment after that was collected."""
RETRY_S = 0.02
PROBE_BYTES = 64 << 20
PERMITS = "it takes root and a writable /sys/fs/cgroup (a container: --privileged), or a group below one that is the user's own (systemd-run --user --scope)"

Version = Literal["v1", "v2"]


class GroupError(Exception):
    """No memory group can be made here. The text says why and what would permit it, and names no path."""


@dataclass(frozen=True)
class MemoryGroup:
    """A group of the kernel's that holds at most `limit_bytes` of memory and no swap; who needs more is killed."""

    path: Path
    version: Version
    limit_bytes: int

    @property
    def procs(self) -> Path:
        """The file that a process enters the group by, by writing its own pid there."""
        return self.path / "cgroup.procs"

    def killed(self) -> bool:
        """Whether the kernel has killed a process of the group for want of memory. An old kernel counts only how often the limit was hit."""
        if self.version == "v2":
            return bool(_counts(self.path / "memory.events").get("oom_kill", 0))
        kills = _counts(self.path / "memory.oom_control").get("oom_kill")
        return bool(_number(self.path / "memory.failcnt") if kills is None else kills)

    def peak_bytes(self) -> int | None:
        """Return the most that the group has held at once, None where the kernel does not tell."""
        return _number(self.path / ("memory.max_usage_in_bytes" if self.version == "v1" else "memory.peak"))

    def remove(self, within_s: float = REMOVE_S) -> bool:
        """Give the group back, trying again for at most `within_s`; returns whether it is gone. Removing it twice does no harm."""
        until = time.monotonic() + within_s
        while not self._gone():
            if time.monotonic() >= until:
                return False
            time.sleep(RETRY_S)
        return True

    def _gone(self) -> bool:
        try:
            remove_directory(self.path)
        except OSError as error:  # otherwise somebody is still in it
            return isinstance(error, FileNotFoundError)
        return True


def make_memory_group(limit_bytes: int, *, membership: Path = MEMBERSHIP, mounts: Path = MOUNTS) -> MemoryGroup:
    """Make an empty group with this limit, as near below this process's own as the kernel allows; raises GroupError.

    `membership` and `mounts` are the kernel's lists of this process's groups and of what is mounted.
    """
    version, parent = _place(membership, mounts)
    group = MemoryGroup(parent / f"speedproof-{os.getpid()}-{secrets.token_hex(4)}", version, limit_bytes)
    try:
        make_directory(group.path)
    except OSError as error:
        raise GroupError(f"no memory control group could be made: {error.strerror}; {PERMITS}") from error
    try:
        for name, value, needed in _limits(version, limit_bytes):
            if needed or (group.path / name).exists():
                (group.path / name).write_text(value, encoding="ascii")
    except OSError as error:
        group.remove(0.0)
        raise GroupError(f"the kernel refused a memory control group's limit of {limit_bytes} bytes: {error.strerror}; {PERMITS}") from error
    return group


def memory_group_version(*, membership: Path = MEMBERSHIP, mounts: Path = MOUNTS) -> tuple[Version | None, str]:
    """Say which version of groups can limit a worker's memory here, None if neither, and why. It really makes and removes a group to know."""
    try:
        group = make_memory_group(PROBE_BYTES, membership=membership, mounts=mounts)
    except GroupError as error:
        return None, str(error)
    if not group.remove():
        return None, "a memory control group could be made, but not removed again"
    return group.version, f"a memory control group ({group.version}) could be made, limited and removed"


def make_directory(path: Path) -> None:
    """Make a group: the kernel fills the folder with its files."""
    path.mkdir()


def remove_directory(path: Path) -> None:
    """Remove a group: its files go with the folder."""
    path.rmdir()


def _limits(version: Version, limit_bytes: int) -> tuple[tuple[str, str, bool], ...]:
    """Return (file, value, must it exist) in the order in which they have to be written."""
    if version == "v1":  # memory and swap together may not be less than memory, so it comes second
        return ("memory.limit_in_bytes", str(limit_bytes), True), ("memory.memsw.limit_in_bytes", str(limit_bytes), False)
    return ("memory.max", str(limit_bytes), True), ("memory.swap.max", "0", False), ("memory.oom.group", "1", False)


# ---------------------------------------------------------------- where


@dataclass(frozen=True)
class _Mount:
    """A mounted tree of groups. `root`: which group of the whole tree is mounted at `at`."""

    root: str
    at: Path
    kind: str
    options: tuple[str, ...]

    def folder_of(self, path: str) -> Path:
        """Return the folder of the group that the kernel calls `path`; in a container that lies outside what is mounted, then the tree's top."""
        root = self.root.rstrip("/")
        if path != root and not path.startswith(f"{root}/"):
            return self.at
        folder = self.at / path[len(root) :].lstrip("/")
        return folder if ".." not in folder.parts and folder.is_dir() else self.at


def _place(membership: Path, mounts: Path) -> tuple[Version, Path]:
    """Return the version and the group to make new ones in; raises GroupError."""
    own_v1, own_v2 = _own_groups(membership)
    trees = list(_mounts(mounts))
    if own_v1 is not None:
        for tree in trees:
            if tree.kind == "cgroup" and "memory" in tree.options:
                return "v1", tree.folder_of(own_v1)
    if own_v2 is not None:
        for tree in trees:
            if tree.kind == "cgroup2":
                return "v2", _passes_memory_on(tree, own_v2)
    raise GroupError("this process is in no memory control group that is mounted; it takes a kernel with that controller, mounted under /sys/fs/cgroup")


def _passes_memory_on(tree: _Mount, path: str) -> Path:
    """Return the group of version 2 whose children get the memory controller: this process's own, or else the one above it.

    A group that holds processes cannot pass a controller on unless it is the top of all, so that a sibling is the rule.
    """
    own = tree.folder_of(path)
    for folder in (own,) if own == tree.at else (own, own.parent):
        if "memory" not in _text(folder / "cgroup.subtree_control").split():
            continue
        if not os.access(folder / "cgroup.procs", os.W_OK):  # who enters needs this of the group above both
            raise GroupError(f"processes may not be moved between the control groups here; {PERMITS}")
        return folder
    raise GroupError(f"neither this process's control group nor the one above it passes the memory controller on (cgroup.subtree_control); {PERMITS}")


def _own_groups(membership: Path) -> tuple[str | None, str | None]:
    """Return what the kernel calls this process's group of the memory controller of version 1, and its group of version 2; None where it has none."""
    one = two = None
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            one = path
        elif not controllers:
            two = path
    return one, two


def _mounts(mounts: Path) -> Iterator[_Mount]:
    """Yield the trees of groups that are mounted: see proc_pid_mountinfo(5). Blanks in names are written as octal numbers."""
    for line in _text(mounts).splitlines():
        mine, _, others = line.partition(" - ")
        if others.startswith("cgroup"):
            root, at = (re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), name) for name in mine.split(" ")[3:5])
            kind, *_, options = others.split(" ")  # what is mounted there, between them, may be an empty word
            yield _Mount(root, Path(at), kind, tuple(options.split(",")))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _counts(path: Path) -> dict[str, int]:
    rows = [line.split() for line in _text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None
