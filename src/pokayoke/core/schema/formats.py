"""The validator classes of the JSON Schema dialects, and the formats they know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pokayoke.core.schema.index import Draft

if TYPE_CHECKING:
    import jsonschema_rs


@cache
def validator_classes() -> dict[Draft, Callable[..., jsonschema_rs.Validator]]:
    """Return the validator class of each dialect."""
    import jsonschema_rs  # noqa: PLC0415 - 10 ms of import, only where a schema is compiled

    return {
        "draft4": jsonschema_rs.Draft4Validator,
        "draft6": jsonschema_rs.Draft6Validator,
        "draft7": jsonschema_rs.Draft7Validator,
        "2019-09": jsonschema_rs.Draft201909Validator,
        "2020-12": jsonschema_rs.Draft202012Validator,
    }


@lru_cache(maxsize=512)
def format_check(name: str, draft: Draft = "2020-12") -> Callable[[Any], bool] | None:
    """Return the test whether a value is a text in a format, or None if the dialect has no such format.

    The validator itself decides: it compiles with the option that refuses unknown formats.
    """
    schema = {"type": "string", "format": name}
    try:
        compiled = validator_classes()[draft](schema, validate_formats=True, ignore_unknown_formats=False, offline=True)
    except ValueError:
        return None
    return compiled.is_valid


def unknown_formats(nodes: Iterable[dict[str, Any]], draft: Draft) -> set[str]:
    """Return the names of formats that the validator does not assert."""
    names = (node.get("format") for node in nodes)
    return {name for name in names if isinstance(name, str) and format_check(name, draft) is None}
