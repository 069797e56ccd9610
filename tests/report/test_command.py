"""python -m harness.report: its arguments, and one line for every error."""

from __future__ import annotations

from harness.report.__main__ import main


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
