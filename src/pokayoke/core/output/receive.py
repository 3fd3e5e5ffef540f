"""Turns a tool's result into a value: transport checks, or serialisation of a Python object.

In: anything a tool returns. A text from a tool whose schema describes anything but a string is JSON, parsed strictly.
Out: `ReceivedOutput`: a value with its JSON text, the tool's own failure, or one finding.
Never: repair an output; judge it against the schema (`validate.py` does).
"""

from __future__ import annotations

from typing import Any

import msgspec

from pokayoke.core.call import Finding, Outcome, Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.dump import dump_exact_size
from pokayoke.core.json.serialise import serialise, too_large_finding
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object, properties_of
from pokayoke.core.output.content_blocks import ContentBlocks, as_blocks, compare_halves, data_beside_media
from pokayoke.core.output.envelope import failure_text
from pokayoke.core.output.html_pages import is_page
from pokayoke.core.output.transport import (
    BYTES_PER_CHAR,
    WireResponse,
    as_text,
    as_wire_response,
    check_byte_size,
    check_content_type,
    check_size,
    check_status,
    decode_json_body,
    is_textual,
    media_type,
)
from pokayoke.core.policy import ToolOutputPolicy
from pokayoke.core.text.clip import clip_at_word

MAX_DEPTH = 200
"""Maximum nesting that is safe to validate; a text with fewer brackets needs no measurement."""
_NO_CONTENT = (204, 205)  # RFC 9110: these have no body and no type; the value is null, and the schema decides


class ReceivedOutput(msgspec.Struct, frozen=True, gc=False):
    """A tool's result as received.

    Attributes:
        value: the value: JSON, or text.
        data: its compact JSON.
        chars: its length in characters, as the tool sent it.
        content: blocks that are not text, unread.
        wire: True if it passed the transport checks.
        finding: the reason why there is no value, or None.
        failure: the tool's own words if it failed, or None.
        origin: the Python object, if a Decimal in it has two faithful forms.
        words: texts beside the value, which says something else; nothing checks them.
    """

    value: Any = None
    data: bytes = b"null"
    chars: int = 0
    content: tuple[Any, ...] = ()
    wire: bool = False
    finding: Finding | None = None
    failure: str | None = None
    origin: Any = None
    words: str = ""


def receive_output(raw: Any, contract: Contract, *, policy: ToolOutputPolicy) -> ReceivedOutput:
    """Turn a tool's result into a value.

    Args:
        raw: the tool's result.
        contract: the tool's contract.
        policy: caps and content type where the contract sets none.
    """
    limit = contract.max_chars or policy.max_chars
    if type(raw) is str:
        return _receive_text(raw, contract, limit)
    try:
        return _receive_other(raw, contract, limit, policy)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001 - a property of the tool's own object must not end the host
        what = f"{type(raw).__name__} failed to describe itself ({type(exc).__name__})"
        return _from_finding(output_finding("not_serialisable", what))


def _receive_other(raw: Any, contract: Contract, limit: int, policy: ToolOutputPolicy) -> ReceivedOutput:
    """Receive anything but a text: a response, blocks, bytes, or a Python object."""
    schema = None if contract.output is None else contract.output.raw
    wire = as_wire_response(raw, schema)
    if wire is not None:
        received = _receive_response(wire, raw, contract, limit, policy)
        return msgspec.structs.replace(received, wire=True)
    blocks = as_blocks(raw, schema)
    if blocks is not None:
        return _receive_blocks(blocks, contract, limit)
    if _is_message(raw) and "content" not in properties_of(schema):
        what = f"a {type(raw).__name__} is a message or an outcome; return its content"
        return _from_finding(output_finding("not_serialisable", what))
    if isinstance(raw, str):  # a subclass: a confined path, an enum of texts
        return _receive_text(str.__str__(raw), contract, limit)
    if isinstance(raw, (bytes, bytearray)):
        return _receive_bytes(bytes(raw), contract, limit)
    if raw is None and contract.text_output:
        return _from_finding(output_finding("no_data", "the contract promises text, got nothing"))
    if contract.output is None and not contract.unchecked:
        kind = type(raw).__name__
        return _from_finding(
            output_finding("not_text", f"the contract promises text, got {kind}", reason=f"not_text:{kind}")
        )
    return _serialise_object(raw, limit)


def _is_message(raw: Any) -> bool:
    """Return whether a tool returned another guard's or framework's object for a conversation: no result by itself."""
    if isinstance(raw, Outcome):
        return True
    return (
        not is_object(raw) and hasattr(raw, "content") and (hasattr(raw, "tool_call_id") or hasattr(raw, "tool_calls"))
    )


def output_finding(code: str, message: str, *, at: str = "", reason: str | None = None) -> Finding:
    """Return a finding about the tool's output, with the reason for the trace."""
    where = f"output at {at}" if at else "output"
    data = {"reason": reason or (f"{code}:{at}" if at else code)}
    return Finding(code=code, at=at, blame="tool", message=f"{where}: {message}", data=data)


def _from_finding(finding: Finding) -> ReceivedOutput:
    return ReceivedOutput(finding=finding)


def _receive_text(text: str, contract: Contract, limit: int, content: tuple[Any, ...] = ()) -> ReceivedOutput:
    """Receive a text without transport: JSON where the schema describes data, else the value itself."""
    if len(text) > limit:
        return _from_finding(too_large_finding(limit, "characters"))
    if contract.extract is not None:
        return _extract_value(text, contract, limit, content)
    if contract.takes_text:
        return _take_verbatim(text, content)
    return _parse_json(text, limit, content)


def _take_verbatim(text: str, content: tuple[Any, ...] = ()) -> ReceivedOutput:
    try:
        data = dump_exact_size(text)
    except TypeError:
        return _from_finding(output_finding("lone_surrogate", "the text holds a lone surrogate"))
    return ReceivedOutput(text, data, len(text), content)


def _parse_json(body: str | bytes, limit: int, content: tuple[Any, ...] = ()) -> ReceivedOutput:
    """Parse JSON text strictly; a text that does not parse is a finding, never repaired.

    One byte order mark before it is ignored, as RFC 8259, section 8.1 allows.
    """
    chars = len(body)
    body = body.removeprefix("\ufeff") if isinstance(body, str) else body.removeprefix(b"\xef\xbb\xbf")
    try:
        value, data = parse(
            body, max_bytes=limit * BYTES_PER_CHAR, max_depth=MAX_DEPTH, equal_duplicates=False, exact=False
        )
    except StrictError as exc:
        return _from_finding(_parse_finding(body, exc))
    return ReceivedOutput(value, data, chars, content)


def _parse_finding(body: str | bytes, error: StrictError) -> Finding:
    text = body if isinstance(body, str) else body.decode(errors="replace")
    if is_page(text):
        return output_finding("html_instead_of_data", "an HTML page instead of JSON")
    why, at = error.code, error.position
    if not text.strip():
        why = "empty"
    elif why == "invalid_json" and at is not None and at >= len(text.rstrip().encode(errors="replace")):
        why = "cut"
    message = f"output: not strict JSON{'' if at is None else f' at byte {at}'}: {why}"
    data = {"reason": f"invalid_json:{why}", "position": at}
    return Finding(code="invalid_json", blame="tool", message=message, data=data)


def _extract_value(text: str, contract: Contract, limit: int, content: tuple[Any, ...] = ()) -> ReceivedOutput:
    """Read free text with the contract's own function; its result must fit the schema."""
    assert contract.extract is not None, "only called for a contract with extract"
    if is_page(text):
        return _from_finding(output_finding("html_instead_of_data", "an HTML page instead of text"))
    try:
        found = contract.extract(text)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001 - sys.exit() in a user's function must not end the host
        name = type(exc).__name__
        said = f"extract raised {name}: {clip_at_word(str(exc), 200)}"
        return _from_finding(output_finding("extract_failed", said, reason=f"extract_failed:{name}"))
    return _serialise_object(found, limit, content)


def _serialise_object(raw: Any, limit: int, content: tuple[Any, ...] = ()) -> ReceivedOutput:
    done = serialise(raw, max_bytes=limit * BYTES_PER_CHAR)
    if isinstance(done, Finding):
        return _from_finding(done)
    chars = len(done.data)
    if chars > limit and (chars := len(done.data.decode())) > limit:
        return _from_finding(too_large_finding(limit, "characters"))
    return ReceivedOutput(done.value, done.data, chars, content, origin=raw if done.decimals else None)


def _receive_bytes(body: bytes, contract: Contract, limit: int) -> ReceivedOutput:
    """Receive bytes of a Python tool: JSON where the schema describes data, else UTF-8 text, else a finding."""
    data = contract.extract is None and not contract.takes_text
    finding = (check_size if data else check_byte_size)(body, limit)
    if finding is not None:
        return _from_finding(finding)
    if data:
        return _parse_json(body, limit)
    text = as_text(body)
    if isinstance(text, str):
        return _receive_text(text, contract, limit)
    return ReceivedOutput(content=(Raw(body),)) if contract.unchecked else _from_finding(text)


def _receive_blocks(blocks: ContentBlocks, contract: Contract, limit: int) -> ReceivedOutput:
    if blocks.failed:
        said = blocks.text or blocks.structured or "the tool gave no reason"
        return ReceivedOutput(content=blocks.content, failure=failure_text(said))
    if blocks.structured is not None:
        return _receive_halves(blocks, contract, limit)
    if contract.output is None:
        if blocks.texts:
            return _receive_text(blocks.text, contract, limit, blocks.content)
        return ReceivedOutput(content=blocks.content)
    value = data_beside_media(blocks, contract.output.raw)
    if value is not None:
        return _serialise_object(value, limit, blocks.content)
    if len(blocks.texts) == 1 or (contract.extract is not None and blocks.texts):
        return _receive_text(blocks.text, contract, limit, blocks.content)
    got = f"{len(blocks.texts)} text blocks and no structured content"
    return _from_finding(output_finding("no_data", f"the contract promises data, got {got}"))


def _receive_halves(blocks: ContentBlocks, contract: Contract, limit: int) -> ReceivedOutput:
    """Receive a structured value and its texts: where these are not its JSON, the model reads both."""
    received = _serialise_object(blocks.structured, limit, blocks.content)
    if received.finding is not None:
        return received
    halves = compare_halves(blocks, received.value)
    if halves.at is not None:
        said = "the text of the result says something else than its structured content"
        return _from_finding(output_finding("halves_differ", said, at=halves.at))
    if received.chars + len(halves.words) > limit:
        return _from_finding(too_large_finding(limit, "characters"))
    if contract.output is not None:
        chars = received.chars + len(halves.words)
        return msgspec.structs.replace(received, chars=chars, words=halves.words)
    if not halves.words:
        return _receive_text(blocks.text, contract, limit, blocks.content) if blocks.texts else received
    return _receive_text(f"{blocks.text}\n{received.data.decode()}", contract, limit, blocks.content)


def _receive_response(
    wire: WireResponse, raw: Any, contract: Contract, limit: int, policy: ToolOutputPolicy
) -> ReceivedOutput:
    failed = check_status(wire, limit)
    if failed is not None:
        return ReceivedOutput(finding=failed[0], failure=failed[1])
    body = wire.body
    if body is None:
        return _from_finding(
            output_finding("body_unread", "the body of the response is no text and no bytes: the tool has to read it")
        )
    data = contract.output is not None and contract.extract is None
    if data and not body and wire.status in _NO_CONTENT:
        return ReceivedOutput()
    if data and isinstance(body, bytes) and check_byte_size(body, limit) is None:
        body = decode_json_body(body, wire.content_type)
    # A body that is decoded first is measured as text; one that is not text has no characters.
    too_long = check_size(body, limit) if data or isinstance(body, str) else check_byte_size(body, limit)
    finding = too_long or _check_media_type(wire, contract, policy)
    if finding is not None:
        return _from_finding(finding)
    if data:
        return _parse_json(body, limit)
    if isinstance(body, bytes) and wire.content_type and not is_textual(wire.content_type):
        return ReceivedOutput(content=(raw,))
    text = as_text(body, wire.content_type)
    return _receive_text(text, contract, limit) if isinstance(text, str) else _from_finding(text)


def _check_media_type(wire: WireResponse, contract: Contract, policy: ToolOutputPolicy) -> Finding | None:
    """Check a response's media type against the contract, or against the policy where the contract describes data.

    Without an output contract only a page is refused (if the policy expects another type): a maintenance page with
    status 200 is never a result.
    """
    if contract.content_type is not None:
        return check_content_type(wire.content_type, contract.content_type)
    wanted = policy.require_content_type
    if contract.output is not None and contract.extract is None:
        return check_content_type(wire.content_type, wanted)
    is_html = wire.content_type is not None and media_type(wire.content_type) == "text/html"
    if contract.unchecked and is_html and not contract.takes_url:
        return check_content_type(wire.content_type, wanted)
    return None
