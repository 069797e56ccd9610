"""Rounds, plans and proofs as the judge meets them, with defaults so that a test names only what it is about."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.judge.verdict import Band
from harness.model import Arrangement, Case, Claim, Control, ControlKind, Outcome, Plan, Purpose, Reading, RoundRecord, Scale, State
from tests.helpers import make_case, make_cell, make_claim, make_contrast, make_failure, make_plan, make_record, make_trial, make_trial_record


def examples() -> list[dict[str, str]]:
    with (Path(__file__).parent / "examples.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def band_of_row(row: Mapping[str, str]) -> Band:
    lo, hi, null = (float(row[key]) if row[key] else None for key in ("band_lo", "band_hi", "null"))
    return Band(Scale(row["scale"]), lo, hi, null, float(row["margin"]), float(row["rounding"]))


def plan_of(*cases: Case, **changes: object) -> Plan:
    """A plan without controls and proofs, whose one claim has these cases and whose one contrast is a duet with looks at 3, 5, 8, 12."""
    contrast = make_contrast(trials=())
    cells = {name: make_cell(level) for name, level in (("baseline", "eager"), ("treatment", "graph"))}
    contrast = replace(contrast, trials=tuple(make_trial(name, cell=cell) for name, cell in cells.items()))
    base: dict[str, object] = {"controls": (), "proofs": (), "contrasts": (contrast,), "claims": (make_claim(cases=cases or (make_case(),)),)}
    return make_plan(**{**base, **changes})


def rounds_of(ratios: Sequence[float], *, contrast: str = "contrast-1", **changes: object) -> list[RoundRecord]:
    """Completed rounds in which the treatment is so many times as fast as the baseline."""
    return [make_record(at, contrast=contrast, rates={"baseline": 100.0, "treatment": 100.0 * ratio}, **changes) for at, ratio in enumerate(ratios)]


def lost_round(index: int = 0, *, arm: str = "treatment", outcome: Outcome | None = None, rates: Mapping[str, float] | None = None, **trial: object) -> RoundRecord:
    """A round in which one arm ended badly; its partner completed if it has a rate, else it was interrupted."""
    outcome = outcome or make_failure()
    partner = "baseline" if arm == "treatment" else "treatment"
    trials = (
        make_trial_record(partner, outcome=Outcome(State.COMPLETED) if rates else Outcome(State.INTERRUPTED), used={"batch": 8}),
        make_trial_record(arm, outcome=outcome, **{"asked": {"batch": 8}, "used": {}, **trial}),
    )
    return replace(make_record(index, rates=dict(rates or {})), outcome=outcome, trials=trials)


def outcome_rounds(values: Sequence[float | None], name: str = "traces", *, reason: str | None = None) -> list[RoundRecord]:
    """Solo rounds in which the treatment answers with one reading."""
    reading = [(Reading("treatment", name, value, "", reason=reason),) for value in values]
    return [
        replace(make_record(at, rates={}), arrangement=Arrangement.SOLO, trials=(make_trial_record("treatment"),), readings=one, quads=())
        for at, one in enumerate(reading)
    ]


def control_plan(*kinds: ControlKind, looks: tuple[int, ...] = (3,)) -> Plan:
    contrast = make_contrast("control", ("first", "second"), purpose=Purpose.CONTROL, looks=looks)
    controls = tuple(Control(f"{kind.value}-cpu", kind, "control", "cpu", Arrangement.TURNS_OF_BLOCKS) for kind in kinds)
    return plan_of(contrasts=(contrast,), controls=controls, claims=())


def control_round(index: int = 0, *, second: float = 1.0, slowed: float | None = None, alone: float = 1.0, drift: float = 0.0, part: int = 0) -> RoundRecord:
    """A control duet: ten steps a block at 100/s; the second arm works `second` times as fast, and in every other block runs one step in eleven
    uncounted. `slowed` is the rate that its haunted blocks show, by default the true 10/11; `alone` is the first arm's once its partner is gone."""
    haunted = second * (10 / 11) if slowed is None else slowed
    blocks: list[Reading] = []
    for quad in (1, 2):
        rates = [("first", 1.0, 0), ("second", second, 0), ("second", haunted, 1), ("first", 1.0, 0)]
        for turn, (trial, rate, ghost) in enumerate(rates):
            t1_ns = round(1e9 * 10 / (100 * rate * (1 + drift * (index % 3 - 1) * (trial == "second"))))
            blocks.append(Reading(trial, "work", 10.0, "samples", t0_ns=0, t1_ns=t1_ns, n=10, ghost=ghost, quad=quad, turn=turn))
    blocks += [Reading("first", "work", 10.0, "samples", t0_ns=0, t1_ns=round(1e9 / (10 * alone)), n=10, quad=quad, turn=0, part="absence") for quad in (3, 4)]
    record = make_record(index, contrast="control", rates={"first": 1.0, "second": 1.0})
    absent = tuple(replace(record.quads[1], index=index, part="absence", order="AAAA") for index in (3, 4))
    return replace(record, readings=tuple(blocks), quads=(*record.quads[:3], *absent), part=part)


def claim_of(*cases: Case, **changes: object) -> Claim:
    return make_claim(cases=cases, **changes)


# ---------------------------------------------------------------- proofs: two steps of a small net, without any framework


def make_net(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets, weights of a least-squares net with one hidden layer's worth of curvature."""
    random = np.random.default_rng(seed)
    return random.normal(size=(64, 20)), random.normal(size=64), random.normal(size=20)


def train(*, rate: float = 0.05, momentum: float = 0.9, perturb: float = 0.0, frozen: bool = False, stopped: int = 0, dtype: type = np.float64) -> dict[str, np.ndarray]:
    """Return the proof arrays of two steps of gradient descent with momentum. `frozen` makes no update, `stopped` gives the first weights no gradient."""
    x, y, w = make_net()
    w = w * (1 + perturb * np.sign(np.random.default_rng(1).normal(size=w.size)))
    x, y, w = x.astype(dtype), y.astype(dtype), w.astype(dtype)
    velocity = np.zeros_like(w)
    losses, updates = [], []
    start = w.copy()
    for _ in range(2):
        hidden = np.tanh(x @ w)
        error = hidden - y
        losses.append(float((error**2).mean()))
        gradient = (2 * error * (1 - hidden**2)) @ x / len(y)
        gradient[:stopped] = 0
        velocity = (momentum * velocity + gradient).astype(dtype)
        w = w if frozen else (w - rate * velocity).astype(dtype)
        updates.append((w - start).astype(np.float64))
    finite = np.array(bool(np.isfinite(losses).all()))
    norms = np.array([np.linalg.norm(update) for update in updates])
    return {"loss": np.array(losses), "finite": finite, "update_1": updates[0], "update_2": updates[1], "update_norm": norms}
