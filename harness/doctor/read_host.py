"""Reads the host: processors, memory, storage, environment. What cannot be read is None with its reason; it changes nothing and judges nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.doctor.children import ROOT
from harness.doctor.facts import Host, Storage
from harness.measure.environment import allowed
from harness.measure.machine import cgroup_cpu_quota, free_memory_bytes, memory_bytes

SYSTEM = Path("/sys/devices/system")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
PCI = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY_CLASS = "0x10de", "0x03"

FAMILIES = ("TF_", "XLA_", "OMP_", "GOMP_", "MKL_", "KMP_", "OPENBLAS_", "NCCL_")
SINGLE = (
    "LD_PRELOAD",
    "GLIBC_TUNABLES",
    "MALLOC_ARENA_MAX",
    "NVIDIA_TF32_OVERRIDE",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_CACHE_DISABLE",
)
IRRELEVANT = ("TF_CPP_MIN_LOG_LEVEL", "NCCL_VERSION", "TF_CLI_", "TF_VAR_", "TF_LOG", "TF_INPUT", "TF_WORKSPACE", "TF_DATA_DIR")
"""Variables that may change what is measured, by prefix and by name, and the beginnings of those that do not: logging, and another tool's TF_."""


def read_host(
    lock_holder: str | None, lock_reason: str | None = None, *, root: Path = ROOT, system: Path = SYSTEM, huge_pages: Path = HUGE_PAGES
) -> Host:
    """Return the host as it is now. `lock_holder` is who measures here (None: nobody), `lock_reason` why that is not known."""
    missing: dict[str, str] = {}
    if lock_reason is not None:
        missing["lock_holder"] = lock_reason
    cores = sorted(os.sched_getaffinity(0))
    swap = _swap(missing)
    free = free_memory_bytes()
    if free is None:
        missing["memory_free_bytes"] = "/proc/meminfo does not tell"
    return Host(
        cores_present=os.cpu_count(),
        cores_allowed=len(cores),
        quota_cores=cgroup_cpu_quota(),
        governors=_governors(system, cores, missing),
        turbo=_turbo(system, missing),
        smt=_smt(system, missing),
        time_source=_line(system / "clocksource/clocksource0/current_clocksource", "time_source", missing),
        huge_pages=_chosen(_line(huge_pages, "huge_pages", missing)),
        memory_bytes=memory_bytes(),
        memory_free_bytes=free,
        swap_bytes=swap[0],
        swap_used_bytes=swap[1],
        results=read_storage(root / "results"),
        data=read_storage(root / "data"),
        lock_holder=lock_holder,
        variables=performance_variables(os.environ),
        missing=missing,
    )


def performance_variables(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that may change what is measured, sorted by name; the value is None where workers do not get it: it is not shown."""
    chosen = [name for name in environment if (name.startswith(FAMILIES) or name in SINGLE) and not name.startswith(IRRELEVANT)]
    return {name: environment[name] if allowed(name) else None for name in sorted(chosen)}


def read_storage(folder: Path) -> Storage:
    """Return the space left where `folder` is, or would be made."""
    place = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    try:
        told = os.statvfs(place)
    except OSError as error:
        return Storage(None, reason=error.strerror)
    return Storage(told.f_bavail * told.f_frsize, os.access(place, os.W_OK))


def nvidia_cards_on_bus(pci: Path = PCI) -> int | None:
    """Return how many NVIDIA display or compute devices the PCI bus shows, None where it cannot be read."""
    try:
        devices = list(pci.iterdir())
    except OSError:
        return None
    nowhere: dict[str, str] = {}
    return sum(
        _line(device / "vendor", "", nowhere) == NVIDIA and (_line(device / "class", "", nowhere) or "").startswith(DISPLAY_CLASS)
        for device in devices
    )


def _governors(system: Path, cores: Iterable[int], missing: dict[str, str]) -> dict[str, int] | None:
    told = [_line(system / f"cpu/cpu{core}/cpufreq/scaling_governor", "governors", missing) for core in cores]
    found = Counter(governor for governor in told if governor is not None)
    if found:
        missing.pop("governors", None)
        return dict(found)
    missing["governors"] = "the kernel shows no frequency control (usual in virtual machines)"
    return None


def _turbo(system: Path, missing: dict[str, str]) -> bool | None:
    for path, on in (("cpu/intel_pstate/no_turbo", "0"), ("cpu/cpufreq/boost", "1")):
        said = _line(system / path, "turbo", missing)
        if said is not None:
            missing.pop("turbo", None)
            return said == on
    missing["turbo"] = "the kernel shows no switch for it (usual in virtual machines)"
    return None


def _smt(system: Path, missing: dict[str, str]) -> bool | None:
    said = _line(system / "cpu/smt/active", "smt", missing)
    return None if said is None else said == "1"


def _chosen(line: str | None) -> str | None:
    """Return the word in brackets of "always [madvise] never"."""
    return None if line is None else line.partition("[")[2].partition("]")[0] or line


def _swap(missing: dict[str, str]) -> tuple[int | None, int | None]:
    try:
        told = {key: int(value.split()[0]) * 1024 for key, _, value in (line.partition(":") for line in _meminfo())}
        return told["SwapTotal"], told["SwapTotal"] - told["SwapFree"]
    except (OSError, KeyError, ValueError, IndexError):
        missing["swap_bytes"] = missing["swap_used_bytes"] = "/proc/meminfo does not tell"
        return None, None


def _meminfo() -> list[str]:
    return [line for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines() if line.startswith("Swap")]


def _line(path: Path, name: str, missing: dict[str, str]) -> str | None:
    """Return the first line of a file of the kernel; why there is none goes to `missing` under `name`."""
    try:
        return path.read_text(encoding="ascii", errors="replace").split("\n", 1)[0].strip()
    except OSError as error:
        missing[name] = f"the kernel does not tell ({error.strerror})"
        return None
