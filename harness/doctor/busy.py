"""A child that keeps all its cores busy on request: `python -m harness.doctor.busy PARENT_PID THREADS`. Standard library only.

Each line on stdin is a number of seconds; the answer is a line with the rate at which buffers were hashed. Hashing lets go of the interpreter's lock,
so that one process loads as many cores as a framework's workers do.
"""

from __future__ import annotations

import hashlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from harness.measure.worker import die_with

BUFFER = bytes(1 << 20)
"""Large enough that the interpreter's lock is rarely wanted, small enough for a core's own cache."""


def hash_for(seconds: float, t0: float) -> float:
    """Return how many buffers a second were hashed from t0 (perf_counter) until `seconds` later, the last one counted whole with its time."""
    done = 0
    while time.perf_counter() < t0 + seconds or not done:
        hashlib.sha256(BUFFER).digest()
        done += 1
    return done / (time.perf_counter() - t0)


def main(arguments: list[str]) -> int:
    """Answer one line to each line until stdin ends."""
    die_with(int(arguments[0]))
    threads = int(arguments[1])
    with ThreadPoolExecutor(threads) as pool:
        for line in sys.stdin:
            t0 = time.perf_counter()
            rate = sum(pool.map(hash_for, [float(line)] * threads, [t0] * threads))
            print(rate, flush=True)  # noqa: T201 - the answer
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
