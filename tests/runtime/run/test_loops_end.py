"""A model that gets nowhere: when the guard counts, what ends a streak or a turn, and what each call is answered with."""

import asyncio
import threading
import time

import pytest

import pokayoke
from pokayoke.core.policy import LoopPolicy, RetryPolicy
from pokayoke.core.state.loop_guard import KINDS
from pokayoke.errors import PolicyError
from pokayoke.stores import MemoryStore
from pokayoke.testing import ScriptedModel, ask

OPEN = {"type": "object"}
done = []


def get(key: str) -> dict:
    """Read."""
    if key.startswith("bad"):
        raise ValueError("secret detail")
    return {"key": key}


def put(key: str) -> dict:
    """Write."""
    done.append(key)
    return {"key": key}


READ, WRITE = pokayoke.tool(effect="read", output=OPEN)(get), pokayoke.tool(effect="write", output=OPEN)(put)
UNKNOWN, FAILS = ask("invented", x=1), ask("get", key="bad")


def guarded(tools=(READ, WRITE), store=None, **config):
    retry = config.pop("retry", {"retries": 0})
    return pokayoke.Guard(list(tools), config={"retry": retry, **config}, store=store)


def started(*, run_id="r", **options):
    return guarded(**options).run(run_id, prompt="go")


@pytest.fixture(autouse=True)
def fresh():
    done.clear()


@pytest.mark.parametrize("tools", [(READ, WRITE), ()], ids=["tools", "no tools"])
def test_the_guard_is_there_by_default(driver, tools):
    """Nothing is registered; with tools and without, unknown names lead to an answer. One mechanism for all kinds."""
    run = started(tools=tools)
    for expected in ("normal", "final_answer"):
        driver.batch(run, [UNKNOWN])
        assert run.mode == expected
    assert [event["reason"] for event in run.trace if event["event"] == "stop"] == ["unknown_tool"]


@pytest.mark.parametrize("tools", [(READ, WRITE), ()], ids=["tools", "no tools"])
@pytest.mark.parametrize("off", ["unknown_tool", "tool_failure"])
def test_each_kind_is_switched_off_by_name(driver, tools, off):
    """What is off never ends a run, yet every call is refused.

    Without tools and with the guard off, the limit of rounds still leads to an answer, and that is never empty.
    """
    turn = UNKNOWN if off == "unknown_tool" else FAILS
    run = started(tools=tools, loop={"off": [off, "unknown_tool", "repeated_call"]})
    for _ in range(14):
        assert not driver.batch(run, [turn])[0].ok
    assert run.mode == "normal"
    ended = guarded(tools, loop={"off": ["unknown_tool"]}).loop(ScriptedModel([UNKNOWN] * 9), "go", rounds=4)
    assert (ended.stop_reason, bool(ended.text)) == ("budget_exhausted", True)


def test_without_tools_a_call_is_still_answered(driver):
    """With no tools at all, an invented call gets an answer that says so, and its history stays valid."""
    run = started(tools=())
    outcome = driver.batch(run, [UNKNOWN])[0]
    assert (run.tools(), outcome.call_id) == ([], UNKNOWN.id)
    assert "There are no tools; answer without one." in outcome.text


def test_the_order_of_the_kinds_is_fixed(driver):
    """Unknown names come first, and a failure counts as one kind.

    Nothing can leak from an old decision: the mode is one value, and asking for it changes nothing.
    """
    assert next(iter(KINDS)).name == "unknown_tool"
    run = started()
    driver.batch(run, [UNKNOWN])
    assert [kind for kind, _, _ in run.state.loop.seen] == ["unknown_tool"]
    driver.batch(run, [FAILS])
    assert [(run.mode, len(run.tools())) for _ in range(3)] == [("final_answer", 0)] * 3


@pytest.mark.parametrize(("allowed", "rounds"), [(None, 2), (0, 1), (1, 2), (3, 4)])
def test_how_often_it_may_repair_itself(driver, allowed, rounds):
    """One self-repair by default, none with 0, N with N; a negative number is an error when the guard is built."""
    run = started(loop={} if allowed is None else {"self_repair": allowed})
    for number in range(rounds):
        assert run.mode == "normal", number
        driver.batch(run, [UNKNOWN])
    assert run.mode == "final_answer"
    with pytest.raises(PolicyError, match="self_repair"):
        guarded(loop={"self_repair": -1})


def test_mixed_failures_are_one_bad_round(driver):
    """A round of an unknown name and a failure is bad.

    It adds one to one count, not one to each of two, and the instruction names both kinds.
    """
    run = started()
    driver.batch(run, [UNKNOWN, FAILS])
    assert (run.state.loop.streak, run.state.loop.bad) == (1, 1)
    driver.batch(run, [UNKNOWN, FAILS])
    assert run.stop_reason == "loop_detected"
    assert "'invented'" in run.instruction
    assert "tools that failed ('get')" in run.instruction


def test_what_ends_a_streak(driver):
    """A round that brings something ends the streak, and so does the user's next text.

    A success beside a failure does not, nor does a round of another kind of failure: either would reset it for ever.
    """
    run = started()
    driver.batch(run, [FAILS])
    driver.batch(run, [ask("get", key="new")])
    driver.batch(run, [UNKNOWN])
    assert (run.mode, run.state.loop.streak) == ("normal", 1)
    driver.batch(run, [FAILS, ask("get", key="newer")])
    assert run.mode == "normal"
    driver.batch(run, [FAILS])
    assert run.mode == "final_answer"


def test_escalation_changes_no_list(driver):
    """The list of messages that comes in is not changed.

    The count is kept for the turn, so that the same instruction can be given with every request and after a restart.
    """
    run, messages = started(), [{"role": "user", "content": "go"}]
    given = list(messages)
    for _ in range(2):
        driver.batch(run, [UNKNOWN])
    told = run.instruction
    ended = run.guard.loop(ScriptedModel(["No."]), messages=messages, run_id="r")
    assert (messages, run.instruction) == (given, told)
    assert (run.state.loop.bad, ended.text) == (2, "No.")


def test_what_the_instruction_says(driver):
    """How many rounds, what was asked for and what there is, that tools are off, and to mention limits.

    A text of the host's replaces it whole, per kind.
    """
    run = started()
    driver.batch(run, [UNKNOWN])
    assert run.instruction is None
    driver.batch(run, [ask("other", x=1)])
    for part in (
        "In the last 2 rounds",
        "'invented', 'other'",
        "there are only 'get', 'put'",
        "Tools are off",
        "could not be done",
    ):
        assert part in run.instruction
    own = started(loop={"instructions": {"unknown_tool": "Stop."}})
    for _ in range(2):
        driver.batch(own, [UNKNOWN])
    assert own.instruction == "Stop."


def test_the_tools_go_from_the_next_request():
    """The request after it has no tools and the instruction; the definitions and the history stay as they were."""
    guard = guarded()
    before = guard.run().tools()
    model = ScriptedModel([UNKNOWN, UNKNOWN, "No."])
    ended = guard.loop(model, "go")
    assert [len(offered) for offered in model.offered] == [2, 2, 0]
    assert "Tools are off" in model.seen[2][-1]["content"]
    assert not any("Tools are off" in str(message) for message in ended.messages)
    assert guard.run().tools() == before


def test_calls_in_spite_of_it_run_nothing(driver):
    """A call after the tools are off runs nothing; the message is replaced, and the run is over: 3 requests, 0 effects."""
    run = started()
    for _ in range(2):
        driver.batch(run, [UNKNOWN])
    assert driver.batch(run, [ask("put", key="b")])[0].findings[0].code == "tools_off"
    model = ScriptedModel([UNKNOWN, UNKNOWN, ask("put", key="b")])
    ended = guarded().loop(model, "go")
    assert (done, model.requests, ended.messages[-1]) == ([], 3, {"role": "assistant", "content": ended.text})
    assert ended.stop_reason == "unknown_tool"


@pytest.mark.parametrize("own", ["Sorry.", None, "   "])
def test_the_fallback(driver, own):
    """A text of the host's that is not blank, else one of what is known.

    One text serves all kinds: it says what was and what was not done.
    """
    run = started(loop={"fallback": own})
    driver.batch(run, [ask("put", key="a")])
    driver.batch(run, [FAILS])
    said = run.answer("").text
    assert said == own if own == "Sorry." else said.endswith("Done: put. Not done: get (the tool failed).")


def test_nothing_leaks_into_the_next_turn(driver):
    """The user's next text gives the tools back and counts from zero; the effects stay known."""
    run = started()
    driver.batch(run, [ask("put", key="a")])
    for _ in range(2):
        driver.batch(run, [UNKNOWN])
    run.user("Try something else.")
    assert (run.mode, len(run.tools()), run.instruction, run.stop_reason) == ("normal", 2, None, None)
    driver.batch(run, [UNKNOWN])
    assert (run.mode, run.state.loop.bad) == ("normal", 1)
    again = driver.batch(run, [ask("put", key="a")])[0]
    assert (again.status, again.repeated) == ("ok", True)


def test_an_unknown_tool(driver):
    """The answer has a kind, the called name and what there is. The list stands in the text the model reads."""
    outcome = driver.batch(started(), [ask("git", key="a")])[0]
    assert (outcome.status, outcome.stop_reason, outcome.findings[0].code) == (
        "refused",
        "unknown_tool",
        "unknown_tool",
    )
    assert (outcome.findings[0].data["called"], outcome.findings[0].data["nearest"][0]) == ("git", "get")
    assert "Tools: get, put." in outcome.text


def test_a_failure(driver):
    """A failure and a timeout are told apart.

    The text of an exception does not reach the model, because it may hold secrets or orders; only a
    `ToolError` speaks to it. What a timed-out write did is not known: in doubt.
    """

    async def slow(key: str) -> dict:
        """Read."""
        await asyncio.sleep(5)

    tools = (READ, pokayoke.tool(effect="read", output=OPEN, timeout=0.05)(slow))
    failed, late = driver.batch(started(tools=tools), [FAILS, ask("slow", key="a")]) if driver.kind == "async" else (
        driver.batch(started(tools=tools), [FAILS])[0], None,
    )  # fmt: skip
    assert (failed.status, failed.stop_reason, failed.findings[0].code) == ("failed", "tool_failure", "tool_failed")
    assert "secret" not in failed.text
    assert late is None or (late.status, late.findings[0].code) == ("failed", "tool_timeout")


def test_what_is_kept_of_a_round(driver):
    """Kinds, names and details of what failed are kept, and nothing if nothing did.

    They stand in the run's state, where a restart and the instruction find them; a history may lose a message.
    """
    run = started()
    driver.batch(run, [ask("get", key="a")])
    assert run.state.loop.seen == ()
    driver.batch(run, [UNKNOWN, UNKNOWN, FAILS])
    assert set(run.state.loop.seen) == {
        ("unknown_tool", "invented", "unknown_tool"),
        ("tool_failure", "get", "tool_failed"),
    }
    assert dict(run.state.loop.failing) == {"*unknown_tool": 1, "get": 1}


def test_a_round_that_waits_for_a_person(driver):
    """What waits for approval neither fails nor succeeds; what is decided later adds to the round it is taken in."""
    run = started(approvals={"tools": ["put"]})
    for _ in range(5):
        assert driver.batch(run, [ask("put", key="a")])[0].status == "pending"
    assert run.state.loop.bad == 0
    run.guard.approvals.approve(run.guard.approvals.list()[0].id, by="ann")
    with run.round():
        driver.call(run, UNKNOWN)
        assert driver.call(run, ask("put", key="a")).ok
    assert (run.state.loop.streak, run.state.loop.bad) == (0, 1)


def test_calls_of_one_message_side_by_side(driver):
    """At most five at once, in order, one answer each, and a late result is not delivered.

    That is for reads; a write waits for the reads before it, or it would be built on one that turns out invalid.
    """
    running, most, lock = [0], [0], threading.Lock()

    def peek(key: str) -> dict:
        """Read."""
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.02)
        with lock:
            running[0] -= 1
        return {"key": key}

    def hangs(key: str) -> dict:
        """Read."""
        time.sleep(0.3)
        return {"key": "late"}

    tools = [
        pokayoke.tool(effect="read", output=OPEN)(peek),
        pokayoke.tool(effect="read", output=OPEN, timeout=0.05)(hangs),
        WRITE,
    ]
    run = started(tools=tools)
    calls = [ask("peek", key=str(n)) for n in range(8)]
    outcomes = driver.batch(run, [*calls, ask("put", key="w"), ask("hangs", key="a")])
    assert [one.value["key"] for one in outcomes[:8]] == [str(n) for n in range(8)]
    assert most[0] <= 5
    assert (outcomes[8].ok, outcomes[9].status, "late" in outcomes[9].text) == (True, "failed", False)
    run.guard.close()


def test_the_defaults_of_retries(driver):
    """Two retries, 1 s, factor 2, cap 60 s, 25 % jitter; what is exhausted is an answer, never an exception.

    Not on every exception, but on those classed transient, and only where no effect can have happened.
    """
    assert RetryPolicy() == RetryPolicy(retries=2, initial=1.0, factor=2.0, cap=60.0, jitter=0.25)
    outcome, tries = flaky(driver, ConnectionError)
    assert (outcome.status, tries, outcome.retry_exhausted) == ("failed", 3, True)


def flaky(driver, error, effect="read", **config):
    """The outcome of a tool that raises, and how often it was started."""
    tries = []

    def tool(key: str) -> dict:
        """Do it."""
        tries.append(key)
        raise error

    made = pokayoke.tool(effect=effect, output=OPEN)(tool)
    run = started(tools=[made], retry={"retries": 2, "initial": 0}, **config)
    return driver.batch(run, [ask("tool", key="a")])[0], len(tries)


def test_what_is_tried_again(driver):
    """Transient failures are, an unknown tool never is; what is not transient is answered, never thrown."""
    assert [flaky(driver, error)[1] for error in (TimeoutError, ConnectionError, ValueError)] == [3, 3, 1]
    assert driver.batch(started(), [UNKNOWN])[0].attempts == 0


def test_what_is_exhausted_says_so_and_counts_once(driver):
    """The outcome keeps its finding and gains attempts and `retry_exhausted`; for the loop guard it is one failure."""
    tries = []

    def tool(key: str) -> dict:
        """Read."""
        tries.append(key)
        raise ConnectionError

    run = started(tools=[pokayoke.tool(effect="read", output=OPEN)(tool)], retry={"retries": 2, "initial": 0})
    outcome = driver.batch(run, [ask("tool", key="a")])[0]
    assert (outcome.attempts, outcome.retry_exhausted, outcome.findings[0].code) == (3, True, "tool_failed")
    assert (run.mode, run.state.loop.bad) == ("normal", 1)


def test_the_model_reads_the_list_in_round_one():
    """What there is, and what is nearest, stands in the text the model reads the first time it goes wrong."""
    model = ScriptedModel([ask("gett", key="a"), "ok"])
    guarded().loop(model, "go")
    answer = model.seen[1][-1]["content"]
    assert "Nearest: get" in answer
    assert "Tools: get, put." in answer


@pytest.mark.parametrize(
    ("rounds", "limit"),
    [([[UNKNOWN], [FAILS]], 2), ([[FAILS, "new"]], 12), ([[FAILS], ["new"]], 23)],
    ids=["alternating kinds", "a trivial success in each", "a trivial success between"],
)
def test_nothing_trivial_resets_it_for_ever(driver, rounds, limit):
    """Alternating failures add up, and trivial successes do not clear a tool's count or the turn's total."""
    run, fresh_keys = started(), iter(range(100))
    for number in range(limit):
        assert run.mode == "normal", number
        turn = rounds[number % len(rounds)]
        driver.batch(run, [ask("get", key=f"k{next(fresh_keys)}") if one == "new" else one for one in turn])
    driver.batch(run, [ask("get", key="bad")])
    assert run.mode == "final_answer"


@pytest.mark.parametrize("error", [pokayoke.ToolError("it is closed"), ValueError("x"), TimeoutError(), KeyError("k")])
def test_every_exception_is_a_failure(driver, error):
    """The library's own exception for tools is a failure like any other, exhausted or not; none ends as success."""
    outcome, _ = flaky(driver, error)
    assert (outcome.status, outcome.ok, outcome.stop_reason) == ("failed", False, "tool_failure")
    run = started(tools=[pokayoke.tool(effect="read", output=OPEN)(_raising(error))], loop={"self_repair": 0})
    driver.batch(run, [ask("tool", key="a")])
    assert run.stop_reason == "tool_failure"


def _raising(error):
    def tool(key: str) -> dict:
        """Read."""
        raise error

    return tool


def test_every_way_to_fail_in_a_batch_is_owned(driver):
    """A deadline, an answer that is nothing and an exception in a parallel batch each have a kind and count."""

    def hangs(key: str) -> dict:
        """Read."""
        time.sleep(0.3)

    def nothing(key: str) -> dict:
        """Read."""
        return None

    tools = [
        READ,
        pokayoke.tool(effect="read", output=OPEN, timeout=0.05)(hangs),
        pokayoke.tool(effect="read", output=OPEN)(nothing),
    ]
    run = started(tools=tools)
    outcomes = driver.batch(run, [FAILS, ask("hangs", key="a"), ask("nothing", key="a")])
    assert not any(outcome.ok for outcome in outcomes)
    assert sorted(kind for kind, _, _ in run.state.loop.seen) == ["invalid_output", "tool_failure", "tool_failure"]
    run.guard.close()


def test_retries_respect_effects(driver):
    """A write whose effect may have happened is not started again; its doubt is said, and stays."""
    outcome, tries = flaky(driver, TimeoutError, effect="write")
    assert (outcome.status, outcome.effect, tries) == ("in_doubt", "unknown", 1)


def test_the_answer_is_verified():
    """An empty answer is replaced.

    What was tried and not done stands beside a claim; and whatever a host appends after the instruction, the tools
    are gone: that is the run's mode, not the last message.
    """
    ended = guarded().loop(ScriptedModel([UNKNOWN, UNKNOWN, "   "]), "go")
    assert (ended.verified, ended.text.startswith("I could not finish")) == (False, True)
    claims = guarded().loop(ScriptedModel([ask("put", wrong=1), "I put it."]), "go")
    assert claims.text == "I put it.\n\n[Not done: put (the details did not fit).]"
    run = started()
    for _ in range(2):
        run.call_batch([UNKNOWN])
    told = run.instruction
    for message in ({"role": "user", "content": told}, {"role": "user", "content": "one more thing, of a hook's"}):
        model = ScriptedModel(["   "])
        run.guard.loop(model, messages=[{"role": "user", "content": "go"}, message], run_id="r")
        assert model.offered == [[]]


def test_a_restart_goes_on_counting(driver):
    """Count and instruction are where a new process finds them, and the instruction never enters the history."""
    store = MemoryStore()
    driver.batch(guarded(store=store).run("r"), [UNKNOWN])
    run = guarded(store=store).run("r")
    driver.batch(run, [UNKNOWN])
    again = guarded(store=store).run("r")
    assert (again.mode, again.instruction) == ("final_answer", run.instruction)
    ended = guarded(store=store).loop(ScriptedModel(["No."]), messages=[{"role": "user", "content": "go"}], run_id="r")
    assert [message["content"] for message in ended.messages] == ["go", "No."]


def test_counts_per_tool_and_per_argument(driver):
    """A tool's own count outlives other tools' success.

    An equal call that keeps failing is refused, names are suggested, and a turn has a total.
    """
    run, fresh_keys = started(loop={"self_repair": 50}), iter(range(100))
    for _ in range(3):
        assert driver.batch(run, [FAILS, ask("put", key=f"k{next(fresh_keys)}")])[0].status == "failed"
    for _ in range(2):
        refused = driver.batch(run, [FAILS])[0].findings[0]
        assert (refused.code, refused.data["count"]) == ("repeated_failure", 3)  # what is not run does not fail
    assert dict(run.state.loop.failing)["get"] == 5
    assert "Nearest: put" in driver.batch(run, [ask("putt", key="a")])[0].text
    assert LoopPolicy().bad_rounds == 12


def test_a_write_that_waited_for_a_valid_output_runs_after_it(driver):
    """However often the latch held a call back, it runs when a valid output comes.

    A model that sends nothing else meanwhile is stopped by the turn's total.
    """
    answers = [{"no": 1}, {"key": "a"}, {"no": 1}]
    checked = {"type": "object", "required": ["key"]}
    look = pokayoke.Contract.from_schema(
        "look", OPEN, output_schema=checked, effect="read", handler=lambda: answers.pop(0)
    )
    run, write = started(tools=[look, WRITE]), ask("put", key="a")
    assert driver.batch(run, [ask("look")])[0].status == "degraded"
    assert [driver.batch(run, [write])[0].findings[0].code for _ in range(5)] == ["latched"] * 5
    assert driver.batch(run, [ask("look")])[0].status == "ok"
    assert (driver.batch(run, [write])[0].status, done) == ("ok", ["a"])
    driver.batch(run, [ask("look")])
    modes = []
    for _ in range(5):
        assert driver.batch(run, [ask("put", key="b")])[0].findings[0].code == "latched"
        modes.append(run.mode)
    assert (modes[-2:], done) == (["safe_mode", "final_answer"], ["a"])


@pytest.mark.parametrize(
    ("answers", "mode"),
    [
        # A poll that gets on, with a failure now and then, or with a plateau now and then.
        ([*range(5), None, *range(5, 30), None, *range(30, 40)], "normal"),
        ([10, 10, 10, 10, 20, 30, 40, 50, 50, 50, 50, 60], "normal"),
        (["pending", *["running"] * 4, "done"], "normal"),
        # One that gets nowhere: failures in a row, the same for ever, failures all the time.
        ([1, None, None], "final_answer"),
        ([10, 20, 20, 20, 20, 20], "final_answer"),
        ([one for number in range(12) for one in (number, None)], "final_answer"),
    ],
)
def test_a_poll_goes_on_while_its_answer_changes(driver, answers, mode):
    """An answer that changed is progress: bad rounds before it and after it are not in a row; twelve end a turn."""
    left = list(answers)

    def status() -> dict:
        """Look how far a job is."""
        if (answer := left.pop(0)) is None:
            raise ConnectionError("503")
        return {"state": answer}

    run = started(tools=[pokayoke.tool(effect="read", output=OPEN)(status)])
    for _ in answers:
        assert run.mode == "normal"
        driver.batch(run, [ask("status")])
    assert run.mode == mode
