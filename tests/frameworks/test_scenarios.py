"""The table of the frameworks, for plain messages: every scenario on every wire, in this environment.

The rows of the frameworks are played by `make frameworks`. Here it is also shown that the judge sees what is wrong.
"""

from dataclasses import replace
from importlib.util import find_spec

import httpx
import pytest
from judge import Facts, alone, judge
from model_server import TIRED, ModelServer, Turn
from runner import HERE, cells, conversation, load, played
from scenarios import BY_NAME, SCENARIOS

MODES = {"chat": "sync", "responses": "async", "anthropic": "stream"}


@pytest.fixture(scope="module")
def plain(need):
    """The host of plain messages."""
    for module in ("openai", "anthropic"):
        if find_spec(module) is None:
            need(f"the SDK of a provider: pip install {module}")
    return load("plain")


@pytest.mark.parametrize("wire", MODES)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_plain_messages(plain, wire, scenario, tmp_path):
    """Whatever the model and the tools do, what happens is right."""
    for cell in cells(plain, [MODES[wire]], [wire], {scenario.name}):
        assert conversation(plain, cell, tmp_path)["wrong"] == []


def test_the_loop_everybody_writes(plain, tmp_path):
    """The same loop without a guard crashes, loses, repeats and waits; the table says which."""
    names = {"wrong type": "S", "unknown tool": "C KeyError", "raises": "C RuntimeError", "same write again": "S"}
    todo = cells(plain, ["sync"], ["chat"], set(names), guarded=False)
    assert {cell["scenario"]: conversation(plain, cell, tmp_path)["cell"] for cell in todo} == names


def test_scenarios_are_told_apart_and_say_what_is_right():
    """Names are unique, and each says in one sentence what is right."""
    assert len(BY_NAME) == len(SCENARIOS)
    assert [one.name for one in SCENARIOS if not one.right.endswith(".")] == []


# -- the judge ---------------------------------------------------------------------------------------

SOUND = BY_NAME["malformed, write"]
RAN = [{"tool": "refund", "types": {}, "order_id": "A1", "amount": 5}]


def history(*answers, calls=1):
    """Requests to a model: one with the question, one with the answers."""
    asked = [
        {"id": f"c{at}", "type": "function", "function": {"name": "refund", "arguments": "{}"}} for at in range(calls)
    ]
    told = [{"role": "tool", "tool_call_id": f"c{at}", "content": text} for at, text in enumerate(answers)]
    first = {"messages": [{"role": "user", "content": "go"}], "tools": [{}]}
    second = {"messages": [*first["messages"], {"role": "assistant", "tool_calls": asked}, *told], "tools": [{}]}
    return [("chat/completions", first), ("chat/completions", second)]


def facts(**more):
    """A conversation in which everything was right."""
    at = [[0.0, 0.1], [0.2, 0.3]]
    return replace(Facts(history("refunded"), [], at, list(RAN), "Done."), **more)


@pytest.mark.parametrize(
    ("more", "kind", "letter"),
    [
        ({}, None, "ok"),
        ({"error": "KeyError: 'x'", "text": None}, "crash", "C KeyError"),
        ({"late": True, "text": None}, "late", "hangs"),
        ({"refused": ["1: an id twice"]}, "history", "C refused history"),
        ({"happened": RAN * 2}, "ran", "S"),
        ({"happened": [{**RAN[0], "amount": "5"}]}, "ran", "S"),
        ({"happened": []}, "missing", "M"),
        ({"requests": history()}, "lost", "S"),
        ({"requests": history("a", "b", calls=2)}, "lost", "S"),
        ({"requests": history("password=hunter2-of-the-shop")}, "leak", "M, leaks"),
        ({"requests": history("x" * 100_000)}, "size", "S"),
        ({"requests": history("refunded")[:1]}, "short", "S"),
        ({"requests": history("refunded") + history("refunded")[1:]}, "loop", "L(3)"),
        ({"requests": history("refunded") + history("refunded")[1:], "text": TIRED}, "loop", "L(>2)"),
        ({"text": ""}, "text", "S"),
        ({"at": [[0.0, 0.1], [7.0, 7.1]]}, "waits", "waits"),
    ],
)
def test_the_judge_sees_it(more, kind, letter):
    """Each thing that can be wrong is seen, and has its letter where a framework is played alone."""
    seen = facts(**more)
    assert (kind in judge(SOUND, seen).kinds) if kind else judge(SOUND, seen).wrong == []
    assert alone(SOUND, seen) == letter


def test_the_judge_sees_what_the_model_is_not_told():
    """An answer that does not say what it has to is wrong, and so is a last request that still offers tools."""
    assert "untold" in judge(BY_NAME["unknown tool"], facts(happened=[])).kinds
    assert "tools" in judge(BY_NAME["stuck on unknown"], facts(happened=[], text="I could not finish.")).kinds


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": [{"type": "function_call_output", "call_id": "c", "output": "seen"}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "seen"}]}]}),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"text": "seen"}]}]}]},
        ),
    ],
)
def test_answers_are_found_on_every_wire(path, body):
    """The judge reads what the model reads, whatever the wire."""
    assert Facts([(path, body)]).answers == ["seen"]


def test_a_client_that_never_ends_is_told_so():
    """After its limit of requests the server ends a conversation in words the judge knows."""
    with ModelServer([Turn(calls=(("a", "get", "{}"),))], most=2) as server:
        body = {"messages": [{"role": "user", "content": "go"}]}
        texts = [
            httpx.post(f"{server.url}/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
            for _ in range(3)
        ]
    assert texts == [None, None, TIRED]


# -- the runner --------------------------------------------------------------------------------------


def test_a_crash_and_a_hang_lose_nothing_else(tmp_path):
    """A conversation that takes its process down, or never ends, is noted as that; those after it are had."""
    todo = [
        {"scenario": name, "mode": "sync", "wire": "chat", "guarded": True}
        for name in ("malformed, read", "malformed, write", "wrong type")
    ]
    host = tmp_path / "hosts" / "frail.py"
    host.parent.mkdir()
    host.write_text(FRAIL)
    results = list(played("frail", {"todo": list(todo)}, limit=2.0, hosts=host.parent))
    assert [one["scenario"] for one in results] == [one["scenario"] for one in todo]
    assert [one["cell"] for one in results] == ["C process died", "WRONG", "WRONG"]
    assert results[1]["wrong"][0] == "it had to be ended"
    assert results[2]["text"] == "alive"


FRAIL = """
import os, time
count = os.path.join(os.path.dirname(__file__), "count")
def play(job):
    with open(count, "a") as file:
        file.write("x")
    number = os.path.getsize(count)
    if number == 1:
        os._exit(9)
    if number == 2:
        time.sleep(60)
    return "alive"
"""


def test_the_guide_says_what_is_right():
    """The guide lists every scenario with the sentence that stands here."""
    guide = (HERE.parents[1] / "docs" / "guides" / "frameworks.md").read_text(encoding="utf-8")
    assert [one.name for one in SCENARIOS if f"| {one.name} | {one.right} |\n" not in guide] == []
