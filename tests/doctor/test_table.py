"""The table of checks as a whole, and how its findings are shown."""

from __future__ import annotations

import io
import itertools
import json
import math

import pytest

from harness.doctor.checks import CARD_CHECKS, CHECKS, GPU_CHECKS, NO_GPU, Row, diagnose, overall
from harness.doctor.findings import Finding, Level, ok, worst
from harness.doctor.show import as_json, print_table, summary
from tests.doctor.builders import make_card, make_cards, make_facts, make_framework, make_host, on_cpu

FIELDS = {"area", "check", "subject", "code", "level", "found", "why", "advice", "numbers"}


def refuse(word: str):
    raise AssertionError(f"{word} is no JSON")


def strictly(text: str):
    return json.loads(text, parse_constant=refuse)


def printed(rows) -> str:
    stream = io.StringIO()
    print_table("xeon-2c", rows, stream)
    return stream.getvalue()


def test_each_check_has_a_name_of_its_own():
    names = [(check.area, check.name) for check in (*CHECKS, *GPU_CHECKS, NO_GPU)] + [("GPU", check.name) for check in CARD_CHECKS]
    assert len(names) == len(set(names))


def test_checks_of_one_area_stand_together():
    areas = [row.area for row in diagnose(make_facts())]
    assert len(set(areas)) == 1 + sum(a != b for a, b in itertools.pairwise(areas))


def test_a_machine_on_which_all_is_well_is_fit():
    assert (Level.INFO, "Fit to be measured") == (overall(diagnose(make_facts())), summary(diagnose(make_facts()))[:18])


def test_without_a_gpu_all_about_gpus_is_one_line_of_information():
    about = [row for row in diagnose(on_cpu()) if row.area == "GPU"]
    assert [("gpu", "none", Level.INFO)] == [(row.check, row.finding.code, row.finding.level) for row in about]


def test_each_card_is_judged_by_itself():
    rows = diagnose(make_facts(framework=make_framework(gpus=2), cards=make_cards(make_card(), make_card(index=1, persistence=False))))
    assert {"GPU 0": "ok", "GPU 1": "off"} == {row.subject: row.finding.code for row in rows if row.check == "persistence"}


def test_the_worst_level_counts():
    rows = diagnose(make_facts(host=make_host(memory_free_bytes=1, time_source="hpet")))
    assert (Level.ERROR, "Not fit") == (overall(rows), summary(rows)[:7])
    assert [Level.OK, Level.WARNING] == [worst([]), worst([Level.INFO, Level.WARNING, Level.OK])]


@pytest.mark.parametrize("facts", [make_facts(), on_cpu(), make_facts(host=make_host(memory_free_bytes=1))], ids=["gpu", "cpu", "error"])
def test_the_json_is_strict_and_says_of_each_finding_the_same(facts):
    rows = diagnose(facts)
    told = strictly(as_json("xeon-2c", rows))
    assert {"schema", "machine", "fit", "worst", "findings"} == set(told)
    assert [FIELDS] * len(rows) == [set(finding) for finding in told["findings"]]
    assert [(row.check, row.finding.level.value) for row in rows] == [(finding["check"], finding["level"]) for finding in told["findings"]]
    assert (overall(rows) is not Level.ERROR, overall(rows).value) == (told["fit"], told["worst"])


def test_a_number_that_json_has_no_word_for_is_null():
    row = Row("quiet", "noise", "", ok("noise", spread=math.inf, offset=math.nan, quads=3))
    assert {"spread": None, "offset": None, "quads": 3} == strictly(as_json("x", (row,)))["findings"][0]["numbers"]


def test_what_a_machine_says_cannot_steer_the_terminal_or_break_the_json():
    row = Row("GPU", "cards", "", ok("H200 \x1b[31m\ud800", name="\x1b]0;x"))
    assert "\x1b" not in printed((row,))
    assert "\\u001b" not in as_json("x", (row,))
    assert "\\ud800" not in as_json("x", (row,))


def test_the_table_says_why_it_matters_and_what_to_do():
    text = printed((Row("memory", "memory", "", Finding("little", Level.WARNING, "1 GiB free", "two arms want more", "end other programs")),))
    assert all(part in text for part in ("! warning", "1 GiB free", "Why: two arms want more.", "Do: end other programs."))


def test_the_table_says_no_more_than_was_found_where_there_is_no_more_to_say():
    text = printed((Row("memory", "swap", "", ok("no swap")),))
    assert ("no swap" in text, "Why:" in text, "Do:" in text) == (True, False, False)


def test_a_table_names_an_area_once():
    assert 1 == printed(diagnose(on_cpu())).count("processors")


def test_a_table_for_a_file_has_no_control_codes():
    assert "\x1b" not in printed(diagnose(make_facts()))
