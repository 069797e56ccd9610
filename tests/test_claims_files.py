"""The claims, workloads and the ladder under conf/ as a reader and the plan need them. Knows YAML and the schema, measures nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest
import yaml

from harness.model import Decide, Role
from harness.plan.armless import ARMLESS, EDGES, STATED
from harness.plan.estimands import FORMS
from harness.plan.specs import CaseSpec, ClaimSpec, Factor, Needs, Rung, WorkloadSpec, convert, load_claims, read_yaml

CONF = Path(__file__).resolve().parent.parent / "conf"

LISTED = {
    "input": "feed-starves tfdata-fixes parallel-map prefetch prefetch-to-gpu cache-small cache-only-if-io cache-too-big tfrecord-best",
    "execution": "graph-speedup trace-overhead retracing graph-python-state articles-as-written",
    "devices": "scaling-8gpu scaling-poor idle-without-strategy scaling-one-switch mwms-one-host allreduce-linear network-bound "
    "loss-is-communication interconnect-used accumulate-saves",
    "precision": "mixed-speedup mixed-op-speed mixed-memory mixed-memory-40 mixed-accuracy loss-scaling output-fp32 layernorm-fp16 rnn-fp16 "
    "old-gpus tensor-core-rate",
    "checkpoints": "sync-stall io-device-async async-free ckpt-sharded nfs-20pct max-to-keep restore-after-kill",
    "together": "combined-2x mixed-needs-graph scaling-needs-input util-70 util-30 transfers",
    "hardware": "gpu-vs-cpu memory-bandwidth cores growth-on-demand version-matrix h2d-overlap cudnn-algorithm allocator small-batch-noise",
    "inference": "trt-throughput trt-latency engine-cpu qps-10k savedmodel-same serving-fixed-batch serving hot-update preprocessing-inside "
    "saved-model-cli-trt",
}
GROUPS = list(LISTED)
OURS = {"host-feeds", "batch-norm-fused", "optimizer-lean", "xla-speedup", "bf16-cpu", "fp16-cpu", "best-arm", "instrument-transparent", "engine-cpu", "soak"}
OURS |= {"host-roofs", "device-roofs"}
ADVICE = {"allocator"}
"""Claims that say what one should know, so that nothing of them is so or not so."""
KNOWN_FORMS = {*FORMS, *ARMLESS, "slope", "terms", "ladder", "ladder_total"}
ALLOWED_KEYS = {field.encode_name for field in msgspec.structs.fields(ClaimSpec)}
REQUIRED_KEYS = ALLOWED_KEYS - {"deciding_case", "cases"}
FILES = sorted((CONF / "claims").glob("*.yaml"))


@cache
def claims() -> tuple[ClaimSpec, ...]:
    return tuple(load_claims(CONF / "claims"))


@cache
def factors() -> dict[str, Factor]:
    return convert(read_yaml(CONF / "factors.yaml"), dict[str, Factor], "conf/factors.yaml")


@cache
def workloads() -> dict[str, WorkloadSpec]:
    return {path.stem: convert(read_yaml(path), WorkloadSpec, path.name) for path in (CONF / "workload").glob("*.yaml")}


def all_cases() -> list[tuple[str, CaseSpec]]:
    return [(f"{claim.id}.{case.id}", case) for claim in claims() for case in claim.cases]


def unknown_levels(levels: dict[str, str]) -> list[str]:
    return [f"{factor}={level}" for factor, level in levels.items() if factor not in factors() or level not in factors()[factor].levels]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_states_every_key_that_a_claim_must_state_and_no_other(path: Path) -> None:
    keys = set(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert (set(), set()) == (REQUIRED_KEYS - keys, keys - ALLOWED_KEYS)


def test_an_id_is_the_name_of_its_file() -> None:
    assert {path.stem for path in FILES} == {claim.id for claim in claims()}


def test_every_row_of_the_list_has_its_claim_in_its_group_and_order() -> None:
    for group, names in LISTED.items():
        there = [claim.id for claim in claims() if claim.group == group and claim.id in names.split()]
        assert names.split() == there


def test_what_is_not_on_the_list_is_said_to_be_ours() -> None:
    listed = {name for names in LISTED.values() for name in names.split()}
    assert OURS - {"engine-cpu"} == {claim.id for claim in claims()} - listed
    assert {claim.id for claim in claims() if claim.source == "ours"} == OURS


def test_a_claim_of_the_articles_names_which_of_them_makes_it() -> None:
    assert {"S", "D", "SD", "ours"} >= {claim.source for claim in claims()}


def test_an_order_is_used_once_and_begins_with_the_number_of_its_group() -> None:
    orders = [claim.order for claim in claims()]
    assert len(orders) == len(set(orders))
    assert [GROUPS.index(claim.group) + 1 for claim in claims()] == [order // 100 for order in orders]


def test_a_claim_without_its_parts_has_no_cases_and_one_with_them_has_some() -> None:
    assert [] == [claim.id for claim in claims() if bool(claim.cases) == bool(claim.not_built)]


def test_a_claim_that_cannot_be_judged_everywhere_says_what_would_change_that() -> None:
    limited = [claim for claim in claims() if claim.not_built or claim.needs != Needs()]
    assert [] == [claim.id for claim in limited if not claim.makes_testable]


def test_a_deciding_case_is_named_exactly_where_one_decides_and_is_judged() -> None:
    for claim in claims():
        judged = [case.id for case in claim.cases if case.role is Role.JUDGED]
        assert (claim.decide is Decide.CASE) == (claim.deciding_case is not None), claim.id
        assert claim.deciding_case is None or claim.deciding_case in judged, claim.id


def test_the_deciding_cases_stand_before_the_readings() -> None:
    for claim in claims():
        roles = [case.role is Role.JUDGED for case in claim.cases]
        assert sorted(roles, reverse=True) == roles, claim.id
        assert claim.deciding_case in {None, *(case.id for case in claim.cases[:1])}, claim.id


def test_the_claims_of_the_articles_that_have_cases_have_a_judged_one_or_state_facts() -> None:
    said = [claim for claim in claims() if claim.cases and claim.source != "ours" and claim.id not in ADVICE]
    assert [] == [claim.id for claim in said if {case.role for case in claim.cases} in ({Role.READING}, {Role.READING, Role.FACT})]


def test_case_ids_are_unique_within_their_claim() -> None:
    for claim in claims():
        ids = [case.id for case in claim.cases]
        assert len(ids) == len(set(ids)), claim.id


def test_a_published_figure_has_a_value_and_a_source() -> None:
    assert [] == [claim.id for claim in claims() for p in claim.published if not (p.what.strip() and p.value.strip() and p.source.strip())]


def test_every_claim_says_something_and_has_notes() -> None:
    assert [] == [claim.id for claim in claims() if not claim.statement.endswith((".", "!")) or len(claim.notes) < 40]  # a sentence


def test_every_form_is_one_that_the_plan_knows() -> None:
    assert [] == [name for name, case in all_cases() if case.form not in KNOWN_FORMS]


def test_a_case_has_the_arms_that_its_form_needs() -> None:
    for name, case in all_cases():
        needed = {term.arm for term in case.terms} if case.form == "terms" else {arm for _, arm in FORMS.get(case.form, ())}
        assert needed <= set(case.arms), name


def test_a_slope_runs_over_at_least_three_sizes() -> None:
    slopes = [(name, [len(values) for values in case.over.values()]) for name, case in all_cases() if case.form == "slope"]
    assert [] == [name for name, lengths in slopes if len(lengths) != 1 or lengths[0] < 3]  # two sizes always make a line


def test_every_level_of_every_arm_is_one_that_the_factors_have() -> None:
    for name, case in all_cases():
        arms = [{k: v for k, v in arm.items() if k not in {"sizes", "workload", "driver", "device"}} for arm in case.arms.values()]
        assert [] == [bad for levels in (case.levels, *arms) for bad in unknown_levels(levels)], name


def test_a_fact_is_a_figure_that_a_machine_states() -> None:
    stated = [case for _, case in all_cases() if case.form == "stated"]
    assert [] == [case.measure for case in stated if case.measure not in STATED or case.role is not Role.FACT or not case.unit]


def test_a_rule_has_the_edges_that_it_needs_and_is_a_share() -> None:
    for name, case in all_cases():
        assert (case.form == "rule") == (case.rule is not None), name
        if case.rule is not None:
            edges = {edge for edge in ("gain", "wait") if getattr(case.rule, edge) is not None}
            assert ({EDGES[case.rule.name]} - {None}, "share") == (edges, case.unit), name


def test_an_arm_with_a_device_of_its_own_is_on_the_cpu_beside_one_on_a_gpu_or_in_a_case_of_the_cpu_alone() -> None:
    guests = [(claim, case) for claim in claims() for case in claim.cases if any("device" in arm for arm in case.arms.values())]
    devices = {(claim.id, case.id): {arm.get("device") for arm in case.arms.values()} for claim, case in guests}
    assert [] == [name for name, found in devices.items() if not found <= {"cpu", None}]
    assert [] == [claim.id for claim, case in guests if claim.needs.device != "gpu" and devices[claim.id, case.id] != {"cpu"}]


def test_every_workload_of_a_case_has_its_file() -> None:
    assert set() == {case.workload for _, case in all_cases()} - set(workloads())


def test_a_workload_is_named_like_its_file_and_has_sizes_for_both_kinds_of_device() -> None:
    ours = {stem: spec for stem, spec in workloads().items() if spec.target}  # custom has none: it is filled in by hand
    for stem, spec in ours.items():
        assert (stem, {"cpu", "gpu"}) == (spec.name, set(spec.sizes))


def test_a_judged_case_has_a_band_and_its_edges_are_in_order() -> None:
    for name, case in all_cases():
        if case.role is Role.JUDGED:
            assert case.band is not None, name
            low, high = case.band
            assert (low, high) != (None, None), name
            assert low is None or high is None or low <= high, name


def test_a_reading_has_no_band() -> None:
    assert [] == [name for name, case in all_cases() if case.role is Role.READING and case.band is not None]


def test_a_ratio_of_merely_more_or_less_than_one_has_a_margin_of_five_per_cent() -> None:
    ratios = [case for _, case in all_cases() if case.role is Role.JUDGED and case.form in {"ratio", "interaction"}]
    bare = [case.margin for case in ratios if case.band in {(1, None), (None, 1)}]
    assert {0.05} == set(bare)


def test_what_is_counted_has_no_margin_and_no_rounding() -> None:
    exact = [(name, case) for name, case in all_cases() if case.role is Role.JUDGED and case.scale is not None and case.scale.value == "exact"]
    assert [] == [name for name, case in exact if (case.margin, case.rounding) != (0, 0)]


def test_a_case_that_is_no_ratio_names_its_unit() -> None:
    assert [] == [name for name, case in all_cases() if case.form == "level" and not case.unit]


def test_every_sweep_that_a_case_names_exists() -> None:
    known = {path.stem for path in (CONF / "sweep").glob("*.yaml")}
    assert set() == {sweep for _, case in all_cases() for sweep in case.sweeps} - known


def test_the_ladder_changes_every_switch_once_between_levels_that_exist() -> None:
    ladders = convert(read_yaml(CONF / "ladder.yaml"), dict[str, list[Rung]], "conf/ladder.yaml")
    assert {"cpu", "gpu"} == set(ladders)
    for rungs in ladders.values():
        assert len(rungs) == len({rung.factor for rung in rungs})
        assert [] == [bad for rung in rungs for level in (rung.off, rung.on) for bad in unknown_levels({rung.factor: level})]
        assert [] == [rung.factor for rung in rungs if rung.off == rung.on]
