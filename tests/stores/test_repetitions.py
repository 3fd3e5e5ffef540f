"""Two sides of each rule of repetitions, played through the plain loop over every store and both drivers.

On one side a second effect is wanted, on the other the same call comes once more. Wanted effects: all. Doubled
effects: none. And no text says of an effect what is not so.
"""

import asyncio

import pytest
from wanted_twice import NOT_TWICE, ONCE_MORE, PAID, WANTED, off, on

from pokayoke import Contract, Envelope, Guard
from pokayoke.core.ledger.records import Resolution
from pokayoke.stores.base import RecordQuery
from pokayoke.testing import Crash, ScriptedModel, ask, crash_at

ANY = {"type": "object"}
PAY = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}


@pytest.fixture(params=["sync", "async"])
def kind(request):
    """Which driver."""
    return request.param


class Chat:
    """A conversation of one run; its effects are counted outside of it."""

    def __init__(self, site, kind):
        self.site, self.kind, self.store = site, kind, site.open()
        self.done, self.fails, self.messages, self.broken = [], set(), [], set()

    def tool(self, name, effect="write", **fields):
        def act(**arguments):
            what = " ".join((name, *arguments.values()))
            if what in self.fails:
                return {"ok": False, "error": "declined"}
            self.done.append(what)
            if what in self.broken:
                raise OSError("the connection broke")
            return {"ok": True, "n": len(self.done)}

        return Contract.from_schema(
            name, fields.pop("schema", ANY), output_schema=ANY, effect=effect, handler=act, **fields
        )

    def guard(self, **options):
        wrapped = Envelope(ok="/ok")
        tools = [
            self.tool("switch"),
            self.tool("add", repeats="each"),
            self.tool("pay", identity=("order",), schema=PAY, envelope=wrapped),
            self.tool("charge", envelope=wrapped),
            self.tool("find", effect="read"),
            self.tool("test"),
        ]
        return Guard(tools, store=self.store, **options)

    def say(self, text, *turns, **options):
        """The user says something, the model plays its turns: a new process each time, which has the history."""
        guard, model = self.guard(**options), ScriptedModel(turns)
        loop = {"messages": self.messages, "run_id": "t"}
        if self.kind == "sync":
            ended = guard.loop(model, text, **loop)
        else:
            ended = asyncio.run(guard.aloop(model, text, **loop))
        self.messages = ended.messages
        return ended

    def call(self, run, call):
        return run.call(call) if self.kind == "sync" else asyncio.run(run.acall(call))


@pytest.fixture
def chat(site, kind):
    return Chat(site, kind)


@pytest.mark.parametrize(("turns", "effects", "last"), WANTED.values(), ids=WANTED)
def test_a_wanted_effect_happens(chat, turns, effects, last):
    """In each turn another process that knows no more than ledger and history."""
    for text, *model in turns:
        ended = chat.say(text, *model)
    assert (chat.done, ended.text, ended.verified) == (effects, last, True)


@pytest.mark.parametrize(("turns", "effects", "last"), ONCE_MORE.values(), ids=ONCE_MORE)
def test_the_same_call_once_more_is_no_second_effect(chat, turns, effects, last):
    """And a call that seemed to be meant is told to the user."""
    for text, *model in turns:
        ended = chat.say(text, *model)
    assert (chat.done, ended.text) == (effects, last)
    assert ended.verified is ("[" not in last)


def test_a_declared_payment_is_repeated_by_a_persons_yes(chat):
    """In a later turn a person is asked where one can be; each yes is for one effect, in whatever process."""
    chat.say("Pay A.", PAID, "Paid.")
    ended = chat.say("Pay A again.", PAID, "It waits.")
    if not chat.store.durable:
        assert (chat.done, ended.text) == (["pay A"], "It waits." + NOT_TWICE.format("pay"))
        return
    guard = chat.guard()
    [question] = guard.approvals.list()
    assert chat.done == ["pay A"]
    guard.approvals.approve(question.id, by="ann")
    assert chat.say("And now?", PAID, "Paid again.").text == "Paid again."
    assert chat.done == ["pay A"] * 2
    assert chat.say("And now?", PAID, "It waits.").stop_reason == "awaiting_approval"
    assert chat.done == ["pay A"] * 2


def test_a_yes_is_found_by_a_process_that_knows_no_history(chat):
    """The question is about the very effect that would be repeated, so whoever sends the call again may use the yes."""
    run = chat.guard().run("t", prompt="Pay A.")
    run.can_ask = True
    assert chat.call(run, PAID).ok
    run.user("Pay A again.")
    waiting = chat.call(run, PAID)
    assert (waiting.status, chat.done) == ("pending", ["pay A"])
    other = chat.guard().run("t")
    other.can_ask = True
    assert chat.call(other, PAID).approval == waiting.approval
    other.guard.approvals.approve(waiting.approval, by="ann")
    assert chat.call(other, PAID).repeated
    assert (chat.call(chat.guard().run("t"), PAID).status, chat.done) == ("replayed", ["pay A"] * 2)


def test_a_declined_card_and_a_good_one(chat):
    """A plain write runs again in a new turn; a declared payment, whose decline may have had an effect, is asked."""
    chat.fails = {"charge A", "pay A"}
    chat.say("Charge A, pay A.", ask("charge", of="A"), PAID, ask("charge", of="A"), "Declined.")
    chat.fails = set()
    assert chat.done == []
    ended = chat.say("I have a good card.", ask("charge", of="A"), PAID, "Charged.")
    assert chat.done == ["charge A"]
    assert ended.verified is False
    assert "pay" in ended.text
    assert len(chat.guard().approvals.list()) == chat.store.durable


@pytest.mark.parametrize("call", [on(), PAID, ask("add", of="apple")], ids=lambda call: call.name)
def test_a_lost_answer_is_no_reason_to_run_again(chat, call):
    """The process dies between record and answer; the next one goes on with the same turn, and then with another."""
    with pytest.raises(Crash):
        chat.say("Do it.", call, on_step=crash_at("after_settle", how="raise"))
    assert len(chat.done) == 1
    assert chat.say("Do it.", call, "Done.").text == "Done."
    assert len(chat.done) == 1


def test_a_call_is_delivered_again_after_another_write(chat):
    """A node that a framework runs again: its request carried no answer, whatever was written since."""
    run, history = chat.guard().run("t", prompt="Blink."), [{"role": "user", "content": "Blink."}]
    run.set_history(history)
    assert chat.call(run, on("c1")).ok
    run.set_history([*history, *_answered("c1", "on", "ok")])
    assert chat.call(run, off()).ok
    for again in ("c1", "c9"):
        run.set_history(history)
        assert chat.call(run, on(again)).status == "replayed"
    assert chat.done == ["switch on", "switch off"]


def _answered(ident, to, text):
    function = {"name": "switch", "arguments": f'{{"to": "{to}"}}'}
    yield {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": ident, "type": "function", "function": function}],
    }
    yield {"role": "tool", "tool_call_id": ident, "content": text}


def test_time_travel_repeats_nothing(chat):
    """From a history before the first effect, the effects come out of the ledger one after the other."""
    chat.say("Blink.", on(), off(), on(), "It is on.")
    chat.messages = []
    ended = chat.say("Blink.", on("x1"), off(), on("x2"), "It is on.")
    assert (chat.done, ended.verified) == (["switch on", "switch off", "switch on"], True)


def test_a_shortened_history_is_no_second_first_time(chat):
    """The answers of older effects are gone, that of the latest one stands: the next wish is a new effect."""
    chat.say("On.", on(), "On.")
    chat.say("Off.", off(), "Off.")
    chat.say("On.", on(), "On.")
    chat.messages = chat.messages[-4:]
    chat.say("Once more.", on(), "On.")
    assert chat.done == ["switch on", "switch off", "switch on", "switch on"]


def test_a_doubt_is_not_tried_again(chat):
    """Did it work, try again? While nobody knows, nothing is new; once it is known, the answer says so."""
    chat.broken = {"pay A", "switch on"}
    chat.say("Pay A, switch on.", PAID, on(), "It may have worked.")
    chat.broken = set()
    for _ in range(2):
        ended = chat.say("Did it work? Try again.", PAID, on(), "I tried again.")
        assert "It is not known whether pay, switch took effect." in ended.text
    assert chat.done == ["pay A", "switch on"]
    guard = chat.guard()
    for record in guard.store.records(RecordQuery(run_id="t")):
        guard.store.decide(Resolution(record.key, happened=True, by="ann", reason="seen", now=record.claimed_at + 1))
    ended = chat.say("And now?", PAID, on(), "It was done.")
    assert chat.done == ["pay A", "switch on"]
    said = [message["content"] for message in ended.messages if message["role"] == "tool"][-2:]
    assert all(text.startswith("Not run again: ") for text in said)


def test_a_replay_says_what_came_after(chat):
    """It names the tools whose effects the caller may not expect."""
    chat.say("On, off.", on(), off(), "Off.")
    run = chat.guard().run("t")
    again = chat.call(run, on("c9"))
    assert again.text.startswith("Not run again: switch already ran at ")
    assert ", and after that: switch; the result of switch was:\n<tool_output" in again.text


def test_two_who_mean_the_same_repetition_make_one_effect(chat):
    """Both have seen the first effect; the second finds the record of the first, which it has not seen."""
    history = chat.say("An apple.", ask("charge", of="apple"), "Added.").messages
    runs = [chat.guard().run("t", history=history, prompt="Another one.") for _ in range(2)]
    assert [chat.call(run, ask("charge", of="apple", id="n")).status for run in runs] == ["ok", "replayed"]
    assert len(chat.done) == 2


def test_a_long_chain_is_followed_from_its_end(chat, monkeypatch):
    """The twelfth equal effect takes no more steps of the ledger than the third."""
    run, asked = chat.guard().run("t", prompt="Count."), []
    admit = chat.store.admit
    monkeypatch.setattr(chat.store, "admit", lambda request: asked.append(request) or admit(request))
    counts = []
    for number in range(12):
        asked.clear()
        assert run.call(ask("add", of="apple", id=f"c{number}")).ok
        counts.append(len(asked))
    assert counts == [1, 2, *[3] * 10]
