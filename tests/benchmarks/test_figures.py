"""The figures of the input side that `python -m benchmarks.figures --input` prints: their arithmetic, and small measurements."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest

from benchmarks import figures, figures_input
from benchmarks.figures_input import ACCURATE, FAST, PARTS, Line, Scale, decoding_lines, making_line, on_cores, parts_lines, step_line
from benchmarks.libjpeg_turbo import Library
from benchmarks.turns import in_a_process
from harness.errors import ConfigError

from .conftest import FILES

DECODED = {
    "seconds": {"tfdata": [1.0, 2.0, 1.25], "library": [0.95, 1.8, 1.25], "pillow": [2.0, 4.0, 2.5]},
    "images": 1000,
    "cores": 2,
    "library": "libturbojpeg.so.0",
    "missing": "",
    "pillow": "3.1.2",
}
COSTS = {
    "parts": {"read": [0.0001, 0.0002], "decode": [0.002, 0.002], "resize": [0.0005, 0.0004], "normalise": [0.0001, 0.0001]},
    "pipeline": [0.0015, 0.00225],
    "cores": 2,
    "image": 224,
    "batch": 16,
}


def missing():
    raise ConfigError("install it")


# ---------------------------------------------------------------- the lines


def test_tf_datas_rate_over_the_librarys_is_the_inverse_of_their_seconds():
    first, tfdata, library, pillow = decoding_lines(DECODED)

    assert ("0.95", "at least 0.90; median of 3 turns, 0.90 to 1.00") == (first.value, first.note)
    assert ("  tf.data, 2 cores", "800 images/s") == tfdata[:2]
    assert ("  libturbojpeg.so.0, 2 cores", "800 images/s") == library[:2]
    assert ("  Pillow with libjpeg-turbo 3.1.2, 2 cores", "400 images/s") == pillow[:2]


def test_both_sides_settings_are_stated():
    _, tfdata, library, _ = decoding_lines(DECODED)

    assert ("to RGB, accurate transform, fancy upsampling; median of 3 turns", "to the same pixels") == (tfdata.note, library.note)


def test_without_the_library_there_is_no_ratio_but_a_reason_and_pillow_is_named_as_what_it_is():
    seconds = {name: DECODED["seconds"][name] for name in ("tfdata", "pillow")}
    first, tfdata, pillow = decoding_lines({**DECODED, "seconds": seconds, "library": None, "missing": "install it"})

    assert ("n/a", "install it") == (first.value, first.note)
    assert ["  tf.data, 2 cores", "  Pillow with libjpeg-turbo 3.1.2, 2 cores"] == [tfdata.what, pillow.what]


def test_a_pillow_of_another_library_is_not_called_libjpeg_turbo():
    *_, pillow = decoding_lines({**DECODED, "pillow": None})

    assert "  Pillow without libjpeg-turbo, 2 cores" == pillow.what


def test_parts_are_told_each_with_its_cost_and_then_their_sum():
    *parts, total, _, _ = parts_lines(COSTS)

    assert ["0.150 ms", "2.000 ms", "0.450 ms", "0.100 ms"] == [line.value for line in parts]
    assert "resizing it to 224 px, one core" == parts[2].what
    assert ("  their sum", "2.700 ms", "median of 2 turns, 2.700 to 2.700") == total


def test_a_pipeline_is_compared_with_what_its_parts_allow_on_all_cores():
    *_, whole, share = parts_lines(COSTS)

    assert ("tfdata_tuned, which does all of it, 2 cores", "533 images/s") == whole[:2]
    # 2.7 ms over 2 x 1.5 ms and over 2 x 2.25 ms
    assert ("0.75", "1 loses nothing; parts are timed while other cores rest; median of 2 turns, 0.60 to 0.90") == share[1:]


def test_a_sessions_step_is_told_over_the_tf_functions():
    line = step_line({"function": [1.0, 2.0, 4.0], "session": [1.02, 2.08, 4.0]})

    assert ("1.020", "0.95 to 1.05; median of 3 turns, 1.000 to 1.040") == line[1:]


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (2, ("2000 photographs and their TFRecords, 2 cores", "41.3 s", "at most 60 s; once")),
        (1, ("2000 photographs and their TFRecords, one core", "41.3 s", "at most 60 s on 2 cores; once")),
    ],
)
def test_the_bound_on_making_the_set_is_that_of_two_cores(cores, expected):
    assert Line(*expected) == making_line(41.26, cores)


def test_a_process_is_kept_to_so_many_cores_and_let_go_again():
    before = os.sched_getaffinity(0)
    with on_cores(1) as used:
        assert (1, 1) == (used, len(os.sched_getaffinity(0)))

    assert before == os.sched_getaffinity(0)


def test_no_more_cores_are_used_than_are_there():
    allowed = len(os.sched_getaffinity(0))
    with on_cores(allowed + 1) as used:
        assert allowed == used


def test_the_command_prints_every_line_in_the_columns_of_the_others(monkeypatch, capsys):
    monkeypatch.setattr(figures, "plan_seconds", lambda: 1.0)
    monkeypatch.setattr(figures, "many_rounds_seconds", lambda: 2.0)
    monkeypatch.setattr(figures, "report_figures", lambda run: (3.0, 4.0))
    monkeypatch.setattr(figures, "bundle_bytes", lambda run: 5)
    lines = [*decoding_lines(DECODED), *parts_lines(COSTS), making_line(41.26, 2), step_line({"function": [1.0], "session": [1.0]})]
    monkeypatch.setattr(figures_input, "lines", lambda: iter(lines))

    assert 0 == figures.main(["--input", "some-run"])
    printed = capsys.readouterr().out.splitlines()
    assert "decoding by tf.data over libjpeg-turbo, called directly                0.95   (at least 0.90; median of 3 turns, 0.90 to 1.00)" in printed
    assert {printed[0].index("   (")} == {line.index("   (") for line in printed}


# ---------------------------------------------------------------- small measurements


def small(data_dir, **other):
    return Scale(data_dir, files=FILES, images=FILES, image=16, batch=8, repeats=2, **other)


@pytest.mark.tensorflow
def test_decoding_is_timed_three_ways_where_the_library_is_here(data_dir):
    tf = pytest.importorskip("tensorflow")
    library = Library("the library", lambda: nullcontext(lambda encoded: tf.io.decode_jpeg(encoded, **ACCURATE).numpy()))
    told = figures_input.decode_turns(small(data_dir), lambda: library)

    assert {"tfdata": 2, "library": 2, "pillow": 2} == {name: len(seconds) for name, seconds in told["seconds"].items()}
    assert ("the library", "", FILES * len(os.sched_getaffinity(0))) == (told["library"], told["missing"], told["images"])
    assert all(second > 0 for seconds in told["seconds"].values() for second in seconds)


@pytest.mark.tensorflow
def test_decoding_is_timed_two_ways_where_it_is_missing(data_dir):
    pytest.importorskip("tensorflow")
    told = figures_input.decode_turns(small(data_dir), missing)

    assert (["tfdata", "pillow"], None, "install it") == (list(told["seconds"]), told["library"], told["missing"])


@pytest.mark.tensorflow
def test_a_library_that_gives_other_pixels_is_no_yardstick(data_dir):
    tf = pytest.importorskip("tensorflow")
    from benchmarks.input.photographs import own

    encoded = [tf.io.read_file(photograph.path).numpy() for photograph in own(data_dir, FILES)[:2]]
    library = Library("a fast one", lambda: nullcontext(lambda one: tf.io.decode_jpeg(one, **FAST).numpy()))
    found, reason = figures_input.usable(lambda: library, encoded)

    assert found is None
    assert reason.startswith("a fast one decodes to other pixels than TensorFlow (by up to ")


@pytest.mark.tensorflow
def test_all_pictures_are_decoded_once_by_all_threads_together():
    pytest.importorskip("tensorflow")
    seen, opened = [], []

    def decoder():
        opened.append(1)
        return nullcontext(seen.append)

    figures_input._by_threads(decoder, [b"%d" % number for number in range(50)])

    assert [b"%d" % number for number in range(50)] == sorted(seen, key=int)
    assert len(os.sched_getaffinity(0)) == len(opened)


@pytest.mark.tensorflow
def test_the_parts_one_after_the_other_are_what_the_tuned_pipeline_computes(data_dir):
    tf = pytest.importorskip("tensorflow")
    from benchmarks.input.decoding import decode_fast, resize
    from benchmarks.input.photographs import own

    encoded = tf.io.read_file(own(data_dir, FILES)[0].path)

    assert bool(tf.reduce_all(decode_fast(encoded, 32) == resize(tf.io.decode_jpeg(encoded, **FAST), 32)))


@pytest.mark.tensorflow
def test_the_accurate_settings_are_those_of_the_other_pipelines(data_dir):
    tf = pytest.importorskip("tensorflow")
    from benchmarks.input.decoding import decode, normalise, resize
    from benchmarks.input.photographs import own

    encoded = tf.io.read_file(own(data_dir, FILES)[0].path)

    assert bool(tf.reduce_all(decode(encoded, 32) == normalise(resize(tf.io.decode_jpeg(encoded, **ACCURATE), 32))))


@pytest.mark.tensorflow
def test_parts_and_pipeline_are_timed_in_a_process_of_their_own(data_dir):
    pytest.importorskip("tensorflow")
    told = in_a_process(
        "benchmarks.figures_input", f"it.parts_turns(it.Scale({str(data_dir)!r}, files={FILES}, images={FILES}, image=16, batch=8, repeats=2))"
    )

    assert list(PARTS) == list(told["parts"])
    assert {2} == {len(turns) for turns in (*told["parts"].values(), told["pipeline"])}
    assert all(second > 0 for turns in (*told["parts"].values(), told["pipeline"]) for second in turns)
    assert (16, 8, len(os.sched_getaffinity(0))) == (told["image"], told["batch"], told["cores"])


@pytest.mark.tensorflow
def test_steps_of_both_arms_are_timed():
    pytest.importorskip("tensorflow")
    told = figures_input.step_turns({"model": "convnet_small", "image": 16, "batch": 8, "classes": 10}, repeats=1)

    assert {"function": 1, "session": 1} == {name: len(seconds) for name, seconds in told.items()}
