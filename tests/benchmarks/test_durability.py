"""When a checkpoint's files count as durable, and what is said where they do not become it."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path

import pytest

from benchmarks.durability import Watcher, Written, is_complete, leftovers, save_failed, write_through

INDEX_END = bytes.fromhex("57fb808b247547db")


def make_files(folder, name="ckpt-1", *, index=b"keys and offsets" + INDEX_END, shards=1):
    """Write the files of a checkpoint and return its prefix."""
    for shard in range(shards):
        (folder / f"{name}.data-{shard:05}-of-{shards:05}").write_bytes(b"x" * 100)
    if index is not None:
        (folder / f"{name}.index").write_bytes(index)
    return str(folder / name)


def watch(prefix, deadline_s=60.0, **arguments):
    """Start a watcher of save 1, called now."""
    watcher = Watcher(prefix, 1, time.perf_counter_ns(), deadline_s, **arguments)
    watcher.start()
    return watcher


def test_an_index_without_its_last_bytes_is_not_complete(tmp_path):
    assert not is_complete(make_files(tmp_path, index=b"keys and offs"))
    assert not is_complete(make_files(tmp_path, index=b""))
    assert not is_complete(make_files(tmp_path, "nowhere", index=None))
    assert is_complete(make_files(tmp_path))


def test_every_file_and_the_folder_are_written_through(tmp_path):
    prefix = make_files(tmp_path, shards=3)
    make_files(tmp_path, "ckpt-10")
    seen = []
    written = write_through(prefix, lambda descriptor: seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name))

    assert [f"ckpt-1.data-0000{shard}-of-00003" for shard in range(3)] + ["ckpt-1.index", tmp_path.name] == seen
    assert Written(3 * 100 + len(b"keys and offsets") + 8, folder=True) == written


def refusing(code, *, folders):
    """An fsync that refuses folders, or files, with an error code."""

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == folders:
            raise OSError(code, os.strerror(code))

    return fsync


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_folder_that_cannot_be_written_through_at_all_is_told_and_fails_no_save(tmp_path, code):
    assert Written(124, folder=False) == write_through(make_files(tmp_path), refusing(code, folders=True))


@pytest.mark.parametrize(("code", "folders"), [(errno.EIO, True), (errno.ENOSPC, True), (errno.EINVAL, False)])
def test_any_other_refusal_is_an_error(tmp_path, code, folders):
    with pytest.raises(OSError, match=os.strerror(code)):
        write_through(make_files(tmp_path), refusing(code, folders=folders))


def test_a_save_is_durable_once_its_index_is_whole_and_written_through(tmp_path):
    watcher = watch(make_files(tmp_path, index=None))
    early = watcher.finished.wait(0.05)
    make_files(tmp_path)

    assert watcher.finished.wait(60)
    assert (False, Written(124, folder=True), None) == (early, watcher.written, watcher.error)
    assert watcher.durable_ns > watcher.called_ns


def test_a_save_without_an_index_ends_at_its_deadline(tmp_path):
    watcher = watch(make_files(tmp_path, index=None), deadline_s=0.05)

    assert watcher.finished.wait(60)
    assert isinstance(watcher.error, TimeoutError)
    assert watcher.durable_ns is None


def test_a_save_that_returned_without_an_index_is_not_waited_for(tmp_path):
    watcher = watch(make_files(tmp_path, index=None))
    watcher.writing_is_over()

    assert watcher.finished.wait(60)
    assert "without a complete index" in str(watcher.error)


def test_a_watcher_that_was_given_up_ends(tmp_path):
    watcher = watch(make_files(tmp_path, index=None))
    watcher.give_up()

    assert watcher.finished.wait(60)
    assert isinstance(watcher.error, InterruptedError)


def test_a_save_that_cannot_be_written_through_is_not_durable(tmp_path):
    def refuse(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    watcher = watch(make_files(tmp_path), fsync=refuse)

    assert watcher.finished.wait(60)
    assert (errno.ENOSPC, None) == (watcher.error.errno, watcher.durable_ns)


class ResourceExhaustedError(Exception):
    """Named as TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "needed", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "disk_full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 1, "disk_full"),
        (ResourceExhaustedError("ckpt-1_temp/part-0; No space left on device"), 1, "disk_full"),
        (ResourceExhaustedError("ckpt-1_temp/part-0"), 1, "disk_full"),
        (ResourceExhaustedError("OOM when allocating tensor"), 1, "not_durable"),
        (TimeoutError("there was no complete index file after 120 s"), 1, "not_durable"),
        (TimeoutError("there was no complete index file after 120 s"), 1 << 60, "disk_full"),
        (OSError(errno.EIO, "Input/output error"), 1, "not_durable"),
    ],
)
def test_a_full_disk_is_told_from_other_failures(tmp_path, error, needed, code):
    assert code == save_failed(tmp_path, 1, needed, error).code


def test_a_failed_save_names_its_folder_both_numbers_and_what_is_left(tmp_path):
    (tmp_path / "ckpt-2_temp").mkdir()
    (tmp_path / "ckpt-2_temp" / "part-00000-of-00001.data-00000-of-00001").write_bytes(b"half")
    failure = save_failed(tmp_path, 2, 1 << 60, OSError(errno.ENOSPC, "No space\nleft"))
    free = failure.numbers["free_bytes"]

    assert {"save": 2, "needed_bytes": 1 << 60, "free_bytes": free} == failure.numbers
    left = "left over: ckpt-2_temp/part-00000-of-00001.data-00000-of-00001;"
    assert all(part in str(failure) for part in (str(tmp_path), str(1 << 60), f"{free} are free", left, "checkpoint.dir=", "No space left"))
    assert "\n" not in str(failure)


def test_what_is_left_over_is_named_below_the_folder(tmp_path):
    assert [] == leftovers(tmp_path)
    make_files(tmp_path)
    (tmp_path / "ckpt-2_temp").mkdir()
    (tmp_path / "ckpt-3_temp").mkdir()
    (tmp_path / "ckpt-3_temp" / "part").write_bytes(b"")

    assert ["ckpt-2_temp", "ckpt-3_temp/part"] == leftovers(tmp_path)


def test_many_leftovers_are_counted(tmp_path):
    for number in range(6):
        (tmp_path / f"ckpt-{number}_temp").mkdir()

    assert "ckpt-3_temp and 2 more" in str(save_failed(tmp_path, 1, 1, OSError("no")))
