"""Pictures are stored small and stay the same pictures: outlines, places, references; nothing that draws is lost."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from harness.report import canvas, figures, job_figures
from harness.report.svg import compact
from tests.report.test_figures import claim_row

NS = "{http://www.w3.org/2000/svg}"


def as_written(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    """A forest as matplotlib writes it and made small."""
    with canvas.style():
        svg = as_written(figures.forest(pd.DataFrame([claim_row(claim=f"claim-{i}", title="ResNet-50, batch 32") for i in range(6)]), canvas.WIDE))
    return svg, compact(svg)


def test_a_picture_takes_half_the_bytes_or_less(pair):
    assert len(pair[1]) < len(pair[0]) / 2


def test_every_letter_that_draws_is_kept(pair):
    before, after = (ET.fromstring(svg) for svg in pair)
    spaces = {f"#{path.get('id')}" for path in before.iter(f"{NS}path") if path.get("id") and not path.get("d", "").strip()}
    letters = [use for use in before.iter(f"{NS}use") if use.get("{http://www.w3.org/1999/xlink}href") not in spaces]
    assert len(letters) == len(list(after.iter(f"{NS}use")))


def test_every_reference_has_its_target(pair):
    after = pair[1].decode()
    asked = set(re.findall(r"url\(#(\w+)\)|href='#(\w+)'", after))
    assert {name for names in asked for name in names if name} <= set(re.findall(r"id='(\w+)'", after))


def test_hatched_areas_keep_their_pattern():
    rows = [("c", "panel", "cell", "async", "overlap", 1.0, 2.0, 4.0), ("c", "panel", "cell", "async", "clear", 0.0, 1.0, 4.0)]
    frame = pd.DataFrame(rows, columns=["contrast", "panel", "cell", "label", "kind", "start_s", "end_s", "job_s"])
    with canvas.style():
        small = canvas.to_svg(job_figures.stalls(frame, canvas.WIDE)).decode()
    patterns = set(re.findall(r"<pattern [^>]*id='(\w+)'", small))
    assert patterns
    assert patterns <= set(re.findall(r"fill:url\(#(\w+)\)", small))


def test_rounding_an_outline_never_adds_up():
    # A hundred steps of a third of a unit each: the last point is where it belongs.
    path = "M 0 0 " + " ".join(f"L {i * 64 / 12:.4f} 0" for i in range(1, 101))
    svg = (
        "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'><g transform='translate(0 0) scale(0.1 -0.1)'><defs>"
        f"<path id='G-1' d='{path}' transform='scale(0.015625)'/></defs><use xlink:href='#G-1'/></g></svg>"
    )
    (glyph,) = (element for element in ET.fromstring(compact(svg.encode())).iter(f"{NS}path"))
    steps = [int(x) for x in re.findall(r"-?\d+", glyph.get("d"))]
    assert round(100 * 64 / 12 / 64 * 4) == sum(steps[::2])


def test_a_picture_whose_text_is_built_otherwise_keeps_its_letters_as_they_are():
    svg = (
        "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'><g transform='matrix(1 0 0 1 3 4)'><defs>"
        "<path id='G-1' d='M 64 0 L 128 64 z' transform='scale(0.015625)'/></defs><use xlink:href='#G-1' transform='rotate(9)'/></g></svg>"
    )
    small = compact(svg.encode()).decode()
    assert "scale(0.015625)" in small
    assert "rotate(9)" in small


def test_text_in_a_picture_stays_harmless():
    svg = "<svg xmlns='http://www.w3.org/2000/svg'><g style=\"fill: '&lt;script&gt;'\"><path d='M 0 0'/></g></svg>"
    small = compact(svg.encode()).decode()
    assert "<script" not in small
    assert ET.fromstring(small) is not None


def test_a_png_of_chosen_colours_looks_like_one_of_all_colours():
    with canvas.style():
        figure = figures.forest(pd.DataFrame([claim_row(), claim_row(word="REFUTED")]), canvas.WIDE)
        small = Image.open(io.BytesIO(canvas.to_png(figure)))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150)
    assert "P" == small.mode
    apart = np.abs(np.asarray(small.convert("RGB"), int) - np.asarray(Image.open(buffer).convert("RGB"), int)).max(axis=2)
    assert apart.mean() < 0.5
    assert (apart > 24).mean() < 0.001
