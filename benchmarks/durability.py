"""When a checkpoint is really on the storage, and how a save that did not get there is told. Files only: it knows neither nets nor frameworks."""

from __future__ import annotations

import errno
import glob
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.005
_TABLE_END = bytes.fromhex("57fb808b247547db")  # the last eight bytes of every complete index: the magic number of its table format
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_FOR_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)  # what some network file systems answer to an fsync of a folder
_NAMED_LEFTOVERS = 4


class CheckpointError(Exception):
    """A save that failed, or a checkpoint that is not what was saved. `code`: disk_full, not_durable or checkpoint_differs; `numbers`: name -> number."""

    def __init__(self, text: str, code: str, **numbers: int) -> None:
        super().__init__(text)
        self.code, self.numbers = code, numbers


class Watcher(threading.Thread):
    """Watches one save become durable: waits for its complete index, then has its files and their folder written through to the storage.

    `prefix` is the checkpoint's path without endings, `called_ns` when the save was called (`time.perf_counter_ns`), `deadline_s` how long after
    that the index may take, `fsync` what writes a file descriptor through. Once `finished` is set, either `durable_ns` and `written` are known or
    `error` says why not.
    """

    def __init__(self, prefix: str, number: int, called_ns: int, deadline_s: float, fsync: Callable[[int], None] = os.fsync) -> None:
        super().__init__(name=f"watcher of save {number}", daemon=True)
        self.prefix, self.number, self.called_ns, self.deadline_s = prefix, number, called_ns, deadline_s
        self.durable_ns: int | None = None
        self.written: Written | None = None
        self.error: OSError | None = None
        self.finished = threading.Event()
        self._fsync = fsync
        self._returned = threading.Event()
        self._forsaken = threading.Event()

    def writing_is_over(self) -> None:
        """Say that the library has finished with this save: an index that is not there now will never be."""
        self._returned.set()

    def give_up(self) -> None:
        """Stop watching; nobody will ask for the result."""
        self._forsaken.set()

    def remaining_s(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline_s - (time.perf_counter_ns() - self.called_ns) / 1e9)

    def run(self) -> None:
        try:
            self._await_index()
            self.written = write_through(self.prefix, self._fsync)
            self.durable_ns = time.perf_counter_ns()
        except OSError as error:
            self.error = error
        finally:
            self.finished.set()

    def _await_index(self) -> None:
        while True:
            last_look = self._returned.is_set()
            if is_complete(self.prefix):
                return
            if last_look:
                raise OSError("the save ended without a complete index file")
            if self.remaining_s() == 0:
                raise TimeoutError(f"there was no complete index file after {self.deadline_s:g} s")
            if self._forsaken.wait(POLL_S):
                raise InterruptedError("it was no longer watched")


def is_complete(prefix: str) -> bool:
    """Whether the index of the checkpoint `prefix` is whole. It is written last, but in place: that it exists is not enough."""
    try:
        with Path(f"{prefix}.index").open("rb") as index:
            size = index.seek(0, os.SEEK_END)
            index.seek(max(0, size - len(_TABLE_END)))
            return index.read() == _TABLE_END
    except FileNotFoundError:
        return False


def data_files(prefix: str) -> list[Path]:
    """Return the data files of the checkpoint `prefix`, one a shard, in order."""
    path = Path(prefix)
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.data-*"))


def checkpoint_files(prefix: str) -> list[Path]:
    """Return all files of the checkpoint `prefix`: its data, and the index, which is written last."""
    return [*data_files(prefix), Path(f"{prefix}.index")]


@dataclass(frozen=True)
class Written:
    """What was written through: the files' bytes together, and whether their folder could be, which keeps their names."""

    files_bytes: int
    folder: bool


def write_through(prefix: str, fsync: Callable[[int], None] = os.fsync) -> Written:
    """Have the files of the checkpoint `prefix` and its folder written to the storage. Raises OSError, but not for a file system that does not know
    how to write a folder through."""
    size = sum(_write_through(path, fsync) for path in checkpoint_files(prefix))
    try:
        _write_through(Path(prefix).parent, fsync)
    except OSError as error:
        if error.errno not in _NOT_FOR_FOLDERS:
            raise
        return Written(size, folder=False)
    return Written(size, folder=True)


def _write_through(path: Path, fsync: Callable[[int], None]) -> int:
    """Have one file or folder written through; returns its bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def save_failed(folder: Path, number: int, needed_bytes: int, error: BaseException) -> CheckpointError:
    """Return what to raise for save `number` into `folder`, whatever `error` the library or the system gave for it.

    It is a full disk where one of them says so or where less is free than the `needed_bytes` of one checkpoint.
    """
    free = free_bytes(folder)
    full = _says_full(error) or (free is not None and free < needed_bytes)
    what = "failed, its storage is full" if full else "did not become durable"
    advice = "give checkpoint.dir= a folder with more room" if full else "look after the storage, or give checkpoint.dir= another folder"
    left = leftovers(folder)
    more = f" and {len(left) - _NAMED_LEFTOVERS} more" if len(left) > _NAMED_LEFTOVERS else ""
    said = " ".join(str(error).split())
    text = (
        f"save {number} in {folder} {what}: a checkpoint takes {needed_bytes} bytes and {'an unknown number' if free is None else free} are free; "
        f"left over: {', '.join(left[:_NAMED_LEFTOVERS]) + more if left else 'nothing'}; {advice}. {type(error).__name__}: {said[:120]}"
    )
    numbers = {"save": number, "needed_bytes": needed_bytes, **({} if free is None else {"free_bytes": free})}
    return CheckpointError(text, "disk_full" if full else "not_durable", **numbers)


def leftovers(folder: Path) -> list[str]:
    """Return the names, below `folder`, of the files that unfinished saves have left; of the folder alone where it is empty."""
    found = []
    for temporary in sorted(folder.glob("*_temp*")):
        files = sorted(path for path in temporary.rglob("*") if path.is_file()) if temporary.is_dir() else []
        found += [path.relative_to(folder).as_posix() for path in files] or [temporary.name]
    return found


def free_bytes(folder: Path) -> int | None:
    """Return how many bytes this user may still write below `folder`, None where the system does not tell."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    said = str(error)
    # TensorFlow uses the same class where memory is short.
    exhausted = type(error).__name__ == "ResourceExhaustedError" and "OOM" not in said
    return exhausted or any(os.strerror(number) in said for number in _FULL)
