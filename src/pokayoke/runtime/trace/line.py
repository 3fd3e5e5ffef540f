"""One event as one line of JSON.

In: an event with values of any kind.
Out: bytes without a line end or a character that steers a terminal.
Never: redaction, which is the trace's.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import orjson

from pokayoke.core.flow.finish import UNCHECKED
from pokayoke.core.json.dump import dump_exact_size
from pokayoke.core.redaction.redactor import REDACTION_FAILED
from pokayoke.core.text.regex import linear_search

# Fields that hold our own names, numbers and hashes. A call that ended well has no others but its payloads, and
# only those are searched for secrets. (`tool` is a resolved name unless there are findings.)
SAFE_FIELDS: Final = frozenset(
    {"ts", "run_id", "step", "event", "tool", "ok", "call_id", "room", "decision", "args_hash", "confidence"}
    | {"contract", "status", "us", "attempts", "effect", "key", "mode", "repairs", "safe_mode", "repeated"}
    | {"wire", "untrusted"}
)
COMMON_FIELDS: Final = SAFE_FIELDS | {"arguments", "result"}
"""The fields of an event of a call that ended well: names, numbers and the two payloads."""
_FINDINGS: Final = frozenset({"findings"})
_SHORT_TEXT: Final = 1_000
_MOST_FINDINGS: Final = 20

# Characters that end a line or move a terminal's cursor although JSON allows them in a string: C1 controls, U+2028,
# U+2029, and the marks that reorder text. Written as \uXXXX they are the same JSON.
_CONTROLS: Final = r"[\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
_controls = re.compile(_CONTROLS)
# In UTF-8 each of them begins with one of these three bytes, which most texts lack.
_LEAD_E2, _LEAD_C2, _LEAD_D8 = b"\xe2\xc2\xd8"


@functools.cache
def _controls_search() -> Callable[[str], bool]:
    """Compile on first use instead of on import."""
    return linear_search(_CONTROLS)


def has_no_controls(data: bytes) -> bool:
    """True if a text can hold none of those characters."""
    return data.isascii() or not (_LEAD_E2 in data or _LEAD_C2 in data or _LEAD_D8 in data)


def escape_controls(line: bytes) -> bytes:
    """Return the same JSON with every character escaped that could end a line or steer a terminal."""
    if has_no_controls(line):
        return line
    text = line.decode()
    if not _controls_search()(text):
        return line
    return _controls.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def is_only_unchecked(event: dict[str, Any]) -> bool:
    """Whether an event holds only `COMMON_FIELDS`, and the note that the output had no contract."""
    findings = event.get("findings")
    if findings is None or len(findings) != 1 or findings[0] is not UNCHECKED:
        return False
    return COMMON_FIELDS.issuperset(event.keys() - _FINDINGS)


def digest_of(data: bytes) -> dict[str, Any]:
    """Return the replacement of a payload in the mode `hash`: its hash, for comparison, and its length."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def to_utf8(text: str) -> bytes:
    """Return a text as UTF-8; a lone surrogate becomes its escape."""
    return text.encode("utf-8", "backslashreplace")


def dump_event(event: dict[str, Any]) -> bytes:
    """Return an event as JSON, whatever its values."""
    try:
        findings = event.get("findings")
        whole = {**event, "findings": orjson.Fragment(msgspec.json.encode(findings))} if findings else event
        return dump_exact_size(whole, default=orjson_default)
    except (TypeError, UnicodeEncodeError):  # a lone surrogate, an integer beyond 64 bits
        return msgspec.json.encode(_to_plain_json(event))


def orjson_default(value: Any) -> Any:
    """Convert what orjson does not know: payloads that are JSON already, findings and corrections."""
    if isinstance(value, bytes):
        return orjson.Fragment(value)
    if isinstance(value, msgspec.Struct):
        return orjson.Fragment(msgspec.json.encode(value))
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, cast("set[Any]", value)))
    return f"<{type(value).__name__}>"


def _to_plain_json(value: Any) -> Any:
    """Return the same event as values that any JSON writer takes."""
    if isinstance(value, str):
        return to_utf8(value).decode()
    if isinstance(value, dict):
        items = cast("Mapping[Any, Any]", value).items()
        return {_to_plain_json(str(key)): _to_plain_json(item) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_to_plain_json(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, msgspec.Struct):
        return _to_plain_json(msgspec.to_builtins(value))
    if isinstance(value, bytes):
        return msgspec.Raw(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return f"<{type(value).__name__}>"


def shorten_event(event: dict[str, Any]) -> dict[str, Any]:
    """Return an oversized event reduced to its scalars and the codes of its first findings."""
    short: dict[str, Any] = {}
    for key, value in event.items():
        if isinstance(value, str):
            short[key] = to_utf8(value[:_SHORT_TEXT]).decode()
        elif value is None or isinstance(value, (bool, int, float)):
            short[key] = value
    findings = event.get("findings") or ()
    short["findings"] = [
        {"code": f.code, "at": to_utf8(f.at[:_SHORT_TEXT]).decode()} for f in findings[:_MOST_FINDINGS]
    ]
    short["shortened"] = True
    return short


def withhold_payloads(event: dict[str, Any], mode: str) -> None:
    """Remove what repeats an event's payloads; in the mode `hash`, replace the raw text by its hash."""
    raw = event.pop("raw", None)
    if raw is not None and mode == "hash":
        event["raw"] = digest_of(raw if isinstance(raw, bytes) else to_utf8(str(raw)))
    findings = event.get("findings")
    if findings:
        # Messages, hints and reasons repeat values; codes and places do not.
        event["findings"] = [{"code": f.code, "at": f.at, "blame": f.blame} for f in findings]
        event["reason"] = findings[0].code
    elif "reason" in event and "tool" in event:
        event["reason"] = event.get("status", "withheld")
    if event.get("corrections"):
        event["corrections"] = [{"at": c.at, "rule": c.rule, "class": c.kind} for c in event["corrections"]]


def minimal_event(event: dict[str, Any]) -> bytes:
    """Return the identifying fields of an event that could not be redacted."""
    kept = {key: event.get(key) for key in ("ts", "run_id", "step", "event", "tool", "ok")}
    safe = {
        key: value if isinstance(value, (bool, int, float)) else _safe_identifier(value) for key, value in kept.items()
    }
    return msgspec.json.encode({**safe, "payload": REDACTION_FAILED})


def _safe_identifier(value: Any) -> str | None:
    """Return an identifier unchanged; None if it is longer or holds other characters."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.:@-]{1,64}", value) else None
