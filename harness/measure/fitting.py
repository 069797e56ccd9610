"""Is there room for a trial? A probe answers with a reading, whatever the answer is: want of memory is a result here, not a failure.

It starts, asks and ends one crew on a stage; which sizes are worth a probe is decided elsewhere.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.measure.blocks import Log, Tell, check_counts
from harness.measure.crew import Crew, Stage, TrialEnded
from harness.measure.lives import check_facts, finish, start, steps_taken
from harness.model import COMPLETED, Outcome, Reading, Scalar, State, Trial

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBE = "probe"
FURTHER_STEPS = 2
"""After the first step, which may allocate more than any other (for choosing algorithms) or less (before the optimizer's first update)."""

SIGNS = (
    "out of memory",
    "oom when allocating",
    "resource exhausted",
    "resource_exhausted",
    "alloc_failed",
    "failed to allocate",
    "without blas support",
    "dnn library",
    "no algorithm worked",
)
"""What frameworks say, in lower case, where not even their libraries found room: cuBLAS and cuDNN then cannot be started, or no algorithm has a
workspace, and the exception is none of the kinds that are about memory."""


def for_want_of_memory(outcome: Outcome) -> bool:
    """Return whether a trial ended because memory did not suffice, by its kind or by what it said."""
    if outcome.out_of_memory:
        return True
    return outcome.state is State.FAILED and outcome.reason is not None and any(sign in outcome.reason.text.lower() for sign in SIGNS)


def run_probe(stage: Stage, trial: Trial, stem: str, log: Log, tell: Tell, *, given: Mapping[str, Scalar]) -> None:
    """Build a trial and let it do three steps. Its reading `trains` is 1, or 0 with the reason where memory did not suffice for that.

    Raises TrialEnded for any other end.
    """
    try:
        (crew,) = start(stage, [trial], [stem], tell, given)
        steps = {"steps": FURTHER_STEPS}
        limit_s = trial.deadlines.warmup_s * FURTHER_STEPS
        answers = stage.ask([crew], "warm", "warm", "warmup", lambda _: limit_s, content=lambda _: steps, only=steps_taken, numbers={**steps})
        check_counts(crew, answers[trial.id], FURTHER_STEPS, 0, "warmup")
        check_facts(stage, crew)
        finish(stage, [crew], log, time.perf_counter)
    except TrialEnded as ended:
        if not for_want_of_memory(ended.outcome):
            raise
        settle(stage, [ended.crew])
        log.readings.append(verdict(ended.crew, "trains", ended.outcome))
        return
    log.readings.append(verdict(crew, "trains"))


def settle(stage: Stage, crews: list[Crew]) -> None:
    """End crews whose question has been answered: that they could not go on is the answer."""
    for crew in crews:
        crew.outcome = COMPLETED
    stage.dismiss(crews)


def verdict(crew: Crew, name: str, ended: Outcome | None = None) -> Reading:
    """Return the reading `name` of a crew: 1, or 0 with the reason why it ended."""
    reason = None if ended is None or ended.reason is None else f"{ended.reason.text} (in {ended.phase})"
    return Reading(crew.trial.id, name, 1.0 if ended is None else 0.0, "", reason, role=crew.trial.lead, rank=crew.lead.process.rank)
