"""Recognises, measures and checks a result that came over a network.

In: a `Raw`, a dict with `body` and `content_type`, or a response of httpx or requests (recognised by shape).
Out: text to be parsed, or a finding. The order is size cap, status, content type.
Never: import httpx or requests; read a body over its cap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding, Raw
from pokayoke.core.json.serialise import too_large_finding
from pokayoke.core.json.values import is_flag, is_object, kind_of, properties_of
from pokayoke.core.output.html_pages import is_page
from pokayoke.core.text.regex import compile_pattern

BYTES_PER_CHAR = 4
"""A UTF-8 character has at most four bytes, so the byte cap is never stricter than the character cap."""

_TRANSPORT_KEYS = frozenset(
    ("body", "content_type", "status", "status_code", "headers", "url", "reason", "ok", "elapsed", "encoding")
)
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")
NO_EFFECT_STATUS = frozenset((*range(400, 407), 410, 411, *range(413, 418), 421, 422, 426, 428, 429, 431))
"""Statuses with which a server refuses a request before it acts on it (RFC 9110, 6585)."""
_PROBLEM_JSON = "application/problem+json"  # RFC 9457: details of an error, at any status
_TEXT_SUFFIXES = ("+json", "+xml")


class WireResponse(msgspec.Struct, frozen=True):
    """The relevant parts of a response.

    Args:
        body: its body, text or bytes; None if the tool returned a response it never read.
        content_type: the media type as sent, or None.
        status: the HTTP status; a text if it is not a number; None if absent.
        retry_after: seconds the server asks to wait, or None.
    """

    body: str | bytes | None
    content_type: str | None
    status: int | str | None = None
    retry_after: float | None = None


def as_wire_response(raw: Any, schema: dict[str, Any] | bool | None = None) -> WireResponse | None:
    """Return the response in a tool's result, or None if the result is no response.

    A dict counts only if all its fields are transport fields and the output schema describes no `content_type`: an
    e-mail has a body and a content type, too.
    """
    if isinstance(raw, Raw):
        return _build_response(raw.body, raw.content_type, (raw.status,), None) or WireResponse(
            None, None, _pick_status((raw.status,))
        )
    if is_object(raw):
        if "body" not in raw or "content_type" not in raw or not _TRANSPORT_KEYS.issuperset(raw):
            return None
        if "content_type" in properties_of(schema):
            return None
        told = (raw.get("status"), raw.get("status_code"), _FAILED_STATUS if _is_failure_flag(raw.get("ok")) else None)
        return _build_response(raw["body"], raw["content_type"], told, raw.get("headers"))
    if not (hasattr(raw, "status_code") and hasattr(raw, "headers") and hasattr(kind_of(raw), "content")):
        return None
    if getattr(raw, "_content", None) is False:  # requests, opened with stream=True
        return WireResponse(None, None)
    try:
        body = raw.content
    except Exception:  # noqa: BLE001 - httpx raises its own kind for a body that was not read
        return WireResponse(None, None)
    headers = raw.headers
    return _build_response(body, headers.get("content-type"), (raw.status_code,), headers)


def _is_failure_flag(ok: Any) -> bool:
    """Return whether a flag marks a failed response; it is never a count, so zero is false, too."""
    return ok == 0 if isinstance(ok, (int, float)) else is_flag(ok, "false")


_FAILED_STATUS = 500
"""Return the status of a response that reports a failure without details."""


def _build_response(body: Any, content_type: Any, told: Iterable[Any], headers: Any) -> WireResponse | None:
    """Return a response, or None if its body is not text, bytes or None."""
    if isinstance(body, (bytearray, memoryview)):
        body = bytes(cast("bytearray", body))
    if not isinstance(body, (str, bytes)):
        return None
    retry: Any = None
    if isinstance(headers, Mapping):
        named = cast(Mapping[str, Any], headers)
        retry = named.get("retry-after", named.get("Retry-After"))
    return WireResponse(
        body,
        str(content_type) if content_type else None,
        _pick_status(told),
        float(retry) if isinstance(retry, str) and retry.isascii() and retry.isdigit() else None,
    )


def _pick_status(told: Iterable[Any]) -> int | str | None:
    """Return the first status that is not a success, else the first; an unreadable status is not a success."""
    read = [_read_status(one) for one in told if one not in (None, "")]
    return next((one for one in read if not _is_success(one)), read[0] if read else None)


def _read_status(told: Any) -> int | str:
    if isinstance(told, str):
        number = compile_pattern(_STATUS_NUMBER).match(told)
        words = told.strip()[:_LONGEST_STATUS]
        return int(number[1]) if number else 200 if words.lower() in _SUCCESS_WORDS else words
    if isinstance(told, float) and told.is_integer():
        return int(told)
    return told if isinstance(told, int) else type(told).__name__


def _is_success(status: int | str) -> bool:
    return isinstance(status, int) and 200 <= status <= 299  # noqa: PLR2004 - RFC 9110, section 15: success


_STATUS_NUMBER = r"\s*(?:HTTP/[0-9.]{1,5}\s+)?([0-9]{3})(?![0-9])"
_SUCCESS_WORDS = ("ok", "success")
_LONGEST_STATUS = 40  # maximum characters of a status in words


def check_size(body: str | bytes, max_chars: int) -> Finding | None:
    """Return the finding for a body over its cap, or None. Checks lengths before content."""
    if isinstance(body, str):
        return too_large_finding(max_chars, "characters") if len(body) > max_chars else None
    if finding := check_byte_size(body, max_chars):
        return finding
    # Every byte but a continuation byte begins a character.
    if len(body) > max_chars and len(body.translate(None, _CONTINUATION_BYTES)) > max_chars:
        return too_large_finding(max_chars, "characters")
    return None


def check_byte_size(body: bytes, max_chars: int) -> Finding | None:
    """Return the finding for bytes over their cap, or None: bytes that are not text have no characters."""
    most = max_chars * BYTES_PER_CHAR
    return too_large_finding(most) if len(body) > most else None


_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


def check_status(wire: WireResponse, max_chars: int) -> tuple[Finding, str] | None:
    """Return the finding and the failure text for a status that is not a success, or None.

    A response that reports a failure is the tool's failure, not a broken contract. The body is quoted if it is a
    short text and no page.
    """
    status = wire.status
    if status is None or _is_success(status):
        return None
    said = f"HTTP status {status}"
    body = wire.body
    if body is not None and check_size(body, max_chars) is None:
        text = body if isinstance(body, str) else body.decode(errors="replace")
        if text.strip() and not is_page(text):
            said = f"{said}: {text.strip()[:_MAX_QUOTE]}"
    data: dict[str, Any] = {"reason": f"http_error:{status}", "status": status}
    if wire.retry_after is not None:
        data["retry_after"] = wire.retry_after
    finding = Finding(code="http_error", blame="tool", message=f"the response has status {status}", data=data)
    return finding, said


_MAX_QUOTE = 1_000  # quoted characters of an error body


def media_type(content_type: str) -> str:
    """Return the media type without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def check_content_type(content_type: str | None, wanted: str) -> Finding | None:
    """Return the finding for a content type the contract does not accept, or None.

    `application/json` accepts the `+json` types (RFC 6839) except the one that describes an error; `type/*` and
    `*/*` are ranges.
    """
    want = media_type(wanted)
    if want in ("*/*", "*"):
        return None
    if content_type is None or not content_type.strip():
        return Finding(
            code="missing_content_type",
            blame="tool",
            message=f"the response has no content type; expected {want}",
            data={"reason": "missing_content_type"},
        )
    got = media_type(content_type)
    suffixed = got.endswith("+json") and got.startswith("application/") and got != _PROBLEM_JSON
    if got == want or (want == "application/json" and suffixed):
        return None
    if want.endswith("/*") and got.startswith(want[:-1]):
        return None
    return Finding(
        code="wrong_content_type",
        blame="tool",
        message=f"the response is {got[:100]}; expected {want}",
        data={"reason": f"content-type {got[:100]}", "expected": want},
    )


def is_textual(content_type: str) -> bool:
    """Return whether a media type is text that a model can read."""
    kind = media_type(content_type)
    return kind.startswith(_TEXT_TYPES) or kind.endswith(_TEXT_SUFFIXES)


def as_text(body: str | bytes, content_type: str | None = None) -> str | Finding:
    """Return a body as text, decoded with the character set of its content type (default UTF-8), or the finding."""
    if isinstance(body, str):
        return body
    charset = _declared_charset(content_type)
    try:
        if compile_pattern(_CHARSETS).fullmatch(charset):
            return body.decode(charset, "strict")
    except (LookupError, UnicodeError):
        pass
    return _encoding_finding(charset)


def decode_json_body(body: bytes, content_type: str | None) -> str | bytes:
    """Return the bytes of JSON unchanged, or as text where only the declared character set can read them.

    JSON is UTF-8 (RFC 8259, sections 8.1 and 11), so a declared character set counts only for bytes that are not
    UTF-8, or hold a NUL, as every UTF-16 of JSON does and no JSON. Unreadable bytes are returned unchanged.
    """
    if _declared_charset(content_type) in _UTF8_NAMES:
        return body
    try:
        body.decode()
    except UnicodeDecodeError:
        pass
    else:
        if 0 not in body:
            return body
    text = as_text(body, content_type)
    return text if isinstance(text, str) else body


_UTF8_NAMES = ("utf-8", "utf8", "us-ascii", "ascii")


def _declared_charset(content_type: str | None) -> str:
    """Return the character set a content type declares, in lower case; UTF-8 if it declares none."""
    charset = "utf-8"
    for parameter in (content_type or "").split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip("\"'").lower() or charset
    return charset


# Python also has codecs that are not character sets (unicode_escape, utf-7, punycode).
_CHARSETS = (
    r"utf[-_]?(8|16|32)([-_]?[lb]e)?|(us-)?ascii|iso[-_]?8859[-_]\d{1,2}|latin[-_]?\d|windows-125\d|cp125\d|"
    r"koi8-[ru]|shift[-_]jis|euc[-_](jp|kr)|gb(2312|k|18030)|big5"
)


def _encoding_finding(charset: str) -> Finding:
    return Finding(
        code="bad_encoding",
        blame="tool",
        message=f"output: not valid {charset[:40]}; what is no text is returned as Raw with its media type",
        data={"reason": f"bad_encoding:{charset[:40]}"},
    )
