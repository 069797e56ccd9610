"""Figures of roofs beside those of other tools on the same machine, minutes apart at most.

These are no proofs: both sides feel what else the machine does. Each side's best of several turns is taken, and the bands are wide enough for a shared
machine and narrow enough that work counted twice, or half of it, would show.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

pytest.importorskip("tensorflow")

from benchmarks.input import photographs_of  # noqa: E402 - after the check for TensorFlow
from benchmarks.roofs import build, copies  # noqa: E402
from benchmarks.roofs.common import MIB  # noqa: E402

from .conftest import FILES  # noqa: E402

TURNS = 5
COPY_IN_C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Copies an array of argv[1] bytes argv[2] times; prints bytes read and written per second. */
int main(int argc, char **argv) {
    size_t size = strtoull(argv[1], NULL, 10);
    int times = atoi(argv[2]);
    char *from = malloc(size), *to = malloc(size);
    struct timespec begin, end;
    (void)argc;
    if (!from || !to) return 1;
    memset(from, 7, size);
    memset(to, 1, size);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < times; i++) {
        memcpy(to, from, size);
        __asm__ volatile("" ::: "memory");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (end.tv_sec - begin.tv_sec) + (end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("%.6e\n", 2.0 * size * times / seconds);
    return to[size - 1] == 7 ? 0 : 2;
}
"""


def rate_of(roof, steps):
    began_s = time.perf_counter()
    tally = roof.run(steps)
    return tally.work / (time.perf_counter() - began_s)


def best_ratio(ours, theirs):
    """The best of TURNS figures of each of two sides that take turns, as a ratio."""
    pairs = [(ours(), theirs()) for _ in range(TURNS)]
    return max(one for one, _ in pairs) / max(other for _, other in pairs)


def test_a_host_copy_by_one_thread_is_as_fast_as_a_program_in_c(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("cc is missing: the program to compare with cannot be compiled")
    (tmp_path / "copy.c").write_text(COPY_IN_C)
    subprocess.run(["cc", "-O2", "-std=gnu11", "-o", str(tmp_path / "copy"), str(tmp_path / "copy.c")], check=True)
    size_bytes = 512 * MIB
    roof = copies.HostCopy(size_bytes, 1, None)

    def in_c():
        done = subprocess.run([str(tmp_path / "copy"), str(size_bytes), "4"], check=True, capture_output=True, text=True)
        return float(done.stdout)

    # Both call memcpy. One may get larger pages than the other, and neighbours take a share of the memory now and then.
    assert 0.6 < best_ratio(lambda: rate_of(roof, 4), in_c) < 1.65


def test_a_file_is_written_as_fast_as_by_the_bare_system_calls(tmp_path):
    size_bytes, chunk = 128 * MIB, np.random.default_rng(1).bytes(4 * MIB)
    roof = build(op="disk_write", scratch_dir=str(tmp_path), mib=size_bytes // MIB, passes=1)

    def bare():
        began_s = time.perf_counter()
        descriptor = os.open(tmp_path / "bare.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for _ in range(size_bytes // len(chunk)):
            os.write(descriptor, chunk)
        os.fsync(descriptor)
        seconds = time.perf_counter() - began_s
        os.close(descriptor)
        (tmp_path / "bare.bin").unlink()
        return size_bytes / seconds

    # Storage that others share varies by more than memory does.
    assert 0.4 < best_ratio(lambda: roof.outcome()[0].value, bare) < 2.5


def test_photographs_are_decoded_as_fast_as_in_a_plain_loop(data_dir):
    settings = {"data_dir": str(data_dir), "files": FILES}
    encoded = [Path(photograph.path).read_bytes() for photograph in photographs_of(settings)]
    roof = build(op="jpeg_decode", decoder="pillow", batch=FILES, **settings)

    def plain():
        began_s = time.perf_counter()
        for one in encoded:
            with Image.open(BytesIO(one)) as picture:
                picture.load()
        return len(encoded) / (time.perf_counter() - began_s)

    # The roof also hands the pixels over to numpy, which takes some per cent.
    assert 0.6 < best_ratio(lambda: rate_of(roof, 1), plain) < 1.3


def test_both_decoders_are_one_library_and_about_as_fast(data_dir):
    roofs = [build(op="jpeg_decode", decoder=decoder, batch=FILES, data_dir=str(data_dir), files=FILES) for decoder in ("tensorflow", "pillow")]

    # Builds of it differ: in the processor's instructions that they use, in what they allocate.
    assert 0.4 < best_ratio(*(lambda roof=roof: rate_of(roof, 1) for roof in roofs)) < 2.5
