"""A run inside a framework's loop, and the runs of an adapter."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import structs

import pokayoke
from pokayoke import ToolCall
from pokayoke.adapters._host.calls import ReplyCall, decode_call, encode_unreadable_call
from pokayoke.adapters._host.contracts import ToolDescription, build_contracts
from pokayoke.adapters._host.run import AdapterRun, AdapterRuns, PendingCall, text_for_user
from pokayoke.errors import ToolError, UsageError

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


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


@pytest.mark.parametrize(("value", "read"), [("paid", "paid"), ({"id": 1}, '{"id": 1}'), (None, "null")])
def test_what_a_user_reads_is_the_value_or_that_nothing_ran(value, read):
    """Where no model reads a result, a repeated call is told as one that did not run; a value is shown if it was kept."""
    made = build_contracts([ToolDescription("pay", "Pay.", KEY)], fields={"pay": {"secret": True}})
    run = pokayoke.Guard(made).run("r")
    first, again = (run.call(ToolCall("c", "pay", {"key": "a"}), invoke=lambda _: value) for _ in range(2))
    assert text_for_user(run.snapshot, first) == read
    assert text_for_user(run.snapshot, again) == "Not run a second time: pay."
    kept = structs.replace(again, value="paid")
    assert text_for_user(run.snapshot, kept) == "paid\n\n[Not run a second time: pay.]"


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ToolError("the card is declined"), "Not done: pay (the tool failed)."),
        (TimeoutError(), "It is not known whether pay took effect."),
    ],
)
def test_what_a_user_reads_of_a_failure_is_no_hint_for_a_model(raised, told):
    """It says what was not done, or that nobody knows."""

    def pay(_):
        raise raised

    run = pokayoke.Guard(build_contracts([ToolDescription("pay", "Pay.", KEY)])).run("r")
    assert text_for_user(run.snapshot, run.call(ToolCall("c", "pay", {"key": "a"}), invoke=pay)) == told


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


@pytest.mark.filterwarnings("ignore:put. a write on a durable store")
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


def test_a_waiting_call_takes_the_arguments_that_others_have_changed():
    """As long as a framework holds what it was given, the call is the one that the model wrote."""
    call = pokayoke.ToolCall("c", "refund", "{'order': 'A1'}")
    pending = PendingCall(AdapterRun(pokayoke.Guard([]).run()), call, {"order": "A1"})
    assert pending.with_arguments({"order": "A1"}) is call
    assert pending.with_arguments({"order": "B2"}) == pokayoke.ToolCall("c", "refund", {"order": "B2"})


def test_a_reply_that_is_run_again_from_a_checkpoint_has_seen_what_its_request_carried():
    """The latest request carried the answer of the first call; the request of the first call did not."""
    made = build_contracts([ToolDescription("put", "Put.", KEY)])
    adapter_run, done = AdapterRun(pokayoke.Guard(made).run("r", prompt="go")), []
    history = [{"role": "user", "content": "go"}]

    def put(ident, key, told):
        adapter_run.run.set_history(told)
        [call] = adapter_run.take_reply([ReplyCall(ident, "put", f'{{"key": "{key}"}}')])
        outcome = adapter_run.call(call, lambda given: done.append(given["key"]) or given)
        function = {"name": "put", "arguments": call.arguments}
        asked = {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]}
        return call, [*told, asked, {"role": "tool", "tool_call_id": call.id, "content": outcome.text}]

    first, after = put("c1", "a", history)
    second, _ = put("c2", "b", after)
    assert (adapter_run.is_current(first.id), adapter_run.is_current(second.id)) == (False, True)
    adapter_run.recall_reply([second.id], [])  # the latest one: nothing changes
    assert adapter_run.call(second, done.append).status == "replayed"
    adapter_run.recall_reply([first.id], history)
    assert adapter_run.call(first, done.append).status == "replayed"
    assert done == ["a", "b"]
