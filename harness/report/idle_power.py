"""What a machine's devices drew at rest, before the first round. Knows samples as a table, nothing of figures or pages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.model import IDLE_ROUND

if TYPE_CHECKING:
    import pandas as pd

COUNTERS = ("energy_j", "cpu_energy_j")
LONGEST_S = 10.0
"""Two samples farther apart belong to two parts of a run, and what was used in between was not used at rest."""


def idle_watts(samples: pd.DataFrame) -> dict[str, float]:
    """Return device ("host" for all processor packages, else a card's UUID) -> mean watts at rest, of a bundle's samples.

    A device's energy counter goes before its samples of power. Devices that told neither are missing.
    """
    rest = samples[(samples["round"] == IDLE_ROUND) & samples["value"].notna()]
    watts: dict[str, float] = {}
    for device, rows in rest.groupby("device", sort=False, observed=True):
        counted = [_by_counter(rows[rows["name"] == name]) for name in COUNTERS]
        power = rows[rows["name"] == "power_w"]["value"]
        told = [value for value in (*counted, float(power.mean()) if len(power) else None) if value is not None and math.isfinite(value)]
        if told:
            watts[str(device)] = told[0]
    return watts


def _by_counter(rows: pd.DataFrame) -> float | None:
    """Return the mean power by a counter's growth, over all stretches that it was watched without running backwards; None without growth."""
    seconds, joules = rows["t_ns"].diff() / 1e9, rows["value"].diff()
    sound = (seconds > 0) & (seconds <= LONGEST_S) & (joules >= 0)
    time_s, spent_j = float(seconds[sound].sum()), float(joules[sound].sum())
    return spent_j / time_s if time_s > 0 and spent_j > 0 else None
