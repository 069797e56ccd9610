"""Whether the versions that someone wants for a TensorFlow are those of the published tables (conf/versions.yaml). Needs no TensorFlow.

Settings: `tensorflow`, `cuda`, `cudnn`, `driver`: the versions as they were stated. Readings, 1 where it holds and 0 where it does not:
`cuda_holds`, `cudnn_holds`: TensorFlow was tested with that version; `driver_holds`: that driver is the oldest which runs what was built with the CUDA
that TensorFlow was tested with. A version is stated as exactly as its numbers say: 520 is any 520.x. What the tables have instead is told as facts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from benchmarks.contract import Value, Workload
from harness.errors import ConfigError

TABLES = Path(__file__).resolve().parents[2] / "conf" / "versions.yaml"
STATED = ("tensorflow", "cuda", "cudnn", "driver")


class VersionMatrix(Workload):
    """The versions stated beside those published, by the same names."""

    def __init__(self, stated: dict[str, str], published: dict[str, str]) -> None:
        self.stated, self.published = stated, published

    def outcome(self) -> list[Value]:
        return [Value(f"{name}_holds", int(_is(self.published[name], self.stated[name])), "holds") for name in ("cuda", "cudnn", "driver")]

    def facts(self) -> dict[str, Any]:
        return {f"published_{name}": version for name, version in self.published.items()}


def build(**settings: Any) -> VersionMatrix:
    """Build the comparison from the settings named above. Raises ConfigError for one that is missing, and for a TensorFlow or a CUDA without a row."""
    missing = [name for name in STATED if not settings.get(name)]
    if missing:
        raise ConfigError(f"{missing[0]} is not given; state all of {', '.join(STATED)}")
    stated = {name: str(settings[name]) for name in STATED}
    return VersionMatrix(stated, _published(yaml.safe_load(TABLES.read_text(encoding="utf-8")), stated["tensorflow"]))


def _published(tables: dict[str, Any], tensorflow: str) -> dict[str, str]:
    row = tables["tensorflow"].get(tensorflow)
    if row is None:
        raise ConfigError(f"tensorflow={tensorflow} is not in the table of tested configurations, which has {', '.join(tables['tensorflow'])}")
    return {"cuda": row["cuda"], "cudnn": row["cudnn"], "driver": tables["minimum_driver"][row["cuda"].partition(".")[0]]}


def _is(published: str, stated: str) -> bool:
    """Whether a version is the stated one, which may name fewer numbers."""
    numbers = stated.split(".")
    return published.split(".")[: len(numbers)] == numbers
