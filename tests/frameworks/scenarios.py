"""What models and tools do wrong, as data: each row says what the model writes and what is right.

Every framework is played every row, once guarded and, to see what it does by itself, once alone.
"""

import json
from dataclasses import dataclass

from framework_shop import PAGE
from model_server import Turn

DONE = "Done."
ANY_ORDER = {"order_id": "A1", "qty": 2}
MONEY = {"order_id": "A1", "amount": 5}
MANY = 60
FALLBACK = "could not finish"


@dataclass(frozen=True)
class Scenario:
    """One row of the table.

    Args:
        name: how the table calls it.
        right: what is right, in one sentence.
        turns: what the model says; a client that goes on after the last one hears it again.
        happens: tool and arguments of everything that may and must happen, in any order.
        told: what the answers to the calls have to say to the model.
        untold: what no request may hold.
        says: what the last text has to contain.
        requests: how often the model may be asked, at least and at most.
        toolless: True if the last request must offer no tools.
        hangs_for: seconds that the tool `hang` takes; the model must be asked again before they are over.
        blocking: True to give asynchronous frameworks synchronous tools.
        largest: characters that no request may exceed.
    """

    name: str
    right: str
    turns: tuple[Turn, ...]
    happens: tuple[tuple[str, dict], ...] = ()
    told: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    says: str = DONE
    requests: tuple[int, int] = (2, 2)
    toolless: bool = False
    hangs_for: float = 6.0
    blocking: bool = False
    largest: int = 60_000

    def plays(self, wire: str, mode: str) -> bool:
        """Whether a wire can carry it: whole messages of Anthropic hold objects, not texts."""
        if wire != "anthropic" or mode == "stream":
            return True
        return all(_object(text) for turn in self.turns for _, _, text in turn.calls)


def _object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def call(name: str, arguments: dict | str, ident: object = "call_1") -> tuple:
    """One call; a dict is written as a model writes it."""
    return (ident, name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def says(*calls: tuple, stop: str | None = None) -> Turn:
    """A reply that calls tools."""
    return Turn(calls=calls, stop=stop)


def stuck(name: str, arguments: dict | str) -> tuple[Turn, ...]:
    """A model that never does anything else."""
    return tuple(says(call(name, arguments, f"call_{number}")) for number in range(1, MANY))


END = Turn(DONE)
ORDER = ("get_order", ANY_ORDER)
REFUND = ("refund", MONEY)

READING = (
    Scenario(
        "sound calls",
        "A sound read and a sound write run once each, and the model reads their results.",
        (says(call(*ORDER)), says(call(*REFUND, "call_2")), END),
        happens=(ORDER, REFUND),
        told=("refunded",),
        requests=(3, 3),
    ),
    Scenario(
        "malformed, read",
        "Single quotes and a trailing comma allow only one reading: the call runs with it.",
        (says(call("get_order", "{'order_id': 'A1', 'qty': 2,}")), END),
        happens=(ORDER,),
    ),
    Scenario(
        "malformed, write",
        "The same holds for a write, and it runs once.",
        (says(call("refund", "{'order_id': 'A1', 'amount': 5,}")), END),
        happens=(REFUND,),
    ),
    Scenario(
        "guessable, write",
        "A write whose text fits only after an edit does not run; the model is asked whether the edit is right.",
        (says(call("refund", '{"order_id": "A1" "amount": 5}')), END),
        told=("not used",),
    ),
    Scenario(
        "cut, parses",
        "A message that the provider says was cut runs nothing, even if the arguments parse.",
        (says(call(*REFUND), stop="length"), END),
        told=("cut",),
    ),
    Scenario(
        "cut, unparsable",
        "A message that was cut within the arguments runs nothing, and the model reads that it was cut.",
        (says(call("refund", '{"order_id": "A1", "amo'), stop="length"), END),
        told=("cut",),
    ),
    Scenario(
        "cut, one of two whole",
        "None of the calls of a cut message runs, not even the one that was whole, and each is answered.",
        (says(call(*ORDER), call("refund", '{"order_id": "A1", "amo', "call_2"), stop="length"), END),
        told=("cut",),
    ),
    Scenario(
        "cut, no signal",
        "Arguments that end in the middle are a cut, whatever the provider says: nothing runs.",
        (says(call("refund", '{"order_id": "A1", "amount": 5')), END),
        told=("ends",),
    ),
    Scenario(
        "empty, none required",
        "An empty text counts as no arguments for a tool that needs none.",
        (says(call("ping", "")), END),
        happens=(("ping", {}),),
    ),
    Scenario(
        "empty, some required",
        "A tool that needs arguments does not run with an empty text, and the model reads why.",
        (says(call("get_order", "")), END),
        told=("get_order",),
    ),
    Scenario(
        "an array",
        "Arguments that are not an object are refused with that reason.",
        (says(call("get_order", '["A1", 2]')), END),
        told=("object",),
    ),
    Scenario(
        "wrong type",
        "A word in place of an integer is refused, and the model reads the name of the field.",
        (says(call("get_order", {"order_id": "A1", "qty": "two"})), END),
        told=("qty",),
    ),
    Scenario(
        '"2" for an integer',
        "The tool gets the integer.",
        (says(call("get_order", {"order_id": "A1", "qty": "2"})), END),
        happens=(ORDER,),
    ),
    Scenario(
        "extra key",
        "An unknown key is not dropped silently: the write does not run, and the model reads why.",
        (says(call("refund", {**MONEY, "currency": "USD"})), END),
        told=("currency",),
    ),
    Scenario(
        "unknown tool",
        "A call of an unknown tool is answered with the names of the existing tools.",
        (says(call("fetch_refunds", ANY_ORDER)), END),
        told=("get_order",),
    ),
)

TOOLS = (
    Scenario(
        "raises",
        "The run goes on, and the model does not get the text of the exception.",
        (says(call("explode", {"order_id": "A1"})), END),
        happens=(("explode", {"order_id": "A1"}),),
        told=("explode",),
    ),
    Scenario(
        "hangs",
        "A call that exceeds its time limit is answered when the limit is over.",
        (says(call("hang", {"order_id": "A1"})), END),
        happens=(("hang", {"order_id": "A1"}),),
        told=("hang",),
    ),
    Scenario(
        "hangs, sync tool",
        "The same holds for a tool that blocks its thread.",
        (says(call("hang", {"order_id": "A1"})), END),
        happens=(("hang", {"order_id": "A1"}),),
        told=("hang",),
        blocking=True,
    ),
    Scenario(
        "HTML for JSON",
        "An error page is not a result: the model never reads it, and no write is based on it.",
        (says(call("page", {"order_id": "A1"})), says(call(*REFUND, "call_2")), END),
        happens=(("page", {"order_id": "A1"}),),
        untold=(PAGE[-30:-8], "Bad Gateway"),
        requests=(3, 3),
    ),
    Scenario(
        "not serialisable",
        "An object that is not data is an invalid output, and its repr is never sent.",
        (says(call("odd", {"order_id": "A1"})), END),
        happens=(("odd", {"order_id": "A1"}),),
        untold=("shop.Odd", "object at 0x"),
    ),
    Scenario(
        "a million characters",
        "The model gets a preview; no request holds the whole text.",
        (says(call("huge", {"order_id": "A1"})), END),
        happens=(("huge", {"order_id": "A1"}),),
        told=("xxx",),
    ),
)

MANY_CALLS = (
    Scenario(
        "same write again",
        "The write happens once; the second call is answered with the result of the first.",
        (says(call(*REFUND)), says(call(*REFUND, "call_2")), END),
        happens=(REFUND,),
        told=("already",),
        requests=(3, 3),
    ),
    Scenario(
        "same write, parallel",
        "The same holds for two calls of one message.",
        (says(call(*REFUND), call(*REFUND, "call_2")), END),
        happens=(REFUND,),
        told=("already",),
    ),
    Scenario(
        "same write, one id",
        "The same holds if both calls have one id, and each is answered under an id of its own.",
        (says(call(*REFUND), call(*REFUND)), END),
        happens=(REFUND,),
        told=("already",),
    ),
    Scenario(
        "two reads, one id",
        "Calls that share an id both run, and each is answered under an id of its own.",
        (says(call(*ORDER), call("get_order", {"order_id": "B2", "qty": 1})), END),
        happens=(ORDER, ("get_order", {"order_id": "B2", "qty": 1})),
        told=("B2", "A1"),
    ),
    Scenario(
        "one id, two turns",
        "An id that is used again in a later turn is another call.",
        (says(call(*ORDER)), says(call(*REFUND)), END),
        happens=(ORDER, REFUND),
        requests=(3, 3),
    ),
    Scenario(
        "no id",
        "A call without an id runs and is answered.",
        (says(call(*ORDER, "")), END),
        happens=(ORDER,),
    ),
    Scenario(
        "two without an id",
        "Two calls without an id run and are answered.",
        (says(call(*ORDER, ""), call(*REFUND, "")), END),
        happens=(ORDER, REFUND),
    ),
    Scenario(
        "null id",
        "A call whose id is null runs and is answered.",
        (says(call(*ORDER, None)), END),
        happens=(ORDER,),
    ),
    Scenario(
        "parallel, one unknown",
        "A call next to one of an unknown tool runs; both are answered.",
        (says(call(*REFUND), call("fetch_refunds", ANY_ORDER, "call_2")), END),
        happens=(REFUND,),
        told=("refunded", "get_order"),
    ),
    Scenario(
        "parallel, one malformed",
        "A call next to an unreadable one runs; both are answered.",
        (says(call(*ORDER), call("refund", '{"order_id": "A1", "amount": }', "call_2")), END),
        happens=(ORDER,),
        told=("not used",),
    ),
    Scenario(
        "parallel, one raises",
        "A call next to one whose tool raises runs; both are answered.",
        (says(call("explode", {"order_id": "A1"}), call(*ORDER, "call_2")), END),
        happens=(("explode", {"order_id": "A1"}), ORDER),
    ),
)

STUCK = (
    Scenario(
        "stuck on unknown",
        "After the second bad round the tools are removed, and the user gets an honest answer.",
        stuck("fetch_refunds", ANY_ORDER),
        says=FALLBACK,
        requests=(3, 3),
        toolless=True,
    ),
    Scenario(
        "stuck on raising",
        "The same holds for a tool that keeps raising.",
        stuck("explode", {"order_id": "A1"}),
        happens=(("explode", {"order_id": "A1"}),) * 2,
        says=FALLBACK,
        requests=(3, 3),
        toolless=True,
    ),
    Scenario(
        "stuck on malformed",
        "The same holds for unreadable arguments.",
        stuck("refund", '{"order_id": "A1", "amount": }'),
        says=FALLBACK,
        requests=(3, 3),
        toolless=True,
    ),
    Scenario(
        "stuck on one read",
        "The same holds for a read that returns nothing new.",
        stuck(*ORDER),
        happens=(ORDER,) * 5,
        says=FALLBACK,
        requests=(6, 6),
        toolless=True,
    ),
    Scenario(
        "stuck, then answers",
        "Once its tools are gone the model's own words are the answer.",
        (*stuck("fetch_refunds", ANY_ORDER)[:2], Turn("I found no refund.")),
        says="I found no refund.",
        requests=(3, 3),
        toolless=True,
    ),
    Scenario(
        "calls after tools went",
        "A call after the tools were removed runs nothing.",
        (*stuck("fetch_refunds", ANY_ORDER)[:2], says(call(*REFUND, "call_9"))),
        says=FALLBACK,
        requests=(3, 3),
        toolless=True,
    ),
    Scenario(
        "empty answer",
        "If the model ends without a word, the user still gets an answer.",
        (says(call(*ORDER)), Turn("")),
        happens=(ORDER,),
        says=FALLBACK,
        requests=(2, 3),
    ),
)

SCENARIOS = (*READING, *TOOLS, *MANY_CALLS, *STUCK)
BY_NAME = {one.name: one for one in SCENARIOS}
