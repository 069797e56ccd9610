"""Compiles the stand-in for NVIDIA's library and asks it things through the real binding, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_suffix(".c")
CARD = "GPU-00000000-1111-2222-3333-444444444444"
OTHER = "GPU-00000001-1111-2222-3333-444444444444"
THIRD = "GPU-00000002-1111-2222-3333-444444444444"
SLICE = "MIG-00000000-1111-2222-3333-000000000000"
SECOND_SLICE = "MIG-00000000-1111-2222-3333-000000000001"

PREAMBLE = """
import itertools, json, os
from dataclasses import asdict
from harness.measure.telemetry import nvml
from harness.model import Gpu

def read(reader, times=2):
    told = {}
    for _ in range(times):
        for sample in reader.sample():
            told.setdefault(sample.device, {})[sample.name] = sample.reason if sample.value is None else sample.value
    return told

def reader(gpus=None, ours=lambda pid: False, nested=False, clock=itertools.count(0, 10**8).__next__):
    return nvml.NvmlReader(nvml.devices()[0] if gpus is None else gpus, ours=ours, nested=nested, clock=clock)
"""
"""`read` tells, for each card and name, the last value of several samples, or the reason why there is none. The clock moves on as it is looked at."""


def compile_stub(folder: Path, *defines: str) -> Path:
    """Compile the library into `folder` and return that; the test is skipped where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing: the stand-in for NVIDIA's library cannot be compiled")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-std=c11", *(f"-D{name}" for name in defines)]
    subprocess.run([*command, "-o", folder / "libnvidia-ml.so.1", SOURCE], check=True, capture_output=True, text=True)
    return folder


def ask(
    code: str, library: Path | None = None, stub: Mapping[str, object] | None = None, *, first_on_path: Path | None = None, **environment: str
) -> Any:
    """Run `code`, whose last line is an expression, with `library` first where libraries are looked for, and return that expression's value.

    `stub` are the library's settings without their common prefix, `environment` are other variables.
    """
    *lines, last = code.strip().splitlines()
    program = "\n".join([PREAMBLE, *lines, f"print(json.dumps({last.strip()}))"])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(str(path) for path in (first_on_path, ROOT) if path is not None)}
    if library is not None:
        env["LD_LIBRARY_PATH"] = str(library)
    env |= {f"NVML_STUB_{name}": str(value) for name, value in (stub or {}).items()}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env={**env, **environment}, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
