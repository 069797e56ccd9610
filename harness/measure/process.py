"""Children of the parent: started alone in a session of their own, seen to die by pidfd, and ended as a whole group within a bounded time.

It knows processes and signals, not what they measure.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.measure.cgroup import REMOVE_S, MemoryGroup, make_memory_group
from harness.measure.channel import Channel, Listener, PipePair
from harness.measure.environment import worker_environment
from harness.measure.load import stat_fields
from harness.measure.worker import TOKEN_VARIABLE
from harness.model import Process, Reason, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WORKER = Path(__file__).with_name("worker.py")
TERM_GRACE_S = 2.0
KILL_GRACE_S = 5.0
"""A process in an uninterruptible wait cannot be reaped; after this long it is left to the kernel rather than waited for."""


class SpawnError(Exception):
    """A process could not be started; the text names the interpreter by its file name only."""


@dataclass
class Child:
    """A started process. `channel` is None until it has opened its own; `pidfd` is None where the kernel has none.

    `group` is its memory control group, if it has one. Once reaped, `memory_kill` holds limit_bytes and peak_bytes if the kernel killed for that
    limit, and `group_left` says whether the group would not go.
    """

    process: Process
    popen: subprocess.Popen[bytes]
    door: PipePair | Listener
    started_s: float
    start_ticks: int | None
    pidfd: int | None = None
    channel: Channel | None = None
    group: MemoryGroup | None = None
    memory_kill: dict[str, Scalar] | None = None
    group_left: bool = False
    _reaped: bool = field(default=False, repr=False)

    @property
    def pid(self) -> int:
        """Its pid, which is also the id of its process group and of its session."""
        return self.popen.pid

    def dead(self, within_s: float = 0.0) -> bool:
        """Whether it has ended by now, or does within `within_s`. It is not reaped, so that its group can still be signalled."""
        if self._reaped:
            return True
        until = time.monotonic() + within_s
        while True:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            if self.pidfd is not None:
                select.select([self.pidfd], [], [], left_s)
            else:
                time.sleep(min(left_s, 0.02))

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to all of its group; the group's id is its own pid, which cannot be reused before it is reaped."""
        if self._reaped:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody of the group is left
            os.killpg(self.pid, number)

    def reap(self) -> int | None:
        """Kill what is left of its group, collect it and give back its descriptors. Returns the exit code, None if the kernel does not let go."""
        if self._reaped:
            return self.popen.returncode
        self.signal_group(signal.SIGKILL)
        code: int | None = None
        if self.dead(KILL_GRACE_S):
            code = self.popen.wait()
            self._reaped = True
        for closable in (self.channel, self.door):
            if closable is not None:
                closable.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.group is not None:
            if self.group.killed():
                self.memory_kill = {"limit_bytes": self.group.limit_bytes, "peak_bytes": self.group.peak_bytes()}
            self.group_left = not self.group.remove(REMOVE_S if self._reaped else 0.0)
        return code


def spawn(process: Process, *, log: Path, transport: str = "pipe", parent_env: dict[str, str] | None = None) -> Child:
    """Start a worker whose output goes to `log`. `transport` is "pipe", or "socket" where descriptors cannot be inherited.

    Raises SpawnError, or GroupError where the process wants a memory control group that cannot be made.
    """
    group = None if process.cgroup_memory_bytes is None else make_memory_group(process.cgroup_memory_bytes)
    door = PipePair() if transport == "pipe" else Listener(TOKEN_VARIABLE)
    interpreter = process.interpreter or sys.executable
    env = worker_environment(os.environ if parent_env is None else parent_env, process.env, process.gpus)
    started_s = time.perf_counter()
    try:
        with log.open("ab") as output:
            popen = subprocess.Popen(
                [interpreter, "-u", str(WORKER), str(os.getpid()), *door.arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**env, **door.env},
                pass_fds=door.child_fds,
                start_new_session=True,
            )
    except OSError as error:
        door.started()
        unopened = door.accept()
        door.close()
        if unopened is not None:
            unopened.close()
        if group is not None:
            group.remove()
        raise SpawnError(f"could not start the interpreter {Path(interpreter).name}: {error.strerror}") from error
    door.started()
    return Child(process, popen, door, started_s, start_ticks(popen.pid), _pidfd(popen.pid), group=group)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # an old kernel, or a platform without it: death is then polled for
        return None


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (field 22 of its stat): with the pid it names one process of this boot."""
    fields = stat_fields(pid)
    return None if fields is None else int(fields[22])


def end(children: Iterable[Child], grace_s: float = TERM_GRACE_S) -> None:
    """End these processes with all of their groups: TERM, then KILL after `grace_s`. Bounded, and harmless for those already gone."""
    living = [child for child in children if not child.dead()]
    for child in living:
        child.signal_group(signal.SIGTERM)
    until = time.monotonic() + grace_s
    for child in living:
        child.dead(max(0.0, until - time.monotonic()))
    for child in children:
        child.reap()


def exit_reason(code: int | None, who: str, memory_kill: Mapping[str, Scalar] | None = None) -> Reason:
    """Say how a process that owed an answer ended. A SIGKILL that nobody here sent is most often the kernel's, for want of memory.

    `memory_kill`: limit_bytes and peak_bytes, if the kernel is known to have killed for a memory control group's limit.
    """
    if code is None:
        return Reason("stuck", f"{who} did not answer and the kernel would not end it; look for a device or a file system that hangs")
    if code >= 0:
        return Reason("silent_exit", f"{who} left with exit code {code} without saying that it was done; its log has more", {"exit_code": code})
    number = -code
    if number == signal.SIGKILL and memory_kill is not None and isinstance(limit_bytes := memory_kill.get("limit_bytes"), int):
        text = f"{who} was killed by the kernel at its memory limit of {limit_bytes / 2**20:g} MiB"
        return Reason("out_of_memory", text, {**memory_kill, "signal": number})
    guess = " (possibly out of memory)" if number == signal.SIGKILL else ""
    return Reason("killed", f"{who} was killed by signal {number}{guess}", {"signal": number, "possibly_out_of_memory": number == signal.SIGKILL})
