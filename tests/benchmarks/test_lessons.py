"""The lessons read what they are meant to show."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from .conftest import FILES  # noqa: E402 - after the check for TensorFlow
from .pictures import BAD, make_images  # noqa: E402

ROOT = Path(__file__).parents[2]


def readings(lesson: str, **settings):
    """Carry a lesson out and return name -> value."""
    return {v.name: v.value for v in importlib.import_module(f"benchmarks.lessons.{lesson}").build(**settings).outcome()}


@pytest.mark.parametrize(("signature", "traces"), [("none", 6), ("given", 1), ("reduce", 2)])
def test_traces_follow_the_signature(signature, traces):
    assert traces == readings("retracing", signature=signature, lengths=6)["traces"]


def test_xla_traces_once_and_compiles_every_length():
    # In a process of its own, as the instrument runs it: XLA reads its flags once.
    code = "from benchmarks.lessons.retracing import build; print({v.name: v.value for v in build(signature='xla', lengths=3).outcome() if v.name != 'total_s'})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "{'traces': 1, 'compilations': 3}" == done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(("execution", "times"), [("graph", 1), ("eager", 5)])
def test_python_runs_once_a_trace(execution, times):
    read = readings("python_state", execution=execution)

    assert [times] * 3 == [read[name] for name in ("side_effects", "distinct_random", "distinct_global")]
    assert 5 == read["distinct_tf_random"]


@pytest.mark.parametrize("snippet", ["custom_loop_no_scaling", "final_softmax_dtype", "probabilities_named_logits"])
def test_a_snippet_fails_as_written_and_holds_repaired(snippet):
    read = readings("articles_as_written", snippet=snippet, precision="mixed_float16")

    assert (0, 1) == (read["as_written"], read["repaired"])


def test_a_shuffle_behind_the_decoding_takes_in_many_times_the_bytes_of_the_files(data_dir):
    read = readings("articles_as_written", snippet="shuffle_after_decode", data_dir=str(data_dir), files=FILES)
    files = [path for path in (data_dir / f"photographs-{FILES}").rglob("*.jpg") if path.is_file()]

    assert (0, 1) == (read["as_written"], read["repaired"])
    assert (FILES * 224 * 224 * 3 * 4, sum(len(str(path)) for path in files)) == (read["buffer_as_written"], read["buffer_repaired"])
    assert sum(path.stat().st_size for path in files) == read["buffer_files"]


def test_a_shuffle_takes_in_its_buffer_and_no_more():
    from benchmarks.lessons.articles_as_written import _taken_in

    data = tf.data.Dataset.from_tensor_slices(["ab"] * 30)
    assert [20, 60] == [_taken_in(data, buffer, [], 0) for buffer in (10, 1000)]


def test_a_picture_that_cannot_be_shuffled_is_named(tmp_path):
    (make_images(tmp_path / "set", 3) / "no.jpg").write_bytes(BAD["text"])
    with pytest.raises(ConfigError, match=r"no\.jpg"):
        readings("articles_as_written", snippet="shuffle_after_decode", images_dir=str(tmp_path / "set"))


def test_a_save_to_an_io_device_comes_back_with_whole_files_and_an_asynchronous_one_before(tmp_path):
    read = readings("articles_as_written", snippet="io_device", scratch_dir=str(tmp_path))

    assert {"as_written": 0, "repaired": 1, "background_as_written": 0, "background_repaired": 3} == read
    assert [] == list(tmp_path.iterdir())


def test_keras_forgives_probabilities_named_logits_in_full_precision():
    assert 1 == readings("articles_as_written", snippet="probabilities_named_logits", precision="fp32")["as_written"]


def test_a_local_batch_given_to_fit_is_shared_out():
    # A process of its own: the CPU can be cut in two only before anything has used it.
    code = "from benchmarks.lessons.articles_as_written import build\nprint({v.name: v.value for v in build(snippet='local_batch_fit').outcome()})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)

    assert "{'as_written': 0, 'repaired': 1, 'per_replica_as_written': 4, 'per_replica_repaired': 8}" == done.stdout.strip()


@pytest.mark.parametrize(("form", "finite"), [("keras", 1), ("naive", 0)])
def test_layer_norm_overflows_only_in_naive_half_precision(form, finite):
    assert finite == readings("layernorm_fp16", form=form)["finite"]


def test_the_output_is_nearer_to_the_truth_in_float32_and_nearest_from_logits():
    half, single, logits = (readings("output_fp32", form=form)["distance"] for form in ("softmax_fp16", "softmax_fp32", "from_logits"))

    assert half > single > logits


@pytest.mark.parametrize(("precision", "bad"), [("float16", 3), ("mixed_float16_unscaled", 3), ("mixed_float16", 0), ("fp32", 0)])
def test_gradients_vanish_in_half_precision_unless_the_loss_is_scaled(precision, bad):
    assert bad == readings("loss_scaling", precision=precision, steps=3)["bad_steps"]


def test_a_short_training_learns_to_read_digits():
    assert readings("mixed_accuracy", precision="fp32", seeds=1, epochs=4)["accuracy"] > 0.8


def test_the_output_lesson_trains_under_mixed_precision():
    assert 0 < readings("final_accuracy_output_fp32", output="float16", seeds=1, epochs=1)["loss"] < 5


@pytest.mark.parametrize("net", ["lstm", "convnet"])
def test_reduced_precision_moves_the_loss_a_little(net):
    assert 0 < readings("rnn_precision", net=net, seeds=1, steps=2, precision="mixed_bfloat16")["loss_error"] < 0.5


def test_a_word_that_a_lesson_does_not_know_is_refused():
    with pytest.raises(ConfigError, match=r"signature=perhaps .* none, given, reduce, xla"):
        readings("retracing", signature="perhaps")
