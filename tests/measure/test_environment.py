"""What a worker may see of the parent's environment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.measure.environment import dropped_names, worker_environment
from harness.model import Arrangement
from tests.measure.builders import make_process, make_round, make_trial, run

if TYPE_CHECKING:
    from pathlib import Path

SHELL = {"PATH": "/bin", "LC_ALL": "C", "TF_NUM_INTEROP_THREADS": "2", "CUDA_VISIBLE_DEVICES": "0,1", "AWS_SECRET": "s3cret", "LD_PRELOAD": "x.so"}


def test_only_allowed_names_are_kept():
    assert {"PATH", "LC_ALL", "TF_NUM_INTEROP_THREADS", "CUDA_VISIBLE_DEVICES"} == set(worker_environment(SHELL, {}, None))


def test_a_process_s_own_variables_are_laid_over_the_parent_s():
    assert {"PATH": "/usr/bin", "MY_OWN": "1"}.items() <= worker_environment(SHELL, {"PATH": "/usr/bin", "MY_OWN": "1"}, None).items()


def test_the_names_that_were_dropped_are_told_without_their_values():
    assert ("AWS_SECRET", "LD_PRELOAD") == dropped_names(SHELL)


def test_cards_are_given_by_uuid():
    assert "GPU-a,GPU-b" == worker_environment(SHELL, {}, ("GPU-a", "GPU-b"))["CUDA_VISIBLE_DEVICES"]


def test_no_card_is_said_in_a_way_that_cuda_understands():
    assert "-1" == worker_environment(SHELL, {}, ())["CUDA_VISIBLE_DEVICES"]


def test_a_real_worker_sees_neither_a_stray_variable_nor_the_channel_s_token(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("STRAY_SECRET", "s3cret")
    process = replace(make_process(target="build_environment"), env={"OMP_NUM_THREADS": "1", "OWN": "1"})
    round_ = make_round(replace(make_trial("a"), processes=(process,)), arrangement=Arrangement.SOLO, quads=1)
    names = set(run(round_, tmp_path, transport="socket").trials[0].used["names"].split())
    assert {"PATH", "OMP_NUM_THREADS", "OWN"} <= names
    assert set() == names & {"STRAY_SECRET", "SPEEDPROOF_CHANNEL_TOKEN"}
