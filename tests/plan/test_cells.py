"""What belongs to one machine or one replicate is laid over a round only when it runs."""

from __future__ import annotations

from harness.model import Arrangement, Driver, Process, Round, Trial
from harness.plan.cells import localise, make_cell
from harness.plan.specs import Factor, Level
from tests.plan.builders import make_bench


def make_round(driver: Driver, index: int, call: str = "outcome") -> Round:
    trial = Trial("t", make_cell(make_bench(), "resnet50", {}, {}, "test").id, (Process("lead", "m:build", {"seed": 7}),), driver=driver, call=call)
    return Round("c", index, 0, (trial,), Arrangement.SOLO, 0)


def settings_of(round_: Round, factors: dict[str, Factor] | None = None) -> Process:
    cell = make_cell(make_bench(), "resnet50", {}, {}, "test")
    return localise(round_, {cell.id: cell}, factors or make_bench().factors, {"data_dir": "d"}).trials[0].processes[0]


def test_each_round_of_an_outcome_has_a_seed_of_its_own() -> None:
    assert [7, 1007, 2007] == [settings_of(make_round(Driver.ONCE, index)).settings["seed"] for index in range(3)]


def test_blocks_and_proofs_keep_their_seed() -> None:
    assert 7 == settings_of(make_round(Driver.BLOCKS, 3)).settings["seed"]
    assert 7 == settings_of(make_round(Driver.ONCE, 3, call="proof")).settings["seed"]


def test_the_data_folder_reaches_the_worker_and_not_the_plan() -> None:
    round_ = make_round(Driver.BLOCKS, 0)
    assert "d" == settings_of(round_).settings["data_dir"]
    assert "data_dir" not in round_.trials[0].processes[0].settings


def test_a_level_may_name_another_interpreter() -> None:
    factors = make_bench().factors | {"execution": Factor(default="graph", levels={"graph": Level(interpreter="/opt/other/python")})}
    assert "/opt/other/python" == settings_of(make_round(Driver.BLOCKS, 0), factors).interpreter
