"""Rounds as tables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.model import Flag, Quad
from harness.store import blocks_frame, rounds_frame
from tests.helpers import make_failure, make_outcome_reading, make_quads, make_reading, make_record


def test_a_block_becomes_one_row_with_its_rate():
    record = make_record(2, readings=(make_reading(64.0, seconds=0.5, quad=1, turn=2),), quads=make_quads(1))
    row = blocks_frame([record]).iloc[0].to_dict()
    expected = {
        "contrast": "contrast-1", "round": "contrast-1/2.0", "index": 2, "trial": "treatment", "quad": 1, "turn": 2, "accepted": True,
        "work": 64.0, "steps": 8, "seconds": 0.5, "rate": 128.0, "foreign_cores": 0.01, "part": "main", "state": "completed",
    }  # fmt: skip
    assert expected == row


def test_the_warm_up_quad_is_there_but_not_accepted():
    frame = blocks_frame([make_record()])
    assert {0: False, 1: True, 2: True, 3: True} == frame.groupby("quad")["accepted"].first().to_dict()


def test_blocks_of_the_absence_part_take_the_quad_of_that_part():
    quads = (Quad(1, "AA", accepted=True), Quad(1, "AA", accepted=False, part="absence"))
    record = make_record(readings=(make_reading(), make_reading(part="absence")), quads=quads)
    assert [True, False] == blocks_frame([record])["accepted"].tolist()


def test_a_block_of_a_quad_that_is_not_listed_is_not_accepted():
    assert [False] == blocks_frame([make_record(readings=(make_reading(quad=9),))])["accepted"].tolist()


def test_a_round_without_quads_has_the_load_beside_its_jobs():
    loads = [make_outcome_reading("foreign_cores", value, unit="cores") for value in (0.1, None, 0.3)]
    record = make_record(readings=tuple(loads), quads=())
    assert 0.2 == pytest.approx(rounds_frame([record])["foreign_cores"].item())


def test_a_reading_that_is_no_block_is_left_out():
    assert 0 == len(blocks_frame([make_record(readings=(make_outcome_reading("largest_batch", 512.0),))]))


def test_a_block_without_a_value_has_no_rate():
    assert blocks_frame([make_record(readings=(make_reading(None, reason="the worker died"),))])["rate"].isna().all()


def test_tables_of_nothing_have_their_columns():
    assert ("rate" in blocks_frame([]).columns, "cost_s" in rounds_frame([]).columns) == (True, True)


def test_a_round_becomes_one_row_with_its_reason():
    record = make_record(
        outcome=make_failure("killed by signal 9"), quads=make_quads(2, foreign_cores=0.2), flags=(Flag("noisy", "much foreign load"),)
    )
    row = rounds_frame([record]).iloc[0]
    assert ("failed", "killed by signal 9", 3, 2, 0.2, "noisy") == tuple(
        row[["state", "reason", "quads", "accepted_quads", "foreign_cores", "flags"]]
    )


def test_importing_the_store_does_not_import_pandas_or_numpy():
    code = "import sys, harness.store; print(sorted({'pandas', 'numpy', 'pyarrow'} & set(sys.modules)))"
    assert "[]" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
