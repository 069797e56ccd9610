"""Which workers are told where to leave something for TensorBoard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Arrangement, Driver, Round
from harness.watch.places import with_places
from tests.helpers import make_cell, make_trial

CELL = make_cell()
FOLDER = Path("bundle/tensorboard")


def places(driver: Driver, call: str = "outcome", *, curves: bool) -> list[dict[str, str]]:
    """The places that the two trials of the second round of a contrast are told."""
    trials = tuple(make_trial(name, cell=CELL, driver=driver, call=call) for name in ("baseline", "treatment"))
    round_ = Round("graph-speedup.article", 1, 0, trials, Arrangement.SOLO, 1)
    given = with_places(round_, {CELL.id: CELL}, FOLDER, curves=curves)
    assert round_ == replace(given, trials=trials)
    return [{name: value for name, value in t.processes[0].settings.items() if str(value).startswith("bundle")} for t in given.trials]


def test_each_timed_arm_has_a_folder_for_its_losses():
    folder = "bundle/tensorboard/training/graph-speedup.article"
    assert [{"events_dir": f"{folder}/round-2.0-arm-1"}, {"events_dir": f"{folder}/round-2.0-arm-2"}] == places(Driver.BLOCKS, curves=True)


def test_without_a_log_no_arm_is_told_anything():
    assert [{}, {}] == places(Driver.BLOCKS, curves=False)


@pytest.mark.parametrize("driver", [Driver.ONCE, Driver.JOB, Driver.SUPERVISE])
def test_what_reads_its_losses_while_it_is_timed_is_told_no_place(driver):
    assert [{}, {}] == places(driver, curves=True)


@pytest.mark.parametrize("curves", [True, False])
def test_a_profile_goes_where_tensorboard_looks_for_it(curves):
    assert [{"profile_dir": "bundle/tensorboard/plugins/profile/convnet_small"}] * 2 == places(Driver.ONCE, "profile", curves=curves)
