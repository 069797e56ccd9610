"""For which GPUs a shared library carries code, read from the fat binaries in it: NVIDIA's containers of machine code and PTX for several architectures.

The layout is that of CUDA 7 to 13: a container's head of 16 bytes (magic, version, length of the head, length of the rest), then entries, each with a
head (kind, length of the head, length of the payload, architecture) before its payload. Nothing is decompressed.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.doctor.facts import MachineCode

PTX, ELF = 1, 2
MAGIC = struct.pack("<I", 0xBA55ED50)
SECTIONS = (b".nv_fatbin", b"__nv_relfatbin")
NO_BITS = 8
"""A section of this type occupies nothing in the file (debug files keep such husks)."""

_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHI")
_SECTION = struct.Struct("<IIQQQQ")


@dataclass
class Carried:
    """How many containers there are, and how many of them have machine code, or PTX, for an architecture (90 is sm_90)."""

    containers: int = 0
    native: Counter[int] = field(default_factory=Counter)
    ptx: Counter[int] = field(default_factory=Counter)

    def machine_code(self, source: str) -> MachineCode | None:
        """Return what at least half of the containers have, because some kernels are meant for one architecture alone; None of no container."""
        if not self.containers:
            return None
        native, ptx = (tuple(sorted(sm for sm, count in counts.items() if 2 * count >= self.containers)) for counts in (self.native, self.ptx))
        return MachineCode(native, ptx, source)


def read_libraries(paths: list[Path]) -> Carried:
    """Return what the fat binaries of these files carry together. Files that cannot be read, or are no 64-bit little-endian ELF, carry nothing."""
    carried = Carried()
    for path in paths:
        with contextlib.suppress(OSError, ValueError, struct.error):  # unreadable, empty, or cut short
            _read(path, carried)
    return carried


def _read(path: Path, carried: Carried) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for start, end in sections(data):
            _count(data, start, end, carried)


def sections(data: bytes | mmap.mmap) -> list[tuple[int, int]]:
    """Return (start, end) in the file of every section with fat binaries; none of a file that ends before its tables do."""
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, least significant byte first
        return []
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    if table + entry_bytes * count > len(data):
        return []
    rows = [_SECTION.unpack_from(data, table + index * entry_bytes) for index in range(count)]
    if names_index >= len(rows):
        return []
    names_at = rows[names_index][4]
    found = []
    for name, kind, _, _, offset, size in rows:
        start = names_at + name
        if kind != NO_BITS and offset < len(data) and data[start : start + 20].split(b"\0", 1)[0] in SECTIONS:
            found.append((offset, min(offset + size, len(data))))
    return found


def _count(data: bytes | mmap.mmap, start: int, end: int, carried: Carried) -> None:
    at = data.find(MAGIC, start, end)
    while at != -1:
        _, _, head_bytes, rest_bytes = _CONTAINER.unpack_from(data, at)
        stop = min(at + head_bytes + rest_bytes, end)
        entries = set(_entries(data, at + head_bytes, stop))
        carried.containers += 1
        carried.native.update(sm for kind, sm in entries if kind == ELF)
        carried.ptx.update(sm for kind, sm in entries if kind == PTX)
        at = data.find(MAGIC, max(stop, at + len(MAGIC)), end)


def _entries(data: bytes | mmap.mmap, at: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield (kind, architecture) of a container's entries; a head that cannot be one ends it."""
    while at + _ENTRY.size <= stop:
        kind, _, head_bytes, payload_bytes, _, _, _, _, architecture = _ENTRY.unpack_from(data, at)
        if head_bytes < _ENTRY.size:
            return
        yield kind, architecture
        at += head_bytes + payload_bytes


def from_build_info(capabilities: list[str]) -> MachineCode | None:
    """Return what a build says of itself: "sm_90" is machine code alone, "compute_90" machine code and PTX. None where it says nothing readable."""
    named = [(kind, int(number)) for kind, _, number in (text.partition("_") for text in capabilities) if number.isdigit()]
    native = sorted({number for kind, number in named if kind in {"sm", "compute"}})
    ptx = sorted({number for kind, number in named if kind == "compute"})
    return MachineCode(tuple(native), tuple(ptx), "what the build says of itself") if native else None
