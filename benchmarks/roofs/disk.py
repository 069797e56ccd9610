"""How fast files are written to the storage and read back from it: one file, one process, from its beginning to its end, as a checkpoint is.

A stretch of writing ends when the storage has said that it has everything (fsync). Before a stretch of reading the file's pages are dropped from the page
cache, and it is checked that they were; the dropping is outside the stretch, which is why these roofs time themselves and answer once. What a drive or the
host of a virtual machine keeps for itself cannot be emptied.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contract import Value, Workload
from benchmarks.input.page_cache import drop, resident_share
from benchmarks.roofs.common import MIB, whole
from benchmarks.storage import storage_facts
from harness.errors import ConfigError

COLD = 0.05
"""Below this share of resident pages the file is out of the page cache."""

_CHUNK = 4 * MIB
_ROOM = 1.1  # of a file's size that must be free: storage that is full to the brim is slow


class Disk(Workload):
    """`passes` stretches over one file of `mib` MiB below `folder`; its content cannot be compressed."""

    def __init__(self, op: str, folder: Path, mib: int, passes: int, seed: int) -> None:
        self.op, self.folder, self.mib, self.passes = op, folder, mib, passes
        self.path = folder / "roof.bin"
        self._chunks = [np.random.default_rng([seed, index]).bytes(_CHUNK) for index in range(4)]

    def outcome(self) -> list[Value]:
        """Readings: `disk_write_rate` or `disk_read_rate`, all bytes over the time of all stretches; each stretch's seconds as `disk_pass_s`; of reading,
        the largest `resident_before`. Raises ConfigError where the storage has no room or its files stay in memory."""
        room = shutil.disk_usage(self.folder).free
        if room < _ROOM * self.mib * MIB:
            raise ConfigError(f"op={self.op} mib={self.mib}: {room // MIB} MiB are free on the storage; give checkpoint.dir= a folder with more room")
        try:
            return self._written() if self.op == "disk_write" else self._read()
        finally:
            self.path.unlink(missing_ok=True)

    def facts(self) -> dict[str, Any]:
        return {"op": self.op, "mib": self.mib, "passes": self.passes, **storage_facts(self.folder)}

    def write(self) -> float:
        """Write the file anew and return the seconds until the storage has all of it."""
        self.path.unlink(missing_ok=True)
        began_s = time.perf_counter()
        with self.path.open("wb", buffering=0) as file:
            for number in range(-(-self.mib * MIB // _CHUNK)):
                chunk = memoryview(self._chunks[number % len(self._chunks)])[: self.mib * MIB - number * _CHUNK]
                while chunk:
                    chunk = chunk[file.write(chunk) :]
            os.fsync(file.fileno())
        return time.perf_counter() - began_s

    def read(self) -> float:
        """Read the file to its end and return the seconds that took. Raises ConfigError where it is shorter than what was written."""
        buffer = bytearray(_CHUNK)
        found = 0
        began_s = time.perf_counter()
        with self.path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                found += got
        seconds = time.perf_counter() - began_s
        if found != self.mib * MIB:
            raise ConfigError(f"op={self.op}: {self.mib * MIB} bytes were written and {found} came back; look after the storage")
        return seconds

    def _written(self) -> list[Value]:
        return _rates("disk_write_rate", self.mib * MIB, [self.write() for _ in range(self.passes)])

    def _read(self) -> list[Value]:
        self.write()
        seconds, shares = [], []
        for _ in range(self.passes):
            drop([str(self.path)])
            shares.append(resident_share([str(self.path)]))
            if shares[-1] >= COLD:
                raise ConfigError(
                    f"op=disk_read: {100 * shares[-1]:.0f} % of a file's pages stay in memory after they were dropped, so that its reading says nothing "
                    f"about storage ({storage_facts(self.folder)['file_system']}); give checkpoint.dir= a folder on a disk"
                )
            seconds.append(self.read())
        return [*_rates("disk_read_rate", self.mib * MIB, seconds), Value("resident_before", max(shares), "share")]


def disk_write(settings: dict[str, Any]) -> Disk:
    """Writing to `scratch_dir` (below checkpoint.dir=, or the results folder): a file of `mib` MiB (512), `passes` (3) times anew, each fsync'd."""
    return _disk(settings)


def disk_read(settings: dict[str, Any]) -> Disk:
    """Reading such a file `passes` (3) times, each time with nothing of it in the page cache."""
    return _disk(settings)


def _disk(settings: dict[str, Any]) -> Disk:
    given = settings.get("scratch_dir")
    if not given or not Path(str(given)).is_dir():
        raise ConfigError(f"op={settings['op']} scratch_dir={given}: is no folder; name an existing one to write into")
    mib, passes = whole(settings, "mib", 512), whole(settings, "passes", 3)
    return Disk(str(settings["op"]), Path(str(given)), mib, passes, int(settings.get("seed", 0)))


def _rates(name: str, file_bytes: int, seconds: list[float]) -> list[Value]:
    return [Value(name, file_bytes * len(seconds) / sum(seconds), "B/s"), *(Value("disk_pass_s", one_s, "s") for one_s in seconds)]
