"""The only file that speaks NVML, NVIDIA's management library, through `pynvml` (distributed as nvidia-ml-py).

Every error of the library becomes a reason: a machine without a driver, or with a lost card, is a machine to be measured like any other.
"""

# ruff: noqa: ANN401 (the binding has no types)

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from harness.model import Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def devices(env: Mapping[str, str] | None = None) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the cards that CUDA_VISIBLE_DEVICES lets through, in its order, and a reason if there are none or some could not be read.

    Indices count in PCI bus order, as NVML does. CUDA's own default order is "fastest first": where cards differ, set CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    try:
        import pynvml  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415 (may be missing)
    except ImportError as error:
        return (), f"the NVML binding (nvidia-ml-py) is missing: {error}"
    missing = [name for name in ("nvmlInit", "NVMLError", "nvmlDeviceGetCount", "nvmlDeviceGetUUID") if not hasattr(pynvml, name)]
    if missing:
        return (), f"the module pynvml on the path is not nvidia-ml-py: it has no {missing[0]}"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), f"NVML could not be started: {error}"
    try:
        gpus, reasons = _all_cards(pynvml)
    except pynvml.NVMLError as error:
        return (), f"NVML could not list the cards: {error}"
    finally:
        _shutdown(pynvml)
    mask = (os.environ if env is None else env).get("CUDA_VISIBLE_DEVICES")
    shown, why_not = visible(gpus, mask)
    told = "; ".join(reasons + ([why_not] if why_not else []))
    return shown, told or (None if shown else "NVML lists no card")


def visible(gpus: Sequence[Gpu], mask: str | None) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the cards that a CUDA_VISIBLE_DEVICES of `mask` lets through. As CUDA does, it reads up to the first entry that names no card."""
    if mask is None:
        return tuple(gpus), None
    shown: list[Gpu] = []
    for entry in (part.strip() for part in mask.split(",")):
        card = _named(gpus, entry)
        if card is None or card in shown:
            break
        shown.append(card)
    return tuple(shown), None if shown else f"CUDA_VISIBLE_DEVICES={mask!r} lets no card through"


def _named(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    if entry.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(entry)), None)
    matching = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else None  # an abbreviated UUID counts only where it is unique


def _all_cards(pynvml: Any) -> tuple[list[Gpu], list[str]]:
    """Return the cards that can be named, and a reason for each that cannot."""
    gpus, reasons = [], []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(
                Gpu(
                    index=index,
                    name=_text(pynvml.nvmlDeviceGetName(handle)),
                    uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                    memory_bytes=_memory_bytes(pynvml, handle),
                    compute_capability=_compute_capability(pynvml, handle),
                )
            )
        except pynvml.NVMLError as error:  # noqa: PERF203 (one lost card must not hide the others)
            reasons.append(f"card {index} could not be read: {error}")
    return gpus, reasons


def _memory_bytes(pynvml: Any, handle: Any) -> int | None:
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return None


def _compute_capability(pynvml: Any, handle: Any) -> float | None:
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError:
        return None
    return float(f"{major}.{minor}")


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _shutdown(pynvml: Any) -> None:
    with contextlib.suppress(pynvml.NVMLError):  # it was only read from; there is nothing to save
        pynvml.nvmlShutdown()
