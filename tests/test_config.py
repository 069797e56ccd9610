"""A command line is understood, or refused in one line that begins with the override as it was typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.config import choose_device, make_bench, parse_budget, read_factors, read_settings, to_plan
from harness.config.keys import ROOT
from harness.errors import ConfigError
from harness.model import Case, Plan
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
        (["+sweep=input", "workload=replay", "workload.step_ms=soon"], "workload.step_ms=soon: 'soon' is not a number"),
        (["+sweep=input", "workload=replay", "workload.step_ms=true"], "workload.step_ms=true: 'true' is not a number"),
        (["+sweep=input", "workload=replay", "workload.step_ms=0"], "workload.step_ms=0: must be above 0 (milliseconds of a step)"),
        (["+sweep=input", "workload=replay", "workload.step_ms=-1.5"], "workload.step_ms=-1.5: must be above 0"),
        (["+sweep=input", "workload=replay", "workload.step_ms=nan"], "workload.step_ms=nan: must be above 0"),
        (["+sweep=input", "workload=replay", "workload.devices=0"], "workload.devices=0: must be at least 1"),
        (["+sweep=input", "workload=replay", "workload.devices=1.5"], "workload.devices=1.5: '1.5' is not a whole number"),
        (["+sweep=input", "workload.step_ms=8"], "workload.step_ms=8: the workload resnet50 has no such size; add workload=replay"),
        (["+sweep=input", "data.on_bad=ignore"], "data.on_bad=ignore: 'ignore' is not one of [fail, skip]"),
        (["+sweep=input", "data.make=maybe"], "data.make=maybe: 'maybe' is not true or false"),
        (["+sweep=input", "data.dir=no-such-folder"], "data.dir=no-such-folder: there is no such folder"),
        (["+sweep=smoke", "data.dir=tests"], "data.dir=tests: holds neither JPEG files nor shards of TFRecords"),
    ],
)
def test_a_mistake_is_named_as_it_was_typed(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)) as caught:
        read_settings(arguments)
    assert 1 == len(str(caught.value).splitlines())


@pytest.mark.parametrize(
    ("said", "kind"), [("workload.batch=1.5", "'1.5' is not a whole number"), ("workload.step_ms=soon", "'soon' is not a number")]
)
def test_a_type_that_others_wrote_in_another_order_is_named_all_the_same(said: str, kind: str) -> None:
    """Python keeps the first of equal unions for the whole process, so the order of a union's members is whoever's came first."""
    others = "from typing import Optional, Union; Optional[Union[str, int]]; Optional[Union[float, int]]"
    asked = f"from harness.config import read_settings\ntry:\n    read_settings(['+sweep=quick', '{said}'])\nexcept Exception as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", f"{others}\n{asked}"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"{said}: {kind}\n" == done.stdout


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


def test_what_the_manifest_records_holds_no_path_and_all_else(tmp_path: Path) -> None:
    (tmp_path / "one.jpg").touch()
    paths = [f"results_dir={tmp_path / 'x'}", f"data.dir={tmp_path}", f"checkpoint.dir={tmp_path}"]
    recorded = read_settings(["+sweep=smoke", *paths, "data.on_bad=skip", "checkpoint.interval=4"]).resolved
    assert str(tmp_path) not in repr(recorded)
    assert ("skip", {"interval": 4}) == (recorded["data"]["on_bad"], recorded["checkpoint"])


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


def test_a_persons_images_and_what_becomes_of_bad_ones_reach_the_workers(tmp_path: Path) -> None:
    (tmp_path / "one.jpg").touch()
    settings = read_settings(["+sweep=input", f"data.dir={tmp_path}", "data.on_bad=skip"])
    assert {"data_dir": str(ROOT / "data"), "images_dir": str(tmp_path), "on_bad": "skip"} == settings.data.settings()


def test_without_a_word_workers_are_told_of_the_usual_folder_alone() -> None:
    assert {"data_dir": str(ROOT / "data")} == read_settings(["+sweep=input"]).data.settings()


def test_the_suite_makes_its_photographs_where_it_is_told_to(tmp_path: Path) -> None:
    settings = read_settings(["+sweep=input", f"data.dir={tmp_path / 'new'}", "data.make=true"])
    assert {"data_dir": str(tmp_path / "new")} == settings.data.settings()


def test_the_folder_for_checkpoints_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^checkpoint.dir=.*nowhere: there is no such folder"):
        read_settings(["+sweep=smoke", f"checkpoint.dir={tmp_path}/nowhere"])


def test_the_folder_for_checkpoints_is_in_no_manifest(tmp_path: Path) -> None:
    settings = read_settings(["+sweep=smoke", f"checkpoint.dir={tmp_path}"])
    assert tmp_path.resolve() == settings.checkpoint_dir
    assert str(tmp_path) not in str(settings.resolved)


# ---------------------------------------------------------------- choices in place of what claims name


def planned(*arguments: str, gpus: int = 0) -> Plan:
    settings = read_settings(list(arguments))
    return to_plan(settings, make_bench(settings, make_machine(gpus=tuple(make_gpu(index=i, uuid=f"GPU-{i}") for i in range(gpus)), abilities=("fuse", "memory_cgroup"))))


def cases_of(plan: Plan, workload: str) -> dict[str, Case]:
    """The planned cases that are measured on a workload."""
    found = [case for claim in plan.claims for case in claim.cases]
    return {case.id: case for case in found if {workload} == {plan.cells[term.trial].workload for term in case.estimand.terms}}


def test_an_interval_between_saves_chosen_by_hand_makes_jobs_readings() -> None:
    plan = planned("+sweep=checkpoint", "checkpoint.interval=4", "only=[sync-stall]")
    assert {"reading"} == {case.role.value for case in plan.claims[0].cases}
    # Arms that are about an interval keep their own.
    assert {4, 12} <= {cell.sizes["interval_steps"] for cell in plan.cells.values() if cell.workload == "checkpointed"}


def test_a_claim_about_an_interval_in_seconds_keeps_it_and_its_verdict() -> None:
    plan = planned("+sweep=full", "checkpoint.interval=5", "only=[nfs-20pct.slow_directory,sync-stall.resnet50]")
    slow = next(case for claim in plan.claims for case in claim.cases if case.id == "nfs-20pct.slow_directory")
    assert ("judged", None) == (slow.role.value, slow.why_reading)
    assert {None} == {plan.cells[term.trial].sizes["interval_steps"] for term in slow.estimand.terms}


@pytest.mark.parametrize("only", ["nfs-20pct.slow_directory", "nfs-20pct.every_4_steps", "graph-speedup"])
def test_an_interval_that_reaches_no_job_is_refused(only: str) -> None:
    with pytest.raises(ConfigError, match=r"^checkpoint.interval=4: no job that sweep full measures here takes it"):
        planned("+sweep=full", "checkpoint.interval=4", f"only=[{only}]")


def test_an_interval_longer_than_the_jobs_is_refused_with_their_length() -> None:
    with pytest.raises(ConfigError, match=r"^checkpoint.interval=30: the jobs of sync-stall\.\w+ end after 24 steps, before their first save; choose at most 24$"):
        planned("+sweep=checkpoint", "checkpoint.interval=30", "only=[sync-stall]")


def test_an_interval_of_the_whole_job_has_one_save() -> None:
    assert planned("+sweep=checkpoint", "checkpoint.interval=24", "only=[sync-stall]").claims[0].cases


STAND_INS = ("+sweep=input", "workload=replay", "workload.step_ms=8", "workload.devices=4")


def test_a_stand_in_chosen_by_hand_is_what_every_arm_about_stand_ins_is_measured_with() -> None:
    plan = planned(*STAND_INS)
    replays = [cell for cell in plan.cells.values() if cell.workload == "replay"]
    assert {(8, 4)} == {(cell.sizes["step_ms"], cell.sizes["devices"]) for cell in replays}
    assert {"host-feeds.feeds_1_core", "host-feeds.feeds_2_cores", "tfdata-fixes.stand_in", "prefetch.gain"} <= set(cases_of(plan, "replay"))


def test_figures_of_a_stand_in_chosen_by_hand_say_so_and_judge_nothing() -> None:
    told = {(case.role.value, case.why_reading) for case in cases_of(planned(*STAND_INS), "replay").values()}
    assert {("reading", "sizes chosen by hand: step_ms 8, devices 4")} == told


def test_titles_name_the_stand_ins_that_are_measured() -> None:
    name = "host-feeds.feeds_1_core"
    assert "Samples a second that tf.data feeds to 8 stand-ins of 1000 samples a second each, one core" == cases_of(planned("+sweep=input"), "replay")[name].title
    assert "Samples a second that tf.data feeds to 4 stand-ins of 2000 samples a second each, one core" == cases_of(planned(*STAND_INS), "replay")[name].title


def test_titles_of_one_stand_in_of_a_slow_accelerator_are_exact() -> None:
    plan = planned("+sweep=input", "workload=replay", "workload.step_ms=7500.5", "workload.devices=1", "workload.batch=4")
    assert "Samples a second that reach a stand-in of 0.533 samples a second, prefetching one batch over none" == cases_of(plan, "replay")["prefetch.gain"].title


def test_no_title_keeps_a_place_that_was_not_filled() -> None:
    plan = planned("+sweep=full", gpus=1)
    assert [] == [case.title for claim in plan.claims for case in claim.cases if "{" in case.title]
    assert [] == [contrast.title for contrast in plan.contrasts if "{" in contrast.title]


def test_a_stand_in_takes_no_nets_place() -> None:
    plan = planned(*STAND_INS)
    assert "resnet50" not in {cell.workload for cell in plan.cells.values()}
    starves = next(claim for claim in plan.claims if claim.id == "tfdata-fixes")
    assert "from_feed_dict: is about training, and workload=replay trains nothing" in starves.left_out


def test_pipelines_by_themselves_are_measured_beside_a_stand_in_chosen_by_hand() -> None:
    assert cases_of(planned(*STAND_INS), "pipeline").keys() == cases_of(planned("+sweep=input"), "pipeline").keys()


def test_a_stand_in_in_a_sweep_that_has_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^workload=replay: nothing that sweep smoke measures here is about it"):
        planned("+sweep=smoke", "workload=replay")


def test_a_pipeline_chosen_by_hand_has_the_batch_that_was_asked_for() -> None:
    plan = planned("+sweep=input", "workload=pipeline", "workload.batch=8", "only=[host-feeds]")
    compared = {trial.cell for contrast in plan.contrasts if contrast.purpose.value == "claim" for trial in contrast.trials}
    assert {8} == {plan.cells[cell].sizes["batch"] for cell in compared if plan.cells[cell].workload == "pipeline"}


def test_several_choices_are_all_told() -> None:
    plan = planned("+sweep=training", "workload=convnet_small", "workload.batch=4", "switch.precision=mixed_bfloat16", "only=[graph-speedup.article]")
    text = "measured on workload=convnet_small by choice; sizes chosen by hand: batch 4; switches chosen by hand: precision mixed_bfloat16"
    assert text == plan.claims[0].cases[0].why_reading


# ---------------------------------------------------------------- switches that not every workload can have


def levels_of(plan: Plan, factor: str) -> set[tuple[str, str]]:
    return {(cell.workload, cell.levels[factor]) for cell in plan.cells.values()}


def test_a_cold_page_cache_is_no_label_of_what_runs_warm() -> None:
    # Pipelines go over their files again and again; the one pass over cold files is cold without a word.
    with pytest.raises(ConfigError, match=r"^switch.page_cache=cold: nothing that sweep input measures here can take it, only arms of custom, epoch that name"):
        planned("+sweep=input", "switch.page_cache=cold")


def test_controls_and_proofs_keep_what_they_cannot_change() -> None:
    plan = planned("+sweep=training", "switch.storage=slow", "only=[combined-2x.all]")
    assert {("checkpointed", "slow")} == {found for found in levels_of(plan, "storage") if found[1] != "own"}
    assert {"control", "proof", "claim"} == {contrast.purpose.value for contrast in plan.contrasts}


@pytest.mark.parametrize("switch", ["page_cache=cold", "checkpoint=async", "storage=slow"])
def test_a_switch_that_nothing_measured_can_have_is_refused(switch: str) -> None:
    with pytest.raises(ConfigError, match=f"^switch.{switch}: nothing that sweep training measures here can take it"):
        planned("+sweep=training", f"switch.{switch}", "only=[graph-speedup]")


def test_no_arm_of_a_claim_has_a_level_that_its_workload_cannot_bring_about() -> None:
    left_out = [text for claim in planned("+sweep=full", gpus=1).claims for text in (*claim.left_out, claim.not_testable.text if claim.not_testable else "")]
    assert [] == [text for text in left_out if "cannot be had in the workload" in text]
