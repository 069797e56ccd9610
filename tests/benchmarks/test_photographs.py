"""The suite's own data set: how it is made, kept and checked."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from benchmarks.input import own_records, photographs, records  # noqa: E402 - after the check for TensorFlow
from benchmarks.input.__main__ import main  # noqa: E402
from benchmarks.input.photographs import HEIGHT, WIDTH, make, own  # noqa: E402
from benchmarks.input.samples import list_folder, list_shards  # noqa: E402
from benchmarks.input.storing import SUMS  # noqa: E402

from .conftest import FILES  # noqa: E402
from .pictures import cut_off, encoded, make_images, make_records  # noqa: E402

FEW = 4


def size_of(path: str) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def visible(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*") if path.suffix in (".jpg", ".tfrecord")}


def features(shards: list[str]) -> list[tuple[str, int, bytes]]:
    """Name, label and encoded bytes of every record, sorted by name."""
    found = []
    for raw in tf.data.TFRecordDataset(shards).as_numpy_iterator():
        got = tf.train.Example.FromString(raw).features.feature
        name, label, content = (got[f"image/{key}"] for key in ("filename", "class/label", "encoded"))
        found.append((name.bytes_list.value[0].decode(), label.int64_list.value[0], content.bytes_list.value[0]))
    return sorted(found)


def no_room(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("usage", "total used free")(10, 0, 10))


def test_the_set_is_made_of_photographs_of_imagenets_size_and_weight(data_dir):
    found = own(data_dir, FILES)

    assert [FILES // 2, FILES // 2] == np.bincount([photograph.label for photograph in found]).tolist()
    assert {(WIDTH, HEIGHT)} == {size_of(photograph.path) for photograph in found}
    assert 105_000 < np.mean([Path(photograph.path).stat().st_size for photograph in found]) < 115_000


def test_a_file_of_the_set_depends_on_its_number_alone(data_dir, tmp_path):
    larger, smaller = ({p.name: Path(p.path).read_bytes() for p in own(place, files)} for place, files in ((data_dir, FILES), (tmp_path, FEW)))

    assert FEW == len(smaller)
    assert smaller == {name: larger[name] for name in smaller}
    assert FILES == len(set(larger.values()))


def test_a_set_that_exists_is_not_made_again(tmp_path):
    folder = make(tmp_path, FEW)
    before = stamps(folder)

    assert before == stamps(make(tmp_path, FEW))
    assert [folder.name] == visible(tmp_path)
    assert ["china", "flower", SUMS] == visible(folder)


def test_an_interrupted_making_goes_on_where_it_stopped(tmp_path):
    folder = make(tmp_path, FEW)
    sums, before = (folder / SUMS).read_text(), stamps(folder)
    (folder / SUMS).unlink()
    (folder / "china" / "00002.jpg").unlink()
    (folder / "flower" / "00003.jpg").write_bytes(b"")  # as a power cut may leave it
    (folder / "china" / ".00002.jpg.part").write_bytes(b"half a pict")
    make(tmp_path, FEW)

    assert sums == (folder / SUMS).read_text()
    assert {"00002.jpg", "00003.jpg"} == {name for name, stamp in stamps(folder).items() if stamp != before[name]}


def test_of_two_makers_at_once_the_second_finds_the_set_made(tmp_path, monkeypatch):
    written, write = [], photographs._write
    monkeypatch.setattr(photographs, "_write", lambda picture, path, index: (written.append(index), write(picture, path, index)))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: make(tmp_path, FEW), range(2))

    assert one == other
    assert list(range(FEW)) == sorted(written)


def test_a_damaged_file_of_the_set_is_named_with_the_remedy(tmp_path):
    broken = Path(own(tmp_path, FEW)[3].path)
    content = bytearray(broken.read_bytes())
    content[1000] ^= 1
    broken.write_bytes(content)

    with pytest.raises(ConfigError, match=rf"{broken.name} .* is not what was written; delete"):
        make(tmp_path, FEW)


def test_without_reading_all_of_it_a_set_is_checked_by_its_sizes(tmp_path):
    found = [Path(photograph.path) for photograph in own(tmp_path, FEW)]
    content = bytearray(found[0].read_bytes())
    content[1000] ^= 1
    found[0].write_bytes(content)
    make(tmp_path, FEW, thorough=False)
    cut_off(found[1])

    with pytest.raises(ConfigError, match=found[1].name):
        make(tmp_path, FEW, thorough=False)


def test_a_set_of_another_version_is_refused_with_the_remedy(tmp_path):
    folder = make(tmp_path, FEW)
    kept = json.loads((folder / SUMS).read_text())
    (folder / SUMS).write_text(json.dumps({**kept, "recipe": "photographs, 1"}))

    with pytest.raises(ConfigError, match="another version .* delete"):
        make(tmp_path, FEW)


def test_a_full_disk_is_refused_before_a_file_is_written(tmp_path, monkeypatch):
    no_room(monkeypatch)

    with pytest.raises(ConfigError, match=r"4 photographs need \d+ bytes .* 10 are free"):
        make(tmp_path / "data", FEW)
    assert [] == visible(tmp_path / "data")


def test_a_disk_too_full_for_the_records_is_refused_before_one_is_written(tmp_path, monkeypatch):
    folder = make(tmp_path, FEW)
    no_room(monkeypatch)

    with pytest.raises(ConfigError, match=r"the TFRecords of 4 samples need \d+ bytes .* 10 are free"):
        own_records(tmp_path, FEW)
    assert ["china", "flower", SUMS] == visible(folder)


def test_a_place_that_is_no_folder_is_refused_with_its_name(tmp_path):
    (tmp_path / "data").write_text("")

    with pytest.raises(ConfigError, match=r"cannot make .* under .*data"):
        make(tmp_path / "data", FEW)


def test_no_files_are_no_set(tmp_path):
    with pytest.raises(ConfigError, match="files=0"):
        make(tmp_path, 0)


def test_the_records_hold_every_photograph_once_with_its_class_and_name(data_dir):
    expected = sorted((photograph.name, photograph.label, Path(photograph.path).read_bytes()) for photograph in own(data_dir, FILES))

    assert expected == features(list_shards(own_records(data_dir, FILES)))


def test_the_records_are_cut_into_shards_of_one_size_and_mix_the_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "SHARD_BYTES", 450_000)
    shards = list_shards(own_records(tmp_path, 12))
    counts = [records.count([shard]) for shard in shards]

    assert [4, 4, 4] == counts
    assert {(0, 1)} == {tuple(sorted({label for _, label, _ in features([shard])})) for shard in shards}


def test_an_interrupted_writing_of_records_goes_on_with_the_missing_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "SHARD_BYTES", 220_000)
    folder = own_records(tmp_path, FEW)
    sums, before = (folder / SUMS).read_text(), stamps(folder)
    (folder / SUMS).unlink()
    lost = Path(list_shards(folder)[1])
    lost.unlink()
    own_records(tmp_path, FEW)

    assert sums == (folder / SUMS).read_text()
    assert {lost.name} == {name for name, stamp in stamps(folder).items() if stamp != before[name]}


def test_a_damaged_shard_is_named_with_the_remedy(tmp_path):
    shard = Path(list_shards(own_records(tmp_path, FEW))[0])
    cut_off(shard)

    with pytest.raises(ConfigError, match=rf"{shard.name} .* is not what was written; delete"):
        own_records(tmp_path, FEW)


def test_records_are_counted_as_far_as_a_shard_goes(tmp_path):
    shard = make_records(tmp_path / "shards", [encoded(seed) for seed in range(5)])
    cut_off(shard)

    assert 4 == records.count([str(shard)])
    assert 2 == records.count([str(shard)], 2)


def test_a_shard_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.tfrecord cannot be read"):
        records.count([str(tmp_path / "gone.tfrecord")])


def test_a_folder_without_pictures_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no JPEG file"):
        list_folder(tmp_path)


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no TFRecord file"):
        list_shards(make_images(tmp_path / "images", 1))


def test_the_command_makes_photographs_and_records_and_says_where(tmp_path, capsys):
    assert 0 == main(["make", str(tmp_path), "--files", str(FEW)])
    assert f"{FEW} photographs in {tmp_path}/photographs-{FEW}, and the same in 1 TFRecord file beside them" in capsys.readouterr().out


def test_the_command_writes_the_records_of_someones_own_images(tmp_path, capsys):
    folder = make_images(tmp_path / "images", 3)

    assert 0 == main(["records", str(folder)])
    assert f"3 samples as TFRecords in {folder}" in capsys.readouterr().out
    assert [(f"{index:02d}.jpg", 0, encoded(index)) for index in range(3)] == features(list_shards(folder))


def test_the_command_says_how_many_pictures_of_other_kinds_it_left_out(tmp_path, capsys):
    folder = make_images(tmp_path / "images", 2)
    (folder / "class").mkdir()
    for name in ("a.png", "class/b.WEBP", "class/notes.txt"):
        (folder / name).write_bytes(b"")

    assert 0 == main(["records", str(folder)])
    assert f"2 samples as TFRecords in {folder}; 2 pictures of other kinds than JPEG were left out" in capsys.readouterr().out


def test_records_of_images_that_have_changed_since_are_refused_with_a_remedy_that_spares_the_images(tmp_path, capsys):
    folder = make_images(tmp_path / "images", 3)
    main(["records", str(folder)])
    (folder / "new.jpg").write_bytes(encoded(9))

    assert 1 == main(["records", str(folder)])
    said = capsys.readouterr().err
    assert f"{folder} holds the TFRecords of other samples" in said
    assert f"delete {SUMS} and the photographs-*.tfrecord files in {folder}" in said


def test_records_are_written_anew_once_the_old_ones_are_gone(tmp_path):
    folder = make_images(tmp_path / "images", 3)
    main(["records", str(folder)])
    (folder / "new.jpg").write_bytes(encoded(9))
    for path in [folder / SUMS, *folder.glob("photographs-*.tfrecord")]:
        path.unlink()

    assert 0 == main(["records", str(folder)])
    assert 4 == len(features(list_shards(folder)))


@pytest.mark.parametrize("words", [[], ["shake"], ["make", "a", "b"], ["records"]], ids=" ".join)
def test_a_command_that_means_nothing_shows_how_it_is_used(words, capsys):
    assert 1 == main(words)
    assert "usage: python -m benchmarks.input make" in capsys.readouterr().err


def test_a_number_of_files_that_is_none_is_refused(capsys):
    assert 1 == main(["make", "--files", "many"])
    assert "--files many" in capsys.readouterr().err
