"""How numbers become text: one convention for every table, figure, page and console line.

Bytes are shown in binary units (KiB, MiB, GiB), durations in the unit that fits, ratios as `2.41x`, shares in per cent, all to three significant
digits. What cannot be shown is `n/a` with its reason, never `nan`, `inf` or 0. This module knows nothing of runs, claims or verdicts.
"""

from __future__ import annotations

import math
from typing import TypeGuard

NA = "n/a"

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", "k", "M", "G", "T", "P")
_SMALL = ("", "m", "µ", "n", "p", "f")


_NO_PLURALS = {"holds"}  # a statement, said of 0 and 1 alike
_LARGEST = 1e300  # beyond it a number stands for "no limit", because strict JSON has no infinity


def known(value: float | None) -> TypeGuard[float]:
    """Whether there is a number to show: neither missing, nor nan, nor infinite (or standing for it)."""
    return value is not None and math.isfinite(value) and abs(value) < _LARGEST


def missing(reason: str | None) -> str:
    """Return `n/a: reason`, or bare `n/a` where no reason is known."""
    return f"{NA}: {reason}" if reason else NA


def significant(value: float | None, digits: int = 3) -> str:
    """Return `value` to `digits` significant digits without an exponent: 2.41, 0.803, 12.3, 1,230."""
    if not known(value):
        return NA
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, digits - 1 - magnitude)
    if rounded == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    if decimals > 9:
        return f"{value:.{digits - 1}e}"
    return f"{rounded:,.{decimals}f}"


def plain(value: float | None) -> str:
    """Return a number as people write it in a claim: 2, 0.95, 1,000 (at most four significant digits, no padding)."""
    if not known(value):
        return NA
    text = significant(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def ratio(value: float | None) -> str:
    """Return a ratio with its sign of multiplication: 2.41x. A slowdown stays below one: 0.803x."""
    return f"{significant(value)}x" if known(value) else NA


def count(value: float | None) -> str:
    """Return a count with thousands separators; fractions (means of counts) keep three digits."""
    if not known(value):
        return NA
    return f"{int(value):,}" if float(value).is_integer() else significant(value)


def percent(share: float | None) -> str:
    """Return a share of one in per cent: 0.123 is `12.3 %` (with a space that does not break)."""
    return f"{significant(share * 100)}\N{NO-BREAK SPACE}%" if known(share) else NA


def size(n_bytes: float | None) -> str:
    """Return bytes in binary units: 17179869184 is `16.0 GiB`."""
    if not known(n_bytes):
        return NA
    value, unit = float(n_bytes), 0
    while abs(value) >= 1023.5 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count(value) if unit == 0 else significant(value)} {_BINARY[unit]}"


def seconds(value_s: float | None) -> str:
    """Return a duration in the unit that fits: ns, µs, ms, s, then minutes and hours from two minutes on."""
    if not known(value_s):
        return NA
    magnitude = abs(value_s)
    if magnitude == 0:
        return "0 s"
    for limit, factor, unit in ((0.9995e-6, 1e9, "ns"), (0.9995e-3, 1e6, "µs"), (0.9995, 1e3, "ms"), (120.0, 1.0, "s")):
        if magnitude < limit:
            return f"{significant(value_s * factor)} {unit}"
    if magnitude < 7200:
        return f"{significant(value_s / 60)} min"
    return f"{significant(value_s / 3600)} h"


def rate(value: float | None, unit: str) -> str:
    """Return work per second. `unit` is that of the work (`samples`) or of the rate (`samples/s`); bytes are binary, FLOP decimal-prefixed."""
    if not known(value):
        return NA
    work = unit.removesuffix("/s") or "units"
    if work in {"bytes", "B"}:
        return f"{size(value)}/s"
    if work.upper() in {"FLOP", "FLOPS"}:
        step = 0
        while abs(value) >= 999.5 and step < len(_DECIMAL) - 1:
            value, step = value / 1000, step + 1
        return f"{significant(value)} {_DECIMAL[step]}FLOP/s"
    return f"{significant(value)} {work}/s"


def quantity(value: float | None, unit: str) -> str:  # noqa: PLR0911 - one a unit
    """Return a number in its unit: "" is a ratio, then bytes, s, share, any `x/s`; other units are counts followed by their name (1 trace, 40 traces)."""
    if not known(value):
        return NA
    if unit in {"", "x"}:
        return ratio(value)
    if unit in {"bytes", "B"}:
        return size(value)
    if unit in {"s", "seconds"}:
        return seconds(value)
    if unit == "share":
        return percent(value)
    if unit.endswith("/s"):
        return rate(value, unit)
    if "J" in unit.split("/"):
        return energy(value, unit)
    return f"{count(value)} {named(value, unit)}"


def energy(value: float | None, unit: str) -> str:
    """Return joules (`J`), work per joule (`samples/J`) or joules for each unit of work (`J/sample`): 1,100 J, 41.0 GFLOP/J, 0.0250 samples/J, 41.2 mJ/sample."""
    if not known(value):
        return NA
    work = unit.removesuffix("/J")
    if work in {"FLOP", "B", "bytes"}:
        return rate(value, work).replace("/s", "/J")
    if work != unit:
        return f"{count(value)} {unit}"
    step = 0
    while 0 < abs(value) < 0.9995 and step < len(_SMALL) - 1:
        value, step = value * 1000, step + 1
    return f"{count(value)} {_SMALL[step]}{unit}"


def edge(value: float, unit: str) -> str:
    """Return a band's edge as it was said: 2x, 90 %, 0.2 s."""
    if unit in {"", "x"}:
        return f"{plain(value)}x"
    if unit == "share":
        return f"{plain(value * 100)}\N{NO-BREAK SPACE}%"
    if unit in {"bytes", "B"}:
        return size(value)
    return f"{plain(value)} {named(value, unit)}"


def band(lo: float | None, hi: float | None, unit: str, null: float | None = None) -> str:
    """Return a claimed band in words. An edge on the null itself reads `above 1x`, because no effect is no fulfilment."""
    if lo is None and hi is None:
        return "no band"
    if hi is None and lo is not None:
        return f"{'above' if lo == null else 'at least'} {edge(lo, unit)}"
    if lo is None and hi is not None:
        return f"{'below' if hi == null else 'at most'} {edge(hi, unit)}"
    if lo is None or hi is None or lo == hi:
        return f"exactly {edge(lo if lo is not None else 0.0, unit)}"
    return f"{edge(lo, unit)} to {edge(hi, unit)}"


def interval(low: float | None, high: float | None, unit: str, n: int, method: str = "t") -> str:
    """Return an interval in words; fewer than two rounds have none, an open side reads `at least` or `at most`. Of a search (`searched`) `n` are its probes."""
    if n < 2 and method in {"t", "welch"}:
        return f"no spread from n={n}"
    if not known(low) and not known(high):
        return NA
    if not known(high):
        return f"at least {quantity(low, unit)}"
    if not known(low) or (method == "bound" and low == 0):
        return f"at most {quantity(high, unit)}"
    if low == high and method in {"exact", "searched"}:
        return f"by search, {plural(n, 'probe')}" if method == "searched" else "all rounds agree" if n > 1 else "one round"
    return f"{quantity(low, unit)} to {quantity(high, unit)}"


def how(method: str, rounds: tuple[float, ...]) -> str:
    """Return the method for `measured`: what is exact without a value a round is `searched`. A search has one value, and no rounds that could agree on it."""
    return "searched" if method == "exact" and not rounds else method


def measured(point: float | None, low: float | None, high: float | None, unit: str, n: int, method: str) -> str:  # noqa: PLR0917 - in the order of an Estimate
    """Return point and interval: `2.41x (2.30x to 2.53x)`; a bound without a point is the bound alone; one round has no interval, nor has what is
    stated without one."""
    if method == "stated":
        return quantity(point, unit)
    around = _of_arms(low, high, unit, n) if method == "arms" else interval(low, high, unit, n, method)
    return f"{quantity(point, unit)} ({around})" if known(point) else around


def _of_arms(low: float | None, high: float | None, unit: str, n: int) -> str:
    """A share of `n` arms has an interval only where some of them are unclear."""
    return f"of {plural(n, 'arm')}" if low == high else f"{quantity(low, unit)} to {quantity(high, unit)} of {plural(n, 'arm')}"


def ranged(point: float | None, low: float | None, high: float | None, unit: str, n: int, reason: str | None = None) -> str:  # noqa: PLR0917
    """Return a figure of `n` rounds with their lowest and highest: `0.412 s (0.398 s to 0.441 s)`; one round says so, none says why."""
    if not known(point):
        return missing(reason)
    if n < 2 or not known(low) or not known(high):
        return f"{quantity(point, unit)} (one round)"
    return f"{quantity(point, unit)} ({quantity(low, unit)} to {quantity(high, unit)})"


def cores(value: float | None) -> str:
    """Return a load in cores: 0.05 is five per cent of one core."""
    return f"{value:.3f} cores" if known(value) else NA


def named(value: float, unit: str) -> str:
    """Return a unit's name as it stands behind a number: `trace` behind 1, `traces` behind all others. Words that are no plural stay."""
    if value != 1 or not unit.endswith("s") or unit.endswith("ss") or unit in _NO_PLURALS:
        return unit
    return unit.removesuffix("es") if unit.endswith(("ches", "shes", "sses", "xes")) else unit.removesuffix("s")


def plural(n: int, one: str, many: str | None = None) -> str:
    """Return `1 round`, `3 rounds`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
