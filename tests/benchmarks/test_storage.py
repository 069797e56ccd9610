"""What is known of a folder's storage, and the folder that is slow on purpose."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import storage
from benchmarks.storage import MIB, Bucket, SlowFolder, Throttled, mount_of, slow_available, storage_facts
from harness.errors import ConfigError

ROOT = Path(__file__).parents[2]

MOUNTINFO = r"""21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 21 0:26 / /data rw,nosuid - nfs4 server:/export/of/somebody rw
31 30 0:31 / /data/fast rw shared:4 master:1 - tmpfs tmpfs rw
32 30 0:32 / /data/fast rw - fuse.throttled speedproof rw
33 21 8:1 / /mnt/two\040words rw - xfs /dev/sda1 rw
a line that is no mount
"""

needs_fuse = pytest.mark.skipif(slow_available() is not None, reason=f"no slow folder here: {slow_available()}")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", ("ext4", "254:1")),
        ("/database", ("ext4", "254:1")),
        ("/data", ("nfs4", "0:26")),
        ("/data/set/a", ("nfs4", "0:26")),
        ("/data/fast/b", ("fuse.throttled", "0:32")),
        ("/mnt/two words/c", ("xfs", "8:1")),
    ],
)
def test_a_folder_lies_on_the_innermost_and_topmost_mount(path, found):
    assert found == mount_of(path, MOUNTINFO)


def test_without_a_table_of_mounts_nothing_is_claimed(monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "_mounts", lambda: "")

    assert {"file_system": None, "storage_device": None} == storage_facts(tmp_path)


def test_facts_of_a_real_folder_hold_its_device_numbers_and_no_path(tmp_path):
    facts = storage_facts(tmp_path)

    assert facts["file_system"]
    assert ":" in facts["storage_device"]
    assert "/" not in "".join(facts.values())


def test_a_slow_folder_says_which_part_of_fuse_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(storage, "_FUSE_DEVICE", str(tmp_path / "fuse"))
    assert "there is no" in slow_available()
    (tmp_path / "fuse").write_bytes(b"")
    monkeypatch.setattr(storage.shutil, "which", lambda name: None)
    assert "fusermount3 is missing" in slow_available()
    monkeypatch.setattr(storage.shutil, "which", lambda name: name)
    monkeypatch.setattr(storage.importlib.util, "find_spec", lambda name: None)
    assert "mfusepy is not installed" in slow_available()
    with pytest.raises(ConfigError, match=r"storage=slow cannot be had here: the Python package mfusepy is not installed"):
        SlowFolder(tmp_path, 1.0)


class Clock:
    """Time that passes only while somebody sleeps, or by hand."""

    def __init__(self):
        self.now_s = 100.0
        self.slept_s = 0.0

    def __call__(self):
        return self.now_s

    def sleep(self, seconds):
        self.slept_s += seconds
        self.now_s += seconds


def make_bucket(bytes_per_s):
    clock = Clock()
    return Bucket(bytes_per_s, clock, clock.sleep), clock


def test_a_bucket_lets_its_rate_through():
    bucket, clock = make_bucket(5 * MIB)
    for _ in range(80):
        bucket.take(MIB // 8)

    assert pytest.approx(2.0) == clock.slept_s


def test_time_that_passed_unused_is_hardly_made_up_for():
    bucket, clock = make_bucket(1000)
    clock.now_s += 10
    bucket.take(1000)

    assert pytest.approx(0.95) == clock.slept_s


def test_a_late_wake_up_slows_nothing_further():
    bucket, clock = make_bucket(1000)
    for _ in range(50):
        bucket.take(100)
        clock.now_s += 0.02

    assert pytest.approx(5.0, abs=0.05) == clock.now_s - 100


def make_throttled(folder):
    """A throttled file system over `folder`, with the clock that its writes sleep on."""
    bucket, clock = make_bucket(1000)
    return Throttled(str(folder), bucket), clock


def test_a_throttled_file_comes_back_and_its_writes_took_their_time(tmp_path):
    files, clock = make_throttled(tmp_path)
    handle = files.create("/file", 0o644, os.O_RDWR)

    assert 300 == files.write("/file", b"a" * 300, 0, handle)
    assert 100 == files.write("/file", b"b" * 100, 300, handle)
    files.fsync("/file", 0, handle)
    assert b"a" * 10 + b"b" * 10 == files.read("/file", 20, 290, handle)
    files.release("/file", handle)
    assert pytest.approx(0.4) == clock.slept_s
    assert 400 == files.getattr("/file")["st_size"]


def test_a_throttled_folder_does_what_the_folder_below_does(tmp_path):
    files, _ = make_throttled(tmp_path)
    files.mkdir("/a", 0o755)
    files.release("/a/b", files.create("/a/b", 0o600, os.O_WRONLY))
    files.rename("/a/b", "/a/c")
    files.symlink("/a/link", "c")
    files.link("/a/hard", "/a/c")
    files.chmod("/a/c", 0o640)
    files.truncate("/a/c", 7)
    files.utimens("/a/c", (1_000_000_000, 2_000_000_000))
    files.fsyncdir("/a", 0, 0)

    assert [".", "..", "c", "hard", "link"] == sorted(files.readdir("/a", 0))
    assert ("c", 7, 2_000_000_000) == (files.readlink("/a/link"), files.getattr("/a/hard")["st_size"], files.getattr("/a/c")["st_mtime"])
    assert os.statvfs(tmp_path).f_blocks == files.statfs("/")["f_blocks"]
    for name in ("c", "hard", "link"):
        files.unlink(f"/a/{name}")
    files.rmdir("/a")
    assert [] == list(tmp_path.iterdir())


def test_what_is_not_there_is_refused_with_its_number(tmp_path):
    files, _ = make_throttled(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        files.getattr("/nothing")

    assert errno.ENOENT == caught.value.errno


def written_s(folder: Path, mib: int) -> float:
    """Write so many MiB through to a file in `folder` and return the seconds that it took."""
    began_s = time.perf_counter()
    with (folder / "file").open("wb") as file:
        file.write(b"x" * (mib * MIB))
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - began_s


@needs_fuse
def test_a_slow_folder_is_slower_by_about_its_limit(tmp_path):
    slow = SlowFolder(tmp_path, 8.0)
    try:
        seconds, own = written_s(slow.path, 8), written_s(tmp_path, 8)
        facts = storage_facts(slow.path)
    finally:
        slow.close()

    assert 0.9 < seconds < max(3.0, 3 * own)
    assert "fuse.throttled" == facts["file_system"]


@needs_fuse
def test_a_closed_slow_folder_leaves_no_mount_and_no_process_but_what_was_written(tmp_path):
    slow = SlowFolder(tmp_path, 100.0)
    process = slow._process
    (slow.path / "kept").write_bytes(b"yes")
    slow.close()
    slow.close()

    assert process.poll() is not None
    assert [] == list(slow.path.iterdir())
    assert b"yes" == (tmp_path / "slow-root" / "kept").read_bytes()


@needs_fuse
def test_the_process_of_a_slow_folder_is_in_the_session_of_who_made_it(tmp_path):
    """By which its time counts as the worker's own, not as a stranger's."""
    slow = SlowFolder(tmp_path, 100.0)
    session = os.getsid(slow._process.pid)
    slow.close()

    assert os.getsid(0) == session


@needs_fuse
def test_a_slow_folder_in_use_is_cut_off(tmp_path):
    slow = SlowFolder(tmp_path, 100.0)
    handle = os.open(slow.path / "open", os.O_WRONLY | os.O_CREAT)
    slow.close()
    mounted = storage._is_mounted(slow.path)
    with suppress(OSError):  # what it belonged to is gone
        os.close(handle)

    assert mounted is False


@needs_fuse
def test_a_slow_folder_dies_with_who_made_it(tmp_path):
    code = "import sys, time, pathlib\nfrom benchmarks.storage import SlowFolder\nslow = SlowFolder(pathlib.Path(sys.argv[1]), 100.0)\n"
    code += "print(slow._process.pid, flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as maker:
        server = int(maker.stdout.readline())
        assert storage._is_mounted(tmp_path.resolve() / "slow")
        maker.send_signal(signal.SIGKILL)
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s and (storage._is_mounted(tmp_path.resolve() / "slow") or Path(f"/proc/{server}/stat").exists()):
        time.sleep(0.05)

    assert not storage._is_mounted(tmp_path.resolve() / "slow")
    assert not Path(f"/proc/{server}/stat").exists() or " Z " in Path(f"/proc/{server}/stat").read_text()


@needs_fuse
@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_a_rate_that_is_none_is_refused(tmp_path, rate):
    with pytest.raises(ConfigError, match=f"storage_mib_s={rate} is no rate"):
        SlowFolder(tmp_path, rate)
