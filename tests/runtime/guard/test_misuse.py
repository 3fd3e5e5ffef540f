"""What a programmer hands in by mistake is said where it comes in, in words of the interface."""

import asyncio
import pathlib
import time
from math import inf

import pytest

import pokayoke
from pokayoke import Contract, Guard, History, ToolCall
from pokayoke.errors import ConfigurationError, PolicyError, StoreError, UsageError

READ = Contract.from_schema("find", {"type": "object"}, output_schema={}, effect="read", handler=lambda **_: {})
DICT = {"id": "1", "name": "find", "arguments": {}}
SPOKEN = [{"role": "user", "content": "hi"}]
CALL = ToolCall("1", "find", {})


def model(messages, tools):
    return {"role": "assistant", "content": "done"}


async def later(messages, tools):
    return model(messages, tools)


@pytest.fixture
def guard():
    return Guard([READ])


@pytest.mark.parametrize("given", [DICT, None, "find", 5])
def test_what_is_no_call_is_refused_by_every_entry(guard, given):
    """A dict is no tool call, and the message says what is one and where they come from."""
    run = guard.run("r")
    for take in (run.call, run.check, run.begin, lambda one: run.call_batch([one])):
        with pytest.raises(UsageError, match=r"a call is a ToolCall\(id, name, arguments\), got"):
            take(given)
    for take in (run.acall, run.abegin, lambda one: run.acall_batch([one])):
        with pytest.raises(UsageError, match="a call is a ToolCall"):
            asyncio.run(take(given))
    assert run.call(CALL).ok


def test_the_calls_of_a_message_may_come_from_anywhere(guard):
    """A generator of calls loses none of them; a single call, or nothing, is no list."""
    run = guard.run("r")
    assert [one.status for one in run.call_batch(ToolCall(str(n), "find", {"n": n}) for n in range(3))] == ["ok"] * 3
    for given in (CALL, None, DICT):
        with pytest.raises(UsageError, match="call"):
            run.call_batch(given)


@pytest.mark.parametrize("driver", ["call", "acall", "call_batch", "acall_batch"])
def test_a_continuation_that_cannot_be_called_claims_nothing(driver):
    """What runs a write is a function: anything else is refused before there is anything to be in doubt."""
    write = Contract.from_schema("pay", {"type": "object"}, output_schema={}, effect="write", handler=lambda **_: {})
    run = Guard([write]).run("r")
    call = ToolCall("1", "pay", {})

    async def take():
        taken = getattr(run, driver)([call] if "batch" in driver else call, invoke="text")
        return await taken if driver.startswith("a") else taken

    with pytest.raises(UsageError, match="invoke is a function, or None; not 'text'"):
        asyncio.run(take())
    assert run.call(call).status == "ok"


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda run: run.finish("x"), r"the ticket that begin\(call\) returned, got str"),
        (lambda run: asyncio.run(run.afinish(None)), "ticket"),
        (lambda run: run.user(None), "what the user said is a text, got NoneType"),
        (lambda run: run.user(SPOKEN), "a loop takes a history as messages="),
        (lambda run: run.answer({"content": "x"}), "take the text of its message"),
        (lambda run: run.select(None), "tools are chosen for a text"),
        (lambda run: run.select("x", "5"), "number of candidates is a whole number, got '5'"),
        (lambda run: run.select("x", True), "number of candidates is a whole number"),
        (lambda run: run.tools(names="find"), r"such as \['find'\]"),
    ],
)
def test_a_run_says_what_it_takes(guard, mistake, words):
    """Every method that takes what a model or a host said names what it got and what belongs there."""
    with pytest.raises(UsageError, match=words):
        mistake(guard.run("r"))


def test_blocks_of_one_message_are_what_a_user_said(guard):
    """A user may send a picture: a list of blocks is a message's content, and no history."""
    guard.run(prompt=[{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": "data:,"}}])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt": SPOKEN}, "a history as messages="),
        ({"messages": "hello"}, "a history is a list of messages"),
        ({"messages": SPOKEN[0]}, "got dict"),
        ({"messages": None}, "got NoneType"),
        ({"model": None}, "the model is called with messages and tools"),
        ({"model": later}, r"await guard.aloop\(...\)"),
        ({"rounds": "5"}, "rounds, the requests that may call tools, is a whole number, got '5'"),
        ({"select": "5"}, "the number of candidates is a whole number"),
        ({"on_event": "print"}, "on_event is a function"),
        ({"on_event": lambda one: None}, "on_event is called with 2 arguments"),
    ],
)
def test_a_loop_says_what_it_takes(guard, options, words):
    """Nothing of a loop begins with arguments that would end it in the middle."""
    given = {"model": model, "prompt": "x", **options}
    with pytest.raises(pokayoke.PokayokeError, match=words):
        guard.loop(given.pop("model"), **given)


@pytest.mark.parametrize("messages", ["text", b"text", None, SPOKEN[0], 5])
def test_a_history_is_a_list_of_messages(messages):
    """A text is not taken apart into characters, and one message not into its fields."""
    for take in (
        lambda: pokayoke.compact(messages, 100),
        lambda: pokayoke.compacted(messages, 100),
        lambda: History(100, messages=messages),
    ):
        with pytest.raises(UsageError, match="a history is a list of messages"):
            take()


class Nothing:
    """A policy, a store or a clock of the host's own that is none."""


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"config": [1]}, PolicyError, "config is the path of a file"),
        ({"config": Nothing()}, PolicyError, "config is the path of a file"),
        ({"store": 5}, ConfigurationError, "store is a URL"),
        ({"store": pathlib.Path("x.db")}, ConfigurationError, "store is a URL"),
        ({"store": Nothing()}, ConfigurationError, "store is a URL"),
        ({"clock": time.time}, ConfigurationError, "clock has no now, monotonic"),
        ({"clock": Nothing()}, ConfigurationError, "clock has no now, monotonic"),
        ({"contracts": 5}, ConfigurationError, r"contracts is the path of a contracts.lock, not 5"),
        ({"loop_kinds": ["unknown_tool"]}, ConfigurationError, "loop_kinds is a list of Kind"),
        ({"loop_kinds": 5}, ConfigurationError, "loop_kinds is a list of Kind"),
        ({"on_ask": "yes"}, ConfigurationError, "on_ask is a function"),
        ({"on_ask": lambda: True}, ConfigurationError, "on_ask is called with one argument"),
        ({"on_step": lambda step, more: None}, ConfigurationError, "on_step is called with one argument"),
    ],
)
def test_a_guard_says_what_it_takes(options, error, words):
    """What would fail in the first call that needs it fails while building."""
    with pytest.raises(error, match=words):
        Guard([READ], **options)


def test_hooks_of_every_kind_are_taken():
    """A callable that says nothing of its arguments, or takes any number, may be a hook."""
    Guard([READ], on_ask=bool, on_step=[].append, on_alert=lambda *_: None).close()
    Guard([READ], on_ask=dict, on_step=print).close()


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (lambda: pokayoke.open_store(5), StoreError),
        (lambda: pokayoke.open_store(pathlib.Path("x.db")), StoreError),
        (lambda: pokayoke.read_calls("x", tools=5), UsageError),
        (lambda: pokayoke.read_calls("x", tools="find"), UsageError),
        (lambda: Guard([READ]).approvals.approve(5), UsageError),
        (lambda: Guard([READ]).replace(None), ConfigurationError),
        (lambda: Guard([READ]).run(principal={"id": "ann", "role": ["admin"]}), UsageError),
        *(
            (lambda given=given: Guard([READ]).run(principal={"id": given}), UsageError)
            for given in (None, True, ["ann"])
        ),
        *(
            (lambda given=given: ToolCall("1", "find", {}, confidence=given), UsageError)
            for given in (95, -0.1, inf, "1")
        ),
        *((lambda given=given: ToolCall("1", "find", {}, occurrence=given), UsageError) for given in (-1, 0.5, "1")),
        (lambda: pokayoke.Kind("own", "did it", codes=("tool_failed",), reason="no such reason"), UsageError),
        (lambda: pokayoke.Kind("own", "did it"), UsageError),
    ],
)
def test_functions_say_what_they_take(mistake, error):
    """The rest of what is exported does the same."""
    with pytest.raises(error):
        mistake()
