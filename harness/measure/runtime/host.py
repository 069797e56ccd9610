"""Runtime for workloads that need no framework: computing is finished when the call returns, unless the workload offers a `sync` of its own.

Standard library and Python 3.8 syntax; numpy is imported only where a proof is written. It must not import any framework.
"""

# ruff: noqa: UP006, UP035, UP045 (Python 3.8)

from __future__ import annotations

import os
import platform
from typing import Any, Dict, Optional, Tuple


def start(settings: Dict[str, Any]) -> None:
    """Nothing to import and nothing to pin."""


def sync() -> None:
    """Nothing is pending on a host; the worker calls the workload's own `sync` after this one."""


def memory() -> Dict[str, Tuple[Optional[int], str, Optional[str]]]:
    """Return no allocator figures: the worker itself reports the resident peak."""
    return {}


def facts() -> Dict[str, Any]:
    """What this process runs on, by names that no workload setting uses."""
    return {"runtime": "host", "sync": "the workload's own, if it has one", "python": platform.python_version(), "visible_cpus": len(os.sched_getaffinity(0))}


def write_proof(path: str, arrays: Dict[str, Any]) -> None:
    """Write `arrays` (name -> anything numpy takes as an array of numbers) to the .npz file `path`; raises ImportError without numpy."""
    import numpy as np  # noqa: PLC0415 (an interpreter without numpy can still be measured)

    plain: Dict[str, Any] = {name: np.asarray(values) for name, values in arrays.items()}
    np.savez(path, **plain)
