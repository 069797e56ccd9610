"""Telemetry of a bundle: lines that outlive a kill, one table afterwards, and nothing in it that JSON or a stranger should not see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import BundleError
from harness.store import Bundle
from harness.store import telemetry as module
from tests.helpers import make_manifest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Sample:
    """What a reader gives, as far as the store knows it."""

    device: str
    t_ns: int
    name: str
    value: float | None
    reason: str | None = None


SAMPLES = [
    Sample("GPU-1", 10, "power_w", 412.345),
    Sample("GPU-1", 10, "energy_j", None, "not supported"),
    Sample("host", 12, "cpu_share", 0.25),
    Sample("GPU-1", 20, "power_w", 400.0),
]
ROWS = [
    ("c/0.0", "GPU-1", 10, "power_w", 412.345, None),
    ("c/0.0", "GPU-1", 10, "energy_j", None, "not supported"),
    ("c/0.0", "host", 12, "cpu_share", 0.25, None),
    ("c/0.0", "GPU-1", 20, "power_w", 400.0, None),
]


def make_bundle(tmp_path: Path, *rounds: str) -> Bundle:
    bundle = Bundle.create(tmp_path, make_manifest())
    for name in rounds:
        bundle.append_telemetry(name, SAMPLES)
    return bundle


def reopened(bundle: Bundle) -> Bundle:
    return Bundle.open(bundle.path, bundle.path.parent)


def rows(bundle: Bundle) -> list[tuple]:
    """The table's rows, with None for null."""
    frame = bundle.telemetry().astype(object)
    return [tuple(None if pd.isna(value) else value for value in row) for row in frame.itertuples(index=False)]


def lines(bundle: Bundle) -> Path:
    return bundle.path / "telemetry.jsonl"


def test_a_bundle_without_telemetry_has_an_empty_table(tmp_path):
    frame = make_bundle(tmp_path).telemetry()
    assert (["round", "device", "t_ns", "name", "value", "reason"], 0) == (list(frame.columns), len(frame))


def test_samples_are_read_back_while_the_run_goes_on(tmp_path):
    assert ROWS == rows(reopened(make_bundle(tmp_path, "c/0.0")))


def test_samples_are_the_same_once_they_are_packed(tmp_path):
    bundle = make_bundle(tmp_path, "c/0.0")
    bundle.pack_telemetry()
    assert (False, ROWS) == (lines(bundle).exists(), rows(reopened(bundle)))


def test_columns_have_the_same_types_packed_unpacked_and_empty(tmp_path):
    bundle = make_bundle(tmp_path)
    empty = bundle.telemetry().dtypes.astype(str).to_dict()
    bundle.append_telemetry("c/0.0", SAMPLES)
    unpacked = bundle.telemetry().dtypes.astype(str).to_dict()
    bundle.pack_telemetry()
    assert [empty, empty] == [unpacked, bundle.telemetry().dtypes.astype(str).to_dict()]
    assert ("category", "int64", "float64") == (empty["name"], empty["t_ns"], empty["value"])


def test_a_resumed_run_adds_to_what_is_packed(tmp_path):
    bundle = make_bundle(tmp_path, "c/0.0")
    bundle.pack_telemetry()
    again = reopened(bundle)
    again.append_telemetry("c/1.0", SAMPLES[:1])
    unpacked = rows(again)
    again.pack_telemetry()
    assert [*ROWS, ("c/1.0", *ROWS[0][1:])] == unpacked == rows(again)


def test_packing_with_nothing_to_pack_changes_nothing(tmp_path):
    bundle = make_bundle(tmp_path, "c/0.0")
    bundle.pack_telemetry()
    before = (bundle.path / "telemetry.parquet").read_bytes()
    bundle.pack_telemetry()
    assert (before, []) == ((bundle.path / "telemetry.parquet").read_bytes(), bundle.notes)


def test_a_crash_after_packing_and_before_the_lines_are_gone_doubles_nothing(tmp_path):
    bundle = make_bundle(tmp_path, "c/0.0")
    kept = lines(bundle).read_bytes()
    bundle.pack_telemetry()
    lines(bundle).write_bytes(kept)
    assert ROWS == rows(bundle)
    bundle.pack_telemetry()
    assert (False, ROWS) == (lines(bundle).exists(), rows(bundle))


def test_a_crash_while_packing_leaves_the_lines_and_no_rest(tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path, "c/0.0")

    def crash(folder: Path, notes: list[str]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_chunks", crash)
        with pytest.raises(KeyboardInterrupt):
            bundle.pack_telemetry()
    (bundle.path / ".telemetry.parquet.0123abcd").write_bytes(b"of a process that was killed")
    bundle.pack_telemetry()
    assert ROWS == rows(bundle)
    assert ["telemetry.parquet"] == [path.name for path in bundle.path.iterdir() if "telemetry" in path.name]


def test_many_samples_are_packed_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", 3)
    bundle = make_bundle(tmp_path, "c/0.0", "c/1.0", "c/2.0")
    bundle.pack_telemetry()
    assert [*ROWS, *(("c/1.0", *row[1:]) for row in ROWS), *(("c/2.0", *row[1:]) for row in ROWS)] == rows(bundle)
    assert pq.ParquetFile(bundle.path / "telemetry.parquet").num_row_groups > 1


KILLED = """
import os, sys
from pathlib import Path
from harness.store import Bundle
from tests.store.test_telemetry import SAMPLES
bundle = Bundle.open(sys.argv[1], Path(sys.argv[2]))
bundle.append_telemetry("c/0.0", SAMPLES)
os.write(bundle._telemetry._descriptor, b'{"round":"c/0.0","device":"host","t_ns":99,"val')
print("written", flush=True)
sys.stdin.read()
"""


def test_a_kill_loses_no_line_that_was_written_and_no_run_after_it(tmp_path):
    bundle = make_bundle(tmp_path)
    command = [sys.executable, "-c", KILLED, str(bundle.path), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert "written\n" == child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait(60)
    again = reopened(bundle)
    assert ROWS == rows(again)
    assert [f"{bundle.path.name}/telemetry.jsonl: line 5 is torn or damaged and left out"] == again.notes
    again.append_telemetry("c/1.0", SAMPLES[:1])
    again.pack_telemetry()
    assert [*ROWS, ("c/1.0", *ROWS[0][1:])] == rows(again)


def test_a_file_whose_first_line_was_torn_is_packed_nevertheless(tmp_path):
    bundle = make_bundle(tmp_path)
    lines(bundle).write_text('{"id":"01')
    bundle.append_telemetry("c/0.0", SAMPLES)
    bundle.pack_telemetry()
    assert ROWS == rows(bundle)


@pytest.mark.parametrize(
    "damage",
    [
        '{"round":"c/0.0","device":"host","t_ns":1}',
        '{"round":"c/0.0","device":"host","t_ns":1,"values":[]}',
        '{"round":"c/0.0","device":"host","t_ns":1,"values":{"x":"nan"}}',
        '{"round":"c/0.0","device":"host","t_ns":1,"values":{"x":NaN}}',
        '{"round":"c/0.0","device":"host","t_ns":1,"values":{"x":true}}',
        '{"round":"c/0.0","device":"host","t_ns":1e30,"values":{"x":1}}',
        '{"round":"c/0.0","device":"host","t_ns":99999999999999999999,"values":{"x":1}}',
        '{"round":1,"device":"host","t_ns":1,"values":{"x":1}}',
        '{"round":"c/0.0","device":"host","t_ns":1,"values":{"x":null},"reasons":"none"}',
        "[]",
        "[" * 100_000,
        "\\xff",
    ],
)
def test_a_damaged_line_is_left_out_and_named(tmp_path, damage: str):
    bundle = make_bundle(tmp_path, "c/0.0")
    with lines(bundle).open("a") as file:
        file.write(damage + "\n")
    bundle.append_telemetry("c/1.0", SAMPLES[:1])
    assert [*ROWS, ("c/1.0", *ROWS[0][1:])] == rows(bundle)
    assert [f"{bundle.path.name}/telemetry.jsonl: line 5 is torn or damaged and left out"] == bundle.notes


def test_a_number_that_is_not_finite_is_refused_and_leaves_no_trace(tmp_path):
    bundle = make_bundle(tmp_path, "c/0.0")
    with pytest.raises(BundleError, match="power_w is nan"):
        bundle.append_telemetry("c/1.0", [SAMPLES[0], Sample("GPU-1", 11, "power_w", float("nan"))])
    assert ROWS == rows(bundle)


def test_a_disk_that_refuses_leaves_no_half_line(tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path, "c/0.0")
    write = os.write

    def half(descriptor: int, data: memoryview) -> int:
        monkeypatch.setattr(os, "write", refuse)
        return write(descriptor, data[: len(data) // 2])

    def refuse(descriptor: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(BundleError, match=r"of round c/1\.0 were not written: No space left on device"):
        bundle.append_telemetry("c/1.0", SAMPLES)
    monkeypatch.setattr(os, "write", write)
    bundle.append_telemetry("c/2.0", SAMPLES[:1])
    assert [*ROWS, ("c/2.0", *ROWS[0][1:])] == rows(bundle)
    assert [] == bundle.notes


def test_a_reason_names_no_path_of_this_machine(tmp_path):
    bundle = make_bundle(tmp_path)
    bundle.append_telemetry("c/0.0", [Sample("host", 1, "x", None, f"cannot read {tmp_path}/secret/energy")])
    bundle.pack_telemetry()
    assert str(tmp_path) not in rows(bundle)[0][5]


def test_a_line_holds_what_one_device_has_at_one_moment(tmp_path):
    told = [json.loads(line) for line in lines(make_bundle(tmp_path, "c/0.0")).read_text().splitlines()]
    assert [
        {"round": "c/0.0", "device": "GPU-1", "t_ns": 10, "values": {"power_w": 412.345, "energy_j": None}, "reasons": {"energy_j": "not supported"}},
        {"round": "c/0.0", "device": "host", "t_ns": 12, "values": {"cpu_share": 0.25}},
        {"round": "c/0.0", "device": "GPU-1", "t_ns": 20, "values": {"power_w": 400}},
    ] == told[1:]


# ---------------------------------------------------------------- files of a stranger


def write_table(bundle: Bundle, table: pa.Table) -> None:
    pq.write_table(table, bundle.path / "telemetry.parquet")


def test_a_table_with_other_columns_is_refused(tmp_path):
    bundle = make_bundle(tmp_path)
    write_table(bundle, pa.table({"round": ["c/0.0"], "secret": [1]}))
    with pytest.raises(BundleError, match="telemetry.parquet has other columns than round, device"):
        bundle.telemetry()


def test_a_file_that_is_no_table_is_refused_and_the_lines_stay(tmp_path):
    bundle = make_bundle(tmp_path, "c/0.0")
    (bundle.path / "telemetry.parquet").write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(BundleError, match=r"telemetry\.parquet cannot be read"):
        bundle.telemetry()
    bundle.pack_telemetry()
    assert lines(bundle).exists()
    assert "telemetry.parquet cannot be read" in bundle.notes[0]


def test_a_table_of_too_many_rows_is_refused(tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path, "c/0.0")
    bundle.pack_telemetry()
    monkeypatch.setattr(module, "ROWS_LIMIT", 3)
    with pytest.raises(BundleError, match="claims 4 rows, more than the 3"):
        bundle.telemetry()


@pytest.mark.parametrize("name", ["telemetry.jsonl", "telemetry.parquet"])
def test_a_link_is_not_followed(tmp_path, name: str):
    bundle = make_bundle(tmp_path)
    (tmp_path / "elsewhere").write_text("{}")
    (bundle.path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="a link is refused"):
        bundle.telemetry()


def test_lines_are_not_written_through_a_link(tmp_path):
    bundle = make_bundle(tmp_path)
    lines(bundle).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match=r"telemetry\.jsonl cannot be written"):
        bundle.append_telemetry("c/0.0", SAMPLES)
    assert not (tmp_path / "elsewhere").exists()
