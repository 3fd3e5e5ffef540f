"""`pokayoke verify`: what a step of continuous integration sees."""

import json
from xml.etree import ElementTree as ET

import pytest

TOOL = {
    "name": "look",
    "effect": "read",
    "timeout": 5,
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "output_schema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
}


@pytest.fixture
def write(tmp_path):
    """Write a file of contracts; return its name."""

    def go(*tools, name="contracts.json"):
        (tmp_path / name).write_text(json.dumps({"contracts": list(tools)}))
        return str(tmp_path / name)

    return go


def test_a_sound_setup_ends_with_0_and_a_report_without_failures(shell, write, tmp_path):
    """Every guard is a test case, and the tools were looked at."""
    done = shell("verify", write(TOOL), "--junit", str(tmp_path / "report.xml"))
    assert done.returncode == 0, done.stdout + done.stderr
    suite = ET.parse(tmp_path / "report.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert len(suite.findall("testcase")) == int(suite.get("tests")) > 20


def test_a_setup_without_tools_ends_with_2(shell, tmp_path):
    """Nothing of the user's was exercised, so nothing was verified."""
    done = shell("verify", "--junit", str(tmp_path / "report.xml"))
    assert done.returncode == 2
    assert ET.parse(tmp_path / "report.xml").getroot().get("errors") == "1"


def test_a_problem_is_a_failure_with_its_code(shell, write, tmp_path):
    """A tool without a deadline ends the step with 1, and the report says where."""
    weak = {key: value for key, value in TOOL.items() if key != "output_schema"}
    done = shell("verify", write(weak), "--junit", str(tmp_path / "report.xml"))
    assert done.returncode == 1
    suite = ET.parse(tmp_path / "report.xml").getroot()
    failed = [case for case in suite.findall("testcase") if case.find("failure") is not None]
    assert len(failed) == int(suite.get("failures")) >= 1
    assert any("look" in case.get("name") for case in failed)


def test_a_guard_that_the_configuration_switches_off_is_a_failure(shell, write, tmp_path):
    """Under `monitor` nothing is refused, so guards do not fire."""
    (tmp_path / "off.yaml").write_text("mode: monitor\n")
    done = shell("verify", write(TOOL), "--config", str(tmp_path / "off.yaml"), "--json")
    assert done.returncode == 1
    assert any(not one["fired"] for one in json.loads(done.stdout)["probes"])
