"""The validity box by flags and foreign load: trouble is amber, what is only worth knowing is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.model import COMPLETED, Flag, Outcome, Reading, Reason, State, TrialRecord, Word
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


# ---------------------------------------------------------------- trials


def trials_check(*states: State) -> Check:
    """The line about trials of a run whose last round has trials that ended in these states."""
    builder = Builder()
    builder.ratio_claim("graph-speedup", make_cell(execution="eager"), make_cell(), 2.4, Word.CONFIRMED)
    last = builder.records[-1]
    trials = tuple(TrialRecord(f"t{i}", last.trials[0].cell, Outcome(state, Reason("why", "no such product"), "build")) for i, state in enumerate(states))
    builder.records[-1] = replace(last, trials=trials, outcome=trials[0].outcome)
    manifest, records, verdicts, notes = builder.run()
    return next(check for check in validity(build_index(manifest, records, verdicts), notes) if check.title == "Trials")


def test_a_trial_of_what_cannot_be_had_here_is_told_with_its_reason_and_is_no_trouble():
    check = trials_check(State.SKIPPED)
    assert ("good", "1 trial of 9 skipped: what they are about cannot be had here.") == (check.state, check.text)
    assert ("graph-speedup: skipped in phase build, no such product",) == check.lines


def test_beside_failed_trials_skipped_ones_are_counted_and_told():
    check = trials_check(State.SKIPPED, State.FAILED)
    assert ("warn", "2 of 10 trials did not complete; no timing was taken from them.") == (check.state, check.text)
    assert ("graph-speedup: failed in phase build, no such product", "graph-speedup: skipped in phase build, no such product") == check.lines


# ---------------------------------------------------------------- foreign load


JOBS_FLAG = Flag("foreign_load", "other processes used 0.40 cores while the job of trial a was timed", {"trial": "a", "foreign_cores": 0.4})
QUADS_FLAG = Flag("foreign_load", "others disturbed quads and no repeat was left, so they were kept", {"foreign_cores": 0.4})


def checks(loads: tuple[float | None, ...], *flags: Flag, quads: bool = True) -> dict[str, Check]:
    """The lines of a run whose first round has a job beside each of `loads` and these flags; without `quads` no round has any."""
    builder = Builder()
    builder.ratio_claim("graph-speedup", make_cell(execution="eager"), make_cell(), 2.4, Word.CONFIRMED)
    if not quads:
        builder.records = [replace(record, quads=()) for record in builder.records]
    told = tuple(Reading("a", "foreign_cores", value, "cores", None if value is not None else "could not be read") for value in loads)
    first = builder.records[0]
    builder.records[0] = replace(first, readings=(*first.readings, *told), flags=flags)
    manifest, records, verdicts, notes = builder.run()
    return {check.title: check for check in validity(build_index(manifest, records, verdicts), notes)}


def test_the_load_beside_jobs_is_told_where_there_are_no_quads():
    check = checks((0.01, 0.03, 0.02), quads=False)["Foreign load"]
    text = "3 jobs and single calls timed: other processes used 0.020 cores in the median, 0.030 cores at most; no round is flagged for it."
    assert ("good", text) == (check.state, check.text)


def test_a_job_beside_foreign_load_is_amber_and_said_to_be_kept_not_rejected():
    check = checks((0.4,), JOBS_FLAG, quads=False)["Foreign load"]
    assert "warn" == check.state
    assert check.text.startswith("1 job or single call timed:")
    assert check.text.endswith("1 round is flagged for it and kept.")
    assert "accepted" not in check.text


def test_quads_and_jobs_are_told_apart():
    check = checks((0.4,), JOBS_FLAG)["Foreign load"]
    accepted, timed = check.text.split(". ")
    assert ("warn", True, True) == (check.state, "quads accepted" in accepted, timed.startswith("1 job or single call timed"))
    assert "0.400" not in accepted


def test_a_job_whose_load_could_not_be_read_is_unknown_and_not_zero():
    check = checks((None,), Flag("foreign_load_unknown", "not known", {"trial": "a"}), quads=False)["Foreign load"]
    assert "1 job or single call timed: load unknown; no round is flagged for it." == check.text


def test_without_quads_and_jobs_there_is_no_load_to_tell():
    assert ("plain", "No quads of blocks were measured.") == ((check := checks((), quads=False)["Foreign load"]).state, check.text)


def test_a_flag_of_a_job_is_not_counted_with_those_of_quads():
    check = checks((0.4,), JOBS_FLAG, QUADS_FLAG)["Flags"]
    assert {f"foreign_load beside jobs or single calls (1): {JOBS_FLAG.text}", f"foreign_load (1): {QUADS_FLAG.text}"} == set(check.lines)


# ---------------------------------------------------------------- images that cannot be decoded


def left_out(*told: dict[str, object]) -> Check | None:
    """The line on files left out, of a run whose trials tell these facts."""
    return check_of(told, "Files left out")


def check_of(told: Sequence[dict[str, object]], title: str) -> Check | None:
    """The line of this title, of a run whose trials tell these facts."""
    builder = Builder()
    builder.ratio_claim("graph-speedup", make_cell(execution="eager"), make_cell(), 2.4, Word.CONFIRMED)
    first = builder.records[0]
    trials = tuple(TrialRecord(f"t{index}", first.trials[0].cell, COMPLETED, used=used) for index, used in enumerate(told))
    builder.records[0] = replace(first, trials=trials)
    manifest, records, verdicts, notes = builder.run()
    return next((check for check in validity(build_index(manifest, records, verdicts), notes) if check.title == title), None)


def test_a_run_that_leaves_nothing_out_on_demand_says_nothing_of_it():
    assert left_out({"input": "tfdata"}) is None


def test_what_was_left_out_is_counted_and_named_once_however_many_arms_tell_it():
    told = {"skipped_files": 2, "skipped_names": "cats/torn.jpg, dogs/empty.jpg"}
    check = left_out(told, told)
    assert check == Check(
        "warn",
        "Files left out",
        "2 files or records of every pass over the images, as they cannot be decoded (data.on_bad=skip).",
        ("2: cats/torn.jpg, dogs/empty.jpg",),
    )


def test_arms_that_left_out_different_numbers_are_each_told():
    check = left_out({"skipped_files": 1, "skipped_names": "record 3 of a.tfrecord"}, {"skipped_files": 2}, {"skipped_files": 0})
    assert check is not None
    assert (True, ("1: record 3 of a.tfrecord", "2: their names were not told")) == (check.text.startswith("Up to 2 files or records"), check.lines)


def test_where_all_could_be_decoded_that_is_said():
    check = left_out({"skipped_files": 0})
    assert ("good", "None: all could be decoded (data.on_bad=skip would have left out others).") == ((check.state, check.text) if check else None)


# ---------------------------------------------------------------- images of a person's own


def test_of_the_suites_own_photographs_nothing_is_said():
    assert check_of([{"input": "tfdata", "set_samples": 128}, {"input": "synthetic"}], "Images") is None


def test_a_set_that_was_measured_whole_is_said_to_have_been():
    check = check_of([{"input": "tfdata", "set_samples": 40, "set_found": 40}], "Images")
    assert check == Check("plain", "Images", "All 40 samples in data.dir were measured.")


def test_samples_that_were_drawn_are_told_with_those_that_there_are_and_who_read_copies():
    told = [
        {"input": "tfdata", "set_samples": 128, "set_found": 5000, "other_pictures": 3},
        {"input": "tfrecord", "set_samples": 128, "set_found": 5000, "set_copied": True},
        {"input": "article_d", "set_samples": 1000, "set_found": 5000, "set_copied": True},
    ]
    check = check_of(told, "Images")
    assert check is not None
    assert check.text == (
        "128 or 1,000 of 5,000 samples in data.dir were measured: drawn, the same ones in every arm that takes so many. "
        "3 pictures of other kinds than JPEG beside them were not. "
        "The form that the set lacks was written below the suite's data folder, and read there by tfrecord, article_d."
    )


def test_what_is_left_out_as_bad_makes_no_drawing_of_a_whole_set():
    check = check_of([{"input": "tfdata", "set_samples": 7, "set_found": 8, "skipped_files": 1}], "Images")
    assert check is not None
    assert check.text == "All 8 samples in data.dir were measured."


def test_samples_drawn_from_records_that_nobody_counted_are_told_without_a_number():
    check = check_of([{"input": "tfdata", "set_samples": 128, "set_copied": True}], "Images")
    assert check is not None
    assert check.text.startswith("128 of the many samples in data.dir were measured")
