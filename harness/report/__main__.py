"""python -m harness.report RUN: builds the report of a run again from its records. Needs neither TensorFlow nor the machine of the run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness.command import parse_run
from harness.command import run as run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = """\
usage: python -m harness.report RUN [results_dir=DIR]

RUN is a bundle's path or its name under the results folder. Writes report.html, report.md and plots/ into the bundle."""


def main(arguments: Sequence[str]) -> int:
    """Rebuild a report and return 0. Raises ConfigError for arguments that mean nothing, BundleError for a bundle that cannot be read."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(USAGE)  # noqa: T201 - the answer of the command
        return 0
    run, results, _ = parse_run(arguments)
    from harness.model import Verdicts  # noqa: PLC0415 - help needs none of it
    from harness.report import render  # noqa: PLC0415
    from harness.store import Bundle  # noqa: PLC0415

    bundle = Bundle.open(run, results)
    plan = bundle.manifest.plan
    verdicts = bundle.verdicts() or Verdicts((), (), (), (), plan.alpha, plan.preliminary, 0, 0.0)
    records, samples = bundle.records(), bundle.telemetry_if_sound()
    for name, data in render(bundle.manifest, records, verdicts, bundle.notes, samples, bundle.examination()).items():
        bundle.write_bytes(name, data)
    print(bundle.path / "report.html")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
