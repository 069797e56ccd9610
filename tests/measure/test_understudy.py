"""Who imports beside the trial before its own, and what becomes of it when something goes wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.measure.orphans import living
from harness.model import Arrangement, Driver, State, Trial
from tests.measure.builders import make_job, make_round, make_trial, run


def overlapped(folder: Path, *trials: Trial, arrangement: Arrangement = Arrangement.SOLO) -> list[bool]:
    record = run(make_round(*trials, arrangement=arrangement, quads=1), folder)
    assert {State.COMPLETED} == {trial.outcome.state for trial in record.trials}
    return sorted(trial.overlapped_start for trial in record.trials)


def test_trials_that_take_turns_import_in_pairs(tmp_path: Path):
    assert [False, True, True] == overlapped(tmp_path, *(make_trial(name) for name in "abc"))


def test_both_starts_of_a_trial_are_never_alive_at_once(tmp_path: Path):
    # Of three trials the middle of A B C C B A is one trial twice.
    assert [True, True, True] == overlapped(tmp_path, *(make_trial(name) for name in "abc"), arrangement=Arrangement.TURNS_OF_TRIALS)


def test_jobs_import_in_pairs_and_keep_their_scratch_folders_apart(tmp_path: Path):
    assert [True, True] == overlapped(tmp_path, make_job("a"), make_job("b"))
    assert [] == list((tmp_path / "scratch").iterdir())


def limited(name: str) -> Trial:
    trial = make_trial(name)
    return replace(trial, processes=tuple(replace(process, memory_limit_bytes=1 << 40) for process in trial.processes))


@pytest.mark.parametrize(
    "trials",
    [
        pytest.param([make_trial(name, device="gpu") for name in "ab"], id="on a GPU, where an import may take memory of the card"),
        pytest.param([limited(name) for name in "ab"], id="within a limit of memory"),
        pytest.param([make_job(name, kills=1) for name in "ab"], id="with lives that are started anew"),
    ],
)
def test_nobody_imports_beside_a_trial(tmp_path: Path, trials: list[Trial]):
    assert [False, False] == overlapped(tmp_path, *trials)


@pytest.mark.parametrize("seed", range(4))
def test_one_that_cannot_be_imported_takes_nobody_along(tmp_path: Path, seed: int):
    trials = (make_trial("good"), make_trial("bad", target="no_such_builder"))
    record = run(make_round(*trials, arrangement=Arrangement.SOLO, seed=seed, quads=1), tmp_path)
    assert {"good": (State.COMPLETED, None), "bad": (State.FAILED, "import")} == {t.id: (t.outcome.state, t.outcome.phase) for t in record.trials}


@pytest.mark.parametrize("phase", ["build", "first", "blocks"])
@pytest.mark.parametrize("seed", range(4))
def test_one_that_fails_leaves_the_next_to_begin_anew(tmp_path: Path, phase: str, seed: int):
    trials = (make_trial("good"), make_trial("bad", fault="raise", at=phase))
    record = run(make_round(*trials, arrangement=Arrangement.SOLO, seed=seed, quads=1), tmp_path)
    assert {"good": State.COMPLETED, "bad": State.FAILED} == {trial.id: trial.outcome.state for trial in record.trials}
    assert () == living(tmp_path / "live.json")


def test_a_stop_ends_who_waits_for_its_turn_too(tmp_path: Path):
    heard: list[str] = []
    record = run(
        make_round(*(make_trial(name) for name in "ab"), arrangement=Arrangement.SOLO, quads=1),
        tmp_path,
        tell=lambda progress: heard.append(progress.kind),
        stop=lambda: "block" in heard,
    )
    assert [State.INTERRUPTED] * 2 == [trial.outcome.state for trial in record.trials]
    assert () == living(tmp_path / "live.json")


def test_once_trials_import_in_pairs_too(tmp_path: Path):
    assert [True, True] == overlapped(tmp_path, *(make_trial(name, driver=Driver.ONCE) for name in "ab"))
