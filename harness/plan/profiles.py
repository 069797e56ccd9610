"""Profiles: one untimed trial of each workload that is trained, under the framework's own profiler, for whoever wants to see where a step's time goes.

No case reads them, and nothing that is timed runs beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from harness.model import LARGEST, Arrangement, Cell, Contrast, Driver, Purpose
from harness.plan.cells import Bench, make_trial
from harness.plan.estimands import expected_round_s

PROFILE = "profile"
"""The workload's method that driver ONCE calls: some steps under the profiler, whose trace is left in the folder of the setting `profile_dir`."""
LOOKS = (1,)


def plan_profiles(contrasts: Iterable[Contrast], cells: Mapping[str, Cell], bench: Bench) -> tuple[tuple[Contrast, ...], dict[str, Cell]]:
    """Return one contrast for each workload that these measure in blocks and that computes something on TensorFlow, and the contrasts' cells.

    Its trial is the arm with the fewest switches thrown; of several such arms the first in the plan. It has a cell of its own: what a profiled step
    uses of a machine is not what the arm uses.
    """
    baselines: dict[str, Cell] = {}
    for contrast in contrasts:
        for trial in contrast.trials:
            cell = cells[trial.cell]
            workload = bench.workloads[cell.workload]
            fits = trial.driver is Driver.BLOCKS and workload.runtime == "tf" and workload.computes and cell.device == bench.device
            if not fits or LARGEST in cell.sizes.values():
                continue
            known = baselines.get(cell.workload)
            if known is None or _thrown(cell, bench) < _thrown(known, bench):
                baselines[cell.workload] = cell
    profiled = [replace(cell, sizes={**cell.sizes, "profiled": True}) for cell in baselines.values()]
    return tuple(_contrast(cell, bench) for cell in profiled), {cell.id: cell for cell in profiled}


def _thrown(cell: Cell, bench: Bench) -> int:
    return sum(bench.baseline.get(factor) != level for factor, level in cell.levels.items())


def _contrast(cell: Cell, bench: Bench) -> Contrast:
    trial = make_trial(bench, cell, Driver.ONCE, PROFILE)
    contrast = Contrast(f"profile-{cell.workload}", f"profile of {cell.workload}", Purpose.PROFILE, (trial,), Arrangement.SOLO, LOOKS)
    return replace(contrast, expected_round_s=expected_round_s(contrast, bench, {cell.id: cell}))
