"""Which valid arguments may still hold something to correct or to refuse, told at a glance.

In: the input schema of a contract, and later valid arguments with their dump.
Out: False if the arguments are certainly fine as they are, which is the usual case.
Never: a decision. True only means that the rooms look.

What a schema cannot hold is decided once, while the contract is built: a call of the usual tool pays for nothing.
"""

from __future__ import annotations

from typing import Any

from pokayoke.core.check.placeholders import may_hold_placeholder
from pokayoke.core.json.strict import may_hold_whole_double
from pokayoke.core.json.values import is_array
from pokayoke.core.schema.facts import walk_facts
from pokayoke.core.schema.schema import Schema


class ArgumentChecks:
    """What the valid arguments of one contract are checked for.

    Attributes:
        is_open: True if some object with declared properties takes others too.
    """

    __slots__ = ("_has_integers", "_has_open_parts", "_names", "_schema", "is_open")

    def __init__(self, schema: Schema) -> None:
        """Find what a schema can hold."""
        self._schema = schema
        self._has_integers = any(map(_names_integer, schema.nodes))
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
        return (
            may_hold_placeholder(dumped)
            or (self._has_integers and may_hold_whole_double(dumped))
            or (self.is_open and self._has_undeclared_names(value))
        )

    def _has_undeclared_names(self, value: dict[str, Any]) -> bool:
        if not self._has_open_parts:
            return not value.keys() <= self._names
        return any(
            facts.properties and not item.keys() <= set(facts.properties)
            for _, facts, item in walk_facts(value, self._schema, (dict,))
        )


def _names_integer(node: dict[str, Any]) -> bool:
    """Return whether a subschema names the type, or has an integer among its choices."""
    types = node.get("type")
    choices = node.get("enum")
    listed: list[Any] = [*(choices if is_array(choices) else ()), node.get("const")]
    return types == "integer" or (is_array(types) and "integer" in types) or any(type(one) is int for one in listed)


def _is_closed(node: dict[str, Any]) -> bool:
    return node.get("additionalProperties") is False or node.get("unevaluatedProperties") is False
