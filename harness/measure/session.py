"""Runs one round where the device is, and returns its record. A worker's failure is an outcome in that record, never an exception here.

It decides who lives together and who takes turns; it touches no results folder but the log, proof and live paths handed in, and concludes nothing.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
import shutil
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.errors import MeasureError
from harness.measure.blocks import LoadReader, Log, QuadRules, Turns
from harness.measure.crew import Crew, Stage, Stopped, TrialEnded, file_stem, without_places
from harness.measure.fitting import PROBE, run_probe
from harness.measure.lives import call_once, finish, launch, make_ready, run_job, start, warm
from harness.measure.load import read_load
from harness.measure.lookout import Lookout
from harness.measure.machine import boot_id
from harness.measure.quads import run_quads, warm_quad
from harness.measure.supervise import run_lives
from harness.measure.together import run_together
from harness.model import COMPLETED, Arrangement, Driver, Outcome, Reading, Reason, Round, RoundRecord, Scalar, State, Trial, TrialRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
GOES_ON_WITHOUT = ("warmup", "blocks")
"""A trial that is too slow in these phases bounds a ratio only if its partner's rate is known, so the partner goes on alone."""

QUAD_RULES = QuadRules()
STOPPED = Outcome(State.INTERRUPTED, Reason("stopped", "stopped by request"))


@dataclass(frozen=True)
class Place:
    """Where a session may write and look: folders for logs and proofs, live.json, and what goes on a worker's import path.

    Below `scratch` each trial without blocks gets an empty folder for as long as it lasts, as its setting `scratch_dir`. None: no such setting.
    """

    logs: Path
    proofs: Path
    live: Path
    import_roots: tuple[Path, ...]
    scratch: Path | None = None


@dataclass(frozen=True)
class Progress:
    """What a session tells while it runs: `kind` is phase, timed, block, quad or round. `timed`: a job or a single call of this trial is being timed,
    until anything else is told.

    A block's numbers are seconds, work, rate; a quad's foreign_cores, accepted, index; a round's cost_s.
    """

    kind: str
    round: str
    trial: str | None
    text: str
    numbers: dict[str, Scalar]


def run_round(
    round_: Round,
    place: Place,
    *,
    tell: Callable[[Progress], None],
    stop: Callable[[], bool],
    part: int = 0,
    thresholds: QuadRules = QUAD_RULES,
    read: LoadReader = read_load,
    transport: str = "pipe",
) -> RoundRecord:
    """Measure one round and return how it went.

    `stop` is polled several times a second; once true, all children are ended and the round's outcome is INTERRUPTED. `read` gives the machine's
    load (tests hand in their own), `transport` is "pipe" or "socket". Call it from a thread that outlives it: the kernel ends workers with the
    thread that started them. Raises MeasureError only for a round that no session could run.
    """
    _refuse_impossible(round_)
    started_at = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    began_s = time.perf_counter()
    stage = Stage(stop, place.live, place.import_roots, place.logs, transport)
    session = _Session(round_, place, stage, lambda *event: tell(Progress(event[0], round_.id, *event[1:])), thresholds, read)
    with stage:
        session.run()
    session.look_back()
    outcome = session.outcome()
    tell(Progress("round", round_.id, None, outcome.state.value, {"cost_s": time.perf_counter() - began_s}))
    return RoundRecord(
        round=round_.id,
        contrast=round_.contrast,
        index=round_.index,
        attempt=round_.attempt,
        arrangement=round_.arrangement,
        order=session.order,
        seed=round_.seed,
        outcome=outcome,
        trials=tuple(session.trial_record(trial) for trial in round_.trials),
        readings=tuple(session.readings()),
        quads=tuple(session.log.quads),
        flags=tuple(session.log.flags),
        started_at=started_at,
        cost_s=time.perf_counter() - began_s,
        boot_id=boot_id(),
        part=part,
    )


def _refuse_impossible(round_: Round) -> None:
    if not round_.trials or len(round_.trials) > len(LETTERS):
        raise MeasureError(f"Round {round_.id} has {len(round_.trials)} trials; a session takes 1 to {len(LETTERS)}.")
    for trial in round_.trials:
        lead = next((process for process in trial.processes if process.role == trial.lead), None)
        if lead is None:
            raise MeasureError(f"Trial {trial.id} of round {round_.id} has no process in its lead's role {trial.lead!r}.")
        if round_.arrangement in {Arrangement.TURNS_OF_BLOCKS, Arrangement.TOGETHER} and trial.driver is not Driver.BLOCKS:
            why = f"trial {trial.id} has none: its driver is `{trial.driver.value}`; arrange it solo"
            raise MeasureError(f"Round {round_.id} asks for turns of blocks, but {why}.")
        steps = lead.settings.get("steps")
        if trial.driver is Driver.SUPERVISE and not (isinstance(steps, int) and steps > trial.kills >= 0):
            what = f"Trial {trial.id} of round {round_.id}"
            raise MeasureError(f"{what} is to be killed {trial.kills} times in {steps} steps; it needs more `steps` than kills.")


@dataclass
class _Session:
    round: Round
    place: Place
    stage: Stage
    tell: Callable[[str, str | None, str, dict[str, Scalar]], None]
    thresholds: QuadRules
    read: LoadReader
    log: Log = field(default_factory=Log)
    order: str = ""
    indices: Iterator[int] = field(default_factory=itertools.count)
    upcoming: list[Trial] = field(default_factory=list)  # whose turn comes after the one that runs
    understudy: Crew | None = None  # has imported beside the trial before it, and rests until its own turn

    def __post_init__(self) -> None:
        self.letters = {trial.id: letter for trial, letter in zip(self.round.trials, LETTERS, strict=False)}
        self.rng = random.Random(self.round.seed)  # noqa: S311 (an order that can be repeated, not a secret)
        self.lookout = Lookout(self.stage, self.read, self.thresholds.foreign_cores, self.log)

    def run(self) -> None:
        """Run the round in its arrangement. On return every start has an outcome and nobody lives."""
        arrangements = {
            Arrangement.TURNS_OF_BLOCKS: self._turns_of_blocks,
            Arrangement.TURNS_OF_TRIALS: self._turns_of_trials,
            Arrangement.SOLO: self._solo,
            Arrangement.TOGETHER: self._together,
        }
        try:
            arrangements[self.round.arrangement]()
        except Stopped:
            for crew in self.stage.history:
                crew.outcome = crew.outcome or STOPPED

    # ------------------------------------------------------------ arrangements

    def _turns_of_blocks(self) -> None:
        try:
            crews = start(self.stage, self.round.trials, [self._stem(trial) for trial in self.round.trials], self.tell)
        except TrialEnded as ended:
            self._end_all(ended)
            return
        for crew in crews:
            try:
                warm(self.stage, crew, self.round.block_s, self.tell)
            except TrialEnded as ended:  # noqa: PERF203 (each crew ends for itself)
                if not self._goes_on(ended):
                    self._end_all(ended)
                    return
        self._blocks_of([crew for crew in crews if crew.outcome is None], absence=self.round.absence)

    def _blocks_of(self, crews: Sequence[Crew], *, absence: bool = False) -> None:
        """Let living crews take turns until they have their quads, and see them off; who is too slow leaves the others to go on."""
        if not crews:
            return
        began_s = time.perf_counter()
        try:
            turns = self._turns(crews)
            thrown_away = warm_quad(turns)
            self.order = self.order or thrown_away.order
            run_quads(turns, self.round.quads)
            for crew in crews:
                crew.phases_s["blocks"] = time.perf_counter() - began_s
            if absence and len(crews) > 1:
                finish(self.stage, crews[-1:], self.log, time.perf_counter)
                crews = turns.crews = crews[:-1]
                run_quads(turns, self.thresholds.absence_quads, part="absence")
            finish(self.stage, crews, self.log, time.perf_counter)
        except TrialEnded as ended:
            if not self._goes_on(ended):
                self._end_all(ended)
                return
            self._blocks_of([crew for crew in crews if crew.outcome is None])

    def _turns_of_trials(self) -> None:
        once = list(self.round.trials)
        self.rng.shuffle(once)
        for trial in self._in_turn(once + once[::-1]):
            if any(crew.outcome != COMPLETED for crew in self._starts(trial)):
                continue  # too slow in its first start: its bound needs no second one in this round
            ended = self._alone(trial)
            # A bound needs its partner's rate, and a kill for want of memory says nothing unless the partner lives in the same room.
            if ended is not None and not _bounds_speed(ended) and not ended.out_of_memory:
                return

    def _solo(self) -> None:
        order = list(self.round.trials)
        self.rng.shuffle(order)
        for trial in self._in_turn(order):
            self._alone(trial)

    def _together(self) -> None:
        trials = self.round.trials
        try:
            self.order = run_together(self._turns([]), trials, [self._stem(trial) for trial in trials], self.round.quads)
        except TrialEnded as ended:
            self._end_all(ended)

    def _in_turn(self, order: Sequence[Trial]) -> Iterator[Trial]:
        """Yield the trials one by one, and keep the order."""
        self.order = "".join(self.letters[trial.id] for trial in order)
        self.upcoming = list(order)
        while self.upcoming:
            yield self.upcoming.pop(0)

    def _alone(self, trial: Trial) -> Outcome | None:
        """Run one trial alone in fresh processes; returns how it ended unless it completed."""
        drive = {Driver.BLOCKS: self._blocks, Driver.ONCE: self._once, Driver.JOB: self._job, Driver.SUPERVISE: self._supervise}[trial.driver]
        try:
            drive(trial)
        except TrialEnded as ended:
            self._end_all(ended)
        finally:
            self._clear(trial)
        outcome = self._starts(trial)[-1].outcome
        return None if outcome == COMPLETED else outcome

    # ------------------------------------------------------------ starts

    def _start_alone(self, trial: Trial) -> Crew:
        """Return a trial's crew, ready to run: it may have imported already beside the one before, which takes half the time of two after each other."""
        crew, self.understudy = self.understudy, None
        if crew is None or crew.trial is not trial:
            crew = self._launch(trial)
        make_ready(self.stage, [crew], self.tell)
        return crew

    def _launch(self, trial: Trial) -> Crew:
        pair = [trial, *(other for other in self.upcoming[:1] if _may_rest_beside(trial, other))]
        if len(pair) > 1:
            try:
                crew, self.understudy = launch(self.stage, pair, [self._stem(t) for t in pair], self.tell, [self._given(t) for t in pair])
            except TrialEnded:
                # Whoever it was will meet its fate alone, and the other is not to suffer for it.
                self._forget(self.stage.crews)
            else:
                return crew
        return launch(self.stage, [trial], [self._stem(trial)], self.tell, [self._given(trial)])[0]

    def _without_understudy(self) -> None:
        """Send away who has only imported: no start of its trial."""
        crew, self.understudy = self.understudy, None
        if crew is not None:
            self._forget([crew])

    def _forget(self, crews: Sequence[Crew]) -> None:
        gone = list(crews)
        self.stage.dismiss(gone)
        self.stage.history = [crew for crew in self.stage.history if crew not in gone]

    # ------------------------------------------------------------ drivers

    def _blocks(self, trial: Trial) -> None:
        crew = self._start_alone(trial)
        warm(self.stage, crew, self.round.block_s, self.tell)
        self._blocks_of([crew])

    def _once(self, trial: Trial) -> None:
        stem = self._stem(trial)
        if trial.call == PROBE:
            run_probe(self.stage, trial, stem, self.log, self.tell, given=self._given(trial))
            return
        crew = self._start_alone(trial)
        call_once(self.stage, crew, self.place.proofs / f"{stem}.npz", self.log, self.tell, lookout=self.lookout)
        finish(self.stage, [crew], self.log, time.perf_counter)

    def _job(self, trial: Trial) -> None:
        crew = self._start_alone(trial)
        run_job(self.stage, crew, self.log, self.tell, lookout=self.lookout)
        finish(self.stage, [crew], self.log, time.perf_counter)

    def _supervise(self, trial: Trial) -> None:
        crew = run_lives(
            self.stage,
            trial,
            self.log,
            self.tell,
            seed=self.round.seed,
            next_stem=lambda: self._stem(trial),
            given=self._given(trial),
            lookout=self.lookout,
        )
        finish(self.stage, [crew], self.log, time.perf_counter)

    def _folder(self, trial: Trial) -> Path | None:
        """Return where a trial's scratch folder is; None where it has none. Of the starts of a trial never two live at once, so one name serves them all."""
        if self.place.scratch is None or trial.driver is Driver.BLOCKS:
            return None
        return self.place.scratch.resolve() / file_stem(f"{self.round.id}-{trial.id}")

    def _given(self, trial: Trial) -> dict[str, Scalar]:
        """Make a trial's scratch folder, empty, and return the setting that names it."""
        folder = self._folder(trial)
        if folder is None:
            return {}
        shutil.rmtree(folder, ignore_errors=True)  # a run that was killed may have left it
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise MeasureError(f"No scratch folder could be made in {self.place.scratch}: {error.strerror}; name another folder.") from error
        return {"scratch_dir": str(folder)}

    def _clear(self, trial: Trial) -> None:
        """Remove a trial's scratch folder once nobody lives who could write there."""
        folder = self._folder(trial)
        if folder is not None:
            self.stage.dismiss([crew for crew in self.stage.crews if crew.trial is trial])
            shutil.rmtree(folder, ignore_errors=True)

    # ------------------------------------------------------------ endings

    def _goes_on(self, ended: TrialEnded) -> bool:
        """If a trial was too slow in a phase that bounds its speed, and others live, let it leave and return True: the bound needs their rates."""
        others = [crew for crew in self.stage.crews if crew not in (ended.crew, self.understudy) and crew.outcome is None]
        if not others or not _bounds_speed(ended.outcome):
            return False
        ended.crew.outcome = ended.outcome
        self.stage.dismiss([ended.crew])
        self.log.flag("partner_alone", f"trial {self.letters[ended.crew.trial.id]} was too slow; the others went on without it")
        return True

    def _end_all(self, ended: TrialEnded) -> None:
        """The culprit keeps its outcome, whoever lived beside it ends as interrupted; who only rested begins anew when its turn comes."""
        self._without_understudy()
        ended.crew.outcome = ended.outcome
        for crew in self.stage.crews:
            crew.outcome = crew.outcome or self._partner_died(ended.crew)
        self.stage.dismiss(list(self.stage.crews))

    def _partner_died(self, culprit: Crew) -> Outcome:
        letter = self.letters[culprit.trial.id]
        reason = Reason("partner_died", f"ended because its partner {letter} could not go on", {"partner": culprit.trial.id})
        return Outcome(State.INTERRUPTED, reason)

    # ------------------------------------------------------------ quads

    def _turns(self, crews: Sequence[Crew]) -> Turns:
        return Turns(
            stage=self.stage,
            crews=crews,
            letters=self.letters,
            block_s=self.round.block_s,
            thresholds=self.thresholds,
            read=self.read,
            tell=self.tell,
            log=self.log,
            rng=self.rng,
            indices=self.indices,
        )

    # ------------------------------------------------------------ records

    def look_back(self) -> None:
        """Note what only shows once everybody is gone."""
        left = sum(member.child.group_left for crew in self.stage.history for member in crew.members)
        if left:
            self.log.flag("memory_group_left", "the kernel did not let go of memory control groups; remove them by hand", groups=left)

    def readings(self) -> list[Reading]:
        """Return what was read; reasons are texts of workloads, which may name files."""
        return [replace(r, reason=self._plain(r.reason)) if r.reason is not None else r for r in self.log.readings]

    def _starts(self, trial: Trial) -> list[Crew]:
        return [crew for crew in self.stage.history if crew.trial.id == trial.id and crew is not self.understudy]

    def _stem(self, trial: Trial) -> str:
        """Return what this start's files are called: unique within a run, however often the trial is started."""
        return file_stem(f"{self.round.id}-{trial.id}-s{len(self._starts(trial))}")

    def outcome(self) -> Outcome:
        """Return the culprit's outcome, COMPLETED if there is none."""
        worst = [self._outcome_of(trial) for trial in self.round.trials]
        return min(worst, key=lambda outcome: BLAME.index(outcome.state))

    def _outcome_of(self, trial: Trial) -> Outcome:
        outcomes = [crew.outcome or STOPPED for crew in self._starts(trial) if not crew.killed]
        due = 2 if self.round.arrangement is Arrangement.TURNS_OF_TRIALS else 1
        if len(outcomes) < due and all(outcome == COMPLETED for outcome in outcomes):
            culprit = next((crew for crew in self.stage.history if crew.outcome not in (COMPLETED, STOPPED)), None)
            return STOPPED if culprit is None else self._partner_died(culprit)
        return self._without_places(min(outcomes, key=lambda outcome: BLAME.index(outcome.state)))

    def _without_places(self, outcome: Outcome) -> Outcome:
        if outcome.reason is None:
            return outcome
        return replace(outcome, reason=replace(outcome.reason, text=self._plain(outcome.reason.text)))

    def _plain(self, text: str) -> str:
        scratch = () if self.place.scratch is None else (self.place.scratch.resolve(),)
        return without_places(text, (*scratch, *self.place.import_roots))

    def trial_record(self, trial: Trial) -> TrialRecord:
        """Merge a trial's starts (lives, too): the worst outcome, the first one's phases, the last one's facts, the largest peak."""
        starts = self._starts(trial)
        asked = dict(next(process for process in trial.processes if process.role == trial.lead).settings)
        if not starts:
            return TrialRecord(trial.id, trial.cell, self._outcome_of(trial), asked)
        peaks = [crew.peak_rss_bytes for crew in starts if crew.peak_rss_bytes is not None]
        return TrialRecord(
            id=trial.id,
            cell=trial.cell,
            outcome=self._outcome_of(trial),
            asked=asked,
            used=starts[-1].used,
            phases_s=starts[0].phases_s,
            overlapped_start=any(crew.overlapped_start for crew in starts),
            peak_rss_bytes=max(peaks, default=None),
            log=next((member.log for member in starts[-1].members if member.process.role == trial.lead), None),
            proof=starts[-1].proof,
        )


BLAME = (State.FAILED, State.INVALID, State.TIMED_OUT, State.SKIPPED, State.INTERRUPTED, State.NOT_RUN, State.COMPLETED)
"""Whose outcome is the round's: the first of these. Whoever is skipped interrupts its partners, and such a round is not to be repeated."""


def _may_rest_beside(trial: Trial, other: Trial) -> bool:
    """Whether `other` may import together with `trial` and then rest while that runs: on CPUs, where an imported framework holds memory and nothing
    else, and neither within a limit of memory nor where each life is started anew."""
    devices = {process.settings.get("device") for each in (trial, other) for process in each.processes}
    limits = [process.memory_limit_bytes or process.cgroup_memory_bytes for each in (trial, other) for process in each.processes]
    return other is not trial and "gpu" not in devices and not any(limits) and Driver.SUPERVISE not in {trial.driver, other.driver}


def _bounds_speed(outcome: Outcome) -> bool:
    return outcome.state is State.TIMED_OUT and outcome.phase in GOES_ON_WITHOUT
