"""The machine around the cards, as the kernel tells it under /proc and /sys: processors, our workers' memory, energy, disks, network, swap.

Samples are of the device "host". Totals count since the machine was started, so that their differences belong to a stretch of time.

| name | meaning |
|---|---|
| `cpu_share` | busy time of the usable cores since the sample before, whoever used them; waiting for I/O and stolen time are not busy |
| `rss_bytes`, `peak_rss_bytes` | memory of our workers together; the largest that one of them has had so far |
| `cpu_energy_j` | of all processor packages since sampling began, by their own counters (RAPL) |
| `disk_read_bytes`, `disk_written_bytes` | of all disks, totals |
| `network_received_bytes`, `network_sent_bytes` | of all interfaces but the loopback, totals |
| `swap_used_bytes`, `swapped_bytes` | in swap now; moved there and back, total |
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.measure.load import machine_times
from harness.measure.telemetry.provider import HOST, Sample

SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever a disk's own sectors are."""
NO_DISK = re.compile(r"loop|ram|zram|dm-|md|sr|fd")
"""Block devices that are in memory, or made of others that are counted themselves."""
HASTY_PERIODS, STALE_PERIODS = 0.5, 3
"""Idle time is counted in ticks of 10 ms, so a share over a shorter time is noise; one over a gap between two rounds belongs to neither."""

Value = tuple[str, float | None, str | None]


@dataclass(frozen=True)
class Places:
    """Where the kernel tells all this."""

    proc: Path = Path("/proc")
    powercap: Path = Path("/sys/class/powercap")
    block: Path = Path("/sys/block")


class HostReader:
    """Reads the machine. `pids` returns the workers that live now."""

    devices = (HOST,)

    def __init__(
        self,
        pids: Callable[[], Sequence[int]],
        *,
        period_s: float = 1.0,
        places: Places | None = None,
        cores: Callable[[], Iterable[int]] = lambda: os.sched_getaffinity(0),
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`period_s`: seconds from one sample to the next."""
        self.period_s = period_s
        self._pids = pids
        self._places = places or Places()
        self._cores = cores
        self._clock = clock
        self._before: tuple[int, float] | None = None
        self._energy = PackageEnergy(self._places.powercap)

    def sample(self) -> list[Sample]:
        """Read everything once."""
        t_ns = self._clock()
        told = [*self._cpu(t_ns), *self._memory(), *self._energy.read(), *self._disks(), *self._network(), *self._swap()]
        return [Sample(HOST, t_ns, name, value, reason) for name, value, reason in told]

    def close(self) -> None:
        """Nothing is held open."""

    def _cpu(self, t_ns: int) -> Iterator[Value]:
        cores = frozenset(self._cores())
        idle_s, steal_s = machine_times(cores, self._places.proc / "stat")
        if idle_s is None or steal_s is None or not cores:
            self._before = None
            yield "cpu_share", None, "the kernel does not tell the cores' idle time"
            return
        free_s = idle_s + steal_s
        then_ns, free_then_s = self._before or (t_ns, free_s)
        elapsed_s = (t_ns - then_ns) / 1e9
        if self._before is not None and elapsed_s < HASTY_PERIODS * self.period_s:
            return
        self._before = t_ns, free_s
        if 0 < elapsed_s <= STALE_PERIODS * self.period_s:
            yield "cpu_share", min(1.0, max(0.0, 1.0 - (free_s - free_then_s) / (elapsed_s * len(cores)))), None

    def _memory(self) -> Iterator[Value]:
        told = [sizes for pid in self._pids() if (sizes := self._resident(pid)) is not None]
        none = None if told else "no worker lives"
        yield "rss_bytes", float(sum(now for now, _ in told)) if told else None, none
        yield "peak_rss_bytes", float(max(peak for _, peak in told)) if told else None, none

    def _resident(self, pid: int) -> tuple[int, int] | None:
        """Return (now, peak) in bytes; None for a process that is gone or is only waiting to be collected."""
        rows = _keyed(self._places.proc / str(pid) / "status")
        try:
            return int(rows["VmRSS"].split()[0]) * 1024, int(rows["VmHWM"].split()[0]) * 1024
        except (KeyError, IndexError, ValueError):
            return None

    def _disks(self) -> Iterator[Value]:
        names = ("disk_read_bytes", "disk_written_bytes")
        rows = [line.split() for line in _lines(self._places.proc / "diskstats")]
        disks = [row for row in rows if len(row) > 9 and not NO_DISK.match(row[2]) and (self._places.block / row[2]).exists()]
        if not disks:
            yield from ((name, None, "the kernel lists no disk here") for name in names)
            return
        for name, column in zip(names, (5, 9), strict=True):
            yield name, float(sum(int(row[column]) for row in disks) * SECTOR_BYTES), None

    def _network(self) -> Iterator[Value]:
        names = ("network_received_bytes", "network_sent_bytes")
        rows = [line.partition(":")[::2] for line in _lines(self._places.proc / "net" / "dev") if ":" in line]
        links = [figures.split() for name, figures in rows if name.strip() != "lo" and len(figures.split()) > 8]
        if not links:
            yield from ((name, None, "there is no network interface beside the loopback") for name in names)
            return
        for name, column in zip(names, (0, 8), strict=True):
            yield name, float(sum(int(figures[column]) for figures in links)), None

    def _swap(self) -> Iterator[Value]:
        sizes = _keyed(self._places.proc / "meminfo")
        try:
            yield "swap_used_bytes", (int(sizes["SwapTotal"].split()[0]) - int(sizes["SwapFree"].split()[0])) * 1024.0, None
        except (KeyError, IndexError, ValueError):
            yield "swap_used_bytes", None, "the kernel does not tell its swap"
        pages = dict(line.split(maxsplit=1) for line in _lines(self._places.proc / "vmstat") if " " in line)
        try:
            yield "swapped_bytes", float((int(pages["pswpin"]) + int(pages["pswpout"])) * os.sysconf("SC_PAGE_SIZE")), None
        except (KeyError, ValueError):
            yield "swapped_bytes", None, "the kernel does not count what it swaps"


class PackageEnergy:
    """What the processors have used since this was made. The kernel's counters start again at a maximum of their own; that is made good."""

    NAME = "cpu_energy_j"

    def __init__(self, powercap: Path) -> None:
        """`powercap`: the kernel's folder of energy counters."""
        # A package's own zone; those below it (core, dram) are parts of it, and that of the whole platform contains it.
        zones = sorted(powercap.glob("intel-rapl:*")) if powercap.is_dir() else []
        self._zones = [zone for zone in zones if zone.name.count(":") == 1 and _text(zone / "name").startswith("package")]
        self._last_uj: dict[Path, int] = {}
        self._sum_uj = 0

    def read(self) -> Iterator[Value]:
        """Yield the one sample. If one package cannot be read, the sum is not known."""
        if not self._zones:
            yield self.NAME, None, "the processors offer no energy counter (RAPL) here"
            return
        try:
            now_uj = {zone: int(_text(zone / "energy_uj", strict=True)) for zone in self._zones}
        except PermissionError:
            yield self.NAME, None, "this user may not read the energy counters (RAPL); the kernel keeps them for root"
            return
        except (OSError, ValueError):
            yield self.NAME, None, "the energy counters (RAPL) could not be read"
            return
        for zone, value_uj in now_uj.items():
            grown_uj = value_uj - self._last_uj.get(zone, value_uj)
            if grown_uj < 0:
                try:
                    grown_uj += int(_text(zone / "max_energy_range_uj"))
                except ValueError:
                    grown_uj = 0
            self._sum_uj += max(0, grown_uj)
        self._last_uj = now_uj
        yield self.NAME, self._sum_uj / 1e6, None


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _keyed(path: Path) -> dict[str, str]:
    """Return the rows `key: value` of a file; none where it cannot be read."""
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in _lines(path))}


def _text(path: Path, *, strict: bool = False) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        if strict:
            raise
        return ""
