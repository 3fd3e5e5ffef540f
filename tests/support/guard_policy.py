"""A guard as the policy of a worst-case harness: `untrusted.mode: ask`, and nothing else set.

`python -m tests.support.untrusted_suite --external tests.support.guard_policy:careful` measures it. A factory is called
once per run and returns `policy(user_prompt, history, call, tools)`, which answers "allow" or "ask" and why. What has run
goes through the guard like any call; whoever is asked says yes, since the harness lets only approved calls run. Moments
without a time zone, which break the tools' schemas, get one: a model does that after the guard's hint.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pokayoke

_guards: dict[tuple[Any, ...], pokayoke.Guard] = {}
_numbers = itertools.count()


def contract_fields(tool: Any) -> dict[str, Any]:
    """Return the fields of a tool's contract that its labels say; none if it has none."""
    if tool.labels is None:
        return {}
    said = dict(tool.labels)
    fields: dict[str, Any] = {"effect": said.pop("effect"), "open_world": said.pop("open_world")}
    targets = said.pop("targets")
    said |= {"targets": None if targets is None else tuple(targets), "amounts": tuple(said["amounts"])}
    return {**fields, "labels": pokayoke.Labels(**said)}


def _contract(name: str, tool: Any) -> pokayoke.Contract:
    schema = tool.schema if tool.schema.get("properties") else {"type": "object", "properties": {}}
    return pokayoke.Contract.from_schema(name, schema, description=tool.description or "", **contract_fields(tool))


def _guard_of(tools: dict[str, Any], config: dict[str, Any]) -> tuple[pokayoke.Guard, dict[str, str]]:
    names = {name: name.replace(".", "_") for name in tools}
    labelled = [tool.labels is not None for tool in tools.values()]
    key = (*names, *labelled, json.dumps(config))
    if key not in _guards:
        contracts = [_contract(names[name], tool) for name, tool in tools.items()]
        _guards[key] = pokayoke.Guard(contracts, config=config, on_ask=lambda _: True)
    return _guards[key], names


def with_zones(arguments: Any) -> Any:
    """Return arguments whose moments have a time zone."""
    if isinstance(arguments, str):
        return re.sub(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)$", r"\1Z", arguments)
    if isinstance(arguments, dict):
        return {name: with_zones(value) for name, value in arguments.items()}
    return [with_zones(value) for value in arguments] if isinstance(arguments, (list, tuple)) else arguments


class _Policy:
    def __init__(self, config: dict[str, Any]) -> None:
        self._config = {"loop": {"off": "*"}, "safe_mode": {"kill_switch": False}, **config}
        self._run: pokayoke.Run | None = None
        self._seen = 0

    def __call__(self, prompt: str, history: list[Any], call: Any, tools: dict[str, Any]) -> tuple[str, str]:
        guard, names = _guard_of(tools, self._config)
        if self._run is None:
            self._run = guard.run(f"r{next(_numbers)}")
        run = self._run
        run.user(prompt)
        for step in history[self._seen :]:
            ticket = run.begin(pokayoke.ToolCall("", names[step.tool], with_zones(step.args)))
            if ticket.outcome is None:
                run.finish(ticket, result=step.output, error=None if step.error is None else str(step.error))
        self._seen = len(history)
        verdict = run.check(pokayoke.ToolCall("", names[call.tool], with_zones(call.args)))
        if verdict.ok:
            return "allow", ""
        why = verdict.findings[0].message if verdict.findings else str(verdict.sources)
        return "ask" if verdict.decision == "ask" else "deny", why


def careful() -> _Policy:
    return _Policy({"untrusted": {"mode": "ask"}})


def strict() -> _Policy:
    return _Policy({"untrusted": {"mode": "ask", "level": "strict"}})


def balanced() -> _Policy:
    return _Policy({"untrusted": {"mode": "ask", "level": "balanced"}})


def default() -> _Policy:
    """What ships, with nothing set."""
    return _Policy({})
