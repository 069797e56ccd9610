"""What the cards do: samples of everything that NVML tells over time, each with its value or the reason why it has none."""

# ruff: noqa: ANN401 (the binding has no types)

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.measure.telemetry.nvml.cards import devices
from harness.measure.telemetry.nvml.library import (
    CLOCK_MEMORY,
    CLOCK_SM,
    FOR_GOOD,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    NOT_AVAILABLE,
    WORDS,
    Library,
    Refused,
    field_value,
    refusal_of,
    start,
)
from harness.measure.telemetry.nvml.watched import Gpm, Values, Watched, watch
from harness.measure.telemetry.provider import THROTTLE_WORDS, Sample, sound
from harness.model import Gpu

# NVML's own numbers, so that an older binding that lacks one of their names will do.
MEMORY_V2 = 0x02000028
TEMPERATURE_GPU = 0
UTILIZATION_SAMPLES = 1
PCIE_TX, PCIE_RX = 0, 1
NVLINK_DATA_TX, NVLINK_DATA_RX = 138, 139
ALL_LINKS = 0xFFFFFFFF
THROTTLE_BITS = {
    0x001: "idle",
    0x002: "application_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "software_thermal",
    0x040: "hardware_thermal",
    0x080: "power_brake",
    0x100: "display_clocks",
}
ALL_BITS = (2**32 - 1, 2**64 - 1)

KIB = 1024
USUAL_UPDATE_S = 1 / 6
SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 1 / 12, 0.5
"""Watching more often than twelve times a second would itself be work for the host."""
SLOW_NS = 1_000_000_000
"""What changes slowly, or is slow to ask for (PCIe traffic takes 20 ms a direction), is asked for this seldom, of one card at a time."""
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""The kernel's number for the machine's own process ids, those that NVML speaks of."""


@dataclass(frozen=True)
class Counter:
    """One question, and the names of the samples that its answer makes. `turn`: it is put every other time, the first or the second one."""

    names: tuple[str, ...]
    read: Callable[[NvmlReader, Watched, int], Values]
    slow: bool = False
    turn: int | None = None


class NvmlReader:
    """Reads cards until it is closed. `ours` says whether a process id is one of our own, `nested` whether NVML speaks of other process ids than we."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        ours: Callable[[int], bool],
        nested: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Connect to `gpus` by UUID. Nothing is raised: what cannot be reached is told in its samples."""
        self._ours = ours
        self._nested = nested
        self._clock = clock
        self._library: Library | None = None
        try:
            self._library = start()
            self._watched = [watch(self._library, gpu) for gpu in gpus]
        except Refused as refusal:
            self._watched = [Watched(gpu, gone=refusal) for gpu in gpus]
        self._period_s = self._half_an_update()
        self._times = 0

    @property
    def devices(self) -> tuple[str, ...]:
        """The cards' UUIDs."""
        return tuple(watched.gpu.uuid for watched in self._watched)

    @property
    def period_s(self) -> float:
        """Half of the time in which the cards renew their kernel-busy counter, as they themselves date it."""
        return self._period_s

    def sample(self) -> list[Sample]:
        """Read every card; the slow questions are put to the one whose turn is longest due."""
        now_ns = self._clock()
        due = [watched for watched in self._watched if watched.gone is None and watched.slow_due_ns <= now_ns]
        turn = min(due, key=lambda watched: watched.slow_due_ns, default=None)
        if turn is not None:
            turn.slow_due_ns = now_ns + SLOW_NS
        self._times += 1
        return [sample for watched in self._watched for sample in self._sample(watched, slow=watched is turn)]

    def close(self) -> None:
        """Give NVML back."""
        if self._library is None:
            return
        for watched in self._watched:
            if watched.gpm is not None:
                watched.gpm.close()
        self._library.get("nvmlShutdown")
        self._library = None

    def _sample(self, watched: Watched, *, slow: bool) -> Iterator[Sample]:
        t_ns = self._clock()
        uuid = watched.gpu.uuid
        gone = watched.gone
        told: Values = {}
        if gone is None:
            try:
                told = self._told(watched, t_ns, slow=slow)
            except Refused as refusal:
                gone = watched.gone = refusal
        if gone is not None:
            told = dict.fromkeys((name for counter in COUNTERS for name in counter.names), gone)
            told["gpu_lost"] = 1.0 if gone.code == GPU_IS_LOST else gone
        for name, value in told.items():
            if isinstance(value, Refused):
                yield Sample(uuid, t_ns, name, None, watched.why(value))
            else:
                yield Sample(uuid, t_ns, name, *sound(name, float(value)))

    def _told(self, watched: Watched, t_ns: int, *, slow: bool) -> Values:
        """Put all questions whose turn it is; raises Refused if nothing can be read of this card any more."""
        told: Values = {"gpu_lost": 0.0} if slow else {}
        for counter in COUNTERS:
            if slow or (not counter.slow and counter.turn in {None, self._times % 2}):
                told.update(self._answers(counter, watched, t_ns))
        return told

    def _answers(self, counter: Counter, watched: Watched, t_ns: int) -> Values:
        """Put one question. A refusal for good is remembered; that of a lost card is raised."""
        known = watched.refused.get(counter.names[0])
        if known is not None:
            return dict.fromkeys(counter.names, known)
        try:
            return counter.read(self, watched, t_ns)
        except Refused as refusal:
            if refusal.code == GPU_IS_LOST:
                raise
            if refusal.code in FOR_GOOD:
                watched.refused[counter.names[0]] = refusal
            return dict.fromkeys(counter.names, refusal)

    def _half_an_update(self) -> float:
        updates_s = [gap_s for watched in self._watched if watched.gone is None for gap_s in self._update_s(watched)]
        return min(LONGEST_PERIOD_S, max(SHORTEST_PERIOD_S, min(updates_s, default=USUAL_UPDATE_S) / 2))

    def _update_s(self, watched: Watched) -> Iterator[float]:
        """Yield the usual time between two of the card's own dated samples, if it has any."""
        if self._library is None:
            return
        told = self._library.get("nvmlDeviceGetSamples", watched.card, UTILIZATION_SAMPLES, 0)
        stamps_us = sorted(sample.timeStamp for sample in told[1]) if told is not None else []
        gaps_us = [after - before for before, after in pairwise(stamps_us) if after > before]
        if gaps_us:
            yield statistics.median(gaps_us) / 1e6

    # ------------------------------------------------------------ the questions

    def _ask(self, name: str, *arguments: Any) -> Any:
        if self._library is None:
            raise Refused(None, "NVML was closed")
        return self._library.ask(name, *arguments)

    def _first_of(self, names: Iterable[str], *arguments: Any) -> Any:
        """Ask by the first name that both binding and driver know."""
        refusal = Refused(FUNCTION_NOT_FOUND, WORDS[FUNCTION_NOT_FOUND])
        for name in names:
            try:
                return self._ask(name, *arguments)
            except Refused as answer:  # noqa: PERF203 (that is the question)
                if answer.code != FUNCTION_NOT_FOUND:
                    raise
                refusal = answer
        raise refusal

    def busy(self, watched: Watched, _: int) -> Values:
        """Shares of time."""
        rates = self._ask("nvmlDeviceGetUtilizationRates", watched.handle)
        return {"kernel_busy_share": rates.gpu / 100, "memory_busy_share": rates.memory / 100}

    def monitored(self, watched: Watched, now_ns: int) -> Values:
        """Activity by the card's performance monitoring."""
        if self._library is not None and watched.gpm is None:
            watched.gpm = Gpm(self._library, watched)
        try:
            return {} if watched.gpm is None else watched.gpm.read(now_ns)
        except Refused as refusal:
            if refusal.code in (*FOR_GOOD, GPU_IS_LOST):
                raise
            return dict.fromkeys((name for name, _, _ in Gpm.METRICS), refusal)

    def memory(self, watched: Watched, _: int) -> Values:
        """Memory in use: without the driver's own reserve where it tells the two apart."""
        try:
            told = self._ask("nvmlDeviceGetMemoryInfo", watched.handle, MEMORY_V2)
        except Refused as refusal:
            if refusal.code == GPU_IS_LOST:
                raise
            both = self._ask("nvmlDeviceGetMemoryInfo", watched.handle)
            apart = Refused(None, "the driver tells used and reserved memory in one figure only (memory info v1)")
            return {"memory_used_bytes": apart, "memory_reserved_bytes": apart, "memory_used_with_reserved_bytes": float(both.used)}
        return {"memory_used_bytes": float(told.used), "memory_reserved_bytes": float(told.reserved)}

    def power(self, watched: Watched, _: int) -> Values:
        """Power now. A slice's share of the card's is not known."""
        watched.whole_card()
        return {"power_w": self._ask("nvmlDeviceGetPowerUsage", watched.card) / 1000}

    def energy(self, watched: Watched, _: int) -> Values:
        """Energy since the driver was loaded, by the card's own counter."""
        watched.whole_card()
        return {"energy_j": self._ask("nvmlDeviceGetTotalEnergyConsumption", watched.card) / 1000}

    def sm_clock(self, watched: Watched, _: int) -> Values:
        """The multiprocessors' clock."""
        return {"sm_clock_mhz": float(self._ask("nvmlDeviceGetClockInfo", watched.card, CLOCK_SM))}

    def memory_clock(self, watched: Watched, _: int) -> Values:
        """The memory's clock."""
        return {"memory_clock_mhz": float(self._ask("nvmlDeviceGetClockInfo", watched.card, CLOCK_MEMORY))}

    def default_clock(self, watched: Watched, _: int) -> Values:
        """What the multiprocessors' clock is meant to be."""
        return {"default_sm_clock_mhz": float(self._ask("nvmlDeviceGetDefaultApplicationsClock", watched.card, CLOCK_SM))}

    def throttling(self, watched: Watched, now_ns: int) -> Values:
        """Why clocks are held down, in words: those of a change at once, and all of them now and again."""
        bits = self._first_of(("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), watched.card)
        if bits in ALL_BITS:
            raise Refused(None, "the driver gave no reasons: all bits are set")
        active = throttle_words(bits)
        unchanged = active == watched.throttled and now_ns < watched.throttled_due_ns
        if not unchanged:
            watched.throttled, watched.throttled_due_ns = active, now_ns + SLOW_NS
        return {f"throttle_{word}": float(word in active) for word in (THROTTLE_WORDS[:1] if unchanged else THROTTLE_WORDS)}

    def temperature(self, watched: Watched, _: int) -> Values:
        """The chip's temperature."""
        return {"temperature_c": float(self._first_of(("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), watched.card, TEMPERATURE_GPU))}

    def processes(self, watched: Watched, _: int) -> Values:
        """Our processes' memory, and how many others compute here."""
        listed = self._first_of(("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"), watched.handle)
        ours = [process for process in listed if self._ours(process.pid)]
        foreign: float | Refused = float(len({process.pid for process in listed} - {process.pid for process in ours}))
        memory: float | Refused
        if self._nested and not ours:
            foreign = Refused(None, "the driver lists processes by the host's ids, which mean nothing inside this container")
            memory = foreign
        elif not ours:
            memory = Refused(None, "none of our processes is in the card's list")
        elif any(process.usedGpuMemory is None or process.usedGpuMemory >= NOT_AVAILABLE for process in ours):
            memory = Refused(None, "the driver does not tell a process's memory")
        else:
            memory = float(sum(process.usedGpuMemory for process in ours))
        return {"process_memory_bytes": memory, "foreign_processes": foreign}

    def link(self, watched: Watched, _: int) -> Values:
        """The PCIe link as it is now; idle cards slow it down."""
        return {
            "pcie_generation": float(self._ask("nvmlDeviceGetCurrPcieLinkGeneration", watched.card)),
            "pcie_width": float(self._ask("nvmlDeviceGetCurrPcieLinkWidth", watched.card)),
        }

    def traffic(self, watched: Watched, _: int) -> Values:
        """PCIe traffic of a card without performance monitoring, or one that has stopped to answer such questions."""
        if watched.gpm is not None and "sm_active_share" not in watched.refused:
            return {}
        watched.whole_card()
        return {
            "pcie_tx_bytes_per_s": self._ask("nvmlDeviceGetPcieThroughput", watched.card, PCIE_TX) * 1000.0,
            "pcie_rx_bytes_per_s": self._ask("nvmlDeviceGetPcieThroughput", watched.card, PCIE_RX) * 1000.0,
        }

    def nvlink(self, watched: Watched, _: int) -> Values:
        """Traffic between cards."""
        watched.whole_card()
        fields = self._ask("nvmlDeviceGetFieldValues", watched.card, [(NVLINK_DATA_TX, ALL_LINKS), (NVLINK_DATA_RX, ALL_LINKS)])
        values: Values = {}
        for name, told in zip(("nvlink_tx_bytes", "nvlink_rx_bytes"), fields, strict=False):
            value = field_value(told)
            values[name] = value if isinstance(value, Refused) else value * KIB
        if all(isinstance(value, Refused) and value.code in FOR_GOOD for value in values.values()):
            raise refusal_of(fields[0].nvmlReturn)
        return values


COUNTERS = (
    Counter(("kernel_busy_share", "memory_busy_share"), NvmlReader.busy),
    Counter(("sm_active_share", "tensor_active_share"), NvmlReader.monitored),
    Counter(("memory_used_bytes", "memory_reserved_bytes"), NvmlReader.memory, turn=0),
    Counter(("power_w",), NvmlReader.power, turn=0),
    Counter(("energy_j",), NvmlReader.energy),
    Counter(("sm_clock_mhz",), NvmlReader.sm_clock, turn=1),
    Counter(("memory_clock_mhz",), NvmlReader.memory_clock, turn=1),
    Counter(tuple(f"throttle_{word}" for word in THROTTLE_WORDS), NvmlReader.throttling, turn=1),
    Counter(("temperature_c",), NvmlReader.temperature, slow=True),
    Counter(("default_sm_clock_mhz",), NvmlReader.default_clock, slow=True),
    Counter(("process_memory_bytes", "foreign_processes"), NvmlReader.processes, slow=True),
    Counter(("pcie_generation", "pcie_width"), NvmlReader.link, slow=True),
    Counter(("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"), NvmlReader.traffic, slow=True),
    Counter(("nvlink_tx_bytes", "nvlink_rx_bytes"), NvmlReader.nvlink, slow=True),
)


@dataclass(frozen=True)
class Nvml:
    """NVIDIA's cards, as a provider. `ours` says whether a process id is one of our own."""

    ours: Callable[[int], bool] = lambda pid: pid == os.getpid()
    namespace: Path = Path("/proc/self/ns/pid")

    def devices(self) -> tuple[tuple[Gpu, ...], str | None]:
        """Return the cards that a worker may use, and why there are none or some are missing."""
        return devices()

    def open(self, gpus: Sequence[Gpu]) -> NvmlReader:
        """Connect to these cards."""
        return NvmlReader(gpus, ours=self.ours, nested=nested(self.namespace))


def nested(namespace: Path) -> bool:
    """Whether process ids here are others than the machine's own, as in most containers; unknown counts as yes."""
    try:
        return namespace.stat().st_ino != INITIAL_PID_NAMESPACE
    except OSError:
        return True


def throttle_words(bits: int) -> tuple[str, ...]:
    """Return the reasons that are set in NVML's mask, in the common words; bits that are not known are "other"."""
    unknown = bits & ~sum(THROTTLE_BITS)
    return tuple(word for bit, word in THROTTLE_BITS.items() if bits & bit) + (("other",) if unknown else ())
