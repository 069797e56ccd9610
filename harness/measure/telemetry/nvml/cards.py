"""Which cards there are, as NVML lists them and CUDA_VISIBLE_DEVICES lets them through, and what each of them is."""

# ruff: noqa: ANN401 (the binding has no types)

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.measure.telemetry.nvml.library import CLOCK_MEMORY, CLOCK_SM, NOT_AVAILABLE, Library, Refused, bus_id, start, text
from harness.measure.telemetry.nvml.topology import Place, active_links, link_speed, topology
from harness.measure.telemetry.provider import sound
from harness.model import CardPair, Gpu

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
MIG_MODES = {0: "disabled", 1: "enabled"}
MOST_CARDS, MOST_SLICES, MOST_MAJOR, MOST_CORES = 256, 64, 99, 1 << 20
"""More than that is garbage, which must not be counted up to."""


@dataclass(frozen=True)
class Inventory:
    """What NVML shows of a machine: the cards that a worker may use and how each two of them are connected, why there are none or some are missing, and
    the driver's versions."""

    gpus: tuple[Gpu, ...]
    reason: str | None
    driver: str | None = None
    cuda: str | None = None
    topology: tuple[CardPair, ...] = ()


@dataclass(frozen=True)
class Card:
    """A card with its MIG slices. A card in MIG mode can be used by its slices only."""

    gpu: Gpu
    slices: tuple[Gpu, ...] = ()
    place: Place | None = field(default=None, compare=False)

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
        environment = os.environ if env is None else env
        shown, why_not = visible(cards, environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER"))
        connected = topology(library, [card.place for card in cards if card.place is not None and card.gpu in shown])
        driver = text(library.get("nvmlSystemGetDriverVersion"))
        cuda = library.get("nvmlSystemGetCudaDriverVersion_v2")
    except Refused as refusal:
        return Inventory((), f"NVML could not list the cards: {refusal.text}")
    finally:
        library.get("nvmlShutdown")
    told = "; ".join(reasons + ([why_not] if why_not else []))
    return Inventory(shown, told or (None if shown else "NVML lists no card"), driver, cuda_version(cuda), connected)


def cuda_version(number: int | None) -> str | None:
    """Return "12.8" of NVML's 12080, None for what is no version."""
    return f"{number // 1000}.{number % 1000 // 10}" if number is not None and number > 0 else None


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
    count = library.ask("nvmlDeviceGetCount")
    if count > MOST_CARDS:
        raise Refused(None, f"it claims to have {count} of them")
    for index in range(count):
        try:
            cards.append(_card(library, index))
        except Refused as refusal:  # noqa: PERF203 (one lost card must not hide the others)
            reasons.append(f"card {index} could not be read: {refusal.text}")
    return cards, reasons


def _card(library: Library, index: int) -> Card:
    handle = library.ask("nvmlDeviceGetHandleByIndex", index)
    modes = library.get("nvmlDeviceGetMigMode", handle)
    links = active_links(library, handle)
    gpu = _gpu(library, handle, index, None if modes is None else MIG_MODES.get(modes[0]), links)
    place = Place(gpu.uuid, gpu.pci_id, handle, links)
    if gpu.mig != "enabled":
        return Card(gpu, place=place)
    count = min(MOST_SLICES, library.get("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)
    slots = (library.get("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in range(count))  # not every slot is taken
    return Card(gpu, tuple(_slice(library, taken, gpu) for taken in slots if taken is not None), place)


def _gpu(library: Library, handle: Any, index: int, mig: str | None, links: tuple[int, ...] | None) -> Gpu:
    capability = library.get("nvmlDeviceGetCudaComputeCapability", handle)
    limit_mw = library.get("nvmlDeviceGetPowerManagementLimit", handle)
    ecc = library.get("nvmlDeviceGetEccMode", handle)
    mode = library.get("nvmlDeviceGetComputeMode", handle)
    cores = library.get("nvmlDeviceGetNumGpuCores", handle)
    return Gpu(
        index=index,
        name=str(text(library.ask("nvmlDeviceGetName", handle))),
        uuid=_uuid(library, handle),
        memory_bytes=_total_bytes(library, handle),
        compute_capability=None if capability is None else _capability(*capability),
        pci_id=bus_id(library, "nvmlDeviceGetPciInfo", handle),
        vbios=text(library.get("nvmlDeviceGetVbiosVersion", handle)),
        power_limit_w=None if limit_mw is None else sound("power_limit_w", limit_mw / 1000)[0],
        ecc=None if ecc is None else bool(ecc[0]),
        mig=mig,
        compute_mode=None if mode is None else COMPUTE_MODES.get(mode),
        cuda_cores=cores if cores is not None and 0 < cores < MOST_CORES else None,
        # Both are the card's own, and so part of what it is: who sets other clocks changes neither. What holds a clock down now is no identity.
        default_sm_clock_mhz=_clock_mhz("default_sm_clock_mhz", library.get("nvmlDeviceGetDefaultApplicationsClock", handle, CLOCK_SM)),
        default_memory_clock_mhz=_clock_mhz("default_memory_clock_mhz", library.get("nvmlDeviceGetDefaultApplicationsClock", handle, CLOCK_MEMORY)),
        max_sm_clock_mhz=_clock_mhz("max_sm_clock_mhz", library.get("nvmlDeviceGetMaxClockInfo", handle, CLOCK_SM)),
        max_memory_clock_mhz=_clock_mhz("max_memory_clock_mhz", library.get("nvmlDeviceGetMaxClockInfo", handle, CLOCK_MEMORY)),
        nvlinks=None if links is None else len(links),
        nvlink_bytes_per_s=link_speed(library, handle) if links else None,
    )


def _slice(library: Library, handle: Any, card: Gpu) -> Gpu:
    return replace(
        card,
        name=text(library.get("nvmlDeviceGetName", handle)) or f"{card.name} MIG",
        uuid=_uuid(library, handle),
        memory_bytes=_total_bytes(library, handle),
        mig="slice",
        cuda_cores=None,  # the card's number is not the slice's
        nvlinks=None,  # slices have no way to one another
        nvlink_bytes_per_s=None,
    )


def _total_bytes(library: Library, handle: Any) -> int | None:
    memory = library.get("nvmlDeviceGetMemoryInfo", handle)
    return int(memory.total) if memory is not None and 0 < memory.total < NOT_AVAILABLE else None


def _clock_mhz(name: str, told: int | None) -> int | None:
    return told if told is not None and sound(name, told)[0] is not None else None


def _uuid(library: Library, handle: Any) -> str:
    told = text(library.ask("nvmlDeviceGetUUID", handle))
    if not told:
        raise Refused(None, "it tells no UUID")
    return told


def _capability(major: int, minor: int) -> float | None:
    return float(f"{major}.{minor}") if 1 <= major <= MOST_MAJOR and 0 <= minor <= 9 else None
