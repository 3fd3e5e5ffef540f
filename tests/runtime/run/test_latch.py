"""The latch, the kill switch, polling and last known good values: what holds a run back, and what lets it go on."""

import pytest

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.contract.terms import Polls
from pokayoke.errors import ContractError
from pokayoke.testing import FrozenClock

ID = {"type": "object", "properties": {"ident": {"type": "string"}}}
OBJ = {"type": "object"}
PLAN = {"type": "object", "required": ["plan"]}
PAGE = "<!doctype html><html><body>502</body></html>"


def read(name, handler, schema=OBJ, **fields):
    return Contract.from_schema(name, ID, output_schema=schema, effect="read", handler=handler, **fields)


def write(name="tag", handler=lambda ident="": {}, **fields):
    return Contract.from_schema(name, ID, output_schema=fields.pop("schema", OBJ), handler=handler, **fields)


def call(run, tool, ident="", number=[0]):  # noqa: B006 - each call has an id of its own
    number[0] += 1
    return run.call(ToolCall(f"c{number[0]}", tool, {"ident": ident}))


def test_a_too_large_answer_of_a_read_holds_writes_only_until_the_tool_answers_well():
    """Whatever the arguments are: the model was told to ask for less, and the words say what happened."""
    search = read("search", lambda ident="": "hit\n" * (100_000 if not ident else 5), "text")
    run = Guard([search, write()]).run()
    assert "Ask for less" in call(run, "search").text
    held = call(run, "tag")
    assert held.findings[0].code == "latched"
    assert "too large" in held.text
    assert "Call search for less" in held.text
    assert "unusable" not in held.text
    assert call(run, "search", "few").ok
    assert call(run, "tag").ok


@pytest.mark.parametrize("schema", ["text", None])
@pytest.mark.parametrize("answer", [PAGE, '{"error": "down"}'])
def test_a_page_and_a_failure_open_nothing(schema, answer):
    """An unchecked answer opens the latch, but not one that is no answer."""
    answers = ["x" * 300_000, answer, "fine"]
    look = read("look", lambda ident="": answers.pop(0), schema)
    run = Guard([look, write()], config={"loop": {"identical_failures": 9}}).run()
    for expected in (False, False, True):
        call(run, "look")
        assert call(run, "tag").ok is expected


def test_a_page_that_a_tool_was_asked_for_is_no_evidence():
    """The page of a tool that takes a URL passes as unchecked text, and opens nothing."""
    answers = ["x" * 300_000, PAGE, "fine"]
    url = {"type": "object", "properties": {"url": {"type": "string"}}}
    fetch = Contract.from_schema("fetch", url, effect="read", handler=lambda url="": answers.pop(0))
    run = Guard([fetch, write()]).run()
    for expected in (False, False, True):
        outcome = run.call(ToolCall("c", "fetch", {"url": "https://x"}))
        assert call(run, "tag").ok is expected
    assert outcome.ok


def test_the_latch_of_a_write_opens_by_a_person_only():
    """Its words never send the model to do it again, and no output opens it."""
    answers = [{}, {"plan": "x"}]
    create = write("create", lambda ident="": answers.pop(0), schema=PLAN, sources=())
    run = Guard([create, write()]).run("r")
    first = call(run, "create", "A")
    assert (first.status, first.effect) == ("invalid_output", "done")
    assert "any other way; tell the user" in first.text
    assert call(run, "create", "B").ok
    held = call(run, "tag")
    assert held.findings[0].code == "latched"
    assert "Only a person can allow writes again" in held.text
    for never in ("Call create", "again with the same arguments", "Nothing was written"):
        assert never not in held.text
    run.clear_latch("create", by="ann", reason="looked")
    assert call(run, "tag").ok


def test_a_hint_never_sends_the_model_where_the_guard_refuses():
    """As long as the same call may run again it is offered; from then on it is not."""
    run = Guard([read("get", lambda ident="": {}, PLAN), write()], config={"loop": {"bad_rounds": 50}}).run()
    hints = []
    for _ in range(3):
        call(run, "get", "A")
        hints.append("Call get again" in call(run, "tag").text)
    assert hints == [True, True, False]
    assert call(run, "get", "A").findings[0].code == "repeated_failure"
    other = Guard([read("get", lambda ident="": {}, PLAN), write()], config={"loop": {"identical_failures": 1}}).run()
    call(other, "get", "A")
    assert "Call get again" not in call(other, "tag").text


def test_an_approved_review_opens_the_latch_of_a_too_large_answer():
    """The person is asked about the output, whatever its arguments were."""
    look = read("look", lambda ident="": "x" * 300_000, "text", on_invalid_output="human_review")
    guard = Guard([look, write()])
    run = guard.run("r")
    question = call(run, "look").approval
    guard.approvals.approve(question, by="ann")
    assert call(guard.run("r"), "tag").ok


def broken_profile(ident=""):
    return {} if ident.startswith("broken") else {"plan": "pro"}


def test_one_broken_record_stops_nobody_else():
    """Equal invalid answers of one run count once, also when it is opened again; other records and runs count again."""
    guard = Guard([read("get", broken_profile, PLAN), write()])
    for _ in range(3):
        run = guard.run("a", tenant="t1")
        call(run, "get", "broken")
        call(run, "get", "broken")
    other = guard.run("b", tenant="t2")
    assert call(other, "tag").ok
    call(other, "get", "broken")
    call(guard.run("c", tenant="t2"), "get", "broken")
    assert call(guard.run("d", tenant="t2"), "tag").findings[0].code == "kill_switch"


@pytest.mark.parametrize("answer", ["x" * 300_000, {"error": "not found"}, PAGE])
@pytest.mark.parametrize("mode", ["enforce", "monitor"])
def test_only_pages_and_broken_contracts_count(answer, mode):
    """Neither a too large answer nor a tool's own failure trips the switch; a page does, promised or not."""
    guard = Guard([read("look", lambda ident="": answer, None), write()], config={"mode": mode})
    for run in map(guard.run, "abcd"):
        call(run, "look")
    switches = [one for one in guard.store.switches() if one.mode != "closed"]
    assert bool(switches) is (answer is PAGE and mode == "enforce")


@pytest.mark.parametrize(("polls", "seconds", "cut"), [(True, 1.0, False), (True, 0.9, True), (False, 5.0, True)])
def test_a_tool_that_polls_is_repeated_only_too_fast(polls, seconds, cut):
    """Equal answers to equal calls are a repetition only sooner than its pause."""
    clock = FrozenClock(1_000.0)
    status = read("status", lambda ident="": {"state": "pending"}, polls=polls)
    run = Guard([status], clock=clock).run()
    for _ in range(12):
        run.tools()
        call(run, "status", "J")
        clock.advance(seconds)
    run.tools()
    assert (run.mode == "final_answer") is cut


def test_how_a_tool_polls_is_a_field_of_its_contract():
    """In code and in data, with a pause of its own."""
    assert read("s", None, polls=True).polls == Polls(min_interval=1.0)
    assert read("s", None).pause is None
    data = {"name": "s", "effect": "read", "polls": {"min_interval": 5}}
    assert Contract.from_mapping(data).pause == 5.0
    assert Contract.from_mapping({**data, "polls": True}).to_mapping()["polls"] == {"min_interval": 1.0}
    for wrong in (1, "yes", Polls(min_interval=0)):
        with pytest.raises(ContractError, match="polls must be"):
            read("s", None, polls=wrong)
    with pytest.raises(ContractError, match="on_invalid_output"):
        read("s", None, on_invalid_output="guess")


class Balance:
    """An account: what it holds, and whether it can be read."""

    def __init__(self):
        self.holds, self.works = 5, True

    def look(self, ident=""):
        return {"plan": self.holds} if self.works else {}

    def spend(self, ident=""):
        self.holds -= 1
        if ident == "lost":
            raise OSError
        return {}


def degraded(run, account):
    account.works = False
    found = call(run, "look", "A")
    account.works = True
    assert found.status == "degraded"
    return found.value is not None


@pytest.mark.parametrize("tenant", [None, "t"])
def test_a_last_good_value_never_crosses_a_write(tenant):
    """Of this run, nor a doubt; what was read after the write stands in again."""
    account = Balance()
    guard = Guard([read("look", account.look, PLAN), write("spend", account.spend, sources=())])
    run = guard.run("r", tenant=tenant)
    call(run, "look", "A")
    assert degraded(run, account)
    call(run, "spend", "1")
    assert not degraded(run, account)
    call(run, "look", "A")
    assert degraded(run, account)
    call(run, "spend", "lost")
    call(run, "look", "A")
    assert not degraded(run, account)
    if tenant is not None:  # another run of the tenant has written nothing
        other = guard.run("other", tenant=tenant)
        assert degraded(other, account)
    again = guard.run("r", tenant=tenant)
    assert not degraded(again, account)
