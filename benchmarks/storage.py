"""Where files lie: what is known of a folder's storage, and a folder that takes writes slowly on purpose. Knows nothing of what is written.

`python -m benchmarks.storage ROOT MOUNT MIB_PER_S` shows the folder ROOT at the empty folder MOUNT through FUSE and writes no faster than that, until
it is unmounted (`fusermount3 -u MOUNT`) or its parent ends. Needs the package mfusepy; everything else here is standard library.
"""

# A file system is asked and answers with paths as text, and does what the system call of the same name does.
# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH110, PTH115, PTH119, PTH208, PTH211

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

MIB = 1 << 20
_MOUNTED_WITHIN_S = 20.0
_UNMOUNTED_WITHIN_S = 10.0
_ENDED_WITHIN_S = 3.0  # after that it is no longer waited for: somebody still has a file open
_BURST_S = 0.05  # so much unused time may be made up for, or every late wake-up would slow the folder further
_FUSE_DEVICE = "/dev/fuse"
_PR_SET_PDEATHSIG = 1
_ATTRIBUTES = ("st_mode", "st_nlink", "st_size", "st_blocks", "st_uid", "st_gid")
_TIMES = ("st_atime", "st_mtime", "st_ctime")
_SPACE = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize", "f_namemax")


# ---------------------------------------------------------------- what a folder lies on


def storage_facts(folder: Path) -> dict[str, Any]:
    """Return `file_system` (as the kernel names its type: ext4, tmpfs, fuse.throttled) and `storage_device` (the block device and its numbers, as
    in "vda1 (254:1)"; the numbers alone where no block device is behind it). Both None where the kernel does not tell. No paths."""
    found = mount_of(os.path.realpath(folder), _mounts())
    if found is None:
        return {"file_system": None, "storage_device": None}
    kind, numbers = found
    try:
        return {"file_system": kind, "storage_device": f"{os.path.basename(os.readlink(f'/sys/dev/block/{numbers}'))} ({numbers})"}
    except OSError:
        return {"file_system": kind, "storage_device": numbers}


def mount_of(path: str, mountinfo: str) -> tuple[str, str] | None:
    """Return (file system type, "major:minor") of the mount that the absolute `path` lies on, from the text of /proc/self/mountinfo."""
    best: tuple[int, str, str] | None = None
    for point, numbers, kind in _parsed(mountinfo):
        covers = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one point the later lies on top.
        if covers and (best is None or len(point) >= best[0]):
            best = (len(point), kind, numbers)
    return best[1:] if best is not None else None


def _parsed(mountinfo: str) -> list[tuple[str, str, str]]:
    """Mount point, device numbers and file system type of every line that has them."""
    found = []
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 6 and "-" in fields[6:-1]:
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
            found.append((point, fields[2], fields[fields.index("-", 6) + 1]))
    return found


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text("utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _is_mounted(path: Path) -> bool:
    """Whether something is mounted at `path` (absolute, no links). Not `os.path.ismount`: it denies a mount whose process is gone."""
    return any(point == str(path) for point, _, _ in _parsed(_mounts()))


# ---------------------------------------------------------------- a slow folder


def slow_available() -> str | None:
    """Return None where `SlowFolder` can be used, else what is missing for it."""
    if not os.path.exists(_FUSE_DEVICE):
        return f"there is no {_FUSE_DEVICE}: this kernel or container offers no FUSE"
    if not os.access(_FUSE_DEVICE, os.R_OK | os.W_OK):
        return f"this user may not open {_FUSE_DEVICE}"
    if shutil.which("fusermount3") is None:
        return "the command fusermount3 is missing; on Debian and Ubuntu: apt-get install fuse3"
    if importlib.util.find_spec("mfusepy") is None:
        return "the Python package mfusepy is not installed"
    return None


class SlowFolder:
    """A folder `path`, made in `scratch`, that takes no more than `mib_per_s` MiB of writes a second. Reads are as fast as the storage below.

    A process of its own serves it and dies with this one. `close` unmounts it. Raises ConfigError where FUSE is missing or the mount does not come up.
    """

    def __init__(self, scratch: Path, mib_per_s: float) -> None:
        reason = slow_available()
        if reason is not None:
            raise ConfigError(f"storage=slow cannot be had here: {reason}")
        if not mib_per_s > 0:
            raise ConfigError(f"storage_mib_s={mib_per_s} is no rate; it must be above 0 (MiB a second)")
        scratch = scratch.resolve()
        self.path, root = scratch / "slow", scratch / "slow-root"
        for folder in (self.path, root):
            folder.mkdir(exist_ok=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the mount)
        command = [sys.executable, "-m", "benchmarks.storage", str(root), str(self.path), repr(float(mib_per_s))]
        here = Path(__file__).resolve().parents[1]
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            command, cwd=here, stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said
        )
        try:
            self._wait(self._process)
        except BaseException:
            self.close()
            raise

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until_s = time.monotonic() + _MOUNTED_WITHIN_S
        while not _is_mounted(self.path):
            if process.poll() is not None:
                self._said.seek(0)
                lines = self._said.read().decode(errors="replace").strip().splitlines()
                raise ConfigError(f"storage=slow: the slow folder could not be mounted: {lines[-1] if lines else 'its process gave no reason'}")
            if time.monotonic() > until_s:
                raise ConfigError(f"storage=slow: the slow folder was not mounted within {_MOUNTED_WITHIN_S:g} s")
            time.sleep(0.02)

    def close(self) -> None:
        """Unmount the folder and end its process; what was written stays in the folder below. May be called again."""
        process, self._process = self._process, None
        if process is None:
            return
        for how in ("-u", "-uz"):  # the second: what is still open is cut off, but the mount is gone
            if _is_mounted(self.path):
                try:
                    subprocess.run(["fusermount3", how, str(self.path)], capture_output=True, check=False, timeout=_UNMOUNTED_WITHIN_S)
                except (OSError, subprocess.TimeoutExpired):
                    continue
        try:
            process.wait(_ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._said.close()


class Bucket:
    """Lets `bytes_per_s` through: `take` sleeps until what was taken has had its time. For several threads at once."""

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._bytes_per_s, self._clock, self._sleep = bytes_per_s, clock, sleep
        self._lock = threading.Lock()
        self._due_s = clock()

    def take(self, size: int) -> None:
        """Take `size` bytes; 0 waits for those before."""
        with self._lock:
            now_s = self._clock()
            self._due_s = max(self._due_s, now_s - _BURST_S) + size / self._bytes_per_s
            wait_s = self._due_s - now_s
        if wait_s > 0:
            self._sleep(wait_s)


class Throttled:
    """What FUSE asks of a file system, answered from the folder `root`, writing no faster than `bucket` lets it. Errors are OSError, with errno.

    The method names and arguments are mfusepy's; paths begin with a slash.
    """

    use_ns = True  # times in nanoseconds

    def __init__(self, root: str, bucket: Bucket) -> None:
        self._root, self._bucket = root.rstrip("/"), bucket

    def _at(self, path: str) -> str:
        return self._root + path

    def access(self, path: str, amode: int) -> int:
        if not os.access(self._at(path), amode):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return 0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._at(path))
        return {**{name: getattr(found, name) for name in _ATTRIBUTES}, **{name: getattr(found, name + "_ns") for name in _TIMES}}

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in _SPACE}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._at(path))]

    def readlink(self, path: str) -> str:
        return os.readlink(self._at(path))

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._at(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._at(path))
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._at(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._at(old), self._at(new))
        return 0

    def symlink(self, target: str, source: str) -> int:
        os.symlink(source, self._at(target))
        return 0

    def link(self, target: str, source: str) -> int:
        os.link(self._at(source), self._at(target))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._at(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(self._at(path), uid, gid)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._at(path), ns=times) if times else os.utime(self._at(path))
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._at(path), length)
        return 0

    def open(self, path: str, flags: int) -> int:
        return os.open(self._at(path), flags)

    def create(self, path: str, mode: int, flags: int) -> int:
        return os.open(self._at(path), flags | os.O_CREAT, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._bucket.take(len(data))
        return os.pwrite(fh, data, offset)

    def flush(self, path: str, fh: int) -> int:
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._bucket.take(0)
        os.fsync(fh)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._bucket.take(0)
        folder = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0


def main(arguments: list[str]) -> int:
    """Serve a slow folder until it is unmounted; returns the exit code."""
    root, mount, mib_per_s = arguments
    # The mount must not outlive whoever asked for it: FUSE's own helper unmounts what a killed process leaves (auto_unmount).
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    import mfusepy

    class Mounted(Throttled, mfusepy.Operations):
        """mfusepy's own answers to what `Throttled` does not know: refusals."""

    os.umask(0)  # the kernel has applied the writer's already
    served = Mounted(os.path.realpath(root), Bucket(float(mib_per_s) * MIB))
    mfusepy.FUSE(served, mount, foreground=True, auto_unmount=True, fsname="speedproof", subtype="throttled")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
