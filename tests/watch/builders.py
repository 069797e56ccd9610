"""What a run tells its watchers, as small values with defaults."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from typing import Any

from harness.measure.session import Progress
from harness.measure.telemetry.provider import HOST, Sample
from harness.model import Arrangement, Gpu, Plan, Round
from tests.helpers import make_cell, make_contrast, make_machine, make_plan, make_trial

CARD = Gpu(0, "NVIDIA H200", "GPU-0", None, None)
OTHER = Gpu(1, "NVIDIA H200", "GPU-1", None, None)
MACHINE = make_machine(gpus=(CARD, OTHER), gpu_reason=None)


def make_gpu_plan() -> Plan:
    """A duet of eager and graph on the first of two cards, with two rounds at its first look and eight at its last; and a control of equal arms."""
    eager, graph = make_cell("eager", device="gpu"), make_cell("graph", device="gpu")
    arms = tuple(on_card(make_trial(name, cell=cell)) for name, cell in (("baseline", eager), ("treatment", graph)))
    control = replace(make_contrast("control-1", ()), trials=tuple(on_card(make_trial(name, cell=graph)) for name in ("a", "b")), looks=(1,))
    duet = replace(make_contrast("graph-speedup.article", ()), trials=arms, looks=(2, 8))
    spare = replace(control, id="spare", arrangement=Arrangement.TURNS_OF_TRIALS, looks=(5,), standby=True)
    return make_plan(cells={cell.id: cell for cell in (eager, graph)}, contrasts=(control, spare, duet))


def on_card(trial: Any, *uuids: str) -> Any:
    """Return the trial on the cards named, by default the first."""
    return replace(trial, processes=tuple(replace(process, gpus=uuids or (CARD.uuid,)) for process in trial.processes))


def make_round(plan: Plan, contrast: str = "graph-speedup.article", index: int = 0) -> Round:
    """A round of one of the plan's contrasts."""
    found = next(c for c in plan.contrasts if c.id == contrast)
    return Round(found.id, index, 0, found.trials, found.arrangement, 1)


def make_block(trial: str, rate: float, unit: str = "samples") -> Progress:
    """A timed block of this throughput."""
    return Progress("block", "duet/0.0", trial, "12 steps", {"seconds": 1.0, "work": rate, "rate": rate, "unit": unit})


def make_phase(text: str = "importing", trial: str = "baseline") -> Progress:
    """A worker gets ready."""
    return Progress("phase", "duet/0.0", trial, text, {})


def make_timed(trial: str = "baseline", text: str = "job") -> Progress:
    """A job or a single call is being timed."""
    return Progress("timed", "duet/0.0", trial, text, {})


def make_quad(index: int = 1, *, accepted: bool = True, foreign_cores: float | None = 0.25) -> Progress:
    """A quad is over."""
    return Progress("quad", "duet/0.0", None, "ABBA", {"foreign_cores": foreign_cores, "accepted": accepted, "index": index})


def make_sample(name: str, value: float | None, device: str = CARD.uuid, *, seconds: float = 0.0) -> Sample:
    """A sample of a device, by default of the first card."""
    return Sample(device, round(seconds * 1e9), name, value, None if value is not None else "not supported")


def make_host_sample(name: str, value: float | None) -> Sample:
    """A sample of the machine around the cards."""
    return make_sample(name, value, HOST)


def get(url: str) -> str:
    """What a server of this machine answers; no proxy is asked."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        return answer.read().decode()
