"""The controls of a plan: pairs whose answer is known, for each device and each arrangement in which arms are compared."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Arrangement, Cell, Contrast, Control, ControlKind, Driver, Purpose
from harness.plan.cells import Bench, left_alone, make_cell, make_trial, on_device
from harness.plan.estimands import expected_round_s, timing
from harness.plan.specs import SweepSpec

GHOST_EVERY = 10
"""The positive control slows one arm by an uncounted step for every so many counted ones."""


def plan_controls(
    contrasts: tuple[Contrast, ...], cells: dict[str, Cell], sweep: SweepSpec, bench: Bench
) -> tuple[tuple[Control, ...], tuple[Contrast, ...], dict[str, Cell]]:
    """Return controls for each device and each arrangement in which arms are compared on it, their contrasts and cells."""
    on = {contrast.id: {cells[trial.cell].device for trial in contrast.trials} for contrast in contrasts}
    devices = dict.fromkeys([bench.device, *sorted(device for found in on.values() for device in found)])
    parts = [_on_one_device(tuple(c for c in contrasts if device in on[c.id]), sweep, on_device(bench, device)) for device in devices]
    found_cells = {cell.id: cell for _, _, mine in parts for cell in mine}
    return tuple(c for mine, _, _ in parts for c in mine), tuple(d for _, mine, _ in parts for d in mine), found_cells


def _on_one_device(contrasts: tuple[Contrast, ...], sweep: SweepSpec, bench: Bench) -> tuple[list[Control], list[Contrast], tuple[Cell, ...]]:
    # Nothing is compared among trials that step at the same time.
    comparing = [c for c in contrasts if len(c.trials) > 1 and c.arrangement is not Arrangement.TOGETHER]
    compared = {c.arrangement for c in comparing}
    # Duets whose arms do not fit side by side, or do not rest, become turns of trials in the course of a run.
    # An arm that is a guest on the CPU is not worth another control that may never be asked for.
    standby = {Arrangement.TURNS_OF_TRIALS} - compared if Arrangement.TURNS_OF_BLOCKS in compared and not bench.guest else set()
    used = [a for a in Arrangement if a in compared | standby]
    # A sweep in order may never come to what stands last in it.
    ordered = any(c.place for c in comparing)
    later = compared - {min(comparing, key=lambda c: c.place).arrangement} if ordered else set()
    workload = sweep.control.workload
    cell = make_cell(bench, workload, left_alone(bench, workload), sweep.control.sizes, f"sweep {sweep.name}, control")
    controls: list[Control] = []
    duets: list[Contrast] = []
    for arrangement in used:
        blocks = arrangement is Arrangement.TURNS_OF_BLOCKS
        name = f"control-{bench.device}-{arrangement.value.replace('_', '-')}"
        trials = (make_trial(bench, cell, Driver.BLOCKS, name="a"), make_trial(bench, cell, Driver.BLOCKS, name="b", ghost_every=GHOST_EVERY))
        title = f"two workers of the same cell, {arrangement.value.replace('_', ' ')}"
        block_s, quads = timing(bench, sweep, arrangement, [cell, cell])
        duet = Contrast(name, title, Purpose.CONTROL, trials, arrangement, (sweep.control_rounds,), quads, block_s, absence=blocks)
        waits = arrangement in standby | later
        duet = replace(duet, standby=waits, place=int(ordered and waits))
        duets.append(replace(duet, expected_round_s=expected_round_s(duet, bench, {cell.id: cell})))
        kinds = (ControlKind.NEGATIVE, ControlKind.POSITIVE, *((ControlKind.ABSENCE,) if blocks else ()))
        controls += [Control(f"{name}-{kind.value}", kind, name, bench.device, arrangement) for kind in kinds]
    return controls, duets, (cell,) if used else ()
