"""`pokayoke verify`: what a step of continuous integration sees."""

import json
import sys
from pathlib import Path
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


# -- servers of a client ---------------------------------------------------------------------------

SMALL = [sys.executable, str(Path(__file__).parents[1] / "support" / "small_mcp_server.py")]
GUARDED = [sys.executable, "-m", "pokayoke", "mcp"]


@pytest.fixture
def verify(shell, tmp_path):
    """Run the command over a client's file with these servers; return it, and outcome by server and check."""

    def go(*words, **servers):
        entries = {
            name: line if isinstance(line, dict) else {"command": line[0], "args": line[1:]}
            for name, line in servers.items()
        }
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
        done = shell("verify", "--servers", "mcp.json", "--junit", "report.xml", *words)
        found = {
            (case.get("classname").removeprefix("servers."), case.get("name")): next(iter(case), None)
            for case in ET.parse(tmp_path / "report.xml").iter("testcase")
            if case.get("classname").startswith("servers.")
        }
        return done, {key: None if kind is None else (kind.tag, kind.get("message")) for key, kind in found.items()}

    return go


def test_a_guarded_server_is_started_listed_and_fired_at(verify):
    """All of it passes, and its tools count as looked at."""
    done, found = verify(small=[*GUARDED, "--", *SMALL])
    assert done.returncode == 0, done.stdout + done.stderr
    assert found == dict.fromkeys(
        [
            ("small", "it is guarded"),
            ("small", "it lists its tools"),
            ("small", "an unknown tool is refused"),
            ("small", "a wrong argument is refused"),
        ]
    )
    assert "2 tools looked at" in done.stderr


def test_what_does_not_work_is_a_failure_of_its_server(verify):
    """Each server has its own deadline; one that is dead, silent or unguarded hides none of the others."""
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    done, found = verify(
        "--server-timeout",
        "5",
        bare=SMALL,
        dead=[*GUARDED, "--", "/nowhere"],
        silent=silent,
        watched=[*GUARDED, "--mode", "monitor", "--", *SMALL],
        far={"url": "https://mcp.example/mcp"},
    )
    assert done.returncode == 1
    problems = {key: told for key, told in found.items() if told is not None}
    assert {key: told[0] for key, told in problems.items()} == {
        ("bare", "it is guarded"): "failure",
        ("dead", "it answers"): "failure",
        ("silent", "it is guarded"): "failure",
        ("silent", "it answers"): "failure",
        ("watched", "a wrong argument is refused"): "failure",
        ("far", "it starts"): "skipped",
    }
    assert "within 5 seconds" in problems["silent", "it answers"][1]
    assert "monitor mode" in problems["watched", "a wrong argument is refused"][1]


def test_servers_that_were_not_exercised_verify_nothing(verify):
    """A file whose servers all fail ends with 2, as no tool was looked at."""
    done, _ = verify(dead=[*GUARDED, "--", "/nowhere"])
    assert done.returncode == 2
