"""Versions of the bundle's format: older ones are led up step by step, or named."""

from __future__ import annotations

import json

import pytest

from harness.errors import BundleError
from harness.store import Bundle, bundle, schema
from harness.store.schema import Migration, steps_from
from tests.helpers import make_manifest, make_record, make_verdicts


def older_bundle(tmp_path, monkeypatch) -> Bundle:
    """A bundle of the format before today's, in which a round's cost was `cost` and the manifest's machine was `host`."""
    made = Bundle.create(tmp_path, make_manifest())
    made.append(make_record())
    path = made.path / "records.jsonl"
    path.write_text(path.read_text().replace('"cost_s"', '"cost"'))
    path = made.path / "manifest.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "host": data.pop("machine"), "schema_version": 1}))
    step = Migration(
        manifest=lambda data: {**data, "machine": data["host"]},
        record=lambda data: {**data, "cost_s": data["cost"]},
    )
    monkeypatch.setattr(schema.steps_from, "__defaults__", ({1: step}, 2))
    monkeypatch.setattr(bundle, "SCHEMA_VERSION", 2)
    return Bundle.open(made.path, tmp_path)


def test_an_older_bundle_is_read_as_todays(tmp_path, monkeypatch):
    older = older_bundle(tmp_path, monkeypatch)
    assert ([make_record()], make_manifest().machine, 2) == (older.records(), older.manifest.machine, older.manifest.schema_version)


def test_an_older_bundle_can_be_judged_again(tmp_path, monkeypatch):
    older = older_bundle(tmp_path, monkeypatch)
    older.write_verdicts(make_verdicts())
    assert make_verdicts() == older.verdicts()


def test_an_older_bundle_is_not_added_to(tmp_path, monkeypatch):
    older = older_bundle(tmp_path, monkeypatch)
    before = (older.path / "records.jsonl").read_bytes()
    with pytest.raises(BundleError, match="older schema"):
        older.append(make_record(1))
    assert before == (older.path / "records.jsonl").read_bytes()


def test_steps_are_taken_in_order():
    first, second = Migration(), Migration()
    assert (first, second) == steps_from(1, "manifest.json", {2: second, 1: first}, 3)


def test_a_version_without_a_step_is_named():
    with pytest.raises(BundleError, match="no step from version 2 is known"):
        steps_from(1, "manifest.json", {1: Migration()}, 3)


def test_every_version_has_its_row_in_the_history():
    rows = [line for line in schema.__doc__.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert list(range(1, schema.SCHEMA_VERSION + 1)) == [int(row.split("|")[1]) for row in rows]
