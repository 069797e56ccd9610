"""Small training steps, and steps that are spoiled in one way each, for the tests of proofs."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.training import Training, make

TINY = {"model": "convnet_small", "image": 16, "batch": 8, "classes": 10, "seed": 1}


def make_training(kind: type[Training] = Training, **settings: Any) -> Training:
    """Return a tiny training step with `settings` laid over the defaults."""
    return make({**TINY, **settings}, kind)


def update_distances(one: dict[str, Any], other: dict[str, Any]) -> tuple[float, float]:
    """Return how far the two steps' updates of `other` lie from those of `one`, relative to `one`'s."""
    return tuple(float(np.linalg.norm(one[k] - other[k]) / np.linalg.norm(one[k])) for k in ("update_1", "update_2"))


class NoUpdate(Training):
    """Computes gradients and throws them away."""

    def update(self, gradients: Any) -> None:
        del gradients


class NoMomentum(Training):
    """Forgets the velocity before every update."""

    def update(self, gradients: Any) -> None:
        for slot in self.optimizer.slots:
            slot.assign(slot * 0)
        super().update(gradients)


class EagerLearner(Training):
    """Learns a tenth faster than it was told."""

    def update(self, gradients: Any) -> None:
        super().update([g * 1.1 for g in gradients])


class InferenceNorms(Training):
    """Runs batch norm on its moving statistics while training."""

    def forward(self, samples: Any) -> Any:
        return self.net.model(samples, training=False)


class StoppedBlock(Training):
    """Lets no gradient through the weights of one block."""

    block = "conv1"

    def update(self, gradients: Any) -> None:
        names = [v.path for v in self.net.model.trainable_variables]
        super().update([g * 0 if self.block in name else g for g, name in zip(gradients, names, strict=True)])
