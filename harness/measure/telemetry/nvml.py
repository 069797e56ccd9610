"""The only file that speaks NVML, NVIDIA's management library, through `pynvml` (distributed as nvidia-ml-py).

Every error of the library becomes a reason: a machine without a driver, or with a lost card, is a machine to be measured like any other. Cards are
known by UUID, which means the same to NVML, to CUDA and inside a container; an index does not.
"""

# ruff: noqa: ANN401 (the binding has no types)

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.measure.telemetry.provider import THROTTLE_WORDS, Sample
from harness.model import Gpu

# NVML's own numbers, so that an older binding that lacks one of their names will do.
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
MEMORY_V2 = 0x02000028
CLOCK_SM, CLOCK_MEMORY = 1, 2
TEMPERATURE_GPU = 0
UTILIZATION_SAMPLES = 1
PCIE_TX, PCIE_RX = 0, 1
NVLINK_DATA_TX, NVLINK_DATA_RX = 138, 139
ALL_LINKS = 0xFFFFFFFF
GPM_SM, GPM_TENSOR, GPM_PCIE_TX, GPM_PCIE_RX = 2, 5, 20, 21
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
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
FIELD_OF_TYPE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Which member of a field's union holds its value, by the type that NVML tells."""

WORDS = {
    INVALID_ARGUMENT: "NVML took the question for a wrong one (invalid argument)",
    NOT_SUPPORTED: "not supported",
    4: "this user is not permitted to read it",
    6: "not found",
    9: "the NVIDIA driver is not loaded",
    12: "there is no NVIDIA driver: libnvidia-ml.so.1 was not found",
    FUNCTION_NOT_FOUND: "the installed driver's library has no such function",
    GPU_IS_LOST: "GPU is lost: it no longer answers",
    16: "GPU needs a reset",
    17: "the operating system does not let this process at the card",
    18: "the driver and its library are of different versions: restart the machine, or reload the driver",
    999: "unknown error of the driver",
}
FOR_GOOD = (NOT_SUPPORTED, FUNCTION_NOT_FOUND)
"""Refusals that will not change while a run lasts: the question is not asked again."""

KIB = 1024
MIB = 1024 * KIB
USUAL_UPDATE_S = 1 / 6
SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 1 / 12, 0.5
"""Watching more often than twelve times a second would itself be work for the host."""
SLOW_NS = 1_000_000_000
"""What changes slowly, or is slow to ask for (PCIe traffic takes 20 ms a direction), is asked for this seldom, of one card at a time."""
HASTY_NS, STALE_NS = 20_000_000, 2_000_000_000
"""GPM's figures are averages between two looks: too near to one another they are noise, and over a gap between rounds they would say nothing of either."""
NOT_AVAILABLE = 1 << 60
"""NVML says "not available" with all bits set; no memory is as large as this."""
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""The kernel's number for the machine's own process ids, those that NVML speaks of."""


class Refused(Exception):  # noqa: N818 (an answer, if not the one that was asked for)
    """NVML did not answer: its code, None for what has none, and why in words."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Library:
    """The binding, started. Whatever goes wrong in it comes out as Refused."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a function of the binding."""
        call = self.part(name)
        try:
            return call(*arguments)
        except Exception as error:  # beside NVMLError the binding raises its own mismatch error, and TypeError where it is older than the call
            told = getattr(error, "value", None)
            code = told if isinstance(told, int) else None
            known = None if code is None else WORDS.get(code)
            raise Refused(code, known or str(error) or type(error).__name__) from error

    def part(self, name: str) -> Any:
        """Return a function or a structure of the binding by name."""
        found = getattr(self._module, name, None)
        if found is None:
            raise Refused(FUNCTION_NOT_FOUND, f"the NVML binding has no {name}: update nvidia-ml-py")
        return found

    def get(self, name: str, *arguments: Any) -> Any | None:
        """Call a function whose answer is not needed; None where it gives none."""
        try:
            return self.ask(name, *arguments)
        except Refused:
            return None


def start() -> Library:
    """Load and start NVML; raises Refused with the whole sentence. Give it back by asking nvmlShutdown."""
    try:
        import pynvml  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415 (may be missing)
    except Exception as error:  # another package of that name may raise anything
        raise Refused(None, f"the NVML binding (nvidia-ml-py) is missing: {error}") from error
    missing = [name for name in ("nvmlInit", "NVMLError", "nvmlDeviceGetCount", "nvmlDeviceGetUUID") if not hasattr(pynvml, name)]
    if missing:
        raise Refused(None, f"the module pynvml on the path is not nvidia-ml-py: it has no {missing[0]}")
    library = Library(pynvml)
    try:
        library.ask("nvmlInit")
    except Refused as refusal:
        raise Refused(refusal.code, f"NVML could not be started: {refusal.text}") from refusal
    return library


# ---------------------------------------------------------------- which cards there are


@dataclass(frozen=True)
class Inventory:
    """What NVML shows of a machine: the cards that a worker may use, why there are none or some are missing, and the driver's versions."""

    gpus: tuple[Gpu, ...]
    reason: str | None
    driver: str | None = None
    cuda: str | None = None


@dataclass(frozen=True)
class Card:
    """A card with its MIG slices. A card in MIG mode can be used by its slices only."""

    gpu: Gpu
    slices: tuple[Gpu, ...] = ()

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """What a process can compute on."""
        return self.slices if self.gpu.mig == "enabled" else (self.gpu,)


def devices(env: Mapping[str, str] | None = None) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the cards that CUDA_VISIBLE_DEVICES lets through, in its order, and a reason if there are none or some could not be read."""
    found = inventory(env)
    return found.gpus, found.reason


def inventory(env: Mapping[str, str] | None = None) -> Inventory:
    """Return what NVML shows, as far as CUDA_VISIBLE_DEVICES of `env` (by default this process's) lets it through."""
    try:
        library = start()
    except Refused as refusal:
        return Inventory((), refusal.text)
    try:
        cards, reasons = _all_cards(library)
        driver = _text(library.get("nvmlSystemGetDriverVersion"))
        cuda = library.get("nvmlSystemGetCudaDriverVersion_v2")
    except Refused as refusal:
        return Inventory((), f"NVML could not list the cards: {refusal.text}")
    finally:
        library.get("nvmlShutdown")
    environment = os.environ if env is None else env
    shown, why_not = visible(cards, environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER"))
    told = "; ".join(reasons + ([why_not] if why_not else []))
    version = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
    return Inventory(shown, told or (None if shown else "NVML lists no card"), driver, version)


def visible(cards: Sequence[Card], mask: str | None, order: str | None = None) -> tuple[tuple[Gpu, ...], str | None]:
    """Return what CUDA shows a process under CUDA_VISIBLE_DEVICES=`mask` and CUDA_DEVICE_ORDER=`order`, and why nothing if it is nothing.

    As CUDA does, it reads up to the first entry that names no card. Of MIG slices a process gets the first, and then no whole card beside it. Indices
    count in PCI bus order only if `order` says so, or if the cards are alike; otherwise CUDA counts from the fastest, by a rule that it keeps to itself.
    """
    if mask is None:
        return _as_cuda([gpu for card in cards for gpu in card.usable]), None
    entries = [part.strip() for part in mask.split(",")]
    numbers = {int(entry) for entry in entries if entry.isdecimal()} & {card.gpu.index for card in cards}
    if order != "PCI_BUS_ID" and 0 < len(numbers) < len(cards) and len({card.gpu.name for card in cards}) > 1:
        names = "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name cards by UUID"
        return (), f"CUDA_VISIBLE_DEVICES={mask!r} counts cards that differ, fastest first, so which ones it means is not known: {names}"
    shown: list[Gpu] = []
    for entry in entries:
        gpu = _named(cards, entry)
        if gpu is None or gpu in shown:
            break
        shown.append(gpu)
    return _as_cuda(shown), None if shown else f"CUDA_VISIBLE_DEVICES={mask!r} lets no card through"


def _as_cuda(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    slices = [gpu for gpu in gpus if gpu.mig == "slice"]
    return tuple(slices[:1] or gpus)


def _named(cards: Sequence[Card], entry: str) -> Gpu | None:
    if entry.startswith("MIG-"):
        return _only([gpu for card in cards for gpu in card.slices if gpu.uuid.startswith(entry)])
    if entry.isdecimal():
        card = next((card for card in cards if card.gpu.index == int(entry)), None)
    else:  # an abbreviated UUID counts only where it is unique
        card = _only([card for card in cards if entry.startswith("GPU-") and card.gpu.uuid.startswith(entry)])
    return next(iter(card.usable), None) if card is not None else None


def _only(found: Sequence[Any]) -> Any | None:
    return found[0] if len(found) == 1 else None


def _all_cards(library: Library) -> tuple[list[Card], list[str]]:
    """Return the cards that can be named, and a reason for each that cannot."""
    cards, reasons = [], []
    for index in range(library.ask("nvmlDeviceGetCount")):
        try:
            cards.append(_card(library, index))
        except Refused as refusal:  # noqa: PERF203 (one lost card must not hide the others)
            reasons.append(f"card {index} could not be read: {refusal.text}")
    return cards, reasons


def _card(library: Library, index: int) -> Card:
    handle = library.ask("nvmlDeviceGetHandleByIndex", index)
    modes = library.get("nvmlDeviceGetMigMode", handle)
    gpu = _gpu(library, handle, index, None if modes is None else ("enabled" if modes[0] else "disabled"))
    if gpu.mig != "enabled":
        return Card(gpu)
    count = library.get("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    slots = (library.get("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in range(count))  # not every slot is taken
    return Card(gpu, tuple(_slice(library, taken, gpu) for taken in slots if taken is not None))


def _gpu(library: Library, handle: Any, index: int, mig: str | None) -> Gpu:
    capability = library.get("nvmlDeviceGetCudaComputeCapability", handle)
    pci = library.get("nvmlDeviceGetPciInfo", handle)
    limit_mw = library.get("nvmlDeviceGetPowerManagementLimit", handle)
    ecc = library.get("nvmlDeviceGetEccMode", handle)
    mode = library.get("nvmlDeviceGetComputeMode", handle)
    return Gpu(
        index=index,
        name=str(_text(library.ask("nvmlDeviceGetName", handle))),
        uuid=str(_text(library.ask("nvmlDeviceGetUUID", handle))),
        memory_bytes=_total_bytes(library, handle),
        compute_capability=None if capability is None else float(f"{capability[0]}.{capability[1]}"),
        pci_id=None if pci is None else _text(pci.busId),
        vbios=_text(library.get("nvmlDeviceGetVbiosVersion", handle)),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        ecc=None if ecc is None else bool(ecc[0]),
        mig=mig,
        compute_mode=None if mode is None else COMPUTE_MODES.get(mode),
    )


def _slice(library: Library, handle: Any, card: Gpu) -> Gpu:
    return replace(
        card,
        name=_text(library.get("nvmlDeviceGetName", handle)) or f"{card.name} MIG",
        uuid=str(_text(library.ask("nvmlDeviceGetUUID", handle))),
        memory_bytes=_total_bytes(library, handle),
        mig="slice",
    )


def _total_bytes(library: Library, handle: Any) -> int | None:
    memory = library.get("nvmlDeviceGetMemoryInfo", handle)
    return None if memory is None else int(memory.total)


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


# ---------------------------------------------------------------- what they do


Values = dict[str, float | Refused]


@dataclass
class Watched:
    """A card or slice that is being read. `card` is the handle of the whole card, `instance` the number of a slice's share of it.

    `refused` remembers what it will never answer, by the counter's first name; `gone` says why nothing can be read of it at all.
    """

    gpu: Gpu
    handle: Any = None
    card: Any = None
    instance: int | None = None
    gone: Refused | None = None
    refused: dict[str, Refused] = field(default_factory=dict)
    slow_due_ns: int = 0
    gpm: Gpm | None = None

    def whole_card(self) -> None:
        """Refuse what only the whole card has, if this is a slice of one."""
        if self.gpu.mig == "slice":
            raise Refused(NOT_SUPPORTED, "")

    def why(self, refusal: Refused) -> str:
        """Return the reason to give; under MIG many questions have no answer, and that is the reason."""
        codes = (INVALID_ARGUMENT, NOT_SUPPORTED) if self.gpu.mig == "slice" else (NOT_SUPPORTED,)
        return "not supported (MIG)" if self.gpu.mig in ("slice", "enabled") and refusal.code in codes else refusal.text


class Gpm:
    """A card's own performance monitoring, where it has one: averages between this look and the one before."""

    METRICS: tuple[tuple[str, int, float], ...] = (
        ("sm_active_share", GPM_SM, 0.01),
        ("tensor_active_share", GPM_TENSOR, 0.01),
        ("pcie_tx_bytes_per_s", GPM_PCIE_TX, MIB),
        ("pcie_rx_bytes_per_s", GPM_PCIE_RX, MIB),
    )
    """Name, NVML's number, what its unit is in ours."""

    def __init__(self, library: Library, watched: Watched) -> None:
        """Raises Refused where the card offers none."""
        if not library.ask("nvmlGpmQueryDeviceSupport", watched.card).isSupportedDevice:
            raise Refused(NOT_SUPPORTED, WORDS[NOT_SUPPORTED])
        self._library = library
        self._watched = watched
        self._question = library.part("c_nvmlGpmMetricsGet_t")()
        self._before = library.ask("nvmlGpmSampleAlloc")
        self._now = library.ask("nvmlGpmSampleAlloc")
        self._looked_ns: int | None = None

    def read(self, now_ns: int) -> Values:
        """Look, and return the averages since the last look; nothing after a first one, or at once after another."""
        since_ns = STALE_NS + 1 if self._looked_ns is None else now_ns - self._looked_ns
        if since_ns < HASTY_NS:
            return {}
        if self._watched.instance is None:
            self._library.ask("nvmlGpmSampleGet", self._watched.card, self._now)
        else:
            self._library.ask("nvmlGpmMigSampleGet", self._watched.card, self._watched.instance, self._now)
        self._before, self._now, self._looked_ns = self._now, self._before, now_ns
        if since_ns > STALE_NS:
            return {}
        question = self._question
        question.version, question.numMetrics = 1, len(self.METRICS)
        question.sample1, question.sample2 = self._now, self._before  # the older look first
        for metric, (_, number, _) in zip(question.metrics, self.METRICS, strict=False):
            metric.metricId = number
        self._library.ask("nvmlGpmMetricsGet", question)
        return {
            name: metric.value * unit if metric.nvmlReturn == 0 else _refusal(metric.nvmlReturn)
            for metric, (name, _, unit) in zip(question.metrics, self.METRICS, strict=False)
        }

    def close(self) -> None:
        """Give the two looks back."""
        for sample in (self._before, self._now):
            self._library.get("nvmlGpmSampleFree", sample)


@dataclass(frozen=True)
class Counter:
    """One question, and the names of the samples that its answer makes."""

    names: tuple[str, ...]
    read: Callable[[NvmlReader, Watched, int], Values]
    slow: bool = False


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
            self._watched = [_watched(self._library, gpu) for gpu in gpus]
        except Refused as refusal:
            self._watched = [Watched(gpu, gone=refusal) for gpu in gpus]
        self._period_s = self._half_an_update()

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
            elif not math.isfinite(value):
                yield Sample(uuid, t_ns, name, None, "the driver gave no finite number")
            else:
                yield Sample(uuid, t_ns, name, float(value))

    def _told(self, watched: Watched, t_ns: int, *, slow: bool) -> Values:
        """Put all questions whose turn it is; raises Refused if nothing can be read of this card any more."""
        told: Values = {"gpu_lost": 0.0} if slow else {}
        for counter in COUNTERS:
            if slow or not counter.slow:
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
        return {} if watched.gpm is None else watched.gpm.read(now_ns)

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

    def throttling(self, watched: Watched, _: int) -> Values:
        """Why clocks are held down, in words."""
        bits = self._first_of(("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), watched.card)
        active = throttle_words(bits)
        return {f"throttle_{word}": float(word in active) for word in THROTTLE_WORDS}

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
        """PCIe traffic of a card without performance monitoring."""
        if watched.gpm is not None:
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
            known = told.nvmlReturn == 0 and told.valueType < len(FIELD_OF_TYPE)
            values[name] = getattr(told.value, FIELD_OF_TYPE[told.valueType]) * float(KIB) if known else _refusal(told.nvmlReturn)
        if all(isinstance(value, Refused) and value.code in FOR_GOOD for value in values.values()):
            raise _refusal(fields[0].nvmlReturn)
        return values


COUNTERS = (
    Counter(("kernel_busy_share", "memory_busy_share"), NvmlReader.busy),
    Counter(("sm_active_share", "tensor_active_share"), NvmlReader.monitored),
    Counter(("memory_used_bytes", "memory_reserved_bytes"), NvmlReader.memory),
    Counter(("power_w",), NvmlReader.power),
    Counter(("energy_j",), NvmlReader.energy),
    Counter(("sm_clock_mhz",), NvmlReader.sm_clock),
    Counter(("memory_clock_mhz",), NvmlReader.memory_clock),
    Counter(tuple(f"throttle_{word}" for word in THROTTLE_WORDS), NvmlReader.throttling),
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


def _watched(library: Library, gpu: Gpu) -> Watched:
    """Find a card by UUID, or by where it sits where its UUID is not found."""
    try:
        try:
            handle = library.ask("nvmlDeviceGetHandleByUUID", gpu.uuid)
        except Refused as refusal:
            if gpu.pci_id is None or gpu.mig == "slice" or refusal.code == GPU_IS_LOST:
                raise
            handle = library.ask("nvmlDeviceGetHandleByPciBusId", gpu.pci_id)
        if gpu.mig != "slice":
            return Watched(gpu, handle, handle)
        card = library.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
        return Watched(gpu, handle, card, library.ask("nvmlDeviceGetGpuInstanceId", handle))
    except Refused as refusal:
        return Watched(gpu, gone=refusal)


def _refusal(code: int) -> Refused:
    return Refused(code, WORDS.get(code, f"NVML's error {code}"))
