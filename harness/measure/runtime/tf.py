"""TensorFlow as the instrument sees it: start it pinned, wait for its devices, read its memory, say what it is.

It knows nothing of workloads, rounds or claims, and it is imported in workers only. Python 3.8 syntax: older interpreters load it too.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

from harness.errors import ConfigError

MemoryReading = Tuple[Optional[int], str, Optional[str]]

_QUIET, _TALKATIVE = "2", "0"
_ALLOCATOR, _CUDA_POOL = "TF_GPU_ALLOCATOR", "cuda_malloc_async"
_OVERRULING = ("TF_FORCE_GPU_ALLOW_GROWTH", "NVIDIA_TF32_OVERRIDE")  # above what is pinned here, unseen: growth, and TensorFloat-32
_FIGURES = ("allocator_peak", "allocator_peak_steady", "allocator_current")
_started: Dict[str, Any] = {}


def start(settings: Dict[str, Any]) -> None:
    """Import TensorFlow and pin what it would choose by itself. Must come before anything has touched a device.

    Read from `settings`, all optional: `device` ("cpu" hides every GPU, "gpu" demands one), `allocator` ("growth", "all", or "cuda_malloc_async":
    CUDA's own pool instead of TensorFlow's), `gpu_memory_mib` (TensorFlow takes so much of each card and no more), `threads` (intra-op; inter-op
    is left alone unless `inter_op_threads` is given), `precision` (TensorFloat-32 is on for "tf32" alone), `seed`, `deterministic`, and
    `logical_cpus` (into how many devices the CPU is cut, for replicas without GPUs).

    Raises ConfigError where a GPU was asked for and none is usable, with what TensorFlow itself said about it.
    """
    device = settings.get("device", "cpu")
    # A missing GPU is explained by TensorFlow at INFO level only.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _TALKATIVE if device == "gpu" else _QUIET)
    allocator = settings.get("allocator", "growth")
    if allocator == _CUDA_POOL:
        os.environ[_ALLOCATOR] = _CUDA_POOL
    else:
        os.environ.pop(_ALLOCATOR, None)  # one that was set outside would be a hidden difference
    for variable in _OVERRULING:
        os.environ.pop(variable, None)
    (tf, gpus), said = _overheard(_import_and_list_gpus)
    if device == "gpu":
        if not gpus:
            raise ConfigError(f"a GPU was asked for and TensorFlow {tf.__version__} found none: {_reason(tf, said)}")
        for gpu in gpus:
            _limit(tf, gpu, allocator, settings.get("gpu_memory_mib"))
    else:
        tf.config.set_visible_devices([], "GPU")
    if settings.get("threads"):
        tf.config.threading.set_intra_op_parallelism_threads(int(settings["threads"]))
    if settings.get("inter_op_threads"):
        tf.config.threading.set_inter_op_parallelism_threads(int(settings["inter_op_threads"]))
    if settings.get("logical_cpus"):
        cut = [tf.config.LogicalDeviceConfiguration() for _ in range(int(settings["logical_cpus"]))]
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cut)
    tf.config.experimental.enable_tensor_float_32_execution(settings.get("precision") == "tf32")
    if settings.get("deterministic"):
        tf.config.experimental.enable_op_determinism()
    import keras

    keras.utils.set_random_seed(int(settings.get("seed") or 0))
    _started.clear()
    _started.update(device=device, allocator=allocator)


def sync() -> None:
    """Return when every device has finished all that was handed to it, optimizer updates included."""
    import tensorflow as tf

    tf.test.experimental.sync_devices()


def steady() -> None:
    """Count the allocator's peak anew from here on: warm-up is over, and with it choosing algorithms. The peak so far is kept for `memory`."""
    if _started.get("device") != "gpu":
        return
    import tensorflow as tf

    try:
        before = {name: int(tf.config.experimental.get_memory_info(name)["peak"]) for name in _cards(tf)}
        for name in before:
            tf.config.experimental.reset_memory_stats(name)
    except (ValueError, tf.errors.OpError) as error:
        _started["unsteady"] = f"TensorFlow did not begin its allocator's statistics anew after warm-up: {error}"
        return
    _started["peaks"] = before


def memory() -> Dict[str, MemoryReading]:
    """Return name -> (bytes, "bytes", None), or (None, "bytes", reason): the allocator's peak over the process's life, its peak after warm-up, and
    its present use; of several cards, each time the most."""
    if _started.get("device") != "gpu":
        return _nothing("TensorFlow keeps no allocator statistics for the CPU")
    import tensorflow as tf

    try:
        told = {name: tf.config.experimental.get_memory_info(name) for name in _cards(tf)}
    except (ValueError, tf.errors.OpError) as error:
        return _nothing(f"TensorFlow refused the allocator's statistics: {error}")
    if not told:
        return _nothing("TensorFlow has no GPU in use")
    peaks = {name: int(info["peak"]) for name, info in told.items()}
    before = _started.get("peaks")
    whole = {name: max(peak, (before or {}).get(name, 0)) for name, peak in peaks.items()}
    steady_peak: MemoryReading = (max(peaks.values()), "bytes", None)
    if before is None:
        steady_peak = (None, "bytes", _started.get("unsteady") or "no timed block followed its warm-up, so there is no peak after it")
    return {
        "allocator_peak": (max(whole.values()), "bytes", None),
        "allocator_peak_steady": steady_peak,
        "allocator_current": (max(int(info["current"]) for info in told.values()), "bytes", None),
    }


def _nothing(reason: str) -> Dict[str, MemoryReading]:
    missing: MemoryReading = (None, "bytes", reason)
    return dict.fromkeys(_FIGURES, missing)


def facts() -> Dict[str, Any]:
    """Return what is running: versions, how it was built, the devices it may use, and the settings that are really in force.

    Does not initialise any device, so that a workload can still cut the CPU into logical ones.
    """
    import keras
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    gpus = tf.config.get_visible_devices("GPU")
    return {
        "framework": "tensorflow",
        "sync": "tf.test.experimental.sync_devices",
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "cuda_build": bool(build.get("is_cuda_build", False)),
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "device": "gpu" if gpus else "cpu",
        "visible_gpus": len(gpus),
        "gpu_names": ", ".join(str(tf.config.experimental.get_device_details(g).get("device_name")) for g in gpus) or None,
        "allocator": _allocator(tf, gpus),
        "threads": tf.config.threading.get_intra_op_parallelism_threads() or None,
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads() or None,
        "tensor_float_32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
    }


def write_proof(path: str, arrays: Dict[str, Any]) -> None:
    """Write named arrays to `path` as a compressed .npz. No pickled object may be in it: such a file would be refused by the reader."""
    import numpy as np

    plain: Dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    odd = sorted(name for name, array in plain.items() if array.dtype.hasobject)
    if odd:
        raise ConfigError(f"a proof holds numbers only, but {', '.join(odd)} holds Python objects")
    with open(path, "wb") as file:  # an open file keeps numpy from appending a suffix of its own
        np.savez_compressed(file, **plain)


def _import_and_list_gpus() -> Any:
    import tensorflow as tf

    return tf, tf.config.list_physical_devices("GPU")


def _limit(tf: Any, gpu: Any, allocator: str, memory_mib: Optional[int]) -> None:
    """Pin how much of a card TensorFlow takes, and when. A limit is taken whole and at once; CUDA's pool grows by demand."""
    if memory_mib:
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=int(memory_mib))])
    else:
        tf.config.experimental.set_memory_growth(gpu, allocator != "all")


def _cards(tf: Any) -> List[str]:
    """The names by which the allocators of all cards in use are asked."""
    return [f"GPU:{number}" for number in range(len(tf.config.list_logical_devices("GPU")))]


def _allocator(tf: Any, gpus: List[Any]) -> Optional[str]:
    if not gpus:
        return None
    if os.environ.get(_ALLOCATOR) == _CUDA_POOL:
        return _CUDA_POOL
    if any(tf.config.get_logical_device_configuration(g) for g in gpus):
        return "limited"
    return "growth" if all(tf.config.experimental.get_memory_growth(g) for g in gpus) else "all"


def _reason(tf: Any, said: str) -> str:
    if not tf.test.is_built_with_cuda():
        return "this build of TensorFlow has no CUDA support"
    words = ("cuda", "cudnn", "gpu", "cuinit", "driver", "dlopen")
    lines = [line.split("] ", 1)[-1].strip() for line in said.splitlines() if any(w in line.lower() for w in words)]
    masked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if masked is not None:
        lines.append(f"CUDA_VISIBLE_DEVICES is {masked!r}")
    return "; ".join(dict.fromkeys(lines)) or "it gave no reason"


def _overheard(call: Callable[[], Any]) -> Tuple[Any, str]:
    """Return what `call` returns and what was written to file descriptor 2 meanwhile (C++ logging does not pass through sys.stderr).
    The text is handed on to stderr as well."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as ear:
        os.dup2(ear.fileno(), 2)
        try:
            result = call()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            ear.seek(0)
            heard = ear.read()
            os.write(2, heard)
    return result, heard.decode(errors="replace")
