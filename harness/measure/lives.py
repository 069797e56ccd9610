"""How a trial's processes come to life, get ready, answer a single call or do a job, and are seen off: the phases around the blocks.

It speaks the worker's protocol through a stage; arrangements and acceptance are decided elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.measure.blocks import Log, Tell, check_counts
from harness.measure.crew import Crew, Member, Stage, complained, scalar
from harness.measure.lookout import TIMED_CALL, Lookout
from harness.model import COMPLETED, Driver, Reading, Scalar, State, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

WARM_CALLS = 3
WARM_SHARE = 0.1
"""Warm-up calls grow until one lasts this share of a block (at most WARM_CALLS of them), so that a block's steps can be chosen from it."""


def start(stage: Stage, trials: Sequence[Trial], stems: Sequence[str], tell: Tell, given: Mapping[str, Scalar] | None = None) -> list[Crew]:
    """Start trials together and return their crews: past their first step, or, for those that neither run blocks nor probe, built.

    Start-ups overlap; on GPUs only up to built, because autotuning times kernels. `given` are settings beside the processes' own, for no record.
    """
    crews = launch(stage, trials, stems, tell, [given] * len(trials))
    make_ready(stage, crews, tell)
    return crews


def launch(stage: Stage, trials: Sequence[Trial], stems: Sequence[str], tell: Tell, given: Sequence[Mapping[str, Scalar] | None]) -> list[Crew]:
    """Start trials together and return their crews once their imports are done: from then on they rest until `make_ready`.

    `given` are each trial's settings beside its processes' own, for no record.
    """
    crews = []
    for trial, stem, own in zip(trials, stems, given, strict=True):
        crews.append(stage.spawn(trial, stem, own))
        crews[-1].overlapped_start = len(trials) > 1
    stage.greet(crews)
    for crew in crews:
        tell("phase", crew.trial.id, "importing", {})
    roots = [str(root.resolve()) for root in stage.import_roots]
    answers = stage.ask(crews, "start", "started", "import", lambda t: t.deadlines.import_s, content=lambda member: _start_of(member, roots))
    for crew in crews:
        crew.phases_s["import"] = answers[crew.trial.id]["seconds"]
        crew.used.update({name: scalar(value) for name, value in answers[crew.trial.id]["facts"].items()})
    return crews


def make_ready(stage: Stage, crews: Sequence[Crew], tell: Tell) -> None:
    """Build these crews' workloads together and, for drivers of blocks, take the first step."""
    for crew in crews:
        tell("phase", crew.trial.id, "building", {})
    answers = stage.ask(crews, "build", "built", "build", lambda t: t.deadlines.build_s)
    for crew in crews:
        crew.phases_s["build"] = answers[crew.trial.id]["seconds"]
    stepping = [crew for crew in crews if crew.trial.driver is Driver.BLOCKS or crew.trial.call == "probe"]
    on_gpu = any(crew.asked.get("device") == "gpu" for crew in stepping)
    for group in [[crew] for crew in stepping] if on_gpu else [stepping]:
        _first_steps(stage, group, tell)


def _start_of(member: Member, roots: list[str]) -> dict[str, Any]:
    process = member.process
    return {
        "roots": roots,
        "runtime": process.runtime,
        "target": process.target,
        "settings": {**process.settings, **member.given},
        "cpus": None if process.cpus is None else list(process.cpus),
        "memory_limit_bytes": process.memory_limit_bytes,
        "cgroup_procs": None if member.child.group is None else str(member.child.group.procs),
    }


def steps_taken(member: Member) -> bool:
    """Whether this process runs steps; others of its crew only stand by."""
    return member.takes_steps


def _first_steps(stage: Stage, crews: Sequence[Crew], tell: Tell) -> None:
    """Trace and then run the first step of these crews, together."""
    if not crews:
        return
    for crew in crews:
        tell("phase", crew.trial.id, "first step", {})
    answers = stage.ask(crews, "trace", "traced", "trace", lambda t: t.deadlines.trace_s, only=steps_taken)
    for crew in crews:
        crew.phases_s["trace"] = answers[crew.trial.id]["seconds"]
    answers = stage.ask(crews, "first", "first", "first", lambda t: t.deadlines.first_s, only=steps_taken, numbers={"steps": 1})
    for crew in crews:
        crew.phases_s["first"] = answers[crew.trial.id]["seconds"]
        check_counts(crew, answers[crew.trial.id], 1, 0, "first")


def warm(stage: Stage, crew: Crew, block_s: float, tell: Tell) -> None:
    """Run warm-up steps and learn how long a step takes; then check what was used. One crew at a time, because a time-out here bounds its speed."""
    tell("phase", crew.trial.id, "warming up", {})
    steps, spent_s = 1, 0.0
    for _ in range(WARM_CALLS):
        count = steps
        answer = stage.ask(
            [crew],
            "warm",
            "warm",
            "warmup",
            lambda t: t.deadlines.warmup_s,
            content=lambda _: {"steps": count},  # noqa: B023 (called before the loop goes on)
            only=steps_taken,
            numbers={"steps": count},
        )[crew.trial.id]
        check_counts(crew, answer, count, 0, "warmup")
        spent_s += answer["seconds"]
        crew.step_s = answer["seconds"] / count
        if answer["seconds"] >= WARM_SHARE * block_s:
            break
        steps = max(count + 1, round(2 * WARM_SHARE * block_s / max(crew.step_s, 1e-9)))
    crew.phases_s["warmup"] = spent_s
    check_facts(stage, crew)


def check_facts(stage: Stage, crew: Crew) -> None:
    """Record what was really used; raises TrialEnded (invalid) where the workload says that it is not what was asked."""
    told = stage.ask([crew], "facts", "facts", "facts", lambda t: t.deadlines.end_s)[crew.trial.id]
    crew.used.update({name: scalar(value) for name, value in {**told["runtime"], **told["workload"]}.items() if name not in crew.lead.given})
    for name, value in told["workload"].items():
        if name in crew.asked and crew.asked[name] != scalar(value):
            asked, used = crew.asked[name], scalar(value)
            numbers: dict[str, Scalar] = {"key": name, "asked": asked, "used": used}
            raise crew.fail("asked_differs", f"asked for {name}={asked} but {name}={used} was used", numbers, phase="facts", state=State.INVALID)


def call_once(stage: Stage, crew: Crew, proof_path: Path, log: Log, tell: Tell, *, lookout: Lookout) -> None:
    """Let a `once` workload do its whole thing; its readings go to `log`, a proof's file name to the crew."""
    trial = crew.trial
    tell("timed" if trial.call == TIMED_CALL else "phase", trial.id, trial.call, {})
    content = {"call": trial.call, "path": str(proof_path.resolve())}
    before = lookout.now()
    answer = stage.ask([crew], "once", "once", "once", lambda t: t.deadlines.once_s, content=lambda _: content, only=lambda _: False)[trial.id]
    after = lookout.now()
    tell("phase", trial.id, "ending", {})
    crew.phases_s["once"] = answer["seconds"]
    crew.proof = answer["proof"]
    for name, value, unit, reason in answer["values"]:
        log.readings.append(replace(_reading(crew, name, value, unit, reason), t0_ns=answer["t0_ns"], t1_ns=answer["t1_ns"]))
    if trial.call == TIMED_CALL:
        lookout.note(crew, before, after, "the call")
    check_facts(stage, crew)


def run_job(stage: Stage, crew: Crew, log: Log, tell: Tell, *, lookout: Lookout) -> None:
    """Let a `job` workload do all of its steps. Its events go to `log`, also those before an error, which then raises TrialEnded.

    They come with the answer: a parent that wakes up for each of them would be a load of its own.
    """
    tell("timed", crew.trial.id, "job", {})
    before = lookout.now()
    answer = ask_job(stage, crew)
    lookout.note(crew, before, lookout.now(), "the job")
    tell("phase", crew.trial.id, "ending", {})
    keep_job(stage, crew, answer, log)


def ask_job(stage: Stage, crew: Crew, on_event: Callable[[Crew, list[Any]], None] | None = None) -> dict[str, Any]:
    """Return the worker's answer to `job`, which may tell of an error. `on_event` is given each event as it happens."""
    content = {"stream": on_event is not None}
    limit = crew.trial.deadlines.job_s
    answers = stage.ask([crew], "job", "job", "job", lambda _: limit, content=lambda _: content, only=lambda _: False, on_event=on_event)
    crew.phases_s["job"] = answers[crew.trial.id]["seconds"]
    return answers[crew.trial.id]


def keep_job(stage: Stage, crew: Crew, answer: Mapping[str, Any], log: Log) -> None:
    """Record what a job told. Raises TrialEnded: failed if it failed, invalid where it did other steps than it was asked for, or traced them anew."""
    for name, value, unit, t0_ns, t1_ns, step, reason in answer["events"]:
        log.readings.append(replace(_reading(crew, name, value, unit, reason), t0_ns=t0_ns, t1_ns=t1_ns, n=step))
    if answer["error"] is not None:
        raise complained(crew, crew.lead, answer["error"], "job")
    _check_job_steps(crew, answer["events"])
    _check_job_traces(crew, answer["events"])
    check_facts(stage, crew)


def _check_job_steps(crew: Crew, events: Sequence[Sequence[Any]]) -> None:
    """Hold the last event "job" against the steps asked for, if there are any: [name, work, unit, t0_ns, t1_ns, steps done, reason]."""
    asked = crew.asked.get("steps")
    if not isinstance(asked, int):
        return
    job = next((event for event in reversed(events) if event[0] == "job"), None)
    if job is None or job[5] is None:
        text = "the job told no event `job` that says how many steps it did"
        raise crew.fail("no_work", text, {"asked": asked}, phase="job", state=State.INVALID)
    check_counts(crew, {"work": job[1], "steps": job[5], "ghost": 0}, asked, 0, "job")


def _check_job_traces(crew: Crew, events: Sequence[Sequence[Any]]) -> None:
    """Hold events "timed_traces" against none at all, as blocks are held."""
    traces = sum(event[1] or 0 for event in events if event[0] == "timed_traces")
    if traces > 0:
        text = f"traced during the timed part of the job: {traces:g} new traces, so its time holds more than steps"
        raise crew.fail("traced_in_job", text, {"traces": traces}, phase="job", state=State.INVALID)


def finish(stage: Stage, crews: Sequence[Crew], log: Log, clock: Callable[[], float]) -> None:
    """See these crews off: health, peaks, then `done`. Raises TrialEnded (invalid) for a loss that is not finite."""
    began_s = clock()
    healths = stage.ask(crews, "health", "health", "end", lambda t: t.deadlines.end_s, only=lambda _: False)
    for crew in crews:
        _check_health(crew, healths[crew.trial.id])
    peaks = stage.ask(crews, "peak", "peak", "end", lambda t: t.deadlines.end_s, only=lambda _: False)
    for crew in crews:
        crew.peak_rss_bytes = peaks[crew.trial.id]["peak_rss_bytes"]
        for name, (value, unit, reason) in peaks[crew.trial.id]["memory"].items():
            log.readings.append(_reading(crew, name, value, unit, reason))
    stage.ask(crews, "done", "done", "end", lambda t: t.deadlines.end_s)
    for crew in crews:
        for member in crew.members:
            member.child.dead(max(0.0, crew.trial.deadlines.end_s - (clock() - began_s)))
            if (code := member.child.reap()) != 0:  # its figures were told before, so they stand
                log.flag("unclean_exit", "a worker that had said all it had to say did not leave cleanly; its log has more", exit_code=code)
        crew.outcome = COMPLETED
        crew.phases_s["end"] = clock() - began_s
    stage.dismiss(crews)


def _check_health(crew: Crew, health: dict[str, Any]) -> None:
    if health["finite"] is not False:
        return
    step = health["told"].get("first_non_finite_step")
    where = f" at step {step}" if step is not None else ""
    numbers = {name: scalar(value) for name, value in health["told"].items()}
    raise crew.fail("non_finite_loss", f"non-finite loss{where}", numbers, phase="end", state=State.INVALID)


def _reading(crew: Crew, name: str, value: object, unit: str, reason: str | None) -> Reading:
    """Return a reading that is no block. What is no finite number becomes null with a reason."""
    number: float | None = None
    if isinstance(value, (bool, int, float)):
        number = value if isinstance(value, float) else int(value)
    elif reason is None:
        reason = "the workload gave no finite number" if value is None else f"not a number: {str(value)[:80]}"
    return Reading(crew.trial.id, name, number, unit, reason, role=crew.trial.lead, rank=crew.lead.process.rank)
