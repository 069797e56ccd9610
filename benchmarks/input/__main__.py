"""`python -m benchmarks.input`: make or check the data set before a run needs it, or write the TFRecords of a folder of images."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.errors import ConfigError, HarnessError

USAGE = """usage: python -m benchmarks.input make [DIR] [--files N]    the suite's own photographs and their TFRecords, under DIR (default: data)
       python -m benchmarks.input records FOLDER [TO]       the JPEG files of FOLDER as TFRecords in TO (default: FOLDER)"""


def main(arguments: list[str]) -> int:
    """Carry out the command line; returns the exit code."""
    command, *rest = arguments or [""]
    try:
        files = _taken(rest, "--files")
        if command == "make" and len(rest) <= 1:
            print(_make(Path(*rest or ["data"]), files))
        elif command == "records" and 1 <= len(rest) <= 2 and files is None:
            print(_records(Path(rest[0]), Path(rest[-1])))
        else:
            print(USAGE, file=sys.stderr)
            return 1
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _taken(words: list[str], option: str) -> int | None:
    """Take `option N` out of `words` and return N, None where it is not there."""
    if option not in words:
        return None
    at = words.index(option)
    value = "".join(words[at + 1 : at + 2])
    del words[at : at + 2]
    if not value.isdigit() or int(value) < 1:
        raise ConfigError(f"{option} {value}: give a number of at least 1")
    return int(value)


def _make(data_dir: Path, files: int | None) -> str:
    from benchmarks.input import own_records
    from benchmarks.input.photographs import FILES, own, place

    files = files or FILES
    found = own(data_dir, files)
    shards = len(list(own_records(data_dir, files).glob("*.tfrecord")))
    return f"{len(found)} photographs in {place(data_dir, files)}, and the same in {shards} TFRecord file{'s' * (shards != 1)} beside them"


def _records(folder: Path, to: Path) -> str:
    from benchmarks.input import records
    from benchmarks.input.samples import list_folder, look_into

    found = list_folder(folder)
    records.make(to, lambda: found, of=records.digest_of(found))
    others = look_into(folder).others
    left = f"; {others} pictures of other kinds than JPEG were left out" if others else ""
    return f"{len(found)} samples as TFRecords in {to}{left}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
