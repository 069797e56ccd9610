"""Rounds of fake trials, and a machine whose load says what a test wants."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.measure.blocks import QuadRules
from harness.measure.load import Load, cpu_seconds
from harness.measure.session import Place, Progress, run_round
from harness.model import Arrangement, Deadlines, Driver, Process, Round, RoundRecord, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
DEAF = QuadRules(foreign_cores=1e9, idle_partner_cores=1e9, warmup_ratio=1e9)
"""Rules under which a busy test machine changes nothing."""
FAKES = "tests.measure.fake_workloads"


def make_process(role: str = "lead", target: str = "build", runtime: str = "host", **settings: Any) -> Process:
    return Process(role=role, target=f"{FAKES}:{target}", runtime=runtime, settings=settings)


def make_trial(
    name: str,
    *,
    target: str = "build",
    driver: Driver = Driver.BLOCKS,
    call: str = "outcome",
    ghost_every: int = 0,
    kills: int = 0,
    **settings: Any,
) -> Trial:
    process = make_process(target=target, **settings)
    return Trial(name, f"cell-{name}", (process,), driver=driver, call=call, ghost_every=ghost_every, kills=kills)


def make_job(name: str, *, steps: int = 6, kills: int | None = None, **settings: Any) -> Trial:
    """Return a job of `steps` steps, supervised if it is to be killed."""
    driver = Driver.JOB if kills is None else Driver.SUPERVISE
    return make_trial(name, target="build_errand", driver=driver, kills=kills or 0, steps=steps, **settings)


def with_deadlines(trial: Trial, **deadlines: float) -> Trial:
    return replace(trial, deadlines=Deadlines(**deadlines))


def make_round(*trials: Trial, arrangement: Arrangement = Arrangement.TURNS_OF_BLOCKS, **fields: Any) -> Round:
    defaults: dict[str, Any] = {"contrast": "duet", "index": 0, "attempt": 0, "seed": 7, "quads": 2, "block_s": 0.02}
    return Round(trials=trials, arrangement=arrangement, **{**defaults, **fields})


def make_place(folder: Path) -> Place:
    for name in ("logs", "proofs"):
        (folder / name).mkdir(exist_ok=True)
    return Place(folder / "logs", folder / "proofs", folder / "live.json", (ROOT,), folder / "scratch")


def run(
    round_: Round,
    folder: Path,
    *,
    tell: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    thresholds: QuadRules = DEAF,
    **ports: Any,
) -> RoundRecord:
    return run_round(round_, make_place(folder), tell=tell, stop=stop, thresholds=thresholds, **{"read": quiet_machine(), **ports})


def quiet_machine(foreign_cores: Sequence[float] = ()) -> Callable[[Mapping[int, Sequence[int]]], Load]:
    """Return a load reader whose foreign load is 0, or one of `foreign_cores` for each quad in turn (four blocks, so five readings).

    The workers' own times are real.
    """
    state = {"calls": 0, "foreign_s": 0.0, "last_s": 0.0}

    def read(groups: Mapping[int, Sequence[int]]) -> Load:
        now_s = time.monotonic()
        quad, reading = divmod(int(state["calls"]), 5)
        if reading and quad < len(foreign_cores):
            state["foreign_s"] += foreign_cores[quad] * (now_s - state["last_s"])
        state["calls"] += 1
        state["last_s"] = now_s
        times = {leader: sum(cpu_seconds(pid) or 0.0 for pid in pids) for leader, pids in groups.items()}
        ours_s = sum(times.values())
        return Load(now_s, 2, 2 * now_s - ours_s - state["foreign_s"], 0.0, 0.0, 0.0, times)

    return read
