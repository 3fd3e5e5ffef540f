"""What a tool is handed, and tools that answer in odd ways: nothing changes behind the guard's back."""

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pokayoke import Contract, Guard, ToolCall, ToolError
from pokayoke.core.policy import RetryPolicy
from pokayoke.errors import UsageError
from pokayoke.runtime.driver.tool_call import build_tool_arguments

ITEMS = {"type": "object", "properties": {"items": {"type": "array"}, "deep": {"type": "object"}}}
CALL = ToolCall("c", "write", '{"items": ["a"], "deep": {"x": [1]}}')


def write(handler, **fields):
    return Contract.from_schema(
        "write", ITEMS, output_schema=fields.pop("output_schema", {}), handler=handler, **fields
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
@example({"n": [2**64, {"b": 1.0, "a": -0.0}]})
def test_what_is_handed_over_is_the_same_and_shares_nothing(arguments):
    """Equal to the last type and in the same order, and no list or object is anybody else's."""
    given = build_tool_arguments(write(print), arguments, None, None)
    assert repr(given) == repr(arguments)
    assert not ids(given) & ids(arguments)


def ids(value):
    """The identities of every list and object in a value."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return set() if inside is None else {id(value)}.union(*map(ids, inside))


def test_what_a_tool_does_to_its_arguments_stays_with_it(driver):
    """An invariant, the trace, the latch and a later call see the arguments that were checked."""
    seen = []

    def changing(items, deep):
        items.append("b")
        deep.clear()
        return {"n": len(items)}

    def honest(value, arguments):
        seen.append(arguments)
        return value["n"] == 1

    tool = write(changing, effect="read", invariants=(honest,), identity=("items",))
    guard = Guard([tool])
    run = guard.run("r")
    assert driver.call(run, CALL).status == "degraded"
    assert seen == [{"items": ["a"], "deep": {"x": [1]}}]
    assert run.trace[-1]["event"] == "stop"
    assert [event["arguments"] for event in run.trace if "arguments" in event] == seen
    tool = write(lambda items, deep: {"n": 1}, effect="read", invariants=(honest,), identity=("items",))
    guard.replace([tool])
    assert driver.call(run, CALL).ok
    assert run.mode == "normal", "the valid answer was to the same question"


class NotSentError(Exception):
    """Proves that nothing happened."""


def test_a_second_attempt_gets_what_the_first_one_got(driver):
    """A tool that changes its arguments and fails harmlessly is started again with the ones that were checked."""
    seen = []

    def changing(items, deep):
        seen.append((list(items), list(deep["x"])))
        items.append("b")
        deep["x"].append(2)
        if len(seen) < 3:
            raise NotSentError
        return {}

    tool = write(changing, no_effect_errors=(NotSentError,), retry=RetryPolicy(initial=0.0))
    assert driver.call(Guard([tool]).run("r"), CALL).attempts == 3
    assert seen == [(["a"], [1])] * 3


def test_a_correction_is_told_as_it_was_made(driver):
    """A tool that changes a corrected value changes nothing of what the outcome and a second attempt say."""
    seen = []

    def changing(items):
        seen.append(list(items))
        items.append("b")
        if len(seen) < 2:
            raise NotSentError
        return {}

    schema = {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}}
    tool = Contract.from_schema(
        "list", schema, output_schema={}, effect="read", handler=changing,
        no_effect_errors=(NotSentError,), retry=RetryPolicy(initial=0.0),
    )  # fmt: skip
    outcome = driver.call(Guard([tool]).run("r"), ToolCall("c", "list", '{"items": "[\\"a\\"]"}'))
    assert (outcome.status, outcome.attempts, seen) == ("ok", 2, [["a"], ["a"]])
    assert [change.after for change in outcome.corrections] == [["a"]]


@pytest.mark.parametrize("hook", ["invoke", "ticket"])
def test_a_framework_gets_the_key_and_the_resolved_path(tmp_path, driver, hook):
    """A continuation and a ticket hand over exactly what a handler would get."""
    schema = {"type": "object", "properties": {"file": {"type": "string"}, "key": {"type": "string"}}}
    tool = Contract.from_schema("save", schema, output_schema={}, key_argument="key", paths={"file": (str(tmp_path),)})
    run, call, seen = Guard([tool]).run("r"), ToolCall("c", "save", '{"file": "a/../b.txt"}'), {}
    if hook == "invoke":
        key = driver.call(run, call, invoke=lambda given: seen.update(given) or {}).key
    else:
        ticket = driver.begin(run, call)
        seen.update(ticket.arguments)
        key = driver.finish(run, ticket, result={}).key
    assert (seen["file"], seen["key"]) == (str(tmp_path.resolve() / "b.txt"), key)


def call_it(function, **given):
    return function(**given)


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_plain_function_that_hands_out_a_coroutine_is_awaited(driver, timeout):
    """The effect is only done once the coroutine ran; before that nothing has happened."""
    effects = []

    async def later(**given):
        effects.append(given)
        return {"done": True}

    tool = write(partial(call_it, later), timeout=timeout)
    outcome = driver.call(Guard([tool]).run("r"), CALL)
    assert (outcome.status, outcome.value, len(effects)) == ("ok", {"done": True}, 1)


def test_an_asynchronous_continuation_under_a_synchronous_call_is_awaited():
    """Frameworks hand in what they have."""

    async def later(given):
        return {"n": len(given)}

    assert Guard([write(None)]).run("r").call(CALL, invoke=later).value == {"n": 2}


def test_a_call_that_could_not_be_started_leaves_no_open_claim(driver):
    """After the mistake is corrected, the same write runs."""
    run = Guard([write(None)]).run("r")
    with pytest.raises(UsageError, match="invoke="):
        driver.call(run, CALL)
    assert driver.call(run, CALL, invoke=lambda given: {}).ok


class MuteError(ToolError):
    """An exception that fails to describe itself."""

    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("effect", ["read", "write"])
def test_an_exception_without_readable_text_ends_in_an_outcome(driver, effect):
    """What a tool raises cannot break the guard, and the claim is settled."""

    def failing(**given):
        raise MuteError

    run = Guard([write(failing, effect=effect)]).run("r")
    assert [driver.call(run, CALL).status for _ in range(2)] == ["failed"] * 2


class Hostile:
    """An object that raises whatever it is asked."""

    def __getattr__(self, name):
        raise SystemExit


def test_an_answer_that_raises_when_looked_at_is_invalid(driver):
    """Also for a read, whose answer is looked at for a status first."""
    run = Guard([write(lambda **given: Hostile(), effect="read")]).run("r")
    assert driver.call(run, CALL).status == "degraded"


class Stopped:
    """Ctrl-C arrives while the answer is looked at."""

    def __getattr__(self, name):
        raise KeyboardInterrupt


def test_ctrl_c_goes_through(driver):
    """It is never taken for something the tool did."""
    run = Guard([write(lambda **given: Stopped(), effect="read")]).run("r")
    with pytest.raises(KeyboardInterrupt):
        driver.call(run, CALL)


def test_a_repetition_of_a_secret_write_invents_no_result(driver):
    """Its result was not kept: the model is told so, and not that it was null."""
    run = Guard([write(lambda **given: {"token": "t"}, secret=True)]).run("r")
    driver.call(run, CALL)
    again = driver.call(run, CALL)
    assert (again.status, "not kept" in again.text, "null" in again.text) == ("replayed", True, False)


def test_a_second_attempt_gets_every_path_again(tmp_path, driver):
    """A tool that takes a path out of its list takes it out of its own."""
    seen = []

    def emptying(files):
        seen.append([*files])
        files.clear()
        if len(seen) < 2:
            raise NotSentError
        return {}

    schema = {"type": "object", "properties": {"files": {"type": "array", "items": {"type": "string"}}}}
    tool = Contract.from_schema(
        "save", schema, output_schema={}, handler=emptying, paths={"files": (str(tmp_path),)},
        no_effect_errors=(NotSentError,), retry=RetryPolicy(initial=0.0),
    )  # fmt: skip
    driver.call(Guard([tool]).run("r"), ToolCall("c", "save", '{"files": ["a.txt"]}'))
    assert seen == [[str(tmp_path.resolve() / "a.txt")]] * 2
