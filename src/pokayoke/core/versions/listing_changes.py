"""Entries of `tools/list` answers: what an approval covers of one, and what differs between two of a tool.

In: entries as servers send them.
Out: bytes, a hash, a list of differences.
Never: two entries with different hashes and an empty list of differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pokayoke.core.json.canonical import canonical_bytes, sha256_hex
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.text.clip import clip

_PROMISES: Final = ("title", "description", "inputSchema", "outputSchema", "annotations")
_MISSING: Final = object()


def find_listed_tools(answer: Any) -> list[dict[str, Any]]:
    """Return the entries of a `tools/list` answer: the whole message, its result, or the list alone."""
    if is_object(answer) and is_object(answer.get("result")):
        answer = answer["result"]
    tools = answer.get("tools") if is_object(answer) else answer
    return [entry for entry in tools if is_object(entry)] if is_array(tools) else []


def promises_of(entry: Mapping[str, Any]) -> bytes:
    """Return what an approval covers of an entry: title, description, schemas and annotations, as canonical JSON."""
    return canonical_bytes({key: entry[key] for key in _PROMISES if entry.get(key) is not None})


def promises_hash(entry: Mapping[str, Any]) -> str:
    """Return the hash of what an approval covers, as 64 hexadecimal digits.

    It is never shortened: who writes both entries finds two with equal beginnings.
    """
    return sha256_hex(promises_of(entry))


def list_changes(
    approved: Mapping[str, Any], listed: Mapping[str, Any], *, longest: int | None = None, most: int | None = None
) -> list[dict[str, str]]:
    """Return what differs between two entries of a tool: `at`, and `before` and `after` as text, "" for nothing.

    Texts and hints stand whole, a schema property by property.

    Args:
        approved: the entry before; empty for none.
        listed: the entry after.
        longest: behind so many characters each text is cut; None for nowhere.
        most: the most differences; None for all.
    """
    found: list[dict[str, str]] = []
    for at, old, new in _find_differences(approved, listed):
        before, after = _show_part(old), _show_part(new)
        if before == after:  # such as "true" and true, or "" and nothing
            before, after = ("" if one is _MISSING else canonical_bytes(one).decode() for one in (old, new))
        one = {"at": "/".join(at), "before": before, "after": after}
        found.append(one if longest is None else {key: clip(text, longest) for key, text in one.items()})
        if len(found) == most:
            break
    return found


def _find_differences(
    approved: Mapping[str, Any], listed: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    for key in _PROMISES:
        old, new = (_MISSING if one.get(key) is None else one[key] for one in (approved, listed))
        for at in _list_parts(old, new):
            parts = _find_part(old, at), _find_part(new, at)
            if not _are_equal(*parts):
                yield (key, *at), *parts


def _list_parts(old: Any, new: Any) -> list[tuple[str, ...]]:
    """Return the places at which two values are compared: the keys of objects, and those of their properties."""
    if not is_object(old) or not is_object(new):
        return [()]
    parts: list[tuple[str, ...]] = [(str(key),) for key in dict.fromkeys([*old, *new])]
    if is_object(old.get("properties")) and is_object(new.get("properties")):
        names = dict.fromkeys([*old["properties"], *new["properties"]])
        parts = [one for one in parts if one != ("properties",)] + [("properties", str(name)) for name in names]
    return parts


def _find_part(value: Any, at: tuple[str, ...]) -> Any:
    for key in at:
        value = value.get(key, _MISSING) if is_object(value) else _MISSING
    return value


def _are_equal(old: Any, new: Any) -> bool:
    if old is _MISSING or new is _MISSING:
        return old is new
    return canonical_bytes([old]) == canonical_bytes([new])


def _show_part(value: Any) -> str:
    if value is _MISSING:
        return ""
    return value if isinstance(value, str) else canonical_bytes(value).decode()
