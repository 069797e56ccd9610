"""python -m harness.doctor: is this machine fit to be measured? Looks at TensorFlow, processors, memory, storage, noise and GPUs, and changes nothing.

Exit code 0: fit (information and warnings allowed), 1: the command line was wrong, 2: errors were found, 130: interrupted.

With --json, stdout holds one object in strict JSON and nothing else:

    schema    1
    machine   the hardware in a few words, as in the names of runs
    fit       whether no finding is an error
    worst     "ok" | "info" | "warning" | "error"
    findings  in the order of the table, each with
        area, check   where it belongs; `subject` is "GPU 0", "GPU 1", ... for a finding about one card, else null
        code          "ok", "unknown" (could not be read; the reason is in `found`), or what is wrong, in one word
        level         as `worst`
        found, why, advice   what was found, why it matters, what to do; the last two may be empty
        numbers       name -> number, text, true, false or null: what the finding rests on; units end a name
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from harness.command import run as run_command
from harness.doctor import USUAL_NOISE_S
from harness.errors import ConfigError, Interrupted

ERRORS_FOUND = 2
LEAST_NOISE_S, MOST_NOISE_S = 4, 600
"""The least gives the three quads that a spread is taken from, after one that is thrown away."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; python -m harness.doctor --help shows what there is")


def _noise_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_NOISE_S <= seconds <= MOST_NOISE_S:
        raise argparse.ArgumentTypeError(f"{text} must be {LEAST_NOISE_S} to {MOST_NOISE_S} seconds")
    return seconds


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what was asked for: json, noise, noise_seconds. Raises ConfigError for arguments that mean nothing."""
    parser = _Parser(prog="python -m harness.doctor", description="Is this machine fit to be measured? Changes no setting.", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="findings as strict JSON, and nothing else on stdout")
    parser.add_argument("--no-noise", dest="noise", action="store_false", help="do not watch how noisy the machine is")
    parser.add_argument(
        "--noise-seconds", type=_noise_seconds, default=USUAL_NOISE_S, metavar="N", help=f"how long to watch (default {USUAL_NOISE_S:g})"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Examine the machine and print what was found. Returns 0, or 2 if there are errors; raises ConfigError or Interrupted."""
    asked = parse(arguments)
    from harness.doctor.checks import diagnose, overall  # noqa: PLC0415 - help needs none of it
    from harness.doctor.examine import examine  # noqa: PLC0415
    from harness.doctor.findings import Level  # noqa: PLC0415
    from harness.doctor.show import as_json, print_table  # noqa: PLC0415

    try:
        machine, facts = examine(asked.noise_seconds if asked.noise else None, tell=_tell)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was changed, and nothing of ours still runs") from None
    rows = diagnose(facts)
    if asked.json:
        print(as_json(machine, rows))  # noqa: T201 - the answer of the command
    else:
        print_table(machine, rows, sys.stdout)
    return ERRORS_FOUND if overall(rows) is Level.ERROR else 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - what takes long is said, but not where programs read


if __name__ == "__main__":
    sys.exit(run_command(main))
