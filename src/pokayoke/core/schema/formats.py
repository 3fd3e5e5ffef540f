"""The validator of each JSON Schema dialect, and the formats it asserts.

In: a schema, or the name of a format.
Out: a compiled validator, or the test of one format.
Never: a request to the network, or a format of our own making: the engine of jsonschema-rs decides about every text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pokayoke.core.schema.index import Draft

if TYPE_CHECKING:
    import jsonschema_rs


@cache
def _validator_classes() -> dict[Draft, Callable[..., jsonschema_rs.Validator]]:
    import jsonschema_rs  # noqa: PLC0415 - 10 ms of import, only where a schema is compiled

    return {
        "draft4": jsonschema_rs.Draft4Validator,
        "draft6": jsonschema_rs.Draft6Validator,
        "draft7": jsonschema_rs.Draft7Validator,
        "2019-09": jsonschema_rs.Draft201909Validator,
        "2020-12": jsonschema_rs.Draft202012Validator,
    }


def compile_validator(schema: Any, draft: Draft, **options: Any) -> jsonschema_rs.Validator:
    """Compile a schema with formats as the tools that declare them mean them.

    An `email` is one plain address: a display name could carry further header lines. A `time` may come without an
    offset, which most programs neither write nor read.

    Args:
        schema: the schema.
        draft: its dialect.
        options: further options of the validator.

    Raises:
        ValueError: the schema cannot be compiled.
    """
    import jsonschema_rs  # noqa: PLC0415 - as above

    address = jsonschema_rs.EmailOptions(allow_display_text=False)
    return _validator_classes()[draft](
        schema, email_options=address, formats={"time": _is_time}, offline=True, **options
    )


@cache
def _offset_time_check() -> Callable[[Any], bool]:
    return _validator_classes()["2020-12"]({"format": "time"}, validate_formats=True, offline=True).is_valid


def _is_time(text: str) -> bool:
    fits = _offset_time_check()
    return fits(text) or fits(f"{text}Z")


@lru_cache(maxsize=512)
def format_check(name: str, draft: Draft = "2020-12") -> Callable[[Any], bool] | None:
    """Return the test whether a value is a text in a format, or None if the dialect has no such format.

    The validator itself decides: it compiles with the option that refuses unknown formats.
    """
    schema = {"type": "string", "format": name}
    try:
        return compile_validator(schema, draft, validate_formats=True, ignore_unknown_formats=False).is_valid
    except ValueError:
        return None


def unknown_formats(nodes: Iterable[dict[str, Any]], draft: Draft) -> set[str]:
    """Return the names of formats that the validator does not assert."""
    names = (node.get("format") for node in nodes)
    return {name for name in names if isinstance(name, str) and format_check(name, draft) is None}
