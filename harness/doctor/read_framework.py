"""Asks TensorFlow, in a child with the workers' interpreter and environment, what it is and whether it sees a GPU. This process never imports it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.doctor.children import Ended, run_to_end
from harness.doctor.facts import Framework, MachineCode
from harness.doctor.fatbin import from_build_info, read_libraries
from harness.measure.environment import worker_environment

DEADLINE_S = 120.0
"""An import from a cold network disk takes a minute; what takes longer hangs."""

TALKATIVE = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=1"}
"""TensorFlow explains a missing GPU at INFO level, and names the libraries that it could not open at a level below that."""

LIBRARIES = ("lib*.so*", "python/_pywrap_tensorflow_internal.so")
ABOUT_GPUS = ("cuda", "cudnn", "gpu", "cuinit", "driver", "dlopen", "dynamic library")
HARMLESS = ("Unable to register", "Successfully opened")
"""Two parts register the same plug-in: said by every build, whatever the machine."""

MOST_LINES = 8
LONGEST_LINE = 300


def read_framework(interpreter: str = sys.executable, deadline_s: float = DEADLINE_S, command: Sequence[str] | None = None) -> Framework:
    """Return what TensorFlow is for this interpreter; what went wrong is `reason`, never an exception. `command` replaces the child's."""
    asked = command or [interpreter, "-u", "-m", "harness.measure.runtime.probe", str(os.getpid())]
    try:
        ended = run_to_end(asked, worker_environment(os.environ, TALKATIVE, None), deadline_s)
    except OSError as error:
        return Framework(reason=f"the interpreter {Path(interpreter).name} could not be started: {error.strerror}")
    told = answers(ended.out)
    folder = told.get("folder")
    code = machine_code(Path(folder), told.get("capabilities") or []) if folder else None
    return framework(told, ended, deadline_s, code)


def answers(out: str) -> dict[str, Any]:
    """Return what the child's lines say together; a line that was cut off says nothing."""
    told: dict[str, Any] = {}
    for line in out.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict):
            told.update(answer)
    return told


def framework(told: Mapping[str, Any], ended: Ended, deadline_s: float, code: MachineCode | None) -> Framework:
    """Return the facts from the child's answers and its end."""
    return Framework(
        python=told.get("python"),
        version=told.get("tensorflow"),
        cuda_build=told.get("cuda_build"),
        cuda=told.get("cuda"),
        cudnn=told.get("cudnn"),
        gpus=told.get("gpus"),
        wheels=told.get("wheels") or {},
        said=about_gpus(ended.err),
        code=code,
        reason=why_not(told, ended, deadline_s),
    )


def why_not(told: Mapping[str, Any], ended: Ended, deadline_s: float) -> str | None:
    """Return why the child did not answer whole, None if it did."""
    if "gpus" in told:
        return None
    if "error" in told:
        return str(told["error"])
    doing = "looking for GPUs" if "tensorflow" in told else "importing TensorFlow"
    if ended.code is None:
        return f"{doing} took longer than {deadline_s:g} s and was given up"
    if ended.code < 0:
        return f"{doing} was ended by {_signal_name(-ended.code)}"
    last = next((line.strip() for line in reversed(ended.err.splitlines()) if line.strip()), "it said nothing")
    return f"{doing} ended with exit code {ended.code}: {last[:LONGEST_LINE]}"


def about_gpus(err: str) -> tuple[str, ...]:
    """Return the lines in which TensorFlow speaks of GPUs, each once, without time and place in its source."""
    lines = [line.split("] ", 1)[-1].strip()[:LONGEST_LINE] for line in err.splitlines() if any(word in line.lower() for word in ABOUT_GPUS)]
    return tuple(dict.fromkeys(line for line in lines if line and not any(word in line for word in HARMLESS)))[:MOST_LINES]


def machine_code(folder: Path, capabilities: Sequence[str]) -> MachineCode | None:
    """Return for which GPUs the build in `folder` has code: from its libraries' fat binaries, else from what it says of itself."""
    libraries = sorted(path for pattern in LIBRARIES for path in folder.glob(pattern))
    return read_libraries(libraries).machine_code("the libraries' fat binaries") or from_build_info(list(capabilities))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
