"""One whole pass over the files of a data set, with the page cache warm or really emptied of them: `build(**settings)`.

It is timed from the first request to the last batch, so that what a pipeline does before its first batch counts; steady rates are the business of
`benchmarks.input`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contract import Value, Workload
from benchmarks.input import batches
from benchmarks.input.page_cache import COLD, drop, read_all, resident_share, temperature
from harness.errors import ConfigError, Unsupported

WARM, OF_FILES, OF_MACHINE = "warm", "cold", "cold_machine"
"""The levels of the page cache: all files are in it; none is; none is, and nothing else is cached of anything, names of files included."""


class NotCold(Unsupported):
    """A cold page cache was asked for and cannot be had. `numbers` are for programs."""

    def __init__(self, why: str, share: float | None = None) -> None:
        super().__init__(f"a cold page cache was asked for, but {why}")
        self.numbers = {} if share is None else {"resident_share": share, "allowed_share": COLD}


class Epoch(Workload):
    """A pass over the whole data set. What is needed for it is made and built before; only the pass is timed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        level, passes = str(settings["input"]), 2 if settings.get("second_epoch") else 1
        self._batches = batches(level, epochs=passes, **settings)
        self._passes = passes
        self._files = self._batches.source.paths
        self._prepared = self._emptied = False
        self._resident: float | None = None

    def outcome(self) -> list[Value]:
        """Prepare the page cache, then pull every batch. Readings: `images_per_s`, `bytes_per_s` (of encoded samples), `epoch_s`, `samples` and
        `resident_before`, the share of the files' pages in the page cache just before; with `second_epoch` also `images_per_s_second`, of the pass
        after that one; with on_bad=skip `skipped_files`. Raises NotCold."""
        self._prepare()
        stamps, sizes, encoded = [time.perf_counter_ns()], [], 0
        for samples, labels in self._batches:
            stamps.append(time.perf_counter_ns())
            sizes.append(len(labels))
            encoded += 0 if self._decodes() else int(np.sum(samples))
        last = len(sizes) // self._passes
        done, epoch_s = sum(sizes[:last]), (stamps[last] - stamps[0]) / 1e9
        file_bytes = sum(Path(path).stat().st_size for path in self._files)
        read_bytes = file_bytes * done / self._batches.source.samples if self._decodes() else encoded / self._passes
        values = [
            Value("images_per_s", done / epoch_s, "samples/s"),
            Value("bytes_per_s", read_bytes / epoch_s, "bytes/s"),
            Value("epoch_s", epoch_s, "s"),
            Value("samples", done, "samples"),
            Value("resident_before", self._resident, "share", None if self._resident is not None else "this storage does not tell"),
        ]
        if self._passes == 2:
            values.append(Value("images_per_s_second", sum(sizes[last:]) / ((stamps[-1] - stamps[last]) / 1e9), "samples/s"))
        return values + [Value(name, number, unit) for name, number, unit in self._batches.events()]

    def facts(self) -> dict[str, Any]:
        """As of every pipeline, and once the pass is over `page_cache`: its level, or the share that was resident where it was neither warm nor cold; nothing
        where the storage does not tell."""
        if not self._prepared or self._resident is None:
            return self._batches.facts()
        found = temperature(self._resident)
        return {**self._batches.facts(), "page_cache": OF_MACHINE if found == OF_FILES and self._emptied else found}

    def _prepare(self) -> None:
        """Read everything once, or drop it where cold is asked for; then look how much is there. Raises NotCold."""
        if self._cold():
            self._emptied = self.settings["page_cache"] == OF_MACHINE
            drop(self._files, whole_machine=self._emptied)
        else:
            read_all(self._files)
        try:
            self._resident = resident_share(self._files)
        except OSError:  # files that cannot be mapped into memory: nobody tells
            self._resident = None
        if self._cold():
            self._refuse_what_is_not_cold()
        self._prepared = True

    def _refuse_what_is_not_cold(self) -> None:
        share, source = self._resident, self._batches.source
        if share is None:
            raise NotCold("this storage does not tell what of its files lies in memory")
        if share >= COLD:
            raise NotCold(
                f"{100 * share:.0f} % of the files' pages are still in the page cache after they were dropped (allowed are {100 * COLD:.0f} %): they lie in "
                "memory anyway, somebody else holds them, or they are not this user's own",
                share,
            )
        if source.copied and _device(Path(self._files[0]).parent) != _device(Path(str(self.settings["images_dir"]))):
            raise NotCold(
                "in this form the images of data.dir are copies on another storage than they are, of which nothing was asked; give a set of at most "
                f"{source.samples} samples that holds both JPEG files and TFRecords, or have data/ on the storage of the images"
            )

    def _cold(self) -> bool:
        return self.settings["page_cache"] in (OF_FILES, OF_MACHINE)

    def _decodes(self) -> bool:
        return self.settings.get("decode") is None or bool(self.settings["decode"])


def _device(folder: Path) -> int:
    return folder.stat().st_dev


def build(**settings: Any) -> Epoch:
    """Build the pass. Levels: `input`, any pipeline but feed_dict (default tfdata); `page_cache` warm|cold|cold_machine (the caches of everything and
    everybody are emptied, as root). Sizes: what `benchmarks.input` takes, `second_epoch` (go over the files twice)."""
    settings = {"input": "tfdata", "batch": 16, "image": 224, "seed": 0, "page_cache": WARM, **{k: v for k, v in settings.items() if v is not None}}
    if settings["input"] == "feed_dict":
        raise ConfigError("input=feed_dict is fed to a session, and a pass over files has none; use input=python_loop, which makes the same batches")
    if settings["page_cache"] not in (WARM, OF_FILES, OF_MACHINE):
        raise ConfigError(f"page_cache={settings['page_cache']} is no level; choose {WARM}, {OF_FILES} or {OF_MACHINE}")
    return Epoch(settings)
