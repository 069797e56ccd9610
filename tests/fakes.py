"""A workload without a framework whose speed is known: eager steps take twice as long as graph steps, but for the lateness of the machine's sleep, which
adds the same to both. For tests of the whole command."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.contract import Tally, Value, Workload

STEP_S = 0.004


class Sleeper(Workload):
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.step_s = STEP_S * (2 if settings["execution"] == "eager" else 1)

    def run(self, steps: int) -> Tally:
        for _ in range(steps):
            time.sleep(self.step_s)
        return Tally(steps, steps * 4, "samples")

    def outcome(self) -> list[Value]:
        return [Value("traces", 1, "traces")]

    def proof(self) -> dict[str, Any]:
        # What the perturbed and the treated arm compute differs by rounding alone.
        noise = 1e-7 * float(self.settings.get("perturb", 0.0) != 0.0)
        update = np.linspace(1.0, 2.0, 64) * (1 + noise)
        return {"loss": np.array([1.0, 0.5]), "finite": np.array(True), "update_1": update, "update_2": update, "update_norm": np.array([1.0, 1.0])}

    def facts(self) -> dict[str, Any]:
        return {"execution": self.settings["execution"], "device": self.settings["device"]}

    def health(self) -> dict[str, Any]:
        return {"loss": 0.5, "finite": True}


class Failing(Sleeper):
    """Fails in the arm that runs eagerly."""

    def run(self, steps: int) -> Tally:
        if self.settings["execution"] == "eager":
            raise RuntimeError("this arm cannot run")
        return super().run(steps)


class Wrong(Sleeper):
    """Computes something else in the arm that runs eagerly."""

    def proof(self) -> dict[str, Any]:
        arrays = super().proof()
        if self.settings["execution"] == "eager":
            arrays["update_1"] = arrays["update_1"] * 1.1
        return arrays


class Exploding(Sleeper):
    """Its loss stops being a number in the arm that runs eagerly."""

    def health(self) -> dict[str, Any]:
        if self.settings["execution"] == "eager":
            return {"loss": float("nan"), "finite": False, "first_non_finite_step": 3}
        return super().health()


class Skipping(Sleeper):
    """Reads images of which two cannot be decoded, and leaves them out where it is told to."""

    def facts(self) -> dict[str, Any]:
        if self.settings.get("on_bad") != "skip":
            raise RuntimeError("cats/torn.jpg cannot be decoded")
        return {**super().facts(), "skipped_files": 2, "skipped_names": "cats/torn.jpg, dogs/empty.jpg"}


def build(**settings: Any) -> Workload:
    return Sleeper(settings)


def build_failing(**settings: Any) -> Workload:
    return Failing(settings)


def build_wrong(**settings: Any) -> Workload:
    return Wrong(settings)


def build_exploding(**settings: Any) -> Workload:
    return Exploding(settings)


def build_skipping(**settings: Any) -> Workload:
    return Skipping(settings)
