"""The same loop with pokayoke: the same functions, declared, and a run between model and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pokayoke
from pokayoke.demo.endpoint import MAX_ROUNDS, Endpoint, RunLog
from pokayoke.demo.kept_runs import KeptRuns
from pokayoke.demo.scenario import Scenario
from pokayoke.demo.world import World
from pokayoke.dropin import check_context


def _object_schema(**fields: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly these fields."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_RECORD = {"type": "object", "required": ["order_id", "sku", "amount"]}

CONFIG = {"retry": {"initial": 0.05}}
"""The safe default; only the wait before a retry is shorter than a second, for the demo."""


def tool_declarations(world: World) -> Mapping[str, Mapping[str, Any]]:
    """Return what the functions do not declare themselves: each tool's effect, output and limits."""
    return {
        "place_order": {"output": _object_schema(placed=_TEXT), "correctors": {"amount": "counter_suffix"}},
        "list_orders": {"effect": "read", "output": _object_schema(orders={"type": "array", "items": _RECORD})},
        "refund": {"output": _object_schema(refunded=_COUNT)},
        "charge_card": {"output": _object_schema(charged=_COUNT)},
        "ship": {"output": _object_schema(shipped=_COUNT)},
        "set_price": {"output": _object_schema(priced=_TEXT)},
        "set_weight": {"output": _object_schema(weighed=_TEXT)},
        "restock": {"output": _object_schema(restocked=_TEXT)},
        "track_parcel": {"effect": "read", "output": _object_schema(order_id=_TEXT, place=_TEXT), "timeout": 0.3},
        "tag_contact": {"output": _object_schema(tagged=_TEXT)},
        "delete_contacts": {"effect": "destructive", "output": _object_schema(deleted=_TEXT)},
        "count_contacts": {"effect": "read", "output": _object_schema(contacts=_COUNT)},
        "read_ticket": {
            "effect": "read",
            "output": _object_schema(ticket_id=_TEXT, status={"enum": ["open", "closed"]}, body=_TEXT),
        },
        "close_ticket": {"output": _object_schema(closed=_TEXT), "approval": True},
        "send_email": {"output": _object_schema(sent=_TEXT)},
        "get_profile": {
            "effect": "read",
            "output": _object_schema(user_id=_TEXT, plan={"enum": ["free", "pro", "enterprise"]}, seats=_COUNT),
        },
        "get_price": {"effect": "read", "output": _object_schema(sku=_TEXT, cents=_COUNT)},
        # An open schema on purpose: an error inside a success as it looks where it was not considered.
        "get_stock": {
            "effect": "read",
            "output": {"type": "object", "properties": {"units": _COUNT}, "required": ["sku", "units"]},
        },
        "write_note": {"output": _object_schema(written=_COUNT), "paths": {"path": [str(world.desk.workspace)]}},
        "search_catalogue": {"effect": "read", "output": _object_schema(hits={"type": "array", "items": _TEXT})},
        "monthly_report": {"effect": "read", "output": _object_schema(orders=_COUNT, revenue_cents=_COUNT)},
    }


def run_loop(
    endpoint: Endpoint,
    tools: Mapping[str, Callable[..., Any]],
    world: World,
    scenario: Scenario,
    kept: KeptRuns | None = None,
) -> RunLog:
    """Play a script against the same tools behind a guard.

    Args:
        endpoint: the model.
        tools: the functions by name.
        world: where they work; it names the workspace.
        scenario: what the user asks, and what the guard is set to.
        kept: where ledger and trace are kept; None keeps nothing.

    Returns:
        What the model asked for, what it read, and how it ended.
    """
    prompt = scenario.prompt
    declared = tool_declarations(world)
    contracts = [pokayoke.tool(**declared[name])(function) for name, function in tools.items()]
    mode = {} if scenario.untrusted is None else {"untrusted": {"mode": scenario.untrusted}}
    trace = {} if kept is None else {"trace": {"path": str(kept.trace)}}
    store = None if kept is None else kept.url
    log = RunLog(messages=[{"role": "system", "content": endpoint.system}, {"role": "user", "content": prompt}])
    with (
        pokayoke.Guard(contracts, config={**CONFIG, **mode, **trace}, store=store) as guard,
        guard.run(None if kept is None else scenario.name, prompt=prompt) as run,
    ):
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
                log.add_call(
                    outcome.tool,
                    outcome.status,
                    outcome.text,
                    stop_reason=outcome.stop_reason,
                    findings=[finding.code for finding in outcome.findings],
                )
    log.stop_reason = run.stop_reason
    return log
