"""JSON-RPC 2.0 messages on lines, as MCP sends them over stdio.

In: one line, or what is left of one.
Out: a `Message`, or why the line is none and which request it may be about.
Never: a message whose reading depends on the reader: of equal keys the first one wins here and the last one there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_array, is_object
from pokayoke.gateway.messages.results import Era

Kind = Literal["request", "notification", "response"]
Id = tuple[bool, str | int | float]
"""Of a request: whether it is a number, and its value. JSON tells 1 from "1", but Python does not tell 1 from true."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603

PROTOCOL_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"

_DEEPEST: Final = 200
_ID: Final = rb'"id"\s*:\s*(-?[0-9]{1,18}|"(?:[^"\\\x00-\x1f]|\\.){0,200}")'
# Nothing but the version stands before the id, or between it and the end: any other "id" may belong to a value.
_ID_AT_START: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_AT_END: Final = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*' + _ID + rb"\s*\}\s*$")
_TAIL: Final = 512


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message.

    Attributes:
        kind: request, notification or response.
        value: the whole message.
        id: of a request or response; None for a notification, or a response to a request that nobody could read.
        method: of a request or notification, else "".
    """

    kind: Kind
    value: dict[str, Any]
    id: Id | None = None
    method: str = ""

    @property
    def params(self) -> dict[str, Any]:
        """The parameters, empty if there are none."""
        given = self.value.get("params")
        return given if is_object(given) else {}


class BadLine(msgspec.Struct, frozen=True, gc=False):
    """A line that is no message.

    Attributes:
        problem: what is wrong, in words.
        code: of the JSON-RPC error that answers it.
        id: of the request that it is, or answers, as far as that can be told without doubt.
    """

    problem: str
    code: int = PARSE_ERROR
    id: Id | None = None


def read_line(line: bytes) -> Message | BadLine | list[Message | BadLine]:
    """Read one line; a batch is a list of what its items are."""
    try:
        value, _ = parse(line, max_depth=_DEEPEST, equal_duplicates=False)
    except StrictError as error:
        return BadLine(str(error), id=guess_id(line))
    except RecursionError:
        return BadLine("it nests too deep", id=guess_id(line))
    if is_array(value):
        return [_read_message(one) for one in value]
    return _read_message(value)


def guess_id(line: bytes) -> Id | None:
    """Return the id in a line that is no strict JSON, if that is beyond doubt: it stands at its very start or end."""
    found = _ID_AT_START.match(line) or _ID_AT_END.search(line[-_TAIL:])
    if found is None:
        return None
    try:
        return read_id(json.loads(found[1]))
    except ValueError:
        return None


def read_id(value: Any) -> Id | None:
    """Return an id by which answers are found; None if it is none."""
    if isinstance(value, str):
        return False, value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return True, value
    return None


def era_of(params: Mapping[str, Any]) -> Era:
    """Return the era of a request: since 2026-07-28 each one names its revision."""
    meta = params.get("_meta")
    return "modern" if is_object(meta) and PROTOCOL_KEY in meta else "legacy"


def can_elicit(capabilities: Any) -> bool:
    """Return whether a client that declares these capabilities can put a form to its user."""
    offered = capabilities.get("elicitation") if is_object(capabilities) else None
    # An empty object meant forms before there was anything else.
    return is_object(offered) and (not offered or "form" in offered)


def dump_message(value: Mapping[str, Any]) -> bytes:
    """Return a message as one line, without its end."""
    return dump_compact(dict(value))


def error_line(ident: Any, code: int, message: str) -> bytes:
    """Return an error that answers a request; an `ident` of None says that its id could not be read."""
    return dump_message({"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": message}})


def result_line(ident: Any, result: Mapping[str, Any]) -> bytes:
    """Return a result that answers a request."""
    return dump_message({"jsonrpc": "2.0", "id": ident, "result": result})


def splice_result(line: bytes, message: Message, result: Mapping[str, Any]) -> bytes:
    """Return a response with another result.

    Where the result only got a `_meta`, every other byte of it stays: numbers are written as its server wrote them.

    Args:
        line: the response.
        message: the same, read.
        result: the new result.
    """
    value = message.value
    old = value.get("result")
    if value.keys() == _RESPONSE_KEYS and is_object(old) and old and "_meta" not in old:
        added = result.get("_meta")
        if len(result) == len(old) + 1 and added is not None and all(result.get(key) is old[key] for key in old):
            whole = _decode_response(line)
            inner = bytes(whole.result).rstrip()
            return b'{"jsonrpc":"2.0","id":%b,"result":%b,"_meta":%b}}' % (
                bytes(whole.id),
                inner[:-1],
                dump_compact(added),
            )
    return dump_message({**value, "result": result})


class _Response(msgspec.Struct, gc=False):
    id: msgspec.Raw
    result: msgspec.Raw


_decode_response = msgspec.json.Decoder(_Response).decode
_RESPONSE_KEYS: Final = {"jsonrpc", "id", "result"}


def _read_message(value: Any) -> Message | BadLine:
    if not is_object(value):
        return BadLine("a message is an object", INVALID_REQUEST)
    given = value.get("id")
    ident = read_id(given)
    if value.get("jsonrpc") != "2.0":
        return BadLine('a message has "jsonrpc": "2.0"', INVALID_REQUEST, ident)
    method = value.get("method")
    has_answer = "result" in value or "error" in value
    if method is None:
        if has_answer and "id" in value and (ident is not None or given is None):
            return Message("response", value, ident)
        return BadLine("it is neither a request nor an answer", INVALID_REQUEST, ident)
    if not isinstance(method, str) or has_answer:
        return BadLine("it is neither a request nor an answer", INVALID_REQUEST, ident)
    if "params" in value and not is_object(value["params"]):
        return BadLine("the parameters are an object", INVALID_REQUEST, ident)
    if "id" not in value:
        return Message("notification", value, None, method)
    if ident is None:
        return BadLine("the id of a request is a text or a number", INVALID_REQUEST)
    return Message("request", value, ident, method)


def plain_id(ident: Id | None) -> str | int | float | None:
    """Return an id as it is written."""
    return None if ident is None else ident[1]
