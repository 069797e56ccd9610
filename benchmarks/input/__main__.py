"""`python -m benchmarks.input make [DIR]`: make or check the set of photographs under DIR (default `data`) before a run needs it."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.input.photographs import list_folder, make
from harness.errors import HarnessError


def main(arguments: list[str]) -> int:
    """Carry out the command line; returns the exit code."""
    if not arguments or arguments[0] != "make" or len(arguments) > 2:
        print("usage: python -m benchmarks.input make [DIR]", file=sys.stderr)
        return 1
    try:
        folder = make(Path(arguments[1] if len(arguments) == 2 else "data"))
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{len(list_folder(folder))} photographs in {folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
