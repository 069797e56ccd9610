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
from benchmarks.input import FROM_RECORDS, batches, files_of, records
from benchmarks.input.page_cache import drop, read_all, resident_share
from harness.errors import ConfigError

COLD = 0.05
"""Below this share of resident pages the files are called cold; above 1 - COLD, warm."""


class NotCold(ConfigError):  # noqa: N818 - it is an outcome
    """A cold page cache was asked for and cannot be had. `code` and `numbers` are for programs."""

    code = "not_cold"

    def __init__(self, share: float) -> None:
        super().__init__(
            f"page_cache=cold was asked for, but {100 * share:.0f} % of the files' pages are still in the page cache after they were dropped "
            f"(allowed are {100 * COLD:.0f} %): they lie in memory anyway, somebody else holds them, or they are not this user's own"
        )
        self.numbers = {"resident_share": share, "allowed_share": COLD}


class Epoch(Workload):
    """A pass over the whole data set. What is needed for it is made and built before; only the pass is timed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        level, passes = str(settings["input"]), 2 if settings.get("second_epoch") else 1
        self._batches = batches(level, epochs=passes, **settings)
        self._passes = passes
        self._files = files_of(level, {**settings, "verify": False})
        self._resident: float | None = None

    def outcome(self) -> list[Value]:
        """Prepare the page cache, then pull every batch. Readings: `images_per_s`, `bytes_per_s` (of encoded samples), `epoch_s`, `samples` and
        `resident_before`, the share of the files' pages in the page cache just before; with `second_epoch` also `images_per_s_second`, of the pass
        after that one; with on_bad=skip `skipped_files`. Raises NotCold."""
        file_bytes = self._prepare()
        stamps, sizes, encoded = [time.perf_counter_ns()], [], 0
        for samples, labels in self._batches:
            stamps.append(time.perf_counter_ns())
            sizes.append(len(labels))
            encoded += 0 if self._decodes() else int(np.sum(samples))
        last = len(sizes) // self._passes
        done, epoch_s = sum(sizes[:last]), (stamps[last] - stamps[0]) / 1e9
        read_bytes = file_bytes * done / self._samples_in_all() if self._decodes() else encoded / self._passes
        values = [
            Value("images_per_s", done / epoch_s, "samples/s"),
            Value("bytes_per_s", read_bytes / epoch_s, "bytes/s"),
            Value("epoch_s", epoch_s, "s"),
            Value("samples", done, "samples"),
            Value("resident_before", self._resident, "share"),
        ]
        if self._passes == 2:
            values.append(Value("images_per_s_second", sum(sizes[last:]) / ((stamps[-1] - stamps[last]) / 1e9), "samples/s"))
        return values + [Value(name, number, unit) for name, number, unit in self._batches.events()]

    def facts(self) -> dict[str, Any]:
        """As of every pipeline, and `page_cache`: warm, cold, or the share that was resident where it was neither; once the pass is over."""
        if self._resident is None:
            return self._batches.facts()
        word = "cold" if self._resident < COLD else "warm" if self._resident > 1 - COLD else f"{100 * self._resident:.0f} % resident"
        return {**self._batches.facts(), "page_cache": word}

    def _prepare(self) -> int:
        """Read everything once, or drop it where cold is asked for; returns how many bytes the files hold."""
        if self.settings["page_cache"] == "cold":
            drop(self._files, whole_machine=bool(self.settings.get("drop_caches")))
        else:
            read_all(self._files)
        self._resident = resident_share(self._files)
        if self.settings["page_cache"] == "cold" and self._resident >= COLD:
            raise NotCold(self._resident)
        return sum(Path(path).stat().st_size for path in self._files)

    def _decodes(self) -> bool:
        return self.settings.get("decode") is None or bool(self.settings["decode"])

    def _samples_in_all(self) -> int:
        return records.count(self._files) if self.settings["input"] in FROM_RECORDS else len(self._files)


def build(**settings: Any) -> Epoch:
    """Build the pass. Levels: `input`, any pipeline (default tfdata); `page_cache` warm|cold. Sizes: what `benchmarks.input` takes, `second_epoch`
    (go over the files twice), `drop_caches` (for cold, empty the whole machine's caches as well, as root)."""
    settings = {"input": "tfdata", "batch": 16, "image": 224, "seed": 0, "page_cache": "warm", **{k: v for k, v in settings.items() if v is not None}}
    if settings["page_cache"] not in ("warm", "cold"):
        raise ConfigError(f"page_cache={settings['page_cache']} is no level; choose warm or cold")
    return Epoch(settings)
