"""What a vendor's file has to offer so that its cards can be watched: a list of them, and a reader that is asked for samples again and again.

Names of samples are common to all vendors and end in their unit; a share lies between 0 and 1. A counter that a card has not is a sample without a
value but with a reason, under the same name. A name that is missing says nothing: its turn had not come.

| name | meaning |
|---|---|
| `memory_used_bytes`, `memory_reserved_bytes` | in use by anybody; kept by the driver for itself |
| `memory_used_with_reserved_bytes` | both in one, where the driver cannot tell them apart: never to be compared with `memory_used_bytes` |
| `process_memory_bytes` | of our own processes |
| `foreign_processes` | how many processes that are not ours compute on the card |
| `kernel_busy_share`, `memory_busy_share` | share of time in which any kernel ran; in which memory was read or written. Neither says how much of the card was at work |
| `sm_active_share`, `tensor_active_share` | how much of it was |
| `power_w` | at the moment; of cards newer than GA100 the mean of the last second |
| `energy_j` | counted by the card since its driver was loaded. Energy without a counter is `power_w` over time, and is named so |
| `sm_clock_mhz`, `memory_clock_mhz`, `default_sm_clock_mhz` | now, and what applications get by default |
| `temperature_c` | of the chip |
| `throttle_<why>` | 1 while clocks are held down for this reason, else 0; the reasons are THROTTLE_WORDS. What did not change may be left out: it still holds |
| `pcie_generation`, `pcie_width`, `pcie_rx_bytes_per_s`, `pcie_tx_bytes_per_s` | the link now, and its traffic into and out of the card |
| `nvlink_rx_bytes`, `nvlink_tx_bytes` | between cards, over all links, counted by the card |
| `gpu_lost` | 1 once the card no longer answers; nothing else is read from it then |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol

from harness.model import Gpu

HOST = "host"
"""The device of samples about the machine around the cards."""

THROTTLE_WORDS = (
    "idle",  # nothing to do
    "application_clocks",  # held by a setting of the user's
    "power_cap",  # at the power limit
    "hardware_slowdown",  # for heat or power, by the hardware
    "sync_boost",
    "software_thermal",
    "hardware_thermal",
    "power_brake",  # the power supply asked for it
    "display_clocks",
    "other",
)


BOUNDS = {
    "_share": (0.0, 1.02),
    "nvlink_rx_bytes": (0.0, 2.0**72),
    "nvlink_tx_bytes": (0.0, 2.0**72),
    "_bytes": (0.0, 2.0**60),
    "nvlink_bytes_per_s": (1.0, 1e12),
    "_bytes_per_s": (0.0, 1e12),
    "_limit_w": (1.0, 1e5),
    "_w": (0.0, 1e5),
    "_j": (0.0, 1e12),
    "default_sm_clock_mhz": (1.0, 1e5),
    "default_memory_clock_mhz": (1.0, 1e5),
    "max_sm_clock_mhz": (1.0, 1e5),
    "max_memory_clock_mhz": (1.0, 1e5),
    "_mhz": (0.0, 1e5),
    "_c": (-50.0, 200.0),
    "pcie_generation": (1.0, 99.0),
    "pcie_width": (1.0, 64.0),
}
"""The first ending of a name that fits -> the least and the most that a card can mean. "Not available" is often told with all bits set, and drivers err."""


def sound(name: str, value: float) -> tuple[float | None, str | None]:
    """Return a value as a card gave it (a share that rounding took above 1 as 1), or None and why it can be none."""
    if not math.isfinite(value):
        return None, "the driver gave no finite number"
    least, most = _bounds(name)
    if not least <= value <= most:
        return None, f"the driver gave {value:.6g}, which cannot be"
    return (min(1.0, value) if name.endswith("_share") else value), None


@cache
def _bounds(name: str) -> tuple[float, float]:
    """Look up a name once: it is asked for with every sample."""
    return next((bounds for ending, bounds in BOUNDS.items() if name.endswith(ending)), (-math.inf, math.inf))


class Sample(NamedTuple):  # a few hundred a second are made: a dataclass would take three times as long
    """One value of one device at one moment. `device` is a card's UUID or HOST, `t_ns` of `time.perf_counter_ns`; `value` None has a `reason`."""

    device: str
    t_ns: int
    name: str
    value: float | None
    reason: str | None = None


class Reader(Protocol):
    """An open connection to some devices. Used by one thread at a time; it must not raise for what a device cannot do or for a device that is gone."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that it gives samples of."""

    @property
    def period_s(self) -> float:
        """How long to wait from one sample to the next: half of the time in which its counters are renewed."""

    def sample(self) -> list[Sample]:
        """Read what is due now."""

    def close(self) -> None:
        """Give the connection back; nothing can be read afterwards."""


class Provider(Protocol):
    """A vendor."""

    def devices(self) -> tuple[tuple[Gpu, ...], str | None]:
        """Return the cards that a worker may use, and why there are none or some are missing."""

    def open(self, gpus: Sequence[Gpu]) -> Reader:
        """Connect to these cards of its own list. One that cannot be reached is one whose samples have no values; nothing is raised."""
