"""Which of several equal effects a call means; through a guard in memory."""

import msgspec
import pytest

from pokayoke import Contract, Envelope, Guard, ToolCall, ToolError
from pokayoke.testing import FrozenClock

TEXT = {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}}
DOUBT = "It is not known whether add took effect. Do not send it again."


class Desk:
    """A run, its effects, and the history of its requests."""

    def __init__(self, **fields):
        self.done, self.fail = [], None
        self.contract = Contract.from_schema("add", TEXT, output_schema={}, handler=self.add, **fields)
        self.guard = Guard([self.contract], clock=FrozenClock())
        self.run = self.guard.run("r", prompt="Add.")
        self.history = [{"role": "user", "content": "Add."}]

    def add(self, **arguments):
        """The tool."""
        if self.fail is not None:
            raise self.fail
        self.done.append(arguments)
        return {"ok": True, "n": len(self.done)}

    def send(self, ident, *, exact=True, name="add", told=True, **arguments):
        """The model sends a call; its answer goes to the history."""
        if exact:
            self.run.set_history(self.history)
        outcome = self.run.call(ToolCall(ident, name, arguments))
        if told:
            self.keep(ident, outcome.text, name, arguments)
        return outcome

    def keep(self, ident, text, name="add", arguments=None):
        """A call and its answer stand in the history."""
        given = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
        function = {"name": name, "arguments": given}
        self.history += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": ident, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": ident, "content": text},
        ]

    def say(self, text):
        """The user speaks."""
        self.history += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": text}]


def test_a_host_may_say_which_effect_it_means():
    """Under the occurrence it names nothing is decided: it happens once, and is marked as a repetition."""
    desk = Desk()
    calls = [ToolCall(f"c{n}", "add", {}, occurrence=2) for n in (1, 2)]
    first, again = (desk.run.call(one) for one in calls)
    assert (first.status, first.repeated) == ("ok", True)
    assert (again.status, again.repeated, again.findings[0].data) == ("replayed", False, {})
    assert len(desk.done) == 1


def test_who_is_not_as_far_begins_anew():
    """The opening knows three equal effects; a request from before the first gets their answers one by one."""
    desk = Desk(repeats="each")
    assert all(desk.send(f"c{n}").ok for n in range(3))
    desk.history = desk.history[:1]
    told = [desk.send(f"x{n}") for n in range(3)]
    assert [one.value["n"] for one in told] == [1, 2, 3]
    assert {one.status for one in told} == {"replayed"}
    assert (desk.send("x4").status, len(desk.done)) == ("ok", 4)


def test_a_later_answer_stands_for_those_before_it():
    """A shortened history has lost the first answers: the next wish is a new effect all the same."""
    desk = Desk(repeats="each")
    for n in range(3):
        desk.send(f"c{n}")
    other = desk.guard.run("r", history=[*desk.history[:1], *desk.history[-2:]])
    assert (other.call(ToolCall("y", "add", {})).status, len(desk.done)) == ("ok", 4)


def test_a_doubt_stops_the_chain_but_not_another_place_of_its_message():
    """With `each`, an equal call at another place is an effect of its own; a later message waits for the doubt."""
    desk = Desk(repeats="each")
    desk.fail = OSError("lost")
    desk.run.set_history(desk.history)
    assert desk.run.call(ToolCall("c1", "add", {})).status == "in_doubt"
    desk.fail = None
    second = desk.run.call(ToolCall("c2", "add", {}))
    assert (second.status, second.repeated) == ("ok", True)
    assert desk.run.call(ToolCall("c1", "add", {})).status == "in_doubt"
    assert desk.run.call(ToolCall("c2", "add", {})).status == "replayed"
    desk.keep("c1", DOUBT)
    desk.keep("c2", second.text)
    assert desk.send("c3").status == "in_doubt"
    assert len(desk.done) == 1


@pytest.mark.parametrize(
    ("kept", "name", "seen"),
    [
        ({"to": "ann", "n": 1}, "add", True),
        ('{"n":1,"to":"ann"}', "add", True),
        ({"to": "ann", "n": 1}, "Add", True),
        ({"to": "ann", "n": 1}, "functions.add", True),
        ({"to": "ann", "n": 1}, "other", False),
        ({"to": "bob", "n": 1}, "add", False),
        ('["ann"]', "add", False),
        ("{'to'", "add", False),
        ("", "add", False),
    ],
)
def test_a_call_in_the_history_is_equal_if_it_means_the_same_effect(kept, name, seen):
    """However it is spelt; what cannot be read, or is of another tool, is another call."""
    desk = Desk(repeats="each")
    text = desk.send("c1", told=False, to="ann", n=1).text
    desk.keep("c1", text, name, kept)
    assert (desk.send("c2", to="ann", n=1).status == "ok") is seen


def test_a_question_says_what_is_known_of_the_effect_before():
    """The answer of then, or that it failed."""
    desk = Desk(repeats="once")
    desk.run.can_ask = True
    desk.send("c1")
    desk.say("Again.")
    waits = desk.send("c2")
    assert waits.status == "pending"
    assert "add already ran at 2026-01-01" in waits.text
    assert '"n":1}' in waits.text


def test_a_write_whose_attempts_are_used_up_may_be_tried_in_a_later_turn():
    """None of its attempts had an effect, so a new turn begins with new ones."""
    desk = Desk(identity=("to",))
    desk.fail = ToolError("declined")
    assert [desk.send(f"c{n}", exact=False, to="a").status for n in range(3)] == ["failed"] * 3
    desk.fail = None
    desk.run.user("I have another card.")
    assert (desk.send("c6", exact=False, to="a").status, len(desk.done)) == ("ok", 1)


@pytest.mark.parametrize("declines", [False, True])
def test_who_knows_nothing_gets_the_answer_where_nobody_was_asked(declines):
    """An opening without a history asks nobody anew: it only uses a question that was put before."""
    desk = Desk(repeats="once", envelope=Envelope(ok="/ok", ok_values=(not declines,)))
    first = desk.send("c1")
    other = desk.guard.run("r")
    other.can_ask = True
    again = other.call(ToolCall("c9", "add", {}))
    assert (first.status, again.status) == (("failed", "failed") if declines else ("ok", "replayed"))
    assert desk.guard.approvals.list() == ()
    other.user("Once more.")
    waits = other.call(ToolCall("c10", "add", {}))
    assert waits.status == "pending"
    assert ("add failed at 2026-01-01" in waits.text) is declines
    assert len(desk.done) == 1
