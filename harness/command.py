"""What the small commands that take a bundle share: one run, a few keys, and errors as one line. Knows neither judging nor reporting."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ConfigError, HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULTS = Path(__file__).resolve().parent.parent / "results"
"""Where runs are looked for by name, whatever folder the command is called from."""


def parse_run(arguments: Sequence[str], keys: Sequence[str] = ()) -> tuple[str, Path, dict[str, str]]:
    """Return (run, results folder, other keys as typed). A word that is a path stays a run, even with an equals sign in it.

    Raises ConfigError for an unknown key, no run, or more than one.
    """
    runs: list[str] = []
    given: dict[str, str] = {}
    known = ("results_dir", *keys)
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in known:
            if not value:
                raise ConfigError(f"{argument}: has no value; write {key}=VALUE")
            given[key] = value
        elif equals and not Path(argument).exists():
            raise ConfigError(f"{argument}: unknown key {key!r}; known: {', '.join(known)}")
        else:
            runs.append(argument)
    if len(runs) != 1:
        raise ConfigError(f"one run is needed, got {len(runs)} ({', '.join(runs) or 'none'}); give a bundle's path or its name")
    results = Path(given.pop("results_dir", RESULTS))
    return runs[0], results, given


def run(main: Callable[[Sequence[str]], int]) -> int:
    """Carry out a command's `main` on the command line and return its exit code; an error for people becomes one line on stderr."""
    try:
        return main(sys.argv[1:])
    except HarnessError as error:
        print(f"speedproof: {error}", file=sys.stderr)  # noqa: T201 - one sentence for the person at the keyboard
        return error.exit_code
