"""The one room that touches the results folder: run bundles are created, appended to, read back and turned into tables here.

It must not know how a figure was measured or what it means. pandas and numpy are imported only when a table or an array is asked for.

    bundle = Bundle.create(Path("results"), manifest)
    bundle.append(record)                       # one line of records.jsonl, on disk when this returns
    bundle.write_verdicts(verdicts)

    again = Bundle.open(bundle.path.name, Path("results"))
    blocks_frame(again.records())
"""

from harness.store.bundle import Bundle
from harness.store.frames import blocks_frame, rounds_frame
from harness.store.schema import SCHEMA_VERSION

__all__ = ["SCHEMA_VERSION", "Bundle", "blocks_frame", "rounds_frame"]
