"""python -m harness.report: its arguments, and one line for every error."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.report.__main__ import RESULTS, main, parse


def test_a_run_is_looked_for_under_results_by_default():
    assert ("some-run", RESULTS) == parse(["some-run"])


def test_another_results_folder_can_be_named():
    assert ("some-run", Path("elsewhere")) == parse(["results_dir=elsewhere", "some-run"])


@pytest.mark.parametrize(("said", "arguments"), [("unknown key 'alpha'", ["run", "alpha=0.05"]), ("got 2", ["a", "b"]), ("got 0", ["results_dir=x"])])
def test_arguments_that_mean_nothing_are_refused_in_one_line(said, arguments):
    with pytest.raises(ConfigError, match=said) as caught:
        parse(arguments)
    assert "\n" not in str(caught.value)


def test_help_explains_the_command(capsys):
    assert 0 == main(["--help"])
    assert "results_dir=DIR" in capsys.readouterr().out


def test_a_report_is_rebuilt_from_a_bundle(tmp_path, capsys):
    from harness.store import Bundle
    from tests.report.builders import make_full

    manifest, records, verdicts, _ = make_full().run()
    bundle = Bundle.create(tmp_path, manifest)
    for record in records[:3]:
        bundle.append(record)
    bundle.write_verdicts(verdicts)
    assert 0 == main([bundle.path.name, f"results_dir={tmp_path}"])
    assert (bundle.path / "plots" / "forest.svg").exists()
    assert str(bundle.path / "report.html") == capsys.readouterr().out.strip()
