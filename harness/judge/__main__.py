"""python -m harness.judge RUN: judge a bundle again, offline, from its own plan and records; writes verdicts.json anew."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import ConfigError, HarnessError
from harness.judge import judge
from harness.model import Plan, Verdicts, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = "usage: python -m harness.judge RUN [alpha=0.05] [results_dir=results]"

CONTROL_FAILED = 3
"""Exit code after a failed control: what a broken instrument measured is not to be used."""


def main(arguments: Sequence[str]) -> int:
    """Judge the run that the command line names and print a summary. Returns 0, or 3 if a control failed; raises HarnessError."""
    if not arguments or set(arguments) & {"-h", "--help"}:
        print(USAGE)  # noqa: T201 - the answer of the command
        return 0
    run, alpha, results_dir = _read(arguments)
    from harness.store import Bundle  # noqa: PLC0415 - only this command knows the store

    bundle = Bundle.open(run, results_dir)
    verdicts = judge(_at(bundle.manifest.plan, alpha), bundle.records(), bundle.load_proof)
    bundle.write_verdicts(verdicts)
    print(*summary(verdicts), *(f"note: {note}" for note in bundle.notes), sep="\n")  # noqa: T201 - as above
    return CONTROL_FAILED if any(control.word == "failed" for control in verdicts.controls) else 0


def _at(plan: Plan, alpha: float | None) -> Plan:
    return plan if alpha is None else replace(plan, alpha=alpha)


def _read(arguments: Sequence[str]) -> tuple[str, float | None, Path]:
    """Return (run, alpha or None, results folder); raises ConfigError for anything else on the command line."""
    runs = [word for word in arguments if "=" not in word or Path(word).exists()]
    if len(runs) != 1:
        raise ConfigError(f"one run is judged at a time, got {len(runs)} ({', '.join(runs) or 'none'}); {USAGE}")
    alpha: float | None = None
    results_dir = Path("results")
    for word in arguments:
        if word in runs:
            continue
        key, _, value = word.partition("=")
        if key == "alpha":
            alpha = _alpha(value)
        elif key == "results_dir" and value:
            results_dir = Path(value)
        else:
            raise ConfigError(f"{word!r} is not understood; the keys are alpha and results_dir: {USAGE}")
    return runs[0], alpha, results_dir


def _alpha(text: str) -> float:
    try:
        alpha = float(text)
    except ValueError:
        alpha = 0.0
    if not 0 < alpha <= 0.5:
        raise ConfigError(f"alpha={text} is no chance of being wrong; give a number above 0 and at most 0.5, such as alpha=0.05")
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
    try:
        sys.exit(main(sys.argv[1:]))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - one sentence for the person at the keyboard
        sys.exit(error.exit_code)
