"""What of a set of files lies in the kernel's page cache: read it all, drop it, and ask how much is really there. Linux only."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.input.storing import in_threads
from harness.errors import ConfigError

DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def read_all(paths: Sequence[str]) -> None:
    """Read every file to its end."""
    in_threads(_read, paths)


def drop(paths: Sequence[str], *, whole_machine: bool = False) -> None:
    """Ask the kernel to forget the files' pages, which it does for clean pages that nobody else holds; so they are written to disk first.

    `whole_machine` also empties the caches of everything and everybody, names of files included, which takes root. Raises ConfigError where that
    is not allowed.
    """
    in_threads(_drop, paths)
    if whole_machine:
        os.sync()
        try:
            DROP_CACHES.write_text("3\n")
        except OSError as error:
            raise ConfigError(f"drop_caches=true cannot write to {DROP_CACHES}: {error.strerror}; run as root, or leave it out") from error


def resident_share(paths: Sequence[str]) -> float:
    """Return which share of the files' pages lies in the page cache, from 0 to 1.

    Of a file that is neither this user's own nor writable for him the kernel tells nothing and calls every page resident.
    """
    counts = in_threads(_resident, paths)
    pages = sum(total for _, total in counts)
    return sum(resident for resident, _ in counts) / pages if pages else 0.0


def _read(path: str) -> None:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path as the pipeline has it
        while file.read(1 << 20):
            pass


def _drop(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _resident(path: str) -> tuple[int, int]:
    """Pages in the cache and pages in all. Mapping a file reads none of it."""
    with open(path, "rb") as file:  # noqa: PTH123 - a path as the pipeline has it
        size = os.fstat(file.fileno()).st_size
        if not size:
            return 0, 0
        pages = -(-size // mmap.PAGESIZE)
        told = np.zeros(pages, np.uint8)
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            view = np.frombuffer(mapped, np.uint8)
            failed = _mincore(view.ctypes.data, size, told.ctypes.data)
            del view  # a mapping that is looked at cannot be closed
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int((told & 1).sum()), pages


_mincore = ctypes.CDLL(None, use_errno=True).mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
