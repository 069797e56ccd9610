"""A person's own set of images: which of its samples are measured, and how they come in the form that a level reads.

A set that is larger than what is asked for is not measured whole: so many samples are drawn from it, the same ones for every level and every proof, so that
memory holds them, titles stay true, and a start takes no longer than on the suite's own photographs. JPEG files are read where they lie, and so are
TFRecords that hold just these samples. The form that a set lacks is written below a folder of the suite's own, never into the person's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from benchmarks.input import records
from benchmarks.input.bad import NOTHING_OVER, each_record, leave_out, openable
from benchmarks.input.samples import Listed, Photograph, Source, draw, list_shards, look_into, photographs_in
from benchmarks.input.storing import check_room, make_once, written_whole
from harness.errors import ConfigError

COPIES = "copies"
"""The folder, below the suite's own, that holds what was written of other people's sets. It may be deleted at any time."""

_RECIPE = "files of records, 1"
_INDEX = "samples.json"


@dataclass(frozen=True)
class Wanted:
    """What is wanted of the set in `folder`: at most `most` samples. Copies go below `made_in`. `skip` leaves out what is bad, which is an error else;
    `thorough` as in `make_once`."""

    folder: Path
    most: int
    made_in: Path
    skip: bool = False
    thorough: bool = True


def files(wanted: Wanted) -> tuple[list[Photograph], Source]:
    """Return the samples as files, of a set of nothing but TFRecords as copies, and where they come from. Raises ConfigError for a folder without samples,
    for a bad record unless it is to be skipped, and where copies find no room."""
    return _files(look_into(wanted.folder), wanted)


def shards(wanted: Wanted) -> tuple[list[str], Source]:
    """Return the paths of TFRecords that hold the samples, the set's own where these are all that they hold, and where they come from. Raises ConfigError as
    `files` does, and for a shard or a file that cannot be opened unless it is to be skipped."""
    listed = look_into(wanted.folder)
    own, shut = openable(listed.shards) if wanted.skip else (list(listed.shards), [])
    held = _just_these(own, listed, wanted) if own else None
    if held is not None:
        return own, Source(tuple(own), held, held, listed.others, tuple(shut))
    photographs, source = _files(listed, wanted)
    digest = records.digest_of(photographs)
    made = records.make(wanted.made_in / COPIES / f"records-{digest}", lambda: photographs, of=digest, thorough=wanted.thorough)
    paths = list_shards(made)
    return paths, replace(source, paths=tuple(paths), copied=True)


def _files(listed: Listed, wanted: Wanted) -> tuple[list[Photograph], Source]:
    if listed.jpegs:
        found = photographs_in(listed, draw(listed.jpegs, wanted.most))
        source = Source((), 0, len(listed.jpegs), listed.others)
    else:
        found, source = _taken_out(listed, wanted)
    good, bad = leave_out(found) if wanted.skip else (found, [])
    return good, replace(source, paths=tuple(photograph.path for photograph in good), samples=len(good), skipped=(*source.skipped, *bad))


def _just_these(own: Sequence[str], listed: Listed, wanted: Wanted) -> int | None:
    """Return how many samples these shards hold if they are the wanted ones and no others, else None. Beside JPEG files they must be as many as those; whether
    they are the same ones, the proof finds out."""
    if len(listed.jpegs) > wanted.most:
        return None
    most = len(listed.jpegs) or wanted.most
    held = records.count(own, most + 1)
    return held if held == most or (held < most and not listed.jpegs) else None


# ---------------------------------------------------------------- the files of a set of TFRecords


def _taken_out(listed: Listed, wanted: Wanted) -> tuple[list[Photograph], Source]:
    """Return the samples of TFRecords as copied files."""
    if not listed.shards:
        raise ConfigError(f"no JPEG file (.jpg, .jpeg) and no TFRecord file (*.tfrecord) lies in {listed.folder} or in its class folders")
    own, shut = openable(listed.shards) if wanted.skip else (list(listed.shards), [])
    if not own:
        raise ConfigError(f"{shut[0]}; {NOTHING_OVER}")
    parts = _parts(own, wanted.most)
    place = wanted.made_in / COPIES / f"files-{_digest(listed.folder, parts)}"
    try:
        make_once(place, _RECIPE, lambda: _take_out(place, parts), thorough=wanted.thorough)
        kept = json.loads((place / _INDEX).read_text())
    except OSError as error:
        said = error.strerror or error
        raise ConfigError(f"cannot write the pictures of the TFRecords in {listed.folder} to {place}: {said}; what is there is kept") from error
    found = [
        Photograph(str(place / file), label, name, f"record {number} of {parts[part][0]}{f' ({name})' if name else ''}")
        for file, label, name, part, number in kept["samples"]
    ]
    lost = [*shut, *kept["lost"]]
    if lost and not (wanted.skip and found):
        raise ConfigError(f"{lost[0]}; {NOTHING_OVER if wanted.skip else 'repair the file or write it anew'}")
    whole = all(most is None for _, most in parts)
    return found, Source((), 0, len(found) + len(kept["lost"]) if whole else None, listed.others, tuple(lost), copied=True)


def _parts(own: Sequence[str], most: int) -> list[tuple[str, int | None]]:
    """Return how many records are taken from the beginning of which shards: all (None) where they are no more than `most`, else as many of each, of shards
    that are drawn. A shard holds a million records as easily as ten, so none is counted farther than it is read."""
    if records.count(own, most + 1) <= most:
        return [(shard, None) for shard in own]
    some = draw(own, most)
    each = -(-most // len(some))
    counts = [records.count([shard], each) for shard in some]
    while sum(counts) < most and each < most:
        each = min(2 * each, most)
        counts = [records.count([shard], each) for shard in some]
    parts: list[tuple[str, int | None]] = []
    left = most
    for shard, held in zip(some, counts):
        if held and left:
            parts.append((shard, min(held, left)))
            left -= min(held, left)
    return parts


def _digest(folder: Path, parts: Iterable[tuple[str, int | None]]) -> str:
    lines = [f"{Path(shard).relative_to(folder).as_posix()}\n{Path(shard).stat().st_size}\n{most}" for shard, most in parts]
    return hashlib.sha256("\n\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:12]


def _take_out(place: Path, parts: Sequence[tuple[str, int | None]]) -> list[str]:
    """Write the encoded pictures to files, as they are, and a list of them with what else is known of each; return the names of all."""
    needed = sum(length for shard, most in parts for length in islice(records.frames(shard), most))
    check_room(place, needed, "the pictures of TFRecords, as files,")
    place.mkdir(parents=True, exist_ok=True)
    part_of = {shard: number for number, (shard, _) in enumerate(parts)}
    kept: list[tuple[str, int, str, int, int]] = []
    lost: list[str] = []
    for one in each_record(parts, records.taken_apart):
        if one.wrong is not None:
            lost.append(one.wrong)
            continue
        encoded, label, name = one.got
        kept.append((f"{len(kept):06}.jpg", label, name, part_of[one.shard], one.number))
        with written_whole(place / kept[-1][0]) as aside:
            aside.write_bytes(encoded)
    with written_whole(place / _INDEX) as aside:
        aside.write_text(json.dumps({"samples": kept, "lost": lost}))
    return [*(file for file, *_ in kept), _INDEX]
