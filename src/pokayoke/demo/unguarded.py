"""The loop people write, without pokayoke.

Every habit in here is common: close the braces of JSON that does not parse, take the tool with the nearest name,
drop fields the function does not know, join the digits of a text where a number belongs, retry on any exception,
pass `str(result)` to the model, run the calls of a message whatever its stop reason. None of it is invented; each
one is in use.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from pokayoke.core.call import ToolCall
from pokayoke.demo.endpoint import MAX_ROUNDS, Endpoint, RunLog
from pokayoke.testing.model import arguments_text

ATTEMPTS = 2


def run_loop(endpoint: Endpoint, tools: Mapping[str, Callable[..., Any]], prompt: str) -> RunLog:
    """Play a script against tools without a guard.

    Args:
        endpoint: the model.
        tools: the functions by name.
        prompt: what the user asks.

    Returns:
        What the model asked for, what it read, and how it ended.
    """
    log = RunLog(messages=[{"role": "system", "content": endpoint.system}, {"role": "user", "content": prompt}])
    for _ in range(MAX_ROUNDS):
        reply = endpoint(log.messages, list(tools))
        log.messages.append(reply.openai()["choices"][0]["message"])
        if not reply.calls:
            log.answer = reply.text
            break
        for call in reply.calls:
            try:
                text = _run_call(call, tools)
            except SystemExit as error:
                # The demo survives what would have ended the agent's process.
                log.crash = f"SystemExit({error.code})"
                return log
            log.add_call(call.name, "ran" if not text.startswith("Error") else "error", text)
            log.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    return log


def _run_call(call: ToolCall, tools: Mapping[str, Callable[..., Any]]) -> str:
    try:
        function = _nearest_tool(call.name, tools)
        arguments = _fit_arguments(_load_arguments(arguments_text(call)), function)
    except Exception as error:  # noqa: BLE001 - as such loops do
        return f"Error: {error}"
    failure: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            return _dump_result(function(**arguments))
        except Exception as error:  # noqa: BLE001 - as such loops do
            failure = error
    return f"Error: {failure}"


def _load_arguments(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        return cast("dict[str, Any]", json.loads(text))
    except ValueError:
        return cast("dict[str, Any]", json.loads(_close_json(text.replace("'", '"'))))


def _close_json(text: str) -> str:
    """Repair JSON: drop trailing commas, close what is open."""
    text = re.sub(r",\s*([}\]])", r"\1", text.strip())
    if text.count('"') % 2:
        text += '"'
    return text.rstrip(", ") + "]" * (text.count("[") - text.count("]")) + "}" * (text.count("{") - text.count("}"))


def _nearest_tool(name: str, tools: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    if name in tools:
        return tools[name]
    near = difflib.get_close_matches(name, tools, n=1, cutoff=0.6)
    if not near:
        raise LookupError(f"unknown tool {name}")
    return tools[near[0]]


def _fit_arguments(arguments: dict[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function, eval_str=True).parameters
    kept = {name: value for name, value in arguments.items() if name in parameters}
    for name, value in kept.items():
        digits = "".join(filter(str.isdigit, value)) if isinstance(value, str) else ""
        if digits and int in (parameters[name].annotation, *getattr(parameters[name].annotation, "__args__", ())):
            kept[name] = int(digits)
    return kept


def _dump_result(result: Any) -> str:
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(result)
