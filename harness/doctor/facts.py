"""What the checks are told, as frozen values: the host, TensorFlow, the cards, the noise. Knows neither how they are read nor what is good.

None means that a value could not be read; `missing` then says why, under the field's name. Units end a name: `_bytes`, `_s`, `_w`, `_cores`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOT_READ = "it was not read"


@dataclass(frozen=True)
class Storage:
    """Where something will be written: space left there, and whether this user may write."""

    free_bytes: int | None
    writable: bool = True
    reason: str | None = None


@dataclass(frozen=True)
class Host:
    """The machine without its cards.

    `cores_allowed` is the affinity mask, `quota_cores` the control group's quota (None: none), `governors` governor -> number of allowed cores with
    it, `variables` the environment variables that may change figures (value None: not shown), `lock_holder` who measures here now (None: nobody).
    """

    cores_present: int | None = None
    cores_allowed: int = 1
    quota_cores: float | None = None
    governors: Mapping[str, int] | None = None
    turbo: bool | None = None
    smt: bool | None = None
    time_source: str | None = None
    huge_pages: str | None = None
    memory_bytes: int = 0
    memory_free_bytes: int | None = None
    swap_bytes: int | None = None
    swap_used_bytes: int | None = None
    results: Storage = Storage(None, reason=NOT_READ)
    data: Storage = Storage(None, reason=NOT_READ)
    lock_holder: str | None = None
    variables: Mapping[str, str | None] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def why(self, name: str) -> str:
        """Return why the field `name` could not be read."""
        return self.missing.get(name, NOT_READ)


@dataclass(frozen=True)
class MachineCode:
    """What a build can run on: architectures with machine code (90 is sm_90), those with PTX to be compiled from, and where that was read."""

    native: tuple[int, ...]
    ptx: tuple[int, ...]
    source: str


@dataclass(frozen=True)
class Framework:
    """TensorFlow as the workers' interpreter has it. `reason` says why it did not answer, or not whole; what it did say is kept.

    `cuda`, `cudnn`: the versions that it was built with. `wheels`: NVIDIA's installed packages. `said`: its own lines about GPUs.
    """

    python: str | None = None
    version: str | None = None
    cuda_build: bool | None = None
    cuda: str | None = None
    cudnn: str | None = None
    gpus: int | None = None
    wheels: Mapping[str, str] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    code: MachineCode | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Sight:
    """One quantity as NVML told it just before and just after nvidia-smi did, in nvidia-smi's unit; `reason` says why one of them told nothing."""

    before: float | None
    after: float | None
    theirs: float | None
    reason: str | None = None


@dataclass(frozen=True)
class BesideSmi:
    """What nvidia-smi says of a card beside NVML: the driver's version, and several looks, each quantity -> what was seen. `reason`: why nothing."""

    driver: str | None = None
    looks: tuple[Mapping[str, Sight], ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Card:
    """One card as NVML tells of it. `others` is the number of processes on it that are none of ours."""

    index: int
    name: str
    compute_capability: float | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    others: int | None = None
    smi: BesideSmi = BesideSmi(reason=NOT_READ)
    missing: Mapping[str, str] = field(default_factory=dict)

    def why(self, name: str) -> str:
        """Return why the field `name` could not be read."""
        return self.missing.get(name, NOT_READ)


@dataclass(frozen=True)
class Cards:
    """All visible cards. `reason` says why there are none, or which could not be read; `on_bus` how many NVIDIA cards the PCI bus shows."""

    cards: tuple[Card, ...] = ()
    driver: str | None = None
    driver_cuda: str | None = None
    on_bus: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Noise:
    """Two children that do the same, taking turns: log of B's rate over A's for each quad, and what else went on meanwhile.

    `foreign_cores` and `steal_cores` are averages in cores, `throttled_s` and `elapsed_s` seconds. `reason` says why there is nothing.
    """

    log_ratios: tuple[float, ...] = ()
    elapsed_s: float | None = None
    foreign_cores: float | None = None
    steal_cores: float | None = None
    throttled_s: float | None = None
    swapped_bytes: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Looks:
    """How the main job looks at a comparison: the rounds at its last look, how many looks share the error rate, and that rate."""

    rounds: int
    looks: int
    alpha: float


@dataclass(frozen=True)
class Facts:
    """Everything that the checks may use."""

    host: Host
    framework: Framework
    cards: Cards
    noise: Noise
    full: Looks
