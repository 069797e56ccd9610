"""Roofs: how fast this machine does one kind of work and nothing else, as a measure for all that it does together. `build(**settings)`.

Rates of copies count bytes read and bytes written (STREAM's convention); those of transfers between host and device count each byte once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.contract import Workload
from benchmarks.roofs.arithmetic import convolution, matmul
from benchmarks.roofs.copies import device_copy, host_copy
from benchmarks.roofs.disk import disk_read, disk_write
from benchmarks.roofs.pictures import jpeg_decode
from benchmarks.roofs.transfers import all_reduce, d2h, h2d
from harness.errors import ConfigError

OPS: dict[str, Callable[[dict[str, Any]], Workload]] = {
    "matmul": matmul,
    "convolution": convolution,
    "device_copy": device_copy,
    "host_copy": host_copy,
    "h2d": h2d,
    "d2h": d2h,
    "all_reduce": all_reduce,
    "disk_read": disk_read,
    "disk_write": disk_write,
    "jpeg_decode": jpeg_decode,
}
"""What can be measured; each takes the settings that its own text names."""


def build(**settings: Any) -> Workload:
    """Build the roof `op`, one of OPS. Those of the disk answer once with readings, all others run in steps. Raises ConfigError for any other word,
    for a size that means nothing, and for what this machine has not; Unsupported for what its device has no operation for."""
    given = {name: value for name, value in settings.items() if value is not None}
    op = given.get("op")
    if op not in OPS:
        raise ConfigError(f"op={op} is no roof; choose one of {', '.join(OPS)}")
    return OPS[op](given)
