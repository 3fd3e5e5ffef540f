"""Entry point for calls written as text; `core/intake/call_finder.py` finds them.

In: a model's text, the offered tools, the stop reason.
Out: the calls in order, and the text around them.
Never: import the finder before a text needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, cast, get_args

import msgspec

from pokayoke.core.host_input import expect
from pokayoke.core.intake.arguments import MAX_CHARS, MAX_DEPTH
from pokayoke.core.intake.reading import Calls, ReadCall, Reading, SchemaLike, refused_reading
from pokayoke.core.intake.stop_reasons import is_cut
from pokayoke.errors import UsageError

CallForm = Literal["json", "jsonl", "python"]
"""Unmarked forms of calls that a host can ask for: one object, one object per line, or `name(key=value)`."""


def read_calls(
    text: str | bytes | None,
    *,
    tools: Iterable[str] | Mapping[str, SchemaLike | None] | None = None,
    stop_reason: str | None = None,
    form: CallForm | None = None,
    has_native_calls: bool = False,
    read_texts: Iterable[str] = (),
    max_chars: int = MAX_CHARS,
    max_depth: int = MAX_DEPTH,
) -> Calls:
    """Find the calls a model wrote into a text. Structure decides, never the words around a call.

    Accepted forms: the marks of the model families (`core/intake/framings.py` lists them); objects with a name and
    arguments (`name`/`arguments`, `name`/`parameters`, `tool`/`args`, `function`, nested as providers do), lists and
    lines of them, fences around them, and `name(key=value)` with literal values.

    A call in a family's own marks that begins a line and ends the message keeps the grade of its arguments, and so
    does an unmarked form that is the whole message. With other text beside it, it is `edited` at most. Inside
    quotation marks, another tag, code that holds more, or thoughts, and behind text that follows a call, it is
    refused. Marks that begin a line and cannot be read are a refused call, `unread_call`.

    Args:
        text: the message text; bytes must be UTF-8. None, for a message without text, holds no calls.
        tools: names of the offered tools, or a mapping from name to input schema.
        stop_reason: the provider's stop reason; one that proves a cut makes every reading lossy.
        form: the unmarked form that the host asked the model for; it counts like a family's own marks.
        has_native_calls: True once the model has made a native call: then a call in its text is `edited` at most.
        read_texts: what the model has read, such as outputs of tools: a call that is in one letter for letter is
            a quotation.
        max_chars: maximum length of the text, in characters.
        max_depth: maximum nesting.

    Returns:
        The calls in order, each with its graded reading, and the text around them. A text with more than 1,000
        calls is refused as a whole (`too_many_calls`).

    Raises:
        ContractError: a schema in `tools` is not usable.
        UsageError: `text` is of another type, such as a list of blocks, `tools` are not names, or `form` is unknown.
    """
    if text is None:
        return Calls()
    expect(text, (str, bytes), "read_calls takes the text of a message", ": join its blocks")
    if tools is not None and (isinstance(tools, str) or not isinstance(cast("object", tools), Iterable)):
        raise UsageError(f"tools are names, or names with their schemas, got {type(tools).__name__}")
    if form is not None and form not in get_args(CallForm):
        raise UsageError(f"unknown form {form!r}: use {', '.join(get_args(CallForm))}")
    try:
        plain = text.decode() if isinstance(text, bytes) else text
        plain.encode()
    except UnicodeError as exc:
        reason = "invalid_utf8" if isinstance(exc, UnicodeDecodeError) else "lone_surrogate"
        return _refuse_whole_text(refused_reading(reason), len(text))
    if len(plain) > max_chars:
        return _refuse_whole_text(refused_reading("too_long", max_chars), len(plain))
    from pokayoke.core.intake.call_finder import find_calls  # noqa: PLC0415 - its patterns are compiled when one is needed
    from pokayoke.core.intake.call_places import CallContext  # noqa: PLC0415 - as above

    try:
        known = CallContext(form is not None, has_native_calls, read_texts)
        found = find_calls(plain, tools, known, max_depth=max_depth)
    except RecursionError:
        return _refuse_whole_text(refused_reading("too_deep"), len(plain))
    if not is_cut(stop_reason):
        return found
    cut = refused_reading("cut_message")
    return Calls(calls=tuple(msgspec.structs.replace(call, reading=cut) for call in found.calls), rest=found.rest)


def _refuse_whole_text(reading: Reading, length: int) -> Calls:
    return Calls(calls=(ReadCall(name="", reading=reading, span=(0, length)),))
