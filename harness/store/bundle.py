"""A run's folder under `results/`: created once, appended to as rounds end, read back by anyone who was handed a copy.

    <UTC time>-<machine>-<suffix>/  manifest.json  records.jsonl  verdicts.json  report.html  report.md  proofs/  logs/  plots/  live.json
                                    telemetry.jsonl (while a run goes on)  telemetry.parquet (afterwards)  doctor.json (of some sweeps)

Knows nothing of what is measured or concluded; what is in a file is `harness.model`'s business.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import BundleError
from harness.model import Examination, Manifest, RoundRecord, Verdicts
from harness.store import codec, files, private
from harness.store.schema import SCHEMA_VERSION, Data, Migration, steps_from
from harness.store.telemetry import Lines, Sample, pack_lines, telemetry_frame

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import pandas as pd

_FOLDERS = ("proofs", "logs", "plots")
_TRIES = 100
_DOCTOR, _DOCTOR_SCHEMA = "doctor.json", 1


class Bundle:
    """An open run bundle. `notes` holds sentences about what was found wanting on reading, for the report to show.

    Any number of processes may read a bundle; one at a time may append to it (its records file is locked from the first `append` on).
    """

    def __init__(self, path: Path, manifest: Manifest, steps: tuple[Migration, ...] = ()) -> None:
        """For `create` and `open`; `steps` lead from the schema of the files to today's."""
        self.path = path
        self.manifest = manifest
        self.notes: list[str] = []
        self._steps = steps
        self._clean = private.here(path)
        self._descriptor: int | None = None
        self._telemetry: Lines | None = None

    @classmethod
    def create(cls, results_dir: Path, manifest: Manifest) -> Bundle:
        """Make a new folder under `results_dir` and write `manifest` into it, with its `name` set to the folder's.

        The folder is created exclusively: parallel starts in the same second get folders of their own. Raises BundleError if that is impossible.
        """
        stem = f"{_stamp(manifest.created_at)}-{_slug(manifest.machine.slug)}"
        try:
            results_dir.mkdir(parents=True, exist_ok=True)
            path = _new_folder(results_dir, stem)
            for name in _FOLDERS:
                (path / name).mkdir()
            (path / "records.jsonl").touch(exist_ok=False)
            files.sync_folder(results_dir)
        except OSError as error:
            raise BundleError(f"no new bundle can be made under {results_dir}: {error.strerror}; choose another folder with results_dir=") from error
        bundle = cls(path, replace(manifest, name=path.name, schema_version=SCHEMA_VERSION))
        bundle.rewrite_manifest(bundle.manifest)
        return bundle

    @classmethod
    def open(cls, run: str | Path, results_dir: Path) -> Bundle:
        """Open the bundle at the path `run`, or of that name under `results_dir`.

        An older schema is migrated in memory, the files stay as they are. Raises BundleError if there is no such bundle, if its manifest is
        damaged (with the field), or if its schema is newer.
        """
        path = _find(Path(run), results_dir)
        data = codec.decode(files.read_limited(path / "manifest.json", files.PAGE_LIMIT_BYTES), dict, f"{path.name}/manifest.json")
        steps = steps_from(data.get("schema_version"), f"{path.name}/manifest.json")
        for step in steps:
            data = step.manifest(data)
        manifest = codec.convert({**data, "schema_version": SCHEMA_VERSION}, Manifest, f"{path.name}/manifest.json")
        return cls(path, manifest, steps)

    @property
    def logs(self) -> Path:
        """The folder of the processes' logs."""
        return self.path / "logs"

    @property
    def proofs(self) -> Path:
        """The folder of the proofs' arrays."""
        return self.path / "proofs"

    @property
    def tensorboard(self) -> Path:
        """The folder of what TensorBoard shows, which is made when there is any."""
        return self.path / "tensorboard"

    @property
    def live(self) -> Path:
        """The file that names the processes of a running session."""
        return self.path / "live.json"

    def append(self, record: RoundRecord) -> None:
        """Add one line to records.jsonl; it is on disk when this returns.

        Raises BundleError if a number is not finite or a value has another type than its field (naming the field), if another process is
        appending to this bundle, if the bundle is of an older schema, or if the disk refuses; then the file is as it was before.
        """
        data = codec.line(record, self._clean)
        codec.decode(data, RoundRecord, f"round {record.round}")  # a line that could not be read again would spoil the whole file
        descriptor = self._writer()
        size = os.fstat(descriptor).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise BundleError(
                f"{self.path.name}/records.jsonl: round {record.round} ({len(data)} bytes) was not written: {error.strerror}"
            ) from error

    def records(self) -> list[RoundRecord]:
        """Return all rounds in the order in which they ended.

        A last line that was torn by a crash is moved to `records.torn-N.jsonl` (left alone while another process appends). A damaged line
        in between stays where it is and is left out. Both are named in `notes`. A line of sound JSON that is no round raises BundleError with its
        number and field.
        """
        path = self.path / "records.jsonl"
        lines = files.read_limited(path, files.RECORDS_LIMIT_BYTES).split(b"\n")
        torn = lines.pop()
        found = []
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                found.append(self._record(text, f"{self.path.name}/records.jsonl line {number}"))
            except _DamagedError as error:
                self._note(f"{error}; the line was left out and stays in the file")
        if torn:
            where = f"{self.path.name}/records.jsonl line {len(lines) + 1}"
            with suppress(_DamagedError):
                found.append(self._record(torn, where))  # only its newline is missing
                return found
            aside = self._set_aside(torn)
            self._note(f"{where} was torn ({len(torn)} bytes): " + (f"set aside as {aside}" if aside else "left out"))
        return found

    def write_verdicts(self, verdicts: Verdicts) -> None:
        """Write verdicts.json, whole or not at all. Raises BundleError as `append` does for values."""
        data = codec.plain(verdicts, self._clean)
        codec.convert(data, Verdicts, "verdicts")
        files.write_atomic(self.path / "verdicts.json", codec.page({"schema_version": SCHEMA_VERSION, **data}))

    def verdicts(self) -> Verdicts | None:
        """Return what verdicts.json holds, None if the run has not been judged. Raises BundleError with the field that does not fit."""
        path = self.path / "verdicts.json"
        if not path.exists():
            return None
        where = f"{self.path.name}/verdicts.json"
        data: Data = codec.decode(files.read_limited(path, files.PAGE_LIMIT_BYTES), dict, where)
        for step in steps_from(data.pop("schema_version", None), where):
            data = step.verdicts(data)
        return codec.convert(data, Verdicts, where)

    def rewrite_manifest(self, manifest: Manifest) -> None:
        """Write manifest.json anew, whole or not at all. Raises BundleError for a bundle of an older schema, and as `append` does for values."""
        self._demand_current("its manifest cannot be rewritten")
        data = codec.plain(manifest, self._clean)
        codec.convert(data, Manifest, "manifest")
        files.write_atomic(self.path / "manifest.json", codec.page(data))
        self.manifest = manifest

    def write_text(self, name: str, text: str) -> None:
        """Write a text file in UTF-8, whole or not at all; `name` is relative to the bundle and may name a folder (`plots/x.svg`)."""
        self.write_bytes(name, text.encode("utf-8", "replace"))

    def write_cleaned(self, name: str, text: str) -> None:
        """As `write_text`, without absolute paths and the host's name."""
        self.write_text(name, "\n".join(map(self._clean, text.split("\n"))))

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all. Raises BundleError for a name that leads out of the bundle."""
        path = files.inside(self.path, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BundleError(f"{self.path.name}/{name} cannot be written: {error.strerror}") from error
        files.write_atomic(path, data)

    def append_telemetry(self, round_: str, samples: Iterable[Sample]) -> None:
        """Add samples of a round to telemetry.jsonl; a kill of this process does not lose them any more. May be called from another thread.

        Raises BundleError for a number that is not finite, for a bundle of an older schema, and if the disk refuses.
        """
        if self._telemetry is None:
            self._demand_current("no telemetry can be added to it")
            self._telemetry = Lines(self.path)
        self._telemetry.append(round_, samples, self._clean)

    def pack_telemetry(self) -> None:
        """Turn telemetry.jsonl into rows of telemetry.parquet, if there is any. If that is impossible it stays, and `notes` says why."""
        if self._telemetry is not None:
            self._telemetry.close()
            self._telemetry = None
        try:
            for note in pack_lines(self.path):
                self._note(note)
        except (BundleError, ImportError) as error:
            self._note(str(error))

    def telemetry(self) -> pd.DataFrame:
        """Return all samples: round, device, t_ns, name, value (NaN for null), reason. Empty if there are none.

        A torn or damaged line is left out and named in `notes`. Raises BundleError for a file that is none of ours, or too large.
        """
        found, notes = telemetry_frame(self.path)
        for note in notes:
            self._note(note)
        return found

    def telemetry_if_sound(self) -> pd.DataFrame | None:
        """Return `telemetry()`, or None where it cannot be read; then `notes` says why."""
        try:
            return self.telemetry()
        except (BundleError, ImportError) as error:
            self._note(str(error))
            return None

    def examination(self) -> Examination | None:
        """Return what the doctor found before the first round, None for a run that began without it, or where that cannot be read; then `notes` says why."""
        path = self.path / _DOCTOR
        if not (path.exists() or path.is_symlink()):
            return None
        where = f"{self.path.name}/{_DOCTOR}"
        try:
            found = codec.decode(files.read_limited(path, files.DOCTOR_LIMIT_BYTES), Examination, where)
        except BundleError as error:
            self._note(f"{error}; what the doctor found is not shown")
            return None
        if found.schema != _DOCTOR_SCHEMA:
            self._note(f"{where} has schema {found.schema}, and this version reads {_DOCTOR_SCHEMA}; what the doctor found is not shown")
            return None
        return found

    def load_proof(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a proof by name. `name` is that of a record (`proofs/x.npz`, or `x.npz` for short).

        Raises BundleError for a name that leads out of the bundle and for a file that is missing, too large, pickled or no .npz file.
        """
        return files.read_arrays(files.inside(self.path, name if "/" in name else f"proofs/{name}"))

    def clean_logs(self) -> None:
        """Take absolute paths and the host's name out of the logs, once no process writes to them any more."""
        for path in sorted(self.logs.glob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= files.PAGE_LIMIT_BYTES:
                text = path.read_text("utf-8", "replace")
                cleaned = "\n".join(map(self._clean, text.split("\n")))
                if cleaned != text:
                    files.write_atomic(path, cleaned.encode())

    def _record(self, text: bytes, where: str) -> RoundRecord:
        if not self._steps:
            try:
                return codec.decode(text, RoundRecord, where)
            except BundleError:
                _demand_json(text, where)
                raise
        data: Data = codec.convert(_demand_json(text, where), dict, where)
        for step in self._steps:
            data = step.record(data)
        return codec.convert(data, RoundRecord, where)

    def _writer(self) -> int:
        """Return the descriptor to append with, which holds the bundle's lock; the file then ends with a whole line."""
        if self._descriptor is None:
            self._demand_current("nothing can be added to it")
            descriptor = self._locked()
            if descriptor is None:
                raise BundleError(f"{self.path.name} is being written by another process: wait for that run to end, or start a new one")
            self._descriptor = descriptor
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                self.records()  # sets a torn line aside; a whole one lacks its newline only
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    os.write(descriptor, b"\n")
        return self._descriptor

    def _locked(self) -> int | None:
        """Return records.jsonl opened for appending and locked, None if another process holds the lock."""
        try:
            descriptor = os.open(self.path / "records.jsonl", os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise BundleError(f"{self.path.name}/records.jsonl cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:  # a file system without locks: the machine lock still keeps runs of one machine apart
            pass
        return descriptor

    def _set_aside(self, torn: bytes) -> str | None:
        """Move the torn end of records.jsonl to a file of its own and return that file's name; None if that cannot be done now."""
        mine = self._descriptor is not None
        try:
            descriptor = self._descriptor if self._descriptor is not None else self._locked()
        except BundleError:
            return None  # read-only: the note must do
        if descriptor is None:
            return None  # another process appends: the line may be half-written, not torn
        try:
            size = os.fstat(descriptor).st_size
            if os.pread(descriptor, len(torn) + 1, max(size - len(torn), 0)) != torn:
                return None  # it has grown since it was read
            number = next(n for n in range(1, _TRIES) if not (self.path / f"records.torn-{n}.jsonl").exists())
            aside = self.path / f"records.torn-{number}.jsonl"
            files.write_atomic(aside, torn)
            os.ftruncate(descriptor, size - len(torn))
            os.fsync(descriptor)
        except (OSError, BundleError, StopIteration):
            return None
        finally:
            if not mine:
                os.close(descriptor)
        return aside.name

    def _demand_current(self, consequence: str) -> None:
        if self._steps:
            raise BundleError(f"{self.path.name} is of an older schema, so {consequence}; it can be judged and reported, or start a new run")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


class _DamagedError(Exception):
    """A line of records.jsonl that is no JSON at all."""


def _demand_json(text: bytes, where: str) -> object:
    try:
        return codec.decode(text, object, where)
    except BundleError as error:
        raise _DamagedError(str(error)) from error


def _stamp(created_at: str) -> str:
    try:
        moment = datetime.fromisoformat(created_at.replace("Z", "+00:00"))
    except ValueError as error:
        raise BundleError(f"manifest.created_at is {created_at!r}, no time in ISO 8601 such as 2026-01-31T12:00:00Z") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.astimezone(timezone.utc).strftime("%Y%m%dT%H%M%SZ")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48].rstrip("-") or "machine"


def _new_folder(results_dir: Path, stem: str) -> Path:
    for _ in range(_TRIES):
        path = results_dir / f"{stem}-{secrets.token_hex(3)}"
        with suppress(FileExistsError):
            path.mkdir()
            return path
    raise BundleError(f"{_TRIES} folders named {stem}-* under {results_dir} were taken at once: choose another folder with results_dir=")


def _find(run: Path, results_dir: Path) -> Path:
    for path in (run, results_dir / run):
        if (path / "manifest.json").exists():
            return path.resolve()
    if run.is_dir() or (results_dir / run).is_dir():
        raise BundleError(f"{run} holds no manifest.json: it is no run bundle, or one whose start was cut off")
    known = sorted((path.parent.name for path in results_dir.glob("*/manifest.json")), reverse=True)[:3]
    hint = "the newest there are " + ", ".join(known) if known else "there is none yet"
    raise BundleError(f"{run} is neither the path of a run bundle nor the name of one under {results_dir}; {hint}")
