"""Where a run comes from: the state of the clone and the command line, without paths or names of people."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.model import Scalar

_CLONE = Path(__file__).resolve().parent.parent.parent


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(_CLONE), *arguments], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def read_provenance(overrides: Sequence[str]) -> dict[str, Scalar]:
    """Return commit, whether the tree differs from it, and the command line; a null stands where git is not there.

    Overrides that name a folder of the user (results_dir, data.dir) are left out: a bundle carries no path.
    """
    status = _git("status", "--porcelain")
    shown = [text for text in overrides if text.lstrip("+").partition("=")[0] not in {"results_dir", "data.dir", "resume"}]
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": None if status is None else bool(status),
        "command": " ".join(["python -m harness", *shown]),
    }
