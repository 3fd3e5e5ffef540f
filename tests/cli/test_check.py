"""`pokayoke check`: configurations, definitions, and calls that are judged and not run."""

import json
import os
import subprocess
import sys

import pytest

from pokayoke.runtime.config.config import SCHEMA_FILE

TOOLS = """\
import pokayoke
from pathlib import Path

@pokayoke.tool(effect="write", output={"type": "object"}, timeout=3)
def order(sku: str, amount: int) -> dict:
    "Order."
    Path("ran").write_text("x")
    return {}

ALL = [order]
GUARD = pokayoke.Guard(ALL)
NOTHING = []
WRONG = [1]
NUMBER = 3

@pokayoke.tool(effect="read")
def vague(a: int):
    "Says nothing about its output."

VAGUE = [vague]
"""
LISTING = [
    {
        "type": "function",
        "function": {"name": "remote", "parameters": {"properties": {"x": {"$ref": "http://e.example/x"}}}},
    },
    {"name": "anthropic", "description": "d", "input_schema": {"type": "object"}},
    {"name": "mcp", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}},
    {"name": "own", "input_schema": {"type": "object"}, "output_schema": "text", "effect": "read", "timeout": 2},
    {"type": "function", "name": "flat", "parameters": {"type": "object"}},
    "no definition",
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.py").write_text(TOOLS)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "good.yaml").write_text("mode: enforce\n")
    (tmp_path / "bad.yaml").write_text("moed: enforce\nlimits: 3\n")
    (tmp_path / "misspelt.yaml").write_text("budget:\n  calls: 5\n")
    (tmp_path / "torn.yaml").write_text("mode: [\n")
    (tmp_path / "tools.json").write_text(json.dumps(LISTING))
    (tmp_path / "answer.json").write_text(json.dumps({"jsonrpc": "2.0", "result": {"tools": [LISTING[2]]}}))
    (tmp_path / "one.json").write_text(json.dumps(LISTING[3]))
    (tmp_path / "contracts.yaml").write_text(
        "- {name: own, input_schema: {type: object}, output_schema: text, timeout: 1}\n"
    )
    (tmp_path / "contracts2.yaml").write_text("contracts:\n- {name: own, input_schema: {type: object}, unknown: 1}\n")
    (tmp_path / "text.json").write_text('"text"')
    (tmp_path / "no.json").write_text("{")
    return tmp_path


def checked(shell, *words, **more):
    done = shell("check", *words, "--json", **more)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


@pytest.mark.parametrize(
    ("words", "code", "problems"),
    [
        (["good.yaml"], 0, []),
        (["bad.yaml"], 1, ["config"]),
        (["misspelt.yaml"], 1, ["config"]),
        (["torn.yaml"], 1, ["config"]),
        (["shop:ALL"], 0, []),
        (["shop:GUARD"], 0, []),
        (["shop:order"], 0, []),
        (["good.yaml", "shop:ALL"], 0, []),
        (["shop:VAGUE"], 1, ["tools", "no_output_contract", "no_deadline"]),
        (["one.json"], 0, []),
        (["contracts.yaml"], 0, []),
        (["contracts2.yaml"], 1, ["definition"]),
        (["answer.json"], 1, ["no_deadline"]),
        (["tools.json"], 1, ["definition", "definition", "no_output_contract", "no_deadline", "no_deadline",
                             "no_output_contract", "no_deadline"]),
        (["one.json", "contracts.yaml"], 1, ["tools"]),
    ],
)  # fmt: skip
def test_what_is_found(shell, folder, words, code, problems):
    """Configurations and definitions of every shape are read; what is weak or wrong in them is named."""
    done, report = checked(shell, *words)
    assert (done, [problem["code"] for problem in report["problems"]]) == (code, problems)


def test_a_tool_that_takes_a_url_is_asked_what_it_returns(shell, folder):
    """Its text may be a page, which passes unchecked, until its contract says which of them is an answer."""
    fetch = {"name": "fetch", "effect": "read", "timeout": 5, "output_schema": "text",
             "input_schema": {"type": "object", "properties": {"page_url": {"type": "string"}}}}  # fmt: skip
    for declared, problems in (
        ({}, ["page_or_text"]),
        ({"content_type": "text/html"}, []),
        ({"content_type": "text/plain"}, []),
    ):
        (folder / "fetch.json").write_text(json.dumps({"contracts": [fetch | declared]}))
        assert [problem["code"] for problem in checked(shell, "fetch.json")[1]["problems"]] == problems


def test_the_schema_for_editors_is_printed(shell):
    """--schema prints the published JSON Schema and needs nothing to check."""
    done = shell("check", "--schema")
    assert (done.returncode, done.stdout) == (0, SCHEMA_FILE.read_text(encoding="utf-8"))


def test_a_configuration_that_is_there_is_checked_without_being_named(shell, folder):
    """pokayoke.yaml in the working folder is the default, also beside tools."""
    (folder / "pokayoke.yaml").write_text("moed: x")
    assert checked(shell)[0] == 1
    assert checked(shell, "shop:ALL")[1]["config"] == "pokayoke.yaml"
    assert len(checked(shell, "pokayoke.yaml")[1]["problems"]) == 1


def test_a_module_that_ends_the_process_is_not_clean(shell, folder):
    """A script that exits when it is imported has been checked by nobody: exit code 2, and the sentence says why."""
    (folder / "script.py").write_text("raise SystemExit(0)")
    done = shell("check", "script:ALL")
    assert (done.returncode, "script:ALL cannot be imported: SystemExit: 0" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "words",
    [[], ["missing.json"], ["--config", "missing.yaml"], ["missing:ALL"], ["shop:NIX"], ["broken:ALL"], ["shop:NOTHING"],
     ["shop:WRONG"], ["shop:NUMBER"], ["text.json"], ["no.json"], ["good.yaml", "--call", "{}"],
     ["shop:ALL", "--call", "{"], ["shop:ALL", "--call", "[]"], ["shop:ALL", "--call", '{"arguments": {}}'],
     ["shop:ALL", "--call", '{"name": "order", "arguments": 3}'], ["--wrong"]],
)  # fmt: skip
def test_what_cannot_be_read_is_exit_code_2(shell, folder, words):
    """A source or a call that cannot be read is a sentence on stderr and exit code 2."""
    done = shell("check", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_who_names_a_python_file_is_told_what_to_name(shell, folder):
    """A file of Python is no definition; the message shows how its tools are named."""
    done = shell("check", "shop.py")
    assert done.returncode == 2
    assert "name what holds the tools: shop:guard" in done.stderr
    for name in ("shop", "shop.tools"):
        done = shell("check", name)
        assert (done.returncode, "named as MODULE:ATTRIBUTE" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("call", "code", "decision"),
    [
        ({"name": "order", "arguments": {"sku": "S1", "amount": 2}}, 0, "allow"),
        ({"name": "Order", "arguments": {"sku": "S1", "amount": "2"}}, 0, "allow"),
        ({"name": "order", "input": {"sku": "S1", "amount": 2}}, 0, "allow"),
        ({"id": "c", "function": {"name": "order", "arguments": '{"sku": "S1", "amount": 2}'}}, 0, "allow"),
        ({"name": "order", "arguments": '{"sku": "S1", "amount":'}, 1, "refuse"),
        ({"name": "order", "arguments": {"sku": "S1", "amount": "2-3"}}, 1, "refuse"),
        ({"name": "ordre", "arguments": {}}, 1, "refuse"),
    ],
)
def test_a_call_is_judged_and_not_run(shell, folder, call, code, decision):
    """The verdict is the one the guard would give; the tool does not run."""
    done, report = checked(shell, "shop:ALL", "--call", "-", stdin=json.dumps(call))
    assert (done, report["verdict"]["verdict"]["decision"]) == (code, decision)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(("tail", "code"), [("客户", 0), ("\udcff", 2)])
@pytest.mark.parametrize("stdin", [True, False])
def test_a_call_is_read_as_its_bytes(folder, tail, code, stdin):
    """Whatever the locale, a call is UTF-8; what is none is told, and no traceback."""
    call = f'{{"name": "order", "arguments": {{"sku": "{tail}", "amount": 2}}}}'.encode(errors="surrogateescape")
    done = subprocess.run(
        [sys.executable, "-m", "pokayoke", "check", "shop:ALL", "--call", "-" if stdin else call],
        cwd=folder, input=call if stdin else b"", capture_output=True, check=False, timeout=50,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False)


def test_people_read_the_same(shell, folder):
    """Without --json the same facts come as lines, escaped."""
    call = json.dumps({"name": "order", "arguments": '{"sku": "a\\u001bb", "amount": "2",}'})
    done = shell("check", "shop:ALL", "--call", call)
    decision, arguments, repair, correction = done.stdout.splitlines()
    assert decision == "allow  order@1"
    assert "a\\u001bb" in arguments
    assert repair == "  repair       trailing_comma"
    assert correction == '  correction   /amount number_from_text: "2" -> 2'
    refused = shell("check", "shop:ALL", "--call", '{"name": "order", "arguments": {"sku": 1}}').stdout
    assert "refuse  order@1 (invalid_arguments)" in refused
    assert "to the model" in refused
    assert shell("check", "shop:ALL", "good.yaml").stdout == "clean: good.yaml, tools order@1\n"
    assert shell("check", "good.yaml").stdout == "clean: good.yaml\n"
    weak = shell("check", "shop:VAGUE", "--call", '{"name": "vague", "arguments": {}}')
    assert weak.stdout.startswith("tools  the tools together: ")
    assert "was not judged" in weak.stderr
    assert "unknown key `moed`" in shell("check", "bad.yaml").stdout


def test_hints_of_a_server_count_only_if_trusted(shell, folder):
    """A listing's readOnlyHint makes a read only on request."""
    entry = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    (folder / "hints.json").write_text(json.dumps([entry]))
    assert checked(shell, "hints.json")[0] == checked(shell, "hints.json", "--trust-hints")[0] == 1


def test_a_check_writes_no_trace(shell, folder):
    """Judging a call leaves no file behind."""
    (folder / "pokayoke.yaml").write_text("trace: {path: t.jsonl}")
    assert shell("check", "shop:ALL", "--call", '{"name": "order", "arguments": {}}').returncode == 1
    assert not (folder / "t.jsonl").exists()


def test_a_guard_is_judged_by_its_own_policy(shell, folder):
    """A guard reads no file by itself, so pokayoke.yaml beside it says nothing; a configuration that is named does."""
    (folder / "own.py").write_text(
        "from shop import ALL\nimport pokayoke\n"
        "guard = pokayoke.Guard(ALL, config={'access': {'deny': ['order']}})\nopen_to_all = pokayoke.Guard(ALL)\n"
    )
    (folder / "pokayoke.yaml").write_text("approvals: {tools: [order]}")
    call = json.dumps({"name": "order", "arguments": {"sku": "S1", "amount": 2}})
    said = [
        checked(shell, *sources, "--call", call)[1]
        for sources in (["own:guard"], ["own:open_to_all"], ["own:guard", "--config", "pokayoke.yaml"], ["shop:ALL"])
    ]
    assert [one["verdict"]["verdict"]["decision"] for one in said] == ["refuse", "allow", "ask", "ask"]
    assert [one["config"] for one in said] == [
        "the policy of own:guard", "the policy of own:open_to_all", "pokayoke.yaml", "pokayoke.yaml",
    ]  # fmt: skip


def test_names_that_mean_no_tool_are_found(shell, folder):
    """A misspelt tool or argument is a thing to change, with file, line and the nearest name; check and doctor say so."""
    config = "mode: enforce\naccess:\n  deny:\n    - odrer\nlimits:\n- {tool: order, amount: 1, field: amuont}\n"
    (folder / "names.yaml").write_text(config)
    for command in ("check", "doctor"):
        done = shell(command, "shop:ALL", "--config", "names.yaml", "--json")
        problems = [one for one in json.loads(done.stdout)["problems"] if one["code"] == "misnamed"]
        assert done.returncode == 1
        assert [one["where"] for one in problems] == ["names.yaml:4", "names.yaml:6"]
        assert [one["message"].rpartition("Did you mean ")[2] for one in problems] == ["'order'?", "'amount'?"]
    (folder / "mine.py").write_text("from shop import ALL, pokayoke\nGUARD = pokayoke.Guard(ALL, "
                                    "config={'approvals': {'tools': ['ordre']}})\n")  # fmt: skip
    done = shell("check", "mine:GUARD")
    assert (done.returncode, "Did you mean 'order'?" in done.stderr) == (2, True)
    (folder / "based.json").write_text(json.dumps([{**LISTING[3], "sources": ["onw"]}]))
    assert checked(shell, "based.json")[1]["problems"][0]["where"] == "own@1"


def test_kinds_of_failure_that_do_not_exist_are_found(shell, folder):
    """A misspelt kind is found with and without tools, at its line; a guard's own kinds are kinds, others may be."""
    loop = "loop:\n  off:\n    - {}\n  instructions:\n    '*': Stop.\n    {}: Stop.\n"
    (folder / "loops.yaml").write_text(loop.format("unknwon_tool", "tired"))
    for command, *tools in (("check",), ("check", "shop:ALL"), ("doctor", "shop:ALL")):
        done = shell(command, *tools, "--config", "loops.yaml", "--json")
        problems = [one for one in json.loads(done.stdout)["problems"] if "kind of failure" in one["message"]]
        assert done.returncode == 1
        assert [(one["code"], one["where"]) for one in problems] == [
            ("misnamed", "loops.yaml:3"), ("misnamed", "loops.yaml:6"),
        ]  # fmt: skip
        assert all("MODULE:ATTRIBUTE" in one["message"] for one in problems)
    (folder / "tiring.py").write_text("from shop import ALL, pokayoke\nfrom pokayoke.core.state.loop_guard import Kind\n"
                                      "GUARD = pokayoke.Guard(ALL, loop_kinds=[Kind('tired', 'tired', codes=('tool_failed',))])\n")  # fmt: skip
    (found,) = checked(shell, "tiring:GUARD", "--config", "loops.yaml")[1]["problems"]
    assert found["where"] == "loops.yaml:3"
    assert "MODULE:ATTRIBUTE" not in found["message"]
    (folder / "loops.yaml").write_text(loop.format("unknown_tool", "tired"))
    assert shell("check", "tiring:GUARD", "--config", "loops.yaml").returncode == 0
    done = shell("doctor", "tiring:GUARD", "--config", "loops.yaml", "--json")
    assert all(one["fired"] for one in json.loads(done.stdout)["probes"])


def test_a_validator_that_the_schema_hides_is_named(shell, folder):
    """`check` names the argument and the corrector to declare."""
    (folder / "before.py").write_text(
        "from typing import Annotated\nfrom pydantic import BeforeValidator\nimport pokayoke\n"
        "@pokayoke.tool(effect='write', output='text', timeout=5)\n"
        "def buy(n: Annotated[int, BeforeValidator(int)]) -> str:\n    'Buy.'\n    return str(n)\n"
    )
    (found,) = checked(shell, "before:buy")[1]["problems"]
    assert (found["code"], found["where"]) == ("hidden_validator", "buy@1")
    assert "correctors={'n': that_function}" in found["message"]


def test_names_are_not_looked_for_where_the_tools_are_not_known(shell, folder):
    """Without tools, or with one that cannot be read, a name is no problem; it is said that nobody looked."""
    (folder / "names.yaml").write_text("access: {deny: [odrer]}\n")
    done = shell("check", "names.yaml")
    assert (done.returncode, "were not looked for" in done.stderr) == (0, True)
    assert "were not looked for" not in shell("check", "good.yaml").stderr
    (folder / "tools.json").write_text(json.dumps([LISTING[0], LISTING[3]]))
    assert [one["code"] for one in checked(shell, "names.yaml", "tools.json")[1]["problems"]] == ["definition"]
