"""libjpeg-turbo called directly: through a stand-in for its library, through the package that carries it, and where neither is here."""

from __future__ import annotations

import ctypes
import io
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from benchmarks.libjpeg_turbo import find
from harness.errors import ConfigError

NOWHERE = "libno-such-library.so.0"
NO_PACKAGE = "no_such_package"
ENCODED = bytes([2, 3, 7, 0, 9])
"""A picture to the stand-in: width, height, the value of all pixels; it holds a zero byte, as JPEGs do."""

STAND_IN = """
#include <string.h>
static int handle;
static int open_handles;
static char reason[] = "no reason";
int stand_in_open(void) { return open_handles; }
void *tjInitDecompress(void) { open_handles++; return &handle; }
int tjDestroy(void *it) { open_handles -= it == &handle; return 0; }
char *tjGetErrorStr2(void *it) { (void)it; return reason; }
int tjDecompressHeader3(void *it, const unsigned char *from, unsigned long size, int *width, int *height, int *subsampling, int *colours) {
    strcpy(reason, "too short");
    if (it != &handle || size < 5) return -1;
    *width = from[0]; *height = from[1]; *subsampling = 2; *colours = 1;
    return 0;
}
int tjDecompress2(void *it, const unsigned char *from, unsigned long size, unsigned char *to, int width, int pitch, int height, int format, int flags) {
    strcpy(reason, "flags");
    if (it != &handle || size < 5 || pitch != 0 || format != 0 || flags != 4096) return -1;
    memset(to, from[2], 3 * (unsigned long)width * (unsigned long)height);
    return 0;
}
"""
"""What TurboJPEG's functions look like; refuses anything but RGB (0) with the accurate transform and fancy upsampling (flag 4096, without 256 or 2048)."""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """The path of a library with TurboJPEG's functions; the test is skipped where there is no compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing: the stand-in for libjpeg-turbo cannot be compiled")
    folder = tmp_path_factory.mktemp("turbojpeg")
    (folder / "stand_in.c").write_text(STAND_IN)
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-std=c11", "-o", folder / "libstand-in.so", folder / "stand_in.c"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return str(folder / "libstand-in.so")


def test_the_library_decodes_to_rgb_with_the_accurate_transform_and_fancy_upsampling(stand_in):
    library = find(stand_in, NO_PACKAGE)
    with library.decoder() as decode:
        pixels = decode(ENCODED)

    assert stand_in == library.name
    assert (np.uint8, (3, 2, 3), {7}) == (pixels.dtype, pixels.shape, set(pixels.ravel().tolist()))


def test_a_decoder_takes_larger_and_smaller_pictures_in_turn(stand_in):
    with find(stand_in, NO_PACKAGE).decoder() as decode:
        shapes = [decode(bytes([width, height, 1, 0, 0])).shape for width, height in ((2, 3), (40, 50), (1, 1))]

    assert [(3, 2, 3), (50, 40, 3), (1, 1, 3)] == shapes


def test_what_the_library_refuses_is_told_in_its_words(stand_in):
    with find(stand_in, NO_PACKAGE).decoder() as decode, pytest.raises(ConfigError, match="does not decode this picture: too short"):
        decode(b"no")


def test_a_decoder_is_closed_also_after_an_error(stand_in):
    with pytest.raises(ConfigError), find(stand_in, NO_PACKAGE).decoder() as decode:
        decode(b"no")

    assert 0 == ctypes.CDLL(stand_in).stand_in_open()


def test_a_package_that_carries_the_library_does_as_well(monkeypatch):
    asked = []
    module = SimpleNamespace(__version__="9.9", decode_jpeg=lambda encoded, **how: asked.append((encoded, how)) or "pixels")
    monkeypatch.setitem(sys.modules, "simplejpeg", module)
    library = find(NOWHERE)
    with library.decoder() as decode:
        assert "pixels" == decode(b"encoded")

    assert "simplejpeg 9.9" == library.name
    assert [(b"encoded", {"colorspace": "RGB", "fastdct": False, "fastupsample": False})] == asked


def test_the_library_itself_is_preferred_to_a_package(stand_in, monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", SimpleNamespace(__version__="9.9", decode_jpeg=None))

    assert stand_in == find(stand_in).name


def test_a_library_without_these_functions_is_none():
    with pytest.raises(ConfigError, match="is here"):
        find("libc.so.6", NO_PACKAGE)


def test_where_neither_is_here_the_message_says_what_to_install():
    with pytest.raises(ConfigError, match="apt-get install libturbojpeg0.* or pip install no_such_package") as caught:
        find(NOWHERE, NO_PACKAGE)

    assert 1 == len(str(caught.value).splitlines())


def test_the_real_library_gives_pillows_pixels():
    try:
        library = find()
    except ConfigError as error:
        pytest.skip(str(error))
    smooth = np.linspace(0, 255, 61 * 83 * 3).reshape(61, 83, 3).astype(np.uint8)
    Image.fromarray(smooth).save(held := io.BytesIO(), "JPEG", quality=90, subsampling="4:2:0")
    with library.decoder() as decode, Image.open(held) as picture:
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), decode(held.getvalue()))
