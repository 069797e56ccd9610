"""The training step in a session of TensorFlow 1: the same graph, fed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from benchmarks.feed_dict import FeedDictTraining  # noqa: E402 - after the check for TensorFlow
from harness.judge.equivalence import compare  # noqa: E402

from .builders import NoMomentum, make_training  # noqa: E402
from .conftest import FILES  # noqa: E402

STEPS = 4


def make_session(**settings):
    """Return a tiny training step in a session, fed with the seeded batch."""
    return make_training(**{"input": "feed_dict", "feed_synthetic": True, **settings})


def losses(training):
    training.run(STEPS)
    return [float(loss) for loss in training._losses]


@pytest.mark.parametrize(
    "levels", [{}, {"optimizer": "lean"}, {"batch_norm": "fused"}, {"precision": "mixed_float16", "policy_float32": True}], ids=str
)
def test_losses_are_those_of_the_tf_function(levels):
    expected = losses(make_training(execution="graph", **levels))

    assert STEPS == len(set(expected))
    np.testing.assert_allclose(losses(make_session(**levels)), expected, rtol=1e-6)


def test_the_session_is_proven_equal_to_plain_keras():
    baseline, perturbed = make_training(execution="eager").proof(), make_training(execution="eager", perturb=1e-7).proof()
    passed, reason = compare(baseline, perturbed, make_session().proof(), "fp32")

    assert (True, "same") == (passed, reason.code), reason.text


def test_a_spoiled_step_in_a_session_is_not_proven_equal():
    class Spoiled(FeedDictTraining, NoMomentum):
        pass

    baseline, perturbed = make_training(execution="eager").proof(), make_training(execution="eager", perturb=1e-7).proof()
    passed, _ = compare(baseline, perturbed, make_training(Spoiled, input="feed_dict", feed_synthetic=True).proof(), "fp32")

    assert passed is False


def test_a_proof_begins_from_the_start_although_steps_were_run_before():
    fresh, used = make_session(), make_session()
    used.run(2)

    np.testing.assert_allclose(used.proof()["loss"], fresh.proof()["loss"], rtol=1e-6)


def test_a_session_is_fed_by_the_python_loop_and_tells_the_wait(data_dir):
    training = make_training(input="feed_dict", data_dir=str(data_dir), files=FILES, batch=5)
    training.trace()
    tally = training.run(5)
    ((name, seconds, unit),) = tally.events

    assert (5, 25, "samples") == (tally.steps, tally.work, tally.unit)
    assert ("input_wait_s", "s") == (name, unit)
    assert seconds > 0
    assert training.health()["finite"] is True


def test_a_synthetic_batch_is_fed_without_a_wait():
    assert () == make_session().run(2).events


def test_facts_tell_a_graph_that_is_fed_and_where_its_variables_lie():
    facts = make_session().facts()
    expected = {"input": "feed_dict", "execution": "graph", "xla": False, "precision": "fp32", "device": "cpu", "batch": 8, "image": 16}

    assert expected == {name: facts[name] for name in expected}


def test_running_in_a_session_traces_once():
    training = make_session()
    training.trace()
    before = training.traces()
    training.run(3)

    assert (1, 1) == (before, training.traces())


def test_eager_execution_stays_on():
    make_session().run(1)

    assert tf.executing_eagerly()
    assert 2 == int(tf.constant(1) + 1)


def test_a_loss_that_is_no_number_is_told_with_the_step_it_came_at():
    training = make_session(lr=1e30)
    training.run(3)

    assert {"loss": None, "finite": False, "first_non_finite_step": 2} == training.health()


def test_a_closed_session_begins_anew():
    training = make_session()
    first = losses(training)
    training.close()
    training._losses.clear()

    np.testing.assert_allclose(losses(training), first, rtol=1e-6)


@pytest.mark.parametrize("execution", ["eager", "xla"])
def test_a_session_without_a_graph_is_refused(execution):
    with pytest.raises(ConfigError, match=f"input=feed_dict contradicts execution={execution}"):
        make_session(execution=execution)
