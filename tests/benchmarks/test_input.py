"""Input pipelines over real files: every level delivers the same samples, each in its own way."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

import benchmarks.input as module  # noqa: E402 - after the check for TensorFlow
from benchmarks.input import PIPELINES, batches, build, photographs_of, records, tfdata  # noqa: E402
from benchmarks.input.samples import ask  # noqa: E402
from benchmarks.replay import build as build_replay  # noqa: E402
from benchmarks.training import INPUTS  # noqa: E402

from .builders import make_training  # noqa: E402
from .conftest import FILES  # noqa: E402
from .pictures import FILE_LEVELS, LEVELS, RECORD_LEVELS, encoded, make_images, make_records  # noqa: E402

SIZES = {"batch": 5, "image": 32}
WITHOUT_GPU = pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="this machine has a GPU")


def identities(level: str, **settings: object) -> np.ndarray:
    """The identities of all samples in the order in which they are delivered."""
    return np.concatenate([np.asarray(labels) for _, labels in batches(level, identify=True, **settings)])


def own(data_dir: Path, **settings: object) -> dict[str, object]:
    """Settings that name the tests' own data set."""
    return {"data_dir": str(data_dir), "files": FILES, "seed": 3, **SIZES, **settings}


@pytest.fixture(scope="module")
def reference(data_dir):
    """What the articles' pipeline delivers in an epoch."""
    return build(input="tfdata", **own(data_dir)).proof()


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "tfdata"])
def test_every_level_delivers_the_same_samples_in_an_epoch(data_dir, reference, level):
    proof = build(input=level, **own(data_dir, prefetch=2)).proof()

    assert FILES == proof["samples"] == reference["samples"]
    assert reference["ids"].tolist() == proof["ids"].tolist()
    assert [FILES // 2, FILES // 2] == proof["labels"].tolist() == reference["labels"].tolist()
    np.testing.assert_allclose(proof["pixels"], reference["pixels"], atol=0.02)


def test_a_sample_that_is_delivered_twice_in_place_of_another_changes_the_ids(tmp_path):
    one, other = make_images(tmp_path / "one", 4), make_images(tmp_path / "other", 4)
    (other / "03.jpg").rename(other / "04.jpg")
    proofs = [build(input="tfdata", images_dir=str(folder), batch=2, image=32).proof() for folder in (one, other)]

    assert proofs[0]["ids"].tolist() != proofs[1]["ids"].tolist()
    assert proofs[0]["labels"].tolist() == proofs[1]["labels"].tolist()


def test_the_samples_mean_colours_come_in_the_order_of_their_names(tmp_path):
    folder = make_images(tmp_path / "images", 6)
    proofs = [build(input=level, images_dir=str(folder), batch=2, image=32, seed=seed).proof() for level, seed in (("tfdata", 1), ("python_loop", 2))]

    np.testing.assert_allclose(proofs[0]["pixels"], proofs[1]["pixels"], atol=0.02)
    assert np.ptp(proofs[0]["pixels"][:, 0]) > 0.1


@pytest.mark.parametrize("level", LEVELS)
def test_two_epochs_deliver_every_sample_twice(data_dir, level):
    numbers, times = np.unique(identities(level, epochs=2, **own(data_dir, batch=4)), return_counts=True)

    assert FILES == len(numbers)
    assert {2} == set(times.tolist())


@pytest.mark.parametrize("level", LEVELS)
def test_batches_have_one_shape_although_the_epoch_does_not_divide(data_dir, level):
    found = list(batches(level, epochs=2, **own(data_dir)))

    assert [(5, 32, 32, 3)] * 8 == [tuple(samples.shape) for samples, _ in found]
    assert {("float32", "int64")} == {(np.asarray(samples).dtype.name, np.asarray(labels).dtype.name) for samples, labels in found}


@pytest.mark.parametrize("level", LEVELS)
def test_pixels_lie_between_minus_one_and_one(data_dir, level):
    samples, _ = next(batches(level, **own(data_dir)))

    assert -1 <= np.min(samples) < -0.5
    assert 0.5 < np.max(samples) <= 1


@pytest.mark.parametrize("level", [level for level in LEVELS if level not in ("article_d", "tfdata_tuned")])
def test_every_epoch_has_an_order_of_its_own_that_follows_from_the_seed(data_dir, level):
    one, again, other = (identities(level, epochs=2, **own(data_dir, batch=4, seed=seed)).tolist() for seed in (3, 3, 4))

    assert one == again
    assert one != other
    assert one[:FILES] != one[FILES:]


def test_the_second_articles_pipeline_keeps_the_order_of_the_records(tmp_path):
    make_records(tmp_path, [encoded(seed) for seed in range(6)])
    hashes, _ = records.parts_of(identities("article_d", images_dir=str(tmp_path), epochs=1, batch=3, image=8))

    assert tf.strings.to_hash_bucket_fast([f"{index:02d}.jpg" for index in range(6)], 2**32).numpy().tolist() == hashes.tolist()


@pytest.mark.parametrize("level", LEVELS)
def test_without_decoding_a_pipeline_delivers_how_long_the_files_are(data_dir, level):
    settings = own(data_dir, batch=4, decode=False)
    delivered = np.concatenate([np.asarray(samples) for samples, _ in batches(level, epochs=1, **settings)])
    lengths = [Path(photograph.path).stat().st_size for photograph in photographs_of(settings)]

    assert "int64" == delivered.dtype.name
    assert sorted(lengths) == sorted(delivered.tolist())


def test_the_cache_needs_no_file_in_the_second_epoch(tmp_path):
    folder = make_images(tmp_path / "images", 4)
    source = batches("tfdata_cache", images_dir=str(folder), epochs=2, batch=2, image=8)
    first = [next(source) for _ in range(2)]
    for path in folder.iterdir():
        path.unlink()

    assert 2 == len(first) == len(list(source))


@pytest.mark.parametrize("level", ["tfdata_serial", "tfdata_parallel", "tfdata_prefetch"])
def test_what_is_compared_is_not_added_by_tensorflow_itself(data_dir, level, monkeypatch):
    handed = []
    monkeypatch.setattr(tfdata, "hand_out", lambda data, *_: handed.append(data) or iter(()))
    batches(level, **own(data_dir))
    options = handed[0].options().experimental_optimization

    assert (False, False) == (options.map_parallelization, options.inject_prefetch)


@WITHOUT_GPU
def test_prefetching_to_a_gpu_is_refused_where_there_is_none(data_dir):
    with pytest.raises(ConfigError, match="prefetch_to_device .* no GPU"):
        batches("prefetch_to_device", **own(data_dir))


def test_prefetching_to_a_device_delivers_the_whole_set(data_dir):
    settings = own(data_dir, batch=4)
    found = list(tfdata.to_device(photographs_of(settings), ask(settings, 1), "/device:CPU:0"))

    assert FILES == sum(len(labels) for _, labels in found)
    assert all(samples.device.endswith("CPU:0") for samples, _ in found)


def test_training_knows_every_pipeline():
    assert {"synthetic", *PIPELINES} == set(INPUTS)


def test_a_pipeline_tells_what_it_really_is(data_dir):
    pipeline = build(input="tfdata_prefetch", prefetch=2, **own(data_dir))
    pipeline.run(1)
    expected = {"input": "tfdata_prefetch", "batch": 5, "image": 32, "decode": True, "prefetch": 2, "pipeline_device": "cpu", "page_cache": "warm"}
    what_of = {"set_samples": FILES, "repeated": True, "drop_remainder": True}

    assert {**expected, **what_of, "cores": len(os.sched_getaffinity(0))} == pipeline.facts()


def test_an_input_that_ends_says_that_it_is_not_repeated(data_dir):
    assert batches("tfdata", epochs=1, **own(data_dir)).facts()["repeated"] is False


def test_a_pipeline_by_itself_reads_all_its_files_before_it_is_timed(data_dir, monkeypatch):
    read = []
    monkeypatch.setattr(module, "read_all", read.extend)
    build(input="tfdata", **own(data_dir))

    assert sorted(photograph.path for photograph in photographs_of(own(data_dir))) == sorted(read)


def test_files_that_memory_cannot_hold_are_told_by_the_share_that_it_holds(data_dir, monkeypatch):
    monkeypatch.setattr(module, "resident_share", lambda _: 0.4)

    assert "40 % resident" == build(input="tfdata", **own(data_dir)).facts()["page_cache"]


def test_storage_that_tells_nothing_of_the_page_cache_is_told_as_such(data_dir, monkeypatch):
    def refuse(_):
        raise OSError(19, "No such device")

    monkeypatch.setattr(module, "resident_share", refuse)
    facts = build(input="tfdata", **own(data_dir)).facts()

    assert "page_cache" not in facts
    assert "this storage does not tell: No such device" == facts["page_cache_unknown"]


@pytest.mark.parametrize(
    "make", [build, build_replay, lambda **settings: make_training(execution="graph", **settings).run(1)], ids=["alone", "replay", "training"]
)
def test_a_cold_page_cache_is_refused_where_the_same_files_are_read_again_and_again(data_dir, make):
    with pytest.raises(ConfigError, match="page_cache=cold is for a single pass"):
        make(input="tfdata", page_cache="cold", **own(data_dir))


def test_feed_dict_is_not_timed_without_its_session(data_dir):
    with pytest.raises(ConfigError, match="input=feed_dict is timed in a session"):
        build(input="feed_dict", **own(data_dir)).run(1)


def test_a_prefetch_that_a_level_does_not_have_is_no_fact_of_it(data_dir):
    assert "prefetch" not in build(input="tfdata", prefetch=2, **own(data_dir)).facts()


def test_a_pipeline_counts_the_samples_that_it_delivered(data_dir):
    tally = build(input="tfdata", **own(data_dir)).run(7)

    assert (7, 35, "samples", ()) == (tally.steps, tally.work, tally.unit, tally.events)


@pytest.mark.parametrize("level", FILE_LEVELS)
def test_fewer_samples_than_a_batch_are_refused_with_both_numbers(tmp_path, level):
    with pytest.raises(ConfigError, match="3 samples do not fill one batch of 8"):
        batches(level, batch=8, image=32, images_dir=str(make_images(tmp_path / "images", 3)))


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_fewer_records_than_a_batch_are_refused_with_both_numbers(tmp_path, level):
    make_records(tmp_path, [encoded(seed) for seed in range(3)])

    with pytest.raises(ConfigError, match="3 samples do not fill one batch of 8"):
        batches(level, batch=8, image=32, images_dir=str(tmp_path))


def test_records_of_other_names_are_found_too(tmp_path):
    make_records(tmp_path / "train", [encoded(seed) for seed in range(2)], "photos.tfrecord-00000-of-00002")
    make_records(tmp_path / "train", [encoded(seed) for seed in range(2, 4)], "photos.tfrecord-00001-of-00002")

    assert 4 == build(input="tfrecord", images_dir=str(tmp_path), batch=2, image=8).proof()["samples"]


def test_more_classes_than_the_net_knows_are_refused(data_dir):
    with pytest.raises(ConfigError, match="2 classes and the net knows 1"):
        batches("tfdata", classes=1, **own(data_dir))


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_a_record_of_a_class_that_the_net_does_not_know_is_named(data_dir, level):
    with pytest.raises(ConfigError, match=r"record \d+ of .*tfrecord \(flower/\d+\.jpg\) cannot be used \(.*not below 1"):
        list(batches(level, epochs=1, classes=1, **own(data_dir)))


@pytest.mark.parametrize("level", RECORD_LEVELS)
def test_a_record_whose_label_is_below_zero_is_named(tmp_path, level):
    make_records(tmp_path, [encoded(seed) for seed in range(4)], label=-1)

    with pytest.raises(ConfigError, match=r"record 1 of .*some\.tfrecord \(00\.jpg\) cannot be used \(a label is below 0"):
        list(batches(level, epochs=1, classes=10, batch=2, image=8, images_dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"level": "tfdata_magic"}, "input=tfdata_magic is no pipeline; choose one of feed_dict"),
        ({"level": "tfdata_prefetch", "prefetch": -2}, "prefetch=-2 is too small"),
        ({"level": "tfdata", "batch": 0}, "batch=0 is too small"),
        ({"level": "tfdata", "on_bad": "ignore"}, "on_bad=ignore means nothing; choose fail"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_delivered_is_refused_with_the_setting(settings, said, data_dir):
    with pytest.raises(ConfigError, match=said):
        batches(**{**own(data_dir), **settings})


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "feed_dict"])
def test_training_on_a_pipeline_tells_the_wait_and_traces_once(data_dir, level):
    training = make_training(input=level, execution="graph", **own(data_dir))
    training.trace()
    tally = training.run(5)

    assert (5, 25) == (tally.steps, tally.work)
    ((name, seconds, unit),) = tally.events
    assert ("input_wait_s", "s") == (name, unit)
    assert seconds > 0
    assert 1 == training.traces()
    assert (level, "cpu") == tuple(training.facts()[name] for name in ("input", "pipeline_device"))


def test_an_input_that_ends_early_is_counted_rather_than_assumed(tmp_path):
    training = make_training(input="python_loop", execution="eager")
    training._batches = batches("python_loop", batch=8, image=16, images_dir=str(make_images(tmp_path / "images", 20)), epochs=1)

    assert (2, 16) == ((tally := training.run(5)).steps, tally.work)
