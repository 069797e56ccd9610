"""A command line is understood, or refused in one line that begins with the override as it was typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.config import choose_device, data_settings, make_bench, parse_budget, read_factors, read_settings, to_plan
from harness.errors import ConfigError
from tests.plan.builders import make_gpu, make_machine


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["+sweep=smoke", "workload.batch=abc"], "workload.batch=abc: 'abc' is not a whole number"),
        (["+sweep=smoke", "seed=1.5"], "seed=1.5: '1.5' is not a whole number"),
        (["+sweep=smoke", "plan=maybe"], "plan=maybe: 'maybe' is not true or false"),
        (["+sweep=smoke", "alpha=lots"], "alpha=lots: 'lots' is not a number"),
        (["+sweep=smoke", "alpha=2"], "alpha=2.0: must lie between 0 and 0.5"),
        (["+sweep=nope"], "+sweep=nope: there is no sweep 'nope'; known: "),
        (["+sweep=smoke", "workload=nope"], "workload=nope: there is no workload 'nope'; known: "),
        (["+sweep=smoke", "foo=1"], "foo=1: there is no key foo"),
        (["+sweep=smoke", "+foo=1"], "+foo=1: there is no key foo"),
        (["+sweep=smoke", "+devices.foo=1"], "+devices.foo=1: there is no key foo in devices"),
        (["+sweep=smoke", "switch.exec=eager"], "switch.exec=eager: there is no key exec in switch; known: input, "),
        (["+sweep=smoke", "devices.kind=tpu"], "devices.kind=tpu: 'tpu' is not one of [auto, cpu, gpu]"),
        (["+sweep=smoke", "workload.batch=0"], "workload.batch=0: must be at least 1"),
        (["+sweep=smoke", "workload.batch=1.5"], "workload.batch=1.5: '1.5' is not a whole number"),
        (["+sweep=smoke", "workload.image=max"], "workload.image=max: 'max' is not a whole number"),
        (["+sweep=smoke", "budget=soon"], "budget=soon: is no duration; write 45m"),
        (["+sweep=smoke", "+sweep=quick"], "+sweep=smoke +sweep=quick: one sweep at a time"),
        (["sweep=smoke"], "sweep=smoke: a sweep is added with a plus sign, as in +sweep=smoke"),
        (["smoke"], "smoke: is no key=value; did you mean +sweep=smoke?"),
        (["-m", "+sweep=smoke"], "-m is refused: "),
        (["--cfg", "job"], "--cfg: there is no such option"),
        (["+sweep=smoke", "only=a,b"], "only=a,b: a list is written in brackets, as in 'only=[a,b]'"),
        (["+sweep=smoke", "machine.name=a,b"], "machine.name=a,b: "),
        (["+sweep=smoke", "checkpoint.interval=0"], "checkpoint.interval=0: must be at least 1"),
        (["+sweep=smoke", "telemetry.host_period_s=0.01"], "telemetry.host_period_s=0.01: must be at least 0.1 and at most 3600"),
        (["+sweep=smoke", "telemetry.enabled=maybe"], "telemetry.enabled=maybe: 'maybe' is not true or false"),
        (["+sweep=smoke", "+checkpoint.foo=1"], "+checkpoint.foo=1: there is no key foo in checkpoint"),
        (["+sweep=smoke", "workload=custom"], "workload=custom has no target"),
    ],
)
def test_a_mistake_is_named_as_it_was_typed(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)) as caught:
        read_settings(arguments)
    assert 1 == len(str(caught.value).splitlines())


def test_a_text_with_a_comma_in_quotes_passes_through() -> None:
    assert "a,b" == read_settings(["+sweep=smoke", 'machine.name="a,b"']).machine_name


@pytest.mark.parametrize(("arguments", "period_s"), [([], 1.0), (["telemetry.host_period_s=5"], 5.0), (["telemetry.enabled=false"], None)])
def test_the_machine_is_watched_unless_that_is_turned_off(arguments: list[str], period_s: float | None) -> None:
    assert period_s == read_settings(["+sweep=smoke", *arguments]).host_period_s


def test_a_list_of_claims_in_brackets_is_read() -> None:
    assert ("retracing", "trace-overhead") == read_settings(["+sweep=smoke", "only=[retracing,trace-overhead]"]).request.only


@pytest.mark.parametrize(("text", "seconds"), [("45m", 2700.0), ("1h30m", 5400.0), ("90s", 90.0), ("90", 90.0), (None, None)])
def test_budgets_are_durations(text: str | None, seconds: float | None) -> None:
    assert seconds == parse_budget(text)


@pytest.mark.parametrize("text", ["", "m", "-5m", "0s", "five"])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="budget="):
        parse_budget(text)


def test_a_gpu_that_is_demanded_and_not_there_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"devices.kind=gpu: asked for a GPU, found 0 \(no driver\)"):
        choose_device(read_settings(["+sweep=smoke", "devices.kind=gpu"]), make_machine())


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sweep.looks=[]", "sweep.looks=[]: must be numbers of rounds that rise from at least 1"),
        ("sweep.looks=[0,3]", "sweep.looks=[0, 3]: must be numbers of rounds that rise"),
        ("sweep.looks=[5,3]", "sweep.looks=[5, 3]: must be numbers of rounds that rise"),
        ("sweep.control_rounds=0", "sweep.control_rounds=0: must be at least 1 (rounds of the controls)"),
        ("sweep.quads=0", "sweep.quads=0: must be at least 1 (quads that count, warm-up aside)"),
        ("sweep.quads=-1", "sweep.quads=-1: must be at least 1 (quads that count, warm-up aside)"),
        ("+sweep.block_s=0", "sweep.block_s=0.0: must be above 0 (seconds of a timed block)"),
        ("+sweep.block_s=-1", "sweep.block_s=-1.0: must be above 0 (seconds of a timed block)"),
        ("sweep.sizes=huge", "sweep.sizes=huge: must be article or scaled"),
        ("sweep.alpha=5", "alpha=5.0: must lie between 0 and 0.5"),
    ],
)
def test_a_sweep_that_would_measure_nothing_is_refused_with_the_number(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(said)):
        read_settings(["+sweep=smoke", override])


def test_a_launcher_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"launcher.kind=slurm: rounds can only be run on this machine so far"):
        read_settings(["+sweep=smoke", "launcher.kind=slurm"])


def test_gpus_that_are_asked_for_by_number_and_not_there_are_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"devices.count=2: asked for 2 GPUs, found 0 \(no driver\)"):
        choose_device(read_settings(["+sweep=smoke", "devices.count=2"]), make_machine())


def test_more_gpus_than_there_are_is_refused_with_both_numbers() -> None:
    settings = read_settings(["+sweep=smoke", "devices.count=2"])
    with pytest.raises(ConfigError, match="devices.count=2: asked for 2 GPUs, found 1"):
        choose_device(settings, make_machine(gpus=(make_gpu(),)))


@pytest.mark.parametrize(("kind", "gpus", "expected"), [("auto", 0, "cpu"), ("auto", 1, "gpu"), ("cpu", 1, "cpu"), ("gpu", 1, "gpu")])
def test_the_device_is_what_was_asked_or_what_is_there(kind: str, gpus: int, expected: str) -> None:
    settings = read_settings(["+sweep=smoke", f"devices.kind={kind}"])
    assert expected == choose_device(settings, make_machine(gpus=(make_gpu(),) * gpus))


@pytest.mark.parametrize(
    ("switches", "message"),
    [
        (["switch.input=feed_dict", "switch.execution=eager"], "switch.input=feed_dict switch.execution=eager: input=feed_dict with execution=eager contradict"),
        (["switch.execution=fast"], "switch.execution=fast: factor execution has no level 'fast'; known: eager, graph, xla"),
        (["switch.precision=tf32"], "switch.precision=tf32: precision=tf32 needs a GPU: no driver"),
    ],
)
def test_switches_that_cannot_be_are_refused(switches: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        make_bench(read_settings(["+sweep=smoke", *switches]), make_machine())


def test_a_switch_changes_the_baseline_of_every_arm_that_does_not_name_it() -> None:
    settings = read_settings(["+sweep=training", "switch.batch_norm=fused", "only=[graph-speedup]"])
    plan = to_plan(settings, make_bench(settings, make_machine()))
    compared = {trial.cell for contrast in plan.contrasts if contrast.purpose.value == "claim" for trial in contrast.trials}
    assert {"fused"} == {plan.cells[cell].levels["batch_norm"] for cell in compared}


def test_the_plan_records_every_threshold_and_one_that_was_overridden() -> None:
    settings = read_settings(["+sweep=quick", "+thresholds.control_band=0.1"])
    found = to_plan(settings, make_bench(settings, make_machine())).thresholds
    assert (0.1, 0.01, 0.75) == (found["control_band"], found["floor_cpu"], found["low_clock_share"])


def test_what_telemetry_flags_by_can_be_overridden() -> None:
    settings = read_settings(["+sweep=quick", "+thresholds.low_clock_share=0.6", "+thresholds.swapped_bytes=0"])
    found = to_plan(settings, make_bench(settings, make_machine())).thresholds
    assert (0.6, 0.0) == (found["low_clock_share"], found["swapped_bytes"])


@pytest.mark.parametrize("override", ["+thresholds.control_band=5", "+thresholds.floor_cpu=-1", "+thresholds.control_alpha=0.5", "+thresholds.low_clock_share=75"])
def test_a_threshold_that_makes_no_sense_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="must be at least 0"):
        read_settings(["+sweep=quick", override])


def test_a_switch_chosen_by_hand_makes_a_judged_case_a_reading() -> None:
    settings = read_settings(["+sweep=training", "switch.batch_norm=fused", "only=[graph-speedup.article]"])
    (case,) = next(claim for claim in to_plan(settings, make_bench(settings, make_machine())).claims).cases
    assert ("reading", "switches chosen by hand: batch_norm fused") == (case.role.value, case.why_reading)


def test_an_unknown_threshold_is_refused() -> None:
    with pytest.raises(ConfigError, match="thresholds.control_bnd: there is no such threshold; known: "):
        read_settings(["+sweep=quick", "+thresholds.control_bnd=0.1"])


def test_what_the_manifest_records_holds_no_path() -> None:
    settings = read_settings(["+sweep=smoke", f"results_dir={Path.home() / 'x'}", f"data.dir={Path.home()}"])
    assert str(Path.home()) not in repr(settings.resolved)


@pytest.mark.parametrize("sweep", ["smoke", "quick", "training", "full"])
def test_every_sweep_can_be_planned_on_a_cpu_and_on_a_gpu(sweep: str) -> None:
    settings = read_settings([f"+sweep={sweep}"])
    for machine in (make_machine(), make_machine(gpus=(make_gpu(),))):
        plan = to_plan(settings, make_bench(settings, machine))
        assert len(settings.claims) == len(plan.claims)
        assert plan.contrasts


def test_every_level_of_every_factor_that_is_excluded_exists() -> None:
    factors = read_factors()
    for factor in factors.values():
        for level in factor.levels.values():
            for other, banned in level.excludes.items():
                assert set(banned) <= set(factors[other].levels)


def test_a_folder_with_pictures_in_class_folders_is_the_persons_own_set(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "one.JPEG").touch()
    assert {"images_dir": str(tmp_path)} == data_settings(tmp_path)


@pytest.mark.parametrize("name", ["train.tfrecord", "train.tfrecords", "train.tfrecord-00001-of-00002"])
def test_a_folder_with_records_is_the_persons_own_set(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert {"images_dir": str(tmp_path)} == data_settings(tmp_path)


def test_the_folder_in_which_the_suite_makes_its_sets_is_nobodys_own(tmp_path: Path) -> None:
    (tmp_path / "photographs-128" / "china").mkdir(parents=True)
    (tmp_path / "photographs-128" / "china" / "00000.jpg").touch()
    assert {"data_dir": str(tmp_path)} == data_settings(tmp_path)


def test_a_folder_that_does_not_exist_yet_is_where_the_suite_makes_its_set(tmp_path: Path) -> None:
    assert {"data_dir": str(tmp_path / "new")} == data_settings(tmp_path / "new")


def test_the_folder_for_checkpoints_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^checkpoint.dir=.*nowhere: there is no such folder"):
        read_settings(["+sweep=smoke", f"checkpoint.dir={tmp_path}/nowhere"])


def test_the_folder_for_checkpoints_is_in_no_manifest(tmp_path: Path) -> None:
    settings = read_settings(["+sweep=smoke", f"checkpoint.dir={tmp_path}"])
    assert tmp_path.resolve() == settings.checkpoint_dir
    assert str(tmp_path) not in str(settings.resolved)


def test_an_interval_between_saves_chosen_by_hand_makes_jobs_readings() -> None:
    settings = read_settings(["+sweep=checkpoint", "checkpoint.interval=4", "only=[sync-stall]"])
    plan = to_plan(settings, make_bench(settings, make_machine()))
    assert {"reading"} == {case.role.value for case in plan.claims[0].cases}
    # Arms that are about an interval keep their own.
    assert {4, 12} == {cell.sizes["interval_steps"] for cell in plan.cells.values() if cell.workload == "checkpointed"}
