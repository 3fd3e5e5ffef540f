"""What the arguments of a contract are checked for although they fit their schema.

In: the input schema of a contract and its fields about arguments; later arguments.
Out: at a glance, whether the rooms have to look; the texts that stand for no value.
Never: a check of what a schema cannot hold. That is decided once, while the contract is built, so a call of the usual
tool pays for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal

from pokayoke.core.check.placeholders import (
    has_call_markup,
    has_lost_backslash,
    is_placeholder,
    is_unseen,
    may_hold_lost_backslash,
    may_hold_markup,
    may_hold_unseen,
    search_placeholder,
    split_words,
)
from pokayoke.core.json.pointer import Path, walk_parts
from pokayoke.core.json.strict import may_hold_whole_double
from pokayoke.core.json.values import equal_json, is_array, is_object, properties_of
from pokayoke.core.schema.facts import SchemaFacts, facts_at, walk_objects
from pokayoke.core.schema.schema import Schema
from pokayoke.core.text.neutralise import may_hold_invisible

StandIn = Literal["lost_backslash", "leaked_markup", "placeholder", "unseen_text"]
"""A kind of text that stands for no value; also the code of its finding."""
_BACKSLASH, _LESS, _PLUS = map(ord, "\\<+")
_WHOLE = b".0"
_PATHS, _IDS = frozenset(("path", "paths")), frozenset(("id", "ids"))


class ArgumentChecks:
    """What the arguments of one contract are checked for beside their schema.

    A placeholder and markup of a call count where a text has a form: at an identity or a path, at a format, a
    pattern or a choice, and at a required id. Other texts are what they say.

    Args:
        schema: the schema of the arguments.
        guarded: arguments that identify the effect or are paths.
        literal: arguments whose texts are what they say, wherever they stand.

    Attributes:
        is_open: True if some object with declared properties takes others too.
    """

    __slots__ = (
        "_guarded",
        "_has_integers",
        "_has_open_parts",
        "_has_required_text",
        "_literal",
        "_may_hold_placeholder",
        "_names",
        "_schema",
        "is_open",
    )

    def __init__(self, schema: Schema, *, guarded: Collection[str] = (), literal: Collection[str] = ()) -> None:
        """Find what a schema can hold."""
        self._schema, self._guarded, self._literal = schema, frozenset(guarded), frozenset(literal)
        self._has_integers = any(map(_names_integer, schema.nodes))
        self._has_required_text = any(map(_requires_text, schema.nodes))
        self._may_hold_placeholder = bool(guarded) or any(
            self._has_form(node) or any(_is_form_name(name) for name in node.get("properties", ()))
            for node in schema.nodes
        )
        opened = [node for node in schema.nodes if node.get("properties") and not _is_closed(node)]
        self.is_open = bool(opened)
        self._has_open_parts = any(node is not schema.raw for node in opened)
        self._names = frozenset(opened[0]["properties"]) if opened else frozenset[str]()

    def may_need_change(self, value: dict[str, Any], dumped: bytes) -> bool:
        """Return whether valid arguments may hold something to correct or to refuse.

        Args:
            value: the arguments.
            dumped: their compact dump.
        """
        # The single signs are searched here: a call of a function costs more than each of them.
        has_escape = _BACKSLASH in dumped
        return (
            (
                self._may_hold_placeholder
                and (search_placeholder(dumped) is not None or (_LESS in dumped and may_hold_markup(dumped)))
            )
            or (has_escape and may_hold_lost_backslash(dumped))
            or (
                self._has_required_text
                and (has_escape or (not dumped.isascii() and may_hold_invisible(dumped)))
                and may_hold_unseen(dumped)
            )
            or (self._has_integers and (dumped.find(_WHOLE) >= 0 or _PLUS in dumped) and may_hold_whole_double(dumped))
            or (self.is_open and self._has_undeclared_names(value))
        )

    def find_stand_ins(self, value: Any, refused: Collection[Path] = ()) -> Iterator[tuple[Path, str, StandIn]]:
        """Yield path, text and kind of every text that stands for no value, in order.

        Args:
            value: the arguments.
            refused: places that the schema refuses; a placeholder there is the reason to name.
        """
        for path, text in walk_parts(value, str):
            if path and path[0] in self._literal:
                continue
            field = next((step for step in reversed(path) if not step.isdecimal()), "")
            is_plain = text.isascii() and text.isprintable()
            if not is_plain and has_lost_backslash(text):
                kind: StandIn = "lost_backslash"
            elif has_call_markup(text):
                kind = "leaked_markup"
            elif is_placeholder(text, field):
                kind = "placeholder"
            elif not is_plain and is_unseen(text):
                kind = "unseen_text"
            else:
                continue
            facts = facts_at(self._schema, path)
            if _is_named_in_schema(facts, text):
                continue
            if kind == "lost_backslash" or (
                self._is_required(path) if kind == "unseen_text" else path in refused or self._is_guarded(path, facts)
            ):
                yield path, text, kind

    def _is_guarded(self, path: Path, facts: SchemaFacts) -> bool:
        """Return whether a text at a place has a form, so that a placeholder or markup is no value there."""
        if path[:1] and path[0] in self._guarded:
            return True
        if any(map(self._has_form, facts.nodes)):
            return True
        while path and path[-1].isdecimal():
            path = path[:-1]
        if not path or path[-1] not in facts_at(self._schema, path[:-1]).properties:
            return False
        word = _last_word(path[-1])
        return word in _PATHS or (word in _IDS and self._is_required(path))

    def _is_required(self, path: Path) -> bool:
        return bool(path) and path[-1] in facts_at(self._schema, path[:-1]).required

    def _has_form(self, node: dict[str, Any]) -> bool:
        named = node.get("format")
        is_form = isinstance(named, str) and named != "regex" and named not in self._schema.unknown_formats
        return is_form or "pattern" in node or "enum" in node or "const" in node

    def _has_undeclared_names(self, value: dict[str, Any]) -> bool:
        if not self._has_open_parts:
            return not value.keys() <= self._names
        return any(
            facts.properties and not item.keys() <= set(facts.properties)
            for _, facts, item in walk_objects(value, self._schema)
        )


def _is_form_name(name: str) -> bool:
    return _last_word(name) in _PATHS | _IDS


def _last_word(name: str) -> str:
    return (split_words(name) or [""])[-1]


def _is_named_in_schema(facts: SchemaFacts, text: str) -> bool:
    """Return whether the schema itself names a text at a place, or takes patterns there."""
    listed = [*facts.choices, *facts.defaults]
    for node in facts.nodes:
        examples = node.get("examples")
        listed.extend(examples if is_array(examples) else ())
    return "regex" in facts.formats or any(equal_json(text, item) for item in listed)


def _requires_text(node: dict[str, Any]) -> bool:
    """Return whether a subschema requires a property that may be a text, as far as its own `type` tells."""
    required = node.get("required")
    fields = properties_of(node)
    types = [fields.get(name) for name in (required if is_array(required) else ())]
    return any(
        not is_object(one) or one.get("type", "string") == "string" or is_array(one.get("type")) for one in types
    )


def _names_integer(node: dict[str, Any]) -> bool:
    """Return whether a subschema names the type, or has an integer among its choices."""
    types = node.get("type")
    choices = node.get("enum")
    listed: list[Any] = [*(choices if is_array(choices) else ()), node.get("const")]
    return types == "integer" or (is_array(types) and "integer" in types) or any(type(one) is int for one in listed)


def _is_closed(node: dict[str, Any]) -> bool:
    return node.get("additionalProperties") is False or node.get("unevaluatedProperties") is False
