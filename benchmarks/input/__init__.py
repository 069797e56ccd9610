"""Input pipelines on real JPEG files: the same samples, decoded, resized and normalised alike, fed in different ways.

`batches` is what a training step pulls from; `build` measures a pipeline by itself. Knows nothing of nets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.contract import Tally, Workload
from benchmarks.input import python_loop, tfdata
from benchmarks.input.photographs import FILES, Photograph, list_folder, make
from harness.errors import ConfigError

PIPELINES: dict[str, Callable[..., Iterator[Any]]] = {"tfdata": tfdata.deliver, "python_loop": python_loop.deliver}


def photographs(settings: dict[str, Any]) -> list[Photograph]:
    """Return the samples that `settings` name: those of the folder `images_dir` (one subfolder a class), or the suite's own set of `files`
    photographs, made under `data_dir` (default `data`) on first use. `samples` keeps only the first so many."""
    if settings.get("images_dir"):
        found = list_folder(Path(str(settings["images_dir"])))
    else:
        found = list_folder(make(Path(str(settings.get("data_dir") or "data")), files=int(settings.get("files") or FILES)))
    return found[: int(settings["samples"])] if settings.get("samples") else found


def batches(level: str, *, epochs: int | None = None, **settings: Any) -> Iterator[Any]:
    """Return an iterator over (samples float32 (batch, image, image, 3) in [-1, 1], labels int64 (batch,)), endless unless `epochs` is given.

    A last part of an epoch that does not fill a batch is left out. Reads `batch`, `image`, `classes`, `seed` and what `photographs` reads.
    Raises ConfigError where fewer samples exist than a batch takes, or more classes than the net knows; while iterating, for a file that
    cannot be decoded, by its name.
    """
    if level not in PIPELINES:
        raise ConfigError(f"input={level} is no pipeline; choose one of {', '.join(PIPELINES)}")
    found, batch = photographs(settings), int(settings["batch"])
    if len(found) < batch:
        raise ConfigError(f"{len(found)} samples do not fill one batch of {batch}: use a batch of at most {len(found)} or a larger set of images")
    classes = 1 + max(photograph.label for photograph in found)
    if settings.get("classes") and classes > int(settings["classes"]):
        raise ConfigError(f"the images have {classes} classes and the net knows {settings['classes']}; set classes={classes}")
    return PIPELINES[level](found, batch=batch, image=int(settings["image"]), seed=int(settings.get("seed") or 0), epochs=epochs)


class Pipeline(Workload):
    """A pipeline by itself: a step pulls one batch and drops it. Work is in samples."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._batches = batches(settings["input"], **settings)

    def run(self, steps: int) -> Tally:
        done = sum(1 for _, _ in zip(range(steps), self._batches))
        return Tally(done, done * int(self.settings["batch"]), "samples")

    def facts(self) -> dict[str, Any]:
        with tf.device("/CPU:0"):
            device = tf.DeviceSpec.from_string(tf.zeros(()).device).device_type.lower()
        return {"input": self.settings["input"], "batch": self.settings["batch"], "image": self.settings["image"], "pipeline_device": device}

    def proof(self) -> dict[str, Any]:
        """One epoch as it is delivered, one sample a batch: `samples` () how many, `labels` how many of each class, `pixels` the sorted mean
        colours (samples, 3). Two pipelines that deliver the same set agree in the first two, and in the third within the decoders' tolerance."""
        means, labels = [], []
        for samples, label in batches(self.settings["input"], **{**self.settings, "batch": 1}, epochs=1):
            means.append(np.asarray(samples).mean(axis=(0, 1, 2)))
            labels.append(int(np.asarray(label)[0]))
        order = np.lexsort(np.array(means).round(2).T)
        return {"samples": np.array(len(labels)), "labels": np.bincount(labels), "pixels": np.array(means)[order]}


def build(**settings: Any) -> Pipeline:
    """Build a pipeline alone. Levels: `input` tfdata|python_loop. Sizes: `batch`, `image`, `seed`, `data_dir`, `images_dir`, `files`, `samples`."""
    return Pipeline({"input": "tfdata", "batch": 16, "image": 224, "seed": 0, **{k: v for k, v in settings.items() if v is not None}})
