"""What proofs accept and what they refuse, on a net of twenty weights."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import BundleError
from harness.judge.book import Book
from harness.judge.equivalence import REDUCED, compare, compare_deliveries, judge_proofs
from harness.model import Proof, Purpose
from tests.helpers import make_contrast, make_record, make_trial_record
from tests.judge.builders import lost_round, plan_of, train

PERTURBED = train(perturb=1e-7)


def passed(treatment, precision="fp32", *, baseline=None, perturbed=PERTURBED):
    return compare(train() if baseline is None else baseline, perturbed, treatment, precision)[0]


def test_the_same_computation_passes():
    assert passed(train())


def test_the_same_computation_in_another_order_of_rounding_passes():
    assert passed(train(perturb=3e-8))


@pytest.mark.parametrize(
    "mutant", [{"frozen": True}, {"momentum": 0.0}, {"rate": 0.055}, {"stopped": 5}], ids=["no update", "no momentum", "learning rate x 1.1", "stopped gradient"]
)
def test_a_mutant_is_caught(mutant):
    assert passed(train(**mutant)) is False


@pytest.mark.parametrize("mutant", [{"frozen": True}, {"momentum": 0.0}, {"rate": 0.055}])
def test_the_first_loss_alone_would_not_have_caught_it(mutant):
    assert train()["loss"][0] == train(**mutant)["loss"][0]


def test_missing_momentum_shows_in_the_second_update_only():
    reason = compare(train(), PERTURBED, train(momentum=0.0), "fp32")[1]

    assert reason.numbers["update_1_difference"] <= reason.numbers["update_1_tolerance"] and "after step 2" in reason.text


def test_a_different_first_loss_is_caught():
    treatment = {**train(), "loss": train()["loss"] * 1.001}

    assert passed(treatment) is False


def test_a_loss_that_is_not_finite_is_caught():
    assert passed({**train(), "loss": np.array([np.nan, 1.0])}) is False


def test_a_net_that_says_it_is_not_finite_is_believed():
    assert passed({**train(), "finite": np.array(False)}) is False


@pytest.mark.parametrize("precision", sorted(REDUCED))
def test_in_reduced_precision_only_loss_and_finiteness_count(precision):
    treatment = {**train(frozen=True), "loss": train()["loss"] * (1 + 5e-4)}

    assert passed(treatment, precision, perturbed=None)


@pytest.mark.parametrize("precision", sorted(REDUCED))
def test_in_reduced_precision_a_loss_far_off_is_caught(precision):
    assert passed({**train(), "loss": train()["loss"] * 1.03}, precision, perturbed=None) is False


def test_a_precision_nobody_knows_gets_the_strictest_tolerance():
    assert passed({**train(), "loss": train()["loss"] * 1.0005}, "fp8") is False


def test_a_baseline_that_does_not_learn_proves_nothing():
    assert passed(train(frozen=True), baseline=train(frozen=True), perturbed=train(frozen=True, perturb=1e-7)) is None


def test_a_baseline_that_is_not_finite_proves_nothing():
    assert passed(train(), baseline={**train(), "finite": np.array(False)}) is None


def test_updates_of_different_nets_prove_nothing():
    assert passed({**train(), "update_1": np.ones(7)}) is None


def test_missing_arrays_prove_nothing():
    assert passed({"loss": train()["loss"]}) is None


def test_a_perturbation_that_changes_no_bit_still_allows_for_rounding():
    assert passed(train(perturb=1e-9), perturbed=train())


# ---------------------------------------------------------------- from records


def proof_plan(precision="fp32"):
    contrasts = tuple(make_contrast(name, ("arm",), purpose=Purpose.PROOF, looks=(1,)) for name in ("base", "perturbed", "treated"))
    return plan_of(contrasts=contrasts, proofs=(Proof("same", "graph", "base", "perturbed", "treated", precision),))


def proof_round(contrast):
    return make_record(contrast=contrast, rates={}, trials=(make_trial_record("arm", proof=f"{contrast}.npz"),))


FILES = {"base.npz": train(), "perturbed.npz": PERTURBED, "treated.npz": train()}


def test_proofs_are_read_by_the_names_in_their_records():
    records = [proof_round(name) for name in ("base", "perturbed", "treated")]

    assert [True] == [result.passed for result in judge_proofs(Book(proof_plan(), records), FILES.__getitem__)]


def test_a_proof_that_was_not_made_is_not_failed():
    (result,) = judge_proofs(Book(proof_plan(), [proof_round("base")]), FILES.__getitem__)

    assert (None, "no_proof") == (result.passed, result.reason.code)


def test_a_proof_that_failed_to_be_made_says_why():
    records = [proof_round("base"), proof_round("perturbed"), make_failed("treated")]
    (result,) = judge_proofs(Book(proof_plan(), records), FILES.__getitem__)

    assert result.reason.text == "the treatment gave no proof: killed by signal 9"


def make_failed(contrast):
    from dataclasses import replace

    return replace(lost_round(), contrast=contrast)


def test_a_proof_that_cannot_be_read_is_not_failed():
    def damaged(name):
        raise BundleError(f"{name} is damaged")

    (result,) = judge_proofs(Book(proof_plan(), [proof_round(name) for name in ("base", "perturbed", "treated")]), damaged)

    assert (None, "unreadable") == (result.passed, result.reason.code)


def test_in_reduced_precision_no_perturbed_proof_is_needed():
    records = [proof_round(name) for name in ("base", "treated")]

    assert [True] == [result.passed for result in judge_proofs(Book(proof_plan("mixed_float16"), records), FILES.__getitem__)]


# ---------------------------------------------------------------- what pipelines deliver


def delivery(**changes):
    pixels = np.linspace(-0.5, 0.5, 12).reshape(4, 3)
    return {"samples": np.array(4), "ids": np.array([10, 3]), "labels": np.array([2, 2]), "pixels": pixels} | changes


def test_two_pipelines_that_deliver_the_same_set_pass():
    assert compare_deliveries(delivery(), delivery(pixels=delivery()["pixels"] + 0.01))[0] is True


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"samples": np.array(3)}, "an epoch holds 3 samples instead of 4"),
        ({"ids": np.array([10, 4])}, "an epoch holds other samples: their names differ"),
        ({"labels": np.array([1, 3])}, "an epoch holds other samples: their classes differ"),
        ({"pixels": delivery()["pixels"] + 0.03}, "a sample's mean colour differs by 0.03, allowed is 0.02"),
        ({"pixels": np.full((4, 3), np.nan)}, "a sample's mean colour differs by nan, allowed is 0.02"),
        ({"pixels": np.zeros((4, 1))}, "the samples' pixels have another shape"),
    ],
    ids=["a sample less", "another sample", "other classes", "other pixels", "no number", "grey pixels"],
)
def test_what_is_not_the_same_set_is_refused_with_the_reason(changes, text):
    passed_, reason = compare_deliveries(delivery(), delivery(**changes))
    assert (False, text) == (passed_, reason.text)


@pytest.mark.parametrize("missing", ["ids", "labels", "pixels", "samples"])
def test_a_delivery_that_lacks_an_array_proves_nothing(missing):
    treatment = {name: value for name, value in delivery().items() if name != missing}
    assert (None, f"the proof of the treatment lacks {missing}") == (compare_deliveries(delivery(), treatment)[0], compare_deliveries(delivery(), treatment)[1].text)


def test_an_empty_epoch_proves_nothing():
    assert compare_deliveries(delivery(samples=np.array(0)), delivery(samples=np.array(0)))[0] is None
