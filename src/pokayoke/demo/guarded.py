"""The same loop with pokayoke: the same functions, declared, and a run between model and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pokayoke
from pokayoke.demo.endpoint import MAX_ROUNDS, Endpoint, Log
from pokayoke.demo.world import World
from pokayoke.dropin import check_context


def _answer(**fields: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly these fields."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_RECORD = {"type": "object", "required": ["order_id", "sku", "amount"]}

CONFIG = {"retry": {"initial": 0.05}}
"""Everything is the safe default; only the wait before a retry is shorter than a second, for the demo."""


def declarations(world: World) -> Mapping[str, Mapping[str, Any]]:
    """Say about each tool what its function does not say by itself: effect, output, limits."""
    return {
        "place_order": {"output": _answer(placed=_TEXT), "correctors": {"amount": "counter_suffix"}},
        "list_orders": {"effect": "read", "output": _answer(orders={"type": "array", "items": _RECORD})},
        "refund": {"output": _answer(refunded=_COUNT)},
        "charge_card": {"output": _answer(charged=_COUNT)},
        "ship": {"output": _answer(shipped=_COUNT)},
        "set_price": {"output": _answer(priced=_TEXT)},
        "set_weight": {"output": _answer(weighed=_TEXT)},
        "restock": {"output": _answer(restocked=_TEXT)},
        "track_parcel": {"effect": "read", "output": _answer(order_id=_TEXT, place=_TEXT), "timeout": 0.3},
        "tag_contact": {"output": _answer(tagged=_TEXT)},
        "delete_contacts": {"effect": "destructive", "output": _answer(deleted=_TEXT)},
        "count_contacts": {"effect": "read", "output": _answer(contacts=_COUNT)},
        "read_ticket": {
            "effect": "read",
            "output": _answer(ticket_id=_TEXT, status={"enum": ["open", "closed"]}, body=_TEXT),
        },
        "close_ticket": {"output": _answer(closed=_TEXT), "approval": True},
        "send_email": {"output": _answer(sent=_TEXT)},
        "get_profile": {
            "effect": "read",
            "output": _answer(user_id=_TEXT, plan={"enum": ["free", "pro", "enterprise"]}, seats=_COUNT),
        },
        "get_price": {"effect": "read", "output": _answer(sku=_TEXT, cents=_COUNT)},
        # An open schema on purpose: what an error inside a success looks like where nobody thought of it.
        "get_stock": {
            "effect": "read",
            "output": {"type": "object", "properties": {"units": _COUNT}, "required": ["sku", "units"]},
        },
        "write_note": {"output": _answer(written=_COUNT), "paths": {"path": [str(world.desk.workspace)]}},
        "search_catalogue": {"effect": "read", "output": _answer(hits={"type": "array", "items": _TEXT})},
        "monthly_report": {"effect": "read", "output": _answer(orders=_COUNT, revenue_cents=_COUNT)},
    }


def run(endpoint: Endpoint, tools: Mapping[str, Callable[..., Any]], world: World, prompt: str) -> Log:
    """Play a script against the same tools behind a guard.

    Args:
        endpoint: the model.
        tools: the functions by name.
        world: where they work; it names the workspace.
        prompt: what the user asks.

    Returns:
        What the model asked for, what it read, and how it ended.
    """
    declared = declarations(world)
    contracts = [pokayoke.tool(**declared[name])(function) for name, function in tools.items()]
    guard = pokayoke.Guard(contracts, config=CONFIG)
    log = Log(messages=[{"role": "system", "content": endpoint.system}, {"role": "user", "content": prompt}])
    with guard.run(prompt=prompt) as run:
        for _ in range(MAX_ROUNDS):
            if endpoint.window is not None:
                log.messages = check_context(log.messages, endpoint.window)
            offered = run.tools("openai")
            reply = endpoint(log.messages, offered)
            log.messages.append(reply.openai()["choices"][0]["message"])
            if not reply.calls or not offered:
                log.answer = run.answer(reply.text).text
                break
            for outcome in run.call_batch(reply.calls, stop_reason=reply.finish):
                log.messages.append({"role": "tool", "tool_call_id": outcome.call_id, "content": outcome.text})
                log.note(
                    outcome.tool,
                    outcome.status,
                    outcome.text,
                    stop_reason=outcome.stop_reason,
                    findings=[finding.code for finding in outcome.findings],
                )
    log.stop_reason = run.stop_reason
    return log
