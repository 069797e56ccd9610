"""Bad data: every level stops with the name of the culprit, or leaves it out and says so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ConfigError
from harness.store.private import cleaner

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from benchmarks.input import batches, build  # noqa: E402 - after the check for TensorFlow
from benchmarks.input.epoch import build as build_epoch  # noqa: E402
from benchmarks.replay import build as build_replay  # noqa: E402

from .builders import make_training  # noqa: E402
from .pictures import BAD, FILE_LEVELS, LEVELS, RECORD_LEVELS, cut_off, encoded, make_images, make_records  # noqa: E402

GOOD = 11


def with_bad(tmp_path: Path, level: str, content: bytes) -> str:
    """Return a folder for `level` with GOOD samples and one of this content, which is named bad.jpg or is record 12."""
    if level in RECORD_LEVELS:
        make_records(tmp_path / "images", [*(encoded(seed) for seed in range(GOOD)), content])
    else:
        (make_images(tmp_path / "images", GOOD) / "bad.jpg").write_bytes(content)
    return str(tmp_path / "images")


def run_through(level: str, folder: str, **settings: object) -> int:
    """Deliver one epoch in batches of 2 and return how many samples it had."""
    return sum(len(labels) for _, labels in batches(level, epochs=1, images_dir=folder, **{"batch": 2, "image": 16, **settings}))


@pytest.mark.parametrize("level", FILE_LEVELS)
@pytest.mark.parametrize("content", BAD)
def test_a_bad_file_is_named_with_the_samples_read_before(tmp_path, level, content):
    folder = with_bad(tmp_path, level, BAD[content])

    with pytest.raises(ConfigError, match=r"bad\.jpg cannot be decoded \(.*; it is .*\), after \d+ samples had been read"):
        run_through(level, folder)


@pytest.mark.parametrize("level", RECORD_LEVELS)
@pytest.mark.parametrize("content", BAD)
def test_a_bad_record_is_named_with_the_samples_read_before(tmp_path, level, content):
    folder = with_bad(tmp_path, level, BAD[content])

    with pytest.raises(ConfigError, match=r"record 12 of .*some\.tfrecord \(11\.jpg\) cannot be used \(.+\), after \d+ samples had been read"):
        run_through(level, folder)


@pytest.mark.parametrize(
    ("content", "is_"), [("truncated", r"a JPEG of 50 x 40 in mode RGB, \d+ bytes long"), ("empty", "empty"), ("text", "no picture")]
)
def test_the_error_says_what_the_file_is(tmp_path, content, is_):
    with pytest.raises(ConfigError, match=rf"; it is {is_}\), after"):
        run_through("tfdata", with_bad(tmp_path, "tfdata", BAD[content]))


@pytest.mark.parametrize("level", ["python_loop", "article_d"])
def test_the_samples_read_before_are_counted(tmp_path, level):
    folder = with_bad(tmp_path, level, b"")
    delivered = []
    with pytest.raises(ConfigError, match="after") as caught:
        delivered.extend(batches(level, epochs=1, images_dir=folder, batch=1, image=16))

    assert f"after {len(delivered)} samples" in str(caught.value)


@pytest.mark.parametrize("level", FILE_LEVELS)
@pytest.mark.parametrize("decode", [True, False])
def test_a_link_to_nowhere_is_named(tmp_path, level, decode):
    folder = make_images(tmp_path / "images", GOOD)
    (folder / "lost.jpg").symlink_to(tmp_path / "nothing")

    with pytest.raises(ConfigError, match=r"lost\.jpg cannot be decoded \(.*; it is out of reach: No such file"):
        run_through(level, str(folder), decode=decode)


@pytest.mark.parametrize("level", FILE_LEVELS)
def test_of_two_files_of_one_name_the_bad_one_is_known_by_its_class_folder_also_in_records(tmp_path, level):
    for place in ("cats", "dogs"):
        make_images(tmp_path / "images" / place, 3)
    (tmp_path / "images" / "dogs" / "01.jpg").write_bytes(b"")

    with pytest.raises(ConfigError) as caught:
        run_through(level, str(tmp_path / "images"))
    said = cleaner({})(str(caught.value))

    assert said.startswith("dogs/01.jpg cannot be decoded (")
    assert said.endswith("repair or remove it (below <path>/images)")


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_a_file_that_cannot_be_read_is_named_before_records_are_made_of_it(tmp_path, level):
    folder = make_images(tmp_path / "images", GOOD)
    (folder / "lost.jpg").symlink_to(tmp_path / "nothing")

    with pytest.raises(ConfigError, match=r"lost\.jpg cannot be decoded \(.*; it is out of reach: No such file"):
        run_through(level, str(folder), data_dir=str(tmp_path / "data"))


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_a_shard_that_cannot_be_opened_is_named(tmp_path, level):
    make_records(tmp_path / "images", [encoded(seed) for seed in range(3)])
    (tmp_path / "images" / "lost.tfrecord").symlink_to(tmp_path / "nothing")

    with pytest.raises(ConfigError, match=r"lost\.tfrecord cannot be read: No such file"):
        run_through(level, str(tmp_path / "images"))


@pytest.mark.parametrize("level", LEVELS)
def test_a_shard_that_cannot_be_opened_is_left_out_on_demand_and_the_others_are_read_to_their_end(tmp_path, level):
    make_records(tmp_path / "images", [encoded(seed) for seed in range(3)])
    (tmp_path / "images" / "lost.tfrecord").symlink_to(tmp_path / "nothing")
    source = batches(level, epochs=1, images_dir=str(tmp_path / "images"), data_dir=str(tmp_path / "data"), on_bad="skip", batch=1, image=16)

    assert 3 == sum(len(labels) for _, labels in source)
    assert re.search(r"lost\.tfrecord cannot be opened \(No such file", source.facts()["skipped_names"])


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_but_shards_that_cannot_be_opened_is_refused(tmp_path, level):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "lost.tfrecord").symlink_to(tmp_path / "nothing")

    with pytest.raises(ConfigError, match=r"lost\.tfrecord cannot be opened .* leaves nothing over"):
        run_through(level, str(tmp_path / "images"), data_dir=str(tmp_path / "data"), on_bad="skip")


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_a_shard_that_breaks_off_is_named_with_the_record(tmp_path, level):
    shard = make_records(tmp_path / "images", [encoded(seed) for seed in range(GOOD)])
    cut_off(shard)

    with pytest.raises(ConfigError, match=r"some\.tfrecord breaks off in record 11 \(.+\), after \d+ samples"):
        run_through(level, str(tmp_path / "images"))


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_a_shard_that_breaks_off_before_a_batch_is_full_is_named(tmp_path, level):
    cut_off(make_records(tmp_path / "images", [encoded(seed) for seed in range(3)]))

    with pytest.raises(ConfigError, match=r"some\.tfrecord breaks off in record 3 .* do not fill one batch of 3"):
        run_through(level, str(tmp_path / "images"), batch=3)


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_a_record_without_a_picture_is_named_with_what_it_lacks(tmp_path, level):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(tmp_path / "other.tfrecord")) as writer:
        for _ in range(2):
            writer.write(tf.train.Example().SerializeToString())

    with pytest.raises(ConfigError, match=r"record 1 of .*other\.tfrecord cannot be used \(.*image/"):
        run_through(level, str(tmp_path))


ODD = {
    "greyscale": encoded(20, "L"),
    "CMYK": encoded(21, "CMYK"),
    "a PNG": encoded(22, kind="PNG"),
    "a PNG with transparency": encoded(23, "RGBA", kind="PNG"),
}
"""Pictures that are no plain JPEG, and are decoded all the same."""


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "python_loop"])
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_picture_is_decoded_to_colours_alike_by_every_level(tmp_path, level, odd):
    loop = build(input="python_loop", images_dir=with_bad(tmp_path / "files", "python_loop", ODD[odd]), batch=1, image=16).proof()
    proof = build(input=level, images_dir=with_bad(tmp_path / "level", level, ODD[odd]), batch=1, image=16).proof()

    assert GOOD + 1 == proof["samples"]
    np.testing.assert_allclose(np.sort(loop["pixels"], axis=0), np.sort(proof["pixels"], axis=0), atol=0.02)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("content", BAD)
def test_a_bad_sample_is_left_out_on_demand(tmp_path, level, content):
    folder = with_bad(tmp_path, level, BAD[content])

    assert GOOD == run_through(level, folder, on_bad="skip", batch=1)


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_of_a_shard_that_breaks_off_the_rest_is_left_out_on_demand_and_the_next_shard_is_read(tmp_path, level):
    cut_off(make_records(tmp_path / "images", [encoded(seed) for seed in range(5)], "a.tfrecord"))
    make_records(tmp_path / "images", [encoded(seed) for seed in range(5)], "b.tfrecord")

    assert 9 == run_through(level, str(tmp_path / "images"), on_bad="skip", batch=1)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_left_out_is_told_as_a_fact_and_as_an_event(tmp_path, level):
    source = batches(level, images_dir=with_bad(tmp_path, level, b""), on_bad="skip", batch=2, image=16)
    facts = source.facts()

    assert (("skipped_files", 1.0, "files"),) == source.events()
    assert (GOOD, 1) == (facts["set_samples"], facts["skipped_files"])
    assert facts["skipped_names"].startswith("record 12 of " if level in RECORD_LEVELS else "bad.jpg")


def test_of_many_that_are_left_out_the_first_are_named_and_the_rest_is_counted(tmp_path):
    folder = make_images(tmp_path / "images", GOOD)
    for index in range(13):
        (folder / f"bad-{index:02d}.jpg").write_bytes(b"")
    names = batches("tfdata", images_dir=str(folder), on_bad="skip", batch=2, image=16).facts()["skipped_names"]

    assert "; ".join([*(f"bad-{index:02d}.jpg" for index in range(10)), "and 3 more"]) == names


def test_training_a_stand_in_and_an_epoch_tell_what_is_left_out(tmp_path):
    settings = {"input": "tfdata", "images_dir": with_bad(tmp_path, "tfdata", b""), "on_bad": "skip", "batch": 2, "image": 16}
    training, replay, epoch = make_training(execution="eager", **settings), build_replay(step_ms=0, **settings), build_epoch(**settings)
    told = [("skipped_files", 1.0, "files")]

    assert told == [event for event in training.run(1).events if event[0] == "skipped_files"]
    assert told == [event for event in replay.run(1).events if event[0] == "skipped_files"]
    assert [1.0] == [value.value for value in epoch.outcome() if value.name == "skipped_files"]
    assert [1, 1, 1] == [workload.facts()["skipped_files"] for workload in (training, replay, epoch)]


def test_a_set_of_nothing_but_bad_files_is_refused(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_bytes(b"")

    with pytest.raises(ConfigError, match=r"none of the 2 files can be decoded, .*a\.jpg for one"):
        run_through("tfdata", str(folder), on_bad="skip")
