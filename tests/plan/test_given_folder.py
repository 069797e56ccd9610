"""Cases about the folder that checkpoint.dir= names, and cases about its absence."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config import make_bench, read_settings, read_workloads, to_plan
from harness.model import Claim, Plan, Role
from harness.plan.build import make_plan
from harness.plan.by_hand import Request
from tests.plan.builders import make_bench as make_small_bench
from tests.plan.builders import make_case, make_claim, make_machine, make_sweep


def planned(*, given: bool) -> Claim:
    """A claim of three cases: about a given folder, about none, about neither."""
    cases = [make_case(id="given", given_folder=True), make_case(id="made", given_folder=False), make_case(id="any")]
    plan = make_plan([make_claim(cases=cases)], make_sweep(), make_small_bench(), [], Request(given_folder=given))
    (claim,) = plan.claims
    return claim


@pytest.mark.parametrize(("given", "there"), [(True, ["faster.given", "faster.any"]), (False, ["faster.made", "faster.any"])])
def test_a_case_about_a_folder_is_planned_where_that_is_so(given: bool, there: list[str]):
    assert there == [case.id for case in planned(given=given).cases]


@pytest.mark.parametrize(("given", "why"), [(True, "made: is for runs without checkpoint.dir="), (False, "given: needs checkpoint.dir=")])
def test_a_case_that_is_left_out_for_it_says_so(given: bool, why: str):
    (text,) = planned(given=given).left_out
    assert text.startswith(why)


def nfs_plan(*arguments: str) -> Plan:
    settings = read_settings(["+sweep=checkpoint", "only=[nfs-20pct]", *arguments])
    return to_plan(settings, make_bench(settings, make_machine(abilities=("fuse",))))


def nfs(*arguments: str) -> Claim:
    (claim,) = nfs_plan(*arguments).claims
    return claim


def test_saves_to_a_given_folder_are_judged_on_it_as_it_is(tmp_path: Path):
    roles = {case.id: case.role for case in nfs(f"checkpoint.dir={tmp_path}").cases}
    assert (Role.JUDGED, False) == (roles["nfs-20pct.given_directory"], "nfs-20pct.slow_directory" in roles)


def test_jobs_whose_saves_are_so_many_seconds_apart_are_planned_to_take_them(tmp_path: Path):
    plan = nfs_plan(f"checkpoint.dir={tmp_path}")
    start_s = read_workloads()["checkpointed"].expected["cpu"].start_s
    assert 2 * (start_s + 25) == next(c.expected_round_s for c in plan.contrasts if c.id == "nfs-20pct.given_directory")


def test_without_a_given_folder_a_slow_one_is_made():
    ids = [case.id for case in nfs().cases]
    assert (True, False) == ("nfs-20pct.slow_directory" in ids, "nfs-20pct.given_directory" in ids)
