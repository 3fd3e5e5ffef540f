"""The loop guard over real runs: kinds of the host's own, rounds of single calls, what never counts."""

import pytest

import pokayoke
from pokayoke.core.state.loop_guard import Kind
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


def test_a_kind_of_the_hosts_own(driver):
    """A new kind is one declaration; its reason and its words are used."""
    tired = Kind("tired", "asked a tool that is tired", codes=("tool_failed",), reason="budget_exhausted")
    run = guarded(loop_kinds=[tired]).run("r")
    for _ in range(2):
        driver.batch(run, [ask("get", key="bad")])
    assert run.stop_reason == "budget_exhausted"
    assert "tired ('get')" in run.instruction


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
