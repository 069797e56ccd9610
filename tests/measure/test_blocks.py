"""How long a block is, and how quads are compared: the arithmetic without processes."""

from __future__ import annotations

import math

import pytest

from harness.measure.blocks import Block, QuadRules, log_ratios, steps_for
from harness.measure.crew import Crew, file_stem, scalar, without_places
from harness.measure.load import Used
from harness.measure.process import exit_reason
from tests.measure.builders import ROOT, make_trial


def make_block(crew: Crew, work: float, seconds: float) -> Block:
    return Block(crew, steps=1, ghost=0, seconds=seconds, work=work, load=Used(seconds, 0.0, 0.0, 0.0, {}), idle_s=0.0)


@pytest.mark.parametrize(("step_s", "steps"), [(0.01, 50), (0.3, 2), (0.9, 1), (5.1, 1), (70.0, 1), (None, 1), (0.0, 1)])
def test_a_block_of_half_a_second_has_as_many_steps_as_fit(step_s: float | None, steps: int):
    assert steps == steps_for(step_s, 0.5, QuadRules())


def test_a_long_block_of_slow_steps_has_one_step_nevertheless():
    assert 1 == steps_for(5.1, 60.0, QuadRules())


def test_a_ratio_is_all_work_by_all_time_and_no_mean_of_rates():
    first, second = Crew(make_trial("a"), []), Crew(make_trial("b"), [])
    blocks = [make_block(first, 320.0, 1.09), *[make_block(second, 32.0, 0.01)] * 9, make_block(second, 32.0, 1.0)]
    assert [pytest.approx(0.0)] == log_ratios(blocks, [first, second])


def test_a_single_arm_is_compared_by_its_own_rate():
    only = Crew(make_trial("a"), [])
    assert [pytest.approx(math.log(8.0))] == log_ratios([make_block(only, 4.0, 0.5)], [only])


def test_no_ratio_is_made_of_no_work():
    only = Crew(make_trial("a"), [])
    assert [] == log_ratios([make_block(only, 0.0, 0.5)], [only])


def test_only_a_sigkill_may_be_for_want_of_memory():
    assert ("possibly out of memory" in exit_reason(-9, "x").text, "memory" in exit_reason(-11, "x").text) == (True, False)


def test_names_of_files_hold_no_folder():
    assert "duet-0.1-a-b" == file_stem("duet/0.1 a/b")


def test_a_fact_that_is_no_plain_value_becomes_text():
    assert ['["a", 1]', None, True] == [scalar(["a", 1]), scalar(math.nan), scalar(True)]


def test_texts_name_files_from_the_project_s_root():
    assert "no file tests/x.py" == without_places(f"no file {ROOT}/tests/x.py", [ROOT])
