"""A bundle's telemetry: lines of JSON while a run goes on, so that a kill loses nothing, and one columnar file once a part of the run has ended.

    telemetry.jsonl     {"id": ...}, then one line for each device and moment: {"round", "device", "t_ns", "values": {name: number or null}, "reasons": {...}}
    telemetry.parquet   one row a sample: round, device, t_ns, name, value, reason

A file of lines has an id, and the columnar file names those that went into it: a crash between packing and removing the lines doubles nothing.
pyarrow and pandas are imported only when a table is packed or asked for.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import BundleError
from harness.store import codec, files

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

LINES = "telemetry.jsonl"
TABLE = "telemetry.parquet"
COLUMNS = ("round", "device", "t_ns", "name", "value", "reason")
LIMIT_BYTES = 4096 * files.MIB
LINE_BYTES = files.MIB
"""A line holds the names that one device has at one moment."""
ROWS_LIMIT = 200_000_000
CHUNK_ROWS = 100_000
PACKED = b"packed"
"""The key under which the columnar file names what went into it."""

Row = tuple[str, str, int, str, float | None, str | None]


class Sample(Protocol):
    """What is written: one value of one device at one moment, or why there is none."""

    @property
    def device(self) -> str: ...
    @property
    def t_ns(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> float | None: ...
    @property
    def reason(self) -> str | None: ...


class Lines:
    """telemetry.jsonl, opened for appending. Each batch is whole on the kernel's side when `append` returns; it is not forced to disk."""

    def __init__(self, folder: Path) -> None:
        """Raises BundleError if the file cannot be opened. A line that a kill tore is ended, so that it spoils no other."""
        self._where = f"{folder.name}/{LINES}"
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(folder / LINES, flags, 0o666)
            size = os.fstat(self._descriptor).st_size
            if not size:
                self._write(codec.line({"id": secrets.token_hex(8)}))
            elif os.pread(self._descriptor, 1, size - 1) != b"\n":
                self._write(b"\n")
        except OSError as error:
            raise BundleError(f"{self._where} cannot be written: {error.strerror}") from error

    def append(self, round_: str, samples: Iterable[Sample], clean: Callable[[str], str]) -> None:
        """Add samples of a round. Raises BundleError for a number that is not finite, naming the sample, and if the disk refuses."""
        moments: dict[tuple[str, int], dict[str, Any]] = {}
        for sample in samples:
            empty = {"round": round_, "device": sample.device, "t_ns": sample.t_ns, "values": {}}
            moment = moments.setdefault((sample.device, sample.t_ns), empty)
            moment["values"][sample.name] = _short(sample.value)
            if sample.reason is not None:
                moment.setdefault("reasons", {})[sample.name] = sample.reason
        data = b"".join(codec.line(moment, clean) for moment in moments.values())
        size = os.fstat(self._descriptor).st_size
        try:
            self._write(data)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise BundleError(f"{self._where}: {len(data)} bytes of round {round_} were not written: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


def pack_lines(folder: Path) -> list[str]:
    """Turn telemetry.jsonl into rows of telemetry.parquet, behind those that are there, and remove it; returns what was wrong with lines.

    Nothing happens where there are no lines. Raises BundleError if it cannot be done; the lines then stay as they are.
    """
    lines = folder / LINES
    if not lines.exists():
        return []
    import pyarrow as pa  # noqa: PLC0415 - late, see the module's first lines
    import pyarrow.parquet as pq  # noqa: PLC0415

    notes: list[str] = []
    packed = _packed(folder)
    own = _id_of(folder)
    for left in folder.glob(f".{TABLE}.*"):  # by a process that was killed while it packed
        left.unlink(missing_ok=True)
    if own is None or own not in packed:
        temporary = folder / f".{TABLE}.{secrets.token_hex(4)}"
        schema = _schema([*packed, *([own] if own else [])])
        try:
            with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
                for table in chain(_old_tables(folder), _chunks(folder, notes)):
                    writer.write_table(table.cast(schema))
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(folder / TABLE)
            files.sync_folder(folder)
        except (OSError, pa.ArrowException) as error:
            raise BundleError(f"{folder.name}/{LINES} could not be packed into {TABLE}: {error}; the lines stay") from error
        finally:
            temporary.unlink(missing_ok=True)
    lines.unlink()
    return notes


def telemetry_frame(folder: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return all samples of a bundle, in the order in which they were taken, and what was wrong with lines. A value that is null reads as NaN.

    `round`, `device` and `name` are categories. Raises BundleError for a file that is none of ours, or too large.
    """
    import pyarrow as pa  # noqa: PLC0415 - late, see the module's first lines

    notes: list[str] = []
    tables = [*_old_tables(folder)]
    if (folder / LINES).exists() and _id_of(folder) not in _packed(folder):
        tables += _chunks(folder, notes)
    if not tables:
        return _schema([]).empty_table().to_pandas(), notes
    return pa.concat_tables([table.replace_schema_metadata(None) for table in tables]).unify_dictionaries().to_pandas(), notes


def _schema(packed: Sequence[str]) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415 - late, see the module's first lines

    word = pa.dictionary(pa.int32(), pa.string())
    types = {"round": word, "device": word, "t_ns": pa.int64(), "name": word, "value": pa.float64(), "reason": pa.string()}
    return pa.schema([(name, types[name]) for name in COLUMNS], metadata={PACKED: json.dumps(list(packed)).encode()})


def _old_tables(folder: Path) -> Iterator[pa.Table]:
    """Yield telemetry.parquet in pieces, checked: it may come from anyone."""
    import pyarrow as pa  # noqa: PLC0415 - late, see the module's first lines
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = folder / TABLE
    if not path.exists():
        return
    where = f"{folder.name}/{TABLE}"
    with files.open_plain(path) as file:
        files.check_size(path, os.fstat(file.fileno()).st_size, LIMIT_BYTES)
        try:
            table = pq.ParquetFile(file, read_dictionary=["round", "device", "name"])
            if table.metadata.num_rows > ROWS_LIMIT:
                raise BundleError(f"{where} claims {table.metadata.num_rows} rows, more than the {ROWS_LIMIT} that it may have")
            if not table.schema_arrow.equals(_schema([])):
                raise BundleError(f"{where} has other columns than {', '.join(COLUMNS)}: it was not written by this suite, or is damaged")
            for batch in table.iter_batches(CHUNK_ROWS):
                yield pa.Table.from_batches([batch])
        except KeyError as error:  # a column to be read as a dictionary that is not there
            raise BundleError(f"{where} has other columns than {', '.join(COLUMNS)}: it was not written by this suite, or is damaged") from error
        except (pa.ArrowException, OSError) as error:
            raise BundleError(f"{where} cannot be read: {error}") from error


def _packed(folder: Path) -> list[str]:
    """Return the ids of the files of lines that went into telemetry.parquet."""
    import pyarrow as pa  # noqa: PLC0415 - late, see the module's first lines
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = folder / TABLE
    if not path.exists():
        return []
    with files.open_plain(path) as file:
        try:
            told = (pq.read_schema(file).metadata or {}).get(PACKED, b"[]")
            return [str(name) for name in json.loads(told)]
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise BundleError(f"{folder.name}/{TABLE} cannot be read: {error}") from error


def _chunks(folder: Path, notes: list[str]) -> Iterator[pa.Table]:
    """Yield telemetry.jsonl as tables of at most about CHUNK_ROWS rows; what is wrong with lines goes to `notes`."""
    import pyarrow as pa  # noqa: PLC0415 - late, see the module's first lines

    schema = _schema([])
    rows: list[Row] = []

    def table() -> pa.Table:
        columns = zip(*rows, strict=True)
        return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)

    for found in _rows(folder, notes):
        rows += found
        if len(rows) >= CHUNK_ROWS:
            yield table()
            rows.clear()
    if rows:
        yield table()


def _rows(folder: Path, notes: list[str]) -> Iterator[list[Row]]:
    """Yield the samples of each line. Lines that a kill tore, or that are none of ours, are left out and counted in a note."""
    path = folder / LINES
    damaged: list[int] = []
    with files.open_plain(path) as file:
        files.check_size(path, os.fstat(file.fileno()).st_size, LIMIT_BYTES)
        for number, text in enumerate(iter(lambda: file.readline(LINE_BYTES), b""), 1):
            if not text.strip():
                continue
            try:
                told = codec.decode(text, dict, "line")
                found = [] if "id" in told else _samples(told)
            except (BundleError, KeyError, TypeError, AttributeError, OverflowError):
                damaged.append(number)
                continue
            yield found
    if damaged:
        which = f"line {damaged[0]} is" if len(damaged) == 1 else f"{len(damaged)} lines, the first of them {damaged[0]}, are"
        notes.append(f"{folder.name}/{LINES}: {which} torn or damaged and left out")


def _samples(told: dict[str, Any]) -> list[Row]:
    """Return a line's samples. Raises one of many errors for a line that is none of ours."""
    round_, device, t_ns, values = told["round"], told["device"], told["t_ns"], told["values"]
    reasons = {str(name): str(reason) for name, reason in told.get("reasons", {}).items()}
    strange = [value for value in (t_ns, *values.values()) if isinstance(value, bool) or not isinstance(value, (int, float, type(None)))]
    if strange or not isinstance(round_, str) or not isinstance(device, str) or not isinstance(t_ns, int) or abs(t_ns) >= 2**63:
        raise TypeError(strange)
    return [(round_, device, t_ns, name, None if value is None else float(value), reasons.get(name)) for name, value in values.items()]


def _id_of(folder: Path) -> str | None:
    """Return the id in the first line of telemetry.jsonl, None if that line is torn."""
    with files.open_plain(folder / LINES) as file:
        text = file.readline(1000)
    try:
        told = codec.decode(text, dict, "line").get("id")
    except BundleError:
        return None
    return told if isinstance(told, str) else None


def _short(value: float | None) -> float | int | None:
    """A whole number needs no ".0": most counters are whole."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
