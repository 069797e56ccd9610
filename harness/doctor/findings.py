"""What a check says: a finding, and the few short ways to make one. Knows no fact."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from harness.model import Scalar


class Level(str, Enum):
    """How much a finding matters, from least to most."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


WORST_FIRST = (Level.ERROR, Level.WARNING, Level.INFO, Level.OK)


@dataclass(frozen=True)
class Finding:
    """A code for programs, how much it matters, and for people what was found, why it matters and what to do; the numbers behind it."""

    code: str
    level: Level
    found: str
    why: str = ""
    advice: str = ""
    numbers: dict[str, Scalar] = field(default_factory=dict)


def ok(found: str, **numbers: Scalar) -> Finding:
    """Return that all is well."""
    return Finding("ok", Level.OK, found, numbers=numbers)


def info(code: str, found: str, why: str = "", advice: str = "", **numbers: Scalar) -> Finding:
    """Return something that is good to know."""
    return Finding(code, Level.INFO, found, why, advice, numbers)


def warning(code: str, found: str, why: str, advice: str, **numbers: Scalar) -> Finding:
    """Return something that makes figures worse, or other than they would be."""
    return Finding(code, Level.WARNING, found, why, advice, numbers)


def error(code: str, found: str, why: str, advice: str, **numbers: Scalar) -> Finding:
    """Return something that measuring cannot do with."""
    return Finding(code, Level.ERROR, found, why, advice, numbers)


def unknown(what: str, reason: str, why: str = "") -> Finding:
    """Return that something could not be read, and why. It is never guessed."""
    return Finding("unknown", Level.INFO, f"not known: {what}; {reason}", why)


def worst(levels: list[Level]) -> Level:
    """Return the level that matters most, OK for none."""
    return next((level for level in WORST_FIRST if level in levels), Level.OK)
