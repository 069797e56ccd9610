"""live.json: the workers that live right now, so that a later run can end those, and only those, that a dead parent left behind.

A pid alone names nothing, since pids are reused; a pid with its start time and the boot does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.measure.load import stat_fields
from harness.measure.machine import boot_id
from harness.measure.process import start_ticks

if TYPE_CHECKING:
    from collections.abc import Iterable

END_GRACE_S = 2.0


def write_live(path: Path, workers: Iterable[tuple[int, int | None, str, str]]) -> None:
    """Replace live.json atomically. `workers` are (pid, start time in ticks, trial, role); with none of them the file is removed."""
    rows = [{"pid": pid, "start_ticks": ticks, "trial": trial, "role": role} for pid, ticks, trial, role in workers]
    if not rows:
        path.unlink(missing_ok=True)
        return
    parent = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps({"boot_id": boot_id(), "parent": parent, "workers": rows}, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def living(path: Path) -> tuple[int, ...]:
    """Return the pids of the workers that `path` names, none if it is missing or being removed. They are this run's own, so nothing is checked."""
    try:
        return tuple(int(row["pid"]) for row in json.loads(path.read_text(encoding="utf-8"))["workers"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def end_orphans(path: Path) -> list[int]:
    """End the process groups of the workers that `path` names and that are still the same processes; returns their pids.

    Nothing is touched after a reboot, while the parent named there still lives, or if the file is missing or damaged. Bounded: TERM, a grace, KILL.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        same_boot = told["boot_id"] == boot_id()
        parent = (int(told["parent"]["pid"]), told["parent"]["start_ticks"])
        workers = [(int(row["pid"]), row["start_ticks"]) for row in told["workers"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not same_boot or _same(*parent):
        return []
    orphans = [pid for pid, ticks in workers if _same(pid, ticks)]
    started = dict(workers)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in orphans:
            if _same(pid, started[pid]):
                _signal_group(pid, number)
        until = time.monotonic() + END_GRACE_S
        while any(_same(pid, started[pid]) for pid in orphans) and time.monotonic() < until:
            time.sleep(0.02)
    path.unlink(missing_ok=True)
    return orphans


def _same(pid: int, ticks: object) -> bool:
    """Whether `pid` is alive (not a zombie) and started at `ticks`."""
    if not isinstance(ticks, int) or start_ticks(pid) != ticks:
        return False
    fields = stat_fields(pid)
    return fields is not None and fields[3] not in ("Z", "X")


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended, or is not ours
        os.killpg(pid, number)
