"""The bundle: made exclusively, appended to, read back; what a crash or a hostile hand left behind is named."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import BundleError
from harness.model import ArmEnergy, CardPair, Gpu, Reason, RoundRecord
from harness.store import Bundle
from tests.helpers import make_estimate, make_machine, make_manifest, make_outcome_reading, make_plan, make_reading, make_record, make_verdicts


def make_bundle(tmp_path: Path, *records: RoundRecord) -> Bundle:
    bundle = Bundle.create(tmp_path, make_manifest())
    for record in records:
        bundle.append(record)
    return bundle


def reopened(bundle: Bundle) -> Bundle:
    return Bundle.open(bundle.path, bundle.path.parent)


def test_a_name_tells_time_machine_and_suffix(tmp_path):
    bundle = Bundle.create(tmp_path, make_manifest(machine=make_machine(slug="Xeon 8 (2 cores)")))
    stem, suffix = bundle.path.name.rsplit("-", 1)
    assert ("20260131T120000Z-xeon-8-2-cores", 6) == (stem, len(suffix))


def test_a_local_time_is_told_in_utc(tmp_path):
    assert Bundle.create(tmp_path, make_manifest(created_at="2026-01-31T12:00:00+02:00")).path.name.startswith("20260131T100000Z-")


def test_the_manifest_carries_the_folders_name(tmp_path):
    bundle = make_bundle(tmp_path)
    assert bundle.path.name == bundle.manifest.name == reopened(bundle).manifest.name


@pytest.mark.parametrize("told", [{}, {"default_sm_clock_mhz": 1095, "nvlinks": 18, "nvlink_bytes_per_s": 26562e6}])
@pytest.mark.parametrize("topology", [(), (CardPair("GPU-1", "GPU-2", "NODE", 18, True), CardPair("GPU-1", "GPU-3", None))])
def test_how_cards_hang_together_is_read_back(tmp_path, topology, told):
    machine = make_machine(gpus=(Gpu(0, "NVIDIA H200", "GPU-1", None, None, **told),), topology=topology)
    assert machine == reopened(Bundle.create(tmp_path, make_manifest(machine=machine))).manifest.machine


def test_parallel_starts_in_one_second_get_a_folder_each(tmp_path):
    imports = "from pathlib import Path; import sys; from harness.store import Bundle; from tests.helpers import make_manifest"
    code = f"{imports}; Bundle.create(Path(sys.argv[1]), make_manifest())"
    starts = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [0] * 4 == [start.wait(60) for start in starts]
    assert 4 == len(list(tmp_path.glob("*/manifest.json")))


def test_a_taken_name_is_not_written_over(tmp_path, monkeypatch):
    suffixes = iter(["aaaaaa", "aaaaaa", "bbbbbb"])
    monkeypatch.setattr("harness.store.bundle.secrets.token_hex", lambda n: next(suffixes))
    monkeypatch.setattr("harness.store.bundle.files.write_atomic", lambda path, data: path.write_bytes(data))
    names = [Bundle.create(tmp_path, make_manifest()).path.name[-6:] for _ in range(2)]
    assert ["aaaaaa", "bbbbbb"] == names


def test_a_results_folder_that_is_a_file_is_an_error_with_the_key(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(BundleError, match="results_dir="):
        Bundle.create(tmp_path / "results", make_manifest())


def test_what_is_loaded_equals_what_was_saved(tmp_path):
    records = [make_record(0), make_record(1, readings=(make_outcome_reading("largest_batch", None, reason="out of memory"),))]
    bundle = make_bundle(tmp_path, *records)
    bundle.write_verdicts(make_verdicts())
    again = reopened(bundle)
    assert (bundle.manifest, records, make_verdicts()) == (again.manifest, again.records(), again.verdicts())


def test_figures_of_energy_come_back_and_verdicts_from_before_them_have_none(tmp_path):
    null = ArmEnergy("contrast-1", "treatment", "cell-1", "power_w", "W", None, Reason("no_reading", "not supported"))
    known = ArmEnergy("contrast-1", "treatment", "cell-1", "work_per_j", "samples/J", make_estimate(0.02, 0.019, None))
    bundle = make_bundle(tmp_path)
    bundle.write_verdicts(make_verdicts(energy=(known, null)))
    assert (known, null) == reopened(bundle).verdicts().energy
    path = bundle.path / "verdicts.json"
    data = json.loads(path.read_text())
    del data["energy"]
    path.write_text(json.dumps(data))
    assert make_verdicts() == reopened(bundle).verdicts()


def test_saving_what_was_loaded_writes_the_same_bytes(tmp_path):
    bundle = make_bundle(tmp_path, make_record())
    bundle.write_verdicts(make_verdicts())
    first = {path.name: path.read_bytes() for path in bundle.path.glob("*.json*")}
    again = reopened(bundle)
    copy = make_bundle(tmp_path, *again.records())
    copy.rewrite_manifest(again.manifest)
    copy.write_verdicts(again.verdicts())
    assert first == {path.name: path.read_bytes() for path in copy.path.glob("*.json*")}


def test_fields_with_their_default_are_left_out(tmp_path):
    bundle = make_bundle(tmp_path, make_record(part=0, readings=(make_reading(ghost=0),)))
    data = json.loads((bundle.path / "records.jsonl").read_text())
    assert ("part" not in data, "ghost" not in data["readings"][0]) == (True, True)


def test_a_record_that_could_not_be_read_again_is_refused_with_its_field(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    with pytest.raises(BundleError, match=r"contrast-1/1\.0 .*str.*\$\.readings\[0\]\.value"):
        bundle.append(make_record(1, readings=(make_reading("fast"),)))
    assert [make_record(0)] == bundle.records()


def test_a_setting_keeps_its_type(tmp_path):
    bundle = Bundle.create(tmp_path, make_manifest(config={"plan": False, "count": 0, "share": 0.0}))
    assert {"plan": bool, "count": int, "share": float} == {key: type(value) for key, value in reopened(bundle).manifest.config.items()}


def test_a_number_that_is_not_finite_is_refused_with_its_field(tmp_path):
    bundle = make_bundle(tmp_path)
    with pytest.raises(BundleError, match=r"\$\.readings\[1\]\.value is nan"):
        bundle.append(make_record(readings=(make_reading(1.0), make_reading(float("nan")))))


def test_a_refused_record_leaves_no_trace(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    with pytest.raises(BundleError):
        bundle.append(make_record(1, cost_s=float("inf")))
    assert [make_record(0)] == reopened(bundle).records()


def test_an_object_without_a_json_form_is_refused_with_its_field(tmp_path):
    with pytest.raises(BundleError, match=r"\$\.config\.when is a PosixPath"):
        Bundle.create(tmp_path, make_manifest(config={"when": Path("x")}))


def test_undecodable_bytes_in_a_text_do_not_cost_the_record(tmp_path):
    bundle = make_bundle(tmp_path, make_record(order="A\udcffB"))
    assert "A?B" == reopened(bundle).records()[0].order


def test_a_line_is_on_disk_when_append_returns(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    assert [make_record(0)] == reopened(bundle).records()


def test_a_torn_last_line_is_set_aside_and_named(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    tear(bundle, b'{"round":"x","contr')
    again = reopened_after_crash(bundle)
    assert [make_record(0)] == again.records()
    assert b'{"round":"x","contr' == (bundle.path / "records.torn-1.jsonl").read_bytes()
    assert ["line 2 was torn (19 bytes): set aside as records.torn-1.jsonl"] == [note.split("records.jsonl ")[1] for note in again.notes]


def test_after_a_tear_the_next_record_stands_on_a_line_of_its_own(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    tear(bundle, b'{"round":')
    again = reopened_after_crash(bundle)
    again.append(make_record(1))
    assert [make_record(0), make_record(1)] == again.records()


def test_a_second_tear_does_not_write_over_the_first(tmp_path):
    bundle = make_bundle(tmp_path)
    for text in (b"{first", b"{second"):
        tear(bundle, text)
        reopened_after_crash(bundle).records()
    assert [b"{first", b"{second"] == [path.read_bytes() for path in sorted(bundle.path.glob("records.torn-*"))]


def test_a_last_line_that_lacks_its_newline_only_is_a_record(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    path = bundle.path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    again = reopened_after_crash(bundle)
    again.append(make_record(1))
    assert ([make_record(0), make_record(1)], []) == (again.records(), again.notes)


def test_a_reader_leaves_the_unfinished_line_of_a_running_writer_alone(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))  # holds the lock
    tear(bundle, b'{"round":')
    assert [make_record(0)] == reopened(bundle).records()
    assert (bundle.path / "records.jsonl").read_bytes().endswith(b'{"round":')


def test_a_damaged_line_in_between_is_named_and_kept(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    tear(bundle, b'{"round":\x00\x00\n')
    bundle.append(make_record(1))
    before = (bundle.path / "records.jsonl").read_bytes()
    again = reopened(bundle)
    assert [make_record(0), make_record(1)] == again.records()
    assert "records.jsonl line 2" in again.notes[0]
    assert before == (bundle.path / "records.jsonl").read_bytes()


def test_a_line_of_the_wrong_type_is_an_error_with_line_and_field(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    path = bundle.path / "records.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"cost_s":12.5', b'"cost_s":"12.5"'))
    with pytest.raises(BundleError, match=r"line 1 .*\$\.cost_s"):
        reopened(bundle).records()


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path):
    bundle = make_bundle(tmp_path, make_record(0))
    with pytest.raises(BundleError, match="written by another process"):
        reopened(bundle).append(make_record(1))


def test_a_full_disk_costs_the_round_but_not_the_file(tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path, make_record(0))

    def half(descriptor, data):
        real(descriptor, bytes(data)[:10])
        raise OSError(28, "No space left on device")

    real = os.write
    monkeypatch.setattr("harness.store.bundle.os.write", half)
    with pytest.raises(BundleError, match=r"contrast-1/1\.0 .*No space left on device"):
        bundle.append(make_record(1))
    monkeypatch.undo()
    assert ([make_record(0)], []) == (bundle.records(), bundle.notes)


def test_a_newer_schema_is_refused(tmp_path):
    bundle = make_bundle(tmp_path)
    edit(bundle, schema_version=2)
    with pytest.raises(BundleError, match="schema_version 2, newer than the 1"):
        reopened(bundle)


@pytest.mark.parametrize("version", [None, "1", True, 0, -1, 1.0])
def test_something_that_is_no_version_is_refused(tmp_path, version):
    bundle = make_bundle(tmp_path)
    edit(bundle, schema_version=version)
    with pytest.raises(BundleError, match="no version number"):
        reopened(bundle)


def test_a_wrong_type_in_the_manifest_is_named_with_its_field(tmp_path):
    bundle = make_bundle(tmp_path)
    edit(bundle, machine={**json.loads((bundle.path / "manifest.json").read_text())["machine"], "cores": "two"})
    with pytest.raises(BundleError, match=r"\$\.machine\.cores"):
        reopened(bundle)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000], ids=lambda text: repr(text[:8]))
def test_a_manifest_that_is_no_json_object_is_refused(tmp_path, text):
    bundle = make_bundle(tmp_path)
    (bundle.path / "manifest.json").write_bytes(text)
    with pytest.raises(BundleError, match=r"manifest\.json cannot be read"):
        reopened(bundle)


def test_damaged_verdicts_are_an_error_with_their_field(tmp_path):
    bundle = make_bundle(tmp_path)
    bundle.write_verdicts(make_verdicts())
    path = bundle.path / "verdicts.json"
    path.write_text(path.read_text().replace('"CONFIRMED"', '"PERHAPS"'))
    with pytest.raises(BundleError, match=r"PERHAPS.*\$\.claims\[0\]"):
        reopened(bundle).verdicts()


def test_a_run_that_was_not_judged_has_no_verdicts(tmp_path):
    assert make_bundle(tmp_path).verdicts() is None


def test_a_run_is_found_by_its_name_and_by_its_path(tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path)
    monkeypatch.chdir(bundle.path)
    assert [bundle.path] * 3 == [Bundle.open(run, tmp_path).path for run in (bundle.path.name, str(bundle.path), ".")]


def test_an_unknown_run_is_answered_with_the_runs_there_are(tmp_path):
    bundle = make_bundle(tmp_path)
    with pytest.raises(BundleError, match=bundle.path.name):
        Bundle.open("no-such-run", tmp_path)


def test_a_folder_without_a_manifest_is_no_run(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BundleError, match=r"no manifest\.json"):
        Bundle.open("empty", tmp_path)


def test_a_manifest_that_is_a_link_is_refused(tmp_path):
    bundle = make_bundle(tmp_path)
    (bundle.path / "manifest.json").rename(tmp_path / "elsewhere.json")
    (bundle.path / "manifest.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(BundleError, match="a link is refused"):
        reopened(bundle)


def test_a_pipe_in_place_of_the_records_does_not_make_the_reader_wait(tmp_path):
    bundle = make_bundle(tmp_path)
    (bundle.path / "records.jsonl").unlink()
    os.mkfifo(bundle.path / "records.jsonl")
    with pytest.raises(BundleError, match="no plain file"):
        bundle.records()


def test_a_huge_manifest_is_refused_before_it_is_read(tmp_path):
    bundle = make_bundle(tmp_path)
    os.truncate(bundle.path / "manifest.json", 2**40)
    with pytest.raises(BundleError, match="more than the 64 MiB"):
        reopened(bundle)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "plots/../../x", "", ".", "a//b", "a\\b", "a\0b"])
def test_a_name_that_leads_out_of_the_bundle_is_refused(tmp_path, name):
    with pytest.raises(BundleError, match="relative"):
        make_bundle(tmp_path).write_text(name, "x")


def test_a_linked_folder_inside_the_bundle_is_refused(tmp_path):
    bundle = make_bundle(tmp_path)
    bundle.proofs.rmdir()
    bundle.proofs.symlink_to(tmp_path)
    with pytest.raises(BundleError, match="link 'proofs'"):
        bundle.load_proof("proofs/x.npz")


def test_a_text_is_written_into_a_subfolder(tmp_path):
    bundle = make_bundle(tmp_path)
    bundle.write_text("plots/x.svg", "<svg/>")
    assert "<svg/>" == (bundle.path / "plots/x.svg").read_text()


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path)
    bundle.write_text("report.md", "old")
    before = sorted(path.name for path in bundle.path.iterdir())

    def refuse(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(BundleError, match="No space left"):
        bundle.write_text("report.md", "new")
    assert ("old", before) == ((bundle.path / "report.md").read_text(), sorted(path.name for path in bundle.path.iterdir()))


def test_nothing_written_names_this_machine(tmp_path):
    bundle = make_bundle(tmp_path)
    bundle.rewrite_manifest(dataclasses.replace(bundle.manifest, provenance={"command": f"python -m harness data.dir={Path.home()}/pictures"}))
    bundle.append(make_record(order=f"log {bundle.path}/logs/a.log of {sys.prefix}/lib/python/x.py"))
    assert {"command": "python -m harness data.dir=~/pictures"} == reopened(bundle).manifest.provenance
    assert "log logs/a.log of <python>/lib/python/x.py" == reopened(bundle).records()[0].order


def test_logs_are_cleaned_of_paths(tmp_path):
    bundle = make_bundle(tmp_path)
    (bundle.logs / "a.log").write_text(f'File "{Path.home()}/net.py", line 3\nimages/s 20\n')
    bundle.clean_logs()
    assert 'File "~/net.py", line 3\nimages/s 20\n' == (bundle.logs / "a.log").read_text()


def test_a_plan_survives_the_trip_whole(tmp_path):
    assert make_plan() == reopened(make_bundle(tmp_path)).manifest.plan


def tear(bundle: Bundle, text: bytes) -> None:
    with (bundle.path / "records.jsonl").open("ab") as file:
        file.write(text)


def reopened_after_crash(bundle: Bundle) -> Bundle:
    """What the next process sees once the writer is gone: its lock is gone with it."""
    if bundle._descriptor is not None:
        os.close(bundle._descriptor)
        bundle._descriptor = None
    return reopened(bundle)


def edit(bundle: Bundle, **changes: object) -> None:
    path = bundle.path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
