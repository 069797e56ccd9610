"""Do two arms compute the same? Compares the small arrays of proofs; without a passed proof a speed-up is no speed-up.

The tolerance is measured: so many times what a rounding-sized perturbation of the weights does to the baseline's own update.
Must not know how proofs are made or where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.errors import HarnessError
from harness.judge.thresholds import Thresholds
from harness.model import Proof, ProofResult, Reason, Scalar

if TYPE_CHECKING:
    from harness.judge.book import Book

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

DEFAULTS = Thresholds()

REDUCED = frozenset({"tf32", "mixed_float16", "mixed_bfloat16", "float16"})
"""Precisions in which only the loss and its finiteness are compared; their code is proven in fp32 by a proof of its own."""

STEPS = (1, 2)
"""The second update is what momentum and other state show in."""

LEAST_PERTURBATION = 1e-7
"""Relative to the update's norm: where a perturbed baseline is the same to the bit, differences of rounding are still allowed for."""


def judge_proofs(book: Book, load_proof: Callable[[str], Arrays]) -> tuple[ProofResult, ...]:
    """Return the result of every planned proof. One that could not be carried out has passed None and says why."""
    return tuple(_judge_proof(book, proof, load_proof) for proof in book.plan.proofs)


def _judge_proof(book: Book, proof: Proof, load_proof: Callable[[str], Arrays]) -> ProofResult:
    reduced = proof.precision in REDUCED
    needed = {"baseline": proof.baseline, "treatment": proof.treatment} | ({} if reduced else {"perturbed baseline": proof.perturbed})
    arrays: dict[str, Arrays] = {}
    for arm, contrast in needed.items():
        name = _file(book, contrast)
        if name is None:
            return ProofResult(proof.id, None, _not_made(book, arm, contrast))
        try:
            arrays[arm] = load_proof(name)
        except (HarnessError, OSError, ValueError, KeyError) as error:
            return ProofResult(proof.id, None, Reason("unreadable", f"the proof of the {arm} could not be read: {error}"))
    if "samples" in arrays["baseline"]:
        return ProofResult(proof.id, *compare_deliveries(arrays["baseline"], arrays["treatment"], book.thresholds))
    passed, reason = compare(arrays["baseline"], arrays.get("perturbed baseline"), arrays["treatment"], proof.precision, book.thresholds)
    return ProofResult(proof.id, passed, reason)


def _file(book: Book, contrast: str) -> str | None:
    """Return the name of the last completed proof of a contrast."""
    return next((t.proof for r in reversed(book.completed(contrast)) for t in r.trials if t.proof), None)


def _not_made(book: Book, arm: str, contrast: str) -> Reason:
    lost = book.lost(contrast)
    if lost and lost[-1].outcome.reason:
        return Reason("no_proof", f"the {arm} gave no proof: {lost[-1].outcome.reason.text}", {"contrast": contrast})
    return Reason("no_proof", f"the {arm} gave no proof", {"contrast": contrast})


def compare(
    baseline: Arrays, perturbed: Arrays | None, treatment: Arrays, precision: str, thresholds: Thresholds = DEFAULTS
) -> tuple[bool | None, Reason]:
    """Return whether `treatment` computes what `baseline` does, and the reason with every difference beside its tolerance.

    Arrays of nets: `loss` (2,), `finite`, sketches `update_1` and `update_2` (any equal length), `update_norm` (2,). None: the proof proves nothing, because
    arrays are missing or misshapen, or because the baseline itself is not finite or does not learn.
    """
    reduced = precision in REDUCED
    named = {"baseline": baseline, "treatment": treatment} | ({} if reduced else {"perturbed baseline": perturbed or {}})
    unfit = _unfit(named, updates=not reduced)
    if unfit:
        return None, Reason("no_proof", unfit)
    if not _finite(baseline):
        return None, Reason("baseline_not_finite", "the baseline's own loss is not finite")
    if not _finite(treatment):
        return False, Reason("not_finite", "the treatment's loss is not finite")
    numbers, failed = _compare_loss(baseline, treatment, thresholds.proof_loss(precision))
    if not reduced and perturbed is not None:
        if not all(_size(baseline, step) > 0 for step in STEPS):
            return None, Reason("baseline_idle", "the baseline's own weights did not move, so nothing can be compared")
        for step in STEPS:
            more, wrong = _compare_update(baseline, perturbed, treatment, step, thresholds.proof_factor)
            numbers |= more
            failed += wrong
    if failed:
        return False, Reason("differs", "; ".join(failed), numbers)
    return True, Reason("same", "loss and finiteness agree" if reduced else "loss and weight updates agree", numbers)


def compare_deliveries(baseline: Arrays, treatment: Arrays, thresholds: Thresholds = DEFAULTS) -> tuple[bool | None, Reason]:
    """Return whether two pipelines deliver the same samples in an epoch: as many, the same ones, of the same classes, with the same pixels.

    Arrays: `samples` () how many, `ids` checksums over the samples' names, `labels` (classes,) how many of each, `pixels` (samples, 3) mean colours
    in the order of the samples' names, in [-1, 1].
    """
    needed = ("samples", "ids", "labels", "pixels")
    for arm, arrays in (("baseline", baseline), ("treatment", treatment)):
        missing = [key for key in needed if key not in arrays]
        if missing:
            return None, Reason("no_proof", f"the proof of the {arm} lacks {', '.join(missing)}")
    ours, theirs = int(np.ravel(treatment["samples"])[0]), int(np.ravel(baseline["samples"])[0])
    if theirs == 0:
        return None, Reason("no_proof", "the baseline delivered no sample")
    numbers: dict[str, Scalar] = {"samples": ours, "samples_expected": theirs}
    wrong = _other_samples(baseline, treatment)
    if wrong is None:
        difference = float(np.max(np.abs(np.asarray(baseline["pixels"], np.float64) - np.asarray(treatment["pixels"], np.float64))))
        numbers |= {"pixels_difference": _plain(difference), "pixels_tolerance": thresholds.proof_pixels}
        if not difference <= thresholds.proof_pixels:
            wrong = f"a sample's mean colour differs by {difference:.2g}, allowed is {thresholds.proof_pixels:.2g}"
    return (True, Reason("same", f"the same {ours} samples, classes and pixels", numbers)) if wrong is None else (False, Reason("differs", wrong, numbers))


def _other_samples(baseline: Arrays, treatment: Arrays) -> str | None:
    """Return what tells the two sets of samples apart before their pixels are looked at, None where nothing does."""
    ours, theirs = int(np.ravel(treatment["samples"])[0]), int(np.ravel(baseline["samples"])[0])
    if ours != theirs:
        return f"an epoch holds {ours} samples instead of {theirs}"
    for what, name in (("ids", "names"), ("labels", "classes")):
        if not np.array_equal(baseline[what], treatment[what]):
            return f"an epoch holds other samples: their {name} differ"
    return "the samples' pixels have another shape" if np.shape(baseline["pixels"]) != np.shape(treatment["pixels"]) else None


def _unfit(named: Mapping[str, Arrays], *, updates: bool) -> str:
    """Return what is missing or of the wrong shape, "" where nothing is."""
    needed = ("loss", "update_1", "update_2") if updates else ("loss",)
    for arm, arrays in named.items():
        missing = [key for key in needed if key not in arrays or np.size(arrays[key]) == 0]
        if missing:
            return f"the proof of the {arm} lacks {', '.join(missing)}"
    shapes = {key: {np.shape(arrays[key]) for arrays in named.values()} for key in needed[1:]}
    unequal = [key for key, found in shapes.items() if len(found) > 1]
    return f"the proofs' {' and '.join(unequal)} differ in shape, so they are of different nets" if unequal else ""


def _finite(arrays: Arrays) -> bool:
    said = bool(np.all(arrays["finite"])) if "finite" in arrays else True
    return said and bool(np.all(np.isfinite(np.asarray(arrays["loss"], np.float64))))


def _compare_loss(baseline: Arrays, treatment: Arrays, tolerance: float) -> tuple[dict[str, Scalar], list[str]]:
    """The loss of the first step, relative: it comes before any update, so only arithmetic can move it."""
    ours, theirs = (float(np.ravel(np.asarray(arrays["loss"], np.float64))[0]) for arrays in (treatment, baseline))
    difference = abs(ours - theirs) / max(abs(theirs), np.finfo(np.float64).tiny)
    numbers: dict[str, Scalar] = {"loss_difference": _plain(difference), "loss_tolerance": tolerance}
    return numbers, [] if difference <= tolerance else [f"the first loss differs by {difference:.2g}, allowed is {tolerance:.2g}"]


def _compare_update(baseline: Arrays, perturbed: Arrays, treatment: Arrays, step: int, factor: float) -> tuple[dict[str, Scalar], list[str]]:
    difference, rounding = _distance(treatment, baseline, step), _distance(perturbed, baseline, step)
    tolerance = factor * max(rounding, LEAST_PERTURBATION * _size(baseline, step))
    numbers: dict[str, Scalar] = {f"update_{step}_difference": _plain(difference), f"update_{step}_tolerance": _plain(tolerance)}
    if difference <= tolerance:
        return numbers, []
    return numbers, [f"the weight update after step {step} differs by {difference:.2g}, allowed is {tolerance:.2g}"]


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _update(arrays: Arrays, step: int) -> NDArray[np.float64]:
    return np.asarray(arrays[f"update_{step}"], np.float64)


def _distance(ours: Arrays, theirs: Arrays, step: int) -> float:
    """Return the norm of the difference: sketches are linear and keep norms to about 1 %."""
    return float(np.linalg.norm(_update(ours, step) - _update(theirs, step)))


def _size(arrays: Arrays, step: int) -> float:
    return float(np.linalg.norm(_update(arrays, step)))
