"""Rounds as tables for reports, notebooks and people. pandas is imported only when a table is asked for, since it takes half a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.model import Quad, Reading, RoundRecord

if TYPE_CHECKING:
    import pandas as pd

BLOCK_COLUMNS = (
    "contrast", "round", "index", "trial", "quad", "turn", "accepted", "work", "steps", "seconds", "rate", "foreign_cores", "part", "state",
)  # fmt: skip
ROUND_COLUMNS = (
    "contrast", "round", "index", "attempt", "part", "state", "reason", "order", "quads", "accepted_quads",
    "foreign_cores", "cost_s", "started_at", "flags",
)  # fmt: skip


def blocks_frame(records: Sequence[RoundRecord]) -> pd.DataFrame:
    """Return one row a timed block, in the order measured.

    `work` in the reading's unit, `seconds` and `rate` (work a second) of that block, `foreign_cores` of its quad in cores. `part` is "main" or
    "absence", `state` how the round ended. `accepted` is false for a block whose quad was not accepted or is not listed.
    """
    import pandas as pd  # noqa: PLC0415 - late, see the module's first line

    rows: list[tuple[object, ...]] = []
    for record in records:
        quads = {(quad.part, quad.index): quad for quad in record.quads}
        state = record.outcome.state.value
        rows.extend(
            (record.contrast, record.round, record.index, *_block(reading, quads), reading.part, state)
            for reading in record.readings
            if reading.name == "work" and reading.turn is not None
        )
    return pd.DataFrame.from_records(rows, columns=BLOCK_COLUMNS)


def rounds_frame(records: Sequence[RoundRecord]) -> pd.DataFrame:
    """Return one row a round: how it ended and why, how many of its quads were accepted, the mean foreign load of those in cores (without any: of its
    jobs and single calls), its cost in seconds.

    `part` counts the starts of the run (0, then one more with every resume); `flags` are the codes of the round's flags, joined by commas.
    """
    import pandas as pd  # noqa: PLC0415 - late, see the module's first line

    return pd.DataFrame.from_records([_round(record) for record in records], columns=ROUND_COLUMNS)


def _block(reading: Reading, quads: dict[tuple[str, int], Quad]) -> tuple[object, ...]:
    quad = None if reading.quad is None else quads.get((reading.part, reading.quad))
    seconds = (reading.t1_ns - reading.t0_ns) / 1e9 if reading.t0_ns is not None and reading.t1_ns is not None else None
    rate = reading.value / seconds if seconds and reading.value is not None else None
    accepted = quad is not None and quad.accepted
    foreign = quad.foreign_cores if quad else None
    return reading.trial, reading.quad, reading.turn, accepted, reading.value, reading.n, seconds, rate, foreign


def _round(record: RoundRecord) -> tuple[object, ...]:
    accepted = [quad for quad in record.quads if quad.accepted]
    loads = [quad.foreign_cores for quad in accepted if quad.foreign_cores is not None]
    loads = loads or [reading.value for reading in record.readings if reading.name == "foreign_cores" and reading.value is not None]
    reason = record.outcome.reason.text if record.outcome.reason else None
    return (
        record.contrast, record.round, record.index, record.attempt, record.part, record.outcome.state.value, reason, record.order,
        len(record.quads), len(accepted), sum(loads) / len(loads) if loads else None, record.cost_s, record.started_at,
        ",".join(flag.code for flag in record.flags),
    )  # fmt: skip
