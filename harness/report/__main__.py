"""python -m harness.report RUN: builds the report of a run again from its records. Needs neither TensorFlow nor the machine of the run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ConfigError, HarnessError

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = """\
usage: python -m harness.report RUN [results_dir=DIR]

RUN is a bundle's path or its name under the results folder. Writes report.html, report.md and plots/ into the bundle."""
RESULTS = Path(__file__).resolve().parents[2] / "results"


def main(arguments: Sequence[str]) -> int:
    """Rebuild a report and return 0. Raises ConfigError for arguments that mean nothing, BundleError for a bundle that cannot be read."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(USAGE)  # noqa: T201 - the answer of the command
        return 0
    run, results = parse(arguments)
    from harness.model import Verdicts  # noqa: PLC0415 - help needs none of it
    from harness.report import render  # noqa: PLC0415
    from harness.store import Bundle  # noqa: PLC0415

    bundle = Bundle.open(run, results)
    plan = bundle.manifest.plan
    verdicts = bundle.verdicts() or Verdicts((), (), (), (), plan.alpha, plan.preliminary, 0, 0.0)
    for name, data in render(bundle.manifest, bundle.records(), verdicts, bundle.notes).items():
        bundle.write_bytes(name, data)
    print(bundle.path / "report.html")  # noqa: T201
    return 0


def parse(arguments: Sequence[str]) -> tuple[str, Path]:
    """Return the run and the results folder. Raises ConfigError for an unknown key, no run, or more than one."""
    runs: list[str] = []
    results = RESULTS
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key == "results_dir":
            results = Path(value)
        elif equals and not Path(argument).exists():
            raise ConfigError(f"harness.report: unknown key {key!r} in {argument!r}; the only key is results_dir=")
        else:
            runs.append(argument)
    if len(runs) != 1:
        raise ConfigError(f"harness.report: needs one run, got {len(runs)} ({', '.join(runs) or 'none'}); give a bundle's path or its name")
    return runs[0], results


def run() -> int:
    """Entry point: turns an error for people into one line on stderr and its exit code."""
    try:
        return main(sys.argv[1:])
    except HarnessError as error:
        print(f"speedproof: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code


if __name__ == "__main__":
    sys.exit(run())
