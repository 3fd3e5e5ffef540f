"""The reference loop: whatever a model does, the run ends by itself, within its budgets, with an honest last word."""

import asyncio
import itertools
import json
import signal
import threading

import pytest
from loop_process import lines, process
from provider_rules import anthropic_problems, chat_problems

import pokayoke
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.errors import UsageError
from pokayoke.runtime.memory import call_log as matters_module
from pokayoke.stores import MemoryStore
from pokayoke.testing import Crash, FailingStore, FrozenClock, Reply, ScriptedModel, ask, crash_at

OPEN = {"type": "object"}
KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"], "additionalProperties": False}
done = []


def get(key):
    """Read."""
    if key == "bad":
        raise ValueError("secret detail")
    return {"key": key}


def put(key):
    """Write."""
    if key == "bad":
        raise ValueError("secret detail")
    done.append(key)
    return {"key": key}


def guarded(store=None, clock=None, on_step=None, **config):
    tools = [
        pokayoke.Contract.from_schema(handler.__name__, KEY, output_schema=OPEN, effect=effect, handler=handler, description=handler.__doc__)
        for effect, handler in (("read", get), ("write", put))
    ]  # fmt: skip
    config = {"retry": {"retries": 0}, **config}
    return pokayoke.Guard(tools, store=store, clock=clock, on_step=on_step, config=config)


@pytest.fixture(autouse=True)
def fresh():
    done.clear()


@pytest.fixture(params=["sync", "async", "anthropic", "json", "jsonl"])
def looped(request):
    """Runs a script of turns through the loop, in every format and with both drivers; returns how it ended, and the model."""

    def run(turns, guard=None, prompt="go", **options):
        turns = list(turns)
        model = ScriptedModel(turns, then=options.pop("then", None))
        kind = "openai" if request.param in ("sync", "async") else request.param

        def reply(messages, tools):
            problems = anthropic_problems if kind == "anthropic" else chat_problems
            assert problems([one for one in messages if one["role"] != "system"]) == []
            said = model(messages, tools)
            if kind == "anthropic":
                return said.anthropic()
            if kind in ("json", "jsonl") and said.calls:
                texts = [json.dumps({"name": one.name, "arguments": json.loads(one.arguments)}) for one in said.calls]
                return Reply(text="\n".join(texts), stop_reason=said.stop_reason).openai()
            return said

        guard = guard or guarded()
        if request.param == "async":

            async def awaited(messages, tools):
                await asyncio.sleep(0)
                return reply(messages, tools)

            return asyncio.run(guard.aloop(awaited, prompt, format=kind, **options)), model
        return guard.loop(reply, prompt, format=kind, **options), model

    run.kind = request.param
    return run


def numbers():
    """Calls that are new each time."""
    return (ask("get", key=f"k{number}") for number in itertools.count())


new = numbers()
CYCLE = itertools.cycle([ask("invented", x=1), ask("get", key="bad"), ask("get", wrong=1)])

STUBBORN = [
    # What it does for ever, the stop reason, and the requests after which it is over.
    ("alternates failures", lambda _: next(CYCLE), "loop_detected", 3),
    ("invents tools", ask("invented", x=1), "unknown_tool", 3),
    ("calls a tool that fails", ask("get", key="bad"), "tool_failure", 3),
    ("sends arguments that do not fit", ask("get", wrong=1), "invalid_arguments", 3),
    ("repeats itself", ask("get", key="same"), "loop_detected", 6),
    ("repeats a write", ask("put", key="same"), "loop_detected", 9),
    ("succeeds trivially beside each failure", lambda _: [ask("get", key="bad"), next(new)], "tool_failure", 13),
    ("fails in every other round", itertools.cycle([ask("get", key="bad"), lambda _: next(new)]), "tool_failure", 25),
    ("reads something new for ever", lambda _: next(new), "budget_exhausted", 31),
    ("says nothing", "", "loop_detected", 2),
    ("says blanks", " \n ", "loop_detected", 2),
]


@pytest.mark.parametrize(
    ("turn", "reason", "requests"), [row[1:] for row in STUBBORN], ids=[row[0] for row in STUBBORN]
)
def test_every_run_ends_by_itself(looped, turn, reason, requests):
    """A model that does one thing for ever ends with a stop reason, a bounded number of requests and no claim of its own."""
    turns = itertools.islice(turn, 60) if isinstance(turn, itertools.cycle) else [turn] * 60
    ended, model = looped(turns, rounds=30)
    assert ended.stop_reason == reason
    assert model.requests <= requests
    assert not ended.verified
    assert ended.text.startswith("I could not finish this safely.")
    assert "secret detail" not in ended.text
    if requests > 2:
        assert model.offered[-1] == []


def test_a_whole_task(looped):
    """Calls, then an answer: the answer is the model's, what was done is listed, and the history ends with it."""
    ended, model = looped([[ask("get", key="a"), ask("put", key="b")], "Done."])
    assert (ended.text, ended.verified, ended.stop_reason, ended.rounds) == ("Done.", True, "success", 2)
    assert (done, ended.done) == (["b"], ("put",))
    assert ended.messages[0]["content"] == "go"
    assert ended.messages[-1] == {"role": "assistant", "content": "Done."}
    assert model.requests == 2


def test_it_goes_on_calling_after_the_tools_are_off(looped):
    """F3: a call in spite of the instruction runs nothing, and the last word says what was done and what was not."""
    bad = ask("get", key="bad")
    ended, model = looped([ask("put", key="a"), bad, bad, ask("put", key="b")])
    assert done == ["a"]
    assert (ended.stop_reason, ended.verified, model.requests) == ("tool_failure", False, 4)
    assert "Done: put. Not done: get (the tool failed)." in ended.text


def test_it_answers_when_the_tools_are_off(looped):
    """A model that heeds the instruction has its own words, not verified: the run did not end well."""
    ended, model = looped([ask("invented", x=1)] * 2 + ["I have no such tool."])
    assert (ended.text, ended.verified, ended.stop_reason) == ("I have no such tool.", False, "unknown_tool")
    assert "Tools are off" in json.dumps(model.seen[-1])
    assert "Tools are off" not in json.dumps(ended.messages)


def test_it_claims_what_it_did_not_do(looped):
    """A write that was tried and not done is said beside the model's words; the stop reason does not say success."""
    ended, _ = looped([ask("put", key="bad"), "I put it where you wanted it."])
    assert ended.text == "I put it where you wanted it.\n\n[It is not known whether put took effect.]"
    assert (ended.verified, ended.stop_reason, ended.done) == (False, "in_doubt", ())


def test_it_claims_what_it_never_tried(looped):
    """No rule reads a claim out of a text; what was done is beside it, for a host to compare."""
    ended, _ = looped(["I put everything in its place."])
    assert (ended.verified, ended.done) == (True, ())


def test_nothing_is_asked_about_once_more(looped):
    """An empty reply is no answer: the model is asked once more, without tools."""
    ended, model = looped([ask("put", key="a"), "", "I put it."])
    assert (ended.text, done, model.offered[-1]) == ("I put it.", ["a"], [])
    assert "Answer the user directly" in json.dumps(model.seen[-1])


@pytest.mark.parametrize(
    ("budgets", "requests"),
    [({"calls": 3}, 5), ({"rounds": 3}, 5), ({"tokens": 60}, 12)],
    ids=["calls", "rounds", "tokens"],
)
def test_budgets_end_a_run(looped, budgets, requests):
    """Each budget takes the tools away, and the run ends with that reason."""
    fresh_keys = numbers()
    ended, model = looped([lambda _: next(fresh_keys)] * 40, guarded(budgets=budgets))
    assert (ended.stop_reason, ended.verified) == ("budget_exhausted", False)
    assert model.requests <= requests


@pytest.mark.parametrize(("rounds", "requests"), [(0, 1), (1, 2), (4, 5)])
def test_the_limit_of_rounds(looped, rounds, requests):
    """After so many requests with tools there is one without, and that is the last."""
    fresh_keys = numbers()
    ended, model = looped([lambda _: next(fresh_keys)] * 40, rounds=rounds)
    assert (ended.stop_reason, model.requests, ended.rounds) == ("budget_exhausted", requests, requests)
    assert [bool(offered) for offered in model.offered].count(True) == (rounds if looped.kind[:4] != "json" else 0)


def test_a_stopped_run_asks_nobody(looped):
    """Once the run is stopped, the model is not asked again; the answer says what was done."""
    guard, said = guarded(), []

    def told(what, value):
        said.append(what)
        if what == "outcome":
            guard.run("r").stop()

    ended, model = looped([ask("put", key="a"), "Done."], guard, run_id="r", on_event=told)
    assert (ended.stop_reason, ended.text, model.requests) == (
        "kill_switch",
        "I could not finish this safely. Done: put.",
        1,
    )
    assert said[-1] == "message"


def test_events_tell_everything(looped):
    """Each message that is kept, each outcome and each instruction is told, in order."""
    told = []
    ended, _ = looped([ask("invented", x=1)] * 2 + ["No."], on_event=lambda what, value: told.append((what, value)))
    assert [value for what, value in told if what == "message"] == ended.messages[1:]
    kinds = [what for what, _ in told]
    assert (kinds.count("outcome"), kinds.count("instruction")) == (2, 1)


def test_a_long_history_is_kept_below_its_window():
    """With a window, no request is longer than it allows, and every one is a history the provider takes."""
    sizes = []

    def model(messages, tools):
        assert chat_problems(messages) == []
        sizes.append(len(json.dumps(messages)))
        calls = [ask("get", key=f"{len(sizes)} {'some words ' * 30}")]
        return Reply(calls=tuple(pokayoke.ToolCall(f"c{len(sizes)}", one.name, one.arguments) for one in calls))

    ended = guarded().loop(model, "go", window=4_000, rounds=60)
    assert ended.stop_reason == "budget_exhausted"
    assert max(sizes) < 4_000 * 5
    assert len(json.dumps(ended.messages)) > 2 * max(sizes)


def test_what_cannot_fit_the_window_ends_the_run(looped):
    """Where what has to stay is larger than the window, nobody is asked; the run says why it ended."""
    ended, model = looped(["never said"], prompt="word " * 2_000, window=500)
    assert (ended.stop_reason, ended.verified, model.requests) == ("context_overflow", False, 0)


def test_usage_is_taken_over():
    """What a reply cost is the run's, with every reply."""
    guard = guarded()
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    reply = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage}
    guard.loop(lambda messages, tools: reply, "go", run_id="r", window=10_000)
    assert guard.run("r").tokens == 120


@pytest.mark.parametrize(("options", "message"), [({"format": "xml"}, "unknown format 'xml'"), ({"rounds": -1}, "cannot ask a model -1 times"), ({"select": -1}, "cannot offer -1 tools")])  # fmt: skip
def test_wrong_options_are_errors(options, message):
    """What the programmer got wrong is an error that says what to use."""
    with pytest.raises(UsageError, match=message):
        guarded().loop(lambda messages, tools: "?", "go", **options)


def test_what_the_model_raises_goes_through(looped):
    """An error of the client is the host's; what the run had done is settled, and it can be reopened."""
    guard = guarded(MemoryStore())

    def fails(messages):
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        looped([ask("put", key="a"), fails], guard, run_id="r")
    assert guard.run("r").answer("").text == "I could not finish this safely. Done: put."


def test_it_goes_on_where_a_process_stopped(looped):
    """A history that ends with calls nobody answered: they are taken first, through the ledger, and answered."""
    if looped.kind == "anthropic":
        use = {"type": "tool_use", "id": "a", "name": "put", "input": {"key": "a"}}
        last = {"role": "assistant", "content": [use]}
    elif looped.kind[:4] == "json":
        last = {"role": "assistant", "content": '{"name": "put", "arguments": {"key": "a"}}'}
    else:
        call = {"id": "a", "type": "function", "function": {"name": "put", "arguments": '{"key": "a"}'}}
        last = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [{"role": "user", "content": "go"}, last]
    ended, model = looped(["Done."], prompt=None, messages=messages)
    assert (ended.text, done, model.requests, len(ended.messages)) == ("Done.", ["a"], 1, 4)


def test_a_cut_reply_is_kept_with_its_answers(looped):
    """A reply that must not run is told together with its answers: alone, the next process would take its calls."""
    told = []

    def noted(what, value):
        told.append((what, len(done)))

    cut = Reply(calls=(ask("put", key="a"),), stop_reason="length")
    looped([cut, "I could not."], on_event=noted)
    assert [what for what, _ in told] == ["outcome", "message", "message", "message"]
    assert done == []


def test_ids_that_repeat_over_replies_are_made_different():
    """A model that numbers its calls anew in each reply still gets a history in which every id is one call's."""
    again = (
        Reply(calls=(pokayoke.ToolCall("call_1", "get", '{"key": "a"}'),)),
        Reply(calls=(pokayoke.ToolCall("call_1", "get", '{"key": "b"}'),)),
    )
    ended = guarded().loop(ScriptedModel([*again, "ok"]), "go")
    assert [m["tool_calls"][0]["id"] for m in ended.messages if m.get("tool_calls")] == ["call_1", "call_1_2"]


def test_a_process_that_cannot_read_the_ledger_does_not_say_that_nothing_was_done(tmp_path):
    """Where the ledger cannot be read, the last word says that nobody knows what was done before."""
    store = pokayoke.open_store(f"sqlite:///{tmp_path}/l.db", create=True)
    guard = guarded(FailingStore(store, {"records": [1, 2, 3, 4]}))
    answer = guard.run("r").answer("")
    assert answer.text == "I could not finish this safely. What was changed before cannot be looked up now."
    assert not guard.run("r").answer("All is well.").verified
    with guard.run("r") as run:
        pass
    assert run.stop_reason is None
    guard.close()


@pytest.mark.parametrize("ahead", [0.0, 1.0, 30.0], ids=["in time", "at once", "ahead"])
@pytest.mark.parametrize("settled", [True, False], ids=["done", "left open"])
def test_what_another_process_did_is_told_whatever_its_clock_says(monkeypatch, ahead, settled):
    """A run that goes on here says what it did, or may have done, elsewhere, also if that clock was before this one."""
    store = MemoryStore()
    step = "after_settle" if settled else "after_invoke"
    other = guarded(store, clock=FrozenClock(1_000.0 + ahead), on_step=crash_at(step, how="raise"))
    with monkeypatch.context() as there:
        there.setattr("pokayoke.runtime.run.run.process_token", lambda: "other")
        with pytest.raises(Crash):
            other.run("r").call(ask("put", key="a"))
    guard = guarded(store, clock=FrozenClock(1_001.0))
    with guard.run("r") as run:
        assert run.stop_reason is None
    assert run.stop_reason == ("success" if settled else "in_doubt")
    run = guard.run("r")
    told = "Done: put." if settled else "It is not known whether put took effect."
    assert run.answer("").text == f"I could not finish this safely. {told}"


def test_a_write_that_ends_while_the_ledger_is_asked_is_no_doubt():
    """Another thread's write was under way when the ledger was read, and has ended by the time it is told."""

    class Slow(MemoryStore):
        def records(self, query):
            found = super().records(query)
            going_on.set()
            ended.wait(10)
            return found

    def slow(arguments):
        begun.set()
        going_on.wait(10)
        return arguments

    going_on, begun, ended = (threading.Event() for _ in range(3))
    run = guarded(Slow()).run("r")
    other = threading.Thread(target=lambda: (run.call(ask("put", key="a"), invoke=slow), ended.set()))
    other.start()
    begun.wait(10)
    run.progress.matters.read_ledger()
    other.join()
    assert (run.progress.matters.doubtful_tools, run.progress.matters.done_tools) == ({}, ["put"])


def test_a_run_that_writes_for_ever_keeps_few_keys(monkeypatch):
    """Every effect stays counted, and none twice, although only the latest keys are kept, and none of what is over.

    What a reopened run reads in the ledger takes the place of what it had counted by tool.
    """
    monkeypatch.setattr(matters_module, "_KEPT_EFFECTS", 3)
    run = guarded(MemoryStore()).run("r")
    matters = run.progress.matters
    for key in ("a", "b", "c", "d", "e", "a", "e"):
        assert run.call(ask("put", key=key)).effect == "done"
    assert (matters.done_tools, len(matters._done), matters._here) == (["put"] * 5, 3, set())
    assert run.answer("").text == "I could not finish this safely. Done: put (5 times)."
    run.call(ask("put", key="f"))
    assert (len(matters.done_tools), len(matters._done), matters._here) == (6, 3, set())


def test_what_was_undone_is_asked_for_at_once():
    """The end of a reopened run costs two questions to the store, however many writes it did."""
    asked = []

    class Asked(MemoryStore):
        def records(self, query):
            asked.append(query.run_id)
            return super().records(query)

    store = Asked()
    before = guarded(store).run("r")
    for number in range(5):
        before.call(ask("put", key=str(number)))
    store.record = asked.append
    run = guarded(store).run("r")
    assert run.answer("").text == "I could not finish this safely. Done: put (5 times)."
    assert asked == ["r", "compensation"]


def test_a_doubt_is_told_among_more_records_than_a_page_holds():
    """What a run left open is known after a restart, however many writes it did beside it."""
    store = MemoryStore()
    for number in range(1_001):
        key = f"{number:04}"
        store.admit(
            AdmissionRequest("r", "put", "write", None, 1.0, Claim(key, "h", "c", "put", "put@1", "r", 1.0, 1.0))
        )
        if number < 1_000:
            store.settle(Settlement(key, "c", "completed", 1.0))
    assert "It is not known whether put took effect." in guarded(store).run("r").answer("").text


TASK = [[["put", {"key": "a"}], ["get", {"key": "x"}]], [["put", {"key": "b"}]], "I put both."]
CRASHES = [
    ("after_claim", 1),
    ("before_invoke", 2),
    ("before_invoke", 3),
    ("after_invoke", 1),
    ("after_settle", 2),
    ("ask", 2),
]
HARMLESS = [("before_invoke", 2), ("after_settle", 2), ("ask", 2)]  # a read was to run, or everything was settled


@pytest.mark.parametrize("crash", CRASHES, ids=[f"{step}-{n}" for step, n in CRASHES])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_killed_in_the_middle_and_started_again(tmp_path, crash, asynchronous):
    """Kill -9 at any step: the next process goes on with the same history, no effect happens twice, and it is honest."""
    pokayoke.open_store(f"sqlite:///{tmp_path}/ledger.db", create=True).close()
    spec = {"folder": str(tmp_path), "script": TASK, "asynchronous": asynchronous}
    code, _ = process({**spec, "crash": crash})
    assert code == -signal.SIGKILL
    code, said = process({**spec, "crash": None})
    assert code == 0
    ended = json.loads(said)
    effects = lines(tmp_path / "effects")
    assert len(effects) == len(set(effects))
    assert chat_problems(lines(tmp_path / "messages")) == []
    if crash in HARMLESS:
        assert (ended["text"], ended["stop_reason"], ended["done"]) == ("I put both.", "success", ["put", "put"])
        assert effects == ["a", "b"]
    else:
        assert "\n\n[It is not known whether put took effect.]" in ended["text"]
        assert not ended["verified"]
        assert ended["stop_reason"] == "in_doubt"


def test_counters_survive_kill_9(tmp_path):
    """One bad round in each of two processes is two: the second takes the tools away, and the third is not given them back."""
    pokayoke.open_store(f"sqlite:///{tmp_path}/ledger.db", create=True).close()
    spec = {
        "folder": str(tmp_path),
        "script": [
            [["put", {"key": "a"}]],
            [["invented", {"key": "a"}]],
            [["invented", {"key": "b"}]],
            [["put", {"key": "z"}]],
        ],
    }
    assert process({**spec, "crash": ["ask", 3]})[0] == -signal.SIGKILL
    assert process({**spec, "crash": ["ask", 2]})[0] == -signal.SIGKILL
    _, said = process({**spec, "crash": None})
    ended = json.loads(said)
    assert (ended["stop_reason"], ended["bad"], ended["rounds"]) == ("unknown_tool", 2, 1)
    assert "Done: put." in ended["text"]
    assert lines(tmp_path / "effects") == ["a"]


def test_budgets_survive_kill_9(tmp_path):
    """A budget that two processes used up is used up: the rounds of one that was killed are not given back."""
    pokayoke.open_store(f"sqlite:///{tmp_path}/ledger.db", create=True).close()
    reads = [[["get", {"key": f"k{number}"}]] for number in range(20)]
    spec = {"folder": str(tmp_path), "script": reads, "config": {"budgets": {"rounds": 5}}}
    assert process({**spec, "crash": ["ask", 4]})[0] == -signal.SIGKILL
    _, said = process({**spec, "crash": None})
    ended = json.loads(said)
    assert (ended["stop_reason"], ended["rounds"]) == ("budget_exhausted", 4)
