"""Python inside a graph runs when the graph is traced, not when it runs: side effects, globals and Python's own random numbers.

Settings: `execution` graph | eager, `calls` (5). Readings: `traces`; `side_effects`, how often a Python list was appended to;
`distinct_random` and `distinct_global`, how many different values the calls saw of Python's random numbers and of a global that was changed
before every call; `distinct_tf_random`, the repaired form, random numbers made by TensorFlow.
"""

from __future__ import annotations

import random
from typing import Any

import tensorflow as tf

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice

_state = {"counter": 0}


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    execution = choice(settings, "execution", ("graph", "eager"))
    calls = int(settings.get("calls") or 5)
    return Lesson(lambda: _teach(execution, calls), execution=execution)


def _teach(execution: str, calls: int) -> list[Value]:
    effects: list[int] = []
    python_random = random.Random(0)
    tf_random = tf.random.Generator.from_seed(0)

    def step(x: Any) -> Any:
        effects.append(1)
        return x + python_random.random(), x + float(_state["counter"]), x + tf_random.uniform(())

    function = tf.function(step, jit_compile=False) if execution == "graph" else step
    seen = []
    for call in range(calls):
        _state["counter"] = call
        seen.append([float(value) for value in function(tf.constant(0.0))])
    distinct = [len(set(values)) for values in zip(*seen, strict=True)]
    return [
        Value("traces", function.experimental_get_tracing_count() if execution == "graph" else 0, "traces"),
        Value("side_effects", len(effects), "count"),
        Value("distinct_random", distinct[0], "count"),
        Value("distinct_global", distinct[1], "count"),
        Value("distinct_tf_random", distinct[2], "count"),
    ]
