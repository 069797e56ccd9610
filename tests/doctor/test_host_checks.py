"""What the checks say of the host and of the noise, at the values where it changes."""

from __future__ import annotations

import math

import pytest

from harness.doctor import check_host as check
from harness.doctor import check_noise
from harness.doctor.check_noise import smallest_effect
from harness.doctor.facts import Looks, Storage
from harness.doctor.findings import Level
from harness.plan import outlook
from tests.doctor.builders import GIB, make_facts, make_host, make_noise
from tests.helpers import make_case, make_cell, make_contrast, make_plan

OK, INFO, WARNING, ERROR = Level.OK, Level.INFO, Level.WARNING, Level.ERROR


def judged(finding):
    return None if finding is None else (finding.code, finding.level)


@pytest.mark.parametrize(
    ("expected", "find", "changes"),
    [
        (("ok", OK), check.cores, {}),
        (("affinity", INFO), check.cores, {"cores_present": 5}),
        (("quota", WARNING), check.cores, {"quota_cores": 3.9}),
        (("ok", OK), check.cores, {"quota_cores": 4.0}),
        (("ok", OK), check.cores, {"cores_present": None}),
        (("ok", OK), check.governor, {}),
        (("not_performance", WARNING), check.governor, {"governors": {"powersave": 1, "performance": 3}}),
        (("unknown", INFO), check.governor, {"governors": None}),
        (("on", INFO), check.turbo, {"turbo": True}),
        (("off", INFO), check.turbo, {"turbo": False}),
        (("unknown", INFO), check.turbo, {"turbo": None}),
        (("on", INFO), check.smt, {"smt": True}),
        (("unknown", INFO), check.smt, {"smt": None}),
        (("ok", OK), check.time_source, {}),
        (("not_tsc", INFO), check.time_source, {"time_source": "kvm-clock"}),
        (("slow", WARNING), check.time_source, {"time_source": "hpet"}),
        (("unknown", INFO), check.time_source, {"time_source": None}),
        (("ok", OK), check.memory, {"memory_free_bytes": 4 * GIB}),
        (("little", WARNING), check.memory, {"memory_free_bytes": 4 * GIB - 1}),
        (("little", WARNING), check.memory, {"memory_free_bytes": GIB}),
        (("too_little", ERROR), check.memory, {"memory_free_bytes": GIB - 1}),
        (("unknown", INFO), check.memory, {"memory_free_bytes": None}),
        (("ok", OK), check.swap, {}),
        (("ok", OK), check.swap, {"swap_bytes": GIB}),
        (("in_use", INFO), check.swap, {"swap_bytes": GIB, "swap_used_bytes": 4096}),
        (("unknown", INFO), check.swap, {"swap_bytes": None, "swap_used_bytes": None}),
        (("setting", INFO), check.huge_pages, {}),
        (("unknown", INFO), check.huge_pages, {"huge_pages": None}),
        (("ok", OK), check.results_storage, {"results": Storage(5 * GIB)}),
        (("little", WARNING), check.results_storage, {"results": Storage(5 * GIB - 1)}),
        (("too_little", ERROR), check.results_storage, {"results": Storage(GIB - 1)}),
        (("read_only", ERROR), check.results_storage, {"results": Storage(100 * GIB, writable=False)}),
        (("unknown", INFO), check.results_storage, {"results": Storage(None, reason="Permission denied")}),
        (("too_little", ERROR), check.data_storage, {"data": Storage(0)}),
        (("ok", OK), check.other_runs, {}),
        (("measuring", WARNING), check.other_runs, {"lock_holder": "run-1 (process 7)"}),
        (("unknown", INFO), check.other_runs, {"missing": {"lock_holder": "the lock cannot be opened"}}),
        (("ok", OK), check.variables, {}),
        (("set", WARNING), check.variables, {"variables": {"TF_XLA_FLAGS": "--x", "LD_PRELOAD": None}}),
        (("dropped", INFO), check.variables, {"variables": {"LD_PRELOAD": None}}),
    ],
)
def test_a_setting_of_the_host_is_judged(expected, find, changes):
    assert expected == judged(find(make_facts(host=make_host(**changes))))


def test_swapping_while_we_watch_is_a_warning_even_where_little_is_swapped_out():
    assert ("swapping", WARNING) == judged(check.swap(make_facts(noise=make_noise(swapped_bytes=4096))))


def test_a_variable_is_shown_with_its_value_and_one_that_workers_do_not_get_by_name_alone():
    finding = check.variables(make_facts(host=make_host(variables={"LD_PRELOAD": None, "OMP_NUM_THREADS": "2"})))
    assert ("OMP_NUM_THREADS=2" in finding.found, "LD_PRELOAD=" in finding.found, "LD_PRELOAD" in finding.found) == (True, False, True)


def test_a_long_value_is_cut():
    assert len(check.variables(make_facts(host=make_host(variables={"TF_CONFIG": "x" * 5000}))).found) < 100


def test_who_measures_is_named():
    assert "run-1 (process 7)" in check.other_runs(make_facts(host=make_host(lock_holder="run-1 (process 7)"))).found


def test_the_smallest_effect_is_the_one_that_a_plan_promises_for_this_spread():
    cell = make_cell()
    contrast = make_contrast(looks=(3, 5, 8, 12))
    plan = make_plan(cells={cell.id: cell}, contrasts=(contrast,), alpha=0.01, thresholds={"floor_cpu": 0.01})
    promised = outlook.smallest_effect(plan, make_case(), {contrast.id: contrast})
    assert pytest.approx(promised) == smallest_effect(outlook.ASSUMED_SPREAD, Looks(12, 4, 0.01))


def test_more_noise_means_that_only_larger_effects_show():
    effects = [smallest_effect(spread, Looks(12, 4, 0.01)) for spread in (0.0, 0.01, 0.05)]
    assert [pytest.approx(math.exp(2 * 0.01) * 1.02 - 1), *sorted(effects)[1:]] == effects


def test_quiet_children_are_well_and_the_effect_is_said():
    finding = check_noise.spread(make_facts())
    assert ("ok", OK, 6, True) == (finding.code, finding.level, finding.numbers["quads"], "or more" in finding.found)
    assert pytest.approx(0.00154919, rel=1e-4) == finding.numbers["spread"]


def test_a_spread_that_hides_ten_per_cent_is_a_warning():
    level = {spread: check_noise.spread(make_facts(noise=make_noise(log_ratios=(spread, -spread) * 5))).level for spread in (0.02, 0.03)}
    assert {0.02: OK, 0.03: WARNING} == level


def test_two_quads_show_no_spread():
    assert ("unknown", INFO) == judged(check_noise.spread(make_facts(noise=make_noise(log_ratios=(0.0, 0.1)))))


def test_where_nothing_was_watched_one_finding_says_why():
    facts = make_facts(noise=make_noise(log_ratios=(), reason="not watched (--no-noise)"))
    found = [find(facts) for find in (check_noise.spread, check_noise.foreign_load, check_noise.steal, check_noise.throttled)]
    assert [("unknown", INFO), None, None, None] == [judged(finding) for finding in found]
    assert "--no-noise" in found[0].found


@pytest.mark.parametrize(
    ("find", "name", "limit", "code"),
    [
        (check_noise.foreign_load, "foreign_cores", 0.05, "foreign_load"),
        (check_noise.steal, "steal_cores", 0.05, "steal"),
        (check_noise.throttled, "throttled_s", 0.3, "throttling"),  # of six seconds
    ],
)
def test_a_load_beyond_the_limit_of_a_quad_is_a_warning(find, name, limit, code):
    found = [find(make_facts(noise=make_noise(**{name: value}))) for value in (limit, limit * 1.01, None)]
    assert [("ok", OK), (code, WARNING), ("unknown", INFO)] == [judged(finding) for finding in found]
