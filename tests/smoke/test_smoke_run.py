"""A real run, looked at from outside: what `.ci/run` measured before is in the folder that SPEEDPROOF_SMOKE_RESULTS names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from harness.model import State
from harness.store import Bundle

pytestmark = pytest.mark.skipif(
    "SPEEDPROOF_SMOKE_RESULTS" not in os.environ, reason="no smoke run: SPEEDPROOF_SMOKE_RESULTS is not set (.ci/run sets it)"
)


def bundle() -> Bundle:
    (path,) = (manifest.parent for manifest in Path(os.environ["SPEEDPROOF_SMOKE_RESULTS"]).glob("*/manifest.json"))
    return Bundle.open(path, path.parent)


def test_every_round_completed():
    records = bundle().records()
    assert records
    assert [] == [(record.round, record.outcome) for record in records if record.outcome.state is not State.COMPLETED]


def test_every_claim_of_the_plan_has_a_verdict_with_a_reason():
    run = bundle()
    verdicts = run.verdicts()
    assert {claim.id for claim in run.manifest.plan.claims} == {result.claim for result in verdicts.claims if result.verdict.reason.text}


def test_nothing_in_the_bundle_names_this_machines_folders():
    run = bundle()
    texts = {name: (run.path / name).read_text() for name in ("manifest.json", "records.jsonl", "verdicts.json", "report.html", "report.md")}
    assert [] == [name for name, text in texts.items() if str(Path(__file__).parents[2]) in text or str(run.path.parent) in text]


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_opens_in_a_browser_without_network_and_without_errors(width):
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on the PATH")
    asked, errors = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((bundle().path / "report.html").as_uri())
        heading, overflow = page.inner_text("h1"), page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        browser.close()
    assert [] == [url for url in asked if not url.startswith(("file:", "data:"))]
    assert ([], True, 0) == (errors, bool(heading.strip()), overflow)
