"""libjpeg-turbo called directly, the yardstick for decoders that are built on it: JPEG to RGB, accurate transform, fancy upsampling.

That is what the library does when no flag asks for speed, and what `benchmarks.input.decoding.decode` asks of TensorFlow. Calls release Python's lock, so
that threads decode side by side. No part of the suite needs the library but this; `find` says what to install where it is missing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType

import numpy as np

from harness.errors import ConfigError

LIBRARY = "libturbojpeg.so.0"
PACKAGE = "simplejpeg"
_RGB = 0  # TJPF_RGB
_ACCURATE = 4096  # TJFLAG_ACCURATEDCT; upsampling is fancy unless TJFLAG_FASTUPSAMPLE says otherwise

Decode = Callable[[bytes], np.ndarray]


@dataclass(frozen=True)
class Library:
    """What decodes. `name` is what a reader knows it by. `decoder` opens a decoder for one thread: a function from an encoded picture to its pixels,
    uint8 (height, width, 3), which the next call may overwrite."""

    name: str
    decoder: Callable[[], AbstractContextManager[Decode]]


def find(library: str = LIBRARY, package: str = PACKAGE) -> Library:
    """Return the shared `library` where the linker finds it, otherwise what the Python `package` carries. Raises ConfigError where neither is here."""
    # One that lacks a function is older than 2.0.
    with suppress(OSError, AttributeError):
        return Library(library, partial(_opened, _declared(ctypes.CDLL(library))))
    with suppress(ImportError):
        return _carried(package, import_module(package))
    raise ConfigError(
        f"neither {library} nor the Python package {package} is here; apt-get install libturbojpeg0 (Ubuntu: libturbojpeg), or pip install {package}"
    )


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """Tell ctypes what the functions take: without it, pointers would be cut to 32 bits."""
    number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong
    library.tjInitDecompress.argtypes, library.tjInitDecompress.restype = [], pointer
    library.tjDestroy.argtypes = [pointer]
    library.tjGetErrorStr2.argtypes, library.tjGetErrorStr2.restype = [pointer], ctypes.c_char_p
    library.tjDecompressHeader3.argtypes = [pointer, ctypes.c_char_p, size, *[ctypes.POINTER(number)] * 4]
    library.tjDecompress2.argtypes = [pointer, ctypes.c_char_p, size, pointer, *[number] * 5]
    return library


@contextmanager
def _opened(library: ctypes.CDLL) -> Iterator[Decode]:
    """A decoder of the library's own, whose pixels lie in one buffer that it keeps."""
    handle = library.tjInitDecompress()
    width, height, subsampling, colours = (ctypes.c_int() for _ in range(4))
    told = [ctypes.byref(number) for number in (width, height, subsampling, colours)]
    buffer = np.empty(0, np.uint8)

    def decode(encoded: bytes) -> np.ndarray:
        nonlocal buffer
        check(library.tjDecompressHeader3(handle, encoded, len(encoded), *told))
        needed = height.value * width.value * 3
        if buffer.size < needed:
            buffer = np.empty(needed, np.uint8)
        check(library.tjDecompress2(handle, encoded, len(encoded), buffer.ctypes.data, width.value, 0, height.value, _RGB, _ACCURATE))
        return buffer[:needed].reshape(height.value, width.value, 3)

    def check(status: int) -> None:
        if status != 0:
            raise ConfigError(f"libjpeg-turbo does not decode this picture: {library.tjGetErrorStr2(handle).decode(errors='replace')}")

    try:
        yield decode
    finally:
        library.tjDestroy(handle)


def _carried(package: str, module: ModuleType) -> Library:
    decode = partial(module.decode_jpeg, colorspace="RGB", fastdct=False, fastupsample=False)
    return Library(f"{package} {module.__version__}", lambda: nullcontext(decode))
