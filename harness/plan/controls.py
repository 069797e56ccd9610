"""The controls of a plan: pairs whose answer is known, for each arrangement in which arms are compared."""

from __future__ import annotations

from dataclasses import replace

from harness.model import Arrangement, Cell, Contrast, Control, ControlKind, Driver, Purpose
from harness.plan.cells import Bench, make_cell, make_trial
from harness.plan.estimands import expected_round_s, timing
from harness.plan.specs import SweepSpec

GHOST_EVERY = 10
"""The positive control slows one arm by an uncounted step for every so many counted ones."""


def plan_controls(contrasts: tuple[Contrast, ...], sweep: SweepSpec, bench: Bench) -> tuple[tuple[Control, ...], tuple[Contrast, ...], dict[str, Cell]]:
    """Return controls for each arrangement in which arms are compared, their contrasts and cells."""
    compared = {c.arrangement for c in contrasts if len(c.trials) > 1}
    # Duets whose arms do not fit side by side, or do not rest, become turns of trials in the course of a run.
    standby = {Arrangement.TURNS_OF_TRIALS} - compared if Arrangement.TURNS_OF_BLOCKS in compared else set()
    used = [a for a in Arrangement if a in compared | standby]
    cell = make_cell(bench, sweep.control.workload, {}, sweep.control.sizes, f"sweep {sweep.name}, control")
    controls: list[Control] = []
    duets: list[Contrast] = []
    for arrangement in used:
        blocks = arrangement is Arrangement.TURNS_OF_BLOCKS
        name = f"control-{bench.device}-{arrangement.value.replace('_', '-')}"
        trials = (make_trial(bench, cell, Driver.BLOCKS, name="a"), make_trial(bench, cell, Driver.BLOCKS, name="b", ghost_every=GHOST_EVERY))
        title = f"two workers of the same cell, {arrangement.value.replace('_', ' ')}"
        block_s, quads = timing(bench, sweep, arrangement, [cell, cell])
        duet = Contrast(name, title, Purpose.CONTROL, trials, arrangement, (sweep.control_rounds,), quads, block_s, absence=blocks)
        duet = replace(duet, standby=arrangement in standby)
        duets.append(replace(duet, expected_round_s=expected_round_s(duet, bench, {cell.id: cell})))
        kinds = (ControlKind.NEGATIVE, ControlKind.POSITIVE, *((ControlKind.ABSENCE,) if blocks else ()))
        controls += [Control(f"{name}-{kind.value}", kind, name, bench.device, arrangement) for kind in kinds]
    return tuple(controls), tuple(duets), {cell.id: cell} if used else {}
