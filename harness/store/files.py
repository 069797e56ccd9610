"""Files of a bundle, read and written as if someone wished us ill: names stay inside, sizes are limited, a file is whole or not there.

Knows nothing of what the files mean. numpy is imported only when arrays are read.
"""

from __future__ import annotations

import os
import secrets
import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING

from harness.errors import BundleError

if TYPE_CHECKING:
    import numpy as np

MIB = 2**20
PAGE_LIMIT_BYTES = 64 * MIB  # manifest.json, verdicts.json
DOCTOR_LIMIT_BYTES = MIB  # doctor.json
RECORDS_LIMIT_BYTES = 1024 * MIB
PROOF_LIMIT_BYTES = 256 * MIB  # of all arrays of one file once unpacked
PROOF_MEMBERS_LIMIT = 1000


def inside(folder: Path, name: str) -> Path:
    """Return the path of `name` under `folder`. Raises BundleError for an absolute name, one with `..`, and one that leads through a link."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") for part in parts) or any(letter in name for letter in "\\\0"):
        raise BundleError(f"{folder.name} names the file {name!r}: a name inside a bundle is relative, without '..', '\\' and empty parts")
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise BundleError(f"{folder.name}: {name!r} leads through the link {part!r}; a bundle holds files of its own only")
    return path


def read_limited(path: Path, limit_bytes: int) -> bytes:
    """Return the bytes of a plain file. Raises BundleError if it is missing, a link, no plain file, or larger than `limit_bytes`."""
    with open_plain(path) as file:
        check_size(path, os.fstat(file.fileno()).st_size, limit_bytes)
        return file.read(limit_bytes + 1)


def open_plain(path: Path) -> IO[bytes]:
    """Return the plain file `path` opened for reading. Raises BundleError if it is missing, a link, or a pipe, device or folder."""
    where = f"{path.parent.name}/{path.name}"
    try:
        # Without O_NONBLOCK opening a pipe that someone left there would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise BundleError(f"{where} is missing: the bundle is incomplete, or this is none") from error
    except OSError as error:
        raise BundleError(f"{where} cannot be opened: {error.strerror} (a link is refused)") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"{where} is no plain file, which a bundle never holds there")
    return os.fdopen(descriptor, "rb")


def check_size(path: Path, size_bytes: int, limit_bytes: int) -> None:
    """Raise BundleError if `size_bytes` is over `limit_bytes`."""
    if size_bytes > limit_bytes:
        raise BundleError(
            f"{path.parent.name}/{path.name} has {size_bytes / MIB:.1f} MiB, more than the {limit_bytes // MIB} MiB that a bundle's file may have: "
            "it was not written by this suite, or is damaged"
        )


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or the new one, never half of one. Raises BundleError if it cannot be written."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise BundleError(f"{path.parent.name}/{path.name} ({len(data)} bytes) cannot be written: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_arrays(path: Path, limit_bytes: int = PROOF_LIMIT_BYTES) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name.

    Nothing is unpickled, and nothing is unpacked before the sizes that the file claims were found to be at most `limit_bytes` together and
    to agree with the arrays' own headers. Raises BundleError otherwise, and for anything that is no .npz file.
    """
    where = f"{path.parent.name}/{path.name}"
    with open_plain(path) as file:
        check_size(path, os.fstat(file.fileno()).st_size, limit_bytes)
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                check_size(path, sum(member.file_size for member in members), limit_bytes)
                if len(members) > PROOF_MEMBERS_LIMIT:
                    raise BundleError(f"{where} holds {len(members)} arrays, more than the {PROOF_MEMBERS_LIMIT} that a proof may have")
                return {member.filename.removesuffix(".npy"): _read_array(archive, member, where) for member in members}
        # What a hostile file makes numpy and zipfile raise is open-ended; all of it means that the file is not one of ours.
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, KeyError, RuntimeError, SyntaxError) as error:
            raise BundleError(f"{where} is no readable .npz file: {type(error).__name__}: {error}") from error


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> np.ndarray:
    import numpy as np  # noqa: PLC0415 - late, see the module's first lines

    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(stream)
        count = 1
        for length in shape:
            count *= length  # Python's integers do not overflow
        if dtype.hasobject or count * dtype.itemsize > member.file_size:
            raise BundleError(f"{where}: {member.filename} claims shape {shape} of {dtype} in {member.file_size} bytes: it is damaged or hostile")
    with archive.open(member) as stream:
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        return array
