"""The versions that someone stated, held against the published tables; needs no TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lessons.version_matrix import build
from harness.doctor.versions import minimum_driver, tables
from harness.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
ARTICLE = {"tensorflow": "2.12", "cuda": "11.8", "cudnn": "8.6", "driver": "520"}


def outcome(**changes: str) -> dict[str, int]:
    return {value.name: value.value for value in build(**{**ARTICLE, **changes}).outcome()}


def test_the_article_is_right_on_cuda_and_cudnn_and_wrong_on_the_driver():
    assert {"cuda_holds": 1, "cudnn_holds": 1, "driver_holds": 0} == outcome()


@pytest.mark.parametrize("driver", ["450", "450.80", "450.80.02"])
def test_a_version_is_held_as_exactly_as_it_was_stated(driver):
    assert 1 == outcome(driver=driver)["driver_holds"]


@pytest.mark.parametrize("changes", [{"cuda": "11.7"}, {"cuda": "1"}, {"tensorflow": "2.15"}])
def test_another_cuda_than_the_tested_one_does_not_hold(changes):
    assert 0 == outcome(**changes)["cuda_holds"]


def test_what_the_tables_have_is_told_as_facts():
    facts = {"published_cuda": "11.8", "published_cudnn": "8.6", "published_driver": "450.80.02"}
    assert facts == build(**ARTICLE).facts()


def test_the_lesson_and_the_doctor_read_the_same_tables():
    for tensorflow, row in tables().tensorflow.items():
        stated = {"tensorflow": tensorflow, "cuda": row.cuda, "cudnn": row.cudnn, "driver": minimum_driver(row.cuda)}
        assert {1} == set(outcome(**stated).values()), tensorflow


def test_a_tensorflow_without_a_row_is_refused():
    with pytest.raises(ConfigError, match=r"tensorflow=1\.15 is not in the table"):
        build(**{**ARTICLE, "tensorflow": "1.15"})


def test_versions_that_were_not_stated_are_refused():
    with pytest.raises(ConfigError, match="cudnn is not given"):
        build(tensorflow="2.12", cuda="11.8", driver="520")


def test_the_lesson_imports_no_framework():
    code = "import sys, benchmarks.lessons.version_matrix; print(*{'tensorflow', 'keras'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ("", 0) == (done.stdout.strip(), done.returncode), done.stderr
