"""Reads all facts, one after the other, holding the machine's lock so that nobody measures meanwhile. Judges nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from harness.config import list_sweeps
from harness.doctor.facts import Facts, Framework, Looks, Noise
from harness.doctor.noise import watch
from harness.doctor.read_cards import beside_smi, read_cards
from harness.doctor.read_framework import read_framework
from harness.doctor.read_host import nvidia_cards_on_bus, read_host
from harness.doctor.read_smi import read_smi
from harness.errors import Interrupted, MeasureError
from harness.measure.lock import machine_lock
from harness.measure.machine import read_machine

PURPOSE = "python -m harness.doctor"
MAIN_JOB = "full"


def examine(noise_s: float | None, *, tell: Callable[[str], None], lock: Path | None = None) -> tuple[str, Facts]:
    """Return the machine's slug and its facts. `noise_s`: how long to watch the noise, None for not at all; `tell` gets a line before what takes long.

    While another run measures, nothing is started that would disturb it: TensorFlow, nvidia-smi and the noise then stay unknown. `lock` is another lock's path.
    """
    machine = read_machine(None)
    with contextlib.ExitStack() as held:
        holder, reason = take_lock(held, lock)
        host = read_host(holder, reason)
        cards = read_cards(machine.gpus, machine.gpu_reason, nvidia_cards_on_bus())
        if holder is None:
            cards = beside_smi(cards, read_smi(machine.gpus))
        framework, noise = _others_measure() if holder is not None else _look(noise_s, tell)
    return machine.slug, Facts(host, framework, cards, noise, full_looks())


def take_lock(held: contextlib.ExitStack, path: Path | None = None) -> tuple[str | None, str | None]:
    """Take the machine's lock for as long as `held` lasts. Returns who has it instead (None: nobody), and why that is not known (None: it is)."""
    said: list[str] = []
    try:
        held.enter_context(machine_lock(PURPOSE, tell=said.append, stop=lambda: bool(said), path=path, poll_s=0.01))
    except Interrupted:  # as soon as we have been told for whom we would wait
        return said[0].partition(": ")[2].rstrip("."), None
    except MeasureError as error:
        return None, str(error)
    return None, None


def full_looks() -> Looks:
    """Return how the main job looks at a comparison."""
    sweep = next(sweep for sweep in list_sweeps() if sweep.name == MAIN_JOB)
    return Looks(sweep.looks[-1], len(sweep.looks), sweep.alpha)


def _look(noise_s: float | None, tell: Callable[[str], None]) -> tuple[Framework, Noise]:
    tell("asking TensorFlow ...")
    framework = read_framework()
    if noise_s is None:
        return framework, Noise(reason="not watched (--no-noise)")
    tell(f"watching the machine for {noise_s:g} s ...")
    return framework, watch(noise_s)


def _others_measure() -> tuple[Framework, Noise]:
    reason = "not asked, because another measurement is going on"
    return Framework(reason=reason), Noise(reason=reason)
