"""Whose images `data.dir` names, which those are, and what a run that is resumed must find again. Folders of a few empty files; nothing is decoded."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.ground import on_bad_of, read_ground, refuse_other_ground, told, writes_files
from harness.config.images import Data, find_data, read_images
from harness.errors import ConfigError
from harness.measure.volume import mount_of, read_volume
from harness.model import Driver, Ground, Images, Purpose, Volume
from harness.report.content import _ground
from harness.store import Bundle
from tests.helpers import make_contrast, make_manifest, make_plan, make_trial


def fill(folder: Path, *names: str, size: int = 0) -> Path:
    """Make files of `size` bytes at these names below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)
    return folder


def found(root: Path, value: str = "set", **how: object) -> Data:
    """What `data.dir=value` names in a clone at `root`."""
    return find_data(value, root=root, **how)


def refusal(root: Path, value: str = "set", **how: object) -> str:
    with pytest.raises(ConfigError) as caught:
        find_data(value, root=root, **how)
    assert 1 == len(str(caught.value).splitlines())
    return str(caught.value)


# ---------------------------------------------------------------- whose they are


@pytest.mark.parametrize(
    "name",
    ["cats/one.JPEG", "one.jpg", "train.tfrecord", "train.tfrecords", "shards/train.tfrecord-00001-of-00002", "TRAIN.TFRECORD"],
)
def test_a_folder_with_images_in_it_or_in_its_class_folders_is_a_persons_own(tmp_path: Path, name: str) -> None:
    folder = fill(tmp_path / "set", name)
    assert Data(folder, tmp_path / "data") == found(tmp_path)


def test_workloads_are_told_of_a_persons_set_and_of_where_the_suite_keeps_its_own(tmp_path: Path) -> None:
    folder = fill(tmp_path / "set", "cats/one.jpg")
    assert {"data_dir": str(tmp_path / "data"), "images_dir": str(folder)} == found(tmp_path).settings()


def test_what_becomes_of_bad_images_is_told_only_where_they_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path / "set", "cats/one.jpg")
    assert [None, "skip"] == [found(tmp_path, on_bad=on_bad).settings().get("on_bad") for on_bad in ("fail", "skip")]


def test_the_usual_folder_need_not_exist_and_is_the_suites(tmp_path: Path) -> None:
    data = found(tmp_path, "data")
    assert (None, {"data_dir": str(tmp_path / "data")}) == (data.images, data.settings())


@pytest.mark.parametrize("value", ["data", "elsewhere"])
def test_a_folder_in_which_the_suite_has_made_photographs_is_nobodys_own(tmp_path: Path, value: str) -> None:
    folder = fill(tmp_path / value, "photographs-128/china/00000.jpg")
    assert Data(None, folder) == found(tmp_path, value)


@pytest.mark.parametrize("mark", ["shards/sha256.json", ".shards.lock"])
def test_shards_that_the_suite_made_or_was_making_are_nobodys_own(tmp_path: Path, mark: str) -> None:
    folder = fill(tmp_path / "data", "shards/some.tfrecord", mark)
    assert Data(None, folder) == found(tmp_path, "data")


def test_images_that_a_person_put_into_the_usual_folder_are_theirs(tmp_path: Path) -> None:
    folder = fill(tmp_path / "data", "cats/one.jpg", "photographs-128/china/00000.jpg")
    assert folder == found(tmp_path, "data").images


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), "is empty; give a folder with images, or add data.make=true"),
        (("cats/one.png", "cats/two.png", "notes.txt"), "holds neither JPEG files nor shards of TFRecords (.tfrecord), in itself or in its class folders (2 of .png, 1 of .txt"),
        (("train/cats/one.jpg",), "its images lie a folder further down (train/cats/one.jpg); give data.dir=set/train"),
        (("train-00000-of-01024", "train-00001-of-01024"), "shards such as train-00000-of-01024 are known by the ending .tfrecord, so rename them"),
        ((".hidden.jpg",), "is empty; "),
        (("cats.jpg/notes.txt",), "holds neither JPEG files nor shards"),
    ],
)  # fmt: skip
def test_a_folder_without_images_is_refused_with_what_it_holds_instead(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    fill(tmp_path / "set", *names)
    text = refusal(tmp_path)
    assert (True, True) == (text.startswith("data.dir=set: "), said in text), text


def test_a_misspelt_folder_is_refused_and_not_made(tmp_path: Path) -> None:
    assert "data.dir=sett: there is no such folder" in refusal(tmp_path, "sett")
    assert [] == list(tmp_path.iterdir())


def test_a_file_is_no_folder_of_images(tmp_path: Path) -> None:
    fill(tmp_path, "set")
    assert refusal(tmp_path).startswith("data.dir=set: is no folder; ")


def unlisted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let this user not list `folder`: root may, whatever its mode."""
    listed = os.scandir

    def scandir(place: object) -> object:
        if Path(str(place)) == folder:
            raise PermissionError(13, "Permission denied", str(place))
        return listed(place)

    monkeypatch.setattr("harness.config.images.os.scandir", scandir)


@pytest.mark.parametrize(("where", "said"), [("set", "it cannot be listed (Permission denied)"), ("set/cats", "its folder cats cannot be listed (Permission denied)")])
def test_a_folder_that_cannot_be_listed_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, said: str) -> None:
    fill(tmp_path / "set", "cats/one.jpg")
    unlisted(monkeypatch, tmp_path / where)
    assert f"data.dir=set: {said}" in refusal(tmp_path)


def test_a_class_folder_that_cannot_be_listed_is_no_smaller_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "set", "cats/one.jpg", "dogs/one.jpg")
    data = found(tmp_path)
    unlisted(monkeypatch, tmp_path / "set" / "dogs")
    with pytest.raises(ConfigError, match=r"^data.dir: its folder dogs cannot be listed \(Permission denied\)"):
        read_images(data)


# ---------------------------------------------------------------- where the suite makes its own


@pytest.mark.parametrize("made", [False, True])
def test_the_suite_makes_its_photographs_elsewhere_where_that_is_said(tmp_path: Path, made: bool) -> None:
    if made:
        fill(tmp_path / "set")
    assert Data(None, tmp_path / "set") == found(tmp_path, make=True)


def test_the_suite_does_not_write_into_a_persons_set(tmp_path: Path) -> None:
    fill(tmp_path / "set", "cats/one.jpg")
    text = refusal(tmp_path, make=True)
    assert "data.dir=set data.make=true: images lie there that the suite has not made (cats/one.jpg)" in text


def test_a_folder_below_one_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "there is no folder mnt to make it in" in refusal(tmp_path, "mnt/set", make=True)


# ---------------------------------------------------------------- which they are


def images_of(root: Path, name: str = "set") -> Images | None:
    return read_images(found(root, name))


def test_a_set_is_counted_and_known_by_names_and_sizes(tmp_path: Path) -> None:
    fill(tmp_path / "set", "cats/one.jpg", "dogs/two.jpg", size=100)
    fill(tmp_path / "set", "notes.txt")
    images = images_of(tmp_path)
    assert images is not None
    assert (2, 200) == (images.files, images.total_bytes)


def test_the_same_files_elsewhere_are_the_same_set_and_name_no_place(tmp_path: Path) -> None:
    for name in ("set", "copy"):
        fill(tmp_path / name, "cats/one.jpg", "dogs/two.jpg", size=100)
    assert images_of(tmp_path) == images_of(tmp_path, "copy")
    assert str(tmp_path) not in repr(images_of(tmp_path))


@pytest.mark.parametrize(("name", "size"), [("cats/one.jpg", 101), ("cats/three.jpg", 100), ("one.tfrecord", 100)])
def test_another_file_or_another_size_is_another_set(tmp_path: Path, name: str, size: int) -> None:
    fill(tmp_path / "set", "cats/one.jpg", "dogs/two.jpg", size=100)
    before = images_of(tmp_path)
    fill(tmp_path / "set", name, size=size)
    assert before != images_of(tmp_path)


def test_what_the_suite_made_of_a_set_is_no_part_of_it(tmp_path: Path) -> None:
    fill(tmp_path / "set", "cats/one.jpg", size=100)
    before = images_of(tmp_path)
    fill(tmp_path / "set", "records/some.tfrecord", "records/sha256.json")
    assert before == images_of(tmp_path)


def test_a_link_to_nothing_counts_and_does_not_stop_the_count(tmp_path: Path) -> None:
    fill(tmp_path / "set", "one.jpg", size=100)
    (tmp_path / "set" / "two.jpg").symlink_to(tmp_path / "nothing")
    images = images_of(tmp_path)
    assert images is not None
    assert (2, 100) == (images.files, images.total_bytes)


def test_the_suites_photographs_are_no_set_of_a_persons(tmp_path: Path) -> None:
    assert images_of(tmp_path, "data") is None


# ---------------------------------------------------------------- what a resume must find again

MINE = Images("images-1111111111", 12, 3400)
OTHERS = Images("images-2222222222", 13, 3500)
DISK, NFS = Volume("ext4", "a drive, solid state"), Volume("nfs4", "mount-3333333333")


def refused(began: Ground, now: Ground, *typed: str, saves: bool = True) -> str | None:
    try:
        refuse_other_ground("RUN", began, now, typed, saves=saves)
    except ConfigError as error:
        return str(error)
    return None


def test_a_run_goes_on_where_it_began() -> None:
    assert refused(Ground(MINE, DISK, NFS), Ground(MINE, DISK, NFS)) is None


def test_other_images_are_refused_and_both_sets_are_named() -> None:
    text = refused(Ground(MINE, DISK, DISK), Ground(OTHERS, DISK, DISK), "data.dir")
    assert text == (
        "resume=RUN: was measured on a set of 12 files and 3400 bytes (images-1111111111), and would go on with a set of 13 files and 3500 bytes "
        "(images-2222222222); give the folder that it began with, unchanged, or start a new run"
    )


def test_a_resume_without_its_images_says_what_to_give() -> None:
    text = refused(Ground(MINE, DISK, DISK), Ground(None, DISK, DISK))
    assert text is not None
    assert "would go on with the suite's own photographs; give data.dir= with the folder that it began with" in text


def test_images_for_a_run_that_began_with_the_suites_are_refused() -> None:
    text = refused(Ground(None, DISK, DISK), Ground(MINE, DISK, DISK), "data.dir")
    assert text is not None
    assert "was measured on the suite's own photographs, and would go on with a set of 12 files" in text
    assert "leave data.dir= out, or start a new run" in text


def test_the_same_images_on_another_storage_are_refused() -> None:
    text = refused(Ground(MINE, DISK, DISK), Ground(MINE, NFS, DISK), "data.dir")
    assert text is not None
    assert "its images lay on ext4, a drive, solid state, and would now lie on nfs4, mount-3333333333" in text


def test_saves_to_another_storage_are_refused_and_both_are_named() -> None:
    text = refused(Ground(MINE, DISK, NFS), Ground(MINE, DISK, DISK))
    assert text == (
        "resume=RUN: its jobs saved to nfs4, mount-3333333333, and would now save to ext4, a drive, solid state; "
        "give checkpoint.dir= as when it began, or start a new run"
    )


def test_where_nothing_is_saved_it_does_not_matter_where_to() -> None:
    assert refused(Ground(MINE, DISK, NFS), Ground(MINE, DISK, DISK), saves=False) is None


@pytest.mark.parametrize(
    ("driver", "call", "writes"),
    [(Driver.BLOCKS, "outcome", False), (Driver.ONCE, "proof", False), (Driver.ONCE, "outcome", True), (Driver.JOB, "outcome", True), (Driver.SUPERVISE, "outcome", True)],
)  # fmt: skip
def test_jobs_and_single_calls_write_files(driver: Driver, call: str, writes: bool) -> None:
    contrast = replace(make_contrast(trials=(), purpose=Purpose.CLAIM), trials=(make_trial(driver=driver, call=call),))
    assert writes is writes_files(make_plan(contrasts=(contrast,)))


@pytest.mark.parametrize(
    ("config", "on_bad"),
    [({}, "fail"), ({"data": {"on_bad": "skip"}}, "skip"), ({"data": {"on_bad": "fail"}}, "fail"), ({"data": {"on_bad": 7}}, "fail"), ({"data": "x"}, "fail")],
)
def test_a_run_knows_what_it_does_with_bad_images(config: dict[str, object], on_bad: str) -> None:
    assert on_bad == on_bad_of(make_manifest(config=config))


@pytest.mark.parametrize("ground", [None, Ground(), Ground(MINE, DISK, NFS)])
def test_a_bundle_keeps_what_it_was_measured_on(tmp_path: Path, ground: Ground | None) -> None:
    bundle = Bundle.create(tmp_path, make_manifest(ground=ground))
    assert ground == Bundle.open(bundle.path, tmp_path).manifest.ground


def test_the_report_names_images_and_storage() -> None:
    rows = _ground(Ground(MINE, DISK, NFS))
    assert [("images", "12 files, 3.32 KiB (images-1111111111), on ext4, a drive, solid state"), ("jobs save to", "nfs4, mount-3333333333")] == rows
    assert [("images", "the suite's photographs, on n/a"), ("jobs save to", "n/a")] == _ground(Ground())
    assert [] == _ground(None)


# ---------------------------------------------------------------- what a folder lies on

MOUNTINFO = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:41 / /mnt/big\\040disk rw,relatime shared:2 master:1 - nfs4 server:/export rw
31 22 0:42 / /mnt rw - tmpfs tmpfs rw
32 22 0:43 / /mnt rw - fuse.sshfs me@host:/x rw
torn line
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", ("ext4", "/dev/vda1")),
        ("/mntx", ("ext4", "/dev/vda1")),
        ("/mnt", ("fuse.sshfs", "me@host:/x")),
        ("/mnt/other", ("fuse.sshfs", "me@host:/x")),
        ("/mnt/big disk/set", ("nfs4", "server:/export")),
    ],
)
def test_a_folder_lies_on_the_mount_nearest_above_it(path: str, found: tuple[str, str]) -> None:
    assert found == mount_of(path, MOUNTINFO)


def test_where_nothing_is_mounted_nothing_is_known() -> None:
    assert mount_of("/x", "") is None


def test_a_volume_names_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:41 / {tmp_path} rw - nfs4 server:/export rw\n")
    monkeypatch.setattr("harness.measure.volume.disk", lambda folder: None)
    volume = read_volume(tmp_path, mounts)
    assert ("nfs4", True) == (volume.file_system, re.fullmatch(r"mount-[0-9a-f]{10}", volume.drive or "") is not None)


def test_a_folder_that_is_not_there_yet_lies_where_it_would_be_made(tmp_path: Path) -> None:
    assert read_volume(tmp_path) == read_volume(tmp_path / "not" / "made")


def test_a_kernel_that_does_not_tell_leaves_it_unknown(tmp_path: Path) -> None:
    assert Volume() == read_volume(tmp_path, tmp_path / "no-mountinfo")
    assert "a storage that the kernel does not name" == told(Volume())


def test_a_ground_names_no_path(tmp_path: Path) -> None:
    fill(tmp_path / "set", "cats/one.jpg")
    assert str(tmp_path) not in repr(read_ground(found(tmp_path), tmp_path))
