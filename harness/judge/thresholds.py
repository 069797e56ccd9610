"""Every number that the judge decides by, with its default. A plan may override each by name (`plan.thresholds`); the manifest keeps the plan."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Thresholds:
    """`floor_*` are the instrument's systematic error: log units for ratios, a share of the value for timed values on the linear scale."""

    floor_cpu: float = 0.01
    floor_gpu: float = 0.005
    pooled_share: float = 0.5  # a spread is never taken for less than this share of the run's pooled one
    lost_share: float = 1 / 3  # more of a contrast's rounds lost than this: unstable
    reading_precision: float = 0.05  # a reading is good enough at this relative half-width
    control_alpha: float = 0.01
    control_band: float = 0.05  # what a negative control must stay within
    control_failed: float = 0.02  # wholly farther than this from the known value: failed
    proof_factor: float = 10.0  # times the update difference that a perturbed baseline shows
    proof_loss_fp32: float = 1e-4
    proof_loss_tf32: float = 1e-3
    proof_loss_mixed_bfloat16: float = 2e-2
    proof_loss_mixed_float16: float = 2e-2
    proof_loss_float16: float = 2e-2
    proof_pixels: float = 0.02  # mean colour of a sample, of a range of 2: decoders and resizers round differently

    def floor(self, device: str) -> float:
        return self.floor_gpu if device == "gpu" else self.floor_cpu

    def proof_loss(self, precision: str) -> float:
        """Return the relative tolerance of the first loss. Of a precision not listed, the strictest is asked."""
        return float(getattr(self, f"proof_loss_{precision}", self.proof_loss_fp32))


def thresholds_of(overrides: Mapping[str, float]) -> Thresholds:
    """Return the defaults with `overrides` laid over them. Names that mean nothing here belong to other rooms and are left alone."""
    known = {field.name for field in fields(Thresholds)}
    return Thresholds(**{name: float(value) for name, value in overrides.items() if name in known})
