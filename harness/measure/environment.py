"""Which of the parent's environment a worker gets: an allow-list, so that no stray variable of a shell makes one machine differ from another.

It reads no environment itself; callers hand one in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALLOWED_NAMES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
ALLOWED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "NCCL_", "TF_", "XLA_", "OMP_", "OPENBLAS_", "MKL_", "KMP_", "SLURM_")
NO_GPU = "-1"
"""The CUDA runtime stops at the first index that it does not know, so this hides every card."""


def allowed(name: str) -> bool:
    """Whether a variable of this name is passed on to workers."""
    return name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)


def worker_environment(parent: Mapping[str, str], own: Mapping[str, str], gpus: Sequence[str] | None) -> dict[str, str]:
    """Return what a worker gets: the allowed part of `parent`, its cards (None: as the parent sees them, empty: none), its `own` laid over that."""
    kept = {name: value for name, value in parent.items() if allowed(name)}
    if gpus is not None:
        kept["CUDA_VISIBLE_DEVICES"] = ",".join(gpus) or NO_GPU
    return {**kept, **own}


def dropped_names(parent: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names, sorted, that workers do not get. Never their values: those may be secrets."""
    return tuple(sorted(name for name in parent if not allowed(name)))
