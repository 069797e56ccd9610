"""How fast bytes go between the host and a GPU, and how fast GPUs add up what each of them holds.

Whether the host's memory is pinned is not TensorFlow's to choose by name, but it follows from where a tensor comes from. What a function fetches from a
GPU is put into pinned memory, and stays there while the tensor lives; what the CPU makes by itself lies in pageable memory, and so does what numpy
takes out of a GPU. On its way to a GPU, TensorFlow first copies pageable memory of its own into pinned memory: that is part of what is measured, as it
is of what a pipeline pays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.devices import device_of
from benchmarks.roofs.common import MIB, Roof, gpus, traced, whole, word
from harness.errors import ConfigError

MEMORY = ("pageable", "pinned")
PARTS = 4
"""Tensors that are moved in a step, so that one can be on its way while the next is made ready."""


def h2d(settings: dict[str, Any]) -> Roof:
    """From the host to the GPU: `mib` MiB (256) a step, in four tensors. `memory` of the host: pageable or pinned. Work: B, each byte once.

    Raises ConfigError where there is no GPU.
    """
    place = gpus(settings)[0]
    memory, part_bytes = word(settings, "memory", MEMORY), _part_bytes(settings)
    held = _on_host(part_bytes)
    if memory == "pinned":
        held = mover("/CPU:0")(*mover(place)(*held))
        _check_place("op=h2d memory=pinned", held, "cpu")
    return moved_up(held, place, memory)


def moved_up(held: list[Any], place: str, memory: str) -> Roof:
    """Return the roof of moving the tensors `held` on the host to `place`."""
    size_bytes = _bytes(held)

    def told(made: Any) -> dict[str, Any]:
        return {"op": "h2d", "memory": memory, "mib": size_bytes // MIB, "device": device_of(*made)}

    return traced(mover(place), held, size_bytes, "B", told)


def d2h(settings: dict[str, Any]) -> Roof:
    """From the GPU to the host, as `h2d`. Pageable memory is taken anew for every tensor, as whoever looks at a result has it. Work: B, each byte once."""
    place = gpus(settings)[0]
    memory = word(settings, "memory", MEMORY)
    return moved_down(mover(place)(*_on_host(_part_bytes(settings))), memory)


def moved_down(held: list[Any], memory: str) -> Roof:
    """Return the roof of moving the tensors `held` on the device to the host."""
    size_bytes = _bytes(held)

    def told(made: Any) -> dict[str, Any]:
        if memory == "pinned":
            _check_place("op=d2h memory=pinned", made, "cpu")
        return {"op": "d2h", "memory": memory, "mib": size_bytes // MIB, "device": device_of(*held)}

    if memory == "pinned":
        return traced(mover("/CPU:0"), held, size_bytes, "B", told)
    return Roof(lambda: [_taken_out(tensor) for tensor in held], size_bytes, "B", told)


def _taken_out(tensor: Any) -> np.ndarray:
    """What lies in a tensor on a device, in memory of the host. A handle keeps what was once taken out by it, and would hand that out again: so each time
    it is a new one, of the same memory. Not numpy(): that copies once more, within the host."""
    with tf.device(tensor.device):
        return np.asarray(tf.identity(tensor))


def all_reduce(settings: dict[str, Any]) -> Roof:
    """Every GPU that this process may use ends up with the sum of all, by NCCL: an array of `mib` MiB (256) on each, `repeat` (4) times a step, each time
    the last sums. Work: B as the links see it, 2 (n - 1) / n times the array for n GPUs (the bus bandwidth of NCCL's own tests).

    Raises ConfigError where fewer than two GPUs can be used.
    """
    places = gpus(settings, least=2)
    mib, repeat = whole(settings, "mib", 256), whole(settings, "repeat", 4)
    held = []
    for place in places:
        with tf.device(place):
            held.append(tf.ones((mib * MIB // 4,), tf.float32))

    @tf.function
    def chain(*tensors: Any) -> Any:
        for number in range(repeat):
            sums = []
            for place, tensor in zip(places, tensors):
                with tf.device(place):
                    sums.append(
                        tf.raw_ops.NcclAllReduce(input=tensor, reduction="sum", num_devices=len(places), shared_name=f"all_reduce_roof_{number}")
                    )
            tensors = sums
        return list(tensors)

    def told(made: Any) -> dict[str, Any]:
        return {"op": "all_reduce", "mib": mib, "repeat": repeat, "gpus": len(made), "device": device_of(*made)}

    return traced(chain, held, bus_bytes(mib * MIB, len(places)) * repeat, "B", told)


def bus_bytes(array_bytes: int, members: int) -> float:
    """Return the bytes that each member must at least send, and receive, so that `members` arrays of `array_bytes` are summed everywhere."""
    return 2 * (members - 1) / members * array_bytes


def mover(place: str) -> Any:
    """Return a function that brings tensors to `place`, all in one call."""

    @tf.function
    def move(*tensors: Any) -> list[Any]:
        with tf.device(place):
            return [tf.identity(tensor) for tensor in tensors]

    return move


def _on_host(part_bytes: int) -> list[Any]:
    """PARTS tensors in the host's pageable memory. The sum makes TensorFlow itself allocate them: an array of numpy's would be used as it is."""
    with tf.device("/CPU:0"):
        return [tf.constant(np.arange(part_bytes // 4, dtype=np.float32)) + tf.constant(float(part), tf.float32) for part in range(PARTS)]


def _part_bytes(settings: dict[str, Any]) -> int:
    mib = whole(settings, "mib", 256)
    if mib % PARTS:
        raise ConfigError(f"op={settings['op']} mib={mib}: is moved in {PARTS} tensors of whole MiB; ask for a multiple of {PARTS}")
    return mib // PARTS * MIB


def _bytes(tensors: list[Any]) -> int:
    return sum(int(tensor.shape.num_elements()) * int(tensor.dtype.size) for tensor in tensors)


def _check_place(what: str, tensors: list[Any], kind: str) -> None:
    lie = device_of(*tensors)
    if lie != kind:
        raise ConfigError(f"{what}: what was to lie on the {kind} lies on the {lie}; this TensorFlow cannot show that roof, leave it out")
