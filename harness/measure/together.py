"""The arrangement "together": all processes of a round live, warm up and step at the same time, as neighbours on one card do.

Whether there was room for all of them is the round's result: a neighbour that cannot allocate ends the round with an answer, not with a failure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from harness.measure.blocks import Block, Turns, block_readings, check_counts, steps_for
from harness.measure.crew import TrialEnded
from harness.measure.fitting import for_want_of_memory, settle, verdict
from harness.measure.lives import finish, start, steps_taken, warm
from harness.measure.load import used
from harness.model import Quad, Trial

LIVED = "both_lived"


def run_together(turns: Turns, trials: Sequence[Trial], stems: Sequence[str], quads: int) -> str:
    """Run a round of trials side by side and return its order: one letter a trial, for turns that all have at once.

    Each trial's reading `both_lived` is 1 where all processes came through `quads` common blocks (and one that is thrown away), else 0 with the
    reason why one could not. A quad is one block of everybody. Raises TrialEnded for an end that is not for want of memory.
    """
    order = "".join(turns.letters[trial.id] for trial in trials)
    stage = turns.stage
    try:
        turns.crews = start(stage, trials, stems, turns.tell)
        for crew in turns.crews:
            warm(stage, crew, turns.block_s, turns.tell)
        began_s = time.perf_counter()
        turns.adapt(_common_block(turns, order, accepted=False))
        for _ in range(quads):
            _common_block(turns, order)
        for crew in turns.crews:
            crew.phases_s["blocks"] = time.perf_counter() - began_s
        finish(stage, turns.crews, turns.log, time.perf_counter)
    except TrialEnded as ended:
        if not for_want_of_memory(ended.outcome):
            raise
        started = list(stage.crews)
        settle(stage, started)
        turns.log.readings += [verdict(crew, LIVED, ended.outcome) for crew in started]
        turns.log.quads = [replace(quad, accepted=False) for quad in turns.log.quads]
        return order
    turns.log.readings += [verdict(crew, LIVED) for crew in turns.crews]
    return order


def _common_block(turns: Turns, order: str, *, accepted: bool = True) -> list[Block]:
    """Let every crew run one block at the same time, and record it. What others did meanwhile is noted, and rejects nothing: rates inform here."""
    index, stage = next(turns.indices), turns.stage
    members = stage.cpu_groups()
    steps = {crew.trial.id: steps_for(crew.step_s, turns.block_s, turns.thresholds) for crew in turns.crews}
    content = {id(member): {"steps": steps[crew.trial.id], "ghost": 0} for crew in turns.crews for member in crew.members}
    before = turns.read(members)
    answers = stage.ask(
        turns.crews,
        "block",
        "block",
        "blocks",
        lambda trial: trial.deadlines.block_s,
        content=lambda member: content[id(member)],
        only=steps_taken,
        numbers={"steps": max(steps.values())},
    )
    load = used(before, turns.read(members))
    blocks = []
    for turn, crew in enumerate(turns.crews):
        answer = answers[crew.trial.id]
        check_counts(crew, answer, steps[crew.trial.id], 0)
        turns.check_traces(crew, answer, index, warmup=not accepted)
        turns.log.readings += block_readings(crew, answer, index, turn, "main")
        blocks.append(Block(crew, answer["steps"], 0, answer["seconds"], answer["work"], load, None))
    quad = Quad(index, order, accepted, load.foreign_cores, None, load.steal_cores, load.throttled_s)
    flags = ("warmup",) if not accepted else turns.disturbances(quad, blocks[:1])
    turns.log.quads.append(replace(quad, flags=flags))
    turns.tell("quad", None, order, {"foreign_cores": quad.foreign_cores, "accepted": accepted, "index": index})
    return blocks
