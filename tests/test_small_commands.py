"""What the commands that take a bundle understand of their command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.command import RESULTS, parse_run
from harness.errors import ConfigError


def test_a_run_is_looked_for_under_the_clones_results_by_default():
    assert ("some-run", RESULTS, {}) == parse_run(["some-run"])


def test_another_results_folder_can_be_named():
    assert ("some-run", Path("elsewhere"), {}) == parse_run(["results_dir=elsewhere", "some-run"])


def test_a_key_of_the_command_is_given_back_as_it_was_typed():
    assert {"alpha": "0.1"} == parse_run(["some-run", "alpha=0.1"], ("alpha",))[2]


def test_a_path_with_an_equals_sign_is_a_run(tmp_path):
    folder = tmp_path / "a=b"
    folder.mkdir()
    assert str(folder) == parse_run([str(folder)])[0]


@pytest.mark.parametrize(
    ("said", "arguments"),
    [("unknown key 'alpha'", ["run", "alpha=0.05"]), ("got 2", ["a", "b"]), ("got 0", ["results_dir=x"]), ("has no value", ["a", "results_dir="])],
)
def test_arguments_that_mean_nothing_are_refused_in_one_line(said, arguments):
    with pytest.raises(ConfigError, match=said) as caught:
        parse_run(arguments)
    assert 1 == len(str(caught.value).splitlines())
