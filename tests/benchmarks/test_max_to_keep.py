"""What a manager leaves in its folder."""

from __future__ import annotations

import pytest

from harness.errors import ConfigError

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow")

from benchmarks.lessons.max_to_keep import build  # noqa: E402 - after the check for TensorFlow


@pytest.mark.parametrize(("settings", "kept", "every"), [({}, 3, 6), ({"saves": 2}, 2, 2), ({"saves": 4, "keep": 1}, 1, 4)])
def test_a_manager_keeps_as_many_as_it_was_told_and_those_of_every_n_hours_on_top(tmp_path, settings, kept, every):
    lesson = build(scratch_dir=str(tmp_path), **settings)

    assert {"kept": kept, "kept_every_n_hours": every} == {value.name: value.value for value in lesson.outcome()}
    assert [] == list(tmp_path.iterdir())


def test_a_lesson_without_a_folder_makes_one_for_itself():
    assert [2, 2] == [value.value for value in build(saves=2).outcome()]


def test_a_manager_that_keeps_nothing_is_refused():
    with pytest.raises(ConfigError, match="saves=6 and keep=-1"):
        build(keep=-1)
