"""The child that measures: builds one workload and runs it on request, keeping the clock and the device sync.

Standard library only and Python 3.8 syntax, since a level may name an old interpreter; it is run as a script by path. It knows nothing of plans,
trials or results: it answers one JSON line to each JSON line on a channel of its own, while stdout and stderr belong to the log.
"""

# Old interpreters are served: Dict and Optional, os.path. A workload is whatever offers the right methods: Any.
# ruff: noqa: UP006, UP031, UP035, UP045, PTH100, PTH119, PTH120, PTH123, ANN401

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional

PROTOCOL = 1
TOKEN_VARIABLE = "SPEEDPROOF_CHANNEL_TOKEN"  # noqa: S105 (a name, not a secret)
PR_SET_PDEATHSIG = 1
LONGEST_TEXT = 500


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that started it ends, and leave at once if that has happened already."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def strict(value: Any) -> Any:
    """Return `value` as JSON can carry it: non-finite numbers become None, unknown objects (array scalars, paths) numbers or text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    item = getattr(value, "item", None)
    if callable(item):
        return strict(item())
    return str(value)


class Channel:
    """JSON lines to and from the parent over two file descriptors, closed to children of this process."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        os.set_inheritable(read_fd, False)
        os.set_inheritable(write_fd, False)
        self._lines = os.fdopen(read_fd, "r", encoding="utf-8", newline="\n")
        self._write_fd = write_fd

    def receive(self) -> Optional[Dict[str, Any]]:
        """Block until the parent asks something; None once it has closed its end."""
        line = self._lines.readline()
        return json.loads(line) if line else None

    def send(self, message: Dict[str, Any]) -> None:
        """Write one line; what JSON cannot carry becomes null."""
        data = (json.dumps(strict(message), allow_nan=False) + "\n").encode("utf-8")
        while data:
            data = data[os.write(self._write_fd, data) :]


def open_channel(arguments: List[str]) -> Channel:
    """Open `pipe READ_FD WRITE_FD`, or `connect HOST PORT`: a socket opened back, on which the one-time token is the first line."""
    kind, first, second = arguments
    if kind == "pipe":
        return Channel(int(first), int(second))
    connection = socket.create_connection((first, int(second)), timeout=30)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    channel = Channel(os.dup(connection.fileno()), connection.detach())
    channel.send({"token": os.environ.pop(TOKEN_VARIABLE, "")})
    return channel


def offers(workload: Any, method: str) -> bool:
    """Whether the workload brings `method` itself; the contract's own base class, `Workload`, does not count."""
    owner = next((kind for kind in type(workload).__mro__ if method in vars(kind)), None)
    return owner is not None and owner.__name__ != "Workload"


def peak_rss_bytes() -> Optional[int]:
    """This process's largest resident set so far (VmHWM, which starts anew at exec), None where the kernel does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)
    except OSError:
        return None


class GroupRefusedError(Exception):
    """The kernel does not let this process into its memory control group."""

    code = "cgroup_refused"


def enter_group(entrance: str) -> None:
    """Move this process into the control group whose list of processes is the file `entrance`; raises GroupRefusedError."""
    try:
        with open(entrance, "w", encoding="ascii") as pids:
            pids.write(str(os.getpid()))
    except OSError as error:
        raise GroupRefusedError("could not enter its memory control group: %s; run as root or in a delegated group" % error.strerror) from error


def complaint(error: BaseException) -> Dict[str, Any]:
    """Return what the parent is told of an exception: its class, one line of text, and the code (text) and numbers that it carries, if any."""
    code, numbers = getattr(error, "code", None), getattr(error, "numbers", None)
    return {
        "error": type(error).__name__,
        "text": " ".join(str(error).split())[:LONGEST_TEXT],
        "code": code if isinstance(code, str) else None,
        "numbers": numbers if isinstance(numbers, dict) else {},
    }


class Teller:
    """Takes what a job tells on its way, from any of its threads: kept for the answer and, where `send` is given, sent at once."""

    def __init__(self, send: Optional[Callable[[Dict[str, Any]], None]]) -> None:
        self._send = send
        self._events: List[List[Any]] = []
        self._lock = threading.Lock()
        self._over = False

    def __call__(self, event: Any) -> None:
        """Take one event: name, value, unit, t0_ns, t1_ns, step, reason. Raises ValueError for another shape, RuntimeError once the job is over."""
        name, value, unit, t0_ns, t1_ns, step, reason = event
        whole = [None if number is None else int(number) for number in (t0_ns, t1_ns, step)]
        told = [str(name), strict(value), str(unit)] + whole + [None if reason is None else str(reason)]  # noqa: RUF005 (as the fields come)
        with self._lock:
            if self._over:
                raise RuntimeError("the job is over: nothing more can be told of it")
            self._events.append(told)
            if self._send is not None:
                self._send({"type": "event", "event": told})

    def close(self) -> List[List[Any]]:
        """Take nothing more, and return all that was told: an event after the answer would be one that nobody asked for."""
        with self._lock:
            self._over = True
            return self._events


class Worker:
    """One workload and what may be asked of it: each public method answers the command of its name (COMMANDS). `send` is for what is told meanwhile."""

    # ruff: noqa: ARG002 (every command is called the same way, also those that need nothing from the message)

    def __init__(self, send: Optional[Callable[[Dict[str, Any]], None]] = None) -> None:
        self._send = send
        self.runtime: Any = None
        self.builder: Any = None
        self.workload: Any = None
        self.settings: Dict[str, Any] = {}
        self.steady = False

    def _sync(self) -> None:
        """Wait until the device, and whatever the workload itself leaves pending, is done."""
        self.runtime.sync()
        own = getattr(self.workload, "sync", None)
        if own is not None:
            own()

    def _timed(self, action: Callable[[], Any], collect: bool = False) -> Dict[str, Any]:
        """Run `action` with a full sync before and after; nothing but the clock stands between the syncs and the work. `collect`: it is a long one,
        in which garbage has to be collected."""
        self._sync()
        collecting = gc.isenabled()
        if not collect:
            gc.disable()  # a collection in one arm's block only would be counted as that arm's slowness
        try:
            t0_ns = time.perf_counter_ns()
            result = action()
            self._sync()
            t1_ns = time.perf_counter_ns()
        finally:
            if collecting:
                gc.enable()
        return {"t0_ns": t0_ns, "t1_ns": t1_ns, "seconds": (t1_ns - t0_ns) / 1e9, "result": result}

    def start(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Set limits, then import and pin the framework and import the workload's module."""
        if ask.get("cgroup_procs") is not None:
            enter_group(ask["cgroup_procs"])
        if ask.get("cpus") is not None:
            os.sched_setaffinity(0, ask["cpus"])
        if ask.get("memory_limit_bytes") is not None:
            import resource  # noqa: PLC0415 (the limit is rarely asked for)

            limit = int(ask["memory_limit_bytes"])
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        sys.path[:0] = [root for root in ask["roots"] if root not in sys.path]
        self.settings = ask["settings"]
        t0_ns = time.perf_counter_ns()
        self.runtime = importlib.import_module("harness.measure.runtime." + ask["runtime"])
        self.runtime.start(self.settings)
        module, _, function = ask["target"].partition(":")
        self.builder = getattr(importlib.import_module(module), function)
        seconds = (time.perf_counter_ns() - t0_ns) / 1e9
        return {"type": "started", "seconds": seconds, "facts": self.runtime.facts()}

    def build(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Build the workload with all settings."""
        t0_ns = time.perf_counter_ns()
        self.workload = self.builder(**self.settings)
        self._sync()
        return {"type": "built", "seconds": (time.perf_counter_ns() - t0_ns) / 1e9, "takes_steps": offers(self.workload, "run")}

    def trace(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Trace the step without running it, where the workload can."""
        timed = self._timed(getattr(self.workload, "trace", lambda: None))
        return {"type": "traced", "seconds": timed["seconds"], "traces": self._traces()}

    def _traces(self) -> int:
        return int(getattr(self.workload, "traces", lambda: 0)())

    def first(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Run the first step, which may compile and tune."""
        return self._steps("first", 1, 0)

    def warm(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Run warm-up steps."""
        return self._steps("warm", int(ask["steps"]), 0)

    def block(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Run a timed block, with ghost steps if asked. The first one is told to the runtime beforehand: warm-up is over."""
        if not self.steady:
            self.steady = True
            getattr(self.runtime, "steady", lambda: None)()
        return self._steps("block", int(ask["steps"]), int(ask["ghost"]))

    def _steps(self, kind: str, steps: int, ghost: int) -> Dict[str, Any]:
        """Run `steps` counted and then `ghost` uncounted steps as one timed stretch."""
        run = self.workload.run
        before = self._traces()
        if ghost:
            timed = self._timed(lambda: (run(steps), run(ghost)))
            tally, extra = timed["result"]
        else:
            timed = self._timed(lambda: run(steps))
            tally, extra = timed["result"], None
        return {
            "type": kind,
            "t0_ns": timed["t0_ns"],
            "t1_ns": timed["t1_ns"],
            "seconds": timed["seconds"],
            "steps": int(tally.steps),
            "work": float(tally.work),
            "unit": str(tally.unit),
            "events": [[str(name), value, str(unit)] for name, value, unit in tally.events],
            "ghost": int(extra.steps) if extra is not None else 0,
            "traces_before": before,
            "traces_after": self._traces(),
        }

    def once(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Do the whole of a `once` workload: readings go over the channel, a proof's arrays to the file named."""
        timed = self._timed(getattr(self.workload, ask["call"]))
        answer = {"type": "once", "t0_ns": timed["t0_ns"], "t1_ns": timed["t1_ns"], "seconds": timed["seconds"], "values": [], "proof": None}
        if ask["call"] == "proof":
            self.runtime.write_proof(ask["path"], timed["result"])
            answer["proof"] = os.path.basename(ask["path"])
        else:
            answer["values"] = [[value.name, value.value, value.unit, value.reason] for value in timed["result"]]
        return answer

    def job(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Do all the steps of a `job` workload. Its events are answered together, also those before an error; `stream` sends each at once as well."""
        tell = Teller(self._send if ask.get("stream") else None)
        answer: Dict[str, Any] = {"type": "job", "t0_ns": time.perf_counter_ns(), "error": None}
        try:
            timed = self._timed(lambda: self.workload.job(tell), collect=True)
            answer.update(t0_ns=timed["t0_ns"], t1_ns=timed["t1_ns"])
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (as in `answer`, but what was told so far must not be lost)
            traceback.print_exc()
            sys.stderr.flush()
            answer.update(t1_ns=time.perf_counter_ns(), error=complaint(error))
        answer.update(seconds=(answer["t1_ns"] - answer["t0_ns"]) / 1e9, events=tell.close())
        return answer

    def facts(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Say what is really in use, by the runtime and by the workload."""
        return {"type": "facts", "runtime": self.runtime.facts(), "workload": dict(getattr(self.workload, "facts", dict)())}

    def health(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """The loss and whether it is finite; `finite` is told here because JSON cannot carry what is not."""
        told = dict(getattr(self.workload, "health", dict)())
        loss = told.get("loss")
        finite = told.get("finite")
        if loss is not None and not math.isfinite(float(loss)):
            finite = False
        return {"type": "health", "finite": None if finite is None else bool(finite), "told": told}

    def peak(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Say the resident peak and what the runtime knows of memory."""
        return {"type": "peak", "peak_rss_bytes": peak_rss_bytes(), "memory": self.runtime.memory()}

    def done(self, ask: Dict[str, Any]) -> Dict[str, Any]:
        """Let the workload give back what outlives the process; the last answer."""
        getattr(self.workload, "close", lambda: None)()
        return {"type": "done"}


COMMANDS = ("start", "build", "trace", "first", "warm", "block", "once", "job", "facts", "health", "peak", "done")


def answer(worker: Worker, ask: Dict[str, Any]) -> Dict[str, Any]:
    """Return the reply to one command; an exception becomes a reply too, its traceback goes to the log."""
    name = ask.get("cmd")
    if name not in COMMANDS:
        return {"type": "error", "error": "ValueError", "text": "unknown command %r" % (name,)}
    try:
        reply: Dict[str, Any] = getattr(worker, name)(ask)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (also SystemExit: a workload that leaves quietly must not look like one that is done)
        traceback.print_exc()
        sys.stderr.flush()
        return {"type": "error", **complaint(error)}
    return reply


def leave(channel: Channel, reply: Dict[str, Any]) -> None:
    """Say the last word and be gone. Whatever is registered to run at exit runs; taking a framework's modules apart does not: it takes a second."""
    sys.stdout.flush()
    channel.send(reply)
    atexit._run_exitfuncs()  # noqa: SLF001 (there is no public way to leave early and yet orderly)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main(arguments: List[str]) -> int:
    """Serve one parent until it says `done` or goes away. Arguments: the parent's pid, then the channel's three words."""
    die_with(int(arguments[0]))
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]  # our siblings must not shadow anybody's modules
    channel = open_channel(arguments[1:])
    channel.send({"type": "hello", "protocol": PROTOCOL, "pid": os.getpid(), "python": "%d.%d.%d" % sys.version_info[:3]})
    worker = Worker(channel.send)
    while True:
        ask = channel.receive()
        if ask is None:
            return 1
        reply = answer(worker, ask)
        if reply["type"] == "done":
            leave(channel, reply)
        channel.send(reply)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
