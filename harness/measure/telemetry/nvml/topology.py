"""How cards hang together: which NVLinks of a card are up, where they end, and where the cards' ways over PCIe meet."""

# ruff: noqa: ANN401 (the binding has no types)

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from harness.measure.telemetry.nvml.library import INVALID_ARGUMENT, NOT_SUPPORTED, Library, Refused, bus_id, field_value
from harness.measure.telemetry.provider import sound
from harness.model import CardPair

# NVML's own numbers, so that an older binding that lacks one of their names will do.
ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's levels in the words of `nvidia-smi topo -m`, to which a switch on the board that two cards share (0) is a switch like any other."""
LINK_SPEED = 90
"""A field: megabytes a second of each active link, one way."""
TO_CARD, TO_PROCESSOR, TO_SWITCH = 0, 1, 2
MOST_LINKS = 36
"""No card has more; it calls the question wrong where it has fewer."""
NO_SUCH_LINK = (INVALID_ARGUMENT, NOT_SUPPORTED)
SWITCH = "NVSwitch"


@dataclass(frozen=True)
class Place:
    """Where a card sits, by which it can be asked about its surroundings. `links` are the numbers of its active NVLinks, None where they are not known."""

    uuid: str
    pci_id: str | None
    handle: Any
    links: tuple[int, ...] | None


def active_links(library: Library, handle: Any) -> tuple[int, ...] | None:
    """Return the numbers of the NVLinks of a card that are up: none only if it has some and says of each that it is not.

    None: it has no NVLink, or does not tell of one. A link that cannot be asked about must not look like one that is missing.
    """
    states: dict[int, int] = {}
    for link in range(MOST_LINKS):
        try:
            state = library.ask("nvmlDeviceGetNvLinkState", handle, link)
        except Refused as refusal:
            if refusal.code not in NO_SUCH_LINK:
                return None
            continue
        if state not in {0, 1}:
            return None
        states[link] = state
    return tuple(link for link, state in states.items() if state) if states else None


def link_speed(library: Library, handle: Any) -> float | None:
    """Return the bytes per second of each active NVLink of a card, one way.

    The version of the links, which says it too, is not asked for: some drivers give Hopper's links that of Blackwell's, which are twice as fast.
    """
    fields = library.get("nvmlDeviceGetFieldValues", handle, [(LINK_SPEED, 0)])
    told = None if fields is None else field_value(fields[0])
    return None if told is None or isinstance(told, Refused) else sound("nvlink_bytes_per_s", told * 1e6)[0]


def topology(library: Library, places: Sequence[Place]) -> tuple[CardPair, ...]:
    """Return how each two of these cards are connected."""
    if len(places) < 2:
        return ()
    known = {place.pci_id.lower() for place in places if place.pci_id is not None}
    ends = {place.uuid: _ends(library, place, known) for place in places}
    return tuple(_pair(library, first, second, ends) for first, second in combinations(places, 2))


def _pair(library: Library, first: Place, second: Place, ends: dict[str, list[str] | None]) -> CardPair:
    level = library.get("nvmlDeviceGetTopologyCommonAncestor", first.handle, second.handle)
    straight, through = _between(first, second, ends[first.uuid], ends[second.uuid])
    return CardPair(
        first.uuid,
        second.uuid,
        ancestor=None if level is None else ANCESTORS.get(level),
        nvlinks=None if straight is None else straight or through,
        switched=None if straight is None else bool(through and not straight),
    )


def _between(first: Place, second: Place, from_first: list[str] | None, from_second: list[str] | None) -> tuple[int | None, int]:
    """Return how many NVLinks lead straight from one card to the other, and how many through a switch; None where the cards do not tell, or differ."""
    if from_first is None or from_second is None:
        return None, 0
    if None in {first.pci_id, second.pci_id} and {*from_first, *from_second} - {SWITCH}:
        return None, 0  # the card at the end of a link cannot be recognised
    straight = from_first.count(str(second.pci_id).lower())
    if straight != from_second.count(str(first.pci_id).lower()):
        return None, 0
    return straight, min(from_first.count(SWITCH), from_second.count(SWITCH))


def _ends(library: Library, place: Place, known: Collection[str]) -> list[str] | None:
    """Return where each active NVLink of a card ends: at a switch, or at a PCI bus id. None if one of them does not tell."""
    if place.links is None:
        return None
    found = []
    for link in place.links:
        kind = library.get("nvmlDeviceGetNvLinkRemoteDeviceType", place.handle, link)
        if kind == TO_SWITCH:
            found.append(SWITCH)
            continue
        end = bus_id(library, "nvmlDeviceGetNvLinkRemotePciInfo", place.handle, link)
        # Older drivers do not tell what is there: one of our cards is known by its place, and anything else might be a switch.
        if end is None or (end.lower() not in known and kind not in {TO_CARD, TO_PROCESSOR}):
            return None
        found.append(end.lower())
    return found
