"""The result of intake: a graded reading, with a name for every repair and refusal.

In: names of repairs and refusals.
Out: readings, calls, and the finding that returns a reading to the model.
Never: rename a code: the trace and programs compare it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from pokayoke.core.call import Effect, Finding, ToolCall
from pokayoke.core.finding_codes import FINDING_CODES
from pokayoke.core.schema.schema import Schema
from pokayoke.errors import UsageError

SchemaLike = Schema | dict[str, Any] | bool
Tools = Iterable[str] | Mapping[str, SchemaLike | None] | None
Grade = Literal["exact", "lossless", "edited", "ambiguous", "lossy"]

REPAIRS: dict[str, str] = {
    "block_quote": "block quote marks before every line were removed",
    "byte_order_mark": "a byte order mark before the text was skipped",
    "call_syntax": "the arguments were written as name(key=value)",
    "closed_by_schema": "missing closers at the end were added: the schema admits nothing after the last value",
    "code_fence": "a code fence around the object, or what is left of one, was removed",
    "comment": "comments between the values were skipped",
    "double_encoded": "the object was written as a JSON string",
    "empty_prefix": "an empty object before the arguments was skipped: the schema does not admit it",
    "empty_text": "an empty text or null was read as an empty object: the schema requires no property",
    "equal_duplicate": "a key that repeats with an equal value was read once",
    "equal_repeat": "an object written twice with equal values was read once",
    "extra_closer": "one surplus closing brace was skipped: the schema has no place for it",
    "extra_escape": "an unnecessary backslash was dropped",
    "html_quotes": "quotes written as &quot;, &#34; or &#x22; were read",
    "inserted_sign": "one character was inserted: the only one that makes the text parse and fit the schema",
    "inner_quotes": "a pair of unescaped quotes inside a string was kept as part of it",
    "missing_comma": "a comma was added at a line break between a complete value and a quoted key",
    "opened_by_schema": "a missing first brace was added: the schema admits nothing before the first key",
    "odd_whitespace": "unusual spaces and invisible signs between the values were skipped",
    "plus_sign": "a plus sign before a number was dropped",
    "prose": "sentences around the object were ignored",
    "python_escape": "an escape of Python's string syntax was read",
    "python_tuple": "a tuple was read as a list",
    "python_word": "True, False or None was read as true, false or null",
    "raw_control_character": "a raw line break or tab inside a closed string was kept",
    "single_quotes": "strings in single quotes were read",
    "smart_quotes": "strings in typographic quotes were read",
    "tagged_arguments": "arguments in one tag each were read: the schema says which of them are text",
    "tags": "tags around the object were removed",
    "trailing_comma": "a comma after the last member was skipped",
    "unquoted_key": "keys without quotes were read",
}
"""Name of every repair -> what was done. A repair never changes what the text says."""

REFUSALS: dict[str, tuple[Grade, str]] = {
    code: (row.grade, row.meaning) for code, row in FINDING_CODES.items() if row.grade is not None
}
"""Name of every refusal -> its grade and the problem."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The reading of one argument text.

    Attributes:
        grade: `exact` and `lossless` are proven to be the written value; `edited` needed one inserted character
            and fits the schema, or holds a line break that may be a slip; `ambiguous` and `lossy` may never run.
        value: the arguments for the first three grades, else None.
        readings: for an ambiguous text, its possible values (not always complete); else empty.
        repairs: names of the repairs, from `REPAIRS`, in order.
        reason: name of the refusal, from `REFUSALS`, or None.
        position: offset in characters of the refused place, or None.
        canonical: compact dump with sorted keys, when the value is known.
        about: the argument a refusal is about, and the sign that makes its value doubtful, if it is about one.
    """

    grade: Grade
    value: dict[str, Any] | None = None
    readings: tuple[Any, ...] = ()
    repairs: tuple[str, ...] = ()
    reason: str | None = None
    position: int | None = None
    canonical: bytes | None = None
    about: str = ""


class ReadCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call found in a text.

    Attributes:
        name: the tool name as written; "" if unreadable.
        reading: its arguments.
        span: start and end offset of the call in the text, in characters.
        text: the call as written, without its frame.
    """

    name: str
    reading: Reading
    span: tuple[int, int]
    text: str = ""

    def to_tool_call(self, id: str, *, stop_reason: str | None = None) -> ToolCall:  # noqa: A002 - as in `ToolCall`
        """Return the call for `run.call` or `run.call_batch`.

        A refused call goes there too: its outcome has the words for the model. An edited one runs there for a read.

        Args:
            id: an id that is unique in the conversation.
            stop_reason: the provider's stop reason, if known.
        """
        reading, unread = self.reading, None
        if reading.grade not in ("exact", "lossless"):
            unread = f"{reading.reason or 'edit_suggested'} {reading.about}".strip()
        arguments = f"[{self.text}]" if reading.value is None else reading.value
        return ToolCall(id, self.name, arguments, stop_reason, unread=unread)


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one text. Iterating yields them.

    Attributes:
        calls: the calls in order, also those that may not run.
        rest: the text around the calls, without their markup.
    """

    calls: tuple[ReadCall, ...] = ()
    rest: str = ""

    def __iter__(self) -> Iterator[ReadCall]:
        """Yield the calls in order."""
        return iter(self.calls)


def refused_reading(
    reason: str, position: int | None = None, readings: tuple[Any, ...] = (), *, about: str = ""
) -> Reading:
    """Return the reading of a refused text; `reason` is a name in `REFUSALS`."""
    return Reading(grade=REFUSALS[reason][0], reason=reason, position=position, readings=readings, about=about)


def reading_finding(reading: Reading, *, effect: Effect, tool: str | None) -> Finding:
    """Return the finding that returns a reading to the model.

    Args:
        reading: a reading that may not run with this effect.
        effect: effect of the tool; only a read may run an `edited` reading.
        tool: the tool name, for the hint; None if unknown.

    Raises:
        UsageError: the reading may run.
    """
    if reading.grade in ("exact", "lossless") or (reading.grade == "edited" and effect == "read"):
        raise UsageError(f"a reading graded {reading.grade} may run for a tool with effect {effect}")
    reason = reading.reason or "edit_suggested"
    seen = REFUSALS[reason][1] + (f" ({reading.about})" if reading.about else "")
    place = f" at character {reading.position}" if reading.position else ""  # position 0 says nothing
    name = "the call" if tool is None else repr("".join(sign if sign.isprintable() else "?" for sign in tool[:80]))
    hint = f"The arguments {'of' if tool is None else 'for'} {name} were not used: {seen}{place}. "
    if reading.grade == "edited" and reading.canonical is not None and len(reading.canonical) <= _MOST_SUGGESTED:
        hint += f"If you mean {reading.canonical.decode()}, {_EDIT_ADVICE.get(reason, 'send exactly that')}."
    else:
        hint += _ADVICE.get(reason, "Send the whole call again, with the arguments as one complete strict JSON object.")
    return Finding(
        code=reason,
        blame="model",
        message=(
            f"arguments of {name}: {seen}{place}; got a text graded {reading.grade}, expected one strict JSON object"
        ),
        hint=hint,
        data={"grade": reading.grade, "position": reading.position, "repairs": list(reading.repairs)},
    )


_MOST_SUGGESTED = 300
_EDIT_ADVICE = {
    "beside_text": "send the call alone, with nothing before or behind it",
    "not_native": "make the call through the tool interface, as before, and not in the text",
}
_ADVICE = {
    "cut_message": "Send the call again in a shorter message; split long content over several calls.",
    "too_long": "Send shorter arguments; split long content over several calls.",
    "too_deep": "Send the arguments with less nesting.",
    "too_many_calls": "Send only the calls that are needed now.",
    "several_values": "Send one JSON object per call, and one call for each.",
    "doubled_brace": "Send the object in one pair of braces.",
    "duplicate_key": "Send each key once.",
    "expression": "Work out the value and send it as a literal, in one strict JSON object.",
    "bare_reference": "Send the value itself, in quotes if it is text, in one strict JSON object.",
    "ellipsis": "Send every value in full, nothing left out.",
    "not_finite": "Send a finite number, or leave the field out if it is optional.",
    "empty_arguments": "Send the arguments as one strict JSON object.",
    "after_text": "Send calls without text between them, and wait for their results.",
    "disowned": "If the call is meant, send it again, and only it, outside of quotation marks, tags and code.",
    "quoted": "If the call is meant, send it again behind the end of your thoughts.",
    "recited": "If the call is your own, send it with its arguments in another order or form; else say what you read.",
    "unread_call": (
        'To call a tool, use the tool interface, or send nothing but {"name": "<tool>", "arguments": {...}}. '
        "If no call is meant, send the same text again."
    ),
    "positional_arguments": "Send the arguments with their names, as one strict JSON object.",
}
