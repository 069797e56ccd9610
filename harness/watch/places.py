"""Where workers leave what TensorBoard shows: settings that they are given for a round, and that belong to this machine alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.measure.crew import file_stem
from harness.model import Driver
from harness.plan.profiles import PROFILE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.model import Cell, Round, Scalar, Trial


def with_places(round_: Round, cells: Mapping[str, Cell], folder: Path, *, curves: bool) -> Round:
    """Return the round with `profile_dir` for trials that are profiled and, if `curves`, `events_dir` for those that are timed in blocks.

    `folder` is the bundle's for TensorBoard. A job's losses are read on its way, where writing would be timed: it gets no place for them.
    """

    def placed(number: int, trial: Trial) -> Trial:
        if trial.call == PROFILE:
            return _given(trial, {"profile_dir": str(folder / "plugins" / "profile" / file_stem(cells[trial.cell].workload))})
        if curves and trial.driver is Driver.BLOCKS:
            place = folder / "training" / file_stem(round_.contrast) / f"round-{round_.index + 1}.{round_.attempt}-arm-{number}"
            return _given(trial, {"events_dir": str(place)})
        return trial

    return replace(round_, trials=tuple(placed(number, trial) for number, trial in enumerate(round_.trials, 1)))


def _given(trial: Trial, settings: dict[str, Scalar]) -> Trial:
    return replace(trial, processes=tuple(replace(process, settings={**process.settings, **settings}) for process in trial.processes))
