"""The calls of a reply, and how they pass through a framework that would lose or change them.

In: calls as the model wrote them. Out: names and arguments that a framework can parse and keep, and the same calls
read back. Never: a call that a framework reads as another call than the model wrote.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from typing import Any, NamedTuple, cast

from pokayoke.core.call import ToolCall
from pokayoke.core.contract.names import history_name
from pokayoke.core.intake.arguments import read_arguments
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.runtime.run.run import Run

UNKNOWN_TOOL_NAME = "unread_tool_call"
"""The one member of wrapped arguments; also the name of the tool that answers calls of tools an agent does not have."""
_MAX_NAME = 128


class ReplyCall(NamedTuple):
    """One call as it stands in a reply."""

    id: str | None
    name: str
    arguments: str | dict[str, Any]


def encode_unreadable_call(call: ToolCall, *, name: bool = False) -> dict[str, Any]:
    """Return arguments that a framework's own parser takes and keeps, in place of what the model wrote.

    Readable arguments come back as they were meant. Unreadable ones are wrapped, and `decode_call` unwraps them, so
    a framework that restarts from its own history still has the model's text and knows that its message was cut.
    Arguments that look like a wrapper are wrapped as well: a model cannot pass off a call as another one.

    Args:
        call: from `AdapterRun.take_reply`.
        name: True to wrap in any case, with the name, for a framework that rejects unknown names itself.
    """
    given = call.arguments
    if not name and not is_cut(call.stop_reason):
        meant = given if isinstance(given, dict) else _read_object(given)
        if meant is not None and UNKNOWN_TOOL_NAME not in meant:
            return meant
    text = given.decode(errors="replace") if isinstance(given, bytes) else given
    return {UNKNOWN_TOOL_NAME: {"name": call.name[:_MAX_NAME], "arguments": text, "stop_reason": call.stop_reason}}


def is_encoded_call(arguments: Mapping[str, Any]) -> bool:
    """Return whether arguments look like those that `encode_unreadable_call` has wrapped."""
    return len(arguments) == 1 and isinstance(arguments.get(UNKNOWN_TOOL_NAME), dict)


def decode_call(ident: str | None, name: str, arguments: Any) -> ToolCall:
    """Return the call as the model wrote it, from what a framework passed to its hook.

    Args:
        ident: its id, if it has one.
        name: the tool that the framework has found.
        arguments: what `encode_unreadable_call` returned, as the framework kept it. Never pass a model's own
            arguments that `encode_unreadable_call` has not seen: they could name another tool.
    """
    given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None
    if given is not None and isinstance(kept := given.get(UNKNOWN_TOOL_NAME), dict):
        kept = cast("dict[str, Any]", kept)
        named, stop = kept.get("name") or name, kept.get("stop_reason")
        if is_encoded_call(given):
            return ToolCall(ident or "", named, kept.get("arguments", ""), stop)
        # Other code has added arguments to a text that could not be read: neither is what the model meant.
        return ToolCall(ident or "", named, given, stop, unread="not_read")
    return ToolCall(ident or "", name, given if given is not None else str(arguments or ""))


def parse_object(text: Any) -> dict[str, Any] | None:
    """Return an argument text as a framework's own parser reads it; None if it is no object to that parser."""
    try:
        parsed = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else None


def plain_object(given: Any) -> dict[str, Any] | None:
    """Return arguments that a framework can parse as they stand; None if it cannot, or they look like a wrapper."""
    parsed = cast("dict[str, Any]", given) if isinstance(given, dict) else parse_object(given)
    return None if parsed is None or UNKNOWN_TOOL_NAME in parsed else parsed


def is_plain_object(text: Any) -> bool:
    """Return whether a text is such arguments."""
    return isinstance(text, str) and plain_object(text) is not None


def find_tool_name(run: Run, name: str, tools: Container[str]) -> str | None:
    """Return the name in `tools` that the name a model wrote means; None if a framework has no such tool."""
    contract = run.snapshot.find_contract(name)
    return contract.name if contract is not None and contract.name in tools else None


def encode_call(run: Run, call: ToolCall, tools: Container[str]) -> tuple[str, str]:
    """Return the tool's name and the argument text by which a framework can hold a call.

    A sound text of a known tool stays as the model wrote it. A tool that the framework does not have becomes the
    one that the contract names, or `UNKNOWN_TOOL_NAME`; the arguments then hold the model's own name.

    Args:
        run: the run it is for.
        call: from `AdapterRun.take_reply`.
        tools: names of the tools that the framework can run.
    """
    is_known = call.name in tools
    if is_known and not is_cut(call.stop_reason) and is_plain_object(call.arguments):
        return call.name, cast("str", call.arguments)
    name = call.name if is_known else find_tool_name(run, call.name, tools) or UNKNOWN_TOOL_NAME
    return name, json.dumps(encode_unreadable_call(call, name=not is_known), ensure_ascii=False)


def restore_call(name: str, text: str) -> tuple[str, str]:
    """Return the name and argument text that the model wrote, of a call that `encode_call` sent elsewhere.

    Args:
        name: the tool's name in the framework's history.
        text: its arguments there.

    Returns:
        Both for a model to read; as given if the call is not one of `UNKNOWN_TOOL_NAME`.
    """
    if name != UNKNOWN_TOOL_NAME:
        return name, text
    try:
        kept = json.loads(text)[UNKNOWN_TOOL_NAME]
    except (ValueError, KeyError, TypeError):
        return name, text
    written = kept.get("arguments")
    written = json.dumps(written) if isinstance(written, dict) else written
    return history_name(kept.get("name") or ""), written if is_plain_object(written) else text


def effective_call(run: Run, call: ToolCall, shown: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the arguments with which a call will run; None if they are as shown, or it cannot run.

    Other code judges a call before its tool gets it, such as code that asks a person. It must judge the arguments
    that will run, not those before the guard corrected them.

    Args:
        run: the run it is for.
        call: from `AdapterRun.take_reply`.
        shown: its arguments as other code would see them: the model's own, or those of `encode_unreadable_call`;
            None if they are no object.
    """
    plan = run.snapshot.simple.get(call.name)
    if plan is not None and shown is not None and plan.contract.input.accepts(shown):
        return None
    verdict = run.check(call)
    unfit = verdict.decision == "refuse" and verdict.stop_reason in ("invalid_arguments", "low_confidence")
    meant = None if unfit or verdict.contract is None else verdict.arguments
    return None if meant is None or is_encoded_call(meant) else (verdict.tool, meant)


def _read_object(text: str | bytes) -> dict[str, Any] | None:
    reading = read_arguments(text)
    return reading.value if reading.grade in ("exact", "lossless") else None
