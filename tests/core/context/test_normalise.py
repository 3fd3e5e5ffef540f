"""Histories that a provider would refuse are repaired; valid ones are not changed."""

import copy
import json

import pytest
from history_cases import LONG, MARK, A, Builder, U, chat_call, chat_result, got, note_in, told, use
from provider_rules import PROBLEMS
from random_histories import Ai, Human, Tool

import pokayoke
from pokayoke.core.context import History, compacted
from pokayoke.core.context.groups import UNANSWERED, with_fields
from pokayoke.core.finding_codes import CODES_BY_ROOM
from pokayoke.errors import UsageError


def item(key, name="f", **fields):
    """A call of the responses API."""
    return {"type": "function_call", "call_id": key, "name": name, "arguments": "{}", **fields}


def output(key, text="fine"):
    """A result of the responses API."""
    return {"type": "function_call_output", "call_id": key, "output": text}


THINK = {"type": "reasoning", "summary": []}

MENDED = [
    # shape, what came in, codes, what goes out (None: only valid)
    ("openai", [U, chat_result("x"), A], ["orphan_result"], [U, A]),
    ("openai", [U, chat_call("a")], ["unanswered_call"], [U, chat_call("a"), chat_result("a", UNANSWERED)]),
    (
        "openai",
        [U, chat_call("a", "b"), chat_result("b"), A],
        ["unanswered_call"],
        [U, chat_call("a", "b"), chat_result("b"), chat_result("a", UNANSWERED), A],
    ),
    (
        "openai",
        [U, chat_call("a"), U, chat_result("a")],
        ["displaced_result"],
        [U, chat_call("a"), chat_result("a"), U],
    ),
    (
        "openai",
        [U, chat_call("a"), chat_result("a", "wait"), chat_result("a", "yes")],
        ["duplicate_result"],
        [U, chat_call("a"), chat_result("a", "yes")],
    ),
    (
        "openai",
        [U, chat_call("a"), chat_result("a"), A, chat_result("a", "again")],
        ["orphan_result"],
        [U, chat_call("a"), chat_result("a"), A],
    ),
    (
        "openai",
        [U, chat_call("a"), chat_result("a", UNANSWERED), A, chat_result("a", "late")],
        ["duplicate_result"],
        [U, chat_call("a"), chat_result("a", "late"), A],
    ),
    (
        "openai",
        [U, chat_call("a", "a"), chat_result("a", "1"), chat_result("a", "2")],
        ["unusable_call"],
        [U, chat_call("a", "a_2"), chat_result("a", "1"), chat_result("a_2", "2")],
    ),
    (
        "openai",
        [U, chat_call("a", "a", "a_2"), chat_result("a"), chat_result("a"), chat_result("a_2")],
        ["unusable_call"],
        [U, chat_call("a", "a_3", "a_2"), chat_result("a"), chat_result("a_3"), chat_result("a_2")],
    ),
    (
        "openai",
        [U, chat_call(None, ""), {"role": "tool", "content": "1"}, chat_result("", "2")],
        ["unusable_call"],
        [U, chat_call("call_2", "call_3"), chat_result("call_2", "1"), chat_result("call_3", "2")],
    ),
    (
        "openai",
        [U, chat_call("a"), {"role": "tool", "content": "1"}],
        [],
        [U, chat_call("a"), chat_result("a", "1")],
    ),
    ("openai", [U, chat_call("a"), chat_result("a"), {"role": "tool", "content": "1"}], ["orphan_result"], None),
    (
        "openai",
        [U, chat_call("a", name="f<|channel|>x"), chat_result("a")],
        ["unusable_call"],
        [U, chat_call("a", name="f__channel__x"), chat_result("a")],
    ),
    ("openai", [U, chat_call("a", name=""), chat_result("a")], ["unusable_call"], None),
    ("openai", [U, {**A, "tool_calls": [None]}], ["unusable_call"], [U, A]),
    ("openai", [U, {**A, "content": None, "tool_calls": ["f"]}], ["empty_message", "unusable_call"], [U]),
    (
        "openai",
        [U, {**A, "tool_calls": [None, *chat_call("a")["tool_calls"], {"id": "b", "function": "f"}]}, chat_result("a")],
        ["unusable_call"],
        [U, chat_call("a", content="ok"), chat_result("a")],
    ),
    ("langchain", [U, {"type": "ai", "content": "ok", "tool_calls": [None]}], ["unusable_call"], None),
    ("openai", [U, {"role": "assistant", "content": None}, A], ["empty_message"], [U, A]),
    ("openai", [U, {**A, "tool_calls": []}], [], [U, A]),
    (
        "openai",
        [U, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}],
        ["unanswered_call"],
        [
            U,
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": UNANSWERED},
        ],
    ),
    (
        "openai",
        [
            U,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "", "input": "x"}}],
            },
            chat_result("a"),
        ],
        ["unusable_call"],
        None,
    ),
    ("anthropic", [U, got("x"), A], ["orphan_result"], [U, A]),
    ("anthropic", [U, A, got("x"), A], ["orphan_result"], None),
    ("anthropic", [use("a"), got("a")], [], None),
    ("anthropic", [U, use("a")], ["unanswered_call"], None),
    ("anthropic", [U, use("a"), use("b"), got("a", "b")], ["displaced_result"], None),
    ("anthropic", [U, use("a"), got("b", more=["and?"])], ["orphan_result", "unanswered_call"], None),
    ("anthropic", [U, use("a"), got("a", "a")], ["duplicate_result"], None),
    ("anthropic", [U, use("a"), got("a"), A, got("a", more=["x"])], ["orphan_result"], None),
    (
        "anthropic",
        [U, use("a"), got("a", text=UNANSWERED), A, got("a", more=["x"])],
        ["duplicate_result"],
        [U, use("a"), got("a"), A, {"role": "user", "content": [{"type": "text", "text": "x"}]}],
    ),
    (
        "anthropic",
        [U, use("a"), got("a"), use("a"), got("a", text="2")],
        ["unusable_call"],
        [U, use("a"), got("a"), use("a_2"), got("a_2", text="2")],
    ),
    ("anthropic", [U, use("a|1", name="x.y"), got("a|1")], ["unusable_call"], [U, use("a_1", name="x_y"), got("a_1")]),
    ("anthropic", [U, use(None), got(None)], ["unusable_call"], None),
    ("anthropic", [U, use("a"), got("a"), U], [], [U, use("a"), got("a", more=["hi"])]),
    ("anthropic", [U, {"role": "assistant", "content": []}, use("a"), got("a")], ["empty_message"], None),
    (
        "anthropic",
        [U, {"role": "assistant", "content": [{"type": "text", "text": " "}, *use("a")["content"]]}, got("a")],
        ["empty_message"],
        [U, use("a"), got("a")],
    ),
    (
        "anthropic",
        [{"role": "system", "content": "S"}, U, use("a"), {"role": "system", "content": "Be brief."}, got("a")],
        ["displaced_result", "system_in_between"],
        [{"role": "system", "content": "S"}, U, use("a"), got("a", more=["Be brief."])],
    ),
    ("items", [U, output("x"), A], ["orphan_result"], [U, A]),
    ("items", [U, item("a"), A], ["unanswered_call"], [U, item("a"), output("a", UNANSWERED), A]),
    (
        "items",
        [U, {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"}],
        ["unanswered_call"],
        None,
    ),
    (
        "items",
        [U, item("a"), output("a", "1"), output("a", "2")],
        ["duplicate_result"],
        [U, item("a"), output("a", "2")],
    ),
    ("items", [U, item("a"), output("a"), A, output("a", "2")], ["orphan_result"], [U, item("a"), output("a"), A]),
    (
        "items",
        [U, item("a"), output("a", UNANSWERED), A, output("a", "2")],
        ["duplicate_result"],
        [U, item("a"), A, output("a", "2")],
    ),
    (
        "items",
        [U, item("a"), item("a", id="fc"), output("a", "1"), output("a", "2")],
        ["unusable_call"],
        [U, item("a"), item("a_2"), output("a", "1"), output("a_2", "2")],
    ),
    (
        "items",
        [U, item("a"), item("a"), item("a_2"), output("a", "1"), output("a", "2"), output("a_2", "3")],
        ["unusable_call", "unusable_call"],
        [U, item("a"), item("a_2"), item("a_2_2"), output("a", "1"), output("a_2", "2"), output("a_2_2", "3")],
    ),
    ("items", [U, item(None, name=""), output(None)], ["unusable_call"], None),
    ("items", [U, THINK, U], ["empty_message"], [U, U]),
    ("items", [U, item("a"), output("a"), THINK], ["empty_message"], [U, item("a"), output("a")]),
    ("items", [U, item("a"), output("a"), {"role": "assistant", "content": []}], ["empty_message"], None),
    ("items", [{"type": "message", **U}, item("a"), output("a"), {"type": "message", **A}], [], None),
    ("items", [U, THINK, THINK, item("a"), output("a"), {"type": "web_search_call", "id": "w"}, A], [], None),
]


@pytest.mark.parametrize(("shape", "messages", "codes", "wanted"), MENDED)
def test_what_a_provider_would_refuse_is_put_right(shape, messages, codes, wanted):
    """Each fault has its finding and its remedy, at any size, and the remedy needs none itself."""
    before = copy.deepcopy(messages)
    result = compacted(messages, 100_000)
    assert messages == before
    assert sorted(finding.code for finding in result.findings) == codes
    assert set(codes) <= set(CODES_BY_ROOM["context"])
    assert all(finding.blame == "host" for finding in result.findings)
    checked = [m for m in result.messages if m.get("type") != "web_search_call" and m.get("role") != "function"]
    legacy = len(checked) < len(result.messages)
    assert legacy or PROBLEMS[shape](checked) == []
    if wanted is not None:
        assert result.messages == wanted
    again = compacted(result.messages, 100_000)
    assert (again.messages, again.findings) == (result.messages, ())
    kept = History(100_000, messages=messages)
    assert kept.messages() == result.messages


def test_odd_things_in_a_history():
    """What is no message is left where it is; nothing fails."""
    for extra in (17, None, "text", {}, ("user", "hi")):
        assert compacted([U, extra, A], 1_000).messages == [U, extra, A]
        assert compacted([U, use("a"), got("a"), extra], 1_000).messages == [U, use("a"), got("a"), extra]


class Fixed:
    """An object that copies itself like those of pydantic."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def model_copy(self, update):
        """Return a copy with changes."""
        return Fixed(**{**self.__dict__, **update})


def test_objects_are_copied_not_changed():
    """A message that has to be changed is copied, in the way its class offers."""
    asks = Fixed(role="assistant", content=None, tool_calls=[{"id": "", "function": {"name": "f", "arguments": "{}"}}])
    result = compacted([U, asks], 1_000)
    assert result.messages[1].tool_calls[0]["id"] == "call_2"
    assert asks.tool_calls[0]["id"] == ""
    plain_copy = with_fields(Human(content="a"), content="b")
    assert (plain_copy.content, type(plain_copy)) == ("b", Human)


@pytest.mark.parametrize("manner", ["object", "flat", "dumped", "mixed"])
def test_langchain_gets_its_own_kind(manner):
    """Notes and missing results are written as the history is: objects, flat dicts, dumped dicts, or role dicts."""
    build = Builder("langchain")
    build.user("first")
    for count in range(10):
        build.calls([f"c{count}"], {"id": count})
        build.results([f"c{count}"])
    build.calls(["open"])
    messages = build.messages
    if manner == "flat":
        messages = [{"type": message.type, **vars(message)} for message in messages]
    elif manner == "dumped":
        messages = [{"type": message.type, "data": vars(message)} for message in messages]
    elif manner == "mixed":
        messages = [Ai(content=LONG), *(message for message in messages if message.type == "ai")] * 9
    result = compacted(messages, 1_600, format="langchain")
    assert PROBLEMS["langchain"](result.messages) == []
    kinds = {"object": (Human, Tool), "flat": (dict, dict), "dumped": (dict, dict), "mixed": (dict, dict)}[manner]
    note = next(message for message in result.messages if MARK in repr(message))
    assert (type(note), type(result.messages[-1])) == kinds
    assert UNANSWERED in repr(result.messages[-1])
    assert ("role" in repr(note)) == (manner == "mixed")


def test_unreadable_calls_of_langchain():
    """A call that LangChain could not read is left out with its raw form unless somebody answered it."""
    bad = {"id": "b", "name": "f", "args": '{"a": ', "error": None}
    raw = {"tool_calls": [{"id": "b"}], "other": 1}
    asks = Ai(content="", invalid_tool_calls=[bad], additional_kwargs=raw)
    alone = compacted([Human(content="hi"), Ai(content="x", invalid_tool_calls=[bad], additional_kwargs=raw)], 1_000)
    assert alone.messages[1].invalid_tool_calls == []
    assert alone.messages[1].additional_kwargs == {"other": 1}
    assert [finding.code for finding in alone.findings] == ["unanswered_call"]
    gone = compacted([Human(content="hi"), Ai(content="", invalid_tool_calls=[bad])], 1_000)
    assert len(gone.messages) == 1
    answered = [Human(content="hi"), asks, Tool(content="cut", tool_call_id="b")]
    assert compacted(answered, 1_000).messages == answered


RULE = {"role": "developer", "content": "Never show the address of a parcel."}


def test_what_the_host_says_in_between_stays():
    """A later message of the system or developer stays; what does not fit is quoted first, and a finding says so."""
    build = Builder("openai")
    build.user("Where are my parcels?")
    build.messages.append(RULE)
    for count in range(60):
        build.calls([f"c{count}"], {"id": count})
        build.results([f"c{count}"])
    roomy = compacted(build.messages, 6_000)
    assert RULE in roomy.messages
    assert (roomy.findings, PROBLEMS["openai"](roomy.messages)) == ((), [])
    rules = [{"role": "system", "content": f"Rule {count}: never. " + LONG} for count in range(30)]
    tight = compacted([*build.messages[:2], *rules, *build.messages[2:]], 6_000)
    assert {finding.code for finding in tight.findings} == {"system_left_out"}
    assert [finding.at for finding in tight.findings] == [f"/{at}" for at in range(2, 33)]
    assert 'system: "Rule 29: never.' in note_in(tight.messages)
    again = compacted([*tight.messages, *build.messages[-100:]], 6_000)
    assert 'system: "Rule 29: never.' in note_in(again.messages)


PAIRS = [
    # a call of another kind and its answer, and the field of each that names it
    ({"type": "computer_call", "id": "i{}", "call_id": "c{}"}, {"type": "computer_call_output", "call_id": "c{}"}),
    ({"type": "local_shell_call", "id": "i{}", "call_id": "c{}"}, {"type": "local_shell_call_output", "id": "i{}"}),
    ({"type": "shell_call", "call_id": "c{}"}, {"type": "shell_call_output", "call_id": "c{}"}),
    ({"type": "apply_patch_call", "call_id": "c{}"}, {"type": "apply_patch_call_output", "call_id": "c{}"}),
    (
        {"type": "mcp_approval_request", "id": "m{}", "name": "pay"},
        {"type": "mcp_approval_response", "approval_request_id": "m{}", "approve": True},
    ),
]


def numbered(item_, count):
    """A copy with a number in each of its ids."""
    return {name: value.format(count) if isinstance(value, str) else value for name, value in item_.items()}


@pytest.mark.parametrize(("call", "answer"), PAIRS)
def test_calls_of_other_kinds_are_never_parted_from_their_answers(call, answer):
    """Wherever the end begins, also while the history grows: either both are there, or none."""
    messages = [U]
    for count in range(20):
        asks = item(f"f{count}", arguments=json.dumps({"id": count}))
        messages += [asks, output(f"f{count}", LONG), numbered(call, count), numbered(answer, count)]
    grown = History(3_000)
    for message in messages:
        grown.add(message)
        waits = message["type"] == call["type"] if "type" in message else False
        shown = grown.messages()
        kinds = [one.get("type") for one in shown]
        assert kinds.count(call["type"]) - kinds.count(answer["type"]) == waits
    for keep_last in range(1, 9):
        result = compacted(messages, 3_000, keep_last=keep_last, large=10_000)
        assert result.dropped
        kinds = [one.get("type") for one in result.messages]
        assert kinds.count(call["type"]) == kinds.count(answer["type"])


@pytest.mark.parametrize("keep_last", [0, 1])
@pytest.mark.parametrize(
    ("call", "answer"), [*PAIRS, (item("c{}"), output("c{}", "done"))], ids=[*(one["type"] for one, _ in PAIRS), "tool"]
)
def test_a_call_that_waits_is_not_left_out(call, answer, keep_last):
    """Two calls at the end stay until they are answered, however few messages are to stay; answered ones may go."""
    history = History(200, keep_last=keep_last)
    for _ in range(8):
        history.add({"type": "message", "role": "assistant", "content": "Many words about nothing. " * 10})
    for count in (1, 2):
        history.add(numbered(call, count))
        assert [one.get("type") for one in history.messages()].count(call["type"]) == count
    for count in (1, 2):
        history.add(numbered(answer, count))
        kinds = [one.get("type") for one in history.messages()]
        assert kinds.count(call["type"]) >= kinds.count(answer["type"])
    history.add({"type": "message", "role": "assistant", "content": "Many words about nothing. " * 30})
    kinds = [one.get("type") for one in history.messages()]
    assert kinds.count(call["type"]) == kinds.count(answer["type"]) == 0


def test_what_nobody_asked_for_is_left_alone():
    """Answers of other kinds whose call is not in the history, and calls that the provider answers itself, stay."""
    messages = [U, PAIRS[0][1], {"type": 5}, {"type": "web_search_call", "id": "w"}, {"type": "shell_call"}, A]
    assert compacted(messages, 1_000, format="openai").messages == messages
    assert compacted([U, PAIRS[4][0], PAIRS[4][1]], 1_000).findings == ()
    with pytest.raises(UsageError, match="in the shape of items"):
        compacted([PAIRS[4][0]], 1_000, format="anthropic")


def test_outputs_in_a_chat_without_tool_calls():
    """There the user's side brings the outputs: they are put aside, and told as calls, never as the user's words."""
    messages = [U]
    for count in range(40):
        messages.append({"role": "assistant", "content": f'{{"name": "find", "arguments": {{"id": {count}}}}}'})
        body = told(f"{LONG} {count}.50") + "\n" + told("gone", "error")
        messages.append({"role": "user", "content": body})
    messages.insert(3, {"role": "user", "content": "Only blue ones."})
    messages.append({"role": "user", "content": "And now?"})
    note = note_in(compacted(messages, 4_000, large=10_000).messages)
    users = [line for line in note.splitlines() if line.startswith("user: ")]
    assert users == ['user: "Only blue ones."']
    assert 'call: "find", answered, shows ["33.50"]\ncall: "find", said: "gone"' in note
    aside = compacted(messages, 6_000, kept=True, large=200, threshold=0.5, keep_last=2)
    assert messages[2]["content"] in aside.offloaded.values()
    assert aside.superseded == 0
    again = compacted(aside.messages, 6_000, kept=True, large=200, threshold=0.5, keep_last=2)
    assert again.messages == aside.messages


THOUGHT = {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}

BLANK = {"role": "assistant", "content": [*THOUGHT["content"], {"type": "text", "text": "  "}]}


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([U, THOUGHT, U], [{"role": "user", "content": [{"type": "text", "text": "hi"}] * 2}]),
        ([U, BLANK, U], [{"role": "user", "content": [{"type": "text", "text": "hi"}] * 2}]),
        ([U, A, U, BLANK], [U, A, U]),
        ([THOUGHT, U, A], [U, A]),
        ([U, THOUGHT, use("a"), got("a")], None),
        ([U, use("a"), BLANK, got("a"), A], None),
    ],
)
def test_a_message_that_only_thinks_is_refused(messages, wanted):
    """With Anthropic a message of thought alone goes, and what stood around it still takes turns; before a call it stays."""
    result = compacted(messages, 100_000, format="anthropic")
    assert PROBLEMS["anthropic"](result.messages) == []
    assert wanted is None or result.messages == wanted
    assert wanted is None or "empty_message" in {finding.code for finding in result.findings}
    for one in result.messages:
        kinds = {block["type"] for block in one["content"]} if isinstance(one["content"], list) else {"text"}
        assert kinds != {"thinking"}
    grown = History(100_000, format="anthropic")
    for message in messages:
        grown.add(message)
        grown.messages()
    assert grown.messages() == result.messages


def test_a_history_of_anthropic_that_was_put_right_once_stays_as_it_is():
    """The stand-in for a result that never came takes the place of its call, so the next look moves nothing."""
    asked = [{"type": "tool_use", "id": name, "name": "find", "input": {}} for name in ("a", "b")]
    history = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": asked},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "found"}]},
    ]
    once = pokayoke.compact(history, 10_000, format="anthropic")
    assert [block["tool_use_id"] for block in once[2]["content"]] == ["a", "b"]
    assert pokayoke.compact(once, 10_000, format="anthropic") == once
