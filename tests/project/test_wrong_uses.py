"""What a programmer reads who uses the library wrongly: never nothing."""

import re

import pytest
from clishell import Shell

import pokayoke
from pokayoke import Contract, Guard, ToolCall, read_calls, tool

TEXT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def look(a: str) -> str:
    """Look."""
    return a


def write(**fields):
    """A contract of a write with one argument."""
    return Contract.from_schema("save", TEXT, output_schema="text", handler=lambda a: a, **fields)


def guard(**options):
    """A guard of one write."""
    return Guard([write()], **options)


def config(**keys):
    """A guard with a configuration."""
    return guard(config=keys)


def annotated(**fields):
    """`look`, decorated."""
    return tool(**fields)(look)


def unannotated(a):
    """A function without types."""
    return a


def many(*a: int) -> str:
    """A function that takes any number of values."""
    return str(a)


def closed():
    """A guard after its end."""
    one = guard()
    one.close()
    return one


def method(self, a: str) -> str:
    """Look."""
    return a


RAISED = [
    ("an unknown key", lambda: config(safe_mode={"on_invalid_outputs": "skip_writes"}), "Did you mean"),
    ("an unknown value", lambda: config(safe_mode={"on_invalid_output": "failclosed"}), "expected one of"),
    ("a misspelt section", lambda: config(validaton={}), "Did you mean `validation`"),
    ("a negative budget", lambda: config(budgets={"calls": -1}), "budgets.calls"),
    ("a text for a number", lambda: config(budgets={"calls": "fifty"}), "'fifty'"),
    ("a configuration that is not there", lambda: guard(config="nope.yaml"), "nope.yaml"),
    ("an unknown mode", lambda: config(mode="monitoring"), "monitor"),
    ("an approval of a tool that is not there", lambda: config(approvals={"tools": ["sav"]}), "save"),
    ("a limit of a tool that is not there", lambda: config(limits=[{"tool": "sav", "calls": 1, "per": "run"}]), "save"),
    ("a denied tool that is not there", lambda: config(access={"deny": ["sav"]}), "save"),
    ("a source that is not there", lambda: Guard([write(sources=("sav",))]), "sav"),
    ("an unknown effect", lambda: annotated(effect="writes"), "read, write, destructive"),
    ("a misspelt field", lambda: annotated(efect="read"), "Did you mean 'effect'"),
    ("the field of another door", lambda: annotated(effect="read", output_schema={"type": "string"}), "output="),
    ("an identity that is no argument", lambda: annotated(effect="write", identity=("b",)), "It has: a"),
    ("a secret that is no argument", lambda: write(identity=("b",)), "b"),
    ("a parameter without a type", lambda: tool(effect="read")(unannotated), "Annotate"),
    ("any number of values", lambda: tool(effect="read")(many), "list"),
    ("a decorated method", lambda: tool(effect="read")(method), "bound method"),
    ("an exception that proves nothing", lambda: write(no_effect_errors=(ValueError,)), "narrow"),
    ("a type that is none", lambda: Contract.from_schema("t", {"type": "strng"}), "string"),
    ("properties as a list", lambda: Contract.from_schema("t", {"properties": ["a"]}), "/properties"),
    ("a remote reference", lambda: Contract.from_schema("t", {"$ref": "https://example.org/x"}), "ref"),
    ("an endless reference", lambda: Contract.from_schema("t", {"$ref": "#"}), "t"),
    ("an invalid pattern", lambda: Contract.from_schema("t", {"properties": {"a": {"pattern": "("}}}), "pattern"),
    ("a blank name", lambda: Contract.from_schema(" ", TEXT), "name"),
    ("a handler that cannot be called", lambda: Contract.from_schema("t", TEXT, handler=5), "handler"),
    ("a negative deadline", lambda: write(timeout=-1), "timeout"),
    ("an unknown scope", lambda: write(scope="galaxy"), "scope"),
    ("what `repeats` cannot be", lambda: write(repeats="twice"), "repeats"),
    ("a kind of store that is none", lambda: guard(store="sqllite:///a.db"), "sqlite:///"),
    ("a path for a store", lambda: guard(store="ledger.db"), "not a kind of store"),
    ("a store without a file", lambda: guard(store="sqlite://ledger.db"), "names no file"),
    ("a ledger that is not there", lambda: guard(store="sqlite:////nowhere/l.db"), "/nowhere"),
    ("an undecorated function", lambda: Guard([look]), "decorate"),
    ("one tool, no list", lambda: Guard(write()), "list"),
    ("a text for the tools", lambda: Guard("save"), "save"),
    ("two tools of a name", lambda: Guard([write(), write()]), "twice"),
    ("a hook that cannot be called", lambda: guard(on_ask="yes"), "on_ask"),
    ("a closed guard", lambda: closed().run(), "closed"),
    ("a number for a run", lambda: guard().run(4711), "str()"),
    ("a call as a dict", lambda: guard().run().call({"name": "save"}), "ToolCall"),
    ("several calls for one", lambda: guard().run().call([ToolCall("1", "save", {})]), "ToolCall"),
    ("an unknown format of definitions", lambda: guard().run().tools("xml"), "openai"),
    ("a number for an answer", lambda: guard().run().answer(5), "text"),
    ("blocks for a text", lambda: read_calls([{"type": "text"}]), "join"),
    ("a text for the names of tools", lambda: read_calls("x", tools="save"), "names"),
    ("a loop without a model", lambda: guard().loop("gpt", "Hi."), "called"),
    ("a loop without rounds", lambda: guard().loop(lambda m, t: "x", "Hi.", rounds=-1), "-1 times"),
    ("a window of nothing", lambda: pokayoke.compact([], 0), "0"),
    ("a history that is none", lambda: pokayoke.compact("x", 100), "messages"),
    ("an approval nobody asked", lambda: guard().approvals.approve("ap-1", by="me"), "ap-1"),
]


@pytest.mark.parametrize(("use", "said"), [row[1:] for row in RAISED], ids=[row[0] for row in RAISED])
def test_a_wrong_use_is_an_error_that_says_what_to_do(use, said, monkeypatch, tmp_path):
    """It is one of the library's own exceptions, or Python's own for a wrong type, and names the thing."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises((pokayoke.PokayokeError, TypeError, ValueError)) as raised:
        use()
    assert said in str(raised.value), str(raised.value)
    assert len(str(raised.value)) < 1_000


COMMANDS = [
    ("tarce", "Did you mean"),
    ("demo --only zzz", "zzz"),
    ("check nope.py", "nope.py"),
    ("trace nope.jsonl", "nope.jsonl"),
    ("learn nope.jsonl -o c.yaml", "nope.jsonl"),
    ("ledger list --store sqlite:///nope.db", "ledger init"),
    ("ledger list --store nope", "not a kind of store"),
    ("contracts shadow save@2 --by me --reason x", "contracts lock"),
]


@pytest.mark.parametrize(("words", "said"), COMMANDS)
def test_a_wrong_command_says_what_to_do_on_stderr(words, said, tmp_path):
    """It ends with 2, prints nothing on stdout, and names what is wrong."""
    result = Shell(tmp_path)(*words.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert said in re.sub(r"\s+", " ", result.stderr), result.stderr


def test_the_table_has_fifty_rows():
    """A wrong use that is met gets a row."""
    assert len(RAISED) + len(COMMANDS) >= 50
