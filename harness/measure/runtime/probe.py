"""What TensorFlow is here and whether it sees a GPU, asked in a process of its own: `python -m harness.measure.runtime.probe PARENT_PID`.

It answers on stdout, one JSON object a line as soon as something is known, so that a hang or a crash takes only the rest away; what TensorFlow itself
says goes to stderr. It uses no device and no memory of one. Python 3.8 syntax: a level may name an old interpreter.
"""

# ruff: noqa: UP006, UP035 (as above)

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from typing import Any, Dict, Iterator, List

from harness.measure.worker import die_with


def answers() -> Iterator[Dict[str, Any]]:
    """Yield what is known, the costly parts last: interpreter and packages, then the build, then the number of GPUs; an import that fails is `error`."""
    spec = importlib.util.find_spec("tensorflow")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    yield {"python": "%d.%d.%d" % sys.version_info[:3], "folder": folders[0] if folders else None, "wheels": nvidia_packages()}  # noqa: UP031
    try:
        import tensorflow as tf  # noqa: PLC0415 (what this process is for)
    except Exception as error:  # noqa: BLE001 (a damaged installation raises anything)
        yield {"error": type(error).__name__ + ": " + " ".join(str(error).split())[:500]}
        return
    build = dict(tf.sysconfig.get_build_info())
    yield {
        "tensorflow": tf.__version__,
        "cuda_build": bool(build.get("is_cuda_build", False)),
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "capabilities": list(build.get("cuda_compute_capabilities", [])),
    }
    yield {"gpus": len(tf.config.list_physical_devices("GPU"))}


def nvidia_packages() -> Dict[str, str]:
    """Return the versions of NVIDIA's installed packages by name."""
    named = ((str(found.metadata["Name"]).lower(), found.version) for found in importlib.metadata.distributions())
    return {name: version for name, version in sorted(named) if name.startswith("nvidia-")}


def main(arguments: List[str]) -> int:
    """Answer on what was stdout; whatever else is printed goes to stderr. The argument is the pid of the parent to die with."""
    die_with(int(arguments[0]))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        for answer in answers():
            out.write(json.dumps(answer) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
