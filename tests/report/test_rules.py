"""A claim that is a rule over all arms shows its share and each of the arms, and a claim of facts shows them."""

from __future__ import annotations

from dataclasses import replace

from harness.model import ArmFound, CardPair, Case, CaseResult, Claim, ClaimResult, Estimand, OverArms, Reason, Role, Rule, Scale, Verdict, Word
from harness.report import make_tables
from harness.report.cards import Card
from harness.report.content import Content, make_content
from harness.report.index import build_index
from harness.report.markdown import to_markdown
from harness.report.page import to_html
from tests.report.builders import Builder, make_cell, make_estimate, make_gpu, make_machine

EAGER, GRAPH = make_cell(execution="eager"), make_cell()
ALARM = ArmFound(
    EAGER.id, "alarm, and a switch is worth it", make_estimate(0.4, 0.38, 0.42), None, make_estimate(2.0, 1.9, 2.1), "execution: eager to graph"
)
CALM = ArmFound(GRAPH.id, "no alarm, and no measured switch is worth it", make_estimate(0.9, 0.88, 0.92))


def share(low: float, high: float, n: int = 8) -> CaseResult:
    estimate = make_estimate(high, low, high, n, method="arms")
    return CaseResult("util.rule", "Arms that do", estimate, Verdict(Word.CONFIRMED, Reason("decided", "8 of 8 arms do")), found=(ALARM, CALM))


def content_of(builder: Builder) -> Content:
    manifest, records, verdicts, notes = builder.run()
    index = build_index(manifest, records, verdicts)
    return make_content(index, make_tables(index), notes)


def rule_run(low: float = 1.0, high: float = 1.0) -> Builder:
    builder = Builder()
    builder.measure("duet", EAGER, GRAPH, 4.0, 2.0)
    over = OverArms(Rule.ALARM_PRECISION, 0.7, 1.1, cells=(EAGER.id, GRAPH.id))
    case = Case("util.rule", "Arms that do", Role.JUDGED, Estimand(Scale.LINEAR, ()), lo=1.0, unit="share", over=over)
    builder.claims.append(Claim("util", "together", "S", "Below 70 % is an alarm.", cases=(case,)))
    result = share(low, high)
    builder.results.append(ClaimResult("util", result.verdict, (result,)))
    return builder


def card_of(builder: Builder) -> Card:
    ((_, (card,)),) = content_of(builder).groups
    return card


def test_a_rule_shows_the_share_and_of_how_many_arms():
    card = card_of(rule_run())
    assert ("100\N{NO-BREAK SPACE}% (of 8 arms)", "at least 100\N{NO-BREAK SPACE}%") == (card.summary, card.results.rows[0][2])


def test_a_share_that_unclear_arms_leave_open_is_an_interval():
    assert "100\N{NO-BREAK SPACE}% (50.0\N{NO-BREAK SPACE}% to 100\N{NO-BREAK SPACE}% of 8 arms)" == card_of(rule_run(0.5)).summary


def test_a_rule_shows_what_it_found_of_each_arm():
    (table,) = card_of(rule_run()).arms
    assert ("arm", "a kernel runs", "best measured switch", "worth", "what the rule says") == table.columns
    assert ("eager", "execution: eager to graph", "2.00x (1.90x to 2.10x)", "alarm, and a switch is worth it") == (
        table.rows[0][0],
        *table.rows[0][2:],
    )
    assert ("graph", "n/a", "n/a", "no alarm, and no measured switch is worth it") == (table.rows[1][0], *table.rows[1][2:])


def test_a_rule_says_that_it_is_about_all_arms():
    assert ("arms", "2, all that are compared in training on the GPU in this run") in card_of(rule_run()).compared


def test_page_and_markdown_show_the_arms():
    content = content_of(rule_run())
    assert all("Arm by arm: arms that do" in text and CALM.says in text for text in (to_html(content, {}), to_markdown(content, {})))


def fact_run() -> Builder:
    builder = Builder()
    case = Case("cores.gpu", "CUDA cores of the first card", Role.FACT, Estimand(Scale.EXACT, (), 6912.0), unit="CUDA cores")
    builder.claims.append(Claim("cores", "hardware", "D", "An A100 has 6912 CUDA cores.", cases=(case,)))
    verdict = Verdict(Word.FACT, Reason("fact", "states what is so"))
    result = CaseResult(case.id, case.title, make_estimate(6912.0, 6912.0, 6912.0, 0, method="stated", level=1.0), verdict)
    builder.results.append(ClaimResult("cores", verdict, (result,)))
    return builder


def test_a_fact_is_shown_as_it_is_stated():
    card = card_of(fact_run())
    assert (Word.FACT, "6,912 CUDA cores", ("measure", "stated, not measured")) == (card.word, card.summary, card.compared[1])


def test_what_may_change_a_card_s_figures_is_named():
    builder = fact_run()
    card = replace(make_gpu(), power_limit_w=650.0, ecc=True, mig="slice", compute_mode="exclusive_process", vbios="96.00")
    builder.machine = make_machine(gpus=(card,), gpu_driver="570.86.10", cuda_driver="12.8", cpu_governor="performance")
    rows = dict(content_of(builder).facts[0].rows)
    assert rows["GPU 0"].endswith(", a MIG slice, power limit 650 W, ECC on, compute mode exclusive process, VBIOS 96.00")
    assert ("570.86.10, CUDA up to 12.8", "performance") == (rows["GPU driver"], rows["governor"])


def test_a_card_s_own_clocks_and_links_are_named():
    builder = fact_run()
    card = replace(make_gpu(), default_sm_clock_mhz=1095, max_sm_clock_mhz=1980, max_memory_clock_mhz=2619, nvlinks=18, nvlink_bytes_per_s=26562e6)
    builder.machine = make_machine(gpus=(card,))
    words = "SM clock 1,095 / 1,980 MHz (default / max), memory clock n/a / 2,619 MHz (default / max), 18 NVLinks of 24.7 GiB/s each way"
    assert dict(content_of(builder).facts[0].rows)["GPU 0"].endswith(f"compute capability 9.0, {words}")


def linked(*pairs: CardPair) -> str:
    """What the report says of the ways between three cards."""
    builder = fact_run()
    builder.machine = make_machine(gpus=tuple(replace(make_gpu(), index=index, uuid=f"GPU-{index}") for index in range(3)), topology=pairs)
    return dict(content_of(builder).facts[0].rows)["between GPUs"]


def test_cards_that_all_are_connected_in_one_way_need_no_list():
    words = "18 NVLinks through an NVSwitch, PCIe through several NUMA nodes (SYS)"
    assert words == linked(
        *(CardPair(first, second, "SYS", 18, True) for first, second in (("GPU-0", "GPU-1"), ("GPU-0", "GPU-2"), ("GPU-1", "GPU-2")))
    )


def test_cards_that_are_connected_in_several_ways_are_listed_by_way():
    told = linked(CardPair("GPU-0", "GPU-1", "PIX", 4, False), CardPair("GPU-0", "GPU-2", "SYS", 0, False), CardPair("GPU-1", "GPU-2", None))
    words = "0-1: 4 NVLinks, PCIe through one switch (PIX); 0-2: 0 NVLinks, PCIe through several NUMA nodes (SYS); 1-2: PCIe n/a"
    assert words == told


def test_a_single_card_has_no_way_to_others():
    builder = fact_run()
    builder.machine = make_machine(gpus=(make_gpu(),))
    assert "between GPUs" not in dict(content_of(builder).facts[0].rows)


def test_a_claim_of_another_sweep_is_named_with_that_sweep():
    builder = fact_run()
    left_out = Reason("not_in_sweep", "sweep full does not measure it")
    builder.claims.append(Claim("soak", "hardware", "ours", "It goes on.", not_testable=left_out, makes_testable="+sweep=soak"))
    content = content_of(builder)
    assert "Not part of the sweep full: +sweep=soak measures soak." == content.elsewhere
    assert all("measures soak" in text for text in (to_html(content, {}), to_markdown(content, {})))


def test_the_machine_s_cores_are_named():
    builder = fact_run()
    builder.machine = make_machine(gpus=(replace(make_gpu(), cuda_cores=6912),), cpu_sockets=2, cpu_physical_cores=64)
    rows = dict(content_of(builder).facts[0].rows)
    assert ("2", "64", True) == (rows["processor sockets"], rows["physical cores"], rows["GPU 0"].endswith(", 6,912 CUDA cores"))
