"""python -m harness.judge RUN: judge a bundle again, offline, from its own plan and records; writes verdicts.json anew."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.command import parse_run
from harness.command import run as run_command
from harness.errors import CONTROL_FAILED, ConfigError
from harness.judge import judge
from harness.model import Plan, Verdicts, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = "usage: python -m harness.judge RUN [alpha=0.05] [results_dir=results]"


def main(arguments: Sequence[str]) -> int:
    """Judge the run that the command line names and print a summary. Returns 0, or 3 if a control failed; raises HarnessError."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(USAGE)  # noqa: T201 - the answer of the command
        return 0
    run, results_dir, given = parse_run(arguments, ("alpha",))
    alpha = _alpha(given["alpha"]) if "alpha" in given else None
    from harness.store import Bundle  # noqa: PLC0415 - only this command knows the store

    bundle = Bundle.open(run, results_dir)
    verdicts = judge(_at(bundle.manifest.plan, alpha), bundle.records(), bundle.load_proof)
    bundle.write_verdicts(verdicts)
    print(*summary(verdicts), *(f"note: {note}" for note in bundle.notes), sep="\n")  # noqa: T201 - as above
    return CONTROL_FAILED if any(control.word == "failed" for control in verdicts.controls) else 0


def _at(plan: Plan, alpha: float | None) -> Plan:
    return plan if alpha is None else replace(plan, alpha=alpha)


def _alpha(text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = 0.0
    if not 0 < alpha < 0.5:
        raise ConfigError(f"alpha={text} is no chance of being wrong; give a number between 0 and 0.5, such as alpha=0.05")
    return alpha


def summary(verdicts: Verdicts) -> list[str]:
    """Return the lines that the command prints: controls, claims, and how many verdicts to expect wrong."""
    lines = [f"control {control.control}: {control.word} ({control.reason.text})" for control in verdicts.controls]
    for claim in verdicts.claims:
        carried = " (carried over)" if claim.carried_over and claim.verdict.word is not Word.NOT_TESTABLE else ""
        lines.append(f"{claim.claim}: {claim.verdict.word.value}{carried}: {claim.verdict.reason.text}")
    preliminary = "preliminary; " if verdicts.preliminary else ""
    lines.append(f"{preliminary}{verdicts.judged} verdicts; expect {verdicts.expected_wrong:.2g} of them to be wrong (alpha {verdicts.alpha:g})")
    return lines


if __name__ == "__main__":
    sys.exit(run_command(main))
