"""Facts of a machine on which all is well, so that a test names only what is not."""

from __future__ import annotations

import struct
from dataclasses import replace

from harness.doctor.facts import BesideSmi, Card, Cards, Facts, Framework, Host, Looks, MachineCode, Noise, Sight, Storage

GIB = 1 << 30
SEEN = {"memory_mib": 1024.0, "power_w": 412.3, "sm_clock_mhz": 1980.0, "memory_clock_mhz": 3201.0, "temperature_c": 61.0}
QUIET = (0.001, -0.001, 0.002, -0.002, 0.001, -0.001)


def make_host(**changes) -> Host:
    base = Host(
        cores_present=4,
        cores_allowed=4,
        governors={"performance": 4},
        turbo=False,
        smt=False,
        time_source="tsc",
        huge_pages="madvise",
        memory_bytes=32 * GIB,
        memory_free_bytes=30 * GIB,
        swap_bytes=0,
        swap_used_bytes=0,
        results=Storage(100 * GIB),
        data=Storage(100 * GIB),
    )
    return replace(base, **changes)


def make_card(**changes) -> Card:
    base = Card(
        index=0,
        name="NVIDIA H200",
        compute_capability=9.0,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        persistence=True,
        compute_mode="default",
        power_limit_w=700.0,
        power_default_w=700.0,
        ecc=True,
        mig=False,
        others=0,
        smi=BesideSmi("580.65.06", ({name: Sight(value, value, value) for name, value in SEEN.items()},)),
    )
    return replace(base, **changes)


def make_framework(**changes) -> Framework:
    base = Framework(
        python="3.11.9",
        version="2.21.0",
        cuda_build=True,
        cuda="12.5.1",
        cudnn="9",
        gpus=1,
        wheels={"nvidia-cuda-runtime-cu12": "12.9.79", "nvidia-cudnn-cu12": "9.28.0.42"},
        code=MachineCode((60, 70, 80, 89, 90), (90,), "the libraries' fat binaries"),
    )
    return replace(base, **changes)


def make_cards(*cards: Card, **changes) -> Cards:
    return replace(Cards(cards or (make_card(),), driver="580.65.06", driver_cuda="13.0", on_bus=1), **changes)


def make_noise(**changes) -> Noise:
    return replace(Noise(QUIET, elapsed_s=6.0, foreign_cores=0.0, steal_cores=0.0, throttled_s=0.0, swapped_bytes=0), **changes)


def make_facts(
    host: Host | None = None, framework: Framework | None = None, cards: Cards | None = None, noise: Noise | None = None, full: Looks | None = None
) -> Facts:
    return Facts(host or make_host(), framework or make_framework(), cards or make_cards(), noise or make_noise(), full or Looks(12, 4, 0.01))


def on_cpu(**changes) -> Facts:
    """A machine without any card."""
    return make_facts(framework=make_framework(gpus=0), cards=Cards(reason="NVML could not be started: Driver Not Loaded", on_bus=0), **changes)


def make_container(*entries: tuple[int, int]) -> bytes:
    """A fat binary of entries of (kind, architecture), each with a payload of another length."""
    body = b""
    for position, (kind, architecture) in enumerate(entries):
        payload = b"\x55" * (8 * (position + 1))
        body += struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(payload), 0, 0, 7, 1, architecture).ljust(64, b"\0") + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def make_elf(section: bytes, content: bytes) -> bytes:
    """A 64-bit ELF file with one section of that name and content, and the table of names."""
    names = b"\0" + section + b"\0.shstrtab\0"
    head_bytes = 64
    content_at, names_at = head_bytes, head_bytes + len(content)
    table_at = names_at + len(names)
    head = (b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, 3, 2)).ljust(
        head_bytes, b"\0"
    )

    def row(name: int, kind: int, at: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)

    rows = row(0, 0, 0, 0) + row(1, 1, content_at, len(content)) + row(2 + len(section), 3, names_at, len(names))
    return head + content + names + rows
