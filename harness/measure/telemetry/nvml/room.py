"""How much memory is free on cards at this moment."""

from __future__ import annotations

from collections.abc import Sequence

from harness.measure.telemetry.nvml.library import NOT_AVAILABLE, Library, Refused, start
from harness.measure.telemetry.nvml.watched import watch
from harness.model import Gpu


def free_bytes(gpus: Sequence[Gpu]) -> int | None:
    """Return the free memory in bytes of the one of these cards that has the least; None where there is no card, or one that does not tell."""
    if not gpus:
        return None
    try:
        library = start()
    except Refused:
        return None
    try:
        found = [_free(library, gpu) for gpu in gpus]
    finally:
        library.get("nvmlShutdown")
    known = [room for room in found if room is not None]
    return min(known) if len(known) == len(found) else None


def _free(library: Library, gpu: Gpu) -> int | None:
    watched = watch(library, gpu)
    memory = None if watched.gone is not None else library.get("nvmlDeviceGetMemoryInfo", watched.handle)
    return int(memory.free) if memory is not None and 0 <= memory.free < NOT_AVAILABLE else None
