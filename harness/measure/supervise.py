"""A job that is killed and started again until it has ended: several lives of one trial, each a crew of its own.

It decides when a life ends and what is recorded of that; what a job does to come through is the workload's affair.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness.measure.blocks import Log, Tell
from harness.measure.crew import Crew, Stage, TrialEnded
from harness.measure.lives import ask_job, keep_job, start
from harness.measure.load import Load
from harness.measure.lookout import Lookout
from harness.model import COMPLETED, Reading, Scalar, State, Trial

TELL_EVERY_S = 1.0
"""How often a life tells of its steps."""


def kill_steps(seed: int, kills: int, steps: int) -> list[int]:
    """Return at which step each kill strikes: a random one of each of the first `kills` of `kills` + 1 equal parts of 1..`steps` (more than `kills`).

    The seed alone decides, so that all trials of a round are killed alike. None is killed in the last part, so every kill can happen.
    """
    rng = random.Random(f"kills {seed}")  # noqa: S311 (steps that can be repeated, not secrets)
    edges = [part * steps // (kills + 1) for part in range(kills + 1)]
    return [rng.randint(before + 1, last) for before, last in pairwise(edges)]


def run_lives(
    stage: Stage,
    trial: Trial,
    log: Log,
    tell: Tell,
    *,
    seed: int,
    next_stem: Callable[[], str],
    given: Mapping[str, Scalar],
    lookout: Lookout,
) -> Crew:
    """Run a supervised trial's lives; returns the crew of the last one, whose job is in `log` like any other.

    Of a life that is killed only `killed_at_step` is kept, and of the next one `restart_s`: from the kill until its first event. Raises TrialEnded
    for a life that dies by itself or fails, and (invalid) for one that ends before its kill. `next_stem` names the files of each life.
    """
    steps = next(process for process in trial.processes if process.role == trial.lead).settings["steps"]
    killed_ns: int | None = None
    for number, kill_at in enumerate(kill_steps(seed, trial.kills, int(steps or 0))):
        buried = lookout.now()
        (crew,) = start(stage, [trial], [next_stem()], tell, {**given, "life": number})
        killed_ns = _Life(stage, crew, number, log, tell, lookout, buried, killed_ns, kill_at).run_until_killed()
    buried = lookout.now()
    (crew,) = start(stage, [trial], [next_stem()], tell, {**given, "life": trial.kills})
    life = _Life(stage, crew, trial.kills, log, tell, lookout, buried, killed_ns)
    before = lookout.now()
    answer = life.run()
    lookout.note(crew, before, lookout.now(), "the last life")
    tell("phase", trial.id, "ending", {})
    keep_job(stage, crew, answer, log)
    return crew


@dataclass
class _Life:
    """One life. `killed_before_ns`: when the life before it was killed, and `buried` the load when that one was gone; `kill_at`: the step at which this
    one is to be."""

    stage: Stage
    crew: Crew
    number: int
    log: Log
    tell: Tell
    lookout: Lookout
    buried: Load
    killed_before_ns: int | None
    kill_at: int | None = None
    killed_ns: int | None = None
    step: int = 0
    heard: bool = False
    told_s: float = 0.0

    def run(self) -> dict[str, Any]:
        """Let the job run to its end; returns its answer."""
        self.tell("timed", self.crew.trial.id, f"life {self.number}", {"life": self.number})
        return ask_job(self.stage, self.crew, self._hear)

    def run_until_killed(self) -> int:
        """Let the job run until it is killed, and bury it; returns when it was killed. Raises TrialEnded if it ends in another way."""
        try:
            answer = self.run()
        except TrialEnded as ended:
            if self.killed_ns is None or not self._by_our_hand(ended):
                raise
            self._bury(self.killed_ns)
            return self.killed_ns
        if answer["error"] is not None:
            keep_job(self.stage, self.crew, answer, self.log)
        text = f"life {self.number} ended before it could be killed at step {self.kill_at}; it takes more or longer steps"
        numbers: dict[str, Scalar] = {"life": self.number, "kill_at_step": self.kill_at, "last_step": self.step}
        raise self.crew.fail("not_killed", text, numbers, phase="job", state=State.INVALID)

    def _hear(self, crew: Crew, event: list[Any]) -> None:
        """Take an event as it happens, and kill at the first step that is due."""
        now_ns = time.perf_counter_ns()
        if not self.heard and self.killed_before_ns is not None:
            self._note("restart_s", (now_ns - self.killed_before_ns) / 1e9, "s", t0_ns=self.killed_before_ns, t1_ns=now_ns)
            # From the burial on: what the killed one still used on its way out went with it, and would look foreign.
            self.lookout.note(crew, self.buried, self.lookout.now(), "a restart")
        self.heard = True
        name, step = event[0], event[5]
        if name != "step" or step is None:
            return
        self.step = int(step)
        if self.kill_at is not None and self.killed_ns is None and self.step >= self.kill_at:
            self.killed_ns = time.perf_counter_ns()
            crew.lead.child.signal_group(signal.SIGKILL)
            self.tell("phase", crew.trial.id, f"killed at step {self.step}", {"step": self.step})
        elif time.monotonic() - self.told_s >= TELL_EVERY_S:
            self.told_s = time.monotonic()
            self.tell("timed", crew.trial.id, f"life {self.number}, step {self.step}", {"step": self.step})

    def _by_our_hand(self, ended: TrialEnded) -> bool:
        """Whether the lead died of SIGKILL, not of anything else that may have struck at the same moment."""
        reason = ended.outcome.reason
        return ended.crew is self.crew and reason is not None and reason.code == "killed" and reason.numbers.get("signal") == signal.SIGKILL

    def _bury(self, killed_ns: int) -> None:
        """Let go of a life that was killed on purpose: that is no failure. It may have come some steps further before the signal reached it."""
        self.crew.outcome, self.crew.killed = COMPLETED, True
        self.stage.dismiss([self.crew])
        self._note("killed_at_step", self.step, "step", t0_ns=killed_ns, t1_ns=killed_ns, n=self.step)

    def _note(self, name: str, value: float, unit: str, *, t0_ns: int, t1_ns: int, n: int | None = None) -> None:
        trial, rank = self.crew.trial, self.crew.lead.process.rank
        self.log.readings.append(Reading(trial.id, name, value, unit, role=trial.lead, rank=rank, t0_ns=t0_ns, t1_ns=t1_ns, n=n))
