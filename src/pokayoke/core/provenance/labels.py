"""What a tool may do with values: labels that somebody wrote, and what its name and schema say where nobody did.

In: name, description, input schema, written labels; the names of the other tools that write.
Out: `ToolLabels`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, cast

import msgspec

from pokayoke.core.provenance.vocabulary import (
    COMMON_NOUNS,
    HOST_NAMES,
    IDENTIFIER_NAMES,
    READ_VERBS,
    TEXT_NAMES,
    VERBS,
    WHEN_NAMES,
    WHO_NAMES,
    Act,
)

ArgumentKind = Literal["who", "thing", "amount", "when", "text", "choice"]
_REMOVES: Final[frozenset[Act]] = frozenset({"remove"})
_WHO_FORMATS: Final = frozenset({"email", "idn-email", "uri", "uri-reference", "hostname", "idn-hostname", "iri"})
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


class Labels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Labels that a host writes for a tool. None means: derive it.

    Args:
        effect: `read`, `write` or `destructive`; None goes by the contract and, for a write, by the tool's name.
        open_world: True if it reaches people or systems outside; None goes by the contract, then by its arguments.
        trusted: True if nobody else can put text into its output.
        directory: True if operators curate what it lists.
        private: True if its output is not for outsiders.
        targets: the arguments that name whom or what it acts on.
        amounts: the arguments that are quantities.
    """

    effect: Literal["read", "write", "destructive"] | None = None
    open_world: bool | None = None
    trusted: bool = False
    directory: bool = False
    private: bool = False
    targets: tuple[str, ...] | None = None
    amounts: tuple[str, ...] = ()


class ToolLabels(msgspec.Struct, frozen=True, kw_only=True):
    """What provenance goes by for one tool.

    Args:
        name: its name.
        effect: `read`, `write` or `destructive`.
        open_world: True if it reaches people or systems outside.
        trusted: True if nobody else can put text into its output.
        directory: True if operators curate what it lists.
        private: True if its output is not for outsiders.
        acts: the kinds of acts a user would have to ask for; empty where no list knows its verb.
        verb: its own verb, "" if there is none.
        kinds: by argument, what its values are.
        hosts: arguments that name a host it contacts.
        makes: True if it surely writes, so that its answer shows what this run made. A tool of which nobody knows may
            as well read what others wrote.
        words: the words of its name, which make a small number an identity ("repair 501").
    """

    name: str
    effect: Literal["read", "write", "destructive"]
    open_world: bool = False
    trusted: bool = False
    directory: bool = False
    private: bool = False
    acts: frozenset[Act] = frozenset()
    verb: str = ""
    kinds: dict[str, ArgumentKind] = {}
    hosts: frozenset[str] = frozenset()
    makes: bool = False
    words: tuple[str, ...] = ()

    @property
    def reads(self) -> bool:
        """True if it changes nothing."""
        return self.effect == "read"


@lru_cache(4_096)
def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in camel case, snake case or with dots, folded."""
    return tuple(word.lower() for word in _PARTS.findall(name))


def derive_labels(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    written: Labels | None = None,
) -> ToolLabels:
    """Return the labels of a tool: what is written, else what its name, description and schema say.

    Args:
        name: its name.
        description: its description; only the first word counts, where the name has no verb.
        schema: its input schema.
        written: labels of the host.
    """
    label = written or Labels()
    words = name_words(name)
    verb = _find_verb(words, description)
    acts = _acts_of(verb)
    effect = label.effect or ("read" if _is_read(words, verb) else "write")
    if effect == "destructive":
        acts = acts.union(_REMOVES)
    elif effect == "read":
        acts = frozenset[Act]()
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    kinds: dict[str, ArgumentKind] = {
        one: _kind_of(one, _as_node(node, schema), label) for one, node in properties.items()
    }
    open_world = label.open_world
    if open_world is None:
        open_world = effect != "read" and (not acts.isdisjoint({"send", "pay", "share"}) or "who" in kinds.values())
    hosts = frozenset(
        one
        for one in properties
        if not HOST_NAMES.isdisjoint(name_words(one))
        or _as_node(properties[one], schema).get("format") in ("uri", "hostname")
    )
    return ToolLabels(
        name=name,
        effect=effect,
        open_world=open_world,
        trusted=label.trusted,
        directory=label.directory,
        private=label.private,
        acts=acts,
        verb=verb,
        kinds=kinds,
        hosts=hosts,
        makes=effect != "read" and (bool(acts) or label.effect is not None),
        words=words,
    )


def withdraw_trust(labels: Mapping[str, ToolLabels]) -> dict[str, ToolLabels]:
    """Return the labels of a catalogue's tools in which no store that the agent writes is trusted.

    A tool that reads what another one stores shares a noun with it. What an attacker has the agent store comes back
    from there in a later run, so trust ends without any memory of runs.
    """
    stored = {
        noun
        for one in labels.values()
        if not one.reads and not {"text", "thing"}.isdisjoint(one.kinds.values())
        for noun in _nouns_of(one)
    }
    return {
        name: msgspec.structs.replace(one, trusted=False) if one.trusted and _nouns_of(one) & stored else one
        for name, one in labels.items()
    }


# -- parts -----------------------------------------------------------------------------------------


def _nouns_of(labels: ToolLabels) -> frozenset[str]:
    return frozenset(_singular(word) for word in labels.words if word != labels.verb)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") else word  # noqa: PLR2004 - "bus"


def _find_verb(words: tuple[str, ...], description: str) -> str:
    """Return the verb of a name, else the first word of the description, else the first word."""
    known = READ_VERBS.union(*VERBS.values())
    later = next((word for word in words[1:] if word in known and word not in COMMON_NOUNS), None)
    if words and words[0] in known and (later is None or words[0] not in COMMON_NOUNS):
        return words[0]
    if later is not None:
        return later
    first = name_words(description[:40])
    for word in (first[0], first[0].removesuffix("s")) if first else ():
        if word in known and word not in COMMON_NOUNS:
            return word
    return words[0] if words else ""


def _acts_of(verb: str) -> frozenset[Act]:
    return frozenset(act for act, verbs in VERBS.items() if verb in verbs)


def _is_read(words: tuple[str, ...], verb: str) -> bool:
    """Whether a name reads and does nothing else: `find_or_create` does."""
    others = {word for word in words if word != verb and word not in COMMON_NOUNS}
    return verb in READ_VERBS and others.isdisjoint(frozenset[str]().union(*VERBS.values()))


def _as_node(node: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an argument's values: of an array's items, of the branch of a union that is not null."""
    for _ in range(4):
        if not isinstance(node, Mapping):
            return {}
        node = cast("Mapping[str, Any]", node)
        ref = node.get("$ref")
        if isinstance(ref, str) and ref.startswith("#/$defs/"):
            node = cast("Mapping[str, Any]", schema.get("$defs") or {}).get(ref[8:], {})
            continue
        branches = [one for one in (node.get("anyOf") or node.get("oneOf") or ()) if one.get("type") != "null"]
        if branches:
            node = branches[0]
        elif "items" in node:
            node = node["items"]
        else:
            break
    return cast("Mapping[str, Any]", node) if isinstance(node, Mapping) else {}


def _kind_of(name: str, node: Mapping[str, Any], label: Labels) -> ArgumentKind:
    kind = _derive_kind(name, node)
    if name in label.amounts:
        return "amount"
    if label.targets is not None and label.effect != "read":
        if name in label.targets:
            return "thing" if kind in ("text", "choice", "amount", "when") else kind
        if kind in ("who", "thing") and "properties" not in node:  # a target may stand anywhere in an object
            return "choice"
    return kind


def _derive_kind(name: str, node: Mapping[str, Any]) -> ArgumentKind:
    words = name_words(name)
    types = node.get("type")
    if "enum" in node or "const" in node or types == "boolean":
        return "choice"
    if node.get("format") in _WHO_FORMATS:
        return "who"
    if node.get("format") in ("date", "date-time", "time"):
        return "when"
    named = not IDENTIFIER_NAMES.isdisjoint(words)
    if not WHO_NAMES.isdisjoint(words) and not (named and words[-1] in IDENTIFIER_NAMES):
        return "who"
    if not TEXT_NAMES.isdisjoint(words) and not named:
        return "text"
    if words and (words[0] in WHEN_NAMES or words[-1] in WHEN_NAMES):
        return "when"
    if types in ("number", "integer") and not named:
        return "amount"
    return "thing"
