"""Other people's sets of images: how many of their samples are measured, and how the form comes about that a set lacks."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from benchmarks.input import batches, build, given, photographs_of, records, shards_of  # noqa: E402 - after the check for TensorFlow
from benchmarks.input.records import encode  # noqa: E402
from benchmarks.input.samples import draw, list_folder, look_into  # noqa: E402

from .pictures import BAD, LEVELS, cut_off, encoded, make_images, make_records  # noqa: E402

SIZES = {"batch": 2, "image": 16, "seed": 3}


@pytest.fixture
def settings(tmp_path):
    """Return the settings that name the folder `images`, and one for what is made of it."""
    return {"images_dir": str(tmp_path / "images"), "data_dir": str(tmp_path / "data"), **SIZES}


def make_classes(folder: Path, each: int = 4) -> Path:
    """Write `each` pictures of each of two classes, whose files have the same names."""
    for number, name in enumerate(("cats", "dogs")):
        (folder / name).mkdir(parents=True)
        for index in range(each):
            (folder / name / f"{index:02d}.jpg").write_bytes(encoded(100 * number + index))
    return folder


def make_shards(folder: Path, each: int, shards: int, named: bool = True) -> None:
    """Write `shards` TFRecord files of `each` pictures, of class 1 and 2 in turns."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tf.io.TFRecordWriter(str(folder / f"{shard:02d}.tfrecord")) as writer:
            for index in range(each):
                number = shard * each + index
                writer.write(encode(encoded(number), 1 + number % 2, f"{number:03d}.jpg" if named else ""))


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Whether two proofs are of the same samples, pixels included."""
    exact = all(np.array_equal(one[name], other[name]) for name in ("samples", "ids", "labels"))
    return exact and np.allclose(one["pixels"], other["pixels"], atol=0.02)


def in_the_folder(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


# ---------------------------------------------------------------- every level reads every set


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "tfdata"])
def test_of_a_set_of_jpeg_files_alone_every_level_delivers_the_same_samples(tmp_path, settings, level):
    make_classes(tmp_path / "images")
    proof = build(input=level, **settings).proof()

    assert 8 == proof["samples"]
    assert [4, 4] == proof["labels"].tolist()
    assert same(build(input="tfdata", **settings).proof(), proof)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("level", [level for level in LEVELS if level != "tfrecord"])
def test_of_a_set_of_records_alone_every_level_delivers_the_same_samples(tmp_path, settings, level, named):
    make_shards(tmp_path / "images", each=3, shards=2, named=named)
    proof = build(input=level, **settings).proof()

    assert 6 == proof["samples"]
    assert [0, 3, 3] == proof["labels"].tolist()
    assert same(build(input="tfrecord", **settings).proof(), proof)


@pytest.mark.parametrize("make", [make_classes, lambda folder: make_shards(folder, each=4, shards=2)], ids=["files", "records"])
@pytest.mark.parametrize("level", [level for level in LEVELS if level != "tfdata"])
def test_of_a_set_that_is_too_large_every_level_delivers_the_same_few_samples(tmp_path, settings, level, make):
    make(tmp_path / "images")
    proof = build(input=level, **settings, files=5).proof()

    assert 5 == proof["samples"]
    assert same(build(input="tfdata", **settings, files=5).proof(), proof)


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_written_into_a_persons_folder(tmp_path, settings, level):
    for make in (make_classes, lambda folder: make_shards(folder, each=4, shards=2)):
        shutil.rmtree(tmp_path / "images", ignore_errors=True)
        make(tmp_path / "images")
        before = in_the_folder(tmp_path / "images")
        list(batches(level, epochs=1, **settings, files=5))

        assert before == in_the_folder(tmp_path / "images")


# ---------------------------------------------------------------- which samples


def test_a_larger_drawing_holds_the_smaller_and_keeps_the_order():
    few, many = draw(range(100), 10), draw(range(100), 30)

    assert (10, 30) == (len(set(few)), len(set(many)))
    assert set(few) < set(many)
    assert [sorted(few), sorted(many)] == [few, many]
    assert few == draw(range(100), 10)
    assert few != list(range(10))


def test_a_set_that_is_small_enough_is_taken_whole():
    assert [3, 1, 2] == draw([3, 1, 2], 3)


def test_samples_that_were_drawn_keep_their_classes(tmp_path, settings):
    folder = make_classes(tmp_path / "images")
    labels = {photograph.name: photograph.label for photograph in list_folder(folder)}
    drawn = photographs_of({**settings, "files": 3})

    assert 3 == len(drawn)
    assert {photograph.name: photograph.label for photograph in drawn}.items() <= labels.items()


def test_a_batch_that_is_larger_than_the_usual_set_is_filled(tmp_path, settings):
    make_classes(tmp_path / "images")

    assert 6 == len(photographs_of({**settings, "files": 3, "batch": 6}))
    assert 5 == len(photographs_of({**settings, "samples": 5, "batch": 6}))


def test_the_suites_own_set_can_be_asked_for_whatever_the_persons_is(data_dir, tmp_path, settings):
    make_classes(tmp_path / "images")
    mine = {**settings, "data_dir": str(data_dir), "photographs": "own", "files": 24}

    assert {"china", "flower"} == {photograph.name.partition("/")[0] for photograph in photographs_of(mine)}


def test_of_many_shards_each_gives_some_records(tmp_path, settings):
    make_shards(tmp_path / "images", each=5, shards=4)
    sources = {photograph.source.split(" of ")[1].split(" (")[0].rpartition("/")[2] for photograph in photographs_of({**settings, "files": 8})}

    assert {f"{shard:02d}.tfrecord" for shard in range(4)} == sources


def test_shards_of_which_some_hold_little_give_as_many_records_as_are_wanted(tmp_path, settings):
    make_shards(tmp_path / "images", each=1, shards=3)
    make_records(tmp_path / "images", [encoded(seed) for seed in range(9)], "long.tfrecord")

    assert 8 == len(photographs_of({**settings, "files": 8}))


def test_facts_tell_of_how_many_samples_were_drawn_and_that_copies_are_read(tmp_path, settings):
    make_classes(tmp_path / "images")
    told = {level: batches(level, **settings, files=5).facts() for level in ("tfdata", "tfrecord")}

    assert {(5, 8)} == {(facts["set_samples"], facts["set_found"]) for facts in told.values()}
    assert {"tfdata": None, "tfrecord": True} == {level: facts.get("set_copied") for level, facts in told.items()}


def test_pictures_of_other_kinds_beside_the_jpeg_files_are_counted(tmp_path, settings):
    folder = make_classes(tmp_path / "images")
    for name in ("a.png", "cats/b.webp", "dogs/c.PNG", "dogs/notes.txt", "dogs/.hidden.png"):
        (folder / name).write_bytes(b"")

    assert 3 == batches("tfdata", **settings).facts()["other_pictures"] == batches("tfrecord", **settings).facts()["other_pictures"]


def test_a_folder_that_is_named_like_a_picture_is_none(tmp_path):
    folder = make_classes(tmp_path / "images")
    (folder / "cats" / "more.jpg").mkdir()

    assert 8 == len(look_into(folder).jpegs)


# ---------------------------------------------------------------- records of one's own


def test_records_beside_the_files_are_read_where_they_are_as_many(tmp_path, settings):
    folder = make_images(tmp_path / "images", 4)
    shard = make_records(folder, [encoded(index) for index in range(4)])

    assert [str(shard)] == shards_of(settings)
    assert same(build(input="tfdata", **settings).proof(), build(input="tfrecord", **settings).proof())


@pytest.mark.parametrize("held", [3, 5])
def test_records_beside_other_files_are_written_anew_elsewhere(tmp_path, settings, held):
    folder = make_images(tmp_path / "images", 4)
    make_records(folder, [encoded(index) for index in range(held)])
    found = shards_of(settings)

    assert {str(tmp_path / "data")} == {path[: len(str(tmp_path / "data"))] for path in found}
    assert 4 == records.count(found)


def test_records_of_files_that_changed_are_written_anew(tmp_path, settings):
    folder = make_images(tmp_path / "images", 4)
    before = shards_of(settings)
    (folder / "00.jpg").write_bytes(encoded(77, "L"))
    after = shards_of(settings)

    assert before != after
    assert same(build(input="tfdata", **settings).proof(), build(input="tfrecord", **settings).proof())


def test_what_is_there_already_is_not_written_again(tmp_path, settings):
    make_shards(tmp_path / "images", each=4, shards=2)
    few = {**settings, "files": 5}
    shards_of(few)
    before = in_the_folder(tmp_path / "data")
    shards_of(few)

    assert before == in_the_folder(tmp_path / "data")


def test_an_interrupted_copying_goes_on(tmp_path, settings):
    make_shards(tmp_path / "images", each=3, shards=1)
    place = Path(photographs_of(settings)[0].path).parent
    (place / "sha256.json").unlink()
    (place / "000001.jpg").unlink()

    assert [encoded(index) for index in range(3)] == [Path(photograph.path).read_bytes() for photograph in photographs_of(settings)]


def test_no_room_for_copies_is_refused_before_one_is_written(tmp_path, settings, monkeypatch):
    make_shards(tmp_path / "images", each=3, shards=1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("usage", "total used free")(10, 0, 10))

    with pytest.raises(ConfigError, match=r"the pictures of TFRecords, as files, need \d+ bytes under .* 10 are free; make room there"):
        photographs_of(settings)


def test_copies_that_cannot_be_written_are_told_with_the_place(tmp_path, settings):
    make_shards(tmp_path / "images", each=3, shards=1)
    (tmp_path / "data").write_text("")

    with pytest.raises(ConfigError, match=r"cannot write the pictures of the TFRecords in .*images to .*data"):
        photographs_of(settings)


def test_a_folder_without_samples_is_refused(tmp_path, settings):
    (tmp_path / "images").mkdir()

    for level in ("tfdata", "tfrecord"):
        with pytest.raises(ConfigError, match="no JPEG file .* and no TFRecord file"):
            batches(level, **settings)


# ---------------------------------------------------------------- bad samples


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("content", BAD)
def test_a_bad_file_is_left_out_of_the_records_too(tmp_path, settings, level, content):
    folder = make_classes(tmp_path / "images")
    (folder / "dogs" / "02.jpg").write_bytes(BAD[content])
    source = batches(level, epochs=1, on_bad="skip", **{**settings, "batch": 1})

    assert 7 == sum(len(labels) for _, labels in source)
    assert (1, "dogs/02.jpg") == (source.facts()["skipped_files"], source.facts()["skipped_names"])


@pytest.mark.parametrize("level", LEVELS)
def test_a_bad_record_is_known_by_its_shard_and_number_also_where_copies_are_read(tmp_path, settings, level):
    make_records(tmp_path / "images", [*(encoded(seed) for seed in range(4)), BAD["truncated"]])

    with pytest.raises(ConfigError, match=r"record 5 of .*some\.tfrecord \(04\.jpg\) cannot be (used|decoded) \("):
        list(batches(level, epochs=1, **{**settings, "batch": 1}))


@pytest.mark.parametrize("level", ["tfdata", "python_loop"])
def test_a_shard_that_breaks_off_is_named_where_copies_are_read(tmp_path, settings, level):
    cut_off(make_records(tmp_path / "images", [encoded(seed) for seed in range(4)]))

    with pytest.raises(ConfigError, match=r"some\.tfrecord breaks off in record 4 .*; repair the file"):
        batches(level, **settings)


def test_of_a_shard_that_breaks_off_the_rest_is_left_out_of_copies_on_demand_and_told(tmp_path, settings):
    cut_off(make_records(tmp_path / "images", [encoded(seed) for seed in range(4)]))
    facts = batches("tfdata", on_bad="skip", **settings).facts()

    assert (3, 1) == (facts["set_samples"], facts["skipped_files"])
    assert "some.tfrecord breaks off in record 4" in facts["skipped_names"]


def test_a_record_without_a_class_is_no_sample(tmp_path, settings):
    make_records(tmp_path / "images", [encoded(seed) for seed in range(4)], label=-2)

    with pytest.raises(ConfigError, match=r"record 1 of .*some\.tfrecord \(00\.jpg\) cannot be used \(its label -2 is below 0"):
        batches("tfdata", **settings)


def test_copies_lie_where_no_set_of_a_person_is_looked_for(tmp_path, settings):
    make_shards(tmp_path / "images", each=3, shards=1)
    shards_of({**settings, "files": 2})

    assert {given.COPIES} == {path.name for path in (tmp_path / "data").iterdir() if path.name[0] != "."}
    assert ((), ()) == (look_into(tmp_path / "data").jpegs, look_into(tmp_path / "data").shards)
