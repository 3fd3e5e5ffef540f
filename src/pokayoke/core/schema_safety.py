"""What a schema must fulfil before it is compiled: bounded, self-contained, ending."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from pokayoke.errors import ContractError

Draft = Literal["draft4", "draft6", "draft7", "2019-09", "2020-12"]

MAX_SCHEMA_NODES = 100_000
MAX_SCHEMA_DEPTH = 128

_DRAFTS: dict[str, Draft] = {
    "http://json-schema.org/draft-04/schema": "draft4",
    "http://json-schema.org/draft-06/schema": "draft6",
    "http://json-schema.org/draft-07/schema": "draft7",
    "http://json-schema.org/schema": "draft7",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
}


class SchemaMap(msgspec.Struct, frozen=True):
    """A schema and the facts about it that later rooms need."""

    root: dict[str, Any] | bool
    draft: Draft
    resources: dict[str, Any]
    unknown_formats: tuple[str, ...] = ()


def inspect_schema(
    schema: dict[str, Any] | bool, *, where: str, resources: Mapping[str, Any], draft: Draft | None
) -> SchemaMap:
    """Copy a schema, refusing what is no JSON or out of bounds."""
    if not isinstance(cast(object, schema), dict | bool):
        raise ContractError(f"{where}: a JSON Schema is a dict or a bool, not {type(schema).__name__}")
    budget = [MAX_SCHEMA_NODES]
    root = copy_json(schema, where, budget, 0)
    named = str(root.get("$schema", "")).rstrip("#") if isinstance(root, dict) else ""
    return SchemaMap(
        root=root,
        draft=_DRAFTS.get(named, draft or "2020-12"),
        resources={uri: copy_json(document, uri, budget, 0) for uri, document in resources.items()},
    )


def copy_json(value: Any, where: str, budget: list[int], depth: int) -> Any:
    """Return a private copy of a JSON value.

    Raises:
        ContractError: it is too large, too deep, or holds something that is not JSON.
    """
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_SCHEMA_DEPTH:
        raise ContractError(
            f"{where}: the schema has more than {MAX_SCHEMA_NODES} values or {MAX_SCHEMA_DEPTH} levels"
        )
    if isinstance(value, dict):
        copied: dict[str, Any] = {}
        for key, item in cast(dict[Any, Any], value).items():
            if not isinstance(key, str):
                raise ContractError(f"{where}: the key {key!r} is not a string")
            copied[key] = copy_json(item, where, budget, depth + 1)
        return copied
    if isinstance(value, list | tuple):
        return [copy_json(item, where, budget, depth + 1) for item in cast(list[Any], value)]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ContractError(f"{where}: {value!r} is not a JSON value")
