"""From a run's manifest, records and verdicts to a report that people read: a page, the same as Markdown, and the figures as files.

Everything is a pure function of its arguments; writing is the business of `harness.store`. The heavy libraries are imported when a report is
made, so that importing this package costs nothing. This room must not know how anything was measured or judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from harness.model import Examination, Manifest, RoundRecord, Verdicts
    from harness.report.index import Index


def render(  # noqa: PLR0917 - what a bundle holds, in its order
    manifest: Manifest,
    records: Sequence[RoundRecord],
    verdicts: Verdicts,
    notes: Sequence[str],
    samples: pd.DataFrame | None = None,
    examination: Examination | None = None,
) -> dict[str, bytes]:
    """Return the files of the report by their name inside the bundle: report.html, report.md, plots/<name>.svg and .png.

    `notes` are what opening the bundle brought up, `samples` its telemetry, `examination` what the doctor found. A run of which nothing is judged yet gives a report
    that says so. A figure that has nothing to show is left out.
    """
    from harness.report import canvas, figures  # noqa: PLC0415 - matplotlib and pandas are slow to import
    from harness.report.content import make_content  # noqa: PLC0415
    from harness.report.index import build_index  # noqa: PLC0415
    from harness.report.markdown import to_markdown  # noqa: PLC0415
    from harness.report.page import picture, to_html  # noqa: PLC0415

    index = build_index(manifest, records, verdicts)
    tables = make_tables(index, samples, examination)
    content = make_content(index, tables, notes)
    files: dict[str, bytes] = {}
    pictures = {}
    with canvas.style():
        narrow = figures.draw(tables, canvas.NARROW)
        for name, figure in figures.draw(tables, canvas.WIDE).items():
            files[f"plots/{name}.svg"] = canvas.to_svg(figure)
            files[f"plots/{name}.png"] = canvas.to_png(figure)
            pictures[name] = picture(files[f"plots/{name}.svg"], canvas.to_svg(narrow[name]))
    files["report.html"] = to_html(content, pictures).encode()
    files["report.md"] = to_markdown(content, {name: f"plots/{name}.svg" for name in pictures}).encode()
    return files


def make_tables(index: Index, samples: pd.DataFrame | None = None, examination: Examination | None = None) -> dict[str, Any]:
    """Return every frame of the report by name, from one pass over the records. `samples` is the frame of `Bundle.telemetry`, `examination` goes through as it is."""
    import pandas as pd  # noqa: PLC0415 - as above

    from harness.report import blocks, feeds, jobs, mfu, saves, tables, telemetry, usage  # noqa: PLC0415

    timed = blocks.timed_blocks(index.records)
    # Proofs and lessons do something else than train for a while: their memory and start-up would only hide what the arms need.
    trained = [record for record in index.records if record.quads]
    rounds = blocks.round_rates(timed)
    cases = tables.cases_frame(index)
    ladders = tables.ladder_tables(index)
    arms = tables.arms_frame(index, blocks.levels_frame(rounds))
    pipelines, replays = feeds.pipelines_frame(index, arms), feeds.replay_frame(index, arms)
    roofs = mfu.roofs_of(index, arms)
    waits, job_waits = blocks.waits_frame(index.records, timed), jobs.job_waits_frame(index)
    return {
        "rounds": rounds,
        "forest": tables.forest_frame(cases),
        "others": tables.other_scales(cases),
        "speedups": tables.speedups_frame(index),
        "ladders": ladders,
        "ladder": [(ladder.title, ladder.rows) for ladder in ladders],
        "throughput": tables.batch_frame(index, arms),
        "memory": tables.labelled(index, blocks.memory_frame(trained)),
        "phases": tables.labelled(index, blocks.phases_frame(trained)),
        "waits": tables.labelled(index, pd.concat([waits, job_waits]) if len(waits) and len(job_waits) else waits if len(waits) else job_waits),
        "pipelines": pipelines,
        "need": feeds.need(index, arms, pipelines) if len(pipelines) else None,
        "replay": replays,
        "feeding": feeds.feeding_frame(index, replays),
        "timeline": jobs.timeline_frame(index),
        "saves": saves.saves_frame(index),
        "save_levels": saves.save_levels(index),
        "restored": saves.restored_counts(index),
        "slowdown": saves.slowdown_frame(index),
        "doctor": examination,
        "telemetry": telemetry.scenes_of(index, samples),
        "usage": usage.usage_frame(index),
        "host": usage.host_frame(index, samples),
        "energy": usage.energy_frame(index, samples),
        "mfu": mfu.mfu_frame(index, timed, arms),
        "roofs": roofs,
        "rooflines": mfu.rooflines(roofs),
    }
