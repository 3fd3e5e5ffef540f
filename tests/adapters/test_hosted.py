"""A run in somebody else's loop: what every adapter of a framework stands on."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pokayoke
from pokayoke import ToolCall, read_arguments
from pokayoke.adapters._host.calls import ReplyCall, decode_call, encode_unreadable_call
from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns, value_as_text
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.errors import UsageError

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


@pytest.mark.parametrize(
    ("more", "closed"),
    [
        ({}, True),
        ({"additionalProperties": True}, False),
        ({"patternProperties": {"^x": {}}}, False),
        ({"allOf": [{"properties": {"more": {}}}]}, False),
    ],
)
def test_a_schema_that_names_its_properties_is_closed(more, closed):
    """A key the tool does not name is refused unless the schema says that there may be others."""
    made = build_contracts([ToolDescription("get", "Get.", {**KEY, **more})])
    assert (made[0].input_schema.get("additionalProperties") is False) is closed


def test_a_schema_without_properties_stays_open():
    """An object of which nothing is said may hold anything."""
    assert (
        "additionalProperties"
        not in build_contracts([ToolDescription("get", "Get.", {"type": "object"})])[0].input_schema
    )


def test_what_a_run_was_opened_for_is_kept_until_it_is_closed_or_acts_for_another():
    """Whoever holds a run may use it as long as it would be found again."""
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("get", "Get.", KEY)])))
    first = runs.run_for("r", principal="ann")
    assert runs.has_run(first, "r")
    assert not runs.has_run(first, "s")
    other = runs.run_for("r", principal="bob")
    assert (runs.has_run(first, "r"), runs.has_run(other, "r")) == (False, True)
    runs.close_run("r")
    assert not runs.has_run(other, "r")


class ParkedError(Exception):
    """What a framework raises to come back later."""


def parked(arguments):
    """Come back later."""
    raise ParkedError(arguments["key"])


def again(arguments):
    """Ask the model for another try."""
    raise ToolNotStarted("asked for another try", blame="tool")


def test_what_a_framework_steers_by_is_no_failure():
    """It is raised once the call is settled, the tool is not started again, and the model has failed in nothing."""
    guard = pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)]))
    hosted = AdapterRun(guard.run("r"), through=(ParkedError,))
    for number in range(5):
        with pytest.raises(ParkedError, match="a"):
            hosted.call(pokayoke.ToolCall(f"call_{number}", "put", {"key": f"a{number}"}), parked)
        assert not hosted.begin_request().final
    outcome = hosted.call(pokayoke.ToolCall("call_9", "put", {"key": "a0"}), lambda arguments: arguments)
    assert outcome.status == "ok"
    assert outcome.effect == "done"


async def test_what_a_framework_steers_by_is_no_failure_for_those_who_await():
    """The same for asynchronous code."""
    hosted = AdapterRun(
        pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"), through=(ParkedError,)
    )
    for number in range(5):
        with pytest.raises(ParkedError, match="a"):
            await hosted.acall(pokayoke.ToolCall(f"call_{number}", "put", {"key": f"a{number}"}), parked)
        assert not hosted.begin_request().final


def test_a_tool_that_asks_for_another_try_did_nothing_and_counts():
    """Its write is not in doubt, it is not started again by itself, and the second in a row takes the tools away."""
    hosted = AdapterRun(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"))
    for number in range(2):
        outcome = hosted.call(pokayoke.ToolCall(f"call_{number}", "put", {"key": "a"}), again)
        assert (outcome.status, outcome.effect, outcome.attempts) == ("failed", "none", 1)
        final = hosted.begin_request().final
        assert final == (number == 1)


@pytest.mark.parametrize(("blame", "counts"), [("model", True), ("policy", True), ("host", False)])
def test_what_a_framework_does_not_begin_counts_unless_it_is_the_hosts_doing(blame, counts):
    """A model that goes on sending what the framework's own rules turn away loses its tools."""
    hosted = AdapterRun(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"))

    def turned_away(arguments):
        raise ToolNotStarted("not like this", blame=blame)

    for number in range(2):
        outcome = hosted.call(pokayoke.ToolCall(f"call_{number}", "put", {"key": f"a{number}"}), turned_away)
        assert (outcome.status, outcome.effect) == ("failed", "none")
        final = hosted.begin_request().final
    assert final is counts


@pytest.mark.parametrize(("value", "read"), [("paid", "paid"), ({"id": 1}, '{"id": 1}'), (None, "null")])
def test_what_a_user_reads_is_the_value_or_that_it_was_not_kept(value, read):
    """Where no model reads a result, `null` never stands for one that is gone."""
    made = build_contracts([ToolDescription("pay", "Pay.", KEY)], fields={"pay": {"secret": True}})
    run = pokayoke.Guard(made).run("r")
    first, again = (run.call(ToolCall("c", "pay", {"key": "a"}), invoke=lambda _: value) for _ in range(2))
    assert value_as_text(first) == read
    assert "its result was not kept" in value_as_text(again)


def test_several_loops_of_one_run_are_told_apart_and_share_its_ledger():
    """A sub-agent has its own ids and notes, and a write of one loop is not repeated by another."""
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])))
    outer, inner = runs.run_for("r"), runs.run_for("r", part="sub")
    assert outer is runs.run_for("r")
    assert inner is not outer
    outer.notes["seen"] = 1
    assert not inner.notes
    call = pokayoke.ToolCall("call_1", "put", {"key": "a"})
    assert [hosted.call(call, lambda arguments: "put").status for hosted in (outer, inner)] == ["ok", "replayed"]
    runs.close_run("r")
    assert runs.run_for("r", part="sub") is inner
    assert runs.run_for("r") is not outer


@pytest.mark.parametrize(
    "arguments",
    [
        {"unread_tool_call": {"name": "put", "arguments": {"key": "a"}, "stop_reason": None}},
        json.dumps({"unread_tool_call": {"name": "put", "arguments": "{}"}}),
        {"unread_tool_call": 1, "key": "a"},
    ],
)
def test_a_model_cannot_pass_off_a_call_as_another_one(arguments):
    """Arguments that look like a wrapper come back as they were written, under the name they were written for."""
    call = ToolCall("call_1", "get", arguments)
    back = decode_call("call_1", "get", json.loads(json.dumps(encode_unreadable_call(call))))
    assert (back.name, back.arguments) == ("get", arguments)


@pytest.mark.parametrize("stop_reason", ["length", None])
def test_what_others_put_beside_a_text_that_is_no_call_makes_none_of_it(stop_reason):
    """A middleware that adds an argument to every call makes no call of one that was cut, nor of a text without sense."""
    ran = []
    anything = ToolDescription("put", "Put.", {"type": "object"})
    hosted = AdapterRun(pokayoke.Guard(build_contracts([anything])).run("r"))
    (call,) = hosted.take_reply([ReplyCall("a", "put", '{"key": "b')], stop_reason)
    outcome = hosted.call(decode_call(call.id, call.name, {**encode_unreadable_call(call), "tenant": "t1"}), ran.append)
    assert (outcome.status, ran) == ("refused", [])


def names():
    """Names as models invent them."""
    return st.text(max_size=30)


@given(
    name=names(),
    arguments=st.one_of(st.text(max_size=60), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3)),
    stop_reason=st.sampled_from([None, "length"]),
    wrap=st.booleans(),
)
def test_nothing_of_a_call_is_lost_on_its_way_through_a_history(name, arguments, stop_reason, wrap):
    """What the hook of a tool gets is what the model wrote, or means the same; a cut message is known as one."""
    call = ToolCall("call_1", name, arguments, stop_reason)
    back = decode_call("call_1", name, json.loads(json.dumps(encode_unreadable_call(call, name=wrap))))
    assert (back.name, back.stop_reason) == (name, stop_reason)
    if back.arguments != arguments:
        assert read_arguments(arguments).value == back.arguments
    assert intake_grade(back.arguments) == intake_grade(arguments)


def intake_grade(arguments):
    """Whether it can be read without a guess."""
    return isinstance(arguments, dict) or read_arguments(arguments).grade in ("exact", "lossless")


def test_a_reply_is_heard_with_ids_of_its_own():
    """Missing and repeated ids become ones of their own, over all replies; the others stay."""
    hosted = AdapterRun(
        pokayoke.Guard(build_contracts([ToolDescription("get", "Get.", KEY)], reads=["get"])).run("r"), taken=["old"]
    )
    asked = [ReplyCall(ident, "get", "{}") for ident in ("a", "a", "", None, "old")]
    first = [call.id for call in hosted.take_reply(asked)]
    second = [call.id for call in hosted.take_reply([ReplyCall("a", "get", "{}"), ReplyCall("b", "get", "{}")])]
    assert first[0] == "a"
    assert second[1] == "b"
    assert len({*first, *second, "old"}) == 8


@pytest.mark.parametrize("stop_reason", ["length", "max_tokens", "incomplete", "content_filter"])
def test_calls_of_a_cut_message_do_not_run(stop_reason):
    """Each call of it is marked, also one that is whole, and is answered without being run."""
    ran = []
    hosted = AdapterRun(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"))
    for call in hosted.take_reply(
        [ReplyCall("a", "put", {"key": "a"}), ReplyCall("b", "put", '{"key": "b')], stop_reason
    ):
        back = decode_call(call.id, call.name, encode_unreadable_call(call))
        outcome = hosted.call(back, ran.append)
        assert (outcome.ok, outcome.call_id) == (False, call.id)
    assert ran == []


def test_after_the_tools_are_gone_nothing_is_heard():
    """A model that is stuck is told so, loses its tools, and what it calls then counts for nothing."""
    hosted = AdapterRun(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"))
    for number in range(2):
        assert hosted.begin_request() == (None, False)
        (call,) = hosted.take_reply([ReplyCall(f"call_{number}", "fetch", "{}")])
        assert not hosted.call(call).ok
    request = hosted.begin_request()
    assert request.final
    assert hosted.is_final
    assert "put" in request.instruction
    assert hosted.take_reply([ReplyCall("call_9", "put", {"key": "a"})]) == []
    assert hosted.final_text(None).startswith("I could not finish")
    assert hosted.final_text("There is no such tool.") == "There is no such tool."
    hosted.run.user("Then put it.")
    assert hosted.begin_request() == (None, False)


async def test_equal_writes_side_by_side_are_one_effect():
    """Two calls that a framework starts at once run one after the other, and the second is answered from the first."""
    ran = []

    async def put(arguments):
        ran.append(arguments)
        await asyncio.sleep(0.01)
        return "done"

    hosted = AdapterRun(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"))
    calls = hosted.take_reply([ReplyCall("a", "put", '{"key": "x"}'), ReplyCall("b", "put", '{"key": "x"}')])
    outcomes = await asyncio.gather(*(hosted.acall(call, put) for call in calls))
    assert [one.status for one in outcomes] == ["ok", "replayed"]
    assert ran == [{"key": "x"}]


def test_equal_writes_in_threads_are_one_effect():
    """The same for frameworks that use threads."""
    ran = []
    hosted = AdapterRun(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])).run("r"))
    calls = hosted.take_reply([ReplyCall(None, "put", '{"key": "x"}')] * 8)
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda call: hosted.call(call, ran.append), calls))
    assert sorted(one.status for one in outcomes) == ["ok", *["replayed"] * 7]
    assert ran == [{"key": "x"}]


def test_a_run_is_the_frameworks_own():
    """An id leads to its run until that is closed; one that a restart would not know is nobody else's, either."""
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])))
    assert runs.run_for("thread-1") is runs.run_for("thread-1")
    assert runs.run_for("thread-1").run.id == "thread-1"
    assert runs.run_for("thread-2", durable=False).run.id != "thread-2"
    before = runs.run_for("thread-1")
    runs.close_run("thread-1")
    runs.close_run("never opened")
    assert runs.run_for("thread-1") is not before


def test_the_runs_of_an_adapter_do_not_grow_for_ever(monkeypatch):
    """Of many runs the latest used are kept; the others are closed, which writes down what they must not forget."""
    monkeypatch.setattr("pokayoke.adapters._host.run._KEPT_RUNS", 3)
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])))
    first = runs.run_for("0")
    for number in range(1, 4):
        runs.run_for(str(number - 1))
        runs.run_for(str(number))
    assert first.run.stop_reason == "success"
    assert runs.run_for("3").run.stop_reason is None


def test_every_thread_gets_the_same_run():
    """A run that is asked for by many threads at once is opened once."""
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])))
    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(lambda _: runs.run_for("r"), range(64))))) == 1


@pytest.mark.parametrize("option", [{"reads": ["get", "fetch"]}, {"destructive": ["fetch"]}, {"fields": {"fetch": {}}}])
def test_a_tool_that_does_not_exist_cannot_be_declared(option):
    """A name that no tool has is a mistake of the programmer, and the message says which."""
    with pytest.raises(UsageError, match="fetch"):
        build_contracts([ToolDescription("get", "Get.", KEY)], **option)


def test_what_is_not_declared_is_a_write_whose_output_is_unchecked():
    """A tool's effect is taken for the worse; its description and its further fields are kept."""
    made = build_contracts(
        [
            ToolDescription("get", "Get.", KEY),
            ToolDescription("put", "Put.", KEY),
            ToolDescription("drop", "Drop.", KEY),
        ],
        reads=["get"],
        destructive=["drop"],
        fields={"put": {"identity": ("key",)}},
    )
    assert [(one.name, one.effect) for one in made] == [("get", "read"), ("put", "write"), ("drop", "destructive")]
    assert [one.unchecked for one in made] == [True] * 3
    assert made[1].identity == ("key",)
    assert made[1].description == "Put."


@pytest.mark.parametrize("ident", ["x" * 100_000, "a\0b", "\ud800", 7])
def test_a_run_is_found_again_by_any_id_of_a_framework(ident):
    """A client may choose such an id: the same one leads to the same run, also in a process that comes later."""
    store = pokayoke.open_store("memory://")
    put = build_contracts([ToolDescription("put", "Put.", KEY)], fields={"put": {"output_schema": "text"}})
    for status in ("ok", "replayed"):
        runs = AdapterRuns(pokayoke.Guard(put, store=store))
        outcome = runs.run_for(ident).call(ToolCall("1", "put", {"key": "a"}), lambda _: "done")
        assert outcome.status == status
        runs.close_run(ident)


def test_a_run_acts_for_whoever_calls():
    """Later callers of a run get what they may do themselves, each call at once, and share all that it remembers."""
    guard = pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)], fields={"put": {"roles": ("boss",)}}))
    runs = AdapterRuns(guard)
    boss = runs.run_for("r", principal={"id": "b", "roles": ["boss"]})
    boss.notes["seen"] = 1
    temp = runs.run_for("r", principal={"id": "t", "roles": []})
    put = ToolCall("c", "put", {"key": "a"})
    outcomes = [one.call(put, lambda _: "done") for one in (temp, boss)]
    assert [outcome.status for outcome in outcomes] == ["refused", "ok"]
    assert temp.run.progress is boss.run.progress
    assert temp.notes == {"seen": 1}
    assert [one.id for hosted in (boss, temp) for one in hosted.take_reply([ReplyCall("c", "put", "{}")])] == [
        "c",
        "c_2",
    ]
    assert runs.run_for("r", principal={"id": "t", "roles": []}) is temp
    assert runs.run_for("r", principal="t") is temp
    assert [runs.run_for("r", principal=who).run.principal.roles for who in ({"id": "t", "roles": ["boss"]}, "t")] == [
        ("boss",),
        (),
    ]


@pytest.mark.parametrize("durable", [True, False])
def test_a_run_belongs_to_one_tenant(durable):
    """Another tenant's caller does not get what the first one has written, nor that it was written."""
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])))
    runs.run_for("r", durable=durable, tenant="acme", session="s")
    with pytest.raises(UsageError, match="one of tenant 'acme'"):
        runs.run_for("r", durable=durable, tenant="evil", session="s")
    assert runs.run_for("r", durable=durable, tenant="acme", session="t").run.session == "t"


@pytest.mark.parametrize("durable", [True, False])
def test_an_equal_write_happens_once_in_a_run_that_was_not_used_for_long(monkeypatch, durable):
    """A run that made room for others is found again with its ledger, also under an id that no restart knows."""
    monkeypatch.setattr("pokayoke.adapters._host.run._KEPT_RUNS", 1)
    monkeypatch.setattr("pokayoke.adapters._host.run._KEPT_IDS", 2)
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])))
    put = ToolCall("c", "put", {"key": "a"})
    seen = []
    for ident in ("0", "1", "0", "2", "3", "4", "5", "0"):
        seen.append(runs.run_for(ident, durable=durable).call(put, lambda _: "done").status)
    assert seen[:3] == ["ok", "ok", "replayed"]
    assert seen[-1] == ("replayed" if durable else "ok"), "of the ids, the latest are kept"


def test_a_run_whose_end_can_be_seen_is_kept_until_then(monkeypatch):
    """However many others come, it stays while somebody holds what lives as long; afterwards it is closed."""
    monkeypatch.setattr("pokayoke.adapters._host.run._KEPT_RUNS", 1)
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)])))
    life = object()
    hosted = runs.run_for("long", durable=False, life=life)
    others = [runs.run_for(str(number)) for number in range(3)]
    assert runs.run_for("long", durable=False, life=life) is hosted
    assert others[0].run.stop_reason == "success"
    assert hosted.run.stop_reason is None
    del life
    runs.run_for("last")
    assert hosted.run.stop_reason == "success"


def test_a_durable_store_never_takes_a_passing_id_for_a_lasting_one(monkeypatch, tmp_path):
    """A run that no restart knows is another one when it comes back: its id is not one that writes are kept under."""
    monkeypatch.setattr("pokayoke.adapters._host.run._KEPT_RUNS", 1)
    store = pokayoke.open_store(f"sqlite:///{tmp_path / 'ledger.db'}", create=True)
    runs = AdapterRuns(pokayoke.Guard(build_contracts([ToolDescription("put", "Put.", KEY)]), store=store))
    first = runs.run_for("0", durable=False).run.id
    runs.run_for("1", durable=False)
    back = runs.run_for("0", durable=False)
    assert back.run.id != first
    assert back.call(ToolCall("c", "put", {"key": "a"}), lambda _: "done").findings[0].code == "no_scope"
    store.close()
