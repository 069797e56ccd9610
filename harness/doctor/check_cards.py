"""Checks of the cards themselves: pure functions from facts to a finding."""

from __future__ import annotations

from collections.abc import Mapping

from harness.doctor.facts import Card, Facts, Sight
from harness.doctor.findings import Finding, error, info, ok, unknown, warning

SLACK = {"memory_mib": (64, 0.02), "power_w": (10, 0.1), "sm_clock_mhz": (30, 0.03), "memory_clock_mhz": (30, 0.03), "temperature_c": (3, 0)}
"""How far nvidia-smi may lie outside of what NVML told just before and after: so much, or that share of it. A card does not keep still meanwhile."""
WORDS = {
    "memory_mib": ("memory", "MiB"),
    "power_w": ("power", "W"),
    "sm_clock_mhz": ("SM clock", "MHz"),
    "memory_clock_mhz": ("memory clock", "MHz"),
    "temperature_c": ("temperature", "°C"),
}


def absent(facts: Facts) -> Finding | None:
    """The one finding about GPUs where there is none; None where there is one."""
    cards = facts.cards
    if cards.cards or facts.framework.gpus:
        return None
    reason = cards.reason or "none was found"
    if cards.on_bus:
        why = "claims that need a GPU will be NOT TESTABLE; in a container this is what a card looks like that was not passed in"
        found = f"the PCI bus shows {cards.on_bus} NVIDIA device{'s' if cards.on_bus > 1 else ''}, but no card can be used: {reason}"
        return warning("card_unusable", found, why, "install or load NVIDIA's driver, or pass the card to the container", on_bus=cards.on_bus)
    return info("none", f"no GPU: {reason}", "claims that need one will be NOT TESTABLE")


def listed(facts: Facts) -> Finding:
    """All cards can be read by NVML."""
    cards = facts.cards
    if not cards.cards:
        return unknown(
            "the cards' state", cards.reason or "NVML lists none", "TensorFlow sees a GPU, but clocks, power and other users cannot be watched"
        )
    names = ", ".join(card.name for card in cards.cards)
    if cards.reason:
        return warning(
            "some_unreadable", f"{names}; but {cards.reason}", "a lost card can stop the others", "look into the kernel's log for Xid errors"
        )
    return ok(names, cards=len(cards.cards))


def pcie_width(_: Facts, card: Card) -> Finding:
    """The link has all its lanes."""
    if card.pcie_width is None or card.pcie_width_max is None:
        return unknown("the PCIe link's width", card.why("pcie_width" if card.pcie_width is None else "pcie_width_max"))
    numbers = {"width": card.pcie_width, "width_max": card.pcie_width_max}
    if card.pcie_width < card.pcie_width_max:
        found = f"PCIe link of {card.pcie_width} lanes of {card.pcie_width_max}"
        return warning(
            "narrow", found, "copies to and from the card are slower than the machine allows", "reseat the card, or use another slot", **numbers
        )
    return ok(f"PCIe link of {card.pcie_width} lanes", **numbers)


def pcie_generation(_: Facts, card: Card) -> Finding:
    """The link runs at its generation; many cards lower it at rest."""
    if card.pcie_generation is None or card.pcie_generation_max is None:
        return unknown("the PCIe link's generation", card.why("pcie_generation" if card.pcie_generation is None else "pcie_generation_max"))
    numbers = {"generation": card.pcie_generation, "generation_max": card.pcie_generation_max}
    if card.pcie_generation < card.pcie_generation_max:
        found = f"PCIe generation {card.pcie_generation} of {card.pcie_generation_max} now"
        return info(
            "lowered", found, "many cards lower it at rest; if it stays so under load, copies are slow", "look again while a run goes", **numbers
        )
    return ok(f"PCIe generation {card.pcie_generation}", **numbers)


def persistence(_: Facts, card: Card) -> Finding:
    """The driver stays loaded between processes."""
    if card.persistence is None:
        return unknown("persistence mode", card.why("persistence"))
    if card.persistence:
        return ok("persistence mode is on")
    why = "the driver is set up anew for each process: starts take seconds longer, and clocks begin cold"
    return warning("off", "persistence mode is off", why, "nvidia-smi -pm 1 (as root)")


def compute_mode(_: Facts, card: Card) -> Finding:
    """Several processes may use the card at once."""
    if card.compute_mode is None:
        return unknown("the compute mode", card.why("compute_mode"))
    if card.compute_mode == "default":
        return ok("compute mode default: arms can live side by side")
    if card.compute_mode == "prohibited":
        return error("prohibited", "compute mode prohibited", "no process may compute on the card", "nvidia-smi -c DEFAULT (as root)")
    if not card.compute_mode.startswith("exclusive"):
        return unknown("the compute mode", f"NVML tells {card.compute_mode}, which this suite does not know")
    why = "one process at a time: the arms of a duet cannot live side by side; they must take turns as whole trials, which needs more rounds"
    return warning("exclusive", f"compute mode {card.compute_mode.replace('_', ' ')}", why, "nvidia-smi -c DEFAULT (as root)")


def power_limit(_: Facts, card: Card) -> Finding:
    """The card may draw what it was made for."""
    limit_w, default_w = card.power_limit_w, card.power_default_w
    if limit_w is None or default_w is None:
        return unknown("the power limit", card.why("power_limit_w" if limit_w is None else "power_default_w"))
    numbers = {"limit_w": limit_w, "default_w": default_w}
    if limit_w < default_w:
        found = f"power limit {limit_w:g} W, below the default of {default_w:g} W"
        return warning(
            "lowered", found, "the card slows down under load", f"nvidia-smi -pl {default_w:g} (as root), if the power supply allows", **numbers
        )
    if limit_w > default_w:
        found = f"power limit {limit_w:g} W, above the default of {default_w:g} W"
        return info("raised", found, "figures are higher than those of the card as sold", "name the limit with the figures", **numbers)
    return ok(f"power limit {limit_w:g} W, the default", **numbers)


def ecc(_: Facts, card: Card) -> Finding:
    """Whether memory is checked."""
    if card.ecc is None:
        return unknown("whether ECC is on", card.why("ecc"))
    state = "on" if card.ecc else "off"
    return info(state, f"ECC is {state}", "where memory is no HBM, checking it costs some of its bandwidth", ecc=card.ecc)


def mig(_: Facts, card: Card) -> Finding:
    """Whether the card is cut into instances."""
    if card.mig is None:
        return unknown("whether MIG is on", card.why("mig"))
    if card.mig:
        return info(
            "on",
            "MIG is on",
            "what is measured is an instance, no whole card, and others may use the rest",
            "compare with other instances of its size only",
            mig=True,
        )
    return ok("MIG is off", mig=False)


def other_processes(_: Facts, card: Card) -> Finding:
    """Nobody else uses the card."""
    if card.others is None:
        return unknown("who else uses the card", card.why("others"))
    if card.others:
        found = f"{card.others} other process{'es use' if card.others > 1 else ' uses'} the card"
        return warning(
            "shared", found, "they take its time and memory", "end them, or choose another card by CUDA_VISIBLE_DEVICES", others=card.others
        )
    return ok("nobody else uses the card", others=0)


def nvidia_smi(facts: Facts, card: Card) -> Finding:
    """NVML as this suite reads it and nvidia-smi say the same. A quantity that agreed in one look is right: the others caught the card on the move."""
    smi, driver = card.smi, facts.cards.driver
    if smi.reason is not None or not smi.looks:
        return unknown("whether NVML and nvidia-smi say the same", smi.reason or "nvidia-smi was not asked")
    compared = {name: [look[name] for look in smi.looks if look[name].reason is None] for name in smi.looks[-1]}
    wrong = [_differing(name, sights[-1]) for name, sights in compared.items() if sights and not any(agrees(name, sight) for sight in sights)]
    if driver is not None and smi.driver is not None and driver != smi.driver:
        wrong.insert(0, f"driver {driver} by NVML, {smi.driver} by nvidia-smi")
    numbers = {f"{name}_{side}": value for name, sights in compared.items() if sights for side, value in _sides(sights[-1]).items()}
    if wrong:
        why = "one of the two is wrong, and figures of this suite rest on the first"
        return warning("differ", "; ".join(wrong), why, "update nvidia-ml-py and the driver, and report it if it stays", **numbers)
    seen = [WORDS[name][0] for name, sights in compared.items() if sights]
    if not seen:
        reason = next((look[name].reason for look in smi.looks for name in look if look[name].reason is not None), None)
        return unknown("whether NVML and nvidia-smi say the same", reason or "neither tells anything")
    left_out = [f"{WORDS[name][0]}: {smi.looks[-1][name].reason}" for name, sights in compared.items() if not sights]
    beside = f"; not compared: {', '.join(left_out)}" if left_out else ""
    return ok(f"NVML and nvidia-smi say the same of {', '.join(seen)}{beside}", **numbers)


def agrees(name: str, sight: Sight) -> bool:
    """Return whether nvidia-smi lies within what NVML told before and after, and SLACK around it."""
    if sight.before is None or sight.after is None or sight.theirs is None:
        return False
    low, high = sorted((sight.before, sight.after))
    least, share = SLACK[name]
    slack = max(least, share * high)
    return low - slack <= sight.theirs <= high + slack


def _differing(name: str, sight: Sight) -> str:
    word, unit = WORDS[name]
    return f"{word} {sight.before:.5g} to {sight.after:.5g} {unit} by NVML, {sight.theirs:.5g} {unit} by nvidia-smi"


def _sides(sight: Sight) -> Mapping[str, float | None]:
    return {"nvml": sight.after, "nvidia_smi": sight.theirs}
