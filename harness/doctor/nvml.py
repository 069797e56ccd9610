"""What the doctor asks NVML beyond which cards there are: the driver, and how each card is set up. Nothing is changed; an error is a reason.

Kept apart so that it can move to harness.measure.telemetry.nvml, which otherwise is the only file that speaks NVML.
"""

# ruff: noqa: ANN401 (the binding has no types)

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from harness.doctor.facts import Card, Cards
from harness.model import Gpu

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}

Ask = Callable[[Any, Any], Any]

QUESTIONS: dict[str, Ask] = {
    "pcie_generation": lambda nv, card: int(nv.nvmlDeviceGetCurrPcieLinkGeneration(card)),
    "pcie_generation_max": lambda nv, card: int(nv.nvmlDeviceGetMaxPcieLinkGeneration(card)),
    "pcie_width": lambda nv, card: int(nv.nvmlDeviceGetCurrPcieLinkWidth(card)),
    "pcie_width_max": lambda nv, card: int(nv.nvmlDeviceGetMaxPcieLinkWidth(card)),
    "persistence": lambda nv, card: bool(nv.nvmlDeviceGetPersistenceMode(card)),
    "compute_mode": lambda nv, card: COMPUTE_MODES.get(mode := int(nv.nvmlDeviceGetComputeMode(card)), f"mode {mode}"),
    "power_limit_w": lambda nv, card: nv.nvmlDeviceGetPowerManagementLimit(card) / 1000,
    "power_default_w": lambda nv, card: nv.nvmlDeviceGetPowerManagementDefaultLimit(card) / 1000,
    "ecc": lambda nv, card: bool(nv.nvmlDeviceGetEccMode(card)[0]),
    "mig": lambda nv, card: bool(nv.nvmlDeviceGetMigMode(card)[0]),
    "others": lambda nv, card: len(_processes(nv, card) - {os.getpid()}),
}
"""A field of Card and the question that fills it."""


def read_cards(gpus: Sequence[Gpu], reason: str | None, on_bus: int | None) -> Cards:
    """Return how these cards are set up. `reason` says why there are none, or some could not be read; without any, NVML is not asked."""
    if not gpus:
        return Cards(on_bus=on_bus, reason=reason)
    gpus = _whole(gpus)
    try:
        import pynvml  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415 (may be missing)

        pynvml.nvmlInit()
    except ImportError as error:
        return Cards(tuple(_plain(gpu, f"the NVML binding is missing: {error}") for gpu in gpus), on_bus=on_bus, reason=reason)
    except pynvml.NVMLError as error:
        return Cards(tuple(_plain(gpu, f"NVML could not be started: {error}") for gpu in gpus), on_bus=on_bus, reason=reason)
    try:
        driver = _or_none(pynvml, lambda nv: nv.nvmlSystemGetDriverVersion())
        cuda = _or_none(pynvml, lambda nv: int(nv.nvmlSystemGetCudaDriverVersion_v2()))
        return Cards(
            cards=tuple(_card(pynvml, gpu) for gpu in gpus),
            driver=driver.decode("utf-8", "replace") if isinstance(driver, bytes) else driver,
            driver_cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            on_bus=on_bus,
            reason=reason,
        )
    finally:
        with contextlib.suppress(pynvml.NVMLError):  # it was only read from
            pynvml.nvmlShutdown()


def _card(nv: Any, gpu: Gpu) -> Card:
    try:
        handle = nv.nvmlDeviceGetHandleByIndex(gpu.index)
    except nv.NVMLError as error:
        return _plain(gpu, f"the card could not be reached: {error}")
    told: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, ask in QUESTIONS.items():
        try:
            told[name] = ask(nv, handle)
        except nv.NVMLError as error:  # noqa: PERF203 (one question that is not supported must not hide the others)
            missing[name] = f"NVML says {error}"
        except AttributeError:  # an older binding
            missing[name] = "the installed nvidia-ml-py does not ask for it"
    return Card(gpu.index, gpu.name, gpu.compute_capability, missing=missing, **told)


def _whole(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return each card once: of several slices of one, the first stands for the card, whose settings they share."""
    first: dict[int, Gpu] = {}
    for gpu in gpus:
        first.setdefault(gpu.index, gpu)
    return list(first.values())


def _plain(gpu: Gpu, reason: str) -> Card:
    return Card(gpu.index, gpu.name, gpu.compute_capability, missing=dict.fromkeys(QUESTIONS, reason))


def _processes(nv: Any, card: Any) -> set[int]:
    return {process.pid for ask in (nv.nvmlDeviceGetComputeRunningProcesses, nv.nvmlDeviceGetGraphicsRunningProcesses) for process in ask(card)}


def _or_none(nv: Any, ask: Callable[[Any], Any]) -> Any:
    try:
        return ask(nv)
    except (nv.NVMLError, AttributeError):
        return None
