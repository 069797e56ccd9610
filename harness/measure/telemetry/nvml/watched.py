"""A card that is being read: its handle, what it refuses for good, and its own performance monitoring (GPM) where it has one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.measure.telemetry.nvml.library import GPU_IS_LOST, INVALID_ARGUMENT, NOT_SUPPORTED, WORDS, Library, Refused, refusal_of
from harness.model import Gpu

GPM_SM, GPM_TENSOR, GPM_PCIE_TX, GPM_PCIE_RX = 2, 5, 20, 21
MIB = 1 << 20
HASTY_NS, STALE_NS = 20_000_000, 2_000_000_000
"""GPM's figures are averages between two looks: too near to one another they are noise, and over a gap between rounds they would say nothing of either."""

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
    throttled: tuple[str, ...] | None = None  # why clocks were held down when all reasons were told last
    throttled_due_ns: int = 0
    gpm: Gpm | None = None

    def whole_card(self) -> None:
        """Refuse what only the whole card has, if this is a slice of one."""
        if self.gpu.mig == "slice":
            raise Refused(NOT_SUPPORTED, "")

    def why(self, refusal: Refused) -> str:
        """Return the reason to give; under MIG many questions have no answer, and that is the reason."""
        codes = (INVALID_ARGUMENT, NOT_SUPPORTED) if self.gpu.mig == "slice" else (NOT_SUPPORTED,)
        return "not supported (MIG)" if self.gpu.mig in ("slice", "enabled") and refusal.code in codes else refusal.text


def watch(library: Library, gpu: Gpu) -> Watched:
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
        try:
            self._now = library.ask("nvmlGpmSampleAlloc")
        except Refused:
            library.get("nvmlGpmSampleFree", self._before)
            raise
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
            name: metric.value * unit if metric.nvmlReturn == 0 else refusal_of(metric.nvmlReturn)
            for metric, (name, _, unit) in zip(question.metrics, self.METRICS, strict=False)
        }

    def close(self) -> None:
        """Give the two looks back."""
        for sample in (self._before, self._now):
            self._library.get("nvmlGpmSampleFree", sample)
