"""How fast memory is copied: the host's by one thread or by many, a GPU's within itself. Bytes read and bytes written count, as in STREAM."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tensorflow as tf

from benchmarks.contract import Tally, Workload
from benchmarks.devices import device_of
from benchmarks.roofs.common import MIB, Roof, gpus, traced, whole
from harness.errors import ConfigError

LEAST_BYTES = 256 * MIB
CACHES = 4
"""An array is so many times as large as all last-level caches together: STREAM's own rule."""

MEMORY_SHARE = 8
"""And takes no more than one part in so many of the memory that is free. There are two arrays."""

_CPUS = Path("/sys/devices/system/cpu")


class HostCopy(Workload):
    """`threads` threads copy one array into another, each its own part of it, with the C library's routine. A step copies the whole array once.

    A part is first written by the core that will copy it, so that it lies near that one: a thread that wandered to another socket would copy through the
    link between them. `source` and `target` hold the parts.
    """

    def __init__(self, array_bytes: int, threads: int, cache_bytes: int | None) -> None:
        self._threads, self._cache_bytes = threads, cache_bytes
        self._bounds = [array_bytes // 8 * part // threads for part in range(threads + 1)]
        cpus = sorted(os.sched_getaffinity(0))
        self._cpu_of = [cpus[part * len(cpus) // threads] for part in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        made = self._each(self._make, range(threads))
        self.source = [source for source, _ in made]
        self.target = [target for _, target in made]
        self.work = 2.0 * sum(part.nbytes for part in self.source)

    def run(self, steps: int) -> Tally:
        self._each(lambda part: self._copy(part, steps), range(self._threads))
        return Tally(steps, steps * self.work, "B")

    def facts(self) -> dict[str, Any]:
        cache_mib = None if self._cache_bytes is None else self._cache_bytes / MIB
        mib = round(sum(part.nbytes for part in self.source) / MIB)
        return {"op": "host_copy", "threads": self._threads, "mib": mib, "cache_mib": cache_mib, "work_per_step": self.work}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _each(self, work: Any, parts: Iterable[int]) -> list[Any]:
        return list(map(work, parts)) if self._pool is None else list(self._pool.map(work, parts))

    def _keep_to_core(self, part: int) -> None:
        """Bind the calling thread to the core of its part; alone it is the process's own thread, which stays free."""
        if self._pool is not None:
            os.sched_setaffinity(0, {self._cpu_of[part]})

    def _make(self, part: int) -> tuple[np.ndarray, np.ndarray]:
        self._keep_to_core(part)
        first, end = self._bounds[part], self._bounds[part + 1]
        return np.arange(first, end, dtype=np.float64), np.full(end - first, -1.0)

    def _copy(self, part: int, times: int) -> None:
        self._keep_to_core(part)
        for _ in range(times):
            np.copyto(self.target[part], self.source[part])


def host_copy(settings: dict[str, Any]) -> HostCopy:
    """Copies in the host's memory. `threads`: how many copy (all usable cores). `mib`: the size of each of the two arrays; by default four times all
    last-level caches, at least 256, at most an eighth of the free memory. Work: B, twice the array a step."""
    usable = os.sched_getaffinity(0)
    threads = whole(settings, "threads", len(usable))
    if threads > len(usable):
        raise ConfigError(f"op=host_copy threads={threads}: {len(usable)} cores are usable; ask for no more threads than that")
    caches_bytes, free_bytes = last_level_caches_bytes(usable), int(psutil.virtual_memory().available)
    mib = whole(settings, "mib", max(1, array_bytes_for(caches_bytes, free_bytes) // MIB))
    if 2 * mib * MIB > free_bytes:
        raise ConfigError(f"op=host_copy mib={mib}: two arrays of that size do not fit into the {free_bytes // MIB} MiB of memory that are free")
    return HostCopy(mib * MIB, threads, caches_bytes)


def array_bytes_for(caches_bytes: int | None, free_bytes: int) -> int:
    """Return how large an array must be so that it is memory that is measured, and may be so that there is room for two."""
    return min(max(CACHES * (caches_bytes or 0), LEAST_BYTES), free_bytes // MEMORY_SHARE)


def last_level_caches_bytes(cpus: Iterable[int], root: Path = _CPUS) -> int | None:
    """Return the bytes of all caches of the highest level that these CPUs have, each shared one once; None where the kernel does not tell."""
    found: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        levels = [told for index in sorted((root / f"cpu{cpu}" / "cache").glob("index*")) if (told := _cache(index)) is not None]
        if levels:
            level, sharers, size_bytes = max(levels)
            found[level, sharers] = size_bytes
    return sum(found.values()) or None


def _cache(index: Path) -> tuple[int, str, int] | None:
    """Level, the CPUs that share it, and bytes of one cache; None for one that holds instructions alone or does not tell."""
    try:
        level, kind, sharers, size = ((index / name).read_text("ascii").strip() for name in ("level", "type", "shared_cpu_list", "size"))
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[-1]]
        return None if kind == "Instruction" else (int(level), sharers, int(size[:-1]) * factor)
    except (OSError, ValueError, KeyError, IndexError):
        return None


def device_copy(settings: dict[str, Any]) -> Roof:
    """Copies in the memory of the GPU: an array of `mib` MiB (1024) is copied `repeat` (32) times a step, each time the last copy. Work: B, twice the
    array a copy. Raises ConfigError where there is no GPU."""
    place = gpus(settings)[0]
    return deep_copies(place, whole(settings, "mib", 1024), whole(settings, "repeat", 32))


def deep_copies(place: str, mib: int, repeat: int) -> Roof:
    """Return the roof of copies at `place`."""
    with tf.device(place):
        source = tf.identity(np.arange(mib * MIB // 4, dtype=np.float32))

    @tf.function
    def chain(x: Any) -> Any:
        for _ in range(repeat):
            # The one operation that copies and that no optimiser takes for nothing: it counts as having a side effect.
            x = tf.raw_ops.DeepCopy(x=x)
        return x

    def told(made: Any) -> dict[str, Any]:
        return {"op": "device_copy", "mib": mib, "repeat": repeat, "device": device_of(made)}

    return traced(chain, [source], 2.0 * mib * MIB * repeat, "B", told)
