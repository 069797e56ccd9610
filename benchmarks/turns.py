"""How the suite times itself: works side by side, in turns, and each such comparison in a process of its own. Needs the standard library only."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 7


def in_turns(*works: Callable[[], float], repeats: int = REPEATS) -> list[list[float]]:
    """Return for each of `works` what it returned in each of `repeats` turns. They follow one another in every turn, in every second one the other way
    round (ABBA); a first turn of each does not count."""
    told: list[list[float]] = [[] for _ in works]
    for turn in range(repeats + 1):
        for which, work in list(enumerate(works))[:: -1 if turn % 2 else 1]:
            told[which].append(work())
    return [each[1:] for each in told]


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return `work` as something that returns how many seconds it took."""

    def took() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return took


@dataclass(frozen=True)
class Middle:
    """The median of what `turns` turns gave, between the lowest and the highest of them."""

    median: float
    low: float
    high: float
    turns: int


def middle(values: Sequence[float]) -> Middle:
    """Return the median of `values`, one of each turn. Raises StatisticsError where there are none."""
    return Middle(statistics.median(values), min(values), max(values), len(values))


def ratio(over: Sequence[float], under: Sequence[float]) -> Middle:
    """Return the median of the turns' own ratios: what ran in one turn met the same machine, what ran minutes apart did not."""
    return middle([a / b for a, b in zip(over, under, strict=True)])


def in_a_process(module: str, expression: str) -> Any:
    """Return the value of `expression`, in which `it` is `module`, as JSON gives it back from a fresh process. Raises RuntimeError where that failed."""
    code = f"import json, {module} as it; print(json.dumps({expression}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{expression} of {module} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
