"""Outputs cut into records: what stands in one record belongs together, and to whoever wrote it.

In: a JSON value.
Out: groups of records; a record is fields, each a key and a normal form.
Never: a field for prose. A text longer than a field names nothing, and plain text gives no field at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.provenance.forms import normal_form
from pokayoke.core.provenance.labels import name_words
from pokayoke.core.provenance.vocabulary import IDENTIFIER_NAMES, TEXT_NAMES

_PROSE: Final = 60  # characters from which a text is somebody's prose
_MOST_DEPTH: Final = 64


class RecordField(msgspec.Struct, frozen=True, gc=False):
    """One value of a record: its key, its normal form, and the text as it stands."""

    key: str
    form: str
    text: str


class OutputRecord(msgspec.Struct, eq=False):
    """Fields that belong together.

    Attributes:
        fields: its values.
        authored: True if it holds somebody's prose.
        largest: its largest number that is no identifier; -1.0 if it has none.
        listed: True if words such as "all" may mean it.
        said: what of it stands in the user's words.
    """

    fields: tuple[RecordField, ...]
    authored: bool = False
    largest: float = -1.0
    listed: bool = False
    said: frozenset[str] = frozenset()


def cut_into_records(value: Any) -> Iterator[list[OutputRecord]]:
    """Yield the groups of records of an output; the records of a group are siblings.

    Without recursion: an output may nest as deep as its sender likes.
    """
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > _MOST_DEPTH:
            continue
        group: list[OutputRecord] = []
        for fields_of in _records_in(node):
            fields, authored, nested = _read_fields(*fields_of)
            waiting.extend((child, depth + 1) for child in reversed(nested))
            if fields:
                group.append(OutputRecord(tuple(fields), authored, _largest_number(fields)))
        if is_array(node):
            waiting.extend(
                (child, depth + 1)
                for child in reversed(node)
                if is_array(child) or (is_object(child) and _is_mapping(child))
            )
        if group:
            yield group


def _records_in(node: Any) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield the objects of a node that are records, each with the value it stands under."""
    if is_object(node):
        if _is_mapping(node):
            for key, child in node.items():
                yield (child if is_object(child) else {"value": child}), str(key)
        else:
            yield node, None
    elif is_array(node):
        for child in node:
            if is_object(child):
                if not _is_mapping(child):
                    yield child, None
            elif not is_array(child) and child is not None:
                yield {"entry": child}, None


def _is_mapping(node: dict[str, Any]) -> bool:
    """Return whether an object is a table: its keys are values of their own."""
    if not node:
        return False
    if any(map(_is_value_key, map(str, node))):
        return True
    return len(node) > 1 and all(is_object(child) for child in node.values())


@lru_cache(4_096)
def _is_value_key(key: str) -> bool:
    """Return whether no programmer named a field so: it is a value itself."""
    return " " in key or "." in key or "@" in key or key.isdigit()


def _read_fields(node: dict[str, Any], entry: str | None) -> tuple[list[RecordField], bool, list[Any]]:
    """Return the fields of a record, whether it holds prose, and the nested values that are records of their own."""
    fields: list[RecordField] = []
    authored = False
    nested: list[Any] = []
    if entry is not None and (form := normal_form(entry)) is not None:
        fields.append(RecordField("entry", form, entry))
    waiting: list[tuple[str, Any, int]] = [(str(key), child, 0) for key, child in reversed(node.items())]
    while waiting:
        key, value, depth = waiting.pop()
        if isinstance(value, str):
            authored = authored or len(value) > _PROSE or (bool(value) and is_text_key(key))
            if (form := normal_form(value)) is not None:
                fields.append(RecordField(key, form, value))
        elif is_object(value):
            if _is_mapping(value) or depth > _MOST_DEPTH:
                nested.append(value)
            else:
                waiting.extend([(str(name), child, depth + 1) for name, child in reversed(value.items())])
        elif is_array(value):
            if any(is_object(child) or is_array(child) for child in value):
                nested.append(value)
            else:
                waiting.extend([(key, child, depth + 1) for child in reversed(value)])
        elif (form := normal_form(value)) is not None:
            fields.append(RecordField(key, form, form))
    return fields, authored, nested


def _largest_number(fields: Iterable[RecordField]) -> float:
    largest = -1.0
    for field in fields:
        if field.form[-1].isdigit() and is_like_number(field.form) and not is_identifier_key(field.key):
            try:
                largest = max(largest, abs(float(field.form)))
            except ValueError:
                continue
    return largest


def is_like_number(form: str) -> bool:
    """Return False if a normal form is certainly no number that can be compared."""
    return form[0] in "0123456789+-."


@lru_cache(4_096)
def is_text_key(key: str) -> bool:
    """Return whether a field of this name holds free text."""
    words = name_words(key)
    return not TEXT_NAMES.isdisjoint(words) and IDENTIFIER_NAMES.isdisjoint(words)


@lru_cache(4_096)
def is_identifier_key(key: str) -> bool:
    """Return whether a field of this name holds an identifier: two records that share it are joined."""
    return not IDENTIFIER_NAMES.isdisjoint(name_words(key))


def join_key(key: str) -> str:
    """Return the name under which an identifier joins: `contractor_id` and `contractorId` are one."""
    return key.replace("_", "").replace("-", "").lower()


def walk_values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every scalar of an argument with the name of the argument, or of the nearest field around it."""
    waiting: list[tuple[str, Any]] = [(name, value)]
    while waiting:
        key, node = waiting.pop()
        if is_object(node):
            waiting.extend((str(one), child) for one, child in reversed(node.items()))
        elif is_array(node):
            waiting.extend((key, child) for child in reversed(node))
        elif node is not None:
            yield key, node
