"""Checks of what ten seconds of two equal children have shown: pure functions from facts to a finding."""

from __future__ import annotations

import math

from harness.doctor.facts import Facts, Looks, Noise
from harness.doctor.findings import Finding, ok, unknown, warning
from harness.judge.stats import LEAST_ROUNDS, Floors, deviation, mean, width_at
from harness.judge.thresholds import Thresholds
from harness.measure.blocks import QuadRules
from harness.model import Case
from harness.report import numbers as text

LARGE_EFFECT = 0.1
"""If not even this can be told from none, most claims will stay open."""


def smallest_effect(spread: float, full: Looks) -> float:
    """Return the smallest effect (a share) that the main job's last look could tell from none if its rounds spread like this (log units).

    As plans do: the claims' margin plus twice the half-width, because the interval must clear the margin even when it falls unluckily.
    """
    half = width_at(full.rounds, spread, full.alpha / full.looks, Floors(systematic=Thresholds().floor_cpu))
    return math.expm1(math.log1p(Case.margin) + 2 * half)


def spread(facts: Facts) -> Finding:
    """Two children that do the same look the same."""
    noise = facts.noise
    if noise.reason is not None:
        return unknown("how noisy the machine is", noise.reason)
    sigma = deviation(noise.log_ratios)
    if sigma is None or len(noise.log_ratios) < LEAST_ROUNDS:
        return unknown("how noisy the machine is", f"{text.plural(len(noise.log_ratios), 'quad')} show no spread; watch for longer (--noise-seconds)")
    effect = smallest_effect(sigma, facts.full)
    found = f"equal children differ by {text.percent(sigma)} (standard deviation of {len(noise.log_ratios)} quads)"
    meaning = f"if rounds spread like that, +sweep=full can show effects of {text.percent(effect)} or more"
    told = {"spread": sigma, "smallest_effect": effect, "quads": len(noise.log_ratios), "offset": mean(noise.log_ratios)}
    if effect > LARGE_EFFECT:
        return warning(
            "noisy",
            f"{found}: {meaning}",
            "smaller effects will be INCONCLUSIVE",
            "end what else runs here; on a shared host choose a quieter hour",
            **told,
        )
    return ok(f"{found}: {meaning}", **told)


def foreign_load(facts: Facts) -> Finding | None:
    """Nobody else uses the cores."""
    return _cores(
        facts.noise,
        facts.noise.foreign_cores,
        what="foreign load",
        found="others used {} while we watched",
        why="quads beyond {} are repeated a few times, then kept and flagged",
        advice="end what else runs here",
    )


def steal(facts: Facts) -> Finding | None:
    """The host gives this virtual machine its cores."""
    return _cores(
        facts.noise,
        facts.noise.steal_cores,
        what="steal",
        found="the host took {} from this machine",
        why="its other guests decide how fast this one is; quads beyond {} are repeated, then flagged",
        advice="use a machine with cores of its own, or a quieter hour",
    )


def throttled(facts: Facts) -> Finding | None:
    """The control group does not stop us."""
    noise = facts.noise
    return _cores(
        noise,
        None if noise.throttled_s is None or not noise.elapsed_s else noise.throttled_s / noise.elapsed_s,
        what="throttling",
        found="the control group kept us off {} on average",
        why="a quota stops all threads in the midst of a block; quads beyond {} are repeated, then flagged",
        advice="give the container whole cores (cpuset), or a larger quota",
    )


def _cores(noise: Noise, cores: float | None, *, what: str, found: str, why: str, advice: str) -> Finding | None:
    """Hold a load against the limit beyond which a quad is repeated. Nothing is said where nothing was watched: the noise's own finding says why."""
    if noise.reason is not None:
        return None
    if cores is None:
        return unknown(what, "the kernel does not tell")
    limit = QuadRules().foreign_cores
    said = found.format(text.cores(cores))
    if cores > limit:
        return warning(what.replace(" ", "_"), said, why.format(text.cores(limit)), advice, cores=cores, limit_cores=limit)
    return ok(said, cores=cores, limit_cores=limit)
