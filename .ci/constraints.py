"""Writes constraints.txt: for every Python that is supported, the versions that pip resolves today for what pyproject.toml asks for.

Run by `make constraints`, with python3.10 to python3.13 on the PATH. Nothing is installed; pip's report of a dry run is read. A pin that does
not hold for all of them carries an environment marker.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
ROOT = Path(__file__).resolve().parents[1]
HEADER = """\
# Pins for everything that is installed. Written by `make constraints`; do not edit by hand.
# A line without a marker holds for Python 3.10 to 3.13.
"""


def resolve(python: str, folder: Path) -> dict[str, str]:
    """Return name -> version of all that an editable installation with the extras `dev` and `cuda` brings on this `python` ("3.10")."""
    interpreter = shutil.which(f"python{python}")
    if interpreter is None:
        raise SystemExit(f"python{python} is not on the PATH: constraints are resolved for {', '.join(PYTHONS)}")
    environment = folder / python
    subprocess.run([interpreter, "-m", "venv", environment], check=True)
    pip = environment / "bin" / "pip"
    # An old pip neither writes reports nor resolves as today's does.
    subprocess.run([pip, "install", "--quiet", "--upgrade", "pip"], check=True)
    report = folder / f"{python}.json"
    subprocess.run([pip, "install", "-qq", "--dry-run", "--ignore-installed", "--report", report, "--editable", f"{ROOT}[dev,cuda]"], check=True)
    found = (item["metadata"] for item in json.loads(report.read_text())["install"])
    return {re.sub(r"[-_.]+", "-", meta["name"]).lower(): meta["version"] for meta in found if meta["name"] != "speedproof"}


def lines(resolved: dict[str, dict[str, str]]) -> list[str]:
    """Return the lines of the file from python -> name -> version."""
    out = []
    for name in sorted({name for pins in resolved.values() for name in pins}):
        versions: dict[str, list[str]] = {}
        for python in PYTHONS:
            if name in resolved[python]:
                versions.setdefault(resolved[python][name], []).append(python)
        for version, pythons in sorted(versions.items()):
            out.append(f"{name}=={version}{_marker(pythons)}")
    return out


def _marker(pythons: list[str]) -> str:
    if len(pythons) == len(PYTHONS):
        return ""
    if pythons[-1] == PYTHONS[-1] and tuple(pythons) == PYTHONS[-len(pythons) :]:
        return f' ; python_version >= "{pythons[0]}"'
    return " ; " + " or ".join(f'python_version == "{python}"' for python in pythons)


def main() -> None:
    """Resolve for every Python and write the file."""
    with tempfile.TemporaryDirectory() as folder:
        resolved = {}
        for python in PYTHONS:
            print(f"resolving for Python {python}", file=sys.stderr)
            resolved[python] = resolve(python, Path(folder))
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(lines(resolved)) + "\n")


if __name__ == "__main__":
    main()
