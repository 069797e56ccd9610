"""Reads the cards: how each is set up, as NVML tells it. What cannot be read is None with its reason; it changes nothing and judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.doctor.facts import BesideSmi, Card, Cards
from harness.measure.telemetry.nvml import CardSetup, read_setup
from harness.model import Gpu


def read_cards(gpus: Sequence[Gpu], reason: str | None, on_bus: int | None) -> Cards:
    """Return how these cards are set up. `reason` says why there are none, or some could not be read; without any, NVML is not asked."""
    if not gpus:
        return Cards(on_bus=on_bus, reason=reason)
    found = read_setup(gpus)
    return Cards(tuple(_card(card) for card in found.cards), driver=found.driver, driver_cuda=found.cuda, on_bus=on_bus, reason=reason)


def beside_smi(cards: Cards, smi: Mapping[int, BesideSmi]) -> Cards:
    """Return the cards with what nvidia-smi says of each, by its index."""
    return replace(cards, cards=tuple(replace(card, smi=smi.get(card.index, card.smi)) for card in cards.cards))


def _card(found: CardSetup) -> Card:
    gpu = found.gpu
    return Card(gpu.index, gpu.name, gpu.compute_capability, missing=found.missing, **found.told)
