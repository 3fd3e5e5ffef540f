"""Two sides of each rule of repetitions, through a framework's own histories, turns and questions.

Wanted effects: all. Doubled effects: none. And no last word says of an effect what is not so.
"""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import pytest
from chat import Life, Step, Tools
from wanted_twice import ONCE_MORE, PAID, WANTED, off, on

import pokayoke
from pokayoke.core.ledger.records import Resolution
from pokayoke.stores.base import RecordQuery
from pokayoke.testing import ask

HERE = Path(__file__).resolve().parent
FRAMEWORK = os.environ["POKAYOKE_HOST"].replace("-", "_")
if not (HERE / "chats" / f"{FRAMEWORK}.py").exists():
    pytest.skip("this framework has no chat", allow_module_level=True)


@pytest.fixture(scope="module")
def nursery():
    """Where real processes come from."""
    command = [sys.executable, HERE / "chat.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


class Player:
    """Plays the steps of a conversation, in one process or in several.

    Attributes:
        lives: "one process", or "processes" (each step is one).
        text: what the user reads after the latest step.
        waits: the tools that wait for a person then.
    """

    def __init__(self, lives, folder, nursery, store):
        self.lives, self.folder, self.nursery, self.store = lives, folder, nursery, store
        self.text, self.waits, self._life = "", [], None

    @property
    def done(self):
        """All effects, in order."""
        return Tools(self.folder).done

    def tell(self, file, *what):
        """Tell the tools what to decline (`fails`), or to lose the answer of (`broken`)."""
        (self.folder / file).write_text("\n".join(what))

    def play(self, do, *turns, dies="", **given):
        """Play a step."""
        script = [one if isinstance(one, str) else _calls(one, at) for at, one in enumerate(turns)]
        step = Step(do, script, dies=dies, **given)
        if dies or self.lives == "processes":
            order = {"folder": str(self.folder), "store": self.store, "step": asdict(step)}
            self.nursery.stdin.write(json.dumps(order) + "\n")
            self.nursery.stdin.flush()
            ended = json.loads(self.nursery.stdout.readline())
            assert ended["killed"] is bool(dies), ended
            result = ended["result"] or {"text": "", "waits": []}
        else:
            if self._life is None:
                self._life = Life(self.folder, self.store)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = self._life.play(step)
        assert "wrong" not in result, result["wrong"]
        self.text, self.waits = result["text"], result["waits"]
        return self

    def say(self, text, *turns, **given):
        """The user says something, and the model plays its turns."""
        return self.play("say", *turns, text=text, **given)

    def close(self):
        """End the process."""
        if self._life is not None:
            self._life.guard.close()
        self._life = None


def _calls(turn, at):
    asked = turn if isinstance(turn, list) else [turn]
    return [[one.id or f"call_{at}_{n}", one.name, json.loads(one.arguments)] for n, one in enumerate(asked)]


@pytest.fixture(params=["one process", "processes"])
def chat(request, tmp_path, nursery):
    """A conversation with a durable ledger."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    pokayoke.open_store(url, create=True).close()
    player = Player(request.param, tmp_path, nursery, url)
    yield player
    player.close()


processes = pytest.mark.parametrize("chat", ["processes"], indirect=True)


@pytest.mark.parametrize(("turns", "effects", "last"), (WANTED | ONCE_MORE).values(), ids=WANTED | ONCE_MORE)
def test_a_wanted_effect_happens_and_no_other(chat, turns, effects, last):
    """Each row of the table: all effects, none twice, and the last word."""
    for text, *model in turns:
        chat.say(text, *model)
    # Frameworks begin the calls of one message side by side, in no order.
    together = any(isinstance(said, list) for _, *model in turns for said in model)
    done = sorted(chat.done, key=effects.index) if together else chat.done
    assert (done, chat.text) == (effects, last)


# -- wanted ------------------------------------------------------------------------------------------


def test_a_declared_payment_is_repeated_by_a_persons_yes(chat):
    """In a later turn the framework's own question is asked; a yes is for one effect, and a no holds."""
    chat.say("Pay A.", PAID, "Paid.")
    for yes, effects, note in ((True, 2, ""), (False, 2, "\n\n[Not done: pay (a person said no).]")):
        chat.say("Pay A again.", PAID)
        assert (chat.waits, len(chat.done)) == (["pay"], effects - yes)
        chat.play("decide", "Paid again.", yes=yes)
        assert (chat.done, chat.text) == (["pay A"] * effects, f"Paid again.{note}")
    chat.say("Pay A again.", PAID, "I may not.")
    assert (chat.done, chat.text) == (["pay A"] * 2, f"I may not.{note}")


CARDS = {
    "a plain write": ("charge", "of"),
    "a payment that raises ToolError": ("settle", "order"),
    "a payment whose envelope says that nothing happened": ("capture", "order"),
}


@pytest.mark.parametrize(("name", "field"), CARDS.values(), ids=CARDS)
def test_a_declined_card_and_a_good_one(chat, name, field):
    """A tool that said no is called again in the next turn, and the user reads no more of the first."""
    call = ask(name, {field: "A"})
    chat.tell("fails", f"{name} A")
    chat.say("Charge A.", call, "It was declined.")
    assert chat.done == []
    assert chat.text.startswith("It was declined.")
    chat.tell("fails")
    chat.say("I have a good card.", call, "Charged.")
    assert (chat.done, chat.text, chat.waits) == ([f"{name} A"], "Charged.", [])


def test_a_payment_whose_decline_may_have_had_an_effect_is_asked(chat):
    """Nothing says that nothing happened: the second try waits for a person."""
    chat.tell("fails", "pay A")
    chat.say("Pay A.", PAID, "It was declined.")
    assert chat.text == "It was declined.\n\n[It is not known whether pay took effect.]"
    chat.tell("fails")
    chat.say("I have a good card.", PAID)
    assert (chat.done, chat.waits) == ([], ["pay"])
    chat.play("decide", "Paid.", yes=True)
    assert (chat.done, chat.text) == (["pay A"], "Paid.")


# -- the same call once more -------------------------------------------------------------------------


def test_a_call_that_is_delivered_again_after_another_write_is_no_new_one(chat):
    """The framework goes back to where the first call had no answer, although another write came after it."""
    chat.say("Blink.", on("c1"), off(), "It is off.")
    chat.play("redeliver", on("c1"), "It is on.")
    assert (chat.done, chat.text) == (["switch on", "switch off"], "It is on.")


def test_time_travel_repeats_nothing(chat):
    """From a history before the first effect, the effects come out of the ledger one after the other."""
    chat.say("Blink.", on("c1"), off(), on("c2"), "It is on.")
    chat.play("travel", on("x1"), off(), on("x2"), "It is on.", text="Blink.")
    assert (chat.done, chat.text) == (["switch on", "switch off", "switch on"], "It is on.")


STEPS = ("after_claim", "before_invoke", "after_invoke", "after_settle")


@processes
@pytest.mark.parametrize("call", [on(), PAID, ask("add", of="apple")], ids=lambda call: call.name)
@pytest.mark.parametrize("dies", STEPS)
def test_a_killed_process_goes_on_without_a_second_effect(chat, dies, call):
    """Killed before, in or after the effect: at most one, and the last word says what is known of it."""
    chat.say("Do it.", call, dies=dies)
    happened = len(chat.done)
    assert happened == (dies in ("after_invoke", "after_settle"))
    again = [call] if FRAMEWORK == "openai_agents" else []  # the SDK stores nothing of a run that does not wait
    chat.play("go_on", *again, "Done.", text="Do it.")
    doubt = f"\n\n[It is not known whether {call.name} took effect.]"
    assert (len(chat.done), chat.text) == (happened, "Done." + doubt * (dies != "after_settle"))


@processes
@pytest.mark.parametrize("dies", STEPS)
def test_a_process_that_is_killed_after_a_yes_is_resumed_with_it(chat, dies):
    """What waited is stored, and the same yes given once more: it is for one effect, whatever became of that."""
    chat.say("Pay A.", PAID, "Paid.")
    chat.say("Pay A again.", PAID)
    chat.play("decide", "Paid again.", yes=True, dies=dies)
    happened = len(chat.done)
    assert happened == 1 + (dies in ("after_invoke", "after_settle"))
    chat.play("decide", "Paid again.", yes=True)
    doubt = "\n\n[It is not known whether pay took effect.]"
    assert (len(chat.done), chat.text) == (happened, "Paid again." + doubt * (dies != "after_settle"))


def test_a_doubt_is_not_tried_again(chat):
    """Did it work, try again? While nobody knows, nothing is new; once it is known, the answer says so."""
    chat.tell("broken", "pay A", "switch on")
    chat.say("Pay A, switch on.", PAID, on(), "It may have worked.")
    chat.tell("broken")
    for _ in range(2):
        chat.say("Did it work? Try again.", PAID, on(), "I tried again.")
        assert "It is not known whether pay, switch took effect." in chat.text
    assert chat.done == ["pay A", "switch on"]
    store = pokayoke.open_store(chat.store)
    for record in store.records(RecordQuery(run_id="t")):
        store.decide(Resolution(record.key, happened=True, by="ann", reason="seen", now=record.claimed_at + 1))
    store.close()
    chat.say("And now?", PAID, on(), "It was done.")
    assert (chat.done, chat.text) == (["pay A", "switch on"], "It was done.")
