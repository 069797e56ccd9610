"""Does reduced precision cost accuracy? A short real training on scikit-learn's handwritten digits, several seeds in one go.

Settings: `precision` fp32 | mixed_float16 | mixed_bfloat16, `seed` (the first), `seeds` (3), `epochs` (8). Readings: `accuracy` on the test
digits, mean over the seeds; `accuracy_worst`; `loss` of the last epoch, mean over the seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contract import Value
from benchmarks.lessons.lesson import Lesson, choice, trained_accuracy


def build(**settings: Any) -> Lesson:
    """Build the lesson from the settings named above."""
    precision = choice(settings, "precision", ("fp32", "tf32", "mixed_float16", "mixed_bfloat16"))
    first, count, epochs = int(settings.get("seed") or 0), int(settings.get("seeds") or 3), int(settings.get("epochs") or 8)
    return Lesson(lambda: _teach(precision, range(first, first + count), epochs), precision=precision)


def _teach(precision: str, seeds: range, epochs: int) -> list[Value]:
    return accuracy_values([trained_accuracy(precision, seed, epochs) for seed in seeds])


def accuracy_values(results: list[tuple[float, float]]) -> list[Value]:
    """Return the readings of several trainings, each (accuracy, loss)."""
    accuracies, losses = (np.array(column) for column in zip(*results, strict=True))
    loss = float(losses.mean())
    return [
        Value("accuracy", float(accuracies.mean()), "share"),
        Value("accuracy_worst", float(accuracies.min()), "share"),
        Value("loss", loss if np.isfinite(loss) else None, "loss", None if np.isfinite(loss) else "a training ended with a loss that is not finite"),
    ]
