"""One measurement at a time on a machine: an advisory lock in the temporary folder, which the kernel frees when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import Interrupted, MeasureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = "speedproof-machine.lock"
POLL_S = 0.2


def default_path() -> Path:
    """Return where the lock lies: one for all users of this temporary folder."""
    return Path(tempfile.gettempdir()) / NAME


@contextlib.contextmanager
def machine_lock(
    purpose: str,
    *,
    tell: Callable[[str], None],
    stop: Callable[[], bool] = lambda: False,
    path: Path | None = None,
    poll_s: float = POLL_S,
) -> Iterator[None]:
    """Hold the machine's lock. `purpose` (the run's name) is what others are told while they wait; `tell` gets one sentence if we must wait.

    Raises MeasureError if the lock cannot be made, Interrupted if `stop` turns true while waiting.
    """
    where = path or default_path()
    fd, writable = _open(where)
    try:
        _wait(fd, tell, stop, poll_s)
        if writable:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps({"pid": os.getpid(), "purpose": purpose}).encode(), 0)
        try:
            yield
        finally:
            if writable:
                os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _open(where: Path) -> tuple[int, bool]:
    """Return the lock's descriptor and whether the holder's name can be written into it. Another user's file can be locked by reading it alone."""
    try:
        fd = os.open(where, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        with contextlib.suppress(OSError):
            return os.open(where, os.O_RDONLY | os.O_CLOEXEC), False
        raise MeasureError(f"The machine lock {where.name} in the temporary folder cannot be opened: let its owner remove it, or make it readable.") from None
    except OSError as error:
        text = f"The machine lock {where.name} cannot be opened in the temporary folder: {error.strerror}; set TMPDIR to a writable one."
        raise MeasureError(text) from error
    with contextlib.suppress(PermissionError):
        os.fchmod(fd, 0o666)  # whatever the umask is: the next user must be able to take it
    return fd, True


def _wait(fd: int, tell: Callable[[str], None], stop: Callable[[], bool], poll_s: float) -> None:
    told = False
    while not _taken(fd):
        if stop():
            raise Interrupted("Stopped while waiting for another measurement on this machine to end.")
        if not told:
            tell(f"Waiting for another measurement on this machine: {_holder(fd)}.")
            told = True
        time.sleep(poll_s)


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(fd: int) -> str:
    try:
        told = json.loads(os.pread(fd, 4096, 0))
        return f"{told['purpose']} (process {told['pid']})"
    except (ValueError, KeyError, TypeError, OSError):
        return "its holder has not said its name"
