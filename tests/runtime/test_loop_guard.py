"""The loop guard over real runs: tools go, stay gone for the turn, and the run ends with an honest word."""

import pytest

import pokayoke
from pokayoke.core.loop import Kind
from pokayoke.stores import MemoryStore
from pokayoke.testing import ask

done = []


def get(key: str) -> dict:
    """Read."""
    if key == "bad":
        raise ValueError("secret detail")
    return {"key": key}


def put(key: str) -> dict:
    """Write."""
    done.append(key)
    return {"key": key}


OPEN = {"type": "object"}
READ, WRITE = pokayoke.tool(effect="read", output=OPEN)(get), pokayoke.tool(effect="write", output=OPEN)(put)


def guarded(store=None, **options):
    loop = options.pop("loop", {})
    config = {"retry": {"retries": 0}, "loop": loop, **options.pop("config", {})}
    return pokayoke.Guard([READ, WRITE], config=config, store=store, **options)


@pytest.fixture(autouse=True)
def fresh():
    done.clear()


def test_two_bad_messages_take_the_tools_away(driver):
    """R1, C1, F1, F2: the second bad round leaves an instruction and no tools; the history is not touched."""
    run = guarded().run("r", prompt="go")
    driver.batch(run, [ask("invented", x=1)])
    assert (run.mode, len(run.tools()), run.instruction) == ("normal", 2, None)
    driver.batch(run, [ask("invented_too", x=1)])
    assert (run.mode, run.tools(), run.stop_reason) == ("final_answer", [], "unknown_tool")
    assert "'invented', 'invented_too'" in run.instruction
    assert "'get', 'put'" in run.instruction
    assert [event["reason"] for event in run.trace if event["event"] == "stop"] == ["unknown_tool"]


def test_calls_of_a_model_that_goes_on_are_refused(driver):
    """F3: a call in spite of the instruction runs nothing; the answer is then the fallback, which says what was done."""
    run = guarded().run("r", prompt="go")
    driver.batch(run, [ask("put", key="a")])
    for _ in range(2):
        driver.batch(run, [ask("get", key="bad")])
    assert driver.batch(run, [ask("put", key="b")])[0].findings[0].code == "tools_off"
    assert done == ["a"]
    answer = run.answer("  ")
    assert not answer.verified
    assert answer.stop_reason == "tool_failure"
    assert "Done: put." in answer.text
    assert "get: tool_failure" in answer.text


@pytest.mark.parametrize("own", ["Sorry.", None, "   "])
def test_the_fallback_is_the_hosts_if_it_has_one(driver, own):
    """F4: a text of the host's that is not blank is the last word of a model that says nothing (G6: empty is no answer)."""
    run = guarded(loop={"fallback": own}).run("r")
    said = run.answer("").text
    assert said == own if own == "Sorry." else "could not finish" in said


def test_the_users_next_text_gives_the_tools_back(driver):
    """F5: nothing of it is left in the next turn."""
    run = guarded().run("r", prompt="go")
    for _ in range(2):
        driver.batch(run, [ask("invented", x=1)])
    run.user("Try something else.")
    assert (run.mode, len(run.tools()), run.instruction, run.stop_reason) == ("normal", 2, None, None)
    driver.batch(run, [ask("invented", x=1)])
    assert run.mode == "normal"


@pytest.mark.parametrize("off", [["unknown_tool"], ["unknown_tool", "invalid_arguments"]])
def test_a_kind_can_be_switched_off(driver, off):
    """R2: with the guard for unknown tools off the run is not ended for them (but each call is still refused)."""
    run = guarded(loop={"off": off}).run("r")
    for _ in range(4):
        assert driver.batch(run, [ask("invented", x=1)])[0].status == "refused"
    assert run.mode == ("final_answer" if "invalid_arguments" not in off else "normal")


def test_a_kind_of_the_hosts_own(driver):
    """A new kind is one declaration; its reason and its words are used."""
    tired = Kind("tired", "asked a tool that is tired", codes=("tool_failed",), reason="budget_exhausted")
    run = guarded(loop_kinds=[tired]).run("r")
    for _ in range(2):
        driver.batch(run, [ask("get", key="bad")])
    assert run.stop_reason == "budget_exhausted"
    assert "tired ('get')" in run.instruction


def test_a_restart_goes_on_counting(driver):
    """G7: the count is where a new process finds it; so is the instruction."""
    store = MemoryStore()
    driver.batch(guarded(store).run("r"), [ask("invented", x=1)])
    run = guarded(store).run("r")
    driver.batch(run, [ask("invented", x=1)])
    assert run.mode == "final_answer"
    again = guarded(store).run("r")
    assert again.mode == "final_answer"
    assert again.instruction == run.instruction


def test_calls_taken_one_by_one_are_one_round(driver):
    """Within `run.round()`, and between two requests for the tools, single calls are one message."""
    run = guarded().run("r")
    with run.round():
        for name in ("x", "y", "z"):
            driver.call(run, ask(name, a=1))
    assert run.mode == "normal"
    other = guarded().run("s")
    for name in ("x", "y", "z"):
        driver.call(other, ask(name, a=1))
    assert len(other.tools()) == 2
    driver.call(other, ask("x", a=1))
    assert other.tools() == []


def test_an_exhausted_retry_counts_once(driver):
    """T3: a tool that was tried three times is one failure of one round."""
    tries = []

    def flaky(key: str) -> dict:
        """Read."""
        tries.append(key)
        raise ConnectionError

    tool = pokayoke.tool(effect="read", output=OPEN)(flaky)
    guard = pokayoke.Guard([tool], config={"retry": {"retries": 2, "initial": 0}})
    run = guard.run("r")
    outcome = driver.batch(run, [ask("flaky", key="a")])[0]
    assert (outcome.attempts, outcome.retry_exhausted, run.mode) == (3, True, "normal")


def test_what_waits_for_a_person_never_ends_a_run(driver):
    """Pending approvals are no bad rounds, however often the model asks."""
    run = guarded(config={"approvals": {"tools": ["put"]}}).run("r")
    for _ in range(20):
        assert driver.batch(run, [ask("put", key="a")])[0].status == "pending"
    assert run.mode == "normal"


def test_a_polled_read_ends_by_itself(driver):
    """A read asked for again and again with an equal result is a loop; one whose result changes is not."""
    run = guarded().run("r")
    for _ in range(5):
        driver.batch(run, [ask("get", key="same")])
    assert (run.mode, run.stop_reason) == ("final_answer", "loop_detected")
    results = iter(range(50))
    poll = pokayoke.Contract.from_schema(
        "poll",
        {"type": "object", "properties": {"key": {}}},
        output_schema=OPEN,
        effect="read",
        handler=lambda key: {"n": next(results)},
    )
    other = pokayoke.Guard([poll]).run("s")
    for _ in range(20):
        driver.batch(other, [ask("poll", key="same")])
    assert other.mode == "normal"


def test_monitor_mode_only_records(driver):
    """Monitor mode counts and takes nothing away."""
    run = guarded(config={"mode": "monitor"}).run("r")
    for _ in range(14):
        driver.batch(run, [ask("invented", x=1)])
    assert run.mode == "normal"
