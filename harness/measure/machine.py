"""What a run is measured on: the identity of hardware and software, without momentary values, and how much memory is free. No TensorFlow."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import math
import os
import platform
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.measure.cgroup import memory_group_version
from harness.measure.load import cgroup_directories
from harness.measure.telemetry import nvml
from harness.model import CardPair, Gpu, Machine, Scalar

PACKAGES = (
    "tensorflow",
    "tensorflow-cpu",
    "keras",
    "numpy",
    "hydra-core",
    "omegaconf",
    "nvidia-ml-py",
    "pandas",
    "scipy",
    "msgspec",
    "onnxruntime",
    "openvino",
    "tf2onnx",
    "tensorrt",
    "nvidia-cublas-cu12",  # what TensorFlow's own wheels bring of CUDA: with another of these the same build runs other kernels
    "nvidia-cuda-nvcc-cu12",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cudnn-cu12",
    "nvidia-nccl-cu12",
)
TOLD_LATER = (
    "default_sm_clock_mhz",
    "default_memory_clock_mhz",
    "max_sm_clock_mhz",
    "max_memory_clock_mhz",
    "nvlinks",
    "nvlink_bytes_per_s",
)
"""What the first bundles do not hold of a card."""
TOLD_OF_PAIRS = ("ancestor", "nvlinks", "switched")
CGROUP_UNLIMITED_BYTES = 1 << 60
"""Control groups of version 1 say "no limit" with a number near 2**63."""

_Told = TypeVar("_Told", Gpu, CardPair)


def boot_id() -> str:
    """Return the kernel's random id of this boot, "unknown" where it tells none."""
    return _first_line(Path("/proc/sys/kernel/random/boot_id")) or "unknown"


def read_machine(name: str | None) -> Machine:
    """Return what this machine is. `name` replaces the slug of the hardware in run names and reports."""
    found = nvml.inventory()
    model, flags = cpu_model()
    sockets, physical = cpu_topology()
    cores = usable_cores()
    memory = memory_bytes()
    return Machine(
        slug=slugify(name) if name else hardware_slug(model, cores, memory, found.gpus),
        cpu_model=model,
        cores=cores,
        memory_bytes=memory,
        gpus=tuple(replace(gpu, numa_node=card_node(gpu.pci_id)) for gpu in found.gpus),
        gpu_reason=found.reason,
        kernel=platform.release(),
        python=platform.python_version(),
        packages=package_versions(),
        cpu_flags=flags,
        container=container_kind(),
        numa_nodes=numa_nodes(),
        abilities=abilities(),
        gpu_driver=found.driver,
        cuda_driver=found.cuda,
        cpu_governor=cpu_governor(),
        cpu_sockets=sockets,
        cpu_physical_cores=physical,
        framework_build=framework_build(),
        disk=disk(Path(__file__)),
        topology=found.topology,
    )


def identity(machine: Machine) -> dict[str, object]:
    """Return as plain data what tells this machine from others: all that is known of it, but for its name in reports.

    What cards tell since the first bundles were made is left out where it is not known, so that those bundles' machines have the identity they had.
    """
    data = {**asdict(machine), "slug": ""}
    data["gpus"] = [{name: value for name, value in gpu.items() if value is not None or name not in TOLD_LATER} for gpu in data["gpus"]]
    if not machine.topology:
        del data["topology"]
    return data


def as_told(machine: Machine, then: Machine) -> Machine:
    """Return `machine` as far as it was told `then` too: of what cards tell only since the first bundles were made, what was not known then, or is not now,
    is as it was. A driver that did not answer makes no other machine of it."""
    cards = {gpu.uuid: gpu for gpu in then.gpus}
    pairs = {(pair.first, pair.second): pair for pair in then.topology}
    return replace(
        machine,
        gpus=tuple(_as_told(gpu, cards.get(gpu.uuid, gpu), TOLD_LATER) for gpu in machine.gpus),
        topology=tuple(_as_told(pair, pairs.get((pair.first, pair.second), pair), TOLD_OF_PAIRS) for pair in machine.topology) if pairs else (),
    )


def _as_told(now: _Told, then: _Told, names: Iterable[str]) -> _Told:
    unknown: dict[str, Any] = {name: getattr(then, name) for name in names if None in {getattr(now, name), getattr(then, name)}}
    return replace(now, **unknown)


def slugify(text: str) -> str:
    """Return `text` in lower case with single dashes between words, fit for a folder's name; "machine" if nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "machine"


def hardware_slug(model: str, cores: int, memory: int, gpus: tuple[Gpu, ...]) -> str:
    """Return the hardware in a few words, such as "xeon-2c-23gib" or "xeon-16c-128gib-1x-h200"."""
    noise = {"intel", "amd", "r", "tm", "cpu", "processor", "core", "with", "genuine", "authenticamd", "genuineintel"}
    words = [word for word in re.findall(r"[a-z0-9]+", model.lower().replace("(r)", " ").replace("(tm)", " ")) if word not in noise]
    brand = words[0] if words else "cpu"
    parts = [brand, f"{cores}c", f"{memory >> 30}gib"]
    if gpus:
        card = re.sub(r"\b(nvidia|tesla|geforce|quadro)\b", "", gpus[0].name.lower())
        parts += [f"{len(gpus)}x", slugify(card)]
    return slugify("-".join(parts))


def cpu_model() -> tuple[str, tuple[str, ...]]:
    """Return the processor's name and its feature flags, sorted; "unknown" and none where the kernel does not tell."""
    told: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            told.setdefault(key.strip().lower(), value.strip())
    except OSError:
        pass
    model = told.get("model name") or platform.processor() or platform.machine() or "unknown"
    return model, tuple(sorted((told.get("flags") or told.get("features") or "").split()))


def cpu_topology(cpus: Path = Path("/sys/devices/system/cpu")) -> tuple[int | None, int | None]:
    """Return (sockets, physical cores) of the whole machine, None each where the kernel does not tell; a virtual machine has those that it was given."""
    places = []
    for topology in cpus.glob("cpu[0-9]*/topology"):
        socket, core = _first_line(topology / "physical_package_id"), _first_line(topology / "core_id")
        if not socket or not core or "-1" in {socket, core}:  # -1: this processor does not tell
            return None, None
        places.append((socket, _first_line(topology / "die_id"), core))  # cores are numbered anew on each die
    return (len({socket for socket, _, _ in places}), len(set(places))) if places else (None, None)


def cpu_governor(cpus: Path = Path("/sys/devices/system/cpu")) -> str | None:
    """Return by which rule the kernel sets the cores' clocks ("performance", "powersave"), None where it tells none, as in most virtual machines."""
    told = {_first_line(path) for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ",".join(sorted(word for word in told if word)) or None


def usable_cores() -> int:
    """Return how many cores may be used at once: the affinity mask, or the control group's quota (rounded down, at least 1) if that is less."""
    cores = len(os.sched_getaffinity(0))
    quota = cgroup_cpu_quota()
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def cgroup_cpu_quota() -> float | None:
    """Return the control group's quota in cores (version 2 or 1), None if there is none."""
    for directory in cgroup_directories("cpu"):
        both = (_first_line(directory / "cpu.max") or "").split()
        if len(both) == 2 and both[0] != "max":
            return int(both[0]) / int(both[1])
        quota, period = _number(directory / "cpu.cfs_quota_us"), _number(directory / "cpu.cfs_period_us")
        if quota is not None and quota > 0 and period:
            return quota / period
    return None


def memory_bytes() -> int:
    """Return the memory that may be used: the machine's, or the control group's limit if that is less. 0 only where the kernel tells neither."""
    total = _meminfo("MemTotal") or 0
    limit = cgroup_memory()[0]
    return total if limit is None else min(total, limit)


def free_memory_bytes() -> int | None:
    """Return what can still be had without swapping, within the control group's limit; None where the kernel does not tell."""
    available = _meminfo("MemAvailable")
    limit, in_use = cgroup_memory()
    if available is None or limit is None or in_use is None:
        return available
    return max(0, min(available, limit - in_use))


def cgroup_memory() -> tuple[int | None, int | None]:
    """Return (limit, use) of the control group in bytes, None each where there is none. File cache that can be given back is not use."""
    for directory in cgroup_directories("memory"):
        for limit_file, use_file in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit = _number(directory / limit_file)
            use = _number(directory / use_file)
            if limit is not None and limit < CGROUP_UNLIMITED_BYTES:
                return limit, None if use is None else max(0, use - _cached_bytes(directory))
    return None, None


def _cached_bytes(directory: Path) -> int:
    try:
        rows = dict(line.split() for line in (directory / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return 0
    return int(rows.get("total_inactive_file") or rows.get("inactive_file") or 0)


def package_versions() -> dict[str, str]:
    """Return the installed versions of what may influence a figure; what is not installed is left out."""
    return {name: version for name in PACKAGES if (version := _version(name)) is not None}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def framework_build(package: str = "tensorflow") -> dict[str, Scalar]:
    """Return what the installed TensorFlow says of its own build: CUDA, cuDNN, the GPU architectures that it carries, its compiler. {} where it does not.

    It is read out of the file that the build left, as a literal: importing TensorFlow would take seconds, and running the file would trust it.
    """
    try:
        spec = importlib.util.find_spec(package)
        folder = next(iter(spec.submodule_search_locations or ()), None) if spec is not None else None
        text = "" if folder is None else (Path(folder) / "python" / "platform" / "build_info.py").read_text(encoding="utf-8")
        told = next(
            dict(ast.literal_eval(node.value.args[0]))
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args
        )
    except (OSError, ImportError, ValueError, TypeError, SyntaxError, StopIteration, RecursionError, MemoryError):
        return {}
    return {str(name): _plain(value) for name, value in told.items()}


def _plain(value: object) -> Scalar:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def disk(folder: Path, devices: Path = Path("/sys/dev/block")) -> str | None:
    """Return the model of the drive that a file or folder lies on and of which kind it is, None where no drive of this machine's is behind it."""
    try:
        number = folder.stat().st_dev
        block = (devices / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    except OSError:
        return None
    whole = block.parent if (block / "partition").exists() else block
    kind = {"0": "solid state", "1": "spinning"}.get(_first_line(whole / "queue" / "rotational") or "")
    return ", ".join(word for word in (_first_line(whole / "device" / "model") or whole.name, kind) if word)


def card_node(pci_id: str | None, devices: Path = Path("/sys/bus/pci/devices")) -> int | None:
    """Return the memory node that a card hangs on, None where the kernel does not tell (it says -1 where there is only one)."""
    node = None if pci_id is None else _number(devices / pci_id.lower()[-12:] / "numa_node")
    return node if node is not None and node >= 0 else None


def container_kind() -> str | None:
    """Return which kind of container this seems to be, None outside of one."""
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    try:
        membership = Path("/proc/1/cgroup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return next((kind for kind in ("kubepods", "docker", "lxc", "slurm") if kind in membership), None)


def numa_nodes() -> int | None:
    """Return how many memory nodes the machine has, None where the kernel does not tell."""
    return len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None


def abilities() -> tuple[str, ...]:
    """Return what this user may do here that some comparisons need: limit memory by a control group, mount a directory by FUSE."""
    can = {
        "fuse": os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3") is not None,
        "memory_cgroup": memory_group_version()[0] is not None,
    }
    return tuple(name for name, may in can.items() if may)


def _meminfo(key: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), None)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").split("\n", 1)[0].strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    try:
        return int(_first_line(path) or "")
    except ValueError:
        return None
