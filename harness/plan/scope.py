"""Does a machine meet what a claim, a case or a level needs? Answers with a reason for people, never with a bare no."""

from __future__ import annotations

import importlib.util
import sys

from harness.model import Machine, Reason
from harness.plan.specs import Needs

GIB = 1 << 30

ABILITIES = {
    "memory_cgroup": "the permission to make a control group with a memory limit",
    "fuse": "FUSE, for a directory that is slow on purpose (/dev/fuse and fusermount3)",
}
"""What a user may or may not do on a machine, and how a reason words it. `harness.measure.machine` finds out."""


def missing(needs: Needs, machine: Machine, device: str) -> Reason | None:
    """Return why `machine` does not meet `needs` when measuring on `device` ("cpu" or "gpu"), or None where it does."""
    if needs.device == "gpu" and device != "gpu":
        why = "measured on the CPU by choice" if machine.gpus else (machine.gpu_reason or "no GPU was found")
        return Reason("needs_gpu", f"needs a GPU: {why}", {"gpus": len(machine.gpus)})
    if needs.device == "cpu" and device != "cpu":
        return Reason("needs_cpu", "is about the CPU, and this run measures on the GPU")
    found = machine.gpus[0].compute_capability if machine.gpus and device == "gpu" else None
    have = "no GPU is measured" if found is None else f"this one has {found}"
    least, below = needs.compute_capability, needs.compute_capability_below
    if least is not None and (found is None or found < least):
        return Reason("needs_compute_capability", f"needs a GPU of compute capability {least} or newer: {have}", {"asked": least, "found": found})
    if below is not None and (found is None or found >= below):
        return Reason("needs_compute_capability", f"needs a GPU of compute capability below {below}: {have}", {"asked": below, "found": found})
    return _missing_memory(needs, machine, device) or _missing_counts(needs, machine, device)


def _missing_memory(needs: Needs, machine: Machine, device: str) -> Reason | None:
    if needs.card_memory_gib is None:
        return None
    found = machine.gpus[0].memory_bytes if machine.gpus and device == "gpu" else None
    if found is not None and found >= needs.card_memory_gib * GIB:
        return None
    have = "how much this one has is not known" if found is None else f"this one has {found / GIB:.1f}"
    return Reason("needs_card_memory", f"needs a GPU with {needs.card_memory_gib:g} GiB of memory: {have}", {"asked_gib": needs.card_memory_gib, "found_bytes": found})


def shares_card(machine: Machine) -> bool:
    """Whether two processes may use the first card at the same time; where it does not tell, they may, as that is what cards do by default."""
    return not machine.gpus or not (machine.gpus[0].compute_mode or "").startswith("exclusive")


def _missing_counts(needs: Needs, machine: Machine, device: str) -> Reason | None:
    gpus = len(machine.gpus) if device == "gpu" else 0
    if needs.gpus is not None and gpus < needs.gpus:
        return Reason("needs_gpus", f"needs {needs.gpus} GPUs: {gpus} found", {"asked": needs.gpus, "found": gpus})
    if needs.cores is not None and machine.cores < needs.cores:
        return Reason("needs_cores", f"needs {needs.cores} usable cores: {machine.cores} found", {"asked": needs.cores, "found": machine.cores})
    if needs.platform is not None and not sys.platform.startswith(needs.platform):
        return Reason("needs_platform", f"needs {needs.platform}: this is {sys.platform}")
    if needs.ability is not None and needs.ability not in machine.abilities:
        return Reason("needs_ability", f"needs {ABILITIES.get(needs.ability, needs.ability)}", {"ability": needs.ability})
    if needs.package is not None and importlib.util.find_spec(needs.package) is None:
        return Reason("needs_package", f"needs the package {needs.package}, which is not installed")
    return None


def on_exact_hardware(exact: dict[str, object] | None, machine: Machine, device: str) -> bool:
    """Is this the hardware of the article's own figure? Each word of a name must be part of the device's name, without regard to case."""
    if exact is None:
        return True
    names = {"gpu": machine.gpus[0].name if machine.gpus and device == "gpu" else "", "cpu": machine.cpu_model}
    for key, want in exact.items():
        if key == "gpus" and (device != "gpu" or len(machine.gpus) < int(str(want))):
            return False
        if key in names and any(word not in names[key].lower() for word in str(want).lower().split()):
            return False
    return True
