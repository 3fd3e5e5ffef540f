"""Plain JSON Lines: one call per record, in fields that the user names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import UNSET

from pokayoke.core.json.values import is_array, is_object
from pokayoke.errors import ConfigurationError
from pokayoke.replay.readers.conversation import identifier_text
from pokayoke.replay.recording import ReadResult, Recording, RecordingReader, UnreadRecord

PARTS: Final = ("tool", "arguments", "output", "run", "truth", "is_error", "stop_reason")
_TRUE: Final = ("true", "1", "yes", "error", "failed")


def parse_map(text: str) -> dict[str, str]:
    """Read `tool=...,arguments=...` into part and field.

    A field is a key, several keys joined with `.` for nested objects, or for `run` several fields joined with `+`.

    Raises:
        ConfigurationError: a part is unknown, named twice, or has no field.
    """
    found: dict[str, str] = {}
    for pair in filter(None, (piece.strip() for piece in text.split(","))):
        part, _, field = (piece.strip() for piece in pair.partition("="))
        if part not in PARTS:
            raise ConfigurationError(f"--map: {part!r} is no part of a call. Parts: {', '.join(PARTS)}")
        if not field or part in found:
            raise ConfigurationError(f"--map: {part!r} needs one field, as in {part}=FIELD")
        found[part] = field
    return found


class JsonLinesReader(RecordingReader):
    """Reads one call per record.

    Args:
        fields: part of a call to the field that holds it; any other part stands in the field of its own name.
    """

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        self._named = bool(fields)
        self._fields = {part: (fields or {}).get(part, part) for part in PARTS}

    def match_strength(self, value: Any) -> int:
        """See `RecordingReader.match_strength`.

        The record has a tool and arguments, in the fields of `--map` if it is given.
        """
        fits = is_object(value) and all(
            _get_field(value, self._fields[part]) is not UNSET for part in ("tool", "arguments")
        )
        return (2 if self._named else 1) * int(fits)

    def read_record(self, value: Any, line: int) -> Iterable[ReadResult]:
        """See `RecordingReader.read_record`."""
        if not is_object(value):
            return (UnreadRecord(line, "not an object"),)
        tool, arguments = (_get_field(value, self._fields[part]) for part in ("tool", "arguments"))
        if not isinstance(tool, str):
            return (UnreadRecord(line, f"no tool name in the field {self._fields['tool']!r}"),)
        if not (isinstance(arguments, str) or is_object(arguments)):
            return (UnreadRecord(line, f"no arguments in the field {self._fields['arguments']!r}"),)
        reason = _get_field(value, self._fields["stop_reason"])
        truth = _get_field(value, self._fields["truth"])
        return (
            Recording(
                tool=tool,
                arguments=arguments,
                output=_get_field(value, self._fields["output"]),
                is_error=_parse_flag(_get_field(value, self._fields["is_error"])),
                run=self._run_name(value),
                truth=arguments if truth is True else _parse_truth(truth),
                line=line,
                stop_reason=reason if isinstance(reason, str) else None,
            ),
        )

    def _run_name(self, record: dict[str, Any]) -> str:
        return " ".join(
            filter(None, (identifier_text(_get_field(record, field)) for field in self._fields["run"].split("+")))
        )


def _get_field(record: Any, field: str) -> Any:
    """Return the value of a field; the whole name first, then its parts as nested keys. UNSET if there is none."""
    if is_object(record) and field in record:
        return record[field]
    for key in field.split("."):
        if is_object(record) and key in record:
            record = record[key]
        elif is_array(record) and key.isdecimal() and int(key) < len(record):
            record = record[int(key)]
        else:
            return UNSET
    return record


def _parse_flag(value: Any) -> bool | None:
    """Return whether a field says that the tool failed; None if it does not say."""
    if value is UNSET or value is None:
        return None
    if isinstance(value, str):
        return value.strip().lower() in _TRUE
    return bool(value)


def _parse_truth(value: Any) -> Any:
    """Return the right arguments as an object; a text is parsed when it is scored. Other kinds count as unknown."""
    return value if value is None or isinstance(value, str) or is_object(value) else UNSET
