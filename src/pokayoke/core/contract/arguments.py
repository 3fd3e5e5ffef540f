"""The argument that the guard fills with the ledger key: in the schema of the tool, not in that of the model."""

from __future__ import annotations

from typing import Any, cast

from pokayoke.core.contract.rules import may_hold_type
from pokayoke.core.json.pointer import pointer_step
from pokayoke.core.json.values import is_object
from pokayoke.core.schema.schema import Schema
from pokayoke.errors import ContractError

KEY_STAND_IN = "0" * 64
"""Looks like a ledger key, where none is made yet."""


def remove_argument(tool: str, whole: Schema, argument: str) -> dict[str, Any]:
    """Return an input schema without one of its own properties.

    Raises:
        ContractError: the schema does not declare it as a text of its own, or would not take a ledger key there.
    """
    schema = cast(dict[str, Any], whole.raw)
    properties: dict[str, Any] = schema.get("properties", {})
    declared = properties.get(argument)
    if not is_object(declared):
        raise ContractError(
            f"{tool}: key_argument {argument!r} is no property of the input schema. Add it there as a string; "
            "the model will not see it."
        )
    if not may_hold_type(declared, "string"):
        raise ContractError(f"{tool}: key_argument {argument!r} must take a string, the guard fills it with one")
    for problem in whole.find_problems({argument: KEY_STAND_IN}):
        if problem.at == pointer_step(argument):
            raise ContractError(
                f"{tool}: key_argument {argument!r} takes no ledger key (64 hexadecimal digits): expected "
                f"{problem.expected}. Make it a plain string, and shorten or convert it in the handler"
            )
    return {
        **schema,
        "properties": {name: value for name, value in properties.items() if name != argument},
        **({"required": [name for name in schema["required"] if name != argument]} if "required" in schema else {}),
    }


def refuse_argument(schema: dict[str, Any], argument: str) -> dict[str, Any]:
    """Return an input schema that refuses an argument it does not declare; the same one if it does already.

    A model that could send the key along would make two effects out of one: the key is made from all
    arguments, and the target would drop no repetition.
    """
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        return schema
    return {**schema, "allOf": [*schema.get("allOf", ()), {"not": {"required": [argument]}}]}
