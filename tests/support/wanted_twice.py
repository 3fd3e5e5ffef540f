"""Two sides of each rule of repetitions, as data: what the user says, what the model does, what is right.

A row is the turns of a conversation (the user's text, then the model's: calls, several calls in a list, or the last
word), all effects in order, and the last word as the user reads it.
"""

from pokayoke.testing import ask


def on(ident=""):
    return ask("switch", to="on", id=ident)


def off():
    return ask("switch", to="off")


PAID = ask("pay", order="A")
NOT_TWICE = "\n\n[Not run a second time: {}.]"

WANTED = {
    "on, off, on": (
        [("Blink.", on(), off(), on(), "It is on.")],
        ["switch on", "switch off", "switch on"],
        "It is on.",
    ),
    "test, fix, test": (
        [("Fix it.", ask("test"), ask("charge", of="a"), ask("test"), "It passes.")],
        ["test", "charge a", "test"],
        "It passes.",
    ),
    "another one": (
        [("An apple.", ask("charge", of="apple"), "Added."), ("Another one.", ask("charge", of="apple"), "Added.")],
        ["charge apple"] * 2,
        "Added.",
    ),
    "a third one, in the same words": (
        [("One more.", ask("charge", of="apple"), "Added.")] * 3,
        ["charge apple"] * 3,
        "Added.",
    ),
    "back and forth over turns": (
        [("On.", on(), "On."), ("Off.", off(), "Off."), ("On.", on(), "On."), ("Off.", off(), "Off.")],
        ["switch on", "switch off"] * 2,
        "Off.",
    ),
    "look up, create, look up": (
        [("Add A.", ask("find", of="A"), ask("charge", of="A"), ask("find", of="A"), "It is there.")],
        ["find A", "charge A", "find A"],
        "It is there.",
    ),
    "two equal ones in one message of a tool that counts each": (
        [("Two.", [ask("add", of="apple"), ask("add", of="apple")], "Two are there."), ("One more.", ask("add", of="apple"), "Done.")],
        ["add apple"] * 3,
        "Done.",
    ),
}  # fmt: skip
ONCE_MORE = {
    "twice in a message": (
        [("On.", [on(), on()], "It is on.")],
        ["switch on"],
        "It is on.",
    ),
    "twice in a turn": (
        [("On.", on(), on(), "It is on twice.")],
        ["switch on"],
        "It is on twice." + NOT_TWICE.format("switch"),
    ),
    "again in the turn after its replay": (
        [("On.", on(), on(), on(), "On, on, on.")],
        ["switch on"],
        "On, on, on." + NOT_TWICE.format("switch"),
    ),
    "a payment twice in a turn, with another effect between": (
        [("Pay A.", PAID, on(), PAID, "Paid twice.")],
        ["pay A", "switch on"],
        "Paid twice." + NOT_TWICE.format("pay"),
    ),
    "on, off, on in one message": (
        [("Blink.", [on(), off(), on()], "It is on.")],
        ["switch on", "switch off"],
        "It is on.",
    ),
}
