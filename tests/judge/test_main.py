"""python -m harness.judge: judges a bundle again and says so; one line for what goes wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import BundleError, ConfigError
from harness.judge.__main__ import main, summary
from harness.model import ControlKind, Reading, Reason, Verdicts
from harness.store import Bundle
from tests.helpers import make_case, make_claim, make_manifest, make_verdicts
from tests.judge.builders import control_plan, control_round, plan_of, rounds_of

ROOT = Path(__file__).parents[2]


def make_bundle(folder: Path, plan, records) -> Bundle:
    bundle = Bundle.create(folder, make_manifest(plan=plan))
    for record in records:
        bundle.append(record)
    return bundle


def judged(tmp_path: Path, *arguments: str, ratios=(2.0, 2.05, 1.95)) -> Verdicts:
    bundle = make_bundle(tmp_path, plan_of(make_case(lo=1.5)), rounds_of(ratios))
    assert main([str(bundle.path), *arguments]) == 0
    return Bundle.open(bundle.path, tmp_path).verdicts()


def test_a_bundle_is_judged_again(tmp_path, capsys):
    verdicts = judged(tmp_path)

    assert ("CONFIRMED", True) == (verdicts.claims[0].verdict.word.value, "claim-1: CONFIRMED" in capsys.readouterr().out)


def test_judging_again_gives_a_run_that_was_judged_before_its_intervals_of_energy(tmp_path):
    records = [
        replace(record, readings=(*record.readings, Reading("treatment", "work_per_j", value, "samples/J")))
        for record, value in zip(rounds_of([2.0, 2.05, 1.95]), [0.02, 0.021, 0.019], strict=True)
    ]
    bundle = make_bundle(tmp_path, plan_of(make_case(lo=1.5)), records)
    bundle.write_verdicts(make_verdicts())
    before = Bundle.open(bundle.path, tmp_path).verdicts().energy
    main([str(bundle.path)])
    after = {figure.measure: figure.estimate.point for figure in Bundle.open(bundle.path, tmp_path).verdicts().energy}

    assert ((), {"work_per_j": pytest.approx(0.02), "j_per_work": pytest.approx(50.0)}) == (before, after)


def test_another_alpha_can_be_asked_for(tmp_path):
    assert 0.001 == judged(tmp_path, "alpha=0.001").alpha


def test_a_run_can_be_named_within_its_results_folder(tmp_path):
    bundle = make_bundle(tmp_path, plan_of(), rounds_of([2.0]))

    assert 0 == main([bundle.path.name, f"results_dir={tmp_path}"])


def test_a_failed_control_ends_the_command_with_three(tmp_path):
    bundle = make_bundle(tmp_path, control_plan(ControlKind.POSITIVE), [control_round(at, slowed=1.0) for at in range(3)])

    assert 3 == main([str(bundle.path)])


def test_without_an_argument_the_usage_is_shown(capsys):
    assert (0, True) == (main([]), capsys.readouterr().out.startswith("usage:"))


@pytest.mark.parametrize("words", [["a", "b"], ["alpha=0.1"], ["a", "colour=red"], ["a", "alpha=2"], ["a", "alpha=nan"], ["a", "alpha=some"], ["a", "results_dir="]])
def test_what_is_not_understood_is_refused(words):
    with pytest.raises(ConfigError):
        main(words)


def test_a_run_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BundleError):
        main(["nowhere", f"results_dir={tmp_path}"])


def test_an_error_is_one_line(tmp_path):
    command = [sys.executable, "-m", "harness.judge", "nowhere", f"results_dir={tmp_path}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (1, 1, True) == (ended.returncode, ended.stderr.count("\n"), ended.stderr.startswith("speedproof: "))


def test_judging_needs_no_framework_and_no_hydra():
    code = "import sys, harness.judge.__main__; print(sorted({'tensorflow', 'hydra', 'omegaconf', 'harness.measure', 'harness.plan'} & set(sys.modules)))"

    assert "[]\n" == subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_summary_says_how_many_verdicts_to_expect_wrong():
    assert summary(replace(make_verdicts(), judged=4, expected_wrong=0.2, alpha=0.05, preliminary=False))[-1] == "4 verdicts; expect 0.2 of them to be wrong (alpha 0.05)"


def test_preliminary_verdicts_are_headed_so():
    assert summary(replace(make_verdicts(), preliminary=True))[-1].startswith("preliminary; ")


def test_a_carried_over_claim_is_marked_in_the_summary(tmp_path, capsys):
    bundle = make_bundle(tmp_path, plan_of(claims=(make_claim(carried_over=True),)), rounds_of([2.0, 2.0, 2.0]))
    main([str(bundle.path)])

    assert "claim-1: CONFIRMED (carried over): " in capsys.readouterr().out


def test_a_claim_that_cannot_be_tested_is_not_carried_over(tmp_path, capsys):
    claim = make_claim(carried_over=True, not_testable=Reason("needs_gpu", "needs a GPU"))
    main([str(make_bundle(tmp_path, plan_of(claims=(claim,)), []).path)])

    assert "claim-1: NOT TESTABLE: needs a GPU" in capsys.readouterr().out
