"""Asks nvidia-smi, NVIDIA's own command, what NVML told a moment before and tells a moment after. It changes nothing and judges nothing.

This suite's figures of the cards come from NVML through its own reader; whether it takes the right fields in the right units shows where two programs
are asked the same. What a card does changes from moment to moment, so that there are several looks.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.doctor.children import Ended, run_to_end
from harness.doctor.facts import BesideSmi, Sight
from harness.measure.telemetry.nvml import Nvml
from harness.measure.telemetry.provider import Sample
from harness.model import Gpu

COMMAND = "nvidia-smi"
LOOKS = 3
DEADLINE_S = 20.0
"""Where the driver has to be loaded first, the command takes some seconds."""
MIB = 1 << 20
LONGEST_LINE = 200

UUID, DRIVER = "uuid", "driver_version"


@dataclass(frozen=True)
class Quantity:
    """What both tell: nvidia-smi in `column`, NVML's reader as the sample `name`, `scale` times which is nvidia-smi's unit."""

    column: str
    name: str
    scale: float = 1.0


QUANTITIES = {
    "memory_mib": Quantity("memory.used", "memory_used_bytes", 1 / MIB),
    "power_w": Quantity("power.draw", "power_w"),
    "sm_clock_mhz": Quantity("clocks.sm", "sm_clock_mhz"),
    "memory_clock_mhz": Quantity("clocks.mem", "memory_clock_mhz"),
    "temperature_c": Quantity("temperature.gpu", "temperature_c"),
}
COLUMNS = (UUID, DRIVER, *(quantity.column for quantity in QUANTITIES.values()))

Row = Mapping[str, str]
Samples = Mapping[str, Mapping[str, Sample]]


def read_smi(gpus: Sequence[Gpu], looks: int = LOOKS) -> dict[int, BesideSmi]:
    """Return what nvidia-smi says of each of these cards beside NVML, by the card's index. Nothing is raised: what cannot be asked has a reason."""
    if not gpus:
        return {}
    told: list[tuple[Samples, Mapping[str, Row], Samples]] = []
    before = look(gpus)
    for _ in range(looks):
        rows = ask()
        if isinstance(rows, str):
            return {gpu.index: BesideSmi(reason=rows) for gpu in gpus}
        after = look(gpus)
        told.append((before, rows, after))
        before = after
    return {gpu.index: _of_card(gpu, told) for gpu in gpus}


def _of_card(gpu: Gpu, told: Sequence[tuple[Samples, Mapping[str, Row], Samples]]) -> BesideSmi:
    rows = [listed[gpu.uuid] for _, listed, _ in told if gpu.uuid in listed]
    if len(rows) < len(told):
        slices = ": it tells of whole cards, and this is a slice of one" if gpu.mig == "slice" else ""
        return BesideSmi(reason=f"{COMMAND} does not list it{slices}")
    looks = tuple(
        {name: _sight(quantity, before.get(gpu.uuid, {}), row[quantity.column], after.get(gpu.uuid, {})) for name, quantity in QUANTITIES.items()}
        for (before, _, after), row in zip(told, rows, strict=True)
    )
    return BesideSmi(driver=rows[-1][DRIVER], looks=looks)


def look(gpus: Sequence[Gpu]) -> Samples:
    """Return NVML's samples of each card by name, as this suite's own reader takes them; the last of each name."""
    told: dict[str, dict[str, Sample]] = {}
    reader = Nvml().open(gpus)
    try:
        for _ in gpus:  # what is slow to ask for is asked of one card at a time
            for sample in reader.sample():
                told.setdefault(sample.device, {})[sample.name] = sample
    finally:
        reader.close()
    return told


def ask() -> dict[str, Row] | str:
    """Return what nvidia-smi says of each card, by UUID and column, or why it says nothing."""
    path = shutil.which(COMMAND)
    if path is None:
        return f"{COMMAND} is not on the PATH"
    try:
        ended = run_to_end([path, f"--query-gpu={','.join(COLUMNS)}", "--format=csv,noheader,nounits"], {**os.environ, "LC_ALL": "C"}, DEADLINE_S)
    except OSError as error:
        return f"{COMMAND} could not be started: {error.strerror}"
    return rows_of(ended.out) if ended.code == 0 else _why_not(ended)


def _why_not(ended: Ended) -> str:
    if ended.code is None:
        return f"{COMMAND} took longer than {DEADLINE_S:g} s and was given up"
    said = next((line.strip() for line in (ended.out + "\n" + ended.err).splitlines() if line.strip()), "it said nothing")
    return f"{COMMAND} ended with exit code {ended.code}: {said[:LONGEST_LINE]}"


def rows_of(text: str) -> dict[str, Row]:
    """Return the rows of nvidia-smi's CSV by UUID; lines that are no such rows are left out."""
    lines = ([cell.strip() for cell in line.split(",")] for line in text.splitlines())
    rows = (dict(zip(COLUMNS, cells, strict=True)) for cells in lines if len(cells) == len(COLUMNS))
    return {row[UUID]: row for row in rows}


def number(cell: str) -> float | None:
    """Return a cell's number; None for "[N/A]", "[Not Supported]", "[Unknown Error]" and whatever else is none."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _sight(quantity: Quantity, before: Mapping[str, Sample], cell: str, after: Mapping[str, Sample]) -> Sight:
    ours = [samples.get(quantity.name) for samples in (before, after)]
    theirs = number(cell)
    values = [None if sample is None or sample.value is None else sample.value * quantity.scale for sample in ours]
    said = next((sample.reason for sample in ours if sample is not None and sample.value is None), None)
    reason = None
    if theirs is None:
        reason = f"{COMMAND} says {cell[:LONGEST_LINE] or 'nothing'}"
    elif None in values:
        reason = f"NVML: {said or 'no sample was taken'}"
    return Sight(values[0], values[1], theirs, reason)
