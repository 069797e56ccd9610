"""The validity box by flags: trouble is amber, what is only worth knowing is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model import Flag, Word
from harness.report.index import build_index
from harness.report.validity import Check, validity
from tests.report.builders import Builder, make_cell


def flags_check(*codes: str) -> Check:
    """The line about flags of a run whose first round raised these."""
    builder = Builder()
    builder.ratio_claim("graph-speedup", make_cell(execution="eager"), make_cell(), 2.4, Word.CONFIRMED)
    builder.records[0] = replace(builder.records[0], flags=tuple(Flag(code, f"said of {code}") for code in codes))
    manifest, records, verdicts, notes = builder.run()
    return next(check for check in validity(build_index(manifest, records, verdicts), notes) if check.title == "Flags")


def test_a_card_at_its_power_limit_is_information():
    check = flags_check("power_cap")
    assert ("good", "1 flag raised, for information only.", ("power_cap (1): said of power_cap",)) == (check.state, check.text, check.lines)


@pytest.mark.parametrize(
    "code",
    ["thermal_throttling", "power_brake", "hardware_slowdown", "low_clocks", "foreign_gpu_process", "gpu_lost", "swap_used", "telemetry_incomplete"],
)
def test_trouble_is_amber_also_beside_information(code: str):
    check = flags_check("power_cap", code)
    assert ("warn", 2) == (check.state, len(check.lines))


def test_without_flags_all_is_well():
    assert ("good", ()) == (flags_check().state, flags_check().lines)
