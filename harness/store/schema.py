"""The version of the bundle's format, its history, and the steps from one version to the next. Knows no file and no type of ours.

History of the format (one row a version; a row is added with every change that an older reader would get wrong):

| version | since | what changed |
|---|---|---|
| 1 | 0.1.0 | manifest.json, records.jsonl (one line a round), verdicts.json, proofs/*.npz, logs/, plots/; defaults are left out |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import BundleError

SCHEMA_VERSION = 1

Data = dict[str, Any]


def unchanged(data: Data) -> Data:
    """The step for a file that a version did not change."""
    return data


@dataclass(frozen=True)
class Migration:
    """How the files of one version become those of the next: plain JSON data in, plain JSON data out."""

    manifest: Callable[[Data], Data] = unchanged
    record: Callable[[Data], Data] = unchanged
    verdicts: Callable[[Data], Data] = unchanged


MIGRATIONS: Mapping[int, Migration] = {}
"""The step that leads from a version to the next one, by the older version's number. Empty as long as there is one version only."""


def steps_from(version: object, where: str, known: Mapping[int, Migration] = MIGRATIONS, current: int = SCHEMA_VERSION) -> tuple[Migration, ...]:
    """Return the steps that lead from `version` to `current`, none if it is current.

    Raises BundleError for something that is no version, for a newer one, and for an older one whose steps are not known; `where` names the file.
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BundleError(f"{where} has schema_version {version!r}, which is no version number: this is no bundle of ours, or a damaged one")
    if version > current:
        raise BundleError(f"{where} has schema_version {version}, newer than the {current} that this version reads: update the benchmark suite")
    missing = [number for number in range(version, current) if number not in known]
    if missing:
        raise BundleError(
            f"{where} has schema_version {version}, and no step from version {missing[0]} is known: read it with the version that wrote it"
        )
    return tuple(known[number] for number in range(version, current))
