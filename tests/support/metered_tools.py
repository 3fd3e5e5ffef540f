"""Two tools whose calls end in every way that metrics count."""

import pokayoke


@pokayoke.tool(effect="read", output={"type": "object", "required": ["id"]})
def lookup(name: str) -> dict:
    """Look somebody up."""
    if name == "down":
        raise RuntimeError("CANARY")
    return {} if name == "broken" else {"id": 1}


@pokayoke.tool(effect="write", output="text", identity=("amount",))
def pay(amount: int) -> str:
    """Pay somebody."""
    if amount > 900:
        raise ConnectionError("CANARY")
    return "paid"


CALLS = (
    ("lookup", {"name": "x"}, "ok"),
    ("pay", {"amount": "3"}, "ok"),
    ("pay", {"amount": 3}, "replayed"),
    ("pay", {"amount": 999}, "in_doubt"),
    ("pay", {"amount": 999}, "in_doubt"),
    ("pay", '{"amount": CANARY}', "refused"),
    ("no_such_tool_CANARY", {}, "refused"),
    ("lookup", {"name": "down"}, "failed"),
    ("lookup", {"name": "broken"}, "degraded"),
    ("pay", {"amount": 4}, "refused"),
)
"""Calls of one run: tool, arguments, and the status they end with."""


def look_up(guard, *names):
    """Call `lookup` once per name, in a run of its own."""
    with guard.run() as run:
        return [run.call(pokayoke.ToolCall(str(number), "lookup", {"name": name})) for number, name in enumerate(names)]
