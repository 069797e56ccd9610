"""The table of checks, and the findings in its order. A new check is one pure function in its module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.doctor import check_cards, check_framework, check_host, check_noise
from harness.doctor.facts import Card, Facts
from harness.doctor.findings import Finding, Level, worst


@dataclass(frozen=True)
class Check:
    """A check of the whole machine. `find` returns None where the check does not apply."""

    area: str
    name: str
    find: Callable[[Facts], Finding | None]


@dataclass(frozen=True)
class CardCheck:
    """A check of one card."""

    name: str
    find: Callable[[Facts, Card], Finding | None]


@dataclass(frozen=True)
class Row:
    """A finding with its place: `subject` names the card, or is empty."""

    area: str
    check: str
    subject: str
    finding: Finding


CHECKS = (
    Check("TensorFlow", "tensorflow", check_framework.answers),
    Check("TensorFlow", "python", check_framework.python_version),
    Check("processors", "cores", check_host.cores),
    Check("processors", "governor", check_host.governor),
    Check("processors", "turbo", check_host.turbo),
    Check("processors", "smt", check_host.smt),
    Check("processors", "time source", check_host.time_source),
    Check("memory", "memory", check_host.memory),
    Check("memory", "swap", check_host.swap),
    Check("memory", "huge pages", check_host.huge_pages),
    Check("storage", "results", check_host.results_storage),
    Check("storage", "data", check_host.data_storage),
    Check("quiet", "other runs", check_host.other_runs),
    Check("quiet", "noise", check_noise.spread),
    Check("quiet", "foreign load", check_noise.foreign_load),
    Check("quiet", "steal", check_noise.steal),
    Check("quiet", "throttling", check_noise.throttled),
    Check("environment", "variables", check_host.variables),
)

NO_GPU = Check("GPU", "gpu", check_cards.absent)

GPU_CHECKS = (
    Check("GPU", "cards", check_cards.listed),
    Check("GPU", "seen", check_framework.gpu_seen),
    Check("GPU", "driver", check_framework.driver),
    Check("GPU", "cuda", check_framework.cuda_runtime),
    Check("GPU", "cudnn", check_framework.cudnn),
    Check("GPU", "tested", check_framework.configuration),
)

CARD_CHECKS = (
    CardCheck("architecture", check_framework.architecture),
    CardCheck("pcie width", check_cards.pcie_width),
    CardCheck("pcie generation", check_cards.pcie_generation),
    CardCheck("persistence", check_cards.persistence),
    CardCheck("compute mode", check_cards.compute_mode),
    CardCheck("power limit", check_cards.power_limit),
    CardCheck("ecc", check_cards.ecc),
    CardCheck("mig", check_cards.mig),
    CardCheck("other processes", check_cards.other_processes),
    CardCheck("nvidia-smi", check_cards.nvidia_smi),
)


def diagnose(facts: Facts) -> tuple[Row, ...]:
    """Return what all checks find, area by area. Without a GPU everything about GPUs is one finding."""
    without = NO_GPU.find(facts)
    general = (*CHECKS, NO_GPU) if without is not None else (*CHECKS, *GPU_CHECKS)
    rows = [Row(check.area, check.name, "", finding) for check in general if (finding := check.find(facts)) is not None]
    rows += [
        Row("GPU", check.name, f"GPU {card.index}", finding)
        for card in facts.cards.cards
        for check in CARD_CHECKS
        if (finding := check.find(facts, card)) is not None
    ]
    return tuple(rows)


def overall(rows: tuple[Row, ...]) -> Level:
    """Return the worst level found."""
    return worst([row.finding.level for row in rows])
