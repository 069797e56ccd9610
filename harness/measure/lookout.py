"""What others did to the processors while a job or a single call was timed: a reading of each, and a flag where it was too much.

A quad of blocks that others disturbed is measured again; what is timed as a whole is not, since it may have taken minutes. It stays, and whoever reads
its figure is told.

Who counts as ours: a worker with everything in its session, living or ended and waited for (so a job's own children, and the server of a slow folder,
which a worker starts), the trial's other processes and whoever rests beside it, and this process with its threads (telemetry, an endpoint). Anything
else is foreign, the kernel's own threads included, whoever they work for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from harness.measure.blocks import LoadReader, Log, beyond
from harness.measure.crew import Crew, Stage
from harness.measure.load import Load, Used, grain_s, used
from harness.model import Reading

READING = "foreign_cores"
TIMED_CALL = "outcome"
"""Of the single calls the one whose readings may be times. A proof and a profile are not timed, and a probe only asks for room."""

WORDS = {
    "foreign_load": ("other processes used {:.2f} cores", "foreign_cores"),
    "steal": ("the hypervisor took {:.2f} cores", "steal_cores"),
    "throttled": ("the control group's quota kept the run off the processors for {:.2f} s", "throttled_s"),
}
"""A flag's code -> what is said of it, and the number that says how bad it was."""


@dataclass
class Lookout:
    """Looks out for others during one round. `limit_cores` is the threshold that quads are held to as well."""

    stage: Stage
    read: LoadReader
    limit_cores: float
    log: Log
    worst: dict[tuple[str, str], float] = field(default_factory=dict)  # of a code and a trial, which may have several starts

    def now(self) -> Load:
        """Read the counters of the machine and of everybody on the stage, with the processes that they have by now.

        Whoever was timed must still be there: a process takes its time with it when it ends.
        """
        return self.read(self.stage.cpu_groups())

    def note(self, crew: Crew, before: Load, after: Load, what: str) -> None:
        """Keep what others did between two readings, while `what` of a trial was timed, as a reading; and as flags if it was more than the limit."""
        trial, load = crew.trial.id, used(before, after)
        grain_cores = grain_s(after.cores) / load.elapsed_s if load.elapsed_s > 0 else float("inf")
        codes = beyond(_surely(load, grain_cores), self.limit_cores)
        for code in codes:
            self._flag(code, trial, load, what)
        value = load.foreign_cores
        reason: str | None = None
        if value is None:
            text = f"how busy others were while {what} of trial {trial} was timed is not known: the machine's load could not be read"
            self.log.flag("foreign_load_unknown", text, trial=trial)
            reason = "the machine's load could not be read"
        elif grain_cores > self.limit_cores and "foreign_load" not in codes:
            tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
            value, reason = None, f"{load.elapsed_s:.2g} s are too short to tell: the machine's counters tick every {tick_ms:g} ms"
        self.log.readings.append(Reading(trial, READING, value, "cores", reason, role=crew.trial.lead, rank=crew.lead.process.rank))

    def _flag(self, code: str, trial: str, load: Used, what: str) -> None:
        said, name = WORDS[code]
        size = float(getattr(load, name))
        if size <= self.worst.get((code, trial), 0.0):
            return
        self.worst[code, trial] = size
        self.log.flag(
            code,
            f"{said.format(size)} while {what} of trial {trial} was timed; it was not repeated",
            trial=trial,
            foreign_cores=load.foreign_cores,
            steal_cores=load.steal_cores,
            throttled_s=load.throttled_s,
            threshold=self.limit_cores,
        )


def _surely(load: Used, grain_cores: float) -> Used:
    """Return the load less what the counters' grain may feign: over a short time a tick is much."""
    return replace(load, foreign_cores=_less(load.foreign_cores, grain_cores), steal_cores=_less(load.steal_cores, grain_cores))


def _less(cores: float | None, grain_cores: float) -> float | None:
    return None if cores is None else cores - grain_cores
