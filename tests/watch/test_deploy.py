"""The files for Prometheus and Grafana: sound by Prometheus' own tool, and about metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from harness.watch.exporter import METRICS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "speedproof.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def promtool(*arguments: object) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: it comes with Debian's package prometheus")
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


def rules() -> list[dict[str, object]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\bspeedproof[\w:]*", expression))


def known() -> set[str]:
    return {*METRICS, *(str(rule["record"]) for rule in rules() if "record" in rule)}


def test_the_rules_are_sound():
    promtool("check", "rules", RULES)


def test_the_rules_raise_what_they_should_and_nothing_else():
    promtool("test", "rules", DEPLOY / "prometheus" / "alerts_test.yml")


def test_the_example_of_a_configuration_is_sound():
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yml")


def test_the_example_scrapes_the_loopback_only():
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    assert [["127.0.0.1:9400"]] == [static["targets"] for job in jobs for static in job["static_configs"]]


def test_every_alert_has_a_test():
    tested = {
        case["alertname"]
        for test in yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert tested == {rule["alert"] for rule in rules() if "alert" in rule}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule.get("alert") or rule.get("record")))
def test_a_rule_is_about_metrics_that_there_are(rule):
    found = metrics_in(str(rule["expr"]))
    assert found
    assert set() == found - known()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_panel_is_about_metrics_that_there_are(expression):
    found = metrics_in(expression)
    assert found
    assert set() == found - known()


def test_every_metric_is_on_the_dashboard():
    assert set() == set(METRICS) - set.union(*map(metrics_in, EXPRESSIONS))


def test_every_expression_of_the_dashboard_can_be_read_by_prometheus(tmp_path):
    plain = [expression.replace("$__rate_interval", "1m").replace("$instance", ".*") for expression in EXPRESSIONS]
    assert [] == [expression for expression in plain if "$" in expression]
    records = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(plain)]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    promtool("check", "rules", path)


def test_panels_have_a_title_a_source_and_a_place_of_their_own():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert {"${datasource}"} == {panel["datasource"]["uid"] for panel in PANELS}
    taken = [
        (column, line)
        for panel in DASHBOARD["panels"]
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert 24 > max(column for column, _ in taken)
