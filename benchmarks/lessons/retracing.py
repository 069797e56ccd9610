"""Sequences of many lengths: how often is the graph built anew?

Settings: `signature` none | given | reduce | xla (given, and compiled), `lengths` (40). Readings: `traces`, `compilations` (XLA only, counted
from the modules that the compiler writes out), `total_s` for all calls together.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice

_WIDTH = 16


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    signature = choice(settings, "signature", ("none", "given", "reduce", "xla"))
    lengths = int(settings.get("lengths") or 40)
    return Lesson(lambda: _teach(signature, lengths), signature=signature, lengths=lengths, xla=signature == "xla")


def _teach(signature: str, lengths: int) -> list[Value]:
    dumps = _dump_compilations() if signature == "xla" else None
    function = _function(signature)
    random = np.random.default_rng(0)
    began_ns = time.perf_counter_ns()
    for length in range(8, 8 + lengths):
        float(function(tf.constant(random.standard_normal((length, _WIDTH), dtype=np.float32))))
    total_s = (time.perf_counter_ns() - began_ns) / 1e9
    if dumps is None:
        compilations = Value("compilations", None, "compilations", "only XLA compiles")
    else:
        seen = len(list(dumps.glob("*_sequence_step_*.before_optimizations.txt")))
        # Something was compiled, or there would be no result: that none was written out means that XLA had read its flags before.
        compilations = Value("compilations", seen or None, "compilations", None if seen else "XLA was already in use when it was asked to count")
        shutil.rmtree(dumps, ignore_errors=True)
    return [Value("traces", function.experimental_get_tracing_count(), "traces"), compilations, Value("total_s", total_s, "s")]


def _function(signature: str) -> Any:
    weights = tf.Variable(tf.random.stateless_normal((_WIDTH, _WIDTH), seed=(0, 0)))

    def sequence_step(samples: Any) -> Any:
        return tf.reduce_mean(tf.tanh(samples @ weights))

    given = [tf.TensorSpec((None, _WIDTH), tf.float32)] if signature in ("given", "xla") else None
    return tf.function(sequence_step, input_signature=given, reduce_retracing=signature == "reduce", jit_compile=signature == "xla")


def _dump_compilations() -> Path:
    """Have XLA write every module that it compiles to a folder. It reads this flag at its first use in the process."""
    folder = tempfile.mkdtemp(prefix="xla-modules-")
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_pipeline_re=none"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    return Path(folder)
