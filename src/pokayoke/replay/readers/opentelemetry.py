"""OpenTelemetry GenAI: spans of the operation `execute_tool`.

It reads OTLP files in JSON (`resourceSpans`) and the spans an SDK's console exporter prints. Other spans are
skipped: a chat span repeats the whole history, so its calls would count once per turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from pokayoke.core.json.values import is_array, is_object
from pokayoke.replay.readers.conversation import identifier_text
from pokayoke.replay.recording import ReadResult, Recording, RecordingReader, UnreadRecord

_OPERATION, _NAME = "gen_ai.operation.name", "gen_ai.tool.name"
_ARGUMENTS, _RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
_RUN = ("gen_ai.conversation.id", "session.id")
_ERROR_CODES = (2, "2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR")
_DEEPEST = 32


class OpenTelemetryReader(RecordingReader):
    """Reads one export request, or one span, per record."""

    def match_strength(self, value: Any) -> int:
        """See `RecordingReader.match_strength`: a span with the attributes of a tool call is proof."""
        spans = list(_iter_spans(value))
        if any(_is_call(_span_attributes(span)) for span in spans):
            return 2
        return int(is_object(value) and ("resourceSpans" in value or ("attributes" in value and "context" in value)))

    def read_record(self, value: Any, line: int) -> Iterable[ReadResult]:
        """See `RecordingReader.read_record`."""
        for span in _iter_spans(value):
            about = _span_attributes(span)
            if _is_call(about):
                yield _build_recording(span, about, line)


def _iter_spans(record: Any) -> Iterator[dict[str, Any]]:
    if not is_object(record):
        return
    resources = record.get("resourceSpans", record.get("resource_spans"))
    if not is_array(resources):
        if "attributes" in record:
            yield record
        return
    for resource in filter(is_object, resources):
        scopes = resource.get("scopeSpans", resource.get("scope_spans"))
        for scope in filter(is_object, scopes if is_array(scopes) else ()):
            spans = scope.get("spans")
            yield from filter(is_object, spans if is_array(spans) else ())


def _span_attributes(span: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span as plain values; OTLP wraps each of them."""
    given = span.get("attributes")
    if is_object(given):
        return given
    found: dict[str, Any] = {}
    for item in given if is_array(given) else ():
        if is_object(item) and isinstance(item.get("key"), str):
            found[item["key"]] = _unwrap_value(item.get("value"))
    return found


def _unwrap_value(value: Any, depth: int = 0) -> Any:
    """Return an OTLP `AnyValue` as a JSON value; OTLP writes integers as texts."""
    if not is_object(value) or not value or depth > _DEEPEST:
        return None
    (kind, inner), *_ = value.items()
    if kind == "intValue":
        return int(inner) if isinstance(inner, str) and inner.removeprefix("-").isdecimal() else inner
    items: Any = inner.get("values") if is_object(inner) else None
    if kind == "arrayValue":
        return [_unwrap_value(item, depth + 1) for item in items] if is_array(items) else []
    if kind == "kvlistValue":
        pairs = filter(is_object, items if is_array(items) else ())
        return {identifier_text(pair.get("key")): _unwrap_value(pair.get("value"), depth + 1) for pair in pairs}
    return inner


def _is_call(about: dict[str, Any]) -> bool:
    return about.get(_OPERATION) == "execute_tool" or _ARGUMENTS in about or _RESULT in about


def _build_recording(span: dict[str, Any], about: dict[str, Any], line: int) -> ReadResult:
    name, given = about.get(_NAME), about.get(_ARGUMENTS)
    if not isinstance(name, str):
        return UnreadRecord(line, f"a span without {_NAME}")
    if not isinstance(given, str) and not is_object(given):
        return UnreadRecord(
            line, f"a span without {_ARGUMENTS} (exporters leave them out unless content capture is on)"
        )
    status, context = span.get("status"), span.get("context")
    code = status.get("code", status.get("status_code")) if is_object(status) else None
    trace = span.get("traceId", context.get("trace_id") if is_object(context) else None)
    run = next((identifier_text(about[key]) for key in _RUN if about.get(key)), identifier_text(trace))
    return Recording(
        tool=name,
        arguments=given,
        output=_parse_result(about),
        is_error=True if code in _ERROR_CODES or "error.type" in about else None,
        run=run,
        line=line,
    )


def _parse_result(about: dict[str, Any]) -> Any:
    """Return the result as the tool gave it: instrumentations write a JSON string for a text."""
    result = about.get(_RESULT, UNSET)
    if isinstance(result, str) and result[:1] == result[-1:] == '"' and len(result) > 1:
        try:
            return msgspec.json.decode(result, type=str)
        except (msgspec.MsgspecError, UnicodeError):
            return result
    return result
