"""What a workload is to the instrument. Standard library only: it is imported by the oldest interpreter that a level may name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Tuple


@dataclass(frozen=True)
class Tally:
    """What a stretch of steps really did. `work` is in `unit` (samples, bytes, FLOP, requests); `steps` counts the steps that ran.

    `events` are (name, value, unit) triples of things worth recording about the stretch, such as seconds spent waiting for input.
    """

    steps: int
    work: float
    unit: str
    events: Tuple[Tuple[str, float, str], ...] = ()


@dataclass(frozen=True)
class Value:
    """One reading of a workload's `outcome()`. `value` None needs a `reason`."""

    name: str
    value: Any
    unit: str
    reason: Any = None


class Event(NamedTuple):
    """Something that happened in a job. Stamps are of `time.perf_counter_ns`; `step` counts from 1. `value` None needs a `reason`."""

    name: str
    value: float | None
    unit: str
    t0_ns: int | None = None
    t1_ns: int | None = None
    step: int | None = None
    reason: str | None = None


class Workload:
    """A thing to be measured. The instrument owns the clock, the device sync, memory peaks and warm-up; a workload only does the work.

    `build(**settings)` of a workload's module returns one of these. Methods that a workload does not offer stay as they are here.
    """

    def run(self, steps: int) -> Tally:
        """Run `steps` steps without any sync of its own and say what was done. Fewer steps than asked is told by the tally, not raised."""
        raise AttributeError("this workload has no steps")

    def trace(self) -> None:
        """Trace the step without running it, where that is possible (then tracing is timed as a phase of its own)."""

    def traces(self) -> int:
        """How many times the step has been traced or compiled so far; must not grow during timed blocks."""
        return 0

    def outcome(self) -> List[Value]:
        """Driver `once`: do the whole thing and answer with readings."""
        raise AttributeError("this workload has no outcome")

    def job(self, tell: Callable[[Event], None]) -> None:
        """Driver `job`: do all of the steps that the settings ask for, telling each event as it happens. Raises where it cannot go on.

        The instrument reads two events: `job`, the work and how many steps there were, and `timed_traces`, how often the step was traced anew in the
        part that is timed, which must be never.
        """
        raise AttributeError("this workload has no job")

    def proof(self) -> Dict[str, Any]:
        """Small arrays by which two arms are shown to compute the same."""
        raise AttributeError("this workload has no proof")

    def profile(self) -> List[Value]:
        """Driver `once`: some steps under the framework's profiler, whose trace is left in the folder that the setting `profile_dir` names."""
        return [Value("profile_steps", None, "steps", "this workload offers no profile of its own")]

    def facts(self) -> Dict[str, Any]:
        """What was really used: `execution`, `xla`, `precision`, `batch`, `device`, `replicas`, `threads`, ... keys as in the settings asked."""
        return {}

    def health(self) -> Dict[str, Any]:
        """After timed work, where there is a loss: `loss` (float, None if it is no number), `finite` (bool) and `first_non_finite_step` (from 1, or
        None). Read outside timed blocks."""
        return {}

    def close(self) -> None:
        """Give back what outlives the process (files, servers)."""
