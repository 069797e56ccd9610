"""How each card is set up: what may change its figures and stays as it is while it works. Nothing is changed; what is not told is a reason."""

# ruff: noqa: ANN401 (the binding has no types)

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.measure.telemetry.nvml.cards import COMPUTE_MODES, cuda_version
from harness.measure.telemetry.nvml.library import Library, Refused, start, text
from harness.measure.telemetry.nvml.watched import watch
from harness.measure.telemetry.provider import sound
from harness.model import Gpu

Ask = Callable[[Library, Any], Any]

QUESTIONS: dict[str, Ask] = {
    "pcie_generation": lambda nvml, card: int(nvml.ask("nvmlDeviceGetCurrPcieLinkGeneration", card)),
    "pcie_generation_max": lambda nvml, card: int(nvml.ask("nvmlDeviceGetMaxPcieLinkGeneration", card)),
    "pcie_width": lambda nvml, card: int(nvml.ask("nvmlDeviceGetCurrPcieLinkWidth", card)),
    "pcie_width_max": lambda nvml, card: int(nvml.ask("nvmlDeviceGetMaxPcieLinkWidth", card)),
    "persistence": lambda nvml, card: bool(nvml.ask("nvmlDeviceGetPersistenceMode", card)),
    "compute_mode": lambda nvml, card: COMPUTE_MODES.get(mode := int(nvml.ask("nvmlDeviceGetComputeMode", card)), f"mode {mode}"),
    "power_limit_w": lambda nvml, card: nvml.ask("nvmlDeviceGetPowerManagementLimit", card) / 1000,
    "power_default_w": lambda nvml, card: nvml.ask("nvmlDeviceGetPowerManagementDefaultLimit", card) / 1000,
    "ecc": lambda nvml, card: bool(nvml.ask("nvmlDeviceGetEccMode", card)[0]),
    "mig": lambda nvml, card: bool(nvml.ask("nvmlDeviceGetMigMode", card)[0]),
    "others": lambda nvml, card: len(_processes(nvml, card) - {os.getpid()}),
}
"""What is told of a card, by name, and the question that tells it; `others` is the number of processes on it that are not this one."""


@dataclass(frozen=True)
class CardSetup:
    """What a card tells by the names of QUESTIONS, and why not the rest."""

    gpu: Gpu
    told: Mapping[str, Any] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """How the cards are set up, and the versions of the driver and of the CUDA that it offers; None for those that it does not tell."""

    cards: tuple[CardSetup, ...] = ()
    driver: str | None = None
    cuda: str | None = None


def read_setup(gpus: Sequence[Gpu]) -> Setup:
    """Return how these cards are set up, each card once. Nothing is raised: a card that cannot be reached has nothing but reasons."""
    cards = _whole(gpus)
    try:
        library = start()
    except Refused as refusal:
        return Setup(tuple(_silent(gpu, refusal.text) for gpu in cards))
    try:
        driver, cuda = text(library.get("nvmlSystemGetDriverVersion")), library.get("nvmlSystemGetCudaDriverVersion_v2")
        return Setup(tuple(_read(library, gpu) for gpu in cards), driver, cuda_version(cuda))
    finally:
        library.get("nvmlShutdown")


def _read(library: Library, gpu: Gpu) -> CardSetup:
    found = watch(library, gpu)
    if found.gone is not None:
        return _silent(gpu, f"the card could not be reached: {found.gone.text}")
    told: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, ask in QUESTIONS.items():
        try:
            value = ask(library, found.card)
        except Refused as refusal:  # one question that is not supported must not hide the others
            missing[name] = refusal.text
            continue
        sane, why = (value, None) if isinstance(value, bool | str) else sound(name.removesuffix("_max"), value)
        if why is None:
            told[name] = sane
        else:
            missing[name] = why
    return CardSetup(gpu, told, missing)


def _whole(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return each card once: of several slices of one, the first stands for the card, whose settings they share."""
    first: dict[int, Gpu] = {}
    for gpu in gpus:
        first.setdefault(gpu.index, gpu)
    return list(first.values())


def _silent(gpu: Gpu, reason: str) -> CardSetup:
    return CardSetup(gpu, missing=dict.fromkeys(QUESTIONS, reason))


def _processes(nvml: Library, card: Any) -> set[int]:
    return {process.pid for kind in ("Compute", "Graphics") for process in nvml.ask(f"nvmlDeviceGet{kind}RunningProcesses", card)}
