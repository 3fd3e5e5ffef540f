"""What a tool returned, judged: a validated value, the tool's own failure, or findings.

What enters is anything a tool may return; what leaves is a `Checked`. The rooms, in this order:
byte and character cap, status, content type, strict parse, envelope, HTML where data was expected,
schema, invariants. A Python value skips the transport rooms and is serialised instead. What must
never happen here: a tool's answer repaired, guessed, or replaced by its `str()`.

Seed 001 is the source of the order and of the reasons' spelling (`content-type text/html`).
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from pokayoke.core.blocks import Blocks, as_blocks
from pokayoke.core.call import Finding, Raw
from pokayoke.core.check import check
from pokayoke.core.contract import Contract
from pokayoke.core.envelope import open_declared, undeclared_error, words
from pokayoke.core.invariants import check_invariants
from pokayoke.core.markup import find_page, is_page, may_hold_page
from pokayoke.core.policy import ToolOutputPolicy
from pokayoke.core.serialise import Serialised, serialise, too_large
from pokayoke.core.strict import StrictError, dump_compact, parse
from pokayoke.core.wire import (
    BYTES_PER_CHAR,
    Wire,
    as_text,
    as_wire,
    check_content_type,
    check_status,
    is_textual,
    measure,
)

CODES: dict[str, str] = {
    "invalid_json": "the text is not JSON",
    "html_instead_of_data": "an HTML page stands where data was expected",
    "not_text": "the contract promises text and the tool returned something else",
    "no_data": "the contract promises data and the tool returned none, or several pieces",
    "extract_failed": "the contract's extract function could not read the text",
    "output_changed": "a callable of the contract changed the output while checking it",
}


class Checked(msgspec.Struct, frozen=True):
    """What is known about a tool's answer.

    Attributes:
        value: the value to use: a JSON value, or text. Set even when there are findings, if it
            could be read at all, for monitoring; only `ok` says that it may be used.
        findings: what is wrong; empty if the answer may be used.
        content: image, audio and other blocks, unread.
        canonical: compact JSON of the value, or None if there is no value.
        unchecked: True if the contract promises nothing about the output.
        chars: length of the value as a model would read it, in characters.
        failure: the tool's own words if it says that it failed; then nothing else was checked.
        notes: what is remarkable but no reason to stop.
        wire: True if the answer went through the transport rooms.
    """

    value: Any = None
    findings: tuple[Finding, ...] = ()
    content: tuple[Any, ...] = ()
    canonical: bytes | None = None
    unchecked: bool = False
    chars: int = 0
    failure: str | None = None
    notes: tuple[Finding, ...] = ()
    wire: bool = False

    @property
    def ok(self) -> bool:
        """True if the value may be used."""
        return self.failure is None and not self.findings


class _Read(msgspec.Struct, frozen=True):
    """A value that was read, on its way to the rooms that judge it."""

    value: Any
    data: bytes
    chars: int
    content: tuple[Any, ...] = ()
    wire: bool = False
    origin: Any = None  # the Python object, if a Decimal in it may still have to be a number


def check_output(raw: Any, contract: Contract, *, arguments: dict[str, Any], policy: ToolOutputPolicy) -> Checked:
    """Judge what a tool returned.

    A text that comes from a tool whose schema promises something else than a string is JSON text
    and is parsed strictly; so are `Raw`, responses and MCP results without structured content.

    Args:
        raw: what the tool returned.
        contract: what it promised.
        arguments: the arguments it was run with, for invariants.
        policy: caps and content type where the contract does not say.
    """
    limit = contract.max_chars or policy.max_chars
    if raw.__class__ is str:
        read = _read_text(raw, contract, limit)
    else:
        read = _read_other(raw, contract, limit, policy)
    if read.__class__ is Checked:
        return read
    return _judge(read, contract, arguments, limit)


# --- reading ------------------------------------------------------------------------------------


def _read_text(text: str, contract: Contract, limit: int, content: tuple[Any, ...] = ()) -> _Read | Checked:
    """A text without transport: JSON where the schema wants data, else the text itself."""
    if len(text) > limit:
        return _bad(too_large(limit, "characters"))
    if contract.extract is not None:
        return _extracted(text, contract, limit)
    if contract.output is None or admits_text(contract.output.raw):
        return _as_value(text, contract, content=content)
    return _parsed(text, limit, content=content)


def _read_other(raw: Any, contract: Contract, limit: int, policy: ToolOutputPolicy) -> _Read | Checked:
    schema = None if contract.output is None else contract.output.raw
    wire = as_wire(raw, True if schema is None else schema)
    if wire is not None:
        return _read_wire(wire, raw, contract, limit, policy)
    blocks = as_blocks(raw, schema)
    if blocks is not None:
        return _read_blocks(blocks, contract, limit)
    if isinstance(raw, (bytes, bytearray, memoryview)):
        return _read_bytes(bytes(raw), contract, limit)
    if contract.output is None and not contract.unchecked and not isinstance(raw, str):
        what = f"expected text, got {type(raw).__name__}"
        return _bad(_finding("not_text", "", f"the contract promises text: {what}", f"not_text:{type(raw).__name__}"))
    if isinstance(raw, str):  # a subclass
        return _read_text(str.__str__(raw), contract, limit)
    return _read_value(raw, contract, limit)


def _read_value(raw: Any, contract: Contract, limit: int, content: tuple[Any, ...] = ()) -> _Read | Checked:
    done = serialise(raw, max_bytes=limit * BYTES_PER_CHAR)
    if isinstance(done, Finding):
        return _bad(done)
    chars = len(done.data)
    if chars > limit and (chars := len(done.data.decode())) > limit:
        return _bad(too_large(limit, "characters"))
    return _Read(done.value, done.data, chars, content, origin=raw if done.decimals else None)


def _read_wire(wire: Wire, raw: Any, contract: Contract, limit: int, policy: ToolOutputPolicy) -> _Read | Checked:
    failed = check_status(wire, limit)
    if failed is not None:
        return Checked(findings=(failed[0],), failure=failed[1], wire=True)
    body = wire.body
    if body is None:
        return _bad(_finding("body_unread", "", "the tool returned a response whose body it did not read"), wire=True)
    finding = measure(body, limit)
    if finding is None:
        finding = _wrong_type(wire, contract, policy)
    if finding is not None:
        return _bad(finding, wire=True)
    if contract.output is not None and contract.extract is None:
        if not body and wire.status in _NO_CONTENT:
            return _Read(None, b"null", 4, wire=True)
        return _parsed(body, limit, wire=True)
    if isinstance(body, bytes) and wire.content_type and not is_textual(wire.content_type):
        return _Read(None, b"null", 0, (raw,), wire=True)
    text = as_text(body, wire.content_type)
    if isinstance(text, Finding):
        return _bad(text, wire=True)
    if contract.extract is not None:
        return _extracted(text, contract, limit, wire=True)
    return _as_value(text, contract, wire=True)


_NO_CONTENT = (204, 205)  # RFC 9110: these carry no body, so the value is null and the schema decides


def _wrong_type(wire: Wire, contract: Contract, policy: ToolOutputPolicy) -> Finding | None:
    """Hold a response to the contract's media type; to the policy's only where data is promised."""
    if contract.content_type is not None:
        return check_content_type(wire.content_type, contract.content_type)
    if contract.output is not None and contract.extract is None:
        return check_content_type(wire.content_type, policy.require_content_type)
    return None


def _read_blocks(blocks: Blocks, contract: Contract, limit: int) -> _Read | Checked:
    text = blocks.text
    if blocks.failed:
        said = "an HTML page" if is_page(text) else words(text or blocks.structured or "the tool gave no reason")
        return Checked(failure=said, content=blocks.content)
    if contract.output is None:
        if blocks.texts or not blocks.has_structured:
            return _read_text(text, contract, limit, blocks.content) if blocks.texts else _nothing_read(blocks)
        return _read_value(blocks.structured, contract, limit, blocks.content)
    if blocks.has_structured:
        return _read_value(blocks.structured, contract, limit, blocks.content)
    if len(blocks.texts) == 1 or (contract.extract is not None and blocks.texts):
        return _read_text(text, contract, limit, blocks.content)
    what = f"{len(blocks.texts)} text blocks and no structured content"
    return _bad(_finding("no_data", "", f"the contract promises data: got {what}"))


def _nothing_read(blocks: Blocks) -> _Read:
    return _Read(None, b"null", 0, blocks.content)


def _read_bytes(body: bytes, contract: Contract, limit: int) -> _Read | Checked:
    """Bytes that a Python tool returned: JSON where data is promised, else UTF-8 text or a binary block."""
    finding = measure(body, limit)
    if finding is not None:
        return _bad(finding)
    if contract.output is not None and contract.extract is None and not admits_text(contract.output.raw):
        return _parsed(body, limit)
    text = as_text(body)
    if not isinstance(text, Finding):
        return _read_text(text, contract, limit)
    return _Read(None, b"null", 0, (Raw(body),)) if contract.output is None else _bad(text)


def _as_value(text: str, contract: Contract, *, content: tuple[Any, ...] = (), wire: bool = False) -> _Read | Checked:
    """Text that is the value itself."""
    try:
        data = orjson.dumps(text)
    except TypeError:
        return _bad(_finding("lone_surrogate", "", "the text holds a lone surrogate"), wire=wire)
    return _Read(text, data, len(text), content, wire)


def _parsed(body: str | bytes, limit: int, *, content: tuple[Any, ...] = (), wire: bool = False) -> _Read | Checked:
    """JSON text, read strictly; whatever does not parse is named, never mended."""
    try:
        value, data = parse(body, max_bytes=limit * BYTES_PER_CHAR, equal_duplicates=False)
    except StrictError as exc:
        return _bad(_unparsed(body, exc), wire=wire)
    return _Read(value, data, len(body), content, wire)


def _unparsed(body: str | bytes, error: StrictError) -> Finding:
    text = body if isinstance(body, str) else body.decode(errors="replace")
    if is_page(text):
        return _finding("html_instead_of_data", "", "an HTML page instead of JSON")
    why = error.code
    if not text.strip():
        why = "empty"
    elif error.position is not None and error.position >= len(body):
        why = "cut"
    at = "" if error.position is None else f" at byte {error.position}"
    return Finding(
        code="invalid_json",
        blame="tool",
        message=f"output: not strict JSON{at}: {why}",
        data={"reason": f"invalid_json:{why}", "position": error.position},
    )


def _extracted(text: str, contract: Contract, limit: int, *, wire: bool = False) -> _Read | Checked:
    """Free text, read by the contract's own function; what it returns is held to the schema."""
    assert contract.extract is not None
    if is_page(text):
        return _bad(_finding("html_instead_of_data", "", "an HTML page instead of text"), wire=wire)
    try:
        found = contract.extract(text)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001 - sys.exit() in a user's function must not end the host
        name = type(exc).__name__
        return _bad(
            _finding("extract_failed", "", f"extract raised {name}: {str(exc)[:200]}", f"extract_failed:{name}")
        )
    return _read_value(found, contract, limit)


# --- judging ------------------------------------------------------------------------------------


def _judge(read: _Read, contract: Contract, arguments: dict[str, Any], limit: int) -> Checked:
    value, data = read.value, read.data
    envelope = contract.envelope
    if envelope is not None and not (contract.output is None and value.__class__ is str):
        opened = open_declared(value, envelope)
        if opened.failure is not None:
            return Checked(failure=opened.failure, content=read.content, wire=read.wire)
        if opened.finding is not None:
            return _bad(opened.finding, wire=read.wire)
        if opened.value is not value:
            value, data = opened.value, dump_compact(opened.value)
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    if contract.output is None:
        findings, notes = _text_pages(value, contract)
        if not findings and contract.invariants:
            findings = _invariants(contract, value, data, arguments)
    elif contract.output_checks == "full":
        findings, value, data = _promised(read, value, data, contract, arguments, limit)
    return Checked(value, findings, read.content, data, contract.unchecked, read.chars, notes=notes, wire=read.wire)


def _promised(
    read: _Read, value: Any, data: bytes, contract: Contract, arguments: dict[str, Any], limit: int
) -> tuple[tuple[Finding, ...], Any, bytes]:
    """Hold data to its contract: envelope heuristics, pages, schema, invariants."""
    output = contract.output
    assert output is not None
    found = undeclared_error(read.value, output.raw, contract.envelope)
    if found is None and value is not read.value:
        found = undeclared_error(value, output.raw)
    if found is not None:
        return (found,), value, data
    if may_hold_page(data):
        at = find_page(value, output.raw)
        if at is not None:
            return (_finding("html_instead_of_data", at, "a whole HTML page as a value"),), value, data
    if not output.is_valid(value):
        again = _with_numbers(read, contract, limit)
        if again is None:
            return _broken(value, contract), value, data
        value, data = again.value, again.data
    if contract.invariants:
        return _invariants(contract, value, data, arguments), value, data
    return (), value, data


def _with_numbers(read: _Read, contract: Contract, limit: int) -> Serialised | None:
    """The same object with its Decimals as numbers, if that loses no digit and fits the schema.

    A Decimal has two faithful JSON forms; the schema says which one is meant.
    """
    if read.origin is None or contract.envelope is not None:
        return None
    assert contract.output is not None
    done = serialise(read.origin, max_bytes=limit * BYTES_PER_CHAR, decimals="number")
    return done if isinstance(done, Serialised) and contract.output.is_valid(done.value) else None


def _broken(value: Any, contract: Contract) -> tuple[Finding, ...]:
    """The schema's findings, with the tool to blame and nothing of the value in the hint."""
    assert contract.output is not None
    return tuple(
        msgspec.structs.replace(found, blame="tool", hint="", data={**found.data, "reason": _reason(found)})
        for found in check(value, contract.output, root="output")
    )


def _reason(found: Finding) -> str:
    return f"{found.code}:{found.at}" if found.at else found.code


def _invariants(contract: Contract, value: Any, data: bytes, arguments: dict[str, Any]) -> tuple[Finding, ...]:
    findings = check_invariants(contract.invariants, value, arguments)
    if contract.output_hooks and not findings and dump_compact(value) != data:
        return (_finding("output_changed", "", "an invariant changed the output while checking it"),)
    return findings


def _text_pages(value: Any, contract: Contract) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """A page as text: what a fetch tool is for, unless the contract names another media type.

    A tool that promises nothing gets a note: the page is visible, but nothing was broken.
    """
    if value.__class__ is not str or not is_page(value):
        return (), ()
    found = _finding("html_instead_of_data", "", "the text is a whole HTML page")
    declared = (contract.content_type or "").lower()
    if declared and "html" not in declared and "*" not in declared and not declared.startswith("text/*"):
        return (found,), ()
    return (), ((found,) if contract.unchecked else ())


def admits_text(schema: Any, root: Any = None, depth: int = 16) -> bool:
    """Return whether a schema accepts at least some string, so that a text may be the value itself.

    What cannot be decided (a reference out of the document, `not`, deep nesting) counts as yes: then a
    text is held to the schema as it is, which is the stricter reading.
    """
    if not isinstance(schema, dict) or depth == 0:
        return schema is not False
    kinds = schema.get("type")
    if kinds is not None:
        return kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    root = schema if root is None else root
    if "const" in schema:
        return isinstance(schema["const"], str)
    if "enum" in schema:
        return any(isinstance(one, str) for one in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema and not any(admits_text(one, root, depth - 1) for one in schema[word]):
            return False
    if not all(admits_text(one, root, depth - 1) for one in schema.get("allOf", ())):
        return False
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        return admits_text(_local(reference, root), root, depth - 1)
    return True


def _local(reference: str, root: Any) -> Any:
    node = root
    for part in reference[1:].split("/")[1:]:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return True if node is None else node


def _finding(code: str, at: str, message: str, reason: str | None = None) -> Finding:
    return Finding(
        code=code,
        at=at,
        blame="tool",
        message=f"output{' at ' + at if at else ''}: {message}",
        data={"reason": reason or (f"{code}:{at}" if at else code)},
    )


def _bad(finding: Finding, *, wire: bool = False) -> Checked:
    return Checked(findings=(finding,), wire=wire)
