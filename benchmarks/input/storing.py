"""How a set of files is made once and trusted afterwards: one maker at a time, whole files only, room looked for first, checksums at the end.

The list of checksums is written last, so that its presence says that the set is complete. Knows nothing of pictures.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.input.samples import cores
from harness.errors import ConfigError

SUMS = "sha256.json"


@dataclass(frozen=True)
class Refusal:
    """What is said of a folder that holds another set, and what to do about it or about a file that is not what was written; "" for what is usual."""

    another: str = ""
    remedy: str = ""


def make_once(folder: Path, recipe: str, fill: Callable[[], Iterable[str]], *, thorough: bool = True, refusal: Refusal | None = None) -> None:
    """Have `fill` make the files of `folder` unless they are all there, and check them if they are. It returns their names below `folder`.

    Of two makers at once the second waits and then finds the set made. `recipe` names what is made, and how: a set of another recipe is refused.
    `thorough` False checks sizes only, for sets that are too large to be read before every trial. Raises ConfigError for a file that is missing or
    is not what was written, in the words of `refusal`.
    """
    refusal = refusal or Refusal()
    said = Refusal(
        refusal.another or f"{folder} was made by another version of this suite", refusal.remedy or f"delete {folder} and it will be made anew"
    )
    if _is_complete(folder, recipe, said, thorough=thorough):
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(folder, recipe, said, thorough=thorough):
            names = sorted(fill())
            found = dict(zip(names, in_threads(lambda name: _fingerprint(folder / name), names)))
            with written_whole(folder / SUMS) as aside:
                aside.write_text(json.dumps({"recipe": recipe, "files": found}, indent=0))


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a name to write to. It becomes `path` only once it has been written without an error, so that a file that exists is whole."""
    aside = path.with_name(f".{path.name}.part")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def check_room(place: Path, needed_bytes: int, what: str, remedy: str = "make room there") -> None:
    """Raise ConfigError unless the disk under `place`, which need not exist yet, has room for `what`."""
    there = next(folder for folder in (place, *place.resolve().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if free < needed_bytes:
        raise ConfigError(f"{what} need {needed_bytes} bytes under {place} and {free} are free; {remedy}")


def in_threads(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return what `work` gives for each of `items`, done by as many threads as there are usable cores; the first error stops the rest."""
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, items))


def _is_complete(folder: Path, recipe: str, said: Refusal, *, thorough: bool) -> bool:
    try:
        kept = json.loads((folder / SUMS).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / SUMS} cannot be read, so the files beside it cannot be trusted; {said.remedy}") from error
    if not isinstance(kept, dict) or kept.get("recipe") != recipe:
        raise ConfigError(f"{said.another}; {said.remedy}")
    expected: dict[str, list[Any]] = kept["files"]
    names = list(expected)
    seen = in_threads(lambda name: _seen(folder / name, thorough=thorough), names)
    for name, now in zip(names, seen):
        if now != expected[name][: len(now)]:
            raise ConfigError(f"{folder / name} is missing or is not what was written; {said.remedy}")
    return True


def _seen(path: Path, *, thorough: bool) -> list[Any]:
    try:
        return _fingerprint(path) if thorough else [path.stat().st_size]
    except OSError:
        return [None]


def _fingerprint(path: Path) -> list[Any]:
    """Size in bytes and SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return [path.stat().st_size, digest.hexdigest()]
