"""Several watchers hear the same."""

from __future__ import annotations

import io

from harness.progress import Display
from harness.watch.exporter import Exporter
from harness.watch.several import Several, arms
from tests.helpers import make_estimate, make_record
from tests.watch.builders import MACHINE, make_block, make_gpu_plan, make_round, make_sample

PLAN = make_gpu_plan()


class Listener:
    """Keeps the name of everything that it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __getattr__(self, name):
        return lambda *told: self.heard.append(name)


def tell_everything(watcher) -> None:
    watcher.round(make_round(PLAN), 0, None)
    watcher.tell(make_block("baseline", 100.0))
    watcher.sampled([make_sample("power_w", 300.0)])
    watcher.ended(make_record())
    watcher.estimate("graph over eager", make_estimate())


def test_every_watcher_hears_everything_in_order():
    first, second = Listener(), Listener()
    tell_everything(Several(first, second))
    assert ["round", "tell", "sampled", "ended", "estimate"] == first.heard == second.heard


def test_the_display_and_an_endpoint_can_watch_together():
    out, exporter = io.StringIO(), Exporter()
    exporter.plan(PLAN, "20261130-run", MACHINE)
    with Display("normal", stream=out) as display:
        display.plan(PLAN, "20261130-run", "xeon")
        tell_everything(Several(display, exporter))
    assert "so far graph over eager" in out.getvalue()
    assert any(sample.name == "speedproof_rounds_ended_total" for metric in exporter.collect() for sample in metric.samples)


def test_arms_have_letters_in_the_order_of_the_rounds_trials():
    assert {"baseline": ("A", "eager"), "treatment": ("B", "graph")} == arms(PLAN, make_round(PLAN))


def test_arms_of_a_plan_that_is_not_known_are_called_by_their_trials():
    assert {"baseline": ("A", "baseline"), "treatment": ("B", "treatment")} == arms(None, make_round(PLAN))
