"""What belongs to one machine or one replicate is laid over a round only when it runs."""

from __future__ import annotations

from harness.model import Arrangement, Driver, Process, Round, Trial
from harness.plan.cells import localise, make_cell, make_trial
from harness.plan.specs import Factor, Level
from tests.plan.builders import make_bench, make_gpu, make_machine


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


def test_a_number_of_cores_becomes_the_first_usable_ones() -> None:
    cell = make_cell(make_bench(), "resnet50", {}, {"cores": 2}, "test")
    trial = make_trial(make_bench(), cell, Driver.BLOCKS)
    round_ = Round("c", 0, 0, (trial,), Arrangement.SOLO, 0)
    assert (4, 5) == localise(round_, {cell.id: cell}, make_bench().factors, {}, (4, 5, 6, 7)).trials[0].processes[0].cpus


def test_a_cell_that_asks_for_no_number_of_cores_may_use_all() -> None:
    round_ = make_round(Driver.BLOCKS, 0)
    cell = make_cell(make_bench(), "resnet50", {}, {}, "test")
    assert localise(round_, {cell.id: cell}, make_bench().factors, {}, (4, 5)).trials[0].processes[0].cpus is None


def test_a_number_of_gpus_becomes_the_first_ones_whatever_the_run_uses() -> None:
    gpus = tuple(make_gpu(index=index, uuid=f"GPU-{index}") for index in range(3))
    bench = make_bench(device="gpu", machine=make_machine(gpus=gpus))
    found = [make_trial(bench, make_cell(bench, "resnet50", {}, sizes, "test"), Driver.BLOCKS).processes[0].gpus for sizes in ({}, {"gpus": 2})]
    assert [("GPU-0",), ("GPU-0", "GPU-1")] == found


def test_a_memory_limit_becomes_that_of_a_control_group() -> None:
    cell = make_cell(make_bench(), "resnet50", {}, {"memory_limit_mib": 800}, "test")
    assert 800 * 2**20 == make_trial(make_bench(), cell, Driver.BLOCKS).processes[0].cgroup_memory_bytes


def test_only_a_supervised_trial_is_killed() -> None:
    cell = make_cell(make_bench(), "resnet50", {}, {"kills": 2}, "test")
    assert [2, 0] == [make_trial(make_bench(), cell, driver).kills for driver in (Driver.SUPERVISE, Driver.JOB)]


def test_each_round_of_a_job_has_a_seed_of_its_own() -> None:
    assert [7, 1007] == [settings_of(make_round(Driver.JOB, index)).settings["seed"] for index in range(2)]
