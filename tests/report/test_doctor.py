"""What the doctor found stands in the report: worst first, with its words, whatever a hostile hand put into doctor.json, and without a fuss where there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness.console import clean
from harness.doctor.checks import diagnose
from harness.doctor.show import as_json
from harness.model import DoctorFinding, Examination, Word
from harness.report import make_tables, render
from harness.report.__main__ import main
from harness.report.cards import Table
from harness.report.content import make_content
from harness.report.doctor import MOST_FINDINGS, MOST_LETTERS, MOST_PAIRS, doctor_section
from harness.report.index import build_index
from harness.report.markdown import to_markdown
from harness.report.page import to_html
from harness.report.sections import Section
from harness.store import Bundle
from tests.doctor.builders import make_card, make_cards, make_facts, make_framework, make_host
from tests.report.builders import Builder, make_cell

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> | `x` \x1b[31m \u202e"
NARROW = DoctorFinding(
    "GPU",
    "pcie width",
    "narrow",
    "warning",
    "PCIe link of 8 lanes of 16",
    "copies are slower",
    "reseat the card",
    "GPU 0",
    {"width": 8, "width_max": 16},
)
PROHIBITED = DoctorFinding(
    "GPU", "compute mode", "prohibited", "error", "compute mode prohibited", "no process may compute", "nvidia-smi -c DEFAULT", "GPU 1"
)
NO_TURBO = DoctorFinding("processors", "turbo", "unknown", "info", "not known: turbo; the kernel tells nothing")
CORES = DoctorFinding("processors", "cores", "ok", "ok", "4 cores")
TENSORFLOW = DoctorFinding("TensorFlow", "tensorflow", "ok", "ok", "TensorFlow 2.21.0")


def compared(**numbers: Any) -> DoctorFinding:
    return DoctorFinding("GPU", "nvidia-smi", "ok", "ok", "NVML and nvidia-smi say the same of memory", subject="GPU 0", numbers=numbers)


def section_of(*findings: DoctorFinding) -> Section:
    section = doctor_section(Examination(1, findings))
    assert section is not None
    return section


def table_of(*findings: DoctorFinding) -> Table:
    table = section_of(*findings).table
    assert table is not None
    return table


def beside_of(*findings: DoctorFinding) -> Table:
    (table,) = section_of(*findings).more
    return table


def make_run() -> Builder:
    builder = Builder()
    builder.ratio_claim("graph-speedup", make_cell(execution="eager"), make_cell(), 2.4, Word.CONFIRMED)
    return builder


# ---------------------------------------------------------------- findings


def test_a_run_without_the_doctor_has_no_section_of_it():
    assert (None, None) == (doctor_section(None), doctor_section(Examination(1, ())))


def test_findings_stand_worst_first_with_what_was_found_why_it_matters_and_what_to_do():
    assert (
        ("GPU 1 compute mode", "✗ error", "compute mode prohibited", "no process may compute", "nvidia-smi -c DEFAULT"),
        ("GPU 0 pcie width", "! warning", "PCIe link of 8 lanes of 16", "copies are slower", "reseat the card"),
        ("processors turbo", "• info", "not known: turbo; the kernel tells nothing", "", ""),
    ) == table_of(NO_TURBO, CORES, NARROW, PROHIBITED).rows


def test_what_is_well_is_named_in_one_line():
    assert "Well: processors cores, TensorFlow." == table_of(NO_TURBO, CORES, TENSORFLOW).note


@pytest.mark.parametrize(
    ("expected", "findings"),
    [
        ("It is not fit to be measured: 1 error, 1 warning, 1 for information, 2 well.", (NARROW, PROHIBITED, NO_TURBO, CORES, TENSORFLOW)),
        ("It is fit to be measured: 2 warnings.", (NARROW, NARROW)),
        ("It is fit to be measured: 1 well.", (CORES,)),
    ],
)
def test_one_sentence_says_whether_the_machine_is_fit(expected: str, findings: tuple[DoctorFinding, ...]):
    assert section_of(*findings).says.endswith(expected)


def test_where_all_is_well_there_is_no_table():
    assert (None, ()) == (section_of(CORES).table, section_of(CORES).more)


def test_a_level_that_is_not_known_is_shown_as_it_is_behind_the_others():
    odd = DoctorFinding("memory", "swap", "new", "dire", "something new")
    table = table_of(odd, CORES, NO_TURBO)
    assert [("processors turbo", "• info"), ("memory swap", "• dire")] == [row[:2] for row in table.rows]


# ---------------------------------------------------------------- NVML beside nvidia-smi


def test_what_nvml_and_nvidia_smi_told_stands_side_by_side():
    told = {"memory_mib_nvml": 1024.0, "memory_mib_nvidia_smi": 1030, "power_w_nvml": 412.345, "power_w_nvidia_smi": 412.35}
    table = beside_of(compared(**told, temperature_c_nvml=61, temperature_c_nvidia_smi=60.0))
    assert (
        ("GPU 0", "memory in use", "1,024 MiB", "1,030 MiB"),
        ("GPU 0", "power", "412 W", "412 W"),
        ("GPU 0", "temperature", "61 °C", "60 °C"),
    ) == table.rows


def test_a_number_that_only_one_of_the_two_told_is_no_comparison():
    assert () == section_of(compared(memory_mib_nvml=1024.0), NARROW).more


@pytest.mark.parametrize("value", [None, True, "1024", 1e300, -1e300, 10**400])
def test_what_no_card_tells_is_not_available(value: Any):
    assert ("GPU 0", "memory in use", "n/a", "1,024 MiB") == beside_of(compared(memory_mib_nvml=value, memory_mib_nvidia_smi=1024)).rows[0]


def test_a_quantity_of_a_later_version_has_its_own_name():
    assert ("GPU 0", "fan share", "0.300", "0.310") == beside_of(compared(fan_share_nvml=0.3, fan_share_nvidia_smi=0.31)).rows[0]


# ---------------------------------------------------------------- what a hostile hand can do


def test_no_text_of_it_acts_on_the_page_or_in_markdown():
    odd = DoctorFinding(
        HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, {f"{HOSTILE}_nvml": 1, f"{HOSTILE}_nvidia_smi": HOSTILE}
    )
    manifest, records, verdicts, _ = make_run().run()
    index = build_index(manifest, records, verdicts)
    content = make_content(index, make_tables(index, None, Examination(1, (odd, PROHIBITED))), [])
    for text in (to_html(content, {}), to_markdown(content, {})):
        assert "&lt;script&gt;" in text
        assert [] == [word for word in ("<script", "<img", "\x1b", "\u202e") if word in text]


def test_what_is_shown_is_bounded():
    numbers = {f"{i}_{side}": 1 for i in range(2) for side in ("nvml", "nvidia_smi")}
    long = DoctorFinding("a" * 9999, "b", "c", "info", "word " * 9999, "w" * 9999, "", None, numbers)
    section = section_of(*[long] * 500)
    assert section.table is not None
    assert (MOST_FINDINGS, MOST_PAIRS) == (len(section.table.rows), len(section.more[0].rows))
    assert MOST_LETTERS == max(len(cell) for row in (*section.table.rows, *section.more[0].rows) for cell in row)
    assert section.table.note.endswith("440 more are in doctor.json.")
    assert section.more[0].note.endswith("960 more are in doctor.json.")


# ---------------------------------------------------------------- the file


def bundle_of(tmp_path: Path, text: str | None = None) -> Bundle:
    manifest, records, verdicts, _ = make_run().run()
    bundle = Bundle.create(tmp_path, manifest)
    for record in records:
        bundle.append(record)
    bundle.write_verdicts(verdicts)
    if text is not None:
        (bundle.path / "doctor.json").write_text(text)
    return bundle


def one(**changes: Any) -> str:
    finding = {"area": "a", "check": "b", "subject": None, "code": "c", "level": "info", "found": "d", "why": "", "advice": "", "numbers": {}}
    return json.dumps({"schema": 1, "machine": "m", "fit": True, "worst": "info", "findings": [{**finding, **changes}]})


def test_what_the_doctor_writes_is_read_back(tmp_path):
    rows = diagnose(
        make_facts(host=make_host(turbo=True), framework=make_framework(), cards=make_cards(make_card(), make_card(index=1, pcie_width=8)))
    )
    found = bundle_of(tmp_path, as_json("machine", rows)).examination()
    assert found is not None
    told = [(one.area, one.check, one.subject or "", one.code, one.level, one.found, one.why, one.advice, one.numbers) for one in found.findings]
    asked = [
        (r.area, r.check, r.subject, f.code, f.level.value, *map(clean, (f.found, f.why, f.advice)), f.numbers) for r in rows for f in [r.finding]
    ]
    assert asked == told


def test_the_report_of_it_has_findings_and_both_programs_figures(tmp_path):
    rows = diagnose(make_facts(cards=make_cards(make_card(pcie_width=8))))
    section = doctor_section(bundle_of(tmp_path, as_json("machine", rows)).examination())
    assert section is not None
    assert section.table is not None
    assert ("GPU 0 pcie width", "! warning", "PCIe link of 8 lanes of 16") == section.table.rows[0][:3]
    assert ("GPU 0", "SM clock", "1,980 MHz", "1,980 MHz") in section.more[0].rows


def test_a_bundle_without_the_file_is_no_matter(tmp_path):
    bundle = bundle_of(tmp_path)
    assert (None, []) == (bundle.examination(), bundle.notes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "doctor.json cannot be read"),
        ("[]", "doctor.json cannot be read"),
        ('{"schema": 1}', "findings"),
        (one(found=7), "$.findings[0].found"),
        (one(numbers={"a": [1]}), "$.findings[0].numbers"),
        (one().replace('"schema": 1', '"schema": 2'), "doctor.json has schema 2, and this version reads 1"),
        ("\x00" * 9, "doctor.json cannot be read"),
        ("[" * 100_000, "doctor.json cannot be read"),
        (one(found="x" * 2**20), "doctor.json has 1.0 MiB, more than the 1 MiB"),
    ],
    ids=["empty", "list", "no findings", "wrong type", "nested number", "later schema", "zeros", "deep", "large"],
)
def test_a_damaged_file_costs_the_section_only_and_is_told(tmp_path, text: str, why: str):
    bundle = bundle_of(tmp_path, text)
    assert bundle.examination() is None
    (note,) = bundle.notes
    assert why in note
    assert note.endswith("what the doctor found is not shown")


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("manifest.json"), lambda path: path.symlink_to("nowhere"), os.mkfifo, os.mkdir])
def test_something_else_of_that_name_is_not_followed(tmp_path, make):
    bundle = bundle_of(tmp_path)
    make(bundle.path / "doctor.json")
    assert (None, 1) == (bundle.examination(), len(bundle.notes))


def test_the_command_shows_what_the_doctor_found(tmp_path):
    bundle = bundle_of(tmp_path, one(found="a fan stands still"))
    assert 0 == main([bundle.path.name, f"results_dir={tmp_path}"])
    for name in ("report.html", "report.md"):
        assert "a fan stands still" in (bundle.path / name).read_text()


def test_the_command_says_that_a_damaged_file_was_not_shown(tmp_path):
    bundle = bundle_of(tmp_path, "{")
    assert 0 == main([bundle.path.name, f"results_dir={tmp_path}"])
    assert "what the doctor found is not shown" in (bundle.path / "report.html").read_text()


def test_page_and_markdown_have_the_second_table_under_its_caption():
    told = compared(memory_mib_nvml=1024, memory_mib_nvidia_smi=1024)
    files = render(*make_run().run(), None, Examination(1, (PROHIBITED, told)))
    assert "<h3>NVML, as this suite reads it, beside nvidia-smi</h3>" in files["report.html"].decode()
    assert "**NVML, as this suite reads it, beside nvidia-smi**\n\n| card | quantity | NVML | nvidia-smi |" in files["report.md"].decode()
