"""Does accuracy collapse when the last layer's softmax stays in half precision?

Settings: `output` float16 | float32 (the dtype of the final softmax of a net that otherwise follows mixed_float16), `seed`, `seeds` (3),
`epochs` (8). Readings as in `mixed_accuracy`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice, trained_accuracy
from benchmarks.lessons.mixed_accuracy import accuracy_values


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    output = choice(settings, "output", ("float16", "float32"))
    first, count, epochs = int(settings.get("seed") or 0), int(settings.get("seeds") or 3), int(settings.get("epochs") or 8)
    return Lesson(lambda: _teach(output, range(first, first + count), epochs), output=output, precision="mixed_float16")


def _teach(output: str, seeds: range, epochs: int) -> list[Value]:
    # None lets the layer follow the policy, which is what a net does whose author never thought of it.
    dtype = "float32" if output == "float32" else None
    return accuracy_values([trained_accuracy("mixed_float16", seed, epochs, output_dtype=dtype) for seed in seeds])
