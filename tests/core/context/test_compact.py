"""Shortening a history: what goes first, what stays, and when it is reported not to fit."""

import copy
import json
import logging

import pytest
from history_cases import LONG, SHAPES, A, Builder, U, chat_call, chat_result, everything, history, note_in, told
from hypothesis import given
from hypothesis import strategies as st
from provider_rules import PROBLEMS

import pokayoke
from pokayoke.core.context import History, compacted
from pokayoke.core.context.groups import MessageGroup, answer_text
from pokayoke.core.context.note import read_note
from pokayoke.core.context.quotes import is_tool_answer, note_lines, parse_arguments
from pokayoke.core.context.values import HistoryKeywords, HistoryOptions
from pokayoke.core.messages.messages import text_of
from pokayoke.errors import UsageError


@pytest.mark.parametrize("shape", SHAPES)
def test_a_short_history_is_left_alone(shape):
    """Below the threshold the very same messages come back in a new list, and nothing is said."""
    messages = history(shape, rounds=1)
    result = compacted(messages, 100_000)
    assert all(one is other for one, other in zip(result.messages, messages, strict=True))
    assert result.messages is not messages
    assert (result.findings, result.shortened, result.before) == ((), False, result.after)
    assert result.event == {"event": "context", "before": result.before, "after": result.after, "dropped": 0}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("system", [True, False])
def test_what_stays(shape, system):
    """System prompt, first user message and the last ten stay; the middle is one note; the input is untouched."""
    messages = history(shape, system=system)
    before = copy.deepcopy(messages)
    result = compacted(messages, 6_000)
    assert messages == before
    assert result.finding is None
    assert result.after <= 4_200 < result.before
    out = result.messages
    assert [id(message) for message in out[-10:]] == [id(message) for message in messages[-10:]]
    assert not system or out[0] is messages[0]
    assert "Where is ORD-2026-17?" in everything(out[: 1 + system])
    assert read_note(note_in(out)).left_out == result.dropped > 0
    assert PROBLEMS[shape](out) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("keep_last", range(12))
def test_pairs_are_never_parted(shape, keep_last):
    """Wherever the end would begin, a call keeps all of its results."""
    result = compacted(history(shape, parallel=3), 8_000, keep_last=keep_last)
    assert result.dropped
    assert PROBLEMS[shape](result.messages) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_large_outputs_go_first(shape):
    """Where previews are enough nothing else is touched: no note, no other result."""
    build = Builder(shape)
    build.user("a")
    build.calls(["big"], {"id": 0})
    build.results(["big"], json.dumps({"rows": [{"id": f"ORD-{n}"} for n in range(2_000)]}))
    for count in range(12):
        build.calls([f"c{count}"], {"id": count})
        build.results([f"c{count}"], "fine")
    result = compacted(build.messages, 12_000)
    assert (result.dropped, result.superseded, result.finding) == (0, 0, None)
    assert len(result.messages) == len(build.messages)
    (handle, text), *more = result.offloaded.items()
    assert not more
    assert json.loads(text)["rows"][1_999] == {"id": "ORD-1999"}
    said = everything(result.messages)
    assert '"rows": list, 2000 items' in said
    assert "was left out to save space" in said
    assert handle not in said
    named = compacted(build.messages, 12_000, kept=True)
    assert named.offloaded == result.offloaded
    assert handle in everything(named.messages)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [60, 200])
def test_no_more_goes_than_has_to(shape, size):
    """A history just above its threshold loses its oldest part: it keeps at least half of the window, in every step."""
    build = Builder(shape)
    build.user("go")
    for count in range(3_600 // size):
        build.calls([f"c{count}"], {"order": f"ORD-{count}"})
        build.results([f"c{count}"], f"row {count}: " + "abc def " * size)
    for large in (None, 10**6):
        window = int(compacted(build.messages, 10**9).before / 0.72)
        result = compacted(build.messages, window, large=large or size)
        assert 0.46 < result.after / window <= 0.56
        assert PROBLEMS[shape](result.messages) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_then_older_results_of_the_same_call(shape):
    """A result goes when the same call has a newer good one; its ids stay, the call stays, and no note is needed."""
    build = Builder(shape)
    build.user("a")
    for count in range(20):
        build.calls([f"c{count}"], {"order": "ORD-1"})
        build.results([f"c{count}"], LONG + f"Total {count}17.50")
    result = compacted(build.messages, 6_000)
    assert (result.dropped, result.offloaded) == (0, {})
    assert 6 < result.superseded < 10
    assert 3_200 < result.after <= 3_360  # no more of them than it takes
    said = everything(result.messages)
    assert all(f"{count}17.50" in said for count in range(20))
    assert result.messages[-1] == build.messages[-1]
    assert PROBLEMS[shape](result.messages) == []
    assert compacted(result.messages, 6_000).messages == result.messages


@pytest.mark.parametrize(
    ("newer", "identity", "superseded"),
    [
        (LONG, None, True),
        ("Error: no connection. " + LONG, None, False),
        (json.dumps({"ok": False, "text": LONG}), None, False),
        (LONG, lambda name, arguments: None, False),
        (LONG, lambda name, arguments: (name, arguments["id"]), True),
        (LONG, lambda name, arguments: (name, arguments["page"]), False),
    ],
)
def test_what_supersedes(newer, identity, superseded):
    """Only a newer result that is no failure, of what the caller says is the same call."""
    build = Builder("openai")
    build.user("a")
    build.calls(["old"], {"id": 7, "page": 1})
    build.results(["old"])
    build.calls(["new"], {"id": 7, "page": 1 if identity is None else 2})
    build.results(["new"], newer)
    build.messages += [{"role": "assistant", "content": "x"}] * 10
    result = compacted(build.messages, 800, identity=identity, threshold=0.5, large=10_000)
    assert bool(result.superseded) == superseded


AFTERWARDS = [
    # what the call of before answers now, whether that is its result, what a note says of it
    (told(LONG), True, "answered"),
    (told(LONG, "unchecked"), True, "answered"),
    (told("12 EUR", before="already ran at 12:00; the result of get was:\n"), True, 'answered, shows ["12"]'),
    (told(LONG, "error", "find reports a failure.\n"), False, "said: "),
    (told(LONG, "degraded", "find cannot be used.\n"), False, "said: "),
    ("find failed (ValueError). Tell the user.", False, 'said: "find failed (ValueError). Tell the user."'),
    ("It is not known whether find took effect.", False, 'said: "It is not known whether find took effect."'),
    ("", False, "said"),
]


@pytest.mark.parametrize(("newer", "good", "line"), AFTERWARDS)
def test_in_a_history_with_labels_what_has_none_is_no_result(newer, good, line):
    """A guard labels every output, so its refusals, failures and doubts supersede nothing and are quoted as they are."""
    build = Builder("openai")
    build.user("a")
    build.calls(["old"], {"id": 7})
    build.results(["old"], told(LONG + "Total 14.90"))
    build.calls(["new"], {"id": 7})
    build.results(["new"], newer)
    build.messages += [{"role": "assistant", "content": "x"}] * 10
    worth = compacted(build.messages, 10_000).before
    result = compacted(build.messages, worth - 1, threshold=1, large=10_000)
    assert bool(result.superseded) == good
    assert result.dropped or result.messages[3]["content"].endswith('It showed ["14.90"]]')
    noted = compacted(
        [*build.messages, *[{"role": "assistant", "content": LONG}] * 30], 6_000, threshold=0.2, large=10_000
    )
    calls = [told for told in note_in(noted.messages).splitlines() if told.startswith("call: ")]
    assert calls[-1].startswith(f'call: "find" {{"id":7}}, {line}')


def test_what_was_no_result_is_none_in_brief_either():
    """The preview of a failure that was put aside says so, and a good result of before is still not superseded by it."""
    build = Builder("openai")
    build.user("a")
    for key, text in (("old", LONG), ("new", "Error: " + LONG * 9)):
        build.calls([key], {"id": 7})
        build.results([key], text)
    build.messages += [{"role": "assistant", "content": "x"}] * 10
    first = compacted(build.messages, 3_000, large=1_000)
    assert list(first.offloaded.values()) == ["Error: " + LONG * 9]
    assert ' trust="error" preview="true"' in first.messages[5]["content"]
    assert compacted(first.messages, 700, threshold=0.65, large=10_000).superseded == 0
    labelled = [*build.messages[:3], chat_result("old", told(LONG * 9)), *build.messages[4:]]
    brief = compacted(labelled, 3_000, large=1_000).messages[3]["content"]
    assert brief.startswith('<tool_output tool="find" trust="checked" preview="true"')


def test_arguments_in_another_order_are_the_same_call():
    """Key order and spacing do not make another call; other values, and text that is no JSON, do."""
    first, second = '{"a": 1, "b": 2}', '{"b":2,"a":1}'
    for other, count in [(second, 1), ('{"a": 1}', 0), ('{"a": 1, "b', 0)]:
        messages = [{"role": "user", "content": "a"}]
        for key, arguments in [("x", first), ("y", other)]:
            call = {"id": key, "type": "function", "function": {"name": "f", "arguments": arguments}}
            messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
            messages += [{"role": "tool", "tool_call_id": key, "content": LONG}]
        messages += [{"role": "assistant", "content": "x"}] * 10
        assert compacted(messages, 700, threshold=0.55, large=10_000).superseded == count


@pytest.mark.parametrize("arguments", ["\ud800", {1: "a", "b": 2}, {"a": "\ud800"}, b"\xff"])
def test_arguments_without_an_ordered_dump_are_compared_as_written(arguments):
    """Half a character, or keys without an order, do not keep a history from being shortened."""
    messages = [{"role": "user", "content": "a"}]
    for key in ("x", "y"):
        calls = [{"type": "tool_use", "id": key, "name": "f", "input": arguments}]
        results = [{"type": "tool_result", "tool_use_id": key, "content": LONG}]
        messages += [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    readable = arguments != {"a": "\ud800"}
    assert compacted(messages, 500, keep_last=2, large=10_000).superseded == readable


def test_a_prompt_alone_can_be_too_large():
    """System messages that lead are never left out, however many."""
    messages = [{"role": "system", "content": LONG}] * 20
    result = compacted(messages, 100, keep_last=0)
    assert result.messages == messages
    assert result.finding is not None


@pytest.mark.parametrize("shape", SHAPES)
def test_pinned_messages_stay(shape):
    """A pinned message stays with all that belongs to it, and its new place is said."""
    messages = history(shape)
    at = 13
    result = compacted(messages, 6_000, pinned=(at, -1, 999))
    assert messages[at] in result.messages
    assert PROBLEMS[shape](result.messages) == []
    places = result.pinned
    assert len(places) == 2
    assert messages[at] in result.messages[places[0] : places[0] + 7]
    tight = compacted(messages, 600, pinned=(at,))
    assert tight.finding is not None
    assert compacted(tight.messages, 600, pinned=tight.pinned).messages == tight.messages


def test_the_latest_words_of_the_user_stay_while_there_is_room():
    """What the user asked last is not summarised during a long round of calls, unless there is no room for it."""
    build = Builder("openai")
    build.user("first")
    build.assistant(LONG)
    build.user("The real task: count the parcels of depot 9. " * 120)
    for count in range(30):
        build.calls([f"c{count}"], {"id": count})
        build.results([f"c{count}"])
    roomy = compacted(build.messages, 4_500)
    assert build.messages[3] in roomy.messages
    tight = compacted(build.messages, 2_300)
    assert tight.dropped
    assert build.messages[3] not in tight.messages
    assert [(finding.code, finding.at) for finding in tight.findings] == [("user_left_out", "/3")]
    assert "count the parcels of depot 9" in note_in(tight.messages)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("words", [10, 50, 100, 125])
def test_large_answers_at_the_end_do_not_cost_the_latest_wish(words, kept):
    """However much of the window the last messages take, the wish before them stays as long as the window holds it."""
    build = Builder("openai")
    build.user("Hello, where is parcel P-1?")
    build.assistant("In Lyon.")
    build.user("Now cancel order #W1234567, and nothing else.")
    for count in range(8):
        build.calls([f"c{count}"], {"page": count})
        build.results([f"c{count}"], "an order of a customer in the city of Lyon. " * words)
    wish, fixed = build.messages[3], [*build.messages[:2], *build.messages[-10:]]
    everything_but_the_wish = compacted(fixed, 10**6).before
    result = compacted(build.messages, everything_but_the_wish + 150, kept=kept)
    assert result.dropped
    assert wish in result.messages
    assert result.findings == ()
    roomy = compacted(build.messages, everything_but_the_wish + 500, kept=kept)
    assert wish in roomy.messages
    assert 'call: "find"' in note_in(roomy.messages)
    again = compacted(result.messages, everything_but_the_wish + 150, kept=kept)
    assert again.messages == result.messages
    tight = compacted(build.messages, everything_but_the_wish + 20)
    assert wish not in tight.messages
    assert "user_left_out" in {finding.code for finding in tight.findings}


def test_large_answers_that_can_be_read_on_go_before_the_latest_wish():
    """Where outputs at the end may be put aside, they are, before the user's words are left out."""
    build = Builder("openai")
    build.user("first")
    build.assistant("What is to be done?")
    build.user("The real task: count the parcels of depot 9. " * 40)
    for count in range(8):
        build.calls([f"c{count}"], {"id": count})
        build.results([f"c{count}"], LONG * 10)
    window = compacted([*build.messages[:2], *build.messages[-10:]], 10**6).before + 200
    assert build.messages[3] not in compacted(build.messages, window).messages
    result = compacted(build.messages, window, kept=True)
    assert build.messages[3] in result.messages
    assert (result.findings, result.finding) == ((), None)


def test_the_window_is_the_bound_and_the_threshold_is_the_aim():
    """Between threshold and window there is nothing to complain about; above the window there is."""
    messages = [{"role": "user", "content": LONG}] * 5
    worth = compacted(messages, 10**6).before
    assert compacted(messages, worth).findings == ()
    finding = compacted(messages, worth - 1).finding
    assert finding.code == "context_overflow"
    assert (finding.blame, finding.data) == ("host", {"tokens": worth, "limit": worth - 1})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("room", [100, 1_500, 3_000, 8_000])
@pytest.mark.parametrize("kept", [True, False])
def test_twice_is_once(shape, room, kept):
    """A second pass changes nothing, whether the first one succeeded or not."""
    first = compacted(history(shape, text=LONG * 6), room, kept=kept)
    second = compacted(first.messages, room, kept=kept)
    assert second.messages == first.messages
    assert (second.finding is None) == (first.finding is None)
    assert PROBLEMS[shape](first.messages) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_one_huge_output_at_the_end(shape):
    """Among the last ten a large output goes only where it can be read under its handle; else the finding says so."""
    build = Builder(shape)
    build.user("a")
    build.calls(["big"], {"id": 0})
    build.results(["big"], LONG * 100)
    assert compacted(build.messages, 4_000).finding is not None
    result = compacted(build.messages, 4_000, kept=True)
    assert result.finding is None
    assert list(result.offloaded.values()) == [LONG * 100]
    assert next(iter(result.offloaded)) in everything(result.messages)
    pinned = compacted(build.messages, 4_000, kept=True, pinned=range(len(build.messages)))
    assert pinned.finding is not None


def test_a_wrapped_output_is_previewed_without_its_wrapping():
    """What `Outcome.text` puts around an output does not hide its outline."""
    body = json.dumps({"rows": list(range(2_000))})
    wrapped = f'<tool_output tool="find" call="c" trust="trusted">\n{body}\n</tool_output>'
    build = Builder("openai")
    build.user("a")
    build.calls(["c"])
    build.results(["c"], wrapped)
    result = compacted(build.messages, 2_000, keep_last=0)
    assert list(result.offloaded.values()) == [wrapped]
    result = compacted(build.messages, 2_000, kept=True)
    assert '"rows": list, 2000 items' in everything(result.messages)


def test_only_as_many_of_the_last_outputs_go_as_have_to():
    """Of two large outputs among the last messages the newer one stays if there is room for it."""
    build = Builder("openai")
    build.user("a")
    for key, text in (("old", LONG * 100), ("new", LONG * 90)):
        build.calls([key], {"id": key})
        build.results([key], text)
    room = compacted([build.messages[0], *build.messages[3:]], 10**6).before + 1_000
    assert list(compacted(build.messages, room, kept=True).offloaded.values()) == [LONG * 100]


def test_an_output_that_only_quotes_a_preview_is_no_preview():
    """What an output says of itself does not save it from being put aside; its first line, which is ours, does."""
    wrapped = f'<tool_output tool="find" call="c" trust="trusted">\nvideo preview="true" {LONG * 100}\n</tool_output>'
    build = Builder("openai")
    build.user("a")
    build.calls(["c"])
    build.results(["c"], wrapped)
    result = compacted(build.messages, 2_000, kept=True)
    assert list(result.offloaded.values()) == [wrapped]
    assert compacted(result.messages, 100, kept=True).offloaded == {}


def test_a_tokenizer_can_stand_in():
    """The count of a text is replaceable."""
    messages = [{"role": "user", "content": str(n)} for n in range(30)]
    result = compacted(messages, 160, threshold=1, estimate=lambda text: 1)
    assert (result.before, result.dropped) == (150, 0)
    result = compacted(messages, 100, threshold=1, estimate=lambda text: 1)
    assert (result.after, result.dropped) == (80, 15)


def test_every_keyword_is_an_option():
    """The keyword arguments and the validated options have the same names, besides the size of the window."""
    assert {*HistoryKeywords.__annotations__, "max_tokens"} == {*HistoryOptions.__struct_fields__}


@pytest.mark.parametrize("wrong", [{name: "x"} for name in ("estimate", "summarise", "identity", "large", "facts")])
def test_arguments_of_another_kind(wrong):
    """What is no function, number or fact is said at once, and not when a history has become long."""
    for build in (lambda: compacted([], 100, **wrong), lambda: History(100, **wrong)):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            build()


def test_places_and_counts_are_numbers():
    """A pin that is no number, and a count that is none, are the programmer's mistake."""
    with pytest.raises(UsageError, match="pinned"):
        compacted([], 100, pinned=["x"])
    with pytest.raises(UsageError, match="tokens"):
        History(100).report("x")


@pytest.mark.parametrize(
    "arguments",
    [{"max_tokens": 0}, {"threshold": 0}, {"threshold": 1.1}, {"keep_last": -1}, {"large": 0}, {"format": "gemini"}],
)
def test_arguments_out_of_range(arguments):
    """A window, share or number that cannot be is the programmer's mistake."""
    with pytest.raises(UsageError):
        compacted([], **{"max_tokens": 1, **arguments})
    with pytest.raises(UsageError):
        History(**{"max_tokens": 1, **arguments})


@pytest.mark.parametrize(
    ("shape", "format"),
    [("anthropic", "openai"), ("openai", "anthropic"), ("langchain", "openai"), ("items", "anthropic")],
)
def test_messages_of_another_format(shape, format):  # noqa: A002 - the option's name
    """A history that is plainly of another provider is the programmer's mistake, at once."""
    with pytest.raises(UsageError, match="in the shape of"):
        compacted(history(shape), 10_000, format=format)
    with pytest.raises(UsageError, match="in the shape of"):
        History(10_000, format=format, messages=history(shape))


def nested(levels):
    value: tuple = ()
    for _ in range(levels):
        value = (value,)
    return value


def test_small_helpers():
    """Texts of results, arguments of any kind and signs of failure are read without failing."""
    assert answer_text([{"type": "text", "text": "a"}, "b"]) == "a\nb"
    assert answer_text([{"type": "image"}]) is None
    assert parse_arguments(b'{"a": 1}') == ({"a": 1}, '{"a":1}')
    assert parse_arguments(b"\xff{") == ("\ufffd{", "\ufffd{")
    assert (
        parse_arguments({"a": object()})[1]
        == parse_arguments({"a": nested(100_000)})[1]
        == "(arguments that are no JSON)"
    )
    assert not is_tool_answer("ERROR: gone", failed=False, labelled=False)
    assert is_tool_answer("an error was avoided", failed=False, labelled=False)
    assert [line.text for line in note_lines(MessageGroup(("words",), (0,), ""))] == []


def test_a_preview_that_saves_nothing_is_not_made():
    """A result that is hardly longer than its preview would be stays whole."""
    messages = [U, chat_call("a"), chat_result("a", LONG[:200]), *[{"role": "assistant", "content": LONG}] * 12]
    assert compacted(messages, 3_000, large=1, keep_last=9).offloaded == {}


def test_images_are_not_offloaded():
    """A result with something else than text stays as it is until the whole goes."""
    image = [{"type": "text", "text": LONG * 30}, {"type": "image_url", "image_url": {}}]
    messages = [U, chat_call("a"), {**chat_result("a"), "content": image}, *[A] * 12]
    result = compacted(messages, 9_000)
    assert not result.offloaded
    assert result.dropped


@pytest.mark.parametrize("shape", SHAPES)
def test_compact_returns_messages_and_warns(shape, caplog):
    """`pokayoke.compact` is the messages of `compacted`; a history that does not fit is logged."""
    messages = history(shape)
    with caplog.at_level(logging.WARNING, "pokayoke.context"):
        assert pokayoke.compact(messages, 6_000) == compacted(messages, 6_000).messages
        assert caplog.text == ""
        pokayoke.compact(messages, 100)
    assert "context_overflow" in caplog.text


def test_an_empty_history():
    """Nothing in, nothing out."""
    assert compacted([], 10).messages == []
    assert History(10).messages() == []


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
    """Any conversation becomes a valid one: smaller, stable, its own end at the end."""
    build = Builder(shape, system)
    for count, (kind, size, length) in enumerate(steps):
        if kind == "round":
            ids = [f"c{count % 3}-{n}" for n in range(size)]  # ids repeat
            build.calls(ids)
            build.results(ids, "y" * length)
        else:
            getattr(build, kind)("z" * (length + 1))
    messages = build.messages
    before = copy.deepcopy(messages)
    name = "openai" if shape == "items" else shape
    result = compacted(messages, max_tokens, keep_last=keep_last, format=name)
    assert messages == before
    assert PROBLEMS[shape](result.messages) == []
    assert result.after <= result.before
    assert (result.finding is None) == (result.after <= max_tokens)
    assert text_of(result.messages[-1]) == text_of(messages[-1]) or keep_last == 0 or shape == "anthropic"
    again = compacted(result.messages, max_tokens, keep_last=keep_last, format=name)
    assert again.messages == result.messages
