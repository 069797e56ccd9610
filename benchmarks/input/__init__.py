"""Input pipelines on real photographs: the same samples, decoded, resized and normalised alike, fed in different ways.

`batches` is what a training step pulls from; `build` measures a pipeline by itself. Knows nothing of nets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.contract import Tally, Workload
from benchmarks.input import python_loop, records, tfdata, tfrecord
from benchmarks.input.bad import bad_records, leave_out, survey_records
from benchmarks.input.photographs import FILES, own, place
from benchmarks.input.samples import Asked, Photograph, ask, cores, list_folder, list_shards
from harness.errors import ConfigError

FROM_FILES: dict[str, Callable[..., Iterator[Any]]] = {
    "feed_dict": python_loop.feed_dict,
    "python_loop": python_loop.python_loop,
    "from_generator": python_loop.from_generator,
    "tfdata_serial": tfdata.tfdata_serial,
    "tfdata_parallel": tfdata.tfdata_parallel,
    "tfdata_prefetch": tfdata.tfdata_prefetch,
    "tfdata": tfdata.tfdata,
    "tfdata_cache": tfdata.tfdata_cache,
    "tfdata_tuned": tfdata.tfdata_tuned,
    "prefetch_to_device": tfdata.prefetch_to_device,
    "article_s": tfdata.article_s,
}
FROM_RECORDS: dict[str, Callable[..., Iterator[Any]]] = {"tfrecord": tfrecord.tfrecord, "article_d": tfrecord.article_d}
PIPELINES = {**FROM_FILES, **FROM_RECORDS}
"""Level of `input` -> what delivers its batches; `synthetic` is no pipeline and belongs to whoever pulls."""


class Batches:
    """An iterator over the batches of one level that also knows `skipped`, what was left out of the data set, and `device`, where they lie."""

    def __init__(self, level: str, asked: Asked, batches: Iterator[Any], skipped: list[str]) -> None:
        self.level, self.asked, self.skipped = level, asked, skipped
        self.device: str | None = None
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        if self.device is None:
            self.device = tf.DeviceSpec.from_string(getattr(batch[0], "device", "") or "/device:CPU:0").device_type.lower()
        return batch

    def facts(self) -> dict[str, Any]:
        """What every workload tells that pulls from here: `input`, `batch`, `image`, `decode`, `cores` (how many it may use), `pipeline_device` once
        a batch was delivered; `prefetch` (batches) of the level that has it, and `skipped_files` where bad ones are left out on demand."""
        return {
            "input": self.level,
            "batch": self.asked.batch,
            "image": self.asked.image,
            "decode": self.asked.decode,
            "cores": cores(),
            **({"pipeline_device": self.device} if self.device else {}),
            **({"prefetch": self.asked.prefetch} if self.level == "tfdata_prefetch" else {}),
            **({"skipped_files": len(self.skipped)} if self.asked.skip else {}),
        }

    def events(self) -> tuple[tuple[str, float, str], ...]:
        """What belongs into every tally: how many files are left out, where that was asked for."""
        return (("skipped_files", float(len(self.skipped)), "files"),) if self.asked.skip else ()


def photographs_of(settings: dict[str, Any]) -> list[Photograph]:
    """Return the samples that `settings` name: those of the folder `images_dir` (one subfolder a class), or the suite's own set of `files`
    photographs, made under `data_dir` (default `data`) on first use. `samples` keeps only the first so many; `verify` False trusts a set of the
    suite's own by the sizes of its files."""
    found = list_folder(Path(str(settings["images_dir"]))) if settings.get("images_dir") else own(*_own(settings), thorough=_thorough(settings))
    return found[: int(settings["samples"])] if settings.get("samples") else found


def shards_of(settings: dict[str, Any]) -> list[str]:
    """Return the paths of the TFRecord shards that `settings` name: those of `images_dir`, or of the suite's own set, written on first use."""
    if settings.get("images_dir"):
        return list_shards(Path(str(settings["images_dir"])))
    return list_shards(own_records(*_own(settings), thorough=_thorough(settings)))


def own_records(data_dir: Path, files: int = FILES, *, thorough: bool = True) -> Path:
    """Return the folder with the shards of the suite's own set of `files` photographs; both are made if need be."""
    return records.make(place(data_dir, files) / records.RECORDS, lambda: own(data_dir, files, thorough=thorough), thorough=thorough)


def files_of(level: str, settings: dict[str, Any]) -> list[str]:
    """Return the paths of all files that a pipeline reads in an epoch."""
    _check(level)
    return shards_of(settings) if level in FROM_RECORDS else [photograph.path for photograph in photographs_of(settings)]


def batches(level: str, *, epochs: int | None = None, identify: bool = False, **settings: Any) -> Batches:
    """Return an iterator over (samples float32 (batch, image, image, 3) in [-1, 1], labels int64 (batch,)), endless unless `epochs` is given.

    A last part of an epoch that does not fill a batch is left out. Reads `batch`, `image`, `classes`, `seed`, `decode`, `prefetch`, `on_bad` (fail,
    or skip: what cannot be decoded is found now, left out and counted) and what `photographs_of` reads. `decode` False: samples are int64 (batch,),
    the numbers of encoded bytes. `identify`: labels hold the samples' identities too, see `records.identities`. Nothing is read before the first
    batch is asked for, but for checks of the whole set.

    Raises ConfigError where fewer samples exist than a batch takes, or more classes than the net knows; while iterating, for a sample that
    cannot be decoded, by its file's name.
    """
    _check(level)
    asked = ask(settings, epochs, identify=identify)
    return _from_records(level, shards_of(settings), asked) if level in FROM_RECORDS else _from_files(level, photographs_of(settings), asked)


def _from_files(level: str, found: list[Photograph], asked: Asked) -> Batches:
    skipped: list[str] = []
    if asked.skip:
        found, skipped = leave_out(found)
    _check_batch(len(found), asked.batch)
    classes = 1 + max(photograph.label for photograph in found)
    if asked.classes is not None and classes > asked.classes:
        raise ConfigError(f"the images have {classes} classes and the net knows {asked.classes}; set classes={classes}")
    if asked.identify:
        numbers = records.identities(tf.constant([p.name for p in found]), tf.constant([p.label for p in found])).numpy()
        found = [replace(photograph, label=int(number)) for photograph, number in zip(found, numbers)]
    return Batches(level, asked, FROM_FILES[level](found, asked), skipped)


def _from_records(level: str, found: list[str], asked: Asked) -> Batches:
    count, skipped = survey_records(found, asked) if asked.skip else (records.count(found, asked.batch), [])
    if count < asked.batch:
        for sentence in bad_records(found, asked):
            raise ConfigError(f"{sentence}, and the other records do not fill one batch of {asked.batch}; repair the file or write it anew")
    _check_batch(min(count, asked.samples or count), asked.batch)
    return Batches(level, asked, FROM_RECORDS[level](found, asked), skipped)


def _check(level: str) -> None:
    if level not in PIPELINES:
        raise ConfigError(f"input={level} is no pipeline; choose one of {', '.join(PIPELINES)}")


def _check_batch(count: int, batch: int) -> None:
    if count < batch:
        raise ConfigError(f"{count} samples do not fill one batch of {batch}: use a batch of at most {count} or a larger set of images")


def _own(settings: dict[str, Any]) -> tuple[Path, int]:
    return Path(str(settings.get("data_dir") or "data")), int(settings.get("files") or FILES)


def _thorough(settings: dict[str, Any]) -> bool:
    return settings.get("verify") is None or bool(settings["verify"])


class Pipeline(Workload):
    """A pipeline by itself: a step pulls one batch and drops it. Work is in samples."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._batches = batches(settings["input"], **settings)

    def run(self, steps: int) -> Tally:
        done = sum(1 for _, _ in zip(range(steps), self._batches))
        return Tally(done, done * int(self.settings["batch"]), "samples", self._batches.events())

    def facts(self) -> dict[str, Any]:
        return self._batches.facts()

    def proof(self) -> dict[str, Any]:
        """One epoch as it is delivered, one sample a batch: `samples` () how many, `ids` (2,) the sum and the exclusive or of hashes of their
        names, `labels` how many of each class, `pixels` (samples, 3) the mean colours in the order of the names' hashes.

        Two pipelines that deliver the same set agree in the first three, and in the last within the decoders' tolerance. A TFRecord without a
        file name is known by its content. Without decoding, `pixels` is (samples, 1), the number of bytes.
        """
        means, numbers = [], []
        for samples, label in batches(self.settings["input"], epochs=1, identify=True, **{**self.settings, "batch": 1}):
            pixels = np.asarray(samples, np.float64)
            means.append(pixels.reshape(-1, pixels.shape[-1]).mean(axis=0))
            numbers.append(int(np.asarray(label)[0]))
        names, labels = records.parts_of(np.array(numbers, np.int64))
        order = np.lexsort((*np.array(means).round(2).T, names))
        ids = np.array([names.sum(), np.bitwise_xor.reduce(names)])
        return {"samples": np.array(len(numbers)), "ids": ids, "labels": np.bincount(labels), "pixels": np.array(means)[order]}


def build(**settings: Any) -> Pipeline:
    """Build a pipeline alone. Levels: `input`, any of PIPELINES (default tfdata). Sizes: what `batches` and `photographs_of` read."""
    return Pipeline({"input": "tfdata", "batch": 16, "image": 224, "seed": 0, **{k: v for k, v in settings.items() if v is not None}})
