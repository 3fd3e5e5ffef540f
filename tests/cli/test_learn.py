"""`pokayoke learn`: recordings and listings in, contracts out; clear words where something is wrong."""

import json
import sys

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.runtime.config.yaml_reader import read_document

CALLS = [
    {
        "tool": "get_order",
        "arguments": {"id": f"A{n:03d}"},
        "output": json.dumps({"id": f"A{n:03d}", "total": n * 1.5}),
        "run": f"r{n // 2}",
    }
    for n in range(40)
]


def write(folder, rows, name="calls.jsonl"):
    (folder / name).write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return name


def test_the_file_is_read_by_check(shell, tmp_path):
    """What learn writes, check accepts without a finding, and it says what each statement rests on."""
    done = shell("learn", write(tmp_path, CALLS), "-o", "contracts.yaml")
    assert done.returncode == 0
    assert done.stdout == ""
    assert "calls.jsonl: plain\ncalls.jsonl: 40 calls" in done.stderr
    assert "wrote contracts.yaml: 1 contract." in done.stderr
    text = (tmp_path / "contracts.yaml").read_text()
    assert 'pattern: "^A[0-9]{3}$"  # 40 different texts, all like this' in text
    assert "effect: read  # a guess from the word 'get' in its name; check it" in text
    checked = shell("check", "contracts.yaml")
    assert (checked.returncode, checked.stdout) == (0, "clean: tools get_order@1\n")


def test_stdout_is_the_contracts(shell, tmp_path):
    """Without -o the YAML is stdout and nothing else is."""
    done = shell("learn", write(tmp_path, CALLS), "--contract-version", "7")
    (mapping,) = read_document(done.stdout).value["contracts"]
    assert Contract.from_mapping(mapping).id == "get_order@7"


def test_json_says_the_same(shell, tmp_path):
    """--json holds the contracts, the notes and the counts, in one document."""
    done = shell("learn", write(tmp_path, CALLS), "--json")
    found = json.loads(done.stdout)
    assert (found["calls"], found["unread"], found["skipped"]) == (40, 0, [])
    assert found["contracts"][0]["name"] == "get_order"
    assert "guess" in found["notes"][0]["/effect"]


def test_somebodys_edits_are_not_overwritten(shell, tmp_path):
    """An existing file is left alone unless --force says otherwise."""
    (tmp_path / "c.yaml").write_text("mine")
    done = shell("learn", write(tmp_path, CALLS), "-o", "c.yaml")
    assert done.returncode == 2
    assert (tmp_path / "c.yaml").read_text() == "mine"
    assert shell("learn", "calls.jsonl", "-o", "c.yaml", "--force").returncode == 0


def test_a_recording_is_never_written_over(shell, tmp_path):
    """Not even with --force: nobody can make the recording again."""
    name = write(tmp_path, CALLS)
    before = (tmp_path / name).read_bytes()
    done = shell("learn", name, "-o", f"./{name}", "--force")
    assert done.returncode == 2
    assert "--output" in done.stderr
    assert (tmp_path / name).read_bytes() == before


def test_a_cut_line_is_named_and_the_rest_counts(shell, tmp_path):
    """A broken line makes the exit code 1 and is named with its number; the other lines are learnt."""
    done = shell("learn", write(tmp_path, [*CALLS, '{"tool": "get_or']))
    assert done.returncode == 1
    assert "1 record could not be read. The first is on line 41: not JSON" in done.stderr
    assert "get_order" in done.stdout


def test_a_file_of_another_kind_is_named(shell, tmp_path):
    """A wrong --format is answered with what the file looks like."""
    done = shell("learn", write(tmp_path, CALLS), "--format", "anthropic")
    assert done.returncode == 2
    assert "no recording of the kind anthropic" in done.stderr
    assert "Traceback" not in done.stderr
    assert shell("learn", "calls.jsonl", "--format", "csv").returncode == 2


def test_fields_can_be_mapped(shell, tmp_path):
    """Other people's JSON Lines are read with --map; an unknown field is named line by line."""
    rows = [{"fn": {"name": "find"}, "args": '{"q": "x"}', "result": "y"}] * 3
    done = shell("learn", write(tmp_path, rows), "--map", "tool=fn.name,arguments=args,output=result")
    assert "name: find" in done.stdout
    assert shell("learn", "calls.jsonl", "--map", "tool=nope,arguments=args").returncode == 2
    assert shell("learn", "calls.jsonl", "--map", "name=fn").returncode == 2


def test_only_the_named_tools(shell, tmp_path):
    """--tool picks; a tool that is not there leaves nothing, and that is exit code 1."""
    rows = [*CALLS, {"tool": "other", "arguments": {}}]
    done = shell("learn", write(tmp_path, rows), "--tool", "other")
    assert "get_order" not in done.stdout
    assert done.returncode == 0
    done = shell("learn", "calls.jsonl", "--tool", "none", "-o", "none.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no call of 'none'; there are get_order, other" in done.stderr
    assert not (tmp_path / "none.yaml").exists()
    done = shell("learn", "calls.jsonl", "--tool", "none", "--tool", "other")
    assert "no call of 'none'" in done.stderr
    assert "name: other" in done.stdout


@pytest.mark.parametrize(
    ("name", "why"),
    [(" t ", "white space around it"), ("t\u0430ool", "mixes scripts"), ("x" * 200, "more than 128 characters")],
)
def test_one_odd_name_costs_one_tool(shell, tmp_path, name, why):
    """A tool whose name cannot be registered is skipped, named on stderr and in the file; the others are learnt."""
    odd = {"tool": name, "arguments": {"a": "x"}, "output": "k"}
    done = shell("learn", write(tmp_path, [*CALLS, odd]), "-o", "contracts.yaml")
    assert done.returncode == 1
    assert "not learnt" in done.stderr
    assert why in done.stderr
    text = (tmp_path / "contracts.yaml").read_text()
    assert [one["name"] for one in read_document(text).value["contracts"]] == ["get_order"]
    assert why in text


def test_stdin_is_a_recording(shell):
    """`-` reads stdin."""
    assert "get_order" in shell("learn", "-", stdin="".join(json.dumps(one) + "\n" for one in CALLS)).stdout


def test_nothing_to_learn_from(shell):
    """No recording, no listing and no server is an error that names the three; --mcp without a command is one, too."""
    for words in ((), ("--mcp",)):
        done = shell("learn", *words)
        assert done.returncode == 2
        assert "--mcp -- COMMAND" in done.stderr


def test_a_saved_listing_is_completed_by_recordings(shell, tmp_path):
    """--listing gives the inputs as the server says them, and the recording what the answers were."""
    (tmp_path / "tools.json").write_text(
        json.dumps({"tools": [{"name": "get_order", "description": "Look: up #1", "inputSchema": {"type": "object"}}]})
    )
    done = shell("learn", write(tmp_path, CALLS), "--listing", "tools.json")
    (mapping,) = read_document(done.stdout).value["contracts"]
    assert mapping["description"] == "Look: up #1"
    assert mapping["output_schema"]["required"] == ["id", "total"]
    assert shell("learn", "--listing", "tools.json").returncode == 0


def test_a_live_server_is_asked(shell, tmp_path):
    """--mcp -- COMMAND starts the server, asks for its tools and writes their contracts."""
    (tmp_path / "server.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if 'id' in m:\n"
        "        r = {'tools': [{'name': 'delete_all', 'inputSchema': {'type': 'object'}}]} if m['method'] == 'tools/list' else {}\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n"
    )
    done = shell("learn", "--mcp", "--", sys.executable, "server.py")
    assert done.returncode == 0
    assert "effect: destructive" in done.stdout
    failed = shell("learn", "--mcp", "--timeout", "5", "--", "/no/such/server")
    assert failed.returncode == 2
    assert "cannot be started" in failed.stderr


@pytest.mark.parametrize("evil", ["\x1b]0;x\x07", "\u202eabc", "a\nb: c", "\u2028# x"])
def test_nothing_recorded_reaches_the_terminal_raw(shell, tmp_path, evil):
    """Escapes and line ends in names, fields and answers are shown, not obeyed; the file still reads back."""
    rows = [
        {"tool": "t", "arguments": {evil: evil}, "output": {evil: evil}},
        {"tool": evil, "arguments": {}, "output": evil},
    ]
    for options in ((), ("--json",)):
        done = shell("learn", write(tmp_path, rows), *options)
        assert done.returncode == 1  # a name like that cannot be a tool's
        assert not {"\x1b", "\x07", "\u202e", "\u2028"} & set(done.stdout + done.stderr)
    back = read_document(shell("learn", "calls.jsonl").stdout).value["contracts"]
    assert list(back[0]["input_schema"]["properties"]) == [evil]
