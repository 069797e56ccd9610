"""One pass over the files, and what the page cache held before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ConfigError, Unsupported
from harness.measure.worker import complaint

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from benchmarks.input import epoch as module  # noqa: E402 - after the check for TensorFlow
from benchmarks.input import page_cache  # noqa: E402
from benchmarks.input.epoch import NotCold, build  # noqa: E402
from benchmarks.input.page_cache import drop, read_all, resident_share  # noqa: E402

from .pictures import encoded, make_images, make_records  # noqa: E402

SIZES = {"batch": 3, "image": 16}
FILES = 10


@pytest.fixture
def folder(tmp_path):
    """Ten pictures, of which three batches of 3 are delivered."""
    return make_images(tmp_path / "images", FILES)


def values(**settings):
    return {value.name: value for value in build(**{**SIZES, **settings}).outcome()}


def held(monkeypatch, share):
    """Have the kernel tell that so much of the files is in the page cache."""
    monkeypatch.setattr(module, "resident_share", lambda _: share)


def test_a_pass_tells_its_rates_its_time_and_its_samples(folder):
    found = values(images_dir=str(folder), input="tfdata")
    seconds = found["epoch_s"].value
    mean_bytes = sum(path.stat().st_size for path in folder.iterdir()) / 10

    assert ["images_per_s", "bytes_per_s", "epoch_s", "samples", "resident_before"] == list(found)
    assert 9 == found["samples"].value
    assert pytest.approx(9 / seconds) == found["images_per_s"].value
    assert pytest.approx(9 * mean_bytes / seconds) == found["bytes_per_s"].value


def test_without_decoding_the_bytes_are_those_delivered(folder):
    sizes = [path.stat().st_size for path in folder.iterdir()]
    found = values(images_dir=str(folder), input="python_loop", decode=False, batch=10)

    assert pytest.approx(sum(sizes)) == found["bytes_per_s"].value * found["epoch_s"].value


def test_a_pass_over_records_counts_their_samples(tmp_path):
    make_records(tmp_path, [encoded(seed) for seed in range(7)])
    found = values(images_dir=str(tmp_path), input="tfrecord", batch=7)

    assert 7 == found["samples"].value
    assert pytest.approx((tmp_path / "some.tfrecord").stat().st_size) == found["bytes_per_s"].value * found["epoch_s"].value


def test_the_second_epoch_has_a_rate_of_its_own(folder):
    found = values(images_dir=str(folder), input="tfdata_cache", second_epoch=True)

    assert 9 == found["samples"].value
    assert found["images_per_s_second"].value > 0


def test_a_warm_pass_finds_the_files_in_the_page_cache(folder):
    epoch = build(images_dir=str(folder), page_cache="warm", **SIZES)

    assert 1.0 == next(value.value for value in epoch.outcome() if value.name == "resident_before")
    assert "warm" == epoch.facts()["page_cache"]


def test_a_cold_pass_drops_the_files_first(folder, monkeypatch):
    dropped = []
    monkeypatch.setattr(module, "drop", lambda paths, whole_machine: dropped.append((sorted(Path(path).name for path in paths), whole_machine)))
    held(monkeypatch, 0.01)
    epoch = build(images_dir=str(folder), page_cache="cold", **SIZES)
    epoch.outcome()

    assert [([f"{index:02d}.jpg" for index in range(10)], False)] == dropped
    assert "cold" == epoch.facts()["page_cache"]


def test_where_the_cache_cannot_be_emptied_there_is_no_pass_and_the_reason_is_told(folder, monkeypatch):
    held(monkeypatch, 0.4)
    epoch = build(images_dir=str(folder), page_cache="cold", **SIZES)

    with pytest.raises(NotCold, match="40 % of the files' pages are still in the page cache") as caught:
        epoch.outcome()
    assert {"resident_share": 0.4, "allowed_share": module.COLD} == caught.value.numbers
    assert FILES == len(list(epoch._batches)) * SIZES["batch"] + 1  # nothing of it was read


def test_a_cold_pass_that_cannot_be_had_is_skipped_and_no_failure():
    assert Unsupported.code == NotCold("it is not").code == complaint(NotCold("it is not"))["code"]


def test_storage_that_does_not_tell_what_is_in_memory_gives_no_cold_pass_but_a_warm_one(folder, monkeypatch):
    def refuse(_):
        raise OSError(19, "No such device")

    monkeypatch.setattr(module, "resident_share", refuse)
    with pytest.raises(NotCold, match="this storage does not tell"):
        values(images_dir=str(folder), page_cache="cold")
    epoch = build(images_dir=str(folder), page_cache="warm", **SIZES)
    told = next(value for value in epoch.outcome() if value.name == "resident_before")

    assert (None, "this storage does not tell") == (told.value, told.reason)
    assert "page_cache" not in epoch.facts()


def test_a_cold_pass_over_copies_is_one_only_where_they_lie_on_the_storage_of_the_images(folder, tmp_path, monkeypatch):
    held(monkeypatch, 0.0)
    settings = {"images_dir": str(folder), "data_dir": str(tmp_path / "data"), "page_cache": "cold"}
    monkeypatch.setattr(module, "_device", lambda place: 0)
    here = values(input="tfrecord", **settings)
    monkeypatch.setattr(module, "_device", lambda place: int(place == folder))

    assert here["images_per_s"].value > 0
    assert values(input="tfdata", **settings)["images_per_s"].value > 0
    with pytest.raises(NotCold, match="copies on another storage .* a set of at most 10 samples"):
        values(input="tfrecord", **settings)


def test_a_bad_file_is_named_by_the_pass_and_not_by_the_page_cache(folder):
    (folder / "lost.jpg").symlink_to(folder / "nothing")

    with pytest.raises(ConfigError, match=r"lost\.jpg cannot be decoded"):
        values(images_dir=str(folder))


def test_files_that_memory_cannot_hold_are_not_called_warm(folder, monkeypatch):
    held(monkeypatch, 0.6)
    epoch = build(images_dir=str(folder), page_cache="warm", **SIZES)
    epoch.outcome()

    assert "60 % resident" == epoch.facts()["page_cache"]


def test_before_the_pass_nothing_is_said_of_the_page_cache(folder):
    assert "page_cache" not in build(images_dir=str(folder), **SIZES).facts()


def test_emptying_the_whole_machines_caches_is_done_on_demand_alone(folder, tmp_path, monkeypatch):
    switch = tmp_path / "drop_caches"
    switch.touch()
    monkeypatch.setattr(page_cache, "DROP_CACHES", switch)
    monkeypatch.setattr(page_cache.os, "sync", lambda: None)
    held(monkeypatch, 0.0)
    values(images_dir=str(folder), page_cache="cold")
    untouched = switch.read_text()
    epoch = build(images_dir=str(folder), page_cache="cold_machine", **SIZES)
    epoch.outcome()

    assert ("", "3\n", "cold_machine") == (untouched, switch.read_text(), epoch.facts()["page_cache"])


def test_emptying_them_without_the_right_to_is_no_failure_but_cannot_be_had(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(page_cache, "DROP_CACHES", tmp_path)
    monkeypatch.setattr(page_cache.os, "sync", lambda: None)

    with pytest.raises(Unsupported, match="caches of the whole machine cannot be emptied .* takes root"):
        values(images_dir=str(folder), page_cache="cold_machine")


def test_a_pass_has_no_session_to_be_fed(folder):
    with pytest.raises(ConfigError, match="input=feed_dict is fed to a session"):
        build(images_dir=str(folder), input="feed_dict", **SIZES)


def test_a_page_cache_of_another_temperature_is_refused(folder):
    with pytest.raises(ConfigError, match="page_cache=tepid is no level"):
        build(images_dir=str(folder), page_cache="tepid", **SIZES)


def test_files_that_were_read_are_resident_and_an_empty_one_counts_nothing(folder):
    paths = [str(path) for path in folder.iterdir()]
    (folder / "empty.jpg").touch()
    read_all(paths)

    assert 1.0 == resident_share([*paths, str(folder / "empty.jpg")])
    assert 0.0 == resident_share([str(folder / "empty.jpg")])


def test_dropped_files_leave_the_page_cache_on_a_real_disk(folder):
    paths = [str(path) for path in folder.iterdir()]
    read_all(paths)
    drop(paths)
    share = resident_share(paths)
    if share == 1.0:
        pytest.skip("the files of this test lie in memory only (tmpfs), where nothing can be dropped")

    assert share < module.COLD
