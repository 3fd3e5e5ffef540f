"""`pokayoke contracts amend`: what was refused and went well becomes a change, shown with its effect, then written."""

import json

import pytest

YAML = """\
# what the shop allows
contracts:
  - name: refund  # money
    version: "1"
    effect: write
    timeout: 5
    input_schema:
      type: object
      properties:
        cents: {type: integer, maximum: 40}  # agreed with the desk
        currency: {enum: [EUR, USD]}
      required: [cents, currency]
      additionalProperties: false
  - name: other
    version: "1"
    effect: read
    input_schema: {type: object, properties: {cents: {type: integer, maximum: 40}}}
"""


@pytest.fixture
def amend(shell, tmp_path):
    """Writes recorded calls and runs the command over them."""

    def run(*calls, words=(), file="contracts.yaml", text=YAML):
        if not (tmp_path / file).exists():
            (tmp_path / file).write_text(text)
        lines = [{"tool": "refund", "output": "refunded", **call} for call in calls]
        (tmp_path / "calls.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        return shell("contracts", "amend", "calls.jsonl", "--contracts", file, *words)

    return run


def call(cents, currency="EUR", **fields):
    return {"arguments": {"cents": cents, "currency": currency}, **fields}


def test_a_change_is_shown_with_what_it_rests_on_and_what_it_does(amend, tmp_path):
    """Nothing is in force by that: the file is as before, and the exit code says that there is something to decide."""
    done = amend(call(30), call(50), call(60, "CHF"))
    assert (done.returncode, done.stderr) == (1, "nothing was written: --write changes the file\n")
    assert done.stdout == (
        "refund: 2 changes\n"
        "  /properties/cents/maximum  40 -> 60                              2 calls  calls.jsonl:2\n"
        '  /properties/currency/enum  ["EUR","USD"] -> ["EUR","USD","CHF"]  1 call   calls.jsonl:3\n'
        "recorded calls: 0 of 3 would break, 2 would be mended\n"
        "  2  now runs  calls.jsonl:2  /cents: expected at most 40, got 50\n"
    )
    assert (tmp_path / "contracts.yaml").read_text() == YAML


def test_a_written_change_leaves_every_other_byte(amend, tmp_path):
    """Comments, the other contract and the flow style stay; afterwards nothing is refused."""
    done = amend(call(50), call(60, "CHF"), words=("--write", "--contract-version", "2"))
    assert done.returncode == 0, done.stderr
    changed = YAML.replace('"1"', '"2"', 1).replace("40}  #", "60}  #").replace("[EUR, USD]", "[EUR, USD, CHF]")
    assert (tmp_path / "contracts.yaml").read_text() == changed
    again = amend(call(50), call(60, "CHF"))
    assert (again.returncode, again.stdout) == (0, "nothing to amend: no refused call was answered well\n")


@pytest.mark.parametrize("answer", [{"output": "Error: too much", "is_error": True}, {"output": "Error: too much"}])
def test_a_call_that_did_not_go_well_is_no_reason(amend, answer):
    """A refused call whose tool failed changes nothing."""
    told = amend({"arguments": {"cents": 50, "currency": "EUR"}, **answer})
    assert told.stdout == "nothing to amend: no refused call was answered well\n"


def test_what_takes_more_than_one_keyword_is_left(amend):
    """Unreadable arguments, and schemas of several branches, are named with their place."""
    schema = {"type": "object", "properties": {"id": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
    text = json.dumps({"contracts": [{"name": "refund", "effect": "write", "input_schema": schema}]})
    done = amend({"arguments": {"id": "x7"}}, {"arguments": '{"id": 1'}, file="c.json", text=text)
    assert done.returncode == 1
    assert "refused, and left to a person:" in done.stdout
    assert [line.split()[1:] for line in done.stdout.splitlines()[1:3]] == [
        ["schema_mismatch", "refund", "calls.jsonl:1"],
        ["cut_in_number", "refund", "calls.jsonl:2"],
    ]


def test_a_json_file_and_a_json_report(amend, tmp_path):
    """A file of tool definitions is amended too, and the report is one document."""
    schema = {"type": "object", "properties": {"cents": {"type": "integer", "maximum": 40}}}
    text = json.dumps({"tools": [{"name": "refund", "inputSchema": schema}]}, indent=2) + "\n"
    done = amend(call(50), words=("--write", "--json"), file="c.json", text=text)
    report = json.loads(done.stdout)
    assert report["changes"] == {
        "refund": [{"at": "/properties/cents/maximum", "before": 40, "after": 50, "calls": 1, "first": "calls.jsonl:1"}]
    }
    assert (report["left"], report["written"], report["against"]["mended"]) == ([], True, 1)
    assert (tmp_path / "c.json").read_text() == text.replace("40", "50")


def test_only_the_named_tools(amend):
    """Other tools are not amended; a name that no contract has is an error."""
    assert amend(call(50), words=("--tool", "other")).stdout.startswith("nothing to amend")
    done = amend(call(50), words=("--tool", "refnd"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no contract of 'refnd'; there are refund, other" in done.stderr
