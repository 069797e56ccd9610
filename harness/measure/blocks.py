"""Blocks and quads: who runs next and for how many steps, what came of it, and whether others disturbed it.

It asks crews on a stage and reads the machine's load around each block; it starts and ends nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from harness.measure.load import Load, Used, sum_or_none, used
from harness.model import Flag, Quad, Reading, Scalar, State

if TYPE_CHECKING:
    import random

    from harness.measure.crew import Crew, Stage

LoadReader = Callable[[Mapping[int, Sequence[int]]], Load]
Tell = Callable[[str, str | None, str, dict[str, Scalar]], None]


@dataclass(frozen=True)
class QuadRules:
    """What counts as disturbed, warm and slow. Loads in cores: 0.05 is five per cent of one core."""

    foreign_cores: float = 0.05  # of jobs and single calls, too
    idle_partner_cores: float = 0.01
    warmup_ratio: float = 0.05  # how far the first accepted quad's ratio may lie from the later ones'
    late_warmups: int = 3  # soft cap on quads dropped as late warm-up
    slow_step_s: float = 5.0  # a step longer than this: one step a block
    absence_quads: int = 2


def quad_rules(overrides: Mapping[str, float]) -> QuadRules:
    """Return the defaults with `overrides` laid over them. Names that mean nothing here belong to other rooms and are left alone."""
    given: dict[str, Any] = {item.name: overrides[item.name] for item in fields(QuadRules) if item.name in overrides}
    for count in ("late_warmups", "absence_quads"):
        if count in given:
            given[count] = int(given[count])
    return replace(QuadRules(), **given)


@dataclass
class Log:
    """What a round has gathered so far."""

    readings: list[Reading] = field(default_factory=list)
    quads: list[Quad] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)

    def flag(self, code: str, text: str, **numbers: Scalar) -> None:
        """Note something once, or once a trial where `numbers` name one: a later flag of the same code replaces the text, not the line."""
        about = (code, numbers.get("trial"))
        self.flags = [flag for flag in self.flags if (flag.code, flag.numbers.get("trial")) != about] + [Flag(code, text, numbers)]


@dataclass(frozen=True)
class Block:
    """One timed stretch, with what the machine's counters said around it."""

    crew: Crew
    steps: int
    ghost: int
    seconds: float
    work: float
    load: Used
    idle_s: float | None


@dataclass
class Turns:
    """The crews that take turns now, and the rules they do it by."""

    stage: Stage
    crews: Sequence[Crew]
    letters: Mapping[str, str]
    block_s: float
    thresholds: QuadRules
    read: LoadReader
    tell: Tell
    log: Log
    rng: random.Random
    indices: Iterator[int]

    def order(self, turns_each: int = 2) -> list[Crew]:
        """Return a seeded permutation followed by its reverse (A B B A), as often as each crew is to have `turns_each` turns."""
        once = list(self.crews)
        self.rng.shuffle(once)
        return (once + once[::-1]) * (turns_each // 2)

    def quad(self, *, part: str = "main", turns_each: int = 2, warmup: bool = False) -> tuple[Quad, list[Block]]:
        """Run one palindrome of blocks. The quad is returned undecided: accepted unless it is the warm-up."""
        index = next(self.indices)
        members = self.stage.cpu_groups()
        before = self.read(members)
        blocks = []
        order = self.order(turns_each)
        for turn, crew in enumerate(order):
            block, before = self._block(crew, members, before, index=index, turn=turn, part=part, warmup=warmup)
            blocks.append(block)
        loads = [block.load for block in blocks]
        idle_s = sum_or_none(block.idle_s for block in blocks)
        elapsed_s = sum(load.elapsed_s for load in loads)
        return Quad(
            index=index,
            order="".join(self.letters[crew.trial.id] for crew in order),
            accepted=not warmup,
            foreign_cores=_average(loads, "foreign_cores"),
            idle_partner_cores=None if idle_s is None or len(self.stage.crews) < 2 else idle_s / elapsed_s,
            steal_cores=_average(loads, "steal_cores"),
            throttled_s=sum_or_none(load.throttled_s for load in loads),
            flags=("warmup",) if warmup else (),
            part=part,
        ), blocks

    def _block(
        self, crew: Crew, members: Mapping[int, Sequence[int]], before: Load, *, index: int, turn: int, part: str, warmup: bool
    ) -> tuple[Block, Load]:
        """Run one block of this crew, read the counters behind it, and record it. Returns them too, as the next block's start."""
        steps = steps_for(crew.step_s, self.block_s, self.thresholds)
        every = crew.trial.ghost_every
        ghost = max(1, steps // every) if every > 0 and crew.blocks_run % 2 == 1 else 0
        crew.blocks_run += 1
        answer = self.stage.ask(
            [crew],
            "block",
            "block",
            "blocks",
            lambda trial: trial.deadlines.block_s,
            content=lambda _: {"steps": steps, "ghost": ghost},
            only=lambda member: member.takes_steps,
            numbers={"steps": steps},
        )[crew.trial.id]
        after = self.read(members)
        check_counts(crew, answer, steps, ghost)
        self.check_traces(crew, answer, index, warmup=warmup)
        self.log.readings += block_readings(crew, answer, index, turn, part)
        load = used(before, after)
        own = {member.child.pid for member in crew.members}
        idle_s = sum_or_none(seconds for pid, seconds in load.groups_s.items() if pid not in own)
        block = Block(crew, answer["steps"], answer["ghost"], answer["seconds"], answer["work"], load, idle_s)
        rate = block.work / block.seconds if block.seconds > 0 else None
        self.tell("block", crew.trial.id, f"{block.steps} steps", {"seconds": block.seconds, "work": block.work, "rate": rate, "unit": str(answer["unit"])})
        return block, after

    def check_traces(self, crew: Crew, answer: Mapping[str, Any], index: int, *, warmup: bool) -> None:
        before, after = int(answer["traces_before"]), int(answer["traces_after"])
        if after <= before:
            return
        numbers: dict[str, Scalar] = {"traces_before": before, "traces_after": after, "quad": index}
        if warmup:
            self.log.flag("traced_in_warmup", "a step was traced anew during the discarded first quad", **numbers)
            return
        text = f"traced during timed blocks: {after - before} new traces in one block, so its time holds more than steps"
        raise crew.fail("traced_in_blocks", text, numbers, phase="blocks", state=State.INVALID)

    def adapt(self, blocks: Sequence[Block]) -> None:
        """Set each crew's step time anew from these blocks, so that the next ones last as long as they should."""
        for crew in self.crews:
            mine = [block for block in blocks if block.crew is crew]
            steps = sum(block.steps + block.ghost for block in mine)
            if steps and (seconds := sum(block.seconds for block in mine)) > 0:
                crew.step_s = seconds / steps

    def disturbances(self, quad: Quad, blocks: Sequence[Block]) -> tuple[str, ...]:
        """Return what others did to a quad beyond the threshold, by name. What could not be read disturbs nothing, but is flagged."""
        if quad.foreign_cores is None:
            self.log.flag("foreign_load_unknown", "the machine's load could not be read, so quads were accepted unseen")
        load = Used(sum(block.load.elapsed_s for block in blocks), quad.foreign_cores, quad.steal_cores, quad.throttled_s, {})
        return beyond(load, self.thresholds.foreign_cores)

    def watch_idle(self, quad: Quad) -> None:
        """Flag the round if whoever had no turn was busy nevertheless."""
        cores = quad.idle_partner_cores
        if cores is not None and cores > self.thresholds.idle_partner_cores:
            text = f"the idle partner used {cores:.3f} cores during the other's blocks; take turns of trials instead"
            self.log.flag("idle_partner", text, idle_partner_cores=cores, threshold=self.thresholds.idle_partner_cores)


def beyond(load: Used, limit_cores: float) -> tuple[str, ...]:
    """Return which of foreign load, steal and throttling are beyond the limit, by name. What could not be read is not."""
    loads = {
        "foreign_load": load.foreign_cores,
        "steal": load.steal_cores,
        "throttled": None if load.throttled_s is None or load.elapsed_s <= 0 else load.throttled_s / load.elapsed_s,
    }
    return tuple(name for name, cores in loads.items() if cores is not None and cores > limit_cores)


def steps_for(step_s: float | None, block_s: float, thresholds: QuadRules) -> int:
    """Return how many steps of `step_s` seconds make a block of about `block_s`; at least one, and one where a step is slow."""
    if not step_s or step_s > thresholds.slow_step_s:
        return 1
    return max(1, round(block_s / step_s))


def check_counts(crew: Crew, answer: Mapping[str, Any], asked: int, ghost: int, phase: str = "blocks") -> None:
    """Raise TrialEnded (invalid) unless as many steps ran as were asked for, and their work is a number."""
    if answer["work"] is None:
        raise crew.fail("no_work", "the workload's count of its work is not a finite number", phase=phase, state=State.INVALID)
    for what, wanted, ran in (("steps", asked, int(answer["steps"])), ("ghost steps", ghost, int(answer["ghost"]))):
        if ran != wanted:
            word = "fewer" if ran < wanted else "more"
            text = f"{word} {what} ran than were asked for: {ran} of {wanted}"
            raise crew.fail("fewer_steps" if ran < wanted else "more_steps", text, {"asked": wanted, "ran": ran}, phase=phase, state=State.INVALID)


def block_readings(crew: Crew, answer: Mapping[str, Any], index: int, turn: int, part: str) -> list[Reading]:
    """Return a block's "work" reading and one for each of its events."""
    named: list[tuple[str, float | None, str]] = [("work", answer["work"], answer["unit"]), *(tuple(event) for event in answer["events"])]
    return [
        Reading(
            trial=crew.trial.id,
            name=name,
            value=value,
            unit=unit,
            reason=None if value is not None else "the workload gave no finite number",
            role=crew.trial.lead,
            rank=crew.lead.process.rank,
            t0_ns=answer["t0_ns"],
            t1_ns=answer["t1_ns"],
            n=answer["steps"],
            ghost=answer["ghost"],
            quad=index,
            turn=turn,
            part=part,
        )
        for name, value, unit in named
    ]


def log_ratios(blocks: Sequence[Block], crews: Sequence[Crew]) -> list[float]:
    """Return log(rate of each further crew / rate of the first) over these blocks, a rate being all work by all time; [] if one is not positive.

    Of a single crew: the logarithm of its rate.
    """
    rates = []
    for crew in crews:
        mine = [block for block in blocks if block.crew is crew]
        seconds, work = sum(block.seconds for block in mine), sum(block.work for block in mine)
        if seconds <= 0 or work <= 0:
            return []
        rates.append(work / seconds)
    return [math.log(rate / rates[0]) for rate in rates[1:]] or [math.log(rates[0])]


def _average(loads: Sequence[Used], name: str) -> float | None:
    """Return the time-weighted average of a load in cores, None if one of them is unknown."""
    cores = [(getattr(load, name), load.elapsed_s) for load in loads]
    total_s = sum(elapsed_s for _, elapsed_s in cores)
    if total_s <= 0 or any(value is None for value, _ in cores):
        return None
    return float(sum(value * elapsed_s for value, elapsed_s in cores) / total_s)
