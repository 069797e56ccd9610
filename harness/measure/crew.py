"""The processes of a trial while they live, and the one place where the parent waits for them: with a deadline, an eye on deaths, an ear for `stop`.

It knows how to ask a crew something and what went wrong if no answer came. It does not know arrangements, blocks or rules of acceptance.
"""

from __future__ import annotations

import json
import math
import os
import re
import selectors
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.errors import Unsupported
from harness.measure.cgroup import GroupError
from harness.measure.channel import ChannelError
from harness.measure.load import group_members
from harness.measure.orphans import write_live
from harness.measure.process import Child, SpawnError, end, exit_reason, spawn
from harness.model import Outcome, Process, Reason, Scalar, State, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

POLL_S = 0.2
"""How often a wait looks at `stop`. The parent sleeps in between."""
LAST_WORDS_S = 2.0
"""How long a worker whose channel has closed may take to be dead, before it counts as one that will not say why."""
EVENT_FIELDS = 7
"""name, value, unit, t0_ns, t1_ns, step, reason"""
OUT_OF_MEMORY_ERRORS = ("MemoryError", "ResourceExhaustedError", "OutOfMemoryError")


class TrialEnded(Exception):  # noqa: N818 (an ending, not always an error)
    """A trial cannot go on: which crew, and how it ended."""

    def __init__(self, crew: Crew, outcome: Outcome) -> None:
        super().__init__(outcome.reason.text if outcome.reason else outcome.state.value)
        self.crew = crew
        self.outcome = outcome


class Stopped(Exception):  # noqa: N818 (nothing went wrong)
    """The caller's `stop()` said so."""


@dataclass(eq=False)
class Member:
    """One process of a crew; `takes_steps` is known once it is built, `finished` is true once it has said `done` and may leave.

    `given` are settings of this session's own, such as its scratch folder, which its worker gets beside those of the process and no record holds.
    """

    process: Process
    child: Child
    log: str
    given: Mapping[str, Scalar] = field(default_factory=dict)
    takes_steps: bool = False
    finished: bool = False
    inbox: list[dict[str, Any]] = field(default_factory=list)


@dataclass(eq=False)
class Crew:
    """A trial that has been started. `blocks_run` counts the lead's own blocks, ghost steps go into every other one.

    `killed`: this life of a supervised trial was ended on purpose; its outcome is COMPLETED, and another life follows.
    """

    trial: Trial
    members: list[Member]
    overlapped_start: bool = False
    phases_s: dict[str, float] = field(default_factory=dict)
    asked: dict[str, Scalar] = field(default_factory=dict)
    used: dict[str, Scalar] = field(default_factory=dict)
    outcome: Outcome | None = None
    peak_rss_bytes: int | None = None
    proof: str | None = None
    step_s: float | None = None
    blocks_run: int = 0
    killed: bool = False

    @property
    def lead(self) -> Member:
        """The member that speaks for the crew."""
        return next(member for member in self.members if member.process.role == self.trial.lead)

    def fail(self, code: str, text: str, numbers: Mapping[str, Scalar] | None = None, *, phase: str, state: State = State.FAILED) -> TrialEnded:
        """Return (for raising) the end of this trial."""
        return TrialEnded(self, Outcome(state, Reason(code, text, dict(numbers or {})), phase))


@dataclass
class Stage:
    """All crews that live at the moment (and, in `history`, all that ever did), and how to wait for them. Leaving it ends everybody."""

    stop: Callable[[], bool]
    live_path: Path
    import_roots: tuple[Path, ...]
    logs: Path
    transport: str = "pipe"
    crews: list[Crew] = field(default_factory=list)
    history: list[Crew] = field(default_factory=list)

    def __enter__(self) -> Stage:  # noqa: PYI034 (Self needs Python 3.11)
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss(list(self.crews))

    def spawn(self, trial: Trial, log_stem: str, given: Mapping[str, Scalar] | None = None) -> Crew:
        """Start all processes of a trial; raises TrialEnded. They are on the stage, and in live.json, before anything is awaited."""
        asked = dict(next(process for process in trial.processes if process.role == trial.lead).settings)
        crew = Crew(trial, [], asked=asked)
        self.crews.append(crew)
        self.history.append(crew)
        for process in trial.processes:
            name = f"{log_stem}-{process.role}{process.rank or ''}.log"
            try:
                child = spawn(process, log=self.logs / name, transport=self.transport)
            except SpawnError as error:
                raise crew.fail("spawn_failed", f"{_who(crew, process)}: {error}", phase="spawn") from error
            except GroupError as error:
                numbers = {"limit_bytes": process.cgroup_memory_bytes}
                raise crew.fail("cgroup_refused", f"{_who(crew, process)}: {error}", numbers, phase="spawn") from error
            crew.members.append(Member(process, child, name, given or {}))
            self._write_live()
        return crew

    def dismiss(self, crews: Sequence[Crew]) -> None:
        """End these crews' processes and forget them."""
        end([member.child for crew in crews for member in crew.members])
        self.crews = [crew for crew in self.crews if crew not in crews]
        self._write_live()

    def _write_live(self) -> None:
        living = [(m.child.pid, m.child.start_ticks, c.trial.id, m.process.role) for c in self.crews for m in c.members]
        write_live(self.live_path, living)

    def cpu_groups(self) -> dict[int, tuple[int, ...]]:
        """Return each living worker's pid with all pids that count as it."""
        return group_members(member.child.pid for crew in self.crews for member in crew.members)

    def greet(self, crews: Sequence[Crew]) -> None:
        """Wait until every process has opened its channel and said hello."""
        everybody = {crew.trial.id: list(crew.members) for crew in crews}
        hellos = self._await(everybody, "hello", "spawn", lambda trial: trial.deadlines.spawn_s, {})
        for crew in crews:
            crew.used["python"] = scalar(hellos[crew.trial.id].get("python"))
            crew.phases_s["spawn"] = time.perf_counter() - crew.lead.child.started_s

    def ask(
        self,
        crews: Sequence[Crew],
        command: str,
        expected: str,
        phase: str,
        deadline_s: Callable[[Trial], float],
        *,
        content: Callable[[Member], Mapping[str, Any]] = lambda _: {},
        only: Callable[[Member], bool] = lambda _: True,
        numbers: Mapping[str, Scalar] | None = None,
        on_event: Callable[[Crew, list[Any]], None] | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Send `command` to the crews' members at once and wait for all of them; returns the lead's answer by trial id.

        `on_event` is given each event that a worker sends before its answer; without it, an event is something that nobody asked for.
        Raises TrialEnded for the first crew that errs, dies or is late (with `numbers` in the reason), Stopped if the caller wants to stop.
        """
        waiting: dict[str, list[Member]] = {}
        for crew in crews:
            waiting[crew.trial.id] = [member for member in crew.members if only(member) or member is crew.lead]
            for member in waiting[crew.trial.id]:
                self._send(crew, member, {"cmd": command, **content(member)}, phase)
        return self._await(waiting, expected, phase, deadline_s, numbers or {}, on_event=on_event)

    def _send(self, crew: Crew, member: Member, message: Mapping[str, Any], phase: str) -> None:
        channel = member.child.channel
        try:
            if channel is not None:  # always, once it was greeted
                channel.send(message)
        except ChannelError:
            raise self._death(crew, member, phase) from None

    def _await(
        self,
        waiting: dict[str, list[Member]],
        expected: str,
        phase: str,
        deadline_s: Callable[[Trial], float],
        numbers: Mapping[str, Scalar],
        *,
        on_event: Callable[[Crew, list[Any]], None] | None = None,
    ) -> dict[str, dict[str, Any]]:
        began_s = time.monotonic()
        answers: dict[str, dict[str, Any]] = {}
        pending = {name: list(members) for name, members in waiting.items()}
        with selectors.DefaultSelector() as selector:
            for crew in self.crews:
                for member in crew.members:
                    for fd in _watched(member):
                        selector.register(fd, selectors.EVENT_READ)
            while any(pending.values()):
                if self.stop():
                    raise Stopped
                self._check_deadlines(pending, began_s, phase, deadline_s, numbers)
                next_s = min(began_s + deadline_s(crew.trial) for crew in self.crews if pending.get(crew.trial.id)) - time.monotonic()
                selector.select(max(0.0, min(POLL_S, next_s)) if selector.get_map() else POLL_S)
                for crew in self.crews:
                    for member in crew.members:
                        self._hear(selector, crew, member, phase)
                        if on_event is not None and member in pending.get(crew.trial.id, []):
                            _take_events(crew, member, phase, on_event)
                        answer = self._take(crew, member, pending, expected, phase)
                        if answer is not None and member is crew.lead:
                            answers[crew.trial.id] = answer
                        if answer is not None and member.finished:
                            for fd in _watched(member, also_finished=True):
                                selector.unregister(fd)
        return answers

    def _take(self, crew: Crew, member: Member, pending: Mapping[str, list[Member]], expected: str, phase: str) -> dict[str, Any] | None:
        """Return the answer of a member that has one, and strike it off; raises TrialEnded for what nobody asked."""
        if not member.inbox:
            return None
        answer = _checked(crew, member, member.inbox.pop(0), expected, phase)
        owed = pending.get(crew.trial.id, [])
        if member not in owed or member.inbox:
            raise crew.fail("protocol", f"{_who(crew, member.process)} said more than it was asked", phase=phase)
        owed.remove(member)
        member.finished = expected == "done"
        member.takes_steps = bool(answer.get("takes_steps", member.takes_steps))
        return answer

    def _check_deadlines(
        self,
        pending: Mapping[str, list[Member]],
        began_s: float,
        phase: str,
        deadline_s: Callable[[Trial], float],
        numbers: Mapping[str, Scalar],
    ) -> None:
        for crew in self.crews:
            late = pending.get(crew.trial.id)
            limit_s = deadline_s(crew.trial)
            if late and time.monotonic() - began_s > limit_s:
                text = f"{_who(crew, late[0].process)} did not finish {phase} within {limit_s:g} s"
                raise crew.fail("deadline", text, {"deadline_s": limit_s, **numbers}, phase=phase, state=State.TIMED_OUT)

    def _hear(self, selector: selectors.BaseSelector, crew: Crew, member: Member, phase: str) -> None:
        """Take in what a worker has sent. Its death counts only after its last words have been read."""
        child = member.child
        if member.finished:
            return
        dead = child.dead()
        if child.channel is None:
            child.channel = child.door.accept()
            if child.channel is not None and child.door.fileno() != child.channel.read_fd:
                selector.unregister(child.door.fileno())
                child.door.close()
                selector.register(child.channel.read_fd, selectors.EVENT_READ)
        if child.channel is not None and not child.channel.closed:
            try:
                member.inbox += child.channel.receive()
            except ChannelError as error:
                raise crew.fail("protocol", f"{_who(crew, member.process)} {error}", phase=phase) from error
        closed = child.channel is not None and child.channel.closed
        if (dead or closed) and not member.inbox:
            raise self._death(crew, member, phase)

    def _death(self, crew: Crew, member: Member, phase: str) -> TrialEnded:
        """Collect a worker that is gone or going and say how it ended."""
        if not member.child.dead(LAST_WORDS_S):
            return crew.fail("silent", f"{_who(crew, member.process)} closed its channel and said nothing more", phase=phase)
        code = member.child.reap()
        return TrialEnded(crew, Outcome(State.FAILED, exit_reason(code, _who(crew, member.process), member.child.memory_kill), phase))


def _watched(member: Member, *, also_finished: bool = False) -> list[int]:
    """Return the descriptors that tell of a member: its death, and its channel or the door through which that will come."""
    child = member.child
    if member.finished and not also_finished:
        return []
    channel = child.door.fileno() if child.channel is None else child.channel.read_fd
    return [channel] if child.pidfd is None else [child.pidfd, channel]


def _take_events(crew: Crew, member: Member, phase: str, on_event: Callable[[Crew, list[Any]], None]) -> None:
    """Hand on the events at the head of what a member has sent: the answer that it owes comes after them."""
    while member.inbox and member.inbox[0].get("type") == "event":
        event = member.inbox.pop(0).get("event")
        if not isinstance(event, list) or len(event) != EVENT_FIELDS:
            raise crew.fail("protocol", f"{_who(crew, member.process)} told an event that is none: {str(event)[:80]}", phase=phase)
        on_event(crew, event)


def _checked(crew: Crew, member: Member, answer: dict[str, Any], expected: str, phase: str) -> dict[str, Any]:
    """Return the answer if it is the one that was due; raises TrialEnded for an error or anything else."""
    if answer.get("type") == expected:
        return answer
    if answer.get("type") == "error":
        raise complained(crew, member, answer, phase)
    raise crew.fail("protocol", f"{_who(crew, member.process)} answered {answer.get('type')!r} where {expected!r} was due", phase=phase)


def complained(crew: Crew, member: Member, told: Mapping[str, Any], phase: str) -> TrialEnded:
    """Return the end of a trial by an exception that its worker told: with the code that this carried, else by what kind it is.

    What cannot be had here is skipped, by that code: no repeat would find it.
    """
    kind, text, code = str(told.get("error")), str(told.get("text")), told.get("code")
    if not isinstance(code, str) or not code:
        code = "out_of_memory" if kind in OUT_OF_MEMORY_ERRORS else "error"
    numbers = {str(name): scalar(value) for name, value in dict(told.get("numbers") or {}).items()}
    if code == Unsupported.code:
        return crew.fail(code, f"not to be had here: {text}", numbers, phase=phase, state=State.SKIPPED)
    return crew.fail(code, f"{_who(crew, member.process)}: {kind}: {text}", {**numbers, "error": kind}, phase=phase)


def _who(crew: Crew, process: Process) -> str:
    return "the worker" if len(crew.trial.processes) == 1 else f"the worker in the role {process.role!r}"


def scalar(value: object) -> Scalar:
    """Return a fact as a plain value: lists and dicts become JSON text, non-finite numbers None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return json.dumps(value, sort_keys=True)


def file_stem(text: str) -> str:
    """Return `text` with all but letters, digits, dot, dash and underscore replaced, for use in a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def without_places(text: str, roots: Iterable[Path]) -> str:
    """Return `text` without this machine's paths: records travel, so they name files relative to the project or the home folder."""
    for root in roots:
        text = text.replace(f"{root}/", "")
    home = os.environ.get("HOME", "")
    return text.replace(f"{home}/", "~/") if len(home) > 1 else text
