"""Input pipelines over real files."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from benchmarks.input import batches, build  # noqa: E402 - after the check for TensorFlow
from benchmarks.input.__main__ import main  # noqa: E402
from benchmarks.input.photographs import HEIGHT, WIDTH, list_folder, make  # noqa: E402

from .builders import make_training  # noqa: E402

LEVELS = ["tfdata", "python_loop"]
FEW = 12


def make_images(folder: Path, good: int) -> Path:
    """Write `good` small JPEG files of one class to `folder`."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for index in range(good):
        Image.fromarray(random.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(folder / f"{index:02d}.jpg")
    return folder


def size_of(path: str) -> tuple[int, int]:
    with Image.open(path) as picture:
        return picture.size


def test_the_set_is_made_of_photographs_of_the_usual_size(tmp_path):
    found = list_folder(make(tmp_path, FEW))

    assert [FEW // 2, FEW // 2] == np.bincount([photograph.label for photograph in found]).tolist()
    assert {(WIDTH, HEIGHT)} == {size_of(photograph.path) for photograph in found}


def test_the_set_is_the_same_wherever_it_is_made(tmp_path):
    one, other = ([Path(p.path).read_bytes() for p in list_folder(make(tmp_path / name, FEW))] for name in ("a", "b"))

    assert one == other


def test_a_set_that_exists_is_not_made_again(tmp_path):
    folder = make(tmp_path, FEW)
    first = (folder / "sha256.json").stat().st_mtime_ns

    assert first == (make(tmp_path, FEW) / "sha256.json").stat().st_mtime_ns
    assert [folder.name] == [entry.name for entry in tmp_path.iterdir()]


def test_a_damaged_file_of_the_set_is_named_with_the_remedy(tmp_path):
    broken = Path(list_folder(make(tmp_path, FEW))[3].path)
    broken.write_bytes(broken.read_bytes()[:-100])

    with pytest.raises(ConfigError, match=rf"{broken.name}.*delete"):
        make(tmp_path, FEW)


def test_a_full_disk_is_refused_before_a_file_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("usage", "total used free")(10, 0, 10))

    with pytest.raises(ConfigError, match="10 are free"):
        make(tmp_path / "data", FEW)
    assert [] == list((tmp_path / "data").iterdir())


def test_a_place_that_is_no_folder_is_refused_with_its_name(tmp_path):
    (tmp_path / "data").write_text("")

    with pytest.raises(ConfigError, match=r"cannot make .* under .*data"):
        make(tmp_path / "data", FEW)


def test_both_pipelines_deliver_the_same_samples_in_an_epoch(tmp_path):
    tfdata, loop = (build(input=level, data_dir=str(tmp_path), files=FEW, image=32, batch=4).proof() for level in LEVELS)

    assert FEW == tfdata["samples"] == loop["samples"]
    assert tfdata["labels"].tolist() == loop["labels"].tolist()
    np.testing.assert_allclose(tfdata["pixels"], loop["pixels"], atol=0.02)


@pytest.mark.parametrize("level", LEVELS)
def test_batches_have_one_shape_although_the_epoch_does_not_divide(tmp_path, level):
    found = list(batches(level, batch=5, image=32, data_dir=str(tmp_path), files=FEW, epochs=2))

    assert [(5, 32, 32, 3)] * 4 == [tuple(samples.shape) for samples, _ in found]
    assert {("float32", "int64")} == {(samples.dtype.name, labels.dtype.name) for samples, labels in found}


@pytest.mark.parametrize("level", LEVELS)
def test_fewer_samples_than_a_batch_are_refused_with_both_numbers(tmp_path, level):
    with pytest.raises(ConfigError, match="3 samples do not fill one batch of 8"):
        batches(level, batch=8, image=32, images_dir=str(make_images(tmp_path / "images", 3)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("content", ["truncated", "empty", "text"])
def test_a_bad_file_is_named_with_the_samples_read_before(tmp_path, level, content):
    folder = make_images(tmp_path / "images", 11)
    whole = (folder / "00.jpg").read_bytes()
    bad = folder / "bad.jpg"
    bad.write_bytes({"truncated": whole[: len(whole) // 2], "empty": b"", "text": b"no picture"}[content])

    with pytest.raises(ConfigError, match=r"bad\.jpg cannot be decoded .* after \d+ samples"):
        list(batches(level, batch=4, image=32, images_dir=str(folder), epochs=1))


def test_a_folder_without_pictures_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no JPEG file"):
        batches("tfdata", batch=1, image=32, images_dir=str(tmp_path))


@pytest.mark.parametrize("level", LEVELS)
def test_training_on_a_pipeline_tells_the_wait_and_traces_once(tmp_path, level):
    training = make_training(input=level, data_dir=str(tmp_path), files=FEW, image=32, batch=5, execution="graph")
    training.trace()
    tally = training.run(5)

    assert (5, 25) == (tally.steps, tally.work)
    ((name, seconds, unit),) = tally.events
    assert ("input_wait_s", "s") == (name, unit)
    assert seconds > 0
    assert 1 == training.traces()


def test_an_input_that_ends_early_is_counted_rather_than_assumed(tmp_path):
    training = make_training(input="python_loop", execution="eager")
    training._batches = batches("python_loop", batch=8, image=16, images_dir=str(make_images(tmp_path / "images", 20)), epochs=1)

    assert (2, 16) == ((tally := training.run(5)).steps, tally.work)


def test_more_classes_than_the_net_knows_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="2 classes and the net knows 1"):
        batches("tfdata", batch=1, image=32, classes=1, data_dir=str(tmp_path), files=FEW)


def test_the_command_makes_the_set_and_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.input.__main__.make", lambda place: make(place, FEW))

    assert 0 == main(["make", str(tmp_path)])
    assert f"{FEW} photographs in {tmp_path}" in capsys.readouterr().out
    assert 1 == main(["shake"])
