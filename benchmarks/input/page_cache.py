"""What of a set of files lies in the kernel's page cache: read it all, drop it, and ask how much is really there. Linux only."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.input.storing import in_threads
from harness.errors import Unsupported

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
COLD = 0.05
"""Below this share of resident pages files are called cold; above 1 - COLD, warm."""


def temperature(share: float) -> str:
    """Return what files are called of which this share is resident: cold, warm, or the share where it is neither."""
    return "cold" if share < COLD else "warm" if share > 1 - COLD else f"{100 * share:.0f} % resident"


def read_all(paths: Sequence[str]) -> None:
    """Read every file to its end. One that cannot be read is passed over: whoever decodes it will name it."""
    in_threads(_read, paths)


def drop(paths: Sequence[str], *, whole_machine: bool = False) -> None:
    """Ask the kernel to forget the files' pages, which it does for clean pages that nobody else holds; so they are written to disk first. What counts is
    what is resident afterwards: a file or a storage that refuses is passed over.

    `whole_machine` also empties the caches of everything and everybody, names of files included, which takes root. Raises Unsupported where that
    is not allowed.
    """
    in_threads(_drop, paths)
    if whole_machine:
        os.sync()
        try:
            DROP_CACHES.write_text("3\n")
        except OSError as error:
            raise Unsupported(f"the caches of the whole machine cannot be emptied ({DROP_CACHES}: {error.strerror}); that takes root") from error


def resident_share(paths: Sequence[str]) -> float:
    """Return which share of the files' pages lies in the page cache, from 0 to 1.

    Of a file that is neither this user's own nor writable for him the kernel tells nothing and calls every page resident. One that cannot be opened is
    passed over. Raises OSError on storage whose files cannot be mapped into memory.
    """
    counts = in_threads(_resident, paths)
    pages = sum(total for _, total in counts)
    return sum(resident for resident, _ in counts) / pages if pages else 0.0


def _read(path: str) -> None:
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path as the pipeline has it
        while file.read(1 << 20):
            pass


def _drop(path: str) -> None:
    with suppress(OSError), open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
        with suppress(OSError):  # storage that knows no fsync has nothing to be written first
            os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _resident(path: str) -> tuple[int, int]:
    """Pages in the cache and pages in all. Mapping a file reads none of it."""
    try:
        file = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115 - as above; closed below
    except OSError:
        return 0, 0
    with file:
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
