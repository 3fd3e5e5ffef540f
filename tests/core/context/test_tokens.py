"""The token estimate against true counts, and the counter of a conversation."""

import json
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_fresh import COUNTS as FRESH_COUNTS
from token_fresh import SAMPLES as FRESH
from token_samples import COUNTS, SAMPLES

from pokayoke.core.context.token_sampling import TokenSampler
from pokayoke.core.context.tokens import (
    CALL_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    TokenCounter,
    estimate_message,
    estimate_tokens,
)


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_estimate_is_rarely_low_and_never_wild(kind):
    """No kind of text is estimated more than 15 % below or 40 % above its true o200k count."""
    ratio = estimate_tokens(SAMPLES[kind]) / COUNTS[kind]
    assert 0.85 <= ratio <= 1.40


@pytest.mark.parametrize("kind", FRESH)
def test_the_estimate_holds_for_texts_it_was_not_made_from(kind):
    """On samples that had no part in finding the weights the error is as small: no more than 15 % below."""
    ratio = estimate_tokens(FRESH[kind]) / FRESH_COUNTS[kind]
    assert 0.85 <= ratio <= 1.40


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("times", [3, 40])
def test_a_long_text_is_estimated_like_its_parts(kind, times):
    """Looking through windows finds nearly what looking at everything would: a repeated text grows in step."""
    ratio = estimate_tokens(SAMPLES[kind] * times) / (COUNTS[kind] * times)
    assert 0.80 <= ratio <= 1.50


@pytest.mark.parametrize("rare", ["base64", "UUIDs", "CSV", "JSON output"])
def test_a_mixed_text_is_not_underestimated(rare):
    """A dense block inside a long prose text is seen by the windows."""
    prose, dense = SAMPLES["English"], SAMPLES[rare]
    for text in (dense * 3 + prose * 8, prose * 8 + dense * 3, prose * 4 + dense * 3 + prose * 4):
        true = COUNTS["English"] * 8 + COUNTS[rare] * 3
        assert 0.85 <= estimate_tokens(text) / true <= 1.40


def test_nothing_is_nothing():
    """An empty text costs nothing, any other at least one token."""
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 1
    assert estimate_tokens("\ud800") >= 1


@given(st.text(max_size=3000))
def test_the_estimate_is_bounded(text):
    """No text costs more tokens than bytes, or fails."""
    assert 0 <= estimate_tokens(text) <= len(text.encode("utf-8", "replace")) + 1


TEXT = "Where is my parcel? It was sent on Monday."
ARGS = {"order_id": "ORD-2026-17", "deep": [1, 2, {"a": None}]}
T = estimate_tokens(TEXT)
A = estimate_tokens(json.dumps(ARGS, separators=(",", ":")))
N = estimate_tokens("find_order")
CALL = CALL_TOKENS + N + A


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (TEXT, T),
        ({"role": "user", "content": TEXT}, T),
        ({"role": "user", "content": None}, 0),
        ({"role": "user"}, 0),
        ({}, 0),
        ({"role": "user", "content": [{"type": "text", "text": TEXT}, TEXT]}, 2 * T),
        ({"role": "user", "content": ({"type": "input_text", "text": TEXT},)}, T),
        ({"role": "user", "content": {"type": "text", "text": TEXT}}, T),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": TEXT}]}, T),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": TEXT}]}, T),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:" + "A" * 9000}}]},
            IMAGE_TOKENS,
        ),
        ({"role": "user", "content": [None, {"text": 5, "x": 1}]}, estimate_tokens('{"text":5,"x":1}')),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "find_order", "arguments": json.dumps(ARGS)}}]},
            CALL_TOKENS + N + estimate_tokens(json.dumps(ARGS)),
        ),
        ({"role": "assistant", "tool_calls": [{"name": "find_order", "args": ARGS}] * 2}, 2 * CALL),
        ({"role": "assistant", "content": [{"type": "tool_use", "name": "find_order", "input": ARGS}]}, CALL),
        (
            {
                "content": [{"type": "tool_use", "name": "find_order", "input": ARGS}],
                "tool_calls": [{"name": "find_order", "args": ARGS}],
            },
            CALL,
        ),
        ({"role": "tool", "tool_call_id": "c", "content": TEXT}, T),
        ({"role": "user", "content": [{"type": "tool_result", "content": TEXT}]}, CALL_TOKENS + T),
        (
            {"content": [{"type": "tool_result", "content": [{"type": "text", "text": TEXT}, {"type": "image"}]}]},
            CALL_TOKENS + T + IMAGE_TOKENS,
        ),
        ({"content": [{"type": "tool_result", "content": None}]}, CALL_TOKENS),
        ({"type": "function_call", "name": "find_order", "arguments": ARGS}, CALL),
        ({"type": "function_call"}, CALL_TOKENS),
        ({"type": "function_call_output", "output": TEXT}, T),
        ({"type": "function_call_output", "output": [{"type": "input_text", "text": TEXT}]}, T),
        (SimpleNamespace(content=TEXT, tool_calls=[SimpleNamespace(name="find_order", args=ARGS)]), T + CALL),
        (
            {"type": "function_call", "name": "", "arguments": {"n": 2**70}},
            CALL_TOKENS + estimate_tokens(f"{{'n': {2**70}}}"),
        ),
        ({"content": "", "tool_calls": "nonsense"}, 0),
    ],
)
def test_messages_of_every_shape(message, content):
    """A message costs its content, its calls and a constant, in whatever shape it comes."""
    assert estimate_message(message) == MESSAGE_TOKENS + content


PAGE = TEXT * 100
SEALED = "QUJDREVGR0hJSktMTU5P" * 400
WRITTEN = [
    {"role": "assistant", "content": None, "function_call": {"name": "save", "arguments": json.dumps({"text": PAGE})}},
    {"role": "assistant", "content": "", "reasoning_content": PAGE},
    {"role": "assistant", "content": None, "refusal": PAGE},
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": PAGE}]},
    {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": PAGE}]},
    {"type": "mcp_call", "id": "m", "name": "read", "arguments": "{}", "output": PAGE},
    {"type": "code_interpreter_call", "id": "c", "code": "x", "outputs": [{"type": "logs", "logs": PAGE}]},
    {"type": "local_shell_call_output", "id": "c", "output": PAGE},
    {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": PAGE, "stderr": ""}]},
    SimpleNamespace(type="mcp_call", output=PAGE, name="read", arguments="{}"),
    {"content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": PAGE}}]},
    {"content": [{"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": PAGE}]}}]},
    {"content": [{"type": "search_result", "title": "t", "content": [{"type": "text", "text": PAGE}]}]},
    {"content": [{"type": "tool_result", "content": [{"type": "search_result", "content": [{"text": PAGE}]}]}]},
    {"content": [{"type": "tool_result", "content": [PAGE]}]},
    {"content": [{"type": "server_tool_use", "name": "code_execution", "input": {"code": PAGE}}]},
    {"content": [{"type": "code_execution_tool_result", "content": {"type": "x", "stdout": PAGE, "return_code": 0}}]},
    {"content": [SimpleNamespace(type="code_execution_tool_result", content={"stdout": PAGE})]},
    {"type": "ai", "content": [{"type": "reasoning", "reasoning": PAGE}]},
]


@pytest.mark.parametrize("message", WRITTEN)
def test_text_counts_wherever_it_stands(message):
    """Of items and blocks of any kind the text counts: about as much as the same text in a plain message."""
    assert estimate_tokens(PAGE) <= estimate_message(message) < estimate_tokens(PAGE) * 1.1 + 40


UNWRITTEN = [
    ({"content": [{"type": "document", "source": {"type": "base64", "data": SEALED}}]}, IMAGE_TOKENS),
    ({"content": [{"type": "document", "source": {"type": "url", "url": "https://x.example"}}]}, IMAGE_TOKENS),
    ({"content": [{"type": "input_file", "file_data": SEALED}]}, IMAGE_TOKENS),
    ({"content": [{"type": "image", "source": {"data": SEALED}}] * 2}, 2 * IMAGE_TOKENS),
    ({"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": SEALED}}, IMAGE_TOKENS),
    ({"type": "image_generation_call", "id": "i", "result": SEALED}, IMAGE_TOKENS),
    ({"type": "reasoning", "summary": [], "encrypted_content": SEALED}, len(SEALED) // 4),
    ({"content": [{"type": "redacted_thinking", "data": SEALED}]}, len(SEALED) // 4),
    ({"content": [{"type": "web_search_tool_result", "content": [{"encrypted_content": SEALED}]}]}, len(SEALED) // 4),
]


@pytest.mark.parametrize(("message", "worth"), UNWRITTEN)
def test_what_is_no_text_costs_by_its_kind(message, worth):
    """Images and files have a flat price, whatever their size in base64; a sealed text costs what may be in it."""
    assert worth <= estimate_message(message) < worth + 60


def test_a_block_without_end_is_estimated_without_a_crash():
    """However deep a block of an unknown kind is, only its first levels are looked through for images."""
    deep: dict[str, object] = {"image": {"type": "image", "data": SEALED}}
    for _ in range(9):
        deep = {"inner": deep}
    assert estimate_message({"content": [{"type": "other", "content": deep}]}) > estimate_tokens(SEALED) / 2


@pytest.mark.parametrize(("levels", "written"), [(200, True), (100_000, False)])
def test_arguments_without_end_are_estimated_without_a_crash(levels, written):
    """Nested tuples as arguments cost something, or nothing if no request could hold them."""
    value: tuple = ()
    for _ in range(levels):
        value = (value,)
    call = {"function": {"name": "f", "arguments": value}}
    cost = estimate_message({"role": "assistant", "tool_calls": [call]})
    assert (cost > MESSAGE_TOKENS + CALL_TOKENS + levels / 2) is written
    call["function"]["arguments"] = {"a": "\ud800", "b": value}
    assert estimate_message({"role": "assistant", "tool_calls": [call]}) >= cost


@pytest.mark.parametrize("value", ["\ud800" * 50, 10**50, object()])
def test_arguments_that_have_no_json_form_are_estimated_too(value):
    """Half characters, long integers and foreign objects count about as much as they look."""
    call = {"function": {"name": "f", "arguments": {"a": value}}}
    cost = estimate_message({"role": "assistant", "tool_calls": [call]})
    assert MESSAGE_TOKENS + CALL_TOKENS + 10 < cost < 500


def test_a_tokenizer_can_stand_in():
    """The estimate of texts is replaceable."""
    assert estimate_message("a b c", estimate=lambda text: len(text.split())) == MESSAGE_TOKENS + 3
    assert TokenCounter(len).add("abc") == MESSAGE_TOKENS + 3


def test_the_counter_adds_up():
    """The total is the sum of what was added."""
    counter = TokenCounter()
    assert counter.total == 0
    assert sum(counter.add({"role": "user", "content": TEXT * n}) for n in range(5)) == counter.total


def test_a_report_makes_the_prefix_exact():
    """What the provider counted replaces the estimate of everything before, and scales what follows."""
    counter = TokenCounter(len)
    counter.add("x" * 996)
    counter.report(1_500)
    assert counter.total == 1_500
    assert counter.add("x" * 996) == 1_500
    assert counter.total == 3_000


def test_growth_is_a_better_guide_than_the_first_request():
    """The first request also holds tool definitions; from the second on only the growth sets the scale."""
    counter = TokenCounter(len)
    counter.add("x" * 996)
    counter.report(5_000)
    assert counter.add("x" * 996) == 2_000
    counter.report(5_800)
    assert counter.total == 5_800
    assert counter.add("x" * 996) == 800


@pytest.mark.parametrize(("used", "cost"), [(1, 500), (10**9, 2_000)])
def test_a_report_cannot_throw_the_scale_off(used, cost):
    """However odd a report, estimates are at most doubled or halved."""
    counter = TokenCounter(len)
    counter.add("x" * 996)
    counter.report(used)
    assert counter.total == used
    assert counter.add("x" * 996) == cost


def test_reports_that_say_nothing():
    """Zero is ignored; a report without growth, or after shrinking, keeps the scale; an early one has none."""
    counter = TokenCounter(len)
    counter.add("x" * 996)
    counter.report(0)
    assert counter.total == 1_000
    counter.report(1_500)
    counter.report(1_500)
    counter.add("x" * 96)
    counter.report(400)
    assert counter.total == 400
    assert counter.add("x" * 996) == 1_500
    empty = TokenCounter(len)
    empty.report(300)
    assert (empty.total, empty.add("x" * 96)) == (300, 100)


@given(st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 20_000)), max_size=20))
def test_the_total_never_contradicts_a_report(steps):
    """After every report the total is that report, and it never sinks by adding."""
    counter = TokenCounter(len)
    for size, used in steps:
        before = counter.total
        counter.add("x" * size)
        assert counter.total >= before
        if used:
            counter.report(used)
            assert counter.total == used


@pytest.mark.parametrize("asked", [1, 7, 1_000])
@pytest.mark.parametrize(("estimate", "apart"), [(estimate_tokens, 0.06), (len, 0)])
def test_noted_texts_count_like_added_ones(estimate, apart, asked):
    """Texts noted in passing are in the total whenever it is asked for, and before a report."""
    now, later = TokenCounter(estimate), TokenCounter(estimate)
    for number in range(200):
        now.add(f"text number {number}, " * (number % 40))
        later.note(f"text number {number}, " * (number % 40))
        if number % asked == 0:
            assert later.total == pytest.approx(now.total, rel=apart, abs=0)
    assert later.total == pytest.approx(now.total, rel=apart, abs=0)
    later.note("one more")
    later.report(1_000)
    assert later.total == 1_000


@pytest.mark.parametrize("length", [100, 800, 1_600, 3_200, 5_000])
@pytest.mark.parametrize("kind", SAMPLES)
def test_texts_of_one_shape_are_estimated_as_truly_as_one(kind, length):
    """A tool writes texts of one length and one shape: not all of them are looked at in the same places."""
    text = (SAMPLES[kind] * (length // len(SAMPLES[kind]) + 1))[:length]
    counter = TokenCounter()
    for number in range(1, 1_001):
        counter.note(text)
        if number in (1, 10, 100, 1_000):
            worth = counter.total / number - MESSAGE_TOKENS
            assert worth == pytest.approx(estimate_tokens(text), rel=0.25)


@pytest.mark.parametrize("asked", [1, 1_000])
@pytest.mark.parametrize("seed", range(6))
def test_texts_of_all_kinds_are_estimated_as_truly_as_any_one(seed, asked):
    """The sum for a mixed row of texts is no further off than a single estimate may be."""
    kinds = random.Random(seed).choices([*SAMPLES], k=400)
    counter, true = TokenCounter(), 0
    for number, kind in enumerate(kinds, 1):
        counter.note(SAMPLES[kind])
        true += COUNTS[kind]
        if number % asked == 0 or number in (20, 100, 400):
            ratio = (counter.total - number * MESSAGE_TOKENS) / true
            assert number < 20 or 0.85 <= ratio <= 1.40


@pytest.mark.parametrize("text", ["", "x", "1 2", PAGE, PAGE * 60])
def test_the_first_noted_text_is_counted_like_an_added_one(text):
    """A row of one text is worth what the text is worth, however long it is."""
    now, later = TokenCounter(), TokenCounter()
    now.add(text)
    later.note(text)
    assert later.total == pytest.approx(now.total, rel=0.06, abs=1)


@given(st.lists(st.text(max_size=400), max_size=40))
def test_a_row_of_any_texts_is_bounded(texts):
    """No row costs more tokens than it has bytes, or fails; nothing of it is kept once it is counted."""
    counter = TokenCounter()
    for text in texts:
        counter.note(text)
    most = sum(len(text.encode("utf-8", "replace")) for text in texts)
    assert 0 <= counter.total - MESSAGE_TOKENS * len(texts) <= 4 * most + 1
    assert counter.total == counter.total


def test_ever_less_of_a_row_is_looked_at():
    """Of the first characters all are weighed, of a million a twentieth, and of one long text a few windows."""
    weighed: list[str] = []
    passing = TokenSampler(lambda text: weighed.append(text) or 0.0)
    for _ in range(3):
        passing.add_text("x" * 1_000)
    passing.take_totals()
    assert sum(map(len, weighed)) == 3_000
    for _ in range(1_000):
        passing.add_text("x" * 1_000)
    passing.take_totals()
    assert 10_000 < sum(map(len, weighed)) < 50_000
    long = TokenSampler(lambda text: weighed.append(text) or 0.0)
    weighed.clear()
    long.add_text("x" * 200_000)
    long.take_totals()
    assert 2_000 < sum(map(len, weighed)) < 5_000


def test_a_window_is_whole_wherever_it_begins():
    """A window that would reach over the end of its text begins earlier: a few characters say nothing about many."""
    passing = TokenSampler(len)
    for _ in range(300):
        passing.add_text("x" * 60)
    sizes = set()
    for _ in range(300):
        passing.add_text("x" * 60)
        sizes |= set(map(len, passing._pieces))
    assert sizes == {50}


def test_little_of_a_row_is_kept():
    """What waits to be weighed is a few windows of what came, however much that was."""
    passing = TokenSampler(len)
    for _ in range(1_000):
        passing.add_text("x" * 20_000)
        assert sum(map(len, passing._pieces)) <= 128 * 50


def test_a_shortened_conversation_is_counted_on():
    """After a rewriting the total is what was said then; the next report is exact and does not bend the scale."""
    counter = TokenCounter(len)
    counter.add("x" * 996)
    counter.report(2_000)
    assert counter.scale == 2.0
    counter.replace_total(300)
    assert counter.total == 300
    counter.add("x" * 96)
    assert counter.total == 500
    counter.report(9_000)
    assert (counter.total, counter.scale) == (9_000, 2.0)
    fresh = TokenCounter(len)
    fresh.add("x" * 996)
    fresh.replace_total(100)
    fresh.add("x" * 96)
    fresh.report(900)
    assert (fresh.total, fresh.scale) == (900, 1.0)
