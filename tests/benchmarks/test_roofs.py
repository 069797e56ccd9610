"""Each roof: what it computes is right, none of it is left out, and the work that it claims is the work that it does."""

from __future__ import annotations

import os
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from harness.errors import ConfigError, Unsupported

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

from benchmarks.flops import flops_of  # noqa: E402 - after the check for TensorFlow
from benchmarks.input import photographs_of  # noqa: E402
from benchmarks.roofs import OPS, arithmetic, build, copies, transfers  # noqa: E402
from benchmarks.roofs.common import MIB  # noqa: E402
from benchmarks.roofs.disk import Disk  # noqa: E402
from benchmarks.storage import storage_facts  # noqa: E402

from .conftest import FILES  # noqa: E402

CLAIMS = Path(__file__).resolve().parents[2] / "conf" / "claims"
ROUNDING = {"float32": 2e-6, "bfloat16": 2**-8, "float16": 2**-10}
"""Relative error of one rounding, with room for sums in another order."""


@pytest.fixture(autouse=True)
def switch_stays():
    """The switch of TF32 belongs to the process; a roof throws it."""
    kept = tf.config.experimental.tensor_float_32_execution_enabled()
    yield
    tf.config.experimental.enable_tensor_float_32_execution(kept)


def arguments_of(roof):
    return [np.asarray(tensor).astype(np.float64) for tensor in roof._arguments]


def made_by(roof, steps=1):
    roof.run(steps)
    return np.asarray(roof.made).astype(np.float64)


def graph_of(roof):
    return roof._function.get_concrete_function(*roof._arguments).graph


def on_the_cpu(monkeypatch, module, places=("/CPU:0",)):
    """Let a roof of GPUs run here: it is told that the CPU is one."""
    monkeypatch.setattr(module, "gpus", lambda settings, least=1: list(places))


# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_matrix_product_is_the_product_of_all_its_factors(dtype):
    roof = build(op="matmul", dtype=dtype, size=48, repeat=3)
    a, expected = arguments_of(roof)
    for _ in range(3):
        expected = a @ expected

    assert np.abs(made_by(roof) - expected).max() < 3 * ROUNDING[dtype] * np.abs(expected).max()


def test_numbers_neither_grow_nor_vanish_along_a_chain():
    made = made_by(build(op="matmul", dtype="float16", size=256, repeat=16))

    assert 0.3 < made.std() < 3


def test_a_product_of_int8_is_exact_before_it_is_shifted():
    size = 96
    roof = build(op="matmul", dtype="int8", size=size, repeat=3)
    a, expected = (np.asarray(tensor).astype(np.int32) for tensor in roof._arguments)
    for _ in range(3):
        expected = ((a @ expected) >> arithmetic.shift_of(size)).astype(np.int8).astype(np.int32)

    assert np.array_equal(expected, made_by(roof))
    assert len(np.unique(expected)) > 100  # a shift that left nothing would be right as well


def naive_convolution(window, x):
    """A convolution with stride 1, zeros around the pictures, as sums over the taps."""
    reach = window.shape[0] // 2
    padded = np.pad(x, ((0, 0), (reach, reach), (reach, reach), (0, 0)))
    out = np.zeros((*x.shape[:3], window.shape[3]))
    for dy, dx in product(range(window.shape[0]), range(window.shape[1])):
        out += padded[:, dy : dy + x.shape[1], dx : dx + x.shape[2]] @ window[dy, dx]
    return out


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_convolution_is_the_convolution_of_all_its_windows(dtype):
    roof = build(op="convolution", dtype=dtype, batch=2, image=5, channels=4, repeat=2)
    window, expected = arguments_of(roof)
    for _ in range(2):
        expected = naive_convolution(window, expected)

    assert np.abs(made_by(roof) - expected).max() < 3 * ROUNDING[dtype] * np.abs(expected).max()


@pytest.mark.parametrize(
    ("settings", "flop"),
    [
        ({"op": "matmul", "dtype": "float32", "size": 16, "repeat": 3}, 3 * 2 * 16**3),
        ({"op": "matmul", "dtype": "int8", "size": 16, "repeat": 3}, 3 * 2 * 16**3),
        ({"op": "convolution", "dtype": "float32", "batch": 2, "image": 6, "channels": 4, "repeat": 3}, 3 * 2 * 9 * 2 * 6**2 * 4**2),
    ],
    ids=["matmul", "int8", "convolution"],
)
def test_the_flop_of_a_step_are_those_of_its_graph(settings, flop):
    roof = build(**settings)
    tally = roof.run(5)

    assert (5, 5.0 * flop, "FLOP") == (tally.steps, tally.work, tally.unit)
    assert flop == flops_of(graph_of(roof)) == roof.facts()["work_per_step"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8"])
def test_facts_tell_the_type_of_the_result_and_where_it_lies(dtype):
    facts = build(op="matmul", dtype=dtype, size=16, repeat=1).facts()

    assert ("matmul", dtype, 16, 1, "cpu") == tuple(facts[name] for name in ("op", "dtype", "size", "repeat", "device"))


def test_facts_do_not_call_a_product_tf32_where_the_device_has_none():
    assert "float32" == build(op="matmul", dtype="tf32", size=16, repeat=1).facts()["dtype"]


@pytest.mark.parametrize(("dtype", "rounded"), [("float32", False), ("tf32", True), ("float16", False)])
def test_rounding_to_tf32_is_switched_on_for_tf32_alone(dtype, rounded):
    tf.config.experimental.enable_tensor_float_32_execution(not rounded)
    build(op="convolution", dtype=dtype, batch=1, image=4, channels=2, repeat=1)

    assert rounded == tf.config.experimental.tensor_float_32_execution_enabled()


def without_int8(monkeypatch, error):
    """Let the product of int8 matrices end in this error of TensorFlow."""

    def refuse(*_):
        raise error(None, None, "no such\n  kernel")

    monkeypatch.setattr(arithmetic, "_int8_products", lambda size, repeat: refuse)


@pytest.mark.parametrize("error", [tf.errors.UnimplementedError, tf.errors.InvalidArgumentError, tf.errors.InternalError])
def test_a_device_without_int8_products_has_no_such_roof_and_a_sentence_says_so(monkeypatch, error):
    without_int8(monkeypatch, error)
    with pytest.raises(Unsupported, match=r"^TensorFlow multiplies no int8 matrices on this device \(no such kernel\)$"):
        build(op="matmul", dtype="int8", size=16)


def test_want_of_memory_does_not_mean_that_a_device_has_no_int8_products(monkeypatch):
    without_int8(monkeypatch, tf.errors.ResourceExhaustedError)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        build(op="matmul", dtype="int8", size=16)


def test_a_roof_is_traced_once_and_beforehand():
    roof = build(op="matmul", size=16, repeat=2)
    roof.trace()
    roof.run(3)

    assert 1 == roof.traces()


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("threads", [1, 2])
def test_a_host_copy_copies_every_number_and_counts_bytes_both_ways(threads):
    copy = copies.HostCopy(8 * MIB, threads, None)
    before = np.concatenate(copy.target)
    tally = copy.run(3)
    copy.close()

    assert (-1 == before).all()
    assert np.array_equal(np.arange(MIB), np.concatenate(copy.target))
    assert (3, 3 * 2 * 8.0 * MIB, "B") == (tally.steps, tally.work, tally.unit)


def test_each_thread_of_a_host_copy_keeps_to_a_core_of_its_own(monkeypatch):
    kept = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {9, 3, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cpus: kept.append((thread, *cpus)))
    copies.HostCopy(3 * MIB, 3, None).close()

    assert [(0, 3), (0, 5), (0, 9)] == sorted(kept)


def test_a_host_copy_says_how_many_threads_copied_and_how_much():
    facts = build(op="host_copy", threads=1, mib=4).facts()

    assert ("host_copy", 1, 4, 8.0 * MIB) == tuple(facts[name] for name in ("op", "threads", "mib", "work_per_step"))


def test_a_host_copy_uses_all_cores_unless_told_otherwise():
    copy = build(op="host_copy", mib=4)
    copy.close()

    assert len(os.sched_getaffinity(0)) == copy.facts()["threads"]


@pytest.mark.parametrize(
    ("caches_mib", "free_mib", "expected_mib"),
    [(300, 100_000, 1200), (8, 100_000, 256), (None, 100_000, 256), (300, 4096, 512), (300, 64, 8)],
    ids=["four times the caches", "small caches", "caches unknown", "little memory", "hardly any memory"],
)
def test_an_array_is_larger_than_the_caches_and_leaves_memory_free(caches_mib, free_mib, expected_mib):
    caches = None if caches_mib is None else caches_mib * MIB

    assert expected_mib * MIB == copies.array_bytes_for(caches, free_mib * MIB)


def make_caches(root, cpus, caches):
    """Write what the kernel tells of caches: (level, kind, which CPUs share it by CPU, size)."""
    for cpu in cpus:
        for number, (level, kind, sharers, size) in enumerate(caches):
            index = root / f"cpu{cpu}" / "cache" / f"index{number}"
            index.mkdir(parents=True)
            for name, text in (("level", level), ("type", kind), ("shared_cpu_list", sharers[cpu]), ("size", size)):
                (index / name).write_text(f"{text}\n")


def test_a_cache_that_cores_share_is_counted_once(tmp_path):
    own, halves = {cpu: str(cpu) for cpu in range(4)}, {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
    make_caches(
        tmp_path, range(4), [(1, "Data", own, "32K"), (1, "Instruction", own, "64K"), (2, "Unified", own, "1M"), (3, "Unified", halves, "16M")]
    )

    assert (32 * MIB, 16 * MIB) == (copies.last_level_caches_bytes(range(4), tmp_path), copies.last_level_caches_bytes([0, 1], tmp_path))


def test_caches_that_the_kernel_does_not_tell_are_unknown(tmp_path):
    make_caches(tmp_path, [0], [(1, "Data", {0: "0"}, "much")])

    assert (None, None) == (copies.last_level_caches_bytes([0], tmp_path), copies.last_level_caches_bytes([7], tmp_path))


def test_a_device_copy_is_made_as_often_as_it_is_counted(monkeypatch):
    on_the_cpu(monkeypatch, copies)
    roof = build(op="device_copy", mib=2, repeat=3)
    made, tally = made_by(roof), roof.run(2)

    assert np.array_equal(np.arange(2 * MIB // 4), made)
    assert ["DeepCopy"] * 3 == [operation.type for operation in graph_of(roof).get_operations() if "Copy" in operation.type]
    assert (2 * 3 * 2 * 2.0 * MIB, "B") == (tally.work, tally.unit)


def test_a_device_copy_lies_elsewhere_than_its_source(monkeypatch):
    on_the_cpu(monkeypatch, copies)
    roof = build(op="device_copy", mib=1, repeat=1)
    roof.run(1)

    assert not np.shares_memory(np.asarray(roof._arguments[0]), np.asarray(roof.made))


# ---------------------------------------------------------------- transfers


@pytest.mark.parametrize(("op", "memory"), list(product(("h2d", "d2h"), transfers.MEMORY)))
def test_a_transfer_brings_every_number_over_and_counts_its_bytes_once(monkeypatch, op, memory):
    on_the_cpu(monkeypatch, transfers)
    roof = build(op=op, memory=memory, mib=8)
    tally = roof.run(3)

    expected = [np.arange(2 * MIB // 4) + part for part in range(transfers.PARTS)]
    assert all(np.array_equal(want, np.asarray(got)) for want, got in zip(expected, roof.made, strict=True))
    assert (3, 3 * 8.0 * MIB, "B") == (tally.steps, tally.work, tally.unit)
    assert (op, memory, 8) == tuple(roof.facts()[name] for name in ("op", "memory", "mib"))


def test_what_lies_on_the_gpu_is_taken_out_anew_in_every_step(monkeypatch):
    on_the_cpu(monkeypatch, transfers)
    roof = build(op="d2h", memory="pageable", mib=4)
    taken, as_array = [], np.asarray
    # One handle asked twice answers from what it keeps on the host: nothing would be brought over the second time.
    monkeypatch.setattr(transfers.np, "asarray", lambda tensor, *rest, **named: taken.append(tensor) or as_array(tensor, *rest, **named))
    roof.run(2)

    assert 2 * transfers.PARTS == len({id(tensor) for tensor in taken if tf.is_tensor(tensor)})


def test_memory_that_does_not_lie_on_the_host_is_not_called_pinned():
    with pytest.raises(ConfigError, match="what was to lie on the gpu lies on the cpu"):
        transfers._check_place("op=h2d memory=pinned", [tf.zeros(1)], "gpu")


def test_every_gpu_takes_part_in_every_sum(monkeypatch):
    on_the_cpu(monkeypatch, transfers, ("/CPU:0", "/CPU:0", "/CPU:0"))
    sums = [operation for operation in graph_of(build(op="all_reduce", mib=1, repeat=2)).get_operations() if operation.type == "NcclAllReduce"]
    named = [operation.get_attr("shared_name").decode() for operation in sums]

    assert {"all_reduce_roof_0": 3, "all_reduce_roof_1": 3} == {name: named.count(name) for name in named}
    assert {(3, b"sum")} == {(operation.get_attr("num_devices"), operation.get_attr("reduction")) for operation in sums}


@pytest.mark.parametrize(("members", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_the_bytes_of_a_sum_are_those_of_a_ring(members, factor):
    # In a ring every member sends a part of the array 2 (n - 1) times, which is of one n-th of its size.
    sent = sum(1000 / members for _ in range(2 * (members - 1)))

    assert factor * 1000 == pytest.approx(sent) == pytest.approx(transfers.bus_bytes(1000, members))


# ---------------------------------------------------------------- disk


def disk_of(folder, op="disk_write", mib=9, passes=2):
    return Disk(op, folder, mib, passes, seed=3)


def test_what_is_written_is_the_whole_file_and_cannot_be_compressed(tmp_path):
    disk = disk_of(tmp_path)
    disk.write()
    written = (tmp_path / "roof.bin").read_bytes()

    assert 9 * MIB == len(written)
    assert written[: 8 * MIB] == disk._chunks[0] + disk._chunks[1]
    assert 0.95 < np.bincount(np.frombuffer(written, np.uint8)).min() * 256 / len(written)


def test_the_rate_of_writing_is_all_bytes_over_all_seconds_until_the_storage_had_them(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    values = disk_of(tmp_path).outcome()
    rate, *passes = values

    assert ["disk_write_rate", "disk_pass_s", "disk_pass_s"] == [value.name for value in values]
    assert pytest.approx(2 * 9 * MIB / sum(value.value for value in passes)) == rate.value
    assert ("B/s", [9 * MIB] * 2, []) == (rate.unit, synced, list(tmp_path.iterdir()))


def test_reading_finds_nothing_of_the_file_in_the_page_cache(tmp_path):
    if storage_facts(tmp_path)["file_system"] in {"tmpfs", "ramfs"}:
        pytest.skip("the folder for temporary files lies in memory")
    values = disk_of(tmp_path, "disk_read").outcome()
    named = {value.name: value for value in values}
    seconds = [value.value for value in values if value.name == "disk_pass_s"]

    assert 0 <= named["resident_before"].value < 0.05
    assert pytest.approx(2 * 9 * MIB / sum(seconds)) == named["disk_read_rate"].value


def test_storage_that_is_memory_has_no_rate_of_reading():
    shared = Path("/dev/shm")
    if not shared.is_dir() or storage_facts(shared)["file_system"] != "tmpfs":
        pytest.skip("there is no folder in memory")
    folder = shared / f"roof-{os.getpid()}"
    folder.mkdir()
    try:
        with pytest.raises(ConfigError, match="stay in memory after they were dropped"):
            disk_of(folder, "disk_read").outcome()
    finally:
        shutil.rmtree(folder)


def test_a_file_that_came_back_shorter_has_no_rate(tmp_path):
    disk = disk_of(tmp_path, "disk_read")
    disk.write()
    os.truncate(disk.path, 5)

    with pytest.raises(ConfigError, match=f"{9 * MIB} bytes were written and 5 came back"):
        disk.read()


def test_a_file_that_the_storage_has_no_room_for_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100 * MIB, 95 * MIB, 5 * MIB))

    with pytest.raises(ConfigError, match="op=disk_write mib=9: 5 MiB are free"):
        disk_of(tmp_path).outcome()
    assert [] == list(tmp_path.iterdir())


def test_a_disk_roof_tells_the_storage_it_wrote_to(tmp_path):
    facts = build(op="disk_write", scratch_dir=str(tmp_path), mib=3, passes=1).facts()

    assert {"op": "disk_write", "mib": 3, "passes": 1, **storage_facts(tmp_path)} == facts


# ---------------------------------------------------------------- decoding


@pytest.mark.parametrize(("decoder", "grey_levels"), [("pillow", 0), ("tensorflow", 1)])  # two builds of one library may round apart
def test_a_step_decodes_the_next_photographs_to_their_pixels(data_dir, decoder, grey_levels):
    settings = {"data_dir": str(data_dir), "files": FILES}
    roof = build(op="jpeg_decode", decoder=decoder, batch=3, **settings)
    tally = roof.run(2)

    for photograph, pixels in zip(photographs_of(settings)[3:6], roof.made, strict=True):
        with Image.open(photograph.path) as picture:
            expected = np.asarray(picture.convert("RGB")).astype(int)
        assert np.abs(expected - np.asarray(pixels)).max() <= grey_levels
    assert (2, 6.0, "images") == (tally.steps, tally.work, tally.unit)


def test_a_decoder_says_how_many_cores_it_might_use(data_dir):
    facts = build(op="jpeg_decode", decoder="pillow", data_dir=str(data_dir), files=FILES).facts()

    assert ("pillow", 16, len(os.sched_getaffinity(0))) == tuple(facts[name] for name in ("decoder", "batch", "cores"))


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "op=None is no roof; choose one of matmul, convolution"),
        ({"op": "juggling"}, "op=juggling is no roof"),
        ({"op": "matmul", "dtype": "float8"}, "op=matmul dtype=float8: is none of float32, tf32, bfloat16, float16, int8"),
        ({"op": "matmul", "size": 0}, "op=matmul size=0: must be a whole number of at least 1"),
        ({"op": "matmul", "size": True}, "op=matmul size=True: must be a whole number"),
        ({"op": "matmul", "size": 2.5}, "op=matmul size=2.5: must be a whole number"),
        ({"op": "convolution", "dtype": "int8"}, "op=convolution dtype=int8: TensorFlow has no convolution of whole numbers"),
        ({"op": "host_copy", "threads": 100_000}, "op=host_copy threads=100000"),
        ({"op": "host_copy", "mib": 1 << 40}, "two arrays of that size do not fit"),
        ({"op": "device_copy"}, "op=device_copy needs a GPU, and 0 can be used here"),
        ({"op": "h2d"}, "op=h2d needs a GPU"),
        ({"op": "d2h"}, "op=d2h needs a GPU"),
        ({"op": "all_reduce"}, "op=all_reduce needs 2 GPUs, and 0 can be used here"),
        ({"op": "disk_read"}, "op=disk_read scratch_dir=None: is no folder"),
        ({"op": "disk_write", "scratch_dir": "nowhere"}, "op=disk_write scratch_dir=nowhere: is no folder"),
        ({"op": "jpeg_decode", "decoder": "eyes"}, "op=jpeg_decode decoder=eyes: is none of tensorflow, pillow"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused_with_the_setting(settings, said):
    with pytest.raises(ConfigError) as refused:
        build(**settings)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "said"), [({"mib": 6}, "mib=6: is moved in 4 tensors"), ({"memory": "virtual"}, "memory=virtual: is none of pageable, pinned")]
)
def test_a_transfer_that_means_nothing_is_refused(monkeypatch, settings, said):
    on_the_cpu(monkeypatch, transfers)

    with pytest.raises(ConfigError, match=said):
        build(op="h2d", **settings)


def test_every_roof_is_measured_by_some_claim():
    claims = [yaml.safe_load(path.read_text("utf-8")) for path in CLAIMS.glob("*.yaml")]
    cases = [case for claim in claims for case in claim.get("cases", []) if case.get("workload") == "roof"]

    assert set(OPS) == {arm["sizes"]["op"] for case in cases for arm in case["arms"].values()}
