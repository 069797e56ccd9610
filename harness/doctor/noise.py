"""How noisy the machine is now: two children that do the same take turns, A B B A, while the machine's counters are watched. It judges nothing."""

from __future__ import annotations

import math
import os
import select
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import psutil

from harness.doctor.children import ROOT, end_group
from harness.doctor.facts import Noise
from harness.measure.environment import worker_environment
from harness.measure.load import read_load, used
from harness.measure.machine import usable_cores

BLOCK_S = 0.25
ORDERS = ("ABBA", "BAAB")
LATEST_ANSWER_S = 30.0
"""Beyond the time asked for: a child that takes longer than this to answer is not going to."""


class NoAnswerError(Exception):
    """A child did not answer; the text says how."""


class Child:
    """One of the two: told a number of seconds, it answers with its rate. Loads all cores that a worker would."""

    def __init__(self, threads: int) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-u", "-m", "harness.doctor.busy", str(os.getpid()), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker_environment(os.environ, {}, ()),
            cwd=ROOT,
            start_new_session=True,
            bufsize=0,  # so that an answer is either still in the pipe or read
        )

    def turn(self, seconds: float, wait_s: float = LATEST_ANSWER_S) -> float:
        """Return the rate over so many seconds. Raises NoAnswerError if it has died, is silent for too long, or says something else."""
        assert self.popen.stdin is not None and self.popen.stdout is not None  # noqa: S101, PT018 - both are pipes
        try:
            self.popen.stdin.write(f"{seconds}\n".encode())
        except OSError as error:
            raise NoAnswerError(f"a busy child could not be asked: {error.strerror}") from error
        if not select.select([self.popen.stdout], [], [], seconds + wait_s)[0]:
            raise NoAnswerError(f"a busy child did not answer within {seconds + wait_s:g} s")
        line = self.popen.stdout.readline()
        try:
            rate = float(line)
        except ValueError:
            rate = math.nan
        if not 0 < rate < math.inf:
            raise NoAnswerError("a busy child ended" if not line else f"a busy child answered {line[:40]!r}")
        return rate

    def end(self) -> None:
        """End it with its group and close its pipes."""
        end_group(self.popen)
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


def watch(seconds: float, block_s: float = BLOCK_S, make: Callable[[int], Child] = Child) -> Noise:
    """Let the children take turns for about so many seconds, the first quad being thrown away. What went wrong is `reason`, never an exception."""
    children: list[Child] = []
    try:
        for _ in "AB":
            children.append(make(usable_cores()))
        return _turns(children, max(1, int(seconds / (4 * block_s)) - 1), block_s)
    except OSError as error:
        return Noise(reason=f"no child could be started: {error.strerror}")
    except NoAnswerError as error:
        return Noise(reason=str(error))
    finally:
        for child in children:
            child.end()


def _turns(children: list[Child], quads: int, block_s: float) -> Noise:
    _log_ratio(children, ORDERS[1], block_s)  # start-up, caches and clocks settle in it
    groups = {child.popen.pid: (child.popen.pid,) for child in children}
    swapped_before, before, began_s = swapped_bytes(), read_load(groups), time.monotonic()
    ratios = tuple(_log_ratio(children, ORDERS[quad % 2], block_s) for quad in range(quads))
    load, swapped_after = used(before, read_load(groups)), swapped_bytes()
    return Noise(
        log_ratios=ratios,
        elapsed_s=time.monotonic() - began_s,
        foreign_cores=load.foreign_cores,
        steal_cores=load.steal_cores,
        throttled_s=load.throttled_s,
        swapped_bytes=None if swapped_before is None or swapped_after is None else swapped_after - swapped_before,
    )


def _log_ratio(children: list[Child], order: str, block_s: float) -> float:
    """Return the log of B's rate over A's in one quad; its blocks are equally long, so that a mean of rates is all work by all time."""
    rates = {"A": 0.0, "B": 0.0}
    for letter in order:
        rates[letter] += children["AB".index(letter)].turn(block_s)
    return math.log(rates["B"] / rates["A"])


def swapped_bytes() -> int | None:
    """Return the bytes swapped in and out since boot, None where the kernel does not tell."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # psutil says 0, with a warning, where it should say that it does not know
        try:
            told = psutil.swap_memory()
        except (OSError, RuntimeWarning):
            return None
    return int(told.sin + told.sout)
