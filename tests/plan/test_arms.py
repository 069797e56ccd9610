"""Sets of arms that several claims share."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.config.keys import CONF
from harness.errors import ConfigError
from harness.plan.specs import load_claims, read_yaml

CLAIM = {"id": "some", "order": 1, "group": "g", "source": "S", "statement": "s"}


def claims_with(folder: Path, arms: object) -> list[dict[str, dict[str, object]]]:
    (folder / "claims").mkdir()
    (folder / "arms.yaml").write_text("pair:\n  one: {input: tfdata}\n  two: {input: tfrecord, sizes: {decode: false}}\n")
    case = {"id": "c", "title": "t", "form": "ratio", "arms": arms}
    (folder / "claims" / "some.yaml").write_text(yaml.safe_dump({**CLAIM, "cases": [case]}))
    return [case.arms for claim in load_claims(folder / "claims") for case in claim.cases]


def test_a_case_that_names_a_set_of_arms_has_them(tmp_path: Path):
    assert [{"one": {"input": "tfdata"}, "two": {"input": "tfrecord", "sizes": {"decode": False}}}] == claims_with(tmp_path, "pair")


def test_a_case_may_write_its_arms_out(tmp_path: Path):
    assert [{"mine": {}}] == claims_with(tmp_path, {"mine": {}})


def test_an_unknown_set_is_refused_with_those_that_there_are(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"conf/claims/some.yaml, case c: there is no set of arms 'pear'; known: pair \(conf/arms.yaml\)"):
        claims_with(tmp_path, "pear")


def test_every_set_serves_a_case():
    texts = [path.read_text() for path in (CONF / "claims").glob("*.yaml")]
    assert [] == [name for name in read_yaml(CONF / "arms.yaml") if not any(f"arms: {name}\n" in text for text in texts)]


def test_cases_that_share_a_set_share_their_rounds():
    named = [(claim.id, case.id, case) for claim in load_claims(CONF / "claims") for case in claim.cases if case.workload == "pipeline" and len(case.arms) > 2]
    assert {("solo", "blocks")} == {(case.arrangement.value, case.driver.value) for _, _, case in named}
    assert 1 == len({str(sorted(case.arms)) for _, _, case in named})
