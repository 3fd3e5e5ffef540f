"""Checks of a schema before it is compiled: self-contained, bounded, and free of endless loops.

In: a schema and the documents it may refer to.
Out: private copies with every reference resolved, or a ContractError.
Never: an exponential `$ref`/`allOf` schema, a loop of `$ref`, a remote or `file:` reference.

The validator memoises recursive references, so a schema that recurses while it consumes input costs linear time. All
other references are evaluated path by path, and the number of such paths is bounded here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote, urljoin

from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.schema.cost import enum_cost
from pokayoke.core.schema.formats import unknown_formats
from pokayoke.core.schema.index import (
    IN_PLACE_LISTS,
    IN_PLACE_MAPS,
    IN_PLACE_ONE,
    LEGACY,
    Draft,
    SchemaMap,
    iter_subschemas,
)
from pokayoke.errors import ContractError

MAX_SCHEMA_VALUES = 100_000
"""Most JSON values in one schema and the documents passed in with it."""
MAX_SCHEMA_DEPTH = 128
"""Deepest nesting of a schema document."""
MAX_CHAIN = 300
"""Longest chain of subschemas, through `$ref`, that does not return to itself."""
MAX_PATHS = 5_000
"""Most paths on which one place of a value is evaluated (each costs 20 to 300 ns per call)."""

_PLACES = {"properties": "named", "prefixItems": "named", "contains": "found"}
_ASKED_AGAIN = 3  # how often the validator evaluates the keywords next to an unevaluated* keyword, at most (measured)

_DRAFTS: dict[str, Draft] = {
    "json-schema.org/draft-04/schema": "draft4",
    "json-schema.org/draft-06/schema": "draft6",
    "json-schema.org/draft-07/schema": "draft7",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
}
_BUNDLED_URIS = ("http://json-schema.org/draft-0", "https://json-schema.org/draft/")
_NEVER_APPLIED = ("$defs", "definitions", "contentSchema")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")  # read last to first: the target of $ref is kept


def inspect_schema(
    schema: dict[str, Any] | bool, *, where: str, resources: Mapping[str, Any], draft: Draft | None
) -> SchemaMap:
    """Copy a schema and the documents it may refer to, and follow every reference.

    Raises:
        ContractError: it is no JSON, exceeds a bound, refers to something absent, loops or explodes.
    """
    if not isinstance(cast(object, schema), dict | bool):
        raise ContractError(f"{where}: a JSON Schema is a dict or a bool, not {type(schema).__name__}")
    return _Inspector(where, schema, resources, draft).run()


class _Inspector:
    """The state of one call of `inspect_schema`."""

    def __init__(
        self, where: str, schema: dict[str, Any] | bool, resources: Mapping[str, Any], draft: Draft | None
    ) -> None:
        self.where = where
        self.budget = MAX_SCHEMA_VALUES
        self.root = self.copy_value(schema, 0)
        self.resources = {uri.removesuffix("#"): self.copy_value(document, 0) for uri, document in resources.items()}
        self.draft: Draft = declared_draft(self.root) or draft or "2020-12"
        self.documents: dict[str, Any] = {}  # base URI -> schema resource
        self.anchors: dict[tuple[str, str], Any] = {}
        self.used: dict[str, Any] = {}  # the passed-in documents that a reference uses
        self.nodes: list[dict[str, Any]] = []
        self.bases: dict[int, str] = {}  # id of a schema object -> its base URI
        self.overriding_refs: set[int] = set()  # ids of schema objects whose $ref overrides their other keywords
        self.targets: dict[int, Any] = {}  # id of a schema object -> the target of its $ref
        self.weights: dict[int, tuple[int, int]] = {}
        self.refs: list[tuple[dict[str, Any], str]] = []  # read from its end

    def run(self) -> SchemaMap:
        """Index the schema, resolve its references, and refuse loops and explosions."""
        self.documents[""] = self.root
        self.check_dialect(self.root)
        self.index_schema(self.root, "", self.draft)
        while self.refs:  # resolving may index more: targets below keywords that no draft knows
            node, reference = self.refs.pop()
            self.targets[id(node)] = self.resolve_reference(node, reference)
        self.refuse_cycles()
        paths, compared = self.measure_paths(self.root, set(), 0)
        return SchemaMap(
            root=self.root,
            draft=self.draft,
            resources=self.used,
            targets=self.targets,
            overriding_refs=self.overriding_refs,
            nodes=tuple(self.nodes),
            unknown_formats=tuple(sorted(unknown_formats(self.nodes, self.draft))),
            patterns=tuple(pattern for node in self.nodes for pattern in _iter_patterns(node)),
            paths=paths + compared,
            unique=any(node.get("uniqueItems") is True for node in self.nodes),
        )

    def build_error(self, why: str) -> ContractError:
        """Return the error that names the schema."""
        return ContractError(f"{self.where}: {why}")

    def copy_value(self, value: Any, depth: int) -> Any:
        """Return a private copy of a JSON value.

        Raises:
            ContractError: it is no JSON value, too large or too deep.
        """
        self.budget -= 1
        if self.budget < 0:
            raise self.build_error(f"the schema has more than {MAX_SCHEMA_VALUES} values")
        if depth > MAX_SCHEMA_DEPTH:
            raise self.build_error(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        if is_object(value):
            copied: dict[str, Any] = {}
            for key, item in value.items():
                if not isinstance(cast(object, key), str):
                    raise self.build_error(f"the key {key!r} is not a string")
                copied[key] = self.copy_value(item, depth + 1)
            return copied
        if isinstance(value, list | tuple):
            copies: list[Any] = []
            for item in cast(tuple[Any, ...], value):
                copies.append(self.copy_value(item, depth + 1))  # noqa: PERF401 - a comprehension doubles the frames
            return copies
        if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        raise self.build_error(f"{value!r} is not a JSON value")

    def index_schema(self, node: Any, base: str, draft: Draft) -> None:
        """Record the base URI, the anchors and the references of a schema and all its subschemas."""
        if not is_object(node) or id(node) in self.bases:
            return
        schema = node
        if schema is not self.root:
            _allow_null(schema)
        if draft in LEGACY and "$ref" in schema:
            self.overriding_refs.add(id(schema))
        else:
            base = self.register_ids(schema, base, draft)
        self.bases[id(schema)] = base
        self.nodes.append(schema)
        for keyword in _REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str):
                self.refs.append((schema, reference))
        for _, child in iter_subschemas(schema):
            self.index_schema(child, base, draft)

    def register_ids(self, schema: dict[str, Any], base: str, draft: Draft) -> str:
        """Record the names that a schema gives itself, and return the base URI of its content."""
        own = schema.get("id" if draft == "draft4" else "$id")
        if isinstance(own, str):
            if own.startswith("#"):
                self.anchors[base, own[1:]] = schema
            else:
                base = _resolve_uri(base, own).partition("#")[0]
                self.documents[base] = schema
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                self.anchors[base, name] = schema
        return base

    def resolve_reference(self, node: dict[str, Any], reference: str) -> Any:
        """Return the target of a reference; True for a dialect's own meta-schema.

        Raises:
            ContractError: the target was not passed in.
        """
        base, _, fragment = _resolve_uri(self.bases[id(node)], reference).partition("#")
        document = self.get_document(base)
        if document is None:
            if base.startswith(_BUNDLED_URIS):
                return True
            raise self.build_error(
                f"$ref {reference!r} points outside the schema. Nothing is ever fetched: put the target under $defs, "
                "or hand the document in as schemas={uri: document}."
            )
        if fragment and not fragment.startswith("/"):
            if (base, fragment) not in self.anchors:
                raise self.build_error(f"$ref {reference!r}: there is no anchor {fragment!r}")
            return self.anchors[base, fragment]
        target: Any = document
        base = self.bases.get(id(target), base)
        for part in fragment.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(key)] if is_array(target) else target[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise self.build_error(f"$ref {reference!r} points to nothing") from None
            base = self.bases.get(id(target), base)
        self.index_schema(target, base, self.draft)
        return target

    def check_dialect(self, document: Any) -> None:
        """Refuse an unknown `$schema`: the meaning of its keywords would be a guess."""
        uri = document.get("$schema") if is_object(document) else None
        if (
            uri is not None
            and declared_draft(document) is None
            and self.get_document(str(uri).removesuffix("#")) is None
        ):
            raise self.build_error(
                f"the dialect $schema {uri!r} is unknown. Leave it out for 2020-12, or name a draft from 4 on"
            )

    def get_document(self, uri: str) -> Any:
        """Return the schema resource with a URI; a passed-in document is indexed on first use."""
        if uri not in self.documents and uri in self.resources:
            document = self.documents[uri] = self.used[uri] = self.resources[uri]
            self.check_dialect(document)
            self.index_schema(document, uri, declared_draft(document) or self.draft)
        return self.documents.get(uri)

    def refuse_cycles(self) -> None:
        """Refuse a cycle of subschemas that all apply to the same value: it consumes nothing."""
        done: set[int] = set()
        for start in self.nodes:
            path: dict[int, Iterator[Any]] = {}
            pending: list[dict[str, Any]] = [start]
            while pending:
                node = pending[-1]
                if id(node) in done:
                    pending.pop()
                    continue
                if id(node) not in path:
                    path[id(node)] = (child for place, child in self.iter_edges(node) if place == "here")
                child = next(path[id(node)], None)
                if child is None:
                    done.add(id(node))
                    path.pop(id(pending.pop()))
                elif id(child) in path:
                    raise self.build_error("a $ref leads back to itself without consuming any input, so it never ends")
                elif is_object(child):
                    pending.append(child)

    def measure_paths(self, node: Any, open_nodes: set[int], depth: int) -> tuple[int, int]:
        """Return the highest number of paths on which one place is evaluated, and the cost of its comparisons.

        Branches that apply to the same value add up. Of named properties the heaviest counts, because each is
        another place. Wildcards (items, pattern properties) may all apply to one place. `unevaluatedProperties` and
        `unevaluatedItems` evaluate their branches again. A reference back to a schema in `open_nodes` counts once,
        because the validator memoises it.
        """
        if not is_object(node) or id(node) in open_nodes:
            return 1, 0
        known = self.weights.get(id(node))
        if known is not None:
            return known
        if depth > MAX_CHAIN:
            raise self.build_error(f"a chain of more than {MAX_CHAIN} subschemas")
        open_nodes.add(id(node))
        total, widest, compared, most = 1, 0, enum_cost(node), 0
        asked = _ASKED_AGAIN if "unevaluatedProperties" in node or "unevaluatedItems" in node else 1
        for place, child in self.iter_edges(node):
            weight, more = self.measure_paths(child, open_nodes, depth + 1)
            if place == "named":
                widest, most = max(widest, weight), max(most, more)
            else:
                times = 1 if place == "wild" else asked
                total, compared = total + weight * times, compared + more * times
        open_nodes.discard(id(node))
        if total + widest > MAX_PATHS:
            raise self.build_error(
                f"one place of a value would be checked on more than {MAX_PATHS} paths: $ref and allOf/anyOf multiply"
            )
        found = self.weights[id(node)] = total + widest, compared + most
        return found

    def iter_edges(self, schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield (place, subschema): `here` applies to the same value, the others to a part of it.

        `found` is `contains`: the items it matches count as evaluated, like those of a branch.
        """
        if id(schema) in self.targets:
            yield "here", self.targets[id(schema)]
            if id(schema) in self.overriding_refs:
                return
        for keyword, child in iter_subschemas(schema):
            if keyword in _NEVER_APPLIED:
                continue
            if keyword in IN_PLACE_ONE or keyword in IN_PLACE_LISTS or keyword in IN_PLACE_MAPS:
                yield "here", child
            else:
                yield _PLACES.get(keyword, "wild"), child


def declared_draft(schema: Any) -> Draft | None:
    """Return the dialect that `$schema` names, or None."""
    named = schema.get("$schema") if is_object(schema) else None
    if not isinstance(named, str):
        return None
    return _DRAFTS.get(named.removesuffix("#").partition("://")[2])


_KEPT_OUTSIDE = frozenset(("$id", "id", "$schema", "$anchor", "$dynamicAnchor", "$defs", "definitions"))
_ABOUT = frozenset(("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"))


def _allow_null(schema: dict[str, Any]) -> None:
    """Write OpenAPI's `nullable: true` as JSON Schema, in place; both say the same then."""
    if schema.get("nullable") is not True:
        return
    del schema["nullable"]
    named = schema.get("type")
    if named is not None and _NULL_REFUSERS.isdisjoint(schema):
        schema["type"] = list(dict.fromkeys([*([named] if isinstance(named, str) else named), "null"]))
        if is_array(schema.get("enum")) and None not in schema["enum"]:
            schema["enum"].append(None)
        return
    inner = {word: schema.pop(word) for word in list(schema) if word not in _KEPT_OUTSIDE | _ABOUT}
    if inner:
        schema["anyOf"] = [inner, {"type": "null"}]


_NULL_REFUSERS = IN_PLACE_ONE | IN_PLACE_LISTS | {"$ref", "$dynamicRef", "$recursiveRef", "const"}


def _iter_patterns(node: dict[str, Any]) -> Iterator[str]:
    """Yield the regular expressions that a schema holds itself."""
    if isinstance(node.get("pattern"), str):
        yield node["pattern"]
    if is_object(node.get("patternProperties")):
        yield from node["patternProperties"]


def _resolve_uri(base: str, reference: str) -> str:
    """Resolve a URI reference (RFC 3986); also for `urn:` bases, which urljoin does not know."""
    if reference.startswith("#") or not reference:
        return base.partition("#")[0] + reference
    return urljoin(base, reference)
