"""Which tests may run beside others: those that neither time anything nor look at who uses the processors. `.ci/run` runs them in several processes at
once, and all others one by one after them."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SIDE_BY_SIDE = {"judge", "plan", "report", "store"}
"""Folders all of whose tests may."""
FILES_SIDE_BY_SIDE = {
    "": ("architecture", "claims_files", "config", "fingerprint", "images", "progress", "small_commands"),
    "benchmarks": (
        "bad_data", "curves", "epoch", "feed_dict", "flops", "given", "input", "lessons", "libjpeg_turbo", "max_to_keep", "photographs", "profiling",
        "sketch", "training", "unreadable", "version_matrix",
    ),
    "doctor": ("card_checks", "fatbin", "framework_checks", "host_checks", "smi", "table", "versions"),
    "measure": ("environment", "machine", "nvml", "nvml_refusals", "room", "telemetry_flags", "telemetry_windows"),
    "watch": ("exporter",),
}  # fmt: skip
"""Folder -> the files in it, `test_` left out."""


def may_share(path: Path) -> bool:
    """Whether the tests of a file may run beside others."""
    folder = path.parent.relative_to(TESTS).as_posix()
    return folder in SIDE_BY_SIDE or path.stem.removeprefix("test_") in FILES_SIDE_BY_SIDE.get("" if folder == "." else folder, ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if may_share(item.path):
            item.add_marker(pytest.mark.side_by_side)
