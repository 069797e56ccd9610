"""The losses of a training as it leaves them for TensorBoard: outside of everything that is timed, step by step."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from .builders import make_training  # noqa: E402


def curves(folder):
    """tag -> [(step, value)] of all files of a folder."""
    found = {}
    for record in tf.data.TFRecordDataset(sorted(map(str, folder.iterdir()))):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_every_step_leaves_its_loss(tmp_path):
    training = make_training(events_dir=str(tmp_path / "arm"))
    training.run(2)
    training.run(3)
    losses = [float(loss) for loss in training._losses]
    told = training.health()

    drawn = curves(tmp_path / "arm")["loss"]
    assert [1, 2, 3, 4, 5] == [step for step, _ in drawn]
    assert pytest.approx(losses, rel=1e-6) == [loss for _, loss in drawn]
    assert told["loss"] == losses[-1]


def test_the_learning_rate_is_drawn_from_the_first_step_to_the_last(tmp_path):
    training = make_training(events_dir=str(tmp_path), lr=0.25)
    training.run(3)
    training.health()

    assert [(1, 0.25), (3, 0.25)] == curves(tmp_path)["learning_rate"]


def test_nothing_is_written_while_steps_run(tmp_path):
    training = make_training(events_dir=str(tmp_path))
    training.run(3)

    assert [] == list(tmp_path.iterdir())


def test_without_a_place_nothing_is_written_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training = make_training()
    training.run(2)
    training.health()

    assert [] == list(tmp_path.iterdir())


def test_a_loss_that_is_no_number_is_drawn_where_it_happened(tmp_path):
    training = make_training(events_dir=str(tmp_path), lr=1e38)
    training.run(4)
    told = training.health()

    first = next(step for step, loss in curves(tmp_path)["loss"] if not abs(loss) < float("inf"))
    assert (False, first) == (told["finite"], told["first_non_finite_step"])
