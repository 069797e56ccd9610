"""Children of the doctor: started in a session of their own, ended as a group within a bounded time. Knows nothing of what they do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
"""Children run here, so that they find `harness` without an installation."""

TERM_GRACE_S = 2.0
KILL_GRACE_S = 5.0
POLL_S = 0.02


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (negative: a signal; None: it had to be ended) and all that it said."""

    code: int | None
    out: str
    err: str


def run_to_end(command: Sequence[str], environment: Mapping[str, str], deadline_s: float) -> Ended:
    """Run a command to its end, or end its whole group when the deadline has passed. Raises OSError if it cannot be started."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:  # files: a child that says much does not wait for a reader
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(environment), cwd=ROOT, start_new_session=True)
        try:
            in_time = has_ended(child.pid, deadline_s)
        finally:
            end_group(child)
        return Ended(child.returncode if in_time else None, _text(out.fileno()), _text(err.fileno()))


def has_ended(pid: int, within_s: float = 0.0) -> bool:
    """Return whether a child has ended, or does within so many seconds. It is not reaped, so that its group keeps its id."""
    until = time.monotonic() + within_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_S)
    return True


def end_group(child: subprocess.Popen[bytes], grace_s: float = TERM_GRACE_S) -> None:
    """End a child with all of its session, TERM first, and reap it; does nothing for one that is reaped already."""
    if child.returncode is not None:
        return
    if not has_ended(child.pid):
        _signal(child.pid, signal.SIGTERM)
        has_ended(child.pid, grace_s)
    _signal(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: nothing more can be done
        child.wait(KILL_GRACE_S)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody of the group is left
        os.killpg(group, number)


def _text(fd: int) -> str:
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(os.dup(fd), "rb") as file:
        return file.read().decode("utf-8", "replace")
