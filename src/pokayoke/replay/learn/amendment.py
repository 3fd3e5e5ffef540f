"""The smallest change of a contract under which calls that it refuses would run.

In: an argument schema, and arguments of calls that it refused although their tool did its work.
Out: the schema with wider bounds, and each change with the calls that it rests on.
Never: a bound that gets narrower, or a guess. What no change of one keyword admits is left to a person.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import jsonschema_rs
import msgspec

from pokayoke.core.json.pointer import to_pointer
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.redaction.known_secrets import holds_hidden
from pokayoke.core.schema.facts import json_types

_MOST_CHOICES: Final = 50  # of an enum: beyond them it is no list of choices
_MOST_CHANGES: Final = 200  # of one contract
_MOST_PASSES: Final = 8  # a wider type shows the next bound


class SchemaChange(msgspec.Struct):
    """One keyword that would change.

    Attributes:
        at: JSON pointer of the keyword in the schema.
        before: its value; None if it is not there.
        after: the proposed one; None if it goes.
        calls: refused calls that need it.
        first: where the first of them stands.
    """

    at: str
    before: Any
    after: Any
    calls: int = 0
    first: str = ""


class SchemaAmendment:
    """One argument schema that gets wider, call by call.

    Args:
        schema: as its file has it; it is not changed.

    Attributes:
        schema: the wider one.
        changes: by pointer.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema: dict[str, Any] = copy.deepcopy(schema)
        self.changes: dict[str, SchemaChange] = {}
        self._first = jsonschema_rs.validator_for(schema)
        self._validator = self._first

    def admit(self, arguments: dict[str, Any], where: str) -> bool:
        """Widen the schema for the arguments of a refused call; return False if that takes more than one keyword.

        Args:
            arguments: what the tool received.
            where: the call stands in its recording.
        """
        before = copy.deepcopy(self.schema), {at: copy.copy(one) for at, one in self.changes.items()}
        counted: set[str] = set()
        errors = list(self._first.iter_errors(arguments))
        for _ in range(_MOST_PASSES):
            places = [self._widen(error) for error in errors]
            if not all(places) or len(self.changes) > _MOST_CHANGES:
                break
            for at in {at for found in places for at in found} - counted:
                counted.add(at)
                self.changes[at].calls += 1
                self.changes[at].first = self.changes[at].first or where
            self._validator = jsonschema_rs.validator_for(self.schema)
            errors = list(self._validator.iter_errors(arguments))
            if not errors:
                return True
        self.schema, self.changes = before
        self._validator = jsonschema_rs.validator_for(self.schema)
        return False

    def _widen(self, error: jsonschema_rs.ValidationError) -> list[str]:
        """Change the keyword that an error is about; return pointers of what changed, none if no change would do."""
        *path, keyword = error.schema_path
        node, propose = _node_at(self.schema, path), _WAYS.get(str(keyword))
        if node is None or propose is None:
            return []
        changed: list[str] = []
        for key, after in propose(node, error):
            at = to_pointer((*map(str, path), *key))
            holder = node
            for step in key[:-1]:
                holder = holder.setdefault(step, {})
            known = self.changes.setdefault(at, SchemaChange(at, copy.deepcopy(holder.get(key[-1])), after))
            known.after = holder[key[-1]] = after
            changed.append(at)
        return changed


_Place = tuple[tuple[str, ...], Any]
"""The path of a keyword under its schema, and its new value."""
_Propose = Callable[[dict[str, Any], jsonschema_rs.ValidationError], list[_Place]]


def _move_bound(keyword: str, measure: Callable[[Any], Any]) -> _Propose:
    pick = max if keyword.startswith("max") else min

    def propose(node: dict[str, Any], error: jsonschema_rs.ValidationError) -> list[_Place]:
        return [((keyword,), pick(node[keyword], measure(error.instance)))]

    return propose


def _add_choice(node: dict[str, Any], error: jsonschema_rs.ValidationError) -> list[_Place]:
    value, known = error.instance, node["enum"]
    if is_object(value) or is_array(value) or holds_hidden(str(value)) or len(known) >= _MOST_CHOICES:
        return []
    return [(("enum",), [*known, *([] if value in known else [value])])]


def _add_type(node: dict[str, Any], error: jsonschema_rs.ValidationError) -> list[_Place]:
    known = node["type"] if is_array(node["type"]) else [node["type"]]
    added = _type_of(error.instance)
    return [(("type",), [*known, *([] if added in known else [added])])]


def _drop_required(node: dict[str, Any], error: jsonschema_rs.ValidationError) -> list[_Place]:
    value: Any = error.instance
    return [(("required",), [name for name in node["required"] if name in value])]


def _declare_names(node: dict[str, Any], error: jsonschema_rs.ValidationError) -> list[_Place]:
    value: Any = error.instance
    kind: Any = error.kind
    unexpected: list[str] = kind.unexpected
    known: dict[str, Any] = node.get("properties", {})
    return [
        (("properties", name), known.get(name, {"type": _type_of(value[name])}))
        for name in unexpected
        if not holds_hidden(name)
    ]


def _type_of(value: Any) -> str:
    return min(json_types(value))  # "integer" stands before "number"


_WAYS: Final[dict[str, _Propose]] = {
    "maximum": _move_bound("maximum", lambda value: value),
    "minimum": _move_bound("minimum", lambda value: value),
    **{name: _move_bound(name, len) for name in ("maxLength", "minLength", "maxItems", "minItems")},
    "enum": _add_choice,
    "type": _add_type,
    "required": _drop_required,
    "additionalProperties": _declare_names,
}


def _node_at(schema: Any, path: list[Any]) -> dict[str, Any] | None:
    node: Any = schema
    for step in path:
        if is_object(node):
            node = node.get(str(step))
        elif is_array(node) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            return None
    return node if is_object(node) else None
