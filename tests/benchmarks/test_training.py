"""What the training step really does, on real TensorFlow, as small as it goes."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from benchmarks.training import build  # noqa: E402 - after the check for TensorFlow
from harness.judge.equivalence import compare  # noqa: E402

from .builders import (  # noqa: E402
    TINY,
    EagerLearner,
    InferenceNorms,
    NoMomentum,
    NoUpdate,
    StoppedBlock,
    make_training,
    update_distances,
)


@pytest.fixture(scope="module")
def proofs():
    """The baseline's proof and its perturbed twin's: made once, since every proof below is held against them."""
    return make_training(execution="eager").proof(), make_training(execution="eager", perturb=1e-7).proof()


@pytest.mark.parametrize(
    "levels",
    [
        {"execution": "graph"},
        {"execution": "xla"},
        {"batch_norm": "fused"},
        {"optimizer": "lean"},
        {"execution": "graph", "batch_norm": "fused", "optimizer": "lean"},
        {"precision": "mixed_float16", "policy_float32": True},
        {"precision": "mixed_float16", "policy_float32": True, "optimizer": "lean"},
    ],
    ids=lambda levels: "-".join(map(str, levels.values())),
)
def test_every_full_precision_level_is_proven_equal_to_plain_keras(proofs, levels):
    passed, reason = compare(*proofs, make_training(**{"execution": "eager", **levels}).proof(), "fp32")

    assert (True, "same") == (passed, reason.code), reason.text


@pytest.mark.parametrize("mutant", [NoUpdate, NoMomentum, EagerLearner, InferenceNorms, StoppedBlock])
def test_no_spoiled_step_is_proven_equal(proofs, mutant):
    passed, _ = compare(*proofs, make_training(mutant, execution="eager").proof(), "fp32")

    assert passed is False


def test_a_learning_rate_a_tenth_too_high_shows_as_a_tenth_in_the_sketch(proofs):
    first, _ = update_distances(proofs[0], make_training(execution="eager", lr=0.011).proof())

    assert pytest.approx(0.1, rel=1e-3) == first


def test_the_lean_optimizer_equals_keras_bit_for_bit_over_two_steps():
    keras, lean = (make_training(execution="eager", optimizer=level).proof() for level in ("keras", "lean"))

    assert (0.0, 0.0) == update_distances(keras, lean)


def test_the_lean_optimizer_treats_sparse_gradients_as_keras_does():
    settings = {"model": "embedding", "length": 4, "vocabulary": 20, "width": 8, "execution": "eager"}
    keras, lean = (make_training(**settings, optimizer=level).proof() for level in ("keras", "lean"))

    assert max(update_distances(keras, lean)) < 1e-6


def test_fused_batch_norm_keeps_the_moving_statistics_that_keras_keeps():
    plain, fused = (make_training(execution="eager", batch_norm=level) for level in ("keras", "fused"))
    for training in (plain, fused):
        training.run(2)

    for one, other in zip(plain.net.model.non_trainable_variables, fused.net.model.non_trainable_variables, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-6)


def test_fused_resnet_starts_from_the_weights_of_the_plain_one():
    plain, fused = (make_training(model="resnet50", image=32, batch_norm=level).net.model.get_weights() for level in ("keras", "fused"))

    assert len(plain) == len(fused)
    assert all(np.array_equal(one, other) for one, other in zip(plain, fused, strict=True))


@pytest.mark.parametrize(
    ("levels", "facts"),
    [
        ({"execution": "eager"}, {"execution": "eager", "xla": False}),
        ({"execution": "graph"}, {"execution": "graph", "xla": False}),
        ({"execution": "xla"}, {"execution": "xla", "xla": True}),
        ({"precision": "mixed_float16"}, {"precision": "mixed_float16", "loss_scaling": True}),
        ({"precision": "mixed_bfloat16"}, {"precision": "mixed_bfloat16", "loss_scaling": False}),
        ({"precision": "float16"}, {"precision": "float16", "loss_scaling": False}),
        ({"precision": "tf32"}, {"precision": "fp32"}),
        ({"batch_norm": "fused"}, {"batch_norm": "fused"}),
        ({"optimizer": "lean"}, {"optimizer": "lean"}),
        ({}, {"batch": 8, "image": 16, "device": "cpu", "batch_norm": "keras", "optimizer": "keras", "input": "synthetic"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) or "default",
)
def test_facts_tell_what_was_built_rather_than_what_was_asked(levels, facts):
    training = make_training(**levels)
    training.trace()

    assert facts == {name: training.facts()[name] for name in facts}


def test_facts_name_no_batch_norm_where_a_net_has_none():
    assert "batch_norm" not in make_training(model="layernorm", length=4, width=8).facts()


def test_running_a_traced_step_traces_nothing_more():
    training = make_training(execution="graph")
    training.trace()
    tally = training.run(3)

    assert 1 == training.traces()
    assert (3, 24, "samples") == (tally.steps, tally.work, tally.unit)


def test_an_eager_step_is_never_traced():
    training = make_training(execution="eager")
    training.trace()
    training.run(1)

    assert 0 == training.traces()


def test_a_healthy_step_tells_its_loss():
    training = make_training(execution="eager")
    training.run(1)
    health = training.health()

    assert health["finite"] is True
    assert 0 < health["loss"] < 10


@pytest.mark.parametrize("optimizer", ["keras", "lean"])
def test_a_loss_that_is_no_number_is_told_with_the_step_it_came_at(optimizer):
    training = make_training(execution="eager", optimizer=optimizer, lr=1e30)
    training.run(3)

    assert {"loss": None, "finite": False, "first_non_finite_step": 2} == training.health()


@pytest.mark.parametrize("optimizer", ["keras", "lean"])
def test_loss_scaling_skips_a_step_whose_gradient_overflows_and_halves_the_scale(optimizer):
    training = make_training(execution="eager", optimizer=optimizer, precision="mixed_float16", policy_float32=True)
    before = [np.asarray(v) for v in training.net.model.trainable_variables]
    training.optimizer.apply([tf.fill(v.shape, np.float32(np.inf)) for v in training.net.model.trainable_variables])

    assert 2.0**14 == float(training.optimizer.scale_loss(tf.constant(1.0)))
    assert all(np.array_equal(old, np.asarray(new)) for old, new in zip(before, training.net.model.trainable_variables, strict=True))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"execution": "eager", "xla": True}, "execution=eager contradicts xla=True"),
        ({"execution": "graph", "jit_compile": True}, "execution=graph contradicts jit_compile=True"),
        ({"execution": "fast"}, "execution=fast is no level"),
        ({"precision": "fp8"}, "precision=fp8 is no level"),
        ({"optimizer": "adam"}, "optimizer=adam is no level"),
        ({"batch": 0}, "batch=0 is no batch"),
        ({"model": "vgg"}, "there is no model 'vgg'"),
        ({"model": "resnet50", "image": 16}, "at least 32 px, got 16"),
        ({"model": "layernorm", "length": 4, "input": "tfdata"}, "layernorm takes none"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_setting(settings, said):
    with pytest.raises(ConfigError, match=said):
        make_training(**settings)


@pytest.mark.parametrize("level", [{"checkpoint": "async"}, {"storage": "slow"}])
def test_saves_that_a_step_by_itself_does_not_make_are_refused(level):
    ((name, value),) = level.items()
    with pytest.raises(ConfigError, match=f"{name}={value} cannot be had here: a training step by itself is not saved"):
        build(**TINY, **level)


@pytest.mark.parametrize("model", ["transformer_small", "lstm", "layernorm", "embedding"])
def test_every_small_net_learns(model):
    training = make_training(model=model, length=6, width=8, depth=1, vocabulary=30, execution="graph", lr=0.1)
    training.run(1)
    first = training.health()["loss"]
    training.run(30)

    assert training.health()["loss"] < first
