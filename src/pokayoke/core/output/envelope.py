"""Finds a failure inside a successful output: a declared envelope first, then unambiguous error fields.

In: a parsed output.
Out: the tool's own failure text, the part that the schema describes, or a finding. A declared failure, and a body that
is nothing but the report of one, is the tool's failure; an undeclared one beside data makes the output unusable.
Never: take a field that the schema of a read describes as data for an error.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import islice
from typing import Any, cast

import msgspec
import orjson

from pokayoke.core.call import Finding
from pokayoke.core.contract.terms import Envelope
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import equal_json, is_array, is_flag, is_object, properties_of
from pokayoke.core.output.html_pages import find_page, is_page
from pokayoke.core.output.invariants import resolve_pointer
from pokayoke.core.text.clip import clip, clip_at_word

_SUCCESS_FLAGS = ("ok", "success", "OK", "Ok", "Success", "SUCCESS")
_ERROR_FIELDS = ("error", "errors", "Error", "Errors", "ERROR", "ERRORS")
_FAILURE_FLAGS = ("isError", "is_error", "hasError", "has_error", "IsError", "HasError")
_STATUS_FIELDS = frozenset((*_SUCCESS_FLAGS, *_ERROR_FIELDS, *_FAILURE_FLAGS))
# The fields of a report, folded: a body with any other field holds data, too.
_REPORT_FIELDS = frozenset(
    (
        *("error", "errors", "ok", "success", "status", "code", "message", "detail", "reason", "note"),
        *("iserror", "haserror", "requestid", "xrequestid", "traceid", "correlationid"),
    )
)
_SILENT_FIELDS = frozenset(("ok", "success", "status", "iserror", "haserror"))  # they tell no reason
_FAILED_STATUSES = ("error", "failed")
_MESSAGE_FIELDS = ("message", "detail", "reason")
_LONGEST_REPORT, _LONGEST_WORDS = 20_000, 2_000  # characters of a text that is parsed, and of what is quoted
# With these a schema describes more fields than `properties` lists.
_OPEN_KEYWORDS = frozenset(("additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if"))
_MESSAGE_POINTERS = ("/error", "/errors", "/message", "/detail", "/reason")
# Values of an error field that mean no error.
_EMPTY_WORDS = {"", "none", "null", "no", "no error", "no errors", "ok", "success", "n/a", "false", "0", "-"}
_SUCCESS_CODES = ("ok", "success")


class EnvelopeContent(msgspec.Struct, frozen=True):
    """The content of an envelope.

    Args:
        value: the value that the output schema describes.
        failure: the tool's own words if it declared a failure, else None.
        finding: the problem of the envelope, or None.
    """

    value: Any
    failure: str | None = None
    finding: Finding | None = None


def open_envelope(value: Any, envelope: Envelope) -> EnvelopeContent:
    """Read an output by the envelope in its contract."""
    error = _first_at(value, envelope.error)
    if _is_filled(error):
        return EnvelopeContent(None, failure=failure_text(error))
    if envelope.ok is not None:
        flag = [one for _, one in resolve_pointer(value, envelope.ok)]
        if not any(equal_json(one, good) for one in flag for good in envelope.ok_values):
            return EnvelopeContent(None, failure=_find_message(value) or f"{envelope.ok} does not say success")
    if envelope.data is None:
        return EnvelopeContent(value)
    inside = resolve_pointer(value, envelope.data)
    if inside:
        return EnvelopeContent(inside[0][1])
    finding = Finding(
        code="envelope_broken",
        at=envelope.data,
        blame="tool",
        message=f"output: nothing at {envelope.data}, where the contract says the value is",
        data={"reason": f"envelope_broken:{envelope.data}"},
    )
    return EnvelopeContent(None, finding=finding)


def is_report(value: Any) -> bool:
    """Return whether every field of an object belongs to a report of success or failure, so that it holds no data."""
    if value.__class__ is not dict or not value:
        return False
    for name in value:  # every output passes here, and a generator takes longer
        # Folding takes longer than seeing that there is nothing to fold.
        if name not in _REPORT_FIELDS and (
            (name.islower() and name.isalpha()) or _fold_field(name) not in _REPORT_FIELDS
        ):
            return False
    return True


def reported_failure(value: Any, data: Container[str] = ()) -> str | None:
    """Return the words of a body that is nothing but the report of a failure, or None.

    It `is_report`, and one field says that it failed: an `error` that is a text, an object or a list and not empty, a
    false `ok` or `success`, a true `isError`, or a `status` of error or failed beside a message. A text that is such a
    body in JSON counts as well.

    Args:
        value: a JSON value, or text.
        data: names of fields that are data, whatever they say.
    """
    body = _parse_body(value, _LONGEST_REPORT) if type(value) is str else value
    if not is_report(body):
        return None
    fields = {_fold_field(name): one for name, one in body.items()}
    if not any(_says_failure(_fold_field(name), one, fields) for name, one in body.items() if name not in data):
        return None
    words = [one for name, one in fields.items() if name not in _SILENT_FIELDS]
    return failure_text(words[0]) if len(words) == 1 else _quote(body, _LONGEST_WORDS)


def is_only_page(value: Any) -> bool:
    """Return whether a body is nothing but a web page: no data is beside it, only what may be in a report.

    Args:
        value: a JSON value, or text, which may be such a body in JSON.
    """
    return _holds_only_page(_parse_body(value) or value if type(value) is str else value)


def _holds_only_page(value: Any) -> bool:
    if is_array(value):
        return bool(value) and all(map(_holds_only_page, value))
    if not is_object(value):
        return isinstance(value, str) and is_page(value)
    rest = [name for name, one in value.items() if "html" in name.lower() or not _holds_only_page(one)]
    return len(rest) < len(value) and all(_fold_field(name) in _REPORT_FIELDS for name in rest)


def _fold_field(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _says_failure(name: str, value: Any, said: Mapping[str, Any]) -> bool:
    """Return whether one field of a report (its name folded) says that it failed."""
    if name in ("error", "errors"):
        return value is True or (isinstance(value, str | dict | list) and _is_filled(value))
    if name in ("ok", "success"):
        return is_flag(value, "false")
    if name in ("iserror", "haserror"):
        return is_flag(value, "true")
    if name != "status" or not isinstance(value, str) or value.strip().lower() not in _FAILED_STATUSES:
        return False
    return any(isinstance(said.get(field), str) and said[field].strip() for field in _MESSAGE_FIELDS)


def _parse_body(text: str, limit: int | None = None) -> Any:
    """Return the JSON object or array in a text of at most so many characters, or None."""
    if (limit is not None and len(text) > limit) or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return parse(text)[0]
    except StrictError:
        return None


def undeclared_error(
    value: Any,
    schema: dict[str, Any] | bool = True,
    envelope: Envelope | None = None,
    data: Container[str] = (),
) -> Finding | None:
    """Return the finding for an undeclared failure in the top-level fields of an output, or None.

    Only these count: a false `ok` or `success`, a non-empty `error` or `errors`, and a true `is_error` that the
    schema does not name. Fields that the envelope names are skipped, and so is an error field that the schema
    requires to be a number, an array or an object: it is a measurement or a list that is always present (a fit's
    `error`, a linter's `errors`), and so are those in `data`. An output with none of the fields that its schema names
    is a finding too.
    """
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    # Checked first: most schemas require a field, and every output passes here.
    if isinstance(schema, dict) and not schema.get("required") and (envelope is None or envelope.data is None):
        found = _find_unlike_schema(fields, schema)
        if found is not None:
            return found
    return None if _STATUS_FIELDS.isdisjoint(fields) else _find_stated_failure(fields, schema, envelope, data)


def envelope_fields(envelope: Envelope | None) -> tuple[str, ...]:
    """Return the names of the top-level fields by which a declared envelope tells success from failure."""
    pointers = () if envelope is None else (envelope.ok, envelope.error)
    return tuple(pointer[1:] for pointer in pointers if pointer)


def _find_stated_failure(
    value: dict[str, Any], schema: dict[str, Any] | bool, envelope: Envelope | None, data: Container[str]
) -> Finding | None:
    """Return the failure that a flag or an error field reports."""
    known = envelope_fields(envelope)
    for name in _SUCCESS_FLAGS:
        if is_flag(value.get(name), "false") and name not in known and name not in data:
            return _error_finding(name, f"{name} is false")
    for name in _FAILURE_FLAGS:
        if is_flag(value.get(name), "true") and name not in known and name not in properties_of(schema):
            return _error_finding(name, f"{name} is true")
    for name in _ERROR_FIELDS:
        filled = name in value and name not in known and name not in data and _is_filled(value[name])
        if filled and not _is_data(schema, name):
            told = f"{name} holds {clip_at_word(failure_text(value[name]), 200)!r}"
            return _error_finding(name, told, "; if it is data, let the schema require it as a list, number or object")
    return None


def _find_unlike_schema(value: dict[str, Any], schema: dict[str, Any]) -> Finding | None:
    """Return the finding for an object without any field of its schema: allowed, but never intended."""
    fields = properties_of(schema)
    if not fields or not value or not fields.keys().isdisjoint(value) or not _OPEN_KEYWORDS.isdisjoint(schema):
        return None
    return Finding(
        code="unlike_schema",
        blame="tool",
        message=(
            f"output: none of the fields its schema names ({_list_names(fields)}) is there, got {_list_names(value)}"
        ),
        data={"reason": "unlike_schema"},
    )


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(name[:40] for name in islice(names, 5))


def failure_text(value: Any, *, limit: int = _LONGEST_WORDS) -> str:
    """Return a tool's own failure text: its text, or a compact dump of its value; a page in it is only named."""
    if is_object(value):
        inner = next((value[key] for key in ("message", "detail", "error", "reason") if key in value), None)
        if isinstance(inner, str) and inner:
            value = inner
    return _quote(value, limit)


def _quote(value: Any, limit: int) -> str:
    if find_page(value) is not None:
        return "an HTML page"
    return clip(value if isinstance(value, str) else _dump_json(value), limit)


def _dump_json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return msgspec.json.encode(value).decode()  # integers beyond 64 bits


def _first_at(value: Any, pointer: str | None) -> Any:
    found = resolve_pointer(value, pointer) if pointer is not None else []
    return found[0][1] if found else None


def _find_message(value: Any) -> str:
    for pointer in _MESSAGE_POINTERS:
        said = _first_at(value, pointer)
        if _is_filled(said):
            return failure_text(said)
    return ""


def _is_filled(value: Any) -> bool:
    """Return whether an error field holds an error: not null, false, zero, a word for nothing, or empty at every level.

    An object without a message whose code means success (TikTok) reports no error.
    """
    if isinstance(value, str):
        return value.strip().lower() not in _EMPTY_WORDS
    if is_object(value) and str(value.get("code")).lower() in _SUCCESS_CODES and not _is_filled(value.get("message")):
        return False
    return _has_content(value)


def _has_content(value: Any) -> bool:
    if is_object(value) or is_array(value):
        return any(map(_has_content, value.values() if is_object(value) else value))
    return bool(value.strip() if isinstance(value, str) else value)


def _is_data(schema: dict[str, Any] | bool, name: str) -> bool:
    """Return whether the schema requires this field as a number, array or object that is never null."""
    if not is_object(schema) or name not in schema.get("required", ()):
        return False
    declared = properties_of(schema).get(name)
    return is_object(declared) and declared.get("type") in ("number", "integer", "array", "object")


def _error_finding(name: str, what: str, otherwise: str = "") -> Finding:
    return Finding(
        code="error_in_success",
        at=f"/{name}",
        blame="tool",
        message=f"output at /{name}: {what}; if this is how the tool reports failure, declare an envelope{otherwise}",
        data={"reason": f"error_in_success:{name}"},
    )
