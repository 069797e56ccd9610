"""Values of `harness.model` to strict JSON and back. Knows no file.

A field that holds its default is left out and comes back on reading: a round of twelve blocks is then a fifth smaller. JSON has no word for
NaN or infinity, so they are refused with the field's name: whoever made the value has to say null and why.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import msgspec

from harness.errors import BundleError

T = TypeVar("T")
_NOTHING = object()


def plain(value: object, clean: Callable[[str], str] = str, where: str = "$") -> Any:  # noqa: ANN401, PLR0911 - JSON has no narrower type and seven kinds of value
    """Return `value` as dicts, lists, strings, numbers, booleans and None, without the fields of dataclasses that hold their default.

    `clean` is applied to every string (not to the keys of dicts). Raises BundleError that names the field where a number is not finite or
    where the value has no JSON form; `where` is the name of `value` itself.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BundleError(f"{where} is {value}, which JSON cannot hold: write null with a reason instead")
        return value
    if isinstance(value, (tuple, list)):
        return [plain(item, clean, f"{where}[{position}]") for position, item in enumerate(value)]
    if isinstance(value, dict):
        return {_key(key, where): plain(item, clean, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(value):
        return _plain_fields(value, clean, where)
    raise BundleError(f"{where} is a {type(value).__name__}, which has no JSON form: hand in plain numbers, strings, lists or dicts")


def line(value: object, clean: Callable[[str], str] = str) -> bytes:
    """Return `value` as one line of JSON in UTF-8 with its newline. Raises as `plain` does."""
    return _dumps(plain(value, clean)) + b"\n"


def page(data: Mapping[str, object]) -> bytes:
    """Return plain `data` as JSON in UTF-8 with one key a line: small, and two versions of it can be compared line by line."""
    return b"{\n" + b",\n".join(_dumps(key) + b": " + _dumps(item) for key, item in data.items()) + b"\n}\n"


def decode(data: bytes, kind: type[T], where: str) -> T:
    """Return `kind` read from JSON bytes. Raises BundleError with `where` and the field that does not fit."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:  # ValidationError, its child, names the field in its text
        raise BundleError(f"{where} cannot be read: {error}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{where} cannot be read: {type(error).__name__}: {error}") from error


def convert(data: object, kind: type[T], where: str) -> T:
    """Return `kind` from plain data. Raises BundleError with `where` and the field that does not fit."""
    try:
        return msgspec.convert(data, type=kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BundleError(f"{where} cannot be read: {error}") from error


def _dumps(data: object) -> bytes:
    # A lone surrogate stands for a byte that was no text (a log line, a file name); no strict reader accepts one, so it becomes "?".
    return json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise BundleError(f"{where} has the key {key!r}, a {type(key).__name__}: keys are strings in JSON")
    return key


def _plain_fields(value: Any, clean: Callable[[str], str], where: str) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    data = {}
    for name, default in _defaults(value.__class__):
        held = getattr(value, name)
        if held != default:
            data[name] = plain(held, clean, f"{where}.{name}")
    return data


@cache
def _defaults(kind: Any) -> tuple[tuple[str, object], ...]:  # noqa: ANN401 - any dataclass
    return tuple((field.name, _default(field)) for field in fields(kind))


def _default(field: Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    return _NOTHING if field.default_factory is MISSING else field.default_factory()
