"""The page in a real browser: silent console, no request, pictures shown, nothing clipped, at a desk's width and at a phone's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.model import Arrangement, DoctorFinding, Examination, Word
from harness.report import render
from tests.report.builders import make_alone_round, make_cell, make_contrast, make_full, make_gpu, make_machine, make_samples

CHROMIUM = next(
    (path for path in ("/usr/bin/chromium", shutil.which("chromium"), shutil.which("google-chrome")) if path and Path(path).exists()), None
)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-sync"]
HOSTILE = "<script>window.hit=1</script><img src=x onerror='window.hit=2'>" + "x" * 120

CLIPPED = """() => [...document.querySelectorAll('body *')].filter(e => {
  const style = getComputedStyle(e);
  const hides = v => v === 'hidden' || v === 'clip';
  return e.clientWidth > 0 && ((hides(style.overflowX) && e.scrollWidth > e.clientWidth + 1) || (hides(style.overflowY) && e.scrollHeight > e.clientHeight + 1));
}).map(e => e.tagName + '.' + e.className)"""
OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1) && !e.closest('.scroll');
}).map(e => e.tagName + '.' + e.className)"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium was found")
    with playwright.sync_playwright() as starter:
        opened = starter.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_path(tmp_path_factory) -> Path:
    builder = make_full()
    builder.ratio_claim(
        "odd", make_cell(8, execution="eager"), make_cell(8), 1.5, Word.CONFIRMED, claim={"statement": HOSTILE}, title=HOSTILE, verdict_text=HOSTILE
    )
    builder.machine = make_machine(cpu_model=HOSTILE, gpus=(make_gpu(),))
    many = make_contrast(HOSTILE, *(replace(make_cell(batch=i + 1), device="gpu") for i in range(13)), arrangement=Arrangement.SOLO)
    builder.cells |= {trial.cell: replace(make_cell(batch=i + 1), device="gpu") for i, trial in enumerate(many.trials)}
    builder.contrasts.append(many)
    builder.records.append(make_alone_round(many))
    watched = make_samples(
        builder.records[-1].round,
        make_gpu().uuid,
        kernel_busy_share=[0.8] * 157,
        pcie_rx_bytes_per_s=[2.0**30] * 157,
        nvlink_rx_bytes=[None],
        why=HOSTILE,
    )
    told = {f"{HOSTILE}_nvml": 1.0, f"{HOSTILE}_nvidia_smi": HOSTILE, "power_w_nvml": 400.0, "power_w_nvidia_smi": 401.0}
    found = DoctorFinding(HOSTILE, HOSTILE, HOSTILE, "warning", HOSTILE, HOSTILE, HOSTILE, "GPU 0", told)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(render(*builder.run(), watched, Examination(1, (found,)))["report.html"])
    return path


@pytest.fixture(scope="module", params=[1280, 390], ids=["desk", "phone"])
def opened(request, browser, page_path):
    """A page with everything unfolded, and what it said and asked for while it was opened."""
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda query: asked.append(query.url))
    page.goto(page_path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    yield page, said, asked
    page.close()


def test_the_console_stays_silent(opened):
    _, said, _ = opened
    assert [] == said


def test_no_request_leaves_the_page(opened):
    _, _, asked = opened
    assert [] == [url for url in asked if not url.startswith(("data:", "file:"))]
    assert 1 == sum(url.startswith("file:") for url in asked)


def test_every_picture_is_shown(opened):
    page, _, _ = opened
    widths = page.evaluate("Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))")
    assert 7 == sum(width > 100 for width in widths)


def test_the_page_does_not_scroll_sideways(opened):
    page, _, _ = opened
    assert page.viewport_size["width"] == page.evaluate("document.documentElement.scrollWidth")
    assert [] == page.evaluate(OUTSIDE)


def test_no_text_is_clipped(opened):
    page, _, _ = opened
    assert [] == page.evaluate(CLIPPED)


def test_hostile_text_is_shown_and_does_nothing(opened):
    page, _, _ = opened
    assert page.evaluate("window.hit === undefined && document.scripts.length === 0")
    assert "<script>window.hit=1</script>" in page.inner_text("header")
