"""Input pipelines on real photographs: the same samples, decoded, resized and normalised alike, fed in different ways.

`batches` is what a training step pulls from; `build` measures a pipeline by itself. Knows nothing of nets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.contract import Tally, Workload
from benchmarks.input import given, python_loop, records, tfdata, tfrecord
from benchmarks.input.bad import bad_records, survey_records
from benchmarks.input.page_cache import read_all, resident_share, temperature
from benchmarks.input.photographs import FILES, own, place
from benchmarks.input.samples import Asked, Photograph, Source, ask, cores, list_shards
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
NAMES_TOLD = 10
"""So many of the samples that were left out are named in facts."""


class Batches:
    """An iterator over the batches of one level that also knows its `source` and `device`, where the batches lie."""

    def __init__(self, level: str, asked: Asked, batches: Iterator[Any], source: Source) -> None:
        self.level, self.asked, self.source = level, asked, source
        self.device: str | None = None
        self._page_cache: dict[str, Any] = {}
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        if self.device is None:
            self.device = tf.DeviceSpec.from_string(getattr(batch[0], "device", "") or "/device:CPU:0").device_type.lower()
        return batch

    def warm(self, asked: object = None) -> Batches:
        """Have all that is going to be read in the page cache, for whoever goes over it again and again, and remember what really is. `asked` is what the
        settings ask of the page cache. Raises ConfigError where that is anything but warm."""
        if asked not in (None, "warm"):
            raise ConfigError(
                f"page_cache={asked} is for a single pass (workload epoch): files that are read again and again come from memory; use warm"
            )
        read_all(self.source.paths)
        try:
            self._page_cache = {"page_cache": temperature(resident_share(self.source.paths))}
        except OSError as error:
            self._page_cache = {"page_cache_unknown": f"this storage does not tell: {error.strerror or error}"}
        return self

    def facts(self) -> dict[str, Any]:
        """What every workload tells that pulls from here.

        `input`, `batch`, `image`, `decode`, `cores` (how many it may use); `set_samples`, how many an epoch has, `repeated`, whether another follows it, for
        ever, and `drop_remainder`: what does not fill a batch at its end is left out; `pipeline_device` once a batch was delivered. Of a person's set:
        `set_found`, of how many samples they were drawn, `other_pictures`, how many are no JPEG files, `set_copied` where copies are read. `page_cache` once
        `warm` was called; `prefetch` (batches) of the level that has it; where bad files are left out on demand, `skipped_files` and `skipped_names`.
        """
        source, skipped = self.source, self.source.skipped
        return {
            "input": self.level,
            "batch": self.asked.batch,
            "image": self.asked.image,
            "decode": self.asked.decode,
            "cores": cores(),
            "set_samples": source.samples,
            "repeated": self.asked.epochs is None,
            "drop_remainder": True,
            **({"set_found": source.found} if source.found is not None else {}),
            **({"other_pictures": source.others} if source.others else {}),
            **({"set_copied": True} if source.copied else {}),
            **({"pipeline_device": self.device} if self.device else {}),
            **self._page_cache,
            **({"prefetch": self.asked.prefetch} if self.level == "tfdata_prefetch" else {}),
            **({"skipped_files": len(skipped), "skipped_names": _listed(skipped)} if self.asked.skip else {}),
        }

    def events(self) -> tuple[tuple[str, float, str], ...]:
        """What belongs into every tally: how many files are left out, where that was asked for."""
        return (("skipped_files", float(len(self.source.skipped)), "files"),) if self.asked.skip else ()


def _listed(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    rest = len(names) - NAMES_TOLD
    return "; ".join([*names[:NAMES_TOLD], *([f"and {rest} more"] if rest > 0 else [])])


def photographs_of(settings: dict[str, Any]) -> list[Photograph]:
    """Return the samples that `settings` name, as files.

    Those of the folder `images_dir` (one subfolder a class, or TFRecords): at most `files` of them, or as many as fill a `batch`, drawn as
    `benchmarks.input.given` says. Without it, or with `photographs` own, the suite's own set of `files` photographs, made under `data_dir` (default: `data` in the
    project) on first use. `samples` stands in for `files`; `verify` False trusts what the suite has made by the sizes of its files.
    """
    return _files(settings)[0]


def shards_of(settings: dict[str, Any]) -> list[str]:
    """Return the paths of the TFRecord shards that hold these samples, written on first use where the set has none."""
    return _shards(settings)[0]


def own_records(data_dir: Path, files: int = FILES, *, thorough: bool = True) -> Path:
    """Return the folder with the shards of the suite's own set of `files` photographs; both are made if need be."""
    return records.make(place(data_dir, files) / records.RECORDS, lambda: own(data_dir, files, thorough=thorough), thorough=thorough)


def batches(level: str, *, epochs: int | None = None, identify: bool = False, **settings: Any) -> Batches:
    """Return an iterator over (samples float32 (batch, image, image, 3) in [-1, 1], labels int64 (batch,)), endless unless `epochs` is given.

    A last part of an epoch that does not fill a batch is left out. Reads `batch`, `image`, `classes`, `seed`, `decode`, `prefetch`, `on_bad` (fail,
    or skip: what cannot be decoded is found now, left out and counted) and what `photographs_of` reads. `decode` False: samples are int64 (batch,),
    the numbers of encoded bytes. `identify`: labels hold the samples' identities too, see `records.identities`. Nothing is read before the first
    batch is asked for, but for checks of the whole set and for the form that it lacks.

    Raises ConfigError where fewer samples exist than a batch takes, or more classes than the net knows; while iterating, for a sample that
    cannot be decoded, by its file's name.
    """
    if level not in PIPELINES:
        raise ConfigError(f"input={level} is no pipeline; choose one of {', '.join(PIPELINES)}")
    asked = ask(settings, epochs, identify=identify)
    return _from_records(level, *_shards(settings), asked) if level in FROM_RECORDS else _from_files(level, *_files(settings), asked)


def _from_files(level: str, found: list[Photograph], source: Source, asked: Asked) -> Batches:
    _check_batch(len(found), asked.batch)
    classes = 1 + max(photograph.label for photograph in found)
    if asked.classes is not None and classes > asked.classes:
        raise ConfigError(f"the images have {classes} classes and the net knows {asked.classes}; set classes={classes}")
    if asked.identify:
        names = [photograph.name.encode(errors="surrogateescape") or Path(photograph.path).read_bytes() for photograph in found]
        numbers = records.identities(tf.constant(names), tf.constant([photograph.label for photograph in found])).numpy()
        found = [replace(photograph, label=int(number)) for photograph, number in zip(found, numbers)]
    return Batches(level, asked, FROM_FILES[level](found, asked), source)


def _from_records(level: str, found: list[str], source: Source, asked: Asked) -> Batches:
    count, bad = survey_records(found, asked) if asked.skip else (source.samples, [])
    if count < asked.batch:
        for sentence in bad_records(found, asked):
            raise ConfigError(f"{sentence}, and the other records do not fill one batch of {asked.batch}; repair the file or write it anew")
    _check_batch(count, asked.batch)
    return Batches(level, asked, FROM_RECORDS[level](found, asked), replace(source, samples=count, skipped=(*source.skipped, *bad)))


def _check_batch(count: int, batch: int) -> None:
    if count < batch:
        raise ConfigError(f"{count} samples do not fill one batch of {batch}: use a batch of at most {count} or a larger set of images")


def _files(settings: dict[str, Any]) -> tuple[list[Photograph], Source]:
    wanted = _wanted(settings)
    if wanted is not None:
        return given.files(wanted)
    found = own(_made_in(settings), _how_many(settings), thorough=_thorough(settings))
    return found, Source(tuple(photograph.path for photograph in found), len(found))


def _shards(settings: dict[str, Any]) -> tuple[list[str], Source]:
    wanted = _wanted(settings)
    if wanted is not None:
        return given.shards(wanted)
    files = _how_many(settings)
    found = list_shards(own_records(_made_in(settings), files, thorough=_thorough(settings)))
    return found, Source(tuple(found), files)


def _wanted(settings: dict[str, Any]) -> given.Wanted | None:
    """Return what is wanted of a person's set, None where the suite's own is asked for."""
    if not settings.get("images_dir") or settings.get("photographs") == "own":
        return None
    most = _how_many(settings) if settings.get("samples") else max(_how_many(settings), int(settings.get("batch") or 1))
    folder, skip = Path(str(settings["images_dir"])), settings.get("on_bad") == "skip"
    return given.Wanted(folder, most, _made_in(settings), skip=skip, thorough=_thorough(settings))


def _how_many(settings: dict[str, Any]) -> int:
    wanted = int(settings.get("samples") or settings.get("files") or FILES)
    if wanted < 1:
        raise ConfigError(f"samples={wanted} are none; give at least 1")
    return wanted


def _made_in(settings: dict[str, Any]) -> Path:
    return Path(str(settings.get("data_dir") or Path(__file__).resolve().parents[2] / "data"))


def _thorough(settings: dict[str, Any]) -> bool:
    return settings.get("verify") is None or bool(settings["verify"])


class Pipeline(Workload):
    """A pipeline by itself: a step pulls one batch and drops it. Work is in samples."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._batches = batches(settings["input"], **settings).warm(settings.get("page_cache"))

    def run(self, steps: int) -> Tally:
        if self.settings["input"] == "feed_dict":
            raise ConfigError(
                "input=feed_dict is timed in a session, and a pipeline by itself has none; use input=python_loop, which makes the same batches"
            )
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
