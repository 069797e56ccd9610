"""Workloads whose cost and misbehaviour are known in advance. They run in real workers, on the host runtime."""

# ruff: noqa: UP006, UP031, UP035, PTH100, PTH110, PTH112, PTH116, PTH118, PTH120, PTH123, PTH208 (Python 3.8 runs it too)

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from typing import Any, Dict, List

from benchmarks.contract import Event, Tally, Value, Workload


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


HANG_S = 60.0
"""How long a hanging workload sleeps: whoever waited for it would take at least so long."""


class Fake(Workload):
    """`step_s` of sleep (or of spinning) a step, and one misbehaviour, named by `fault`, in the phase named by `at`."""

    def __init__(self, step_s: float = 0.002, how: str = "sleep", fault: str = "", at: str = "", **settings: Any) -> None:
        self.step_s, self.how, self.fault, self.at, self.settings = step_s, how, fault, at, settings
        self.steps_run = 0
        self.blocks = 0
        self.traced = 1
        self.pending_s = 0.0
        self.first_span = (0.0, 0.0)
        self.ballast = bytearray(int(settings.get("ballast_mib", 0)) << 20)

    def misbehave(self, phase: str) -> None:
        if phase != self.at:
            return
        if self.fault == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "exit":
            os._exit(0)
        if self.fault == "sys_exit":
            sys.exit(0)
        if self.fault == "hang":
            time.sleep(HANG_S)
        if self.fault == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        if self.fault == "raise":
            raise ValueError("a fault\non two lines")
        if self.fault == "raise_path":
            os.stat(os.path.join(os.path.dirname(os.path.abspath(__file__)), "nothing.bin"))
        if self.fault == "memory":
            raise MemoryError("no room")
        if self.fault == "unsupported":
            from harness.errors import Unsupported

            raise Unsupported("the device has no such product")

    def trace(self) -> None:
        self.misbehave("trace")

    def traces(self) -> int:
        return self.traced

    def run(self, steps: int) -> Tally:
        self.blocks += 1
        self.misbehave("first" if self.blocks == 1 else "warmup" if self.blocks == 2 else "blocks")
        if self.fault == "retrace" and self.blocks > 5:
            self.traced += 1
        if self.fault == "print":
            print('{"type": "block"} garbage', flush=True)  # noqa: T201 (the misbehaviour itself)
            os.write(1, b"\xff\xfe not even text\n")
        ran = min(steps, 3) if self.fault == "fewer" and self.blocks > 2 else steps
        began_s = time.perf_counter()
        for _ in range(ran):
            (spin if self.how == "spin" else time.sleep)(self.step_s)
        self.steps_run += ran
        if self.blocks == 1:
            self.first_span = (began_s, time.perf_counter())
        return Tally(steps=ran, work=4.0 * ran, unit="samples", events=(("input_wait_s", 0.25 * ran * self.step_s, "s"),))

    def facts(self) -> Dict[str, Any]:
        told = {"first_from_s": self.first_span[0], "first_to_s": self.first_span[1]}
        if self.fault == "other_batch":
            return {**told, "batch": 1, "axes": [1, 2]}
        return {**told, **{name: self.settings[name] for name in ("batch",) if name in self.settings}}

    def health(self) -> Dict[str, Any]:
        self.misbehave("end")
        if self.fault == "nan":
            return {"loss": float("nan"), "finite": False, "first_non_finite_step": 2}
        return {"loss": 0.5, "finite": True}

    def outcome(self) -> List[Value]:
        self.misbehave("once")
        return [Value("answer", 42, "count"), Value("absent", None, "s", "not here"), Value("word", "text", ""), Value("nan", float("nan"), "s")]

    def close(self) -> None:
        if self.fault == "crash_at_exit":
            atexit.register(os._exit, 7)

    def proof(self) -> Dict[str, Any]:
        return {"weights": [1.0, 2.0, 3.0]}


def build(**settings: Any) -> Fake:
    fake = Fake(**settings)
    fake.misbehave("build")
    return fake


def build_lazy(handle_s: float = 0.05, **_: Any) -> Workload:
    """A workload whose steps return at once and are only done when `sync` has waited for them."""

    class Lazy(Fake):
        def run(self, steps: int) -> Tally:
            self.pending_s += handle_s * steps
            return Tally(steps, float(steps), "samples")

        def sync(self) -> None:
            pending_s, self.pending_s = self.pending_s, 0.0
            time.sleep(pending_s)

    return Lazy()


def build_restless(step_s: float = 0.002, **_: Any) -> Workload:
    """A workload that keeps a core busy also while it has no turn."""
    threading.Thread(target=lambda: spin(60), daemon=True).start()
    return Fake(step_s)


def build_family(**_: Any) -> Workload:
    """A workload with a child process of its own, whose pid it tells as a fact."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    class Family(Fake):
        def facts(self) -> Dict[str, Any]:
            return {"child": child.pid}

    return Family()


def build_environment(**_: Any) -> Workload:
    """A workload whose facts are the names in its environment."""

    class Environment(Fake):
        def facts(self) -> Dict[str, Any]:
            return {"names": " ".join(sorted(os.environ)), "python": "%d.%d" % sys.version_info[:2]}

    return Environment()


def build_hungry(**_: Any) -> Workload:
    """A workload that needs a gibibyte to be built."""
    bytearray(1 << 30)
    return Fake()


def build_glutton(mib: int, **_: Any) -> Workload:
    """A workload that takes and touches so much memory, one mebibyte after the other."""

    class Glutton(Fake):
        def outcome(self) -> List[Value]:
            held = [b"x" * (1 << 20) for _ in range(mib)]
            return [Value("held", len(held), "MiB")]

    return Glutton()


def build_narrow(batch: int, room: int, **settings: Any) -> Fake:
    """A workload that has room for batches of up to `room`."""

    class Narrow(Fake):
        def run(self, steps: int) -> Tally:
            if batch > room:
                raise MemoryError("no room for a batch of %d" % batch)
            return super().run(steps)

    return Narrow(batch=batch, **settings)


def build_stout(batch: int, **settings: Any) -> Fake:
    """A workload that takes and touches a mebibyte for each sample of its batch."""
    held = [b"x" * (1 << 20) for _ in range(batch)]
    return Fake(batch=batch, held=len(held), **settings)


class BrokenError(Exception):
    """A failure that brings its own code and numbers."""

    code = "disk_full"
    numbers = {"free_bytes": 5}  # noqa: RUF012 (as a workload may write it)


class Errand(Fake):
    """A job of `steps` steps. Each is noted in a file in the scratch folder, so that the next life goes on where this one ended."""

    def job(self, tell: Any) -> None:
        self.misbehave("job")
        notes = os.path.join(self.settings.get("scratch_dir", os.devnull), "steps")
        done = 0
        if os.path.exists(notes):
            with open(notes, encoding="ascii") as lines:
                done = int(lines.read().split()[-1])
            tell(Event("resumed_at", done, "step", step=done))
        steps = int(self.settings["steps"]) + {"fewer": -1, "more": 1}.get(self.fault, 0)
        t0_ns = time.perf_counter_ns()
        for step in range(done + 1, steps + 1):
            self.step(step, notes, tell)
        if self.fault != "tells_no_job":
            tell(Event("job", 4.0 * (steps - done), "samples", t0_ns, time.perf_counter_ns(), steps))
        if self.fault == "retraces":
            tell(Event("timed_traces", 2, "traces"))

    def step(self, step: int, notes: str, tell: Any) -> None:
        t0_ns = time.perf_counter_ns()
        time.sleep(self.step_s)
        if "scratch_dir" in self.settings:
            with open(notes, "a", encoding="ascii") as lines:
                lines.write("%d\n" % step)
        if self.fault != "tells_no_step":
            tell(Event("step", self.step_s, "s", t0_ns, time.perf_counter_ns(), step))
        if step == 3 and self.fault == "breaks":
            raise BrokenError("no room left in %s" % notes)
        if step == 3 and self.fault == "exit_in_job":
            os._exit(0)
        if step == 3 and self.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)

    def outcome(self) -> List[Value]:
        folder = self.settings.get("scratch_dir")
        return [Value("files", None if folder is None else len(os.listdir(folder)), "count", "no scratch folder" if folder is None else None)]

    def facts(self) -> Dict[str, Any]:
        return {name: self.settings[name] for name in ("life", "scratch_dir") if name in self.settings}


def build_errand(**settings: Any) -> Errand:
    return Errand(**settings)


class Employer(Fake):
    """A job, or a single call, that is done by a child process of its own: `child_s` seconds of core time. It is waited for."""

    def outcome(self) -> List[Value]:
        import subprocess

        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < %r: pass" % self.settings["child_s"]], check=True)
        return [Value("answer", 42, "count")]

    def job(self, tell: Any) -> None:
        t0_ns = time.perf_counter_ns()
        self.outcome()
        tell(Event("job", 1.0, "samples", t0_ns, time.perf_counter_ns(), 1))


def build_slow_call(call_s: float, **_: Any) -> Workload:
    """A workload whose single call sleeps."""

    class SlowCall(Fake):
        def outcome(self) -> List[Value]:
            time.sleep(call_s)
            return [Value("answer", 42, "count")]

    return SlowCall()


def build_employer(**settings: Any) -> Employer:
    return Employer(**settings)


class _Bystander:
    """A helper's workload: it has no steps of its own."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def facts(self) -> Dict[str, Any]:
        return {}


def build_noting_bystander(scratch_dir: str = "", **settings: Any) -> Any:
    print("scratch ok" if os.path.isdir(scratch_dir) else "no scratch", flush=True)  # noqa: T201 (for its log)
    return _Bystander(**settings)


def build_bystander(fault: str = "", **settings: Any) -> Any:
    if fault == "die_later":
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    return _Bystander(**settings)
