"""What a folder lies on, told so that neither a path nor an address goes into a bundle. No framework."""

from __future__ import annotations

import re
from pathlib import Path

from harness.measure.machine import disk
from harness.model import Volume, stable_id

MOUNTS = Path("/proc/self/mountinfo")


def read_volume(folder: Path, mounts: Path = MOUNTS) -> Volume:
    """Return the file system and the drive that a folder lies on, or would if it were made; what the kernel does not tell is None."""
    try:
        place = next(path for path in (folder, *folder.parents) if path.exists()).resolve()
        found = mount_of(str(place), mounts.read_text("utf-8", errors="surrogateescape"))
    except (OSError, StopIteration):
        return Volume()
    if found is None:
        return Volume()
    file_system, source = found
    return Volume(file_system, disk(place) or stable_id("mount", source))


def mount_of(path: str, mountinfo: str) -> tuple[str, str] | None:
    """Return (type of the file system, what is mounted) of the mount that the absolute `path` lies on, from the text of /proc/self/mountinfo."""
    best: tuple[int, str, str] | None = None
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        told = fields[fields.index("-", 6) + 1 :] if "-" in fields[6:] else []
        if len(told) < 2:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        # Of two mounts at one point the later lies on top.
        if (path == point or path.startswith(point.rstrip("/") + "/")) and (best is None or len(point) >= best[0]):
            best = (len(point), told[0], told[1])
    return best[1:] if best is not None else None
