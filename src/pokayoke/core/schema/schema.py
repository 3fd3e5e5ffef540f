"""Compiled JSON Schemas, which describe the input and the output of every tool.

In: a schema, and later values.
Out: whether a value is valid, and why not.
Never: network or file access.

`compile_schema` runs at registration and may take time. `Schema.is_valid` runs on every call and is the bound C method
of the validator. `core/schema/safety.py` refuses unsafe schemas before they are compiled, and
`core/schema/problems.py` words the problems of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pokayoke.core.schema.completeness import is_sealed
from pokayoke.core.schema.cost import Limit, find_exceeded_limit, limit_validator, value_limits
from pokayoke.core.schema.explain import Effort, explain_problems
from pokayoke.core.schema.formats import compile_validator
from pokayoke.core.schema.index import Draft, ExplanationCache, SchemaMap
from pokayoke.core.schema.problems import SchemaProblem, build_problem, unusable_problem
from pokayoke.core.schema.safety import inspect_schema
from pokayoke.errors import ContractError

if TYPE_CHECKING:
    import jsonschema_rs

PATTERN_STEPS = 2_000
"""Most steps back of one pattern with look-around on one text; past them the text is refused.

Each may pass over the whole text, so together they bound the time: some seconds if pattern and text are hostile.
"""


class Schema:
    """A compiled schema. Made by `compile_schema`; safe to share between threads.

    Attributes:
        nodes: the schema and all its subschemas; they must not be changed.
        raw: a private copy of the schema; it must not be changed.
        draft: the dialect it is read in, such as `2020-12`.
        is_valid: the validator's own method: `is_valid(value) -> bool`. It raises `ValueError` for a value that is
            not JSON (a surrogate, an object, a key that is no string), and must not get a value nested deeper than
            `MAX_DEPTH`. Use it for values from the strict parser, and `accepts` for all others.
        unknown_formats: format names this library does not know. They are annotations: the specification says so,
            and vendors' `format: "int32"` must not break a tool.
        limits: how large a value may be because the schema is costly (then `is_valid` is not the bare method);
            () for the usual schema.
        places: the cache of `core/schema/facts.py` and `core/check/findings.py` about places of the schema.
    """

    __slots__ = ("_known", "_map", "draft", "is_valid", "limits", "nodes", "places", "raw", "unknown_formats")

    def __init__(
        self,
        schema_map: SchemaMap,
        is_valid: Callable[[Any], bool],
        compile_lone: Callable[[Any], jsonschema_rs.Validator],
        limits: tuple[Limit, ...] = (),
    ) -> None:
        """Store the validator's method and the facts found by the inspection."""
        self._map = schema_map
        self._known = ExplanationCache(schema_map.draft, compile_lone)  # filled on the first problems, once per keyword
        self.places: dict[Any, Any] = {}
        self.nodes = schema_map.nodes
        self.raw: dict[str, Any] | bool = schema_map.root
        self.draft: Draft = schema_map.draft
        self.unknown_formats: tuple[str, ...] = schema_map.unknown_formats
        self.is_valid = is_valid
        self.limits = limits

    def __repr__(self) -> str:
        """Name the draft; the schema itself may be long."""
        return f"<Schema {self.draft}>"

    def resolve_ref(self, node: dict[str, Any]) -> Any:
        """Return what the `$ref` of one of this schema's own subschemas points to, or None."""
        return self._map.targets.get(id(node))

    def has_pattern_for(self, node: dict[str, Any], name: str) -> bool:
        """Return whether a `patternProperties` of one of this schema's own subschemas takes a name."""
        patterns: dict[str, Any] = node.get("patternProperties", {})
        return any(self._known.is_pattern_match(node, pattern, name) for pattern in patterns)

    def accepts(self, value: Any) -> bool:
        """Return whether a Python value of any kind is valid; False for values that are not JSON.

        Fails closed: deep nesting, non-finite numbers and every exception of the validator are False.
        """
        if unusable_problem(value) is not None:
            return False
        try:
            return self.is_valid(value)
        except Exception:  # noqa: BLE001 - fail closed: what cannot be validated is not valid
            return False

    def find_problems(
        self, value: Any, *, parsed: bool = False, effort: Effort | None = None
    ) -> tuple[SchemaProblem, ...]:
        """Return all problems of a value, in the order of the schema; () if it is valid.

        There are at most `MAX_PROBLEMS`, and at least one for a value that `accepts` refuses.

        Args:
            value: any Python value.
            parsed: True if the strict parser made it, so it is certainly JSON.
            effort: counts the steps of the explanation.
        """
        broken = None if parsed else unusable_problem(value)
        if broken is not None:
            return (broken,)
        try:
            if self.is_valid(value):
                return ()
        except Exception:  # noqa: BLE001 - fail closed: what cannot be validated is not valid
            return (build_problem("", "json", "a value that can be validated", value, {}, self.raw),)
        beyond = find_exceeded_limit(value, self.limits) if self.limits else None
        if beyond is not None:
            return (build_problem("", "schema", beyond.expected, value, {"limit": beyond.most}, self.raw),)
        return explain_problems(value, self._map, self._known, effort)

    def is_provably_complete(self, value: Any) -> bool:
        """Return whether the schema proves that nothing was lost after a value.

        True only if the value is valid and no longer value (one more property or item, at the top or anywhere along
        its last path) could be valid too. Then a text that ends after this value without its closing brackets can
        only mean this value. A keyword that the proof does not understand makes it False. The reader decides whether
        a number at the very end of a text may itself be cut.
        """
        return self.accepts(value) and is_sealed(value, self._map)


def compile_schema(
    schema: dict[str, Any] | bool,
    *,
    where: str = "schema",
    formats: bool = True,
    resources: Mapping[str, Any] | None = None,
    draft: Draft | None = None,
) -> Schema:
    """Check a schema and compile it. No socket is opened and no file is read.

    Args:
        schema: a JSON Schema; `$schema` chooses the dialect.
        where: the name of the schema in messages, such as `input schema of 'pay'`.
        formats: True asserts the formats the library knows; False makes all of them annotations.
        resources: documents that `$ref` may reach, by absolute URI; nothing is ever fetched.
        draft: the dialect where `$schema` is absent; 2020-12 if not given.

    Raises:
        ContractError: the schema is invalid, refers to a document that was not passed in, loops or explodes, is too
            large or too deep, or has a pattern that no engine takes.
    """
    schema_map = inspect_schema(schema, where=where, resources=resources or {}, draft=draft)
    try:
        compiled, compile_lone = _compile_bounded(schema_map, formats=formats)
    except Exception as exc:  # noqa: BLE001 - whatever the compiler raises, the schema cannot be used
        raise ContractError(_compile_error_text(where, exc)) from None
    limits = value_limits(schema_map.patterns, schema_map.paths, unique=schema_map.unique)
    return Schema(schema_map, limit_validator(compiled.is_valid, limits), compile_lone, limits)


Compiler = Callable[[Any], "jsonschema_rs.Validator"]


def _compile_bounded(schema_map: SchemaMap, *, formats: bool) -> tuple[jsonschema_rs.Validator, Compiler]:
    """Compile a schema with the linear-time engine; one with a look-around pattern with the engine that goes back.

    Returns:
        The validator, and the function that compiles a subschema alone in the same way.
    """
    from jsonschema_rs import FancyRegexOptions, RegexOptions  # noqa: PLC0415 - 10 ms of import, as in formats.py

    size = _pattern_size_limit(len(schema_map.patterns))
    registry: dict[str, Any] = {"registry": _build_registry(schema_map)} if schema_map.resources else {}

    def compile_with(engine: RegexOptions | FancyRegexOptions) -> tuple[jsonschema_rs.Validator, Compiler]:
        options: dict[str, Any] = {
            "draft": schema_map.draft,
            "validate_formats": formats,
            "ignore_unknown_formats": True,
            "pattern_options": engine,
        }
        return compile_validator(schema_map.root, **options, **registry), partial(compile_validator, **options)

    try:
        return compile_with(RegexOptions(size_limit=size))
    except Exception as exc:
        if not _is_pattern_error(exc):
            raise
    return compile_with(FancyRegexOptions(backtrack_limit=PATTERN_STEPS, size_limit=size))


def _pattern_size_limit(patterns: int) -> int:
    """Return the size limit of one compiled pattern in bytes, which bounds the size of all of them.

    It is 10 MB, the engine's own default, for up to twenty patterns, and half a megabyte each for thousands:
    otherwise compiling a schema could take minutes.
    """
    return max(500_000, min(10_000_000, 200_000_000 // max(patterns, 1)))


def _build_registry(schema_map: SchemaMap) -> jsonschema_rs.Registry:
    """Return the documents that were passed in; those without `$schema` have the dialect of the schema."""
    import jsonschema_rs  # noqa: PLC0415 - as above

    drafts: dict[Draft, int] = {
        "draft4": jsonschema_rs.Draft4,
        "draft6": jsonschema_rs.Draft6,
        "draft7": jsonschema_rs.Draft7,
        "2019-09": jsonschema_rs.Draft201909,
        "2020-12": jsonschema_rs.Draft202012,
    }
    documents = list(schema_map.resources.items())
    return jsonschema_rs.Registry(documents, draft=drafts[schema_map.draft], retriever=_refuse_retrieval)


def _refuse_retrieval(uri: str) -> Any:
    """Refuse to retrieve a document that was not passed in."""
    raise LookupError(f"{uri} was not handed in")


def _error_text(exc: Exception) -> str:
    return str(getattr(exc, "message", "") or exc)[:300]


def _is_pattern_error(exc: Exception) -> bool:
    """Return whether a schema does not compile because of a regular expression."""
    return '"regex"' in _error_text(exc)


def _compile_error_text(where: str, exc: Exception) -> str:
    """Return why a schema does not compile, and what to change."""
    text = _error_text(exc)
    if _is_pattern_error(exc):
        return (
            f"{where}: the pattern {text.removesuffix(' is not a ' + chr(34) + 'regex' + chr(34))} cannot be used "
            "(invalid, or with huge repetitions). Write it otherwise, or check it in an invariant."
        )
    path = "".join(f"/{part}" for part in getattr(exc, "instance_path", ()))
    if path.endswith("/type"):
        kinds = "array, boolean, integer, null, number, object, string"
        text = f"{text.partition(' is not ')[0]} is no type. Use one of {kinds}"
    return f"{where}: not a valid JSON Schema{' at ' + path if path else ''}: {text}"
