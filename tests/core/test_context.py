"""Shortening a history: what stays, what is noted, and that calls and results are never parted."""

import copy
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.context import CODES, shorten
from pokayoke.core.messages import answers_in, calls_in, role_of, text_of
from pokayoke.errors import UsageError

LONG = "The parcel left the depot and was seen again in Lyon. " * 20


class Builder:
    """Writes histories in one provider's shape."""

    def __init__(self, shape):
        self.shape = shape
        self.messages = []

    def system(self, text):
        """Add a system message."""
        self.messages.append({"role": "system", "content": text})

    def user(self, text):
        """Add what a user said."""
        self.messages.append({"role": "user", "content": text})

    def assistant(self, text):
        """Add what the model said."""
        self.messages.append({"role": "assistant", "content": text})

    def calls(self, ids, arguments=None):
        """Add one round of parallel calls."""
        arguments = arguments or {"id": 1}
        if self.shape == "openai":
            calls = [{"id": i, "function": {"name": "find", "arguments": json.dumps(arguments)}} for i in ids]
            self.messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        elif self.shape == "anthropic":
            blocks = [{"type": "tool_use", "id": i, "name": "find", "input": arguments} for i in ids]
            self.messages.append({"role": "assistant", "content": blocks})
        else:
            self.messages.append({"type": "reasoning", "summary": []})
            for i in ids:
                item = {"type": "function_call", "call_id": i, "name": "find", "arguments": json.dumps(arguments)}
                self.messages.append(item)

    def results(self, ids, text=LONG):
        """Add their results."""
        if self.shape == "openai":
            self.messages += [{"role": "tool", "tool_call_id": i, "content": text} for i in ids]
        elif self.shape == "anthropic":
            blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i in ids]
            self.messages.append({"role": "user", "content": blocks})
        else:
            self.messages += [{"type": "function_call_output", "call_id": i, "output": text} for i in ids]


def parted(messages):
    """Return the ids of calls without result and results without call, as providers check it."""
    wrong, opened = [], []
    for message in messages:
        answers = answers_in(message)
        if not answers and not (calls_in(message) and message.get("type") == "function_call"):
            wrong += opened
            opened = []
        for answer in answers:
            if answer.id in opened:
                opened.remove(answer.id)
            else:
                wrong.append(answer.id)
        opened += [call.id for call in calls_in(message)]
    return wrong


def history(shape, rounds=20, parallel=2, system=True):
    """A history of several rounds of calls."""
    build = Builder(shape)
    if system:
        build.system("You look after parcels.")
    build.user("Where is ORD-2026-17?")
    for count in range(rounds):
        ids = [f"c{count}-{n}" for n in range(parallel)]
        build.calls(ids, {"id": count})
        build.results(ids)
        build.assistant(f"I looked at {count}.")
    build.user("And now?")
    return build.messages


SHAPES = ["openai", "anthropic", "responses"]


def test_a_short_history_is_left_alone():
    """Below the threshold nothing changes, and the list is a new one."""
    messages = history("openai", rounds=1)
    result = shorten(messages, 100_000)
    assert result.messages == messages
    assert result.messages is not messages
    assert (result.dropped, result.finding, result.before) == (0, None, result.after)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("system", [True, False])
def test_what_stays(shape, system):
    """System prompt, first user message and the last ten stay as the very same objects; the rest is one note."""
    messages = history(shape, system=system)
    before = copy.deepcopy(messages)
    result = shorten(messages, 8_000)
    assert messages == before
    assert result.finding is None
    assert result.after <= 8_000 * 0.7 < result.before
    out = result.messages
    head = 2 if system else 1
    note = out[1]
    assert [id(message) for message in out[-10:]] == [id(message) for message in messages[-10:]]
    assert {id(message) for message in messages[:head]} <= {id(message) for message in out}
    assert text_of(note).startswith(f"[{result.dropped} earlier messages were left out")
    assert note["role"] == ("system" if system else "user")
    assert len(out) + result.dropped == len(messages) + 1
    assert parted(out) == []
    assert out[0] is messages[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("keep_last", range(12))
def test_pairs_are_never_parted(shape, keep_last):
    """Wherever the tail would begin, a call keeps all of its results."""
    result = shorten(history(shape, parallel=3), 9_000, keep_last=keep_last)
    assert result.dropped
    assert parted(result.messages) == []


def test_the_note_says_what_was_done():
    """The note lists user texts, calls with arguments and what became of them, each on one line of JSON."""
    build = Builder("openai")
    build.system("S")
    build.user("first")
    build.user("line one\nline two \u202e " + "x" * 500)
    build.calls(["a"], {"order": "ORD-1", "amount": 3})
    build.results(["a"])
    build.calls(["b"])
    build.messages.append({"role": "tool", "tool_call_id": "b", "content": LONG, "status": "error"})
    build.calls(["lost"])
    build.assistant("done")
    build.messages += [{"role": "assistant", "content": "tail"}] * 10
    note = text_of(shorten(build.messages, 700).messages[1])
    lines = note.split("\n")
    assert lines[0].startswith("[7 earlier messages")
    assert lines[1].startswith('user: "line one\\nline two \\u202e xxx')
    assert len(lines[1]) < 200
    assert lines[2:] == [
        'call: "find" "{\\"order\\": \\"ORD-1\\", \\"amount\\": 3}", answered',
        'call: "find" "{\\"id\\": 1}", failed',
        'call: "find" "{\\"id\\": 1}", no answer',
        'assistant: "done"',
    ]
    assert "Lyon" not in note


def test_arguments_that_are_no_json_do_not_stop_the_note():
    """Arguments of any kind are noted or left out."""
    messages = [{"role": "user", "content": "a"}]
    messages += [{"role": "assistant", "tool_calls": [{"name": "f", "args": {"n": 2**80}}]}]
    messages += [{"role": "assistant", "content": LONG}] * 20
    assert 'call: "f" "...", no answer' in text_of(shorten(messages, 4_500).messages[1])


def test_notes_do_not_pile_up():
    """A later shortening takes the earlier note into the new one."""
    messages = history("openai")
    first = shorten(messages, 8_000)
    grown = first.messages + history("openai")[2:]
    second = shorten(grown, 8_000)
    notes = [message for message in second.messages if "earlier messages were left out" in text_of(message)]
    assert len(notes) == 1
    assert second.dropped == first.dropped + len(grown) + 1 - len(second.messages) - 1
    assert second.finding is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("room", [100, 1_500, 3_000, 8_000])
def test_shortening_twice_is_shortening_once(shape, room):
    """A second pass changes nothing, whether the first one succeeded or not."""
    first = shorten(history(shape), room)
    second = shorten(first.messages, room)
    assert second.messages == first.messages
    assert (second.finding is None) == (first.finding is None)


def test_too_large_to_shorten():
    """When what has to stay is too large alone, the history is valid and a finding says so."""
    messages = history("openai")
    result = shorten(messages, 1_000)
    assert result.finding.code == "context_overflow"
    assert result.finding.code in CODES
    assert result.finding.blame == "host"
    assert result.finding.data["tokens"] == result.after > result.finding.data["limit"] == 700
    assert parted(result.messages) == []
    assert "\n" not in text_of(result.messages[1])


def test_nothing_to_leave_out():
    """A short list of large messages is returned as it is, with the finding."""
    messages = [{"role": "user", "content": LONG}] * 5
    result = shorten(messages, 100)
    assert result.messages == messages
    assert result.finding.code == "context_overflow"


def test_a_prompt_alone_can_be_too_large():
    """System messages are never left out, however many."""
    messages = [{"role": "system", "content": LONG}] * 20
    result = shorten(messages, 100, keep_last=0)
    assert result.messages == messages
    assert result.finding is not None


def test_a_note_that_would_cost_more_is_not_made():
    """Leaving out a message smaller than its note makes nothing shorter, so it stays."""
    messages = [{"role": "user", "content": LONG}, {"role": "assistant", "content": "ok"}]
    messages += [{"role": "assistant", "content": LONG}] * 10
    result = shorten(messages, 500)
    assert result.messages == messages
    assert result.finding is not None


def test_odd_histories():
    """Results without calls, repeated ids, duplicate results and unknown items do not part or stop anything."""
    messages = [
        {"role": "tool", "tool_call_id": "orphan", "content": "x"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": LONG},
        {"role": "tool", "tool_call_id": "c", "content": LONG},
        {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": LONG},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "user", "content": "between"},
        {"role": "tool", "tool_call_id": "c", "content": LONG},
        {},
        17,
    ]
    for keep_last in range(len(messages) + 2):
        result = shorten(messages, 600, keep_last=keep_last)
        places = {id(message): place for place, message in enumerate(messages)}
        kept = [places[id(message)] for message in result.messages if id(message) in places]
        assert kept == sorted(kept)
        for call, answer in [(2, 3), (5, 6), (7, 9)]:
            assert (call in kept) == (answer in kept)


class Message:
    """Looks like a message of LangChain."""

    def __init__(self, content="", tool_calls=None, tool_call_id=None):
        self.content = content
        self.tool_calls = tool_calls or []
        self.tool_call_id = tool_call_id


class SystemMessage(Message):
    """A system prompt."""

    type = "system"


class HumanMessage(Message):
    """A user's message."""

    type = "human"


class AIMessage(Message):
    """A model's message."""

    type = "ai"


class ToolMessage(Message):
    """A tool's result."""

    type = "tool"


@pytest.mark.parametrize("system", [True, False])
def test_message_objects(system):
    """Histories of objects get a note of their own kind."""
    messages = [SystemMessage("S")] if system else []
    messages += [HumanMessage("first")]
    for count in range(10):
        call = {"id": f"c{count}", "name": "find", "args": {"id": count}}
        messages += [AIMessage(tool_calls=[call]), ToolMessage(LONG, tool_call_id=f"c{count}")]
    result = shorten(messages, 2_700)
    note = result.messages[1]
    assert type(note) is (SystemMessage if system else HumanMessage)
    assert 'call: "find" "{\\"id\\":0}", answered' in note.content
    assert result.finding is None
    assert len(result.messages) + result.dropped == len(messages) + 1


def test_objects_without_a_kind_for_the_note():
    """Where no message of the kind exists to be made after, the note is a dict."""
    messages = [AIMessage("a")] + [AIMessage(LONG)] * 20
    assert shorten(messages, 4_500).messages[0]["role"] == "user"


@pytest.mark.parametrize("arguments", [{"max_tokens": 0}, {"threshold": 0}, {"threshold": 1.1}, {"keep_last": -1}])
def test_arguments_out_of_range(arguments):
    """A window, share or number that cannot be is the programmer's mistake."""
    with pytest.raises(UsageError):
        shorten([], **{"max_tokens": 1, **arguments})


def test_a_tokenizer_can_stand_in():
    """The count of a message is replaceable."""
    result = shorten([{"role": "user", "content": str(n)} for n in range(30)], 20, threshold=1, estimate=lambda _: 1)
    assert (result.before, result.after, result.dropped) == (30, 12, 19)


STEPS = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "round"]), st.integers(1, 4), st.integers(0, 600)),
    min_size=1,
    max_size=30,
)


@given(
    shape=st.sampled_from(SHAPES),
    system=st.booleans(),
    steps=STEPS,
    max_tokens=st.integers(1, 6_000),
    keep_last=st.integers(0, 12),
)
def test_every_result_is_a_valid_history(shape, system, steps, max_tokens, keep_last):
    """Any valid history becomes a valid one: smaller, in order, complete at both ends, stable."""
    build = Builder(shape)
    if system:
        build.system("S")
    for count, (kind, size, length) in enumerate(steps):
        if kind == "round":
            ids = [f"c{count % 3}-{n}" for n in range(size)]  # ids repeat
            build.calls(ids)
            build.results(ids, "y" * length)
        else:
            getattr(build, kind)("z" * length)
    messages = build.messages
    before = copy.deepcopy(messages)
    result = shorten(messages, max_tokens, keep_last=keep_last)
    assert messages == before
    assert parted(result.messages) == []
    kept = {id(message) for message in result.messages}
    assert [id(m) for m in messages if id(m) in kept] == [
        id(m) for m in result.messages if id(m) in {id(x) for x in messages}
    ]
    assert {id(message) for message in messages[len(messages) - min(keep_last, len(messages)) :]} <= kept
    users = [message for message in messages if role_of(message) == "user"]
    assert not users or id(users[0]) in kept
    assert not system or result.messages[0] is messages[0]
    assert result.after <= result.before
    assert (result.finding is None) == (result.after <= int(max_tokens * 0.7))
    again = shorten(result.messages, max_tokens, keep_last=keep_last)
    assert again.messages == result.messages


@pytest.mark.parametrize(
    ("message", "role"),
    [
        ({"role": "developer"}, "system"),
        ({"role": "model"}, "assistant"),
        ({"role": "function"}, "tool"),
        ({"type": "human"}, "user"),
        ({"type": "ai"}, "assistant"),
        ({"type": "reasoning"}, "assistant"),
        ({"type": "function_call_output"}, "tool"),
        ({"type": "message", "role": "user"}, "user"),
        ({"role": "narrator"}, ""),
        ({"role": 3}, ""),
        (None, ""),
        ("text", ""),
        (SimpleNamespace(role="user", content=[{"type": "tool_result"}]), "tool"),
    ],
)
def test_roles(message, role):
    """Every provider's word for a role is understood, and no other."""
    assert role_of(message) == role


def test_text_of_a_message():
    """The text is what stands in text blocks, in order."""
    assert text_of("a") == "a"
    assert (
        text_of({"content": ["a", {"type": "text", "text": "b"}, {"type": "image"}, {"type": "x", "text": 3}]})
        == "a\nb"
    )
    assert text_of({"content": None}) == ""


def test_calls_of_a_message():
    """Calls are read once each, with their id, name and arguments, from wherever the provider puts them."""
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
    assert calls_in({"content": [block, {"type": "text", "text": "hi"}]}) == [("a", "f", {"x": 1})]
    assert calls_in({"content": [block], "tool_calls": [{"id": "a", "name": "f", "args": {}}]}) == [("a", "f", {})]
    assert calls_in({"function_call": "auto"}) == []
    assert calls_in({"tool_calls": [{"function": {}}]}) == [(None, "", None)]
    assert calls_in({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}) == [("c1", "f", None)]
