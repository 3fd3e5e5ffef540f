"""The laws of shortening with LangChain's own messages, checked with its own conversion to a provider's form."""

import random

import pytest
from provider_rules import chat_problems
from random_histories import Talk, damaged, langchain

from pokayoke.core.context import History, compacted

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def core(need):
    """LangChain's module of messages."""
    try:
        import langchain_core.messages as found  # noqa: PLC0415 - only development environments have it
    except ImportError:
        need("langchain-core: pip install langchain-core")
    return found


def problems(core, messages):
    """What a provider would refuse of what LangChain makes of these messages."""
    plain = [core.messages_from_dict([m])[0] if isinstance(m, dict) and "data" in m else m for m in messages]
    known = core.convert_to_messages(plain)
    return chat_problems(core.convert_to_openai_messages(known))


@pytest.mark.timeout(3_600)
def test_langchain_takes_every_result(core, full):
    """LangChain converts whatever goes out into a history that a provider accepts, and twice is like once."""
    kinds = (core.SystemMessage, core.HumanMessage, core.AIMessage, core.ToolMessage)
    for number in range(500 if full else 30):
        rng = random.Random(number)
        messages = langchain(Talk(rng), kinds, core.messages_to_dict)
        if number % 2:
            messages = damaged(messages, rng, "langchain")
        for window in (500, 3_000, 20_000):
            result = compacted(messages, window, format="langchain", kept=number % 3 == 0)
            assert problems(core, result.messages) == [], (number, window)
            assert compacted(result.messages, window, kept=number % 3 == 0).messages == result.messages
            kept = History(window, format="langchain", messages=messages)
            assert problems(core, kept.messages()) == [], (number, window)


def test_unreadable_calls_are_answered_or_go(core):
    """A call whose arguments LangChain could not read stays with its answer, and goes without one."""
    bad = core.InvalidToolCall(id="b", name="find", args='{"a": ', error="cut", type="invalid_tool_call")
    asks = core.AIMessage("Let me look.", invalid_tool_calls=[bad])
    alone = compacted([core.HumanMessage("hi"), asks], 10_000).messages
    assert alone[1].invalid_tool_calls == []
    assert asks.invalid_tool_calls == [bad]
    answered = [core.HumanMessage("hi"), asks, core.ToolMessage("arguments are cut", tool_call_id="b")]
    assert compacted(answered, 10_000).messages == answered
