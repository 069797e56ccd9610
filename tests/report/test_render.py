"""The report as a whole: every file is there, page and Markdown agree, hostile text stays text, nothing is left unsaid."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest

from harness.model import Arrangement, ControlKind, Manifest, Outcome, Reason, State, Verdicts, Word
from harness.report import make_tables, render
from harness.report.content import Content, make_content
from harness.report.index import build_index
from harness.report.markdown import code_block, escape, to_markdown
from harness.report.page import to_html
from tests.report.builders import Builder, add_control, make_cell, make_contrast, make_estimate, make_full, make_gpu, make_machine, make_round

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def content_of(builder: Builder, **manifest) -> Content:
    manifest, records, verdicts, notes = builder.run(**manifest)
    index = build_index(manifest, records, verdicts)
    return make_content(index, make_tables(index), notes)


def page_of(builder: Builder, **manifest) -> str:
    """The page without its pictures, which take most of the time."""
    return to_html(content_of(builder, **manifest), {})


def markdown_of(builder: Builder) -> str:
    return to_markdown(content_of(builder), {})


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>|data:[^\" ]+", "", page, flags=re.DOTALL)))


def small(ratio: float = 2.4, word: Word = Word.CONFIRMED, **more) -> Builder:
    builder = Builder()
    builder.ratio_claim("graph-speedup", make_cell(execution="eager"), make_cell(), ratio, word, **more)
    return builder


@pytest.fixture(scope="module")
def full() -> dict[str, bytes]:
    return render(*make_full().run())


def test_a_rich_run_gives_page_markdown_and_every_plot(full):
    plots = {f"plots/{name}.{kind}" for name in ("forest", "speedups", "throughput", "memory", "ladder", "phases") for kind in ("svg", "png")}
    assert plots | {"report.html", "report.md"} == set(full)


def test_page_and_markdown_show_the_same_numbers(full):
    number = re.compile(r"\d[\d,]*(?:\.\d+)?(?:x| GiB| MiB| samples/s| ms| s)\b")
    in_page = set(number.findall(text_of(full["report.html"].decode())))
    in_markdown = set(number.findall(html.unescape(full["report.md"].decode()).replace("\\", "")))
    assert in_page == in_markdown


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_no_text_says_nan_or_inf(full, name):
    text = text_of(full[name].decode())
    assert [] == re.findall(r"(?i)(?<![a-z])(nan|inf|infinity|nat|none\b(?=x))(?![a-z])", text)


def test_a_script_in_any_text_of_the_bundle_stays_text():
    builder = small(claim={"statement": HOSTILE, "notes": HOSTILE, "source": HOSTILE, "group": HOSTILE}, verdict_text=HOSTILE, title=HOSTILE)
    builder.untestable("odd", HOSTILE, HOSTILE)
    builder.machine = make_machine(cpu_model=HOSTILE, packages={HOSTILE: HOSTILE})
    files = render(*builder.run(name=HOSTILE, config={HOSTILE: HOSTILE}, dropped_env=(HOSTILE,)))
    assert [] == re.findall(r"<(?:script|img (?!src=\"data:))", files["report.html"].decode())
    assert [] == re.findall(r"<(?:script|img)", files["report.md"].decode())
    assert b"<script" not in files["plots/forest.svg"]


def test_a_page_asks_nothing_of_the_network(full):
    page = full["report.html"].decode()
    assert "default-src 'none'" in page
    assert [] == re.findall(r"(?:src|href|srcset)=\"(?!data:|#)", page)


def test_control_characters_and_lone_surrogates_do_not_break_a_report():
    builder = small(title="bell \x07 \u202e zero \x00 $x^{ 速度")
    files = render(*builder.run(name="\udfff\x1b[31m"))
    assert "\x1b" not in files["report.html"].decode() + files["report.md"].decode()


def test_a_slowdown_is_called_a_slowdown():
    page = text_of(page_of(small(0.62, Word.REVERSED)))
    assert "Largest slowdown shown: 0.620x (0.589x to 0.651x)" in page
    assert "No switch was shown to make training faster." in page


def test_a_pair_that_is_not_proven_equal_is_no_largest_speed_up():
    assert "Largest speed-up" not in text_of(page_of(small(equivalence="not proven: the updates differ")))


def test_memory_has_the_same_unit_everywhere():
    builder = small()
    builder.machine = make_machine(gpus=(make_gpu(),), gpu_reason=None)
    builder.records = [replace(r, trials=tuple(replace(t, peak_rss_bytes=17179869184) for t in r.trials)) for r in builder.records]
    for text in (page_of(builder), markdown_of(builder)):
        assert text.count("16.0 GiB") >= 4
        assert not re.search(r"17\.\d+ ?G|\bMB\b|\bGB\b", text_of(text))


def test_a_run_without_verdicts_says_so():
    builder = make_full()
    builder.judged = False
    rounds = len(builder.records)
    assert f"Nothing has been judged yet: {rounds} rounds recorded so far; 4 claims cannot be tested here." == content_of(builder).headline


def test_an_interrupted_run_without_rounds_renders():
    builder = small()
    builder.records, builder.judged = [], False
    assert "No verdict yet" in page_of(builder)


def test_an_empty_plan_renders():
    assert {"report.html", "report.md"} == set(render(*Builder().run()))


def test_a_quick_run_is_headed_preliminary():
    builder = small()
    builder.preliminary = True
    assert "Preliminary" in text_of(page_of(builder))[:600]
    assert markdown_of(builder).startswith("# Speedproof\n\n> **PRELIMINARY**")


@pytest.mark.parametrize(
    ("expected", "word"), [("cannot be trusted", "failed"), ("cannot show an effect of 5 %", "not shown"), ("known effects were found", "held")]
)
def test_the_controls_head_the_validity_box(expected, word):
    builder = small()
    add_control(builder, word, ControlKind.POSITIVE)
    assert expected in text_of(page_of(builder))


def test_a_failed_trial_is_named_with_its_reason():
    builder = small()
    lost = Outcome(State.FAILED, Reason("killed", "killed by the kernel"), "first")
    builder.records[0] = replace(builder.records[0], outcome=lost, trials=tuple(replace(t, outcome=lost) for t in builder.records[0].trials))
    assert "graph-speedup: failed in phase first, killed by the kernel (2 times)" in text_of(page_of(builder))


def test_one_round_shows_n_and_no_spread():
    page = text_of(page_of(small(estimate=make_estimate(2.0, 0.0, None, n=1))))
    assert "2.00x (no spread from n=1)" in page


def test_the_raw_rounds_divide_to_the_effect_shown():
    assert "| 1 | ABBA | 4.00 samples/s | 9.50 samples/s | 2.38x |" in markdown_of(small())


def test_every_card_has_the_command_that_repeats_it(full):
    assert "python -m harness +sweep=full only=[graph-speedup]" in full["report.md"].decode()


def test_the_command_repeats_what_else_the_run_was_asked_for():
    command = "python -m harness +sweep=full workload.batch=32 only=[a,b] budget=45m x=$(y)"
    assert "harness +sweep=full workload.batch=32 only=[graph-speedup]" in page_of(small(), provenance={"command": command})


def test_an_odd_claim_id_is_quoted_for_the_shell():
    builder = Builder()
    builder.ratio_claim("a; rm b", make_cell(execution="eager"), make_cell(), 2.0, Word.CONFIRMED)
    assert "only=['" not in page_of(builder)
    assert "'only=[a; rm b]'" in html.unescape(page_of(builder))


def test_dropped_environment_names_are_listed(full):
    assert "EDITOR, SECRET_TOKEN" in text_of(full["report.html"].decode())


def test_the_same_run_gives_the_same_bytes():
    run = small().run()
    first, second = render(*run), render(*run)
    assert first == second


def test_notes_on_the_bundle_are_shown():
    manifest, records, verdicts, _ = small().run()
    index = build_index(manifest, records, verdicts)
    assert "a torn last line was set aside" in to_html(make_content(index, make_tables(index), ["a torn last line was set aside"]), {})


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (r"a \| b", "a | b"),
        (r"\*bold\* \_under\_ \`code\`", "*bold* _under_ `code`"),
        ("&lt;b&gt; &amp; c", "<b> & c"),
        (r"\[x\](javascript:y)", "[x](javascript:y)"),
        (r"\# head", "# head"),
        (r"\- item", "- item"),
        (r"\1. item", "1. item"),
        ("one two", "one\n\ntwo"),
    ],
)
def test_markdown_renders_text_as_itself(expected, text):
    assert expected == escape(text)


def test_a_bare_link_is_no_link():
    assert "https://" not in escape("see https://example.org")


def test_a_fence_inside_a_block_does_not_end_it():
    assert code_block("``` end").startswith("````text\n")


def test_a_hundred_thousand_blocks_are_drawn_as_aggregates():
    builder = small()
    contrast = builder.contrasts[0]
    builder.records += [make_round(contrast, {t.id: 4.0 for t in contrast.trials}, i, quads=249) for i in range(5, 105)]
    assert 60 < page_of(builder).count("<tr>") < 200


def test_manifest_and_verdicts_survive_json_before_they_are_rendered():
    import msgspec

    manifest, records, verdicts, notes = small().run()
    again = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(manifest))), Manifest)
    told = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(verdicts))), Verdicts)
    first, second = build_index(manifest, records, verdicts), build_index(again, records, told)
    assert make_content(first, make_tables(first), notes) == make_content(second, make_tables(second), notes)


def test_solo_rounds_show_their_phases():
    builder = small()
    solo = make_contrast("levels", make_cell(), arrangement=Arrangement.SOLO)
    builder.contrasts.append(solo)
    builder.records.append(make_round(solo, {make_cell().id: 4.0}))
    assert "phases" in {section.id for section in content_of(builder).sections}
