"""The FLOPs of a step, counted from its graph and held against what is known of the nets and against counting by hand."""

from __future__ import annotations

import math

import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - after the check for TensorFlow

from benchmarks.flops import flops_of  # noqa: E402
from benchmarks.training import build  # noqa: E402

from .builders import make_training  # noqa: E402

MAC_OF_RESNET50 = 4.1e9
"""Multiply-adds of a forward pass at 224 px, as widely quoted: of version 1.5, which strides in the 3 x 3 convolutions."""

MAC_OF_RESNET50_V1 = 3.86e9
"""Of version 1, which Keras ships: it strides in the 1 x 1 convolutions before them. He et al. say 3.8e9."""


def graph_of(function, *arguments):
    return tf.function(function, autograph=False).get_concrete_function(*arguments).graph


def forward_flops(model, side):
    return flops_of(graph_of(lambda x: model(x, training=False), tf.zeros((1, side, side, 3))))


def products_of(model):
    """Multiply-adds of the convolutions and the last layer, from the layers' own sizes: the forward pass of one picture."""
    total = 0
    for layer in model.layers:
        if isinstance(layer, (keras.layers.Conv2D, keras.layers.Dense)):
            total += math.prod(layer.output.shape[1:]) * math.prod(layer.kernel.shape[:-1])
    return total


def version_1_5():
    """ResNet-50 with the strides moved from the first to the second convolution of each stage's first block."""

    def moved(layer):
        settings = layer.get_config()
        for stage in ("conv3", "conv4", "conv5"):
            if layer.name == f"{stage}_block1_1_conv":
                settings["strides"] = (1, 1)
            if layer.name == f"{stage}_block1_2_conv":
                settings["strides"] = (2, 2)
        return type(layer).from_config(settings)

    return keras.models.clone_model(keras.applications.ResNet50(weights=None), clone_function=moved)


@pytest.fixture(scope="module")
def resnet50():
    """A traced training step of ResNet-50 at 224 px, batch 1."""
    training = build(model="resnet50", image=224, batch=1, seed=0)
    training.trace()
    return training


def test_the_forward_pass_of_resnet50_has_the_flops_that_are_quoted_for_it():
    assert pytest.approx(2 * MAC_OF_RESNET50, rel=0.02) == forward_flops(version_1_5(), 224)


def test_the_forward_pass_of_keras_resnet50_is_version_1_and_has_fewer():
    assert pytest.approx(2 * MAC_OF_RESNET50_V1, rel=0.02) == forward_flops(keras.applications.ResNet50(weights=None), 224)


def test_the_count_of_a_forward_pass_is_what_the_layers_sizes_say_to_the_last_product():
    model = keras.applications.ResNet50(weights=None)

    assert 2 * products_of(model) == forward_flops(model, 224)


def test_a_training_step_is_three_forward_passes_but_for_the_gradient_by_the_pictures(resnet50):
    first = resnet50.net.model.get_layer("conv1_conv")
    by_the_pictures = math.prod(first.output.shape[1:]) * math.prod(first.kernel.shape[:-1])

    assert 2 * (3 * products_of(resnet50.net.model) - by_the_pictures) == resnet50.facts()["flops_per_step"]


def test_counting_traces_nothing(resnet50):
    resnet50.facts()

    assert 1 == resnet50.traces()


def test_flops_grow_with_the_batch():
    small, large = make_training(batch=8), make_training(batch=16)
    for training in (small, large):
        training.trace()

    assert 2 * small.facts()["flops_per_step"] == large.facts()["flops_per_step"] > 0


def test_a_step_has_the_same_flops_whatever_compiles_it_and_whatever_precision_it_has():
    found = set()
    for levels in ({"execution": "graph"}, {"execution": "xla"}, {"precision": "mixed_bfloat16"}, {"optimizer": "lean"}):
        training = make_training(**levels)
        training.trace()
        found.add(training.facts()["flops_per_step"])

    assert 1 == len(found)


def test_a_session_that_is_fed_runs_the_flops_of_the_function():
    fed, plain = make_training(input="feed_dict", feed_synthetic=True), make_training()
    for training in (fed, plain):
        training.trace()
    counted = fed.facts()["flops_per_step"], plain.facts()["flops_per_step"]
    fed.close()

    assert counted[0] == counted[1] > 0


def test_an_eager_step_has_no_graph_to_count_in():
    training = make_training(execution="eager")
    training.trace()

    assert training.facts()["flops_per_step"] is None


def test_a_loop_that_multiplies_cannot_be_counted():
    training = make_training(model="lstm", length=4, width=8, depth=1)
    training.trace()

    assert training.facts()["flops_per_step"] is None


def test_the_transformer_is_counted_by_its_products():
    length, width, classes = 6, 8, 10
    training = make_training(model="transformer_small", length=length, width=width, depth=1, vocabulary=30, batch=1, classes=classes)
    graph = graph_of(lambda x: training.net.model(x, training=False), training.sample_batch[0])
    attention = 4 * length * width * width + 2 * length * length * width  # query, key, value and output; scores and their use
    perceptron = 2 * length * width * 4 * width

    assert 2 * (attention + perceptron + width * classes) == flops_of(graph)


def naive_convolution(batch, side, inside, outside, window):
    """Multiply-adds of a padded convolution with stride 1, one by one, taps on padding included."""
    return sum(1 for _ in range(batch) for _ in range(side * side) for _ in range(window * window) for _ in range(inside) for _ in range(outside))


def test_a_convolution_and_its_gradients_have_as_many_products_each():
    pictures, window = tf.ones((2, 5, 5, 3)), tf.ones((3, 3, 3, 4))

    def both(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            total = tf.reduce_sum(tf.nn.conv2d(x, w, 1, "SAME") ** 2)
        return tape.gradient(total, [x, w])

    assert 3 * 2 * naive_convolution(2, 5, 3, 4, 3) == flops_of(graph_of(both, pictures, window))


def test_a_grouped_convolution_multiplies_within_its_groups_alone():
    graph = graph_of(lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), tf.ones((1, 5, 5, 4)), tf.ones((3, 3, 2, 6)))

    assert 2 * 25 * 6 * 9 * 2 == flops_of(graph)


def test_a_depthwise_convolution_and_its_gradients_are_counted_channel_by_channel():
    def both(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            total = tf.reduce_sum(tf.nn.depthwise_conv2d(x, w, (1, 1, 1, 1), "SAME") ** 2)
        return tape.gradient(total, [x, w])

    assert 3 * 2 * 25 * 3 * 2 * 9 == flops_of(graph_of(both, tf.ones((1, 5, 5, 3)), tf.ones((3, 3, 3, 2))))


@pytest.mark.parametrize(
    ("function", "shapes", "multiply_adds"),
    [
        (tf.matmul, ((2, 3), (3, 5)), 2 * 3 * 5),
        (lambda a, b: tf.matmul(a, b, transpose_a=True), ((3, 2), (3, 5)), 2 * 3 * 5),
        (lambda a, b: tf.matmul(a, b, transpose_b=True), ((2, 3), (5, 3)), 2 * 3 * 5),
        (tf.matmul, ((7, 2, 3), (7, 3, 5)), 7 * 2 * 3 * 5),
        (lambda a, b: tf.matmul(a, b, transpose_a=True), ((7, 3, 2), (7, 3, 5)), 7 * 2 * 3 * 5),
        (lambda a, b: tf.einsum("bij,bjk->bik", a, b), ((7, 2, 3), (7, 3, 5)), 7 * 2 * 3 * 5),
    ],
    ids=["plain", "transposed a", "transposed b", "batch", "batch, transposed a", "einsum"],
)
def test_a_matrix_product_is_counted_by_its_shapes(function, shapes, multiply_adds):
    assert 2 * multiply_adds == flops_of(graph_of(function, *(tf.ones(shape) for shape in shapes)))


def test_what_no_output_needs_is_not_counted():
    def spoiled(a):
        tf.matmul(a, a)
        return a + 1

    assert 0 == flops_of(graph_of(spoiled, tf.ones((4, 4))))


def test_a_product_that_a_side_effect_needs_is_counted():
    kept = tf.Variable(tf.zeros((4, 4)))

    def storing(a):
        kept.assign(tf.matmul(a, a))

    assert 2 * 4**3 == flops_of(graph_of(storing, tf.ones((4, 4))))


def test_a_function_within_a_function_is_counted_each_time_it_is_called():
    inner = tf.function(lambda a: tf.matmul(a, a), autograph=False)

    assert 2 * 2 * 4**3 == flops_of(graph_of(lambda a: inner(inner(a)), tf.ones((4, 4))))


def test_a_shape_that_only_running_tells_cannot_be_counted():
    assert flops_of(graph_of(tf.matmul, tf.TensorSpec((None, 4)), tf.TensorSpec((4, 4)))) is None


def test_a_branch_without_products_does_not_spoil_the_count():
    def branching(a):
        return tf.cond(tf.reduce_sum(a) > 0, lambda: a + 1, lambda: a - 1) @ a

    assert 2 * 4**3 == flops_of(graph_of(branching, tf.ones((4, 4))))


def test_a_branch_that_multiplies_cannot_be_counted():
    def branching(a):
        return tf.cond(tf.reduce_sum(a) > 0, lambda: a @ a, lambda: a)

    assert flops_of(graph_of(branching, tf.ones((4, 4)))) is None


def test_a_batch_on_the_host_is_what_the_facts_say():
    facts = make_training(batches_on="host").facts()

    assert ("host", "cpu") == (facts["batches_on"], facts["device"])


@pytest.mark.parametrize("levels", [{"execution": "eager"}, {"execution": "xla"}])
def test_a_batch_on_the_host_is_for_graph_execution(levels):
    with pytest.raises(ConfigError, match="batches_on=host is about a batch that a graph fetches"):
        make_training(batches_on="host", **levels)
