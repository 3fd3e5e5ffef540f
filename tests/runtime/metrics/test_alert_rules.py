"""The alert rules and the dashboard that ship: they parse, and they speak of metrics that exist."""

import importlib
import itertools
import json
import re

import pytest

from pokayoke.core.state.invalid_output_spike import MIN_OUTPUTS, TRIP_SHARE
from pokayoke.runtime.config.yaml_reader import read_document
from pokayoke.runtime.metrics import INSTRUMENTS, STORE_INSTRUMENTS, alert_rules, grafana_dashboard

FILE = read_document(alert_rules().read_text(encoding="utf-8"), name="alerts.yml").value
RULES = FILE["groups"][0]["rules"]
NAMES = {one.name: one for one in (*INSTRUMENTS, *STORE_INSTRUMENTS)}
DASHBOARD = json.loads(grafana_dashboard().read_text(encoding="utf-8"))
PANELS = DASHBOARD["panels"]


def test_the_file_has_the_shape_of_a_rule_file():
    """It holds one named group of alerts with unique names and nothing that Prometheus does not know."""
    assert set(FILE) == {"groups"}
    assert [group["name"] for group in FILE["groups"]] == ["pokayoke"]
    assert len({rule["alert"] for rule in RULES}) == len(RULES) >= 6
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert {"alert", "expr", "labels", "annotations"} <= set(rule)
        assert re.fullmatch(r"Pokayoke[A-Z][A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_expression_names_what_exists(rule):
    """Every metric of an expression is one of ours, and every label in it or in a text is one of that metric's."""
    expression = re.sub(r'"[^"]*"', "", rule["expr"])
    used = set(re.findall(r"pokayoke_\w+", expression))
    assert used
    assert used <= set(NAMES)
    labels = {label for name in used for label in NAMES[name].labels}
    asked = set(re.findall(r"by \((\w+)\)", expression)) | set(re.findall(r"\{(\w+)=", expression))
    asked |= set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert asked <= labels


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_text_is_a_template(rule):
    """Braces of templates are paired, and only `$value`, `$labels` and one formatter are used."""
    for text in rule["annotations"].values():
        inside = re.findall(r"\{\{(.*?)\}\}", text)
        assert text.count("{{") == text.count("}}") == len(inside)
        for one in inside:
            assert re.fullmatch(r" (\$value( \| humanizePercentage)?|\$labels\.\w+) ", one)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_expression_is_promql(rule, need):
    """A parser of PromQL takes it; one with a bracket less it does not take."""
    try:
        parser = importlib.import_module("promql_parser")
    except ImportError:
        need("promql-parser is not installed: pip install promql-parser")
    assert parser.parse(rule["expr"]) is not None
    with pytest.raises(ValueError, match="parenthesis"):
        parser.parse(rule["expr"].replace(")", "", 1))


def test_the_alert_of_outputs_is_the_rule_of_the_library():
    """The share and the least number are those of `core/state/invalid_output_spike.py`, so both tell of the same thing."""
    rule = next(rule for rule in RULES if rule["alert"] == "PokayokeInvalidOutputs")
    assert f">= {TRIP_SHARE} " in rule["expr"]
    assert rule["expr"].rstrip().endswith(f">= {MIN_OUTPUTS}")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"].replace(" ", "-"))
def test_a_panel_shows_what_exists(panel, need):
    """Each expression is PromQL, and every metric, grouping and legend in it is one of ours and its label."""
    try:
        parser = importlib.import_module("promql_parser")
    except ImportError:
        need("promql-parser is not installed: pip install promql-parser")
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        assert parser.parse(target["expr"].replace("$__rate_interval", "5m")) is not None
        used = {name.removesuffix("_bucket") for name in re.findall(r"pokayoke_\w+", target["expr"])}
        assert used
        assert used <= set(NAMES)
        labels = {"le", *(label for name in used for label in NAMES[name].labels)}
        asked = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
        for group in re.findall(r"by \(([\w, ]+)\)", target["expr"]):
            asked += group.split(", ")
        assert set(asked) <= labels


def test_panels_stand_beside_each_other():
    """Ids are unique, and no panel covers another or leaves the page."""
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 for place in places)
    for one, other in itertools.combinations(places, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_everything_that_waits_in_a_store_is_watched():
    """Each gauge of a store stands in a panel."""
    shown = json.dumps(DASHBOARD)
    assert [one.name for one in STORE_INSTRUMENTS if one.name not in shown] == []
