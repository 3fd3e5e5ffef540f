"""The consistency rules of contracts. Every message says what to change.

In: a contract with compiled schemas, before it is used.
Out: its normalised fields, or a ContractError for the first contradiction.
Never: a check during a call.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast, get_args

from pokayoke.core.contract.arguments import declared_arguments, may_hold_type, parameters_of
from pokayoke.core.contract.limits import option_problems
from pokayoke.core.contract.names import name_problem
from pokayoke.core.contract.terms import (
    CHOICES,
    INVARIANT_TYPES,
    Envelope,
    Equal,
    LookupSafe,
    Polls,
    Repeats,
    Thread,
    envelope_problems,
    term_problems,
)
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.json.pointer import parse_pointer
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.policy import LimitPolicy, RetryPolicy
from pokayoke.core.provenance.labels import Labels
from pokayoke.core.schema.schema import Schema
from pokayoke.errors import ContractError

if TYPE_CHECKING:
    from pokayoke.core.contract.contract import Contract
    from pokayoke.core.contract.correctors import Correctors

_TUPLES = (
    *("identity", "sources", "volatile", "invariants", "roles", "quota", "literal", "redact"),
    *("no_effect_errors", "transient_errors"),
)
_TOO_WIDE = (Exception, RuntimeError, OSError, ValueError)


def normalise_fields(contract: Contract) -> dict[str, Any]:
    """Return the fields that are stored in another shape than given: lists become tuples.

    Raises:
        ContractError: a single string stands where several names belong.
    """
    changed: dict[str, Any] = {}
    for name in _TUPLES:
        value: Any = getattr(contract, name)
        if value is None and name in ("identity", "sources"):
            continue
        if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
            raise ContractError(f"{contract.name}: {name} is a tuple such as (a, b), not {value!r}")
        changed[name] = tuple(cast(list[Any], value))
    for name in ("paths", "urls", "correctors"):
        value = getattr(contract, name)
        if not isinstance(value, Mapping):
            raise ContractError(f"{contract.name}: {name} maps argument names to values, it is no {value!r}")
    if not isinstance(cast(object, contract.input_schema), Mapping):
        raise ContractError(f"{contract.name}: input_schema is a JSON Schema of an object")
    if contract.schemas is not None and not isinstance(cast(object, contract.schemas), Mapping):
        raise ContractError(
            f"{contract.name}: schemas maps absolute URIs to JSON Schemas, it is no {contract.schemas!r}"
        )
    if contract.polls is True:
        changed["polls"] = Polls()
    changed["paths"] = {argument: _normalise_roots(contract, argument) for argument in contract.paths}
    changed["correctors"] = {
        argument: tuple(cast(list[Any], entry)) if isinstance(entry, list | tuple) else entry
        for argument, entry in contract.correctors.items()
    }
    return changed


def _normalise_roots(contract: Contract, argument: str) -> tuple[str, ...]:
    given: Any = contract.paths[argument]
    roots = (given,) if isinstance(given, str) or hasattr(given, "__fspath__") else tuple(given)
    if not roots:
        raise ContractError(f"{contract.name}: paths[{argument!r}] names no root; give at least one directory")
    texts = tuple(root if isinstance(root, str) else root.__fspath__() for root in roots)
    # Resolved roots remember what they were resolved to, so they stay the same objects.
    return cast("tuple[str, ...]", given) if given == texts else texts


def check_contract(contract: Contract) -> None:
    """Refuse a contract that contradicts itself.

    Raises:
        ContractError: the first contradiction, and what to change.
    """
    for why in _find_contradictions(contract):
        raise ContractError(f"{contract.name}: {why}")


def build_correctors(contract: Contract) -> Correctors | None:
    """Return the correctors of a contract, checked and compiled; None if there are none.

    Raises:
        ContractError: see `compile_correctors`.
    """
    if not contract.correctors:
        return None
    from pokayoke.core.contract.correctors import compile_correctors  # noqa: PLC0415 - loaded for contracts that have some

    try:
        return compile_correctors(contract.correctors, contract.input)
    except ContractError as exc:
        raise ContractError(f"{contract.name}: {exc}") from None


def _find_contradictions(contract: Contract) -> Iterator[str]:
    yield from _identity_problems(contract)
    yield from _field_type_problems(contract)
    yield from option_problems(contract)
    arguments, complete = declared_arguments(contract.input)
    yield from _handler_problems(contract)
    yield from _argument_problems(contract, arguments, complete=complete)
    yield from _label_problems(contract, complete=complete)
    yield from _effect_problems(contract)
    yield from _output_problems(contract)
    yield from _invariant_problems(contract, arguments, complete=complete)


def _identity_problems(contract: Contract) -> Iterator[str]:
    why = name_problem(contract.name)
    if why is not None:
        yield f"the name cannot be registered: {why}"
    version = contract.version
    if not _is_name(version) or not version.isprintable() or not version.strip() or "@" in version:
        yield f"version {version!r} must be a short text without @, such as '1' or '2.1'"
    root = contract.input_schema.get("type", "object")
    if root != "object" and "object" not in root:
        yield f"input_schema describes {root!r}; arguments are an object"


def _field_type_problems(contract: Contract) -> Iterator[str]:
    """Yield the fields whose values have the wrong type."""
    for name, choices in CHOICES.items():
        if getattr(contract, name) not in choices and (name != "on_invalid_output" or contract.on_invalid_output):
            yield f"{name} is one of {', '.join(choices)}, not {getattr(contract, name)!r}"
    for name, (fits, expected) in _SINGLE.items():
        value = getattr(contract, name)
        if value is not None and not fits(value):
            yield f"{name} must be {expected}, not {value!r}"
    for name, (fits, expected) in _EACH.items():
        for item in getattr(contract, name) or ():
            if not fits(item):
                yield f"{name} holds {expected}, not {item!r}"


def _is_runnable(value: object) -> bool:
    return callable(value) and not (inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value))


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _is_name(value: object) -> bool:
    return isinstance(value, str)


Fits = Callable[[Any], bool]
_SINGLE: dict[str, tuple[Fits, str]] = {
    **dict.fromkeys(("extract", "validate_input"), (callable, "callable")),
    **dict.fromkeys(
        ("function", "handler", "lookup", "compensate"),
        (_is_runnable, "callable, and no generator, whose items come after it has returned (return a list)"),
    ),
    **dict.fromkeys(("timeout", "settle_after", "max_chars"), (_is_positive, "a positive number")),
    **dict.fromkeys(("description", "content_type", "key_argument"), (_is_name, "a text")),
    **dict.fromkeys(
        ("idempotent", "forwards_key", "approval", "secret", "defined_in_code"),
        (lambda value: isinstance(value, bool), "True or False"),
    ),
    "open_world": (lambda value: isinstance(value, bool), "True, False or None"),
    "labels": (lambda value: isinstance(value, Labels), "Labels(...)"),
    "key_epoch": (_is_whole, "a whole number"),
    "repeats": (lambda value: value in get_args(Repeats), "one of once, turn, each, or left out"),
    "thread": (lambda value: value in get_args(Thread), "caller, or left out"),
    "retry": (lambda value: isinstance(value, RetryPolicy), "RetryPolicy(...)"),
    "polls": (
        lambda value: value is False or (isinstance(value, Polls) and _is_positive(value.min_interval)),
        "True, False or Polls(...) with a positive min_interval",
    ),
    "envelope": (lambda value: isinstance(value, Envelope), "Envelope(...)"),
}
_EACH: dict[str, tuple[Fits, str]] = {
    **dict.fromkeys(("identity", "sources", "volatile", "roles", "literal", "redact"), (_is_name, "names")),
    **dict.fromkeys(("no_effect_errors", "transient_errors"), (_is_exception, "exception classes")),
    "quota": (lambda value: isinstance(value, LimitPolicy), "LimitPolicy(...)"),
}


def _argument_problems(contract: Contract, arguments: dict[str, Any], *, complete: bool) -> Iterator[str]:
    """Yield the fields that name an argument which does not exist or has the wrong type."""
    if contract.identity == ():
        yield "identity=() would make every call the same effect. Name the arguments, or leave it out for all of them"
    named = [(f"identity names {name!r}", name) for name in contract.identity or ()]
    named += [(f"volatile names {name!r}", name) for name in contract.volatile]
    named += [(f"literal names {name!r}", name) for name in contract.literal]
    named += [(f"paths names {name!r}", name) for name in contract.paths]
    named += [(f"urls names {name!r}", name) for name in contract.urls]
    named += [(f"quota counts {limit.field!r}", limit.field) for limit in contract.quota if limit.field is not None]
    for what, name in named:
        if name == contract.key_argument:
            yield f"{what}, which is the key argument: it is made from the others"
        elif complete and name not in arguments:
            yield f"{what}, but the input schema has no such property. It has: {', '.join(arguments) or 'none'}"
    whole: dict[str, Any] = contract.input_schema
    if whole.get("additionalProperties") is False and "patternProperties" not in whole:
        for name in set(whole.get("required", ())) - set(whole.get("properties", ())):
            yield f"the input schema requires {name!r} and allows no such property: no call could fit"
    yield from _place_problems(contract, arguments)


def _place_problems(contract: Contract, arguments: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the arguments that are paths or URLs."""
    for field, name in (*(("paths", one) for one in contract.paths), *(("urls", one) for one in contract.urls)):
        schema = arguments.get(name)
        if is_object(schema) and not _is_text_argument(contract.input, schema):
            yield f"{field} names {name!r}, which is not a string (or a list of strings) in the input schema"
    for name in contract.paths.keys() & contract.urls.keys():
        yield f"paths and urls both name {name!r}: it is one or the other"
    for name, rule in contract.urls.items():
        if not isinstance(cast(object, rule), UrlRule):
            yield f"urls[{name!r}] is a UrlRule such as UrlRule(hosts=('docs.example.com',)), not {rule!r}"


def _label_problems(contract: Contract, *, complete: bool) -> Iterator[str]:
    """Yield the labels that name no property. A target may stand anywhere in an argument."""
    labels = contract.labels
    if labels is None or not complete:
        return
    known = set(_property_names(contract.input_schema))
    for kind, names in (("target", labels.targets or ()), ("amount", labels.amounts)):
        for name in names:
            if name not in known:
                has = ", ".join(sorted(known)) or "none"
                yield f"labels name the {kind} {name!r}, but the input schema has no such property. It has: {has}"


def _property_names(node: Any) -> Iterator[str]:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if is_object(one):
            if is_object(one.get("properties")):
                yield from one["properties"]
            waiting += one.values()
        elif is_array(one):
            waiting += one


def _handler_problems(contract: Contract) -> Iterator[str]:
    """Yield a thread that contradicts the handler, and arguments and parameters on which it and the schema differ."""
    if contract.thread is not None and contract.timeout is not None:
        yield (
            f"thread='caller' and timeout={contract.timeout:g} contradict each other: nothing can cut a tool in its "
            "caller's thread. Leave thread out, or the timeout"
        )
    if contract.thread is not None and contract.is_async:
        yield "thread='caller' is for a sync handler; an async one is awaited in its caller's event loop. Leave it out"
    schema = contract.input_schema
    # A wrapper gets the arguments that it declares itself, whatever function it wraps.
    taken = parameters_of(contract.handler, follow_wrapped=False)
    if taken is None:
        return
    key = () if contract.key_argument is None else (contract.key_argument,)
    for name in (*schema.get("required", ()), *key):
        if name not in taken:
            had = ", ".join(taken) or "nothing"
            yield f"every call has the argument {name!r}, which the handler does not take. It takes: {had}"
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    for name, needed in taken.items():
        if closed and needed and name not in schema.get("properties", {}):
            yield f"the handler needs {name!r}, but the input schema has no such property"


def _is_text_argument(whole: Schema, schema: dict[str, Any]) -> bool:
    schema = whole.resolve_ref(schema) or schema
    items = schema.get("items")
    if is_object(items) and may_hold_type(schema, "array"):
        return may_hold_type(whole.resolve_ref(items) or items, "string")
    return may_hold_type(schema, "string")


def _effect_problems(contract: Contract) -> Iterator[str]:
    """Yield the settings that could repeat an effect without a reason why that is safe."""
    reads = contract.effect == "read"
    if reads and contract.key_argument is not None:
        yield "a read has no ledger key: leave key_argument out, or declare the effect"
    if reads and contract.on_ambiguous != "human":
        yield "on_ambiguous is about effects, and a read has none: leave it out"
    if not reads and contract.retry is not None and contract.retry.retries and not _may_repeat(contract):
        yield (
            "retry on a write could repeat its effect. Declare no_effect_errors (the failures that prove that nothing "
            "happened), on_ambiguous='downstream_key' with a key_argument, or on_ambiguous='rerun_safe' with "
            "idempotent=True"
        )
    if contract.on_ambiguous == "rerun_safe" and not contract.idempotent:
        yield "on_ambiguous='rerun_safe' claims that a second run does no harm: say so with idempotent=True"
    if contract.on_ambiguous == "downstream_key" and not _is_key_forwarded(contract):
        yield f"on_ambiguous='downstream_key' {_NO_WAY_FOR_KEY}"
    if reads and (contract.compensate is not None or contract.repeats is not None or contract.volatile):
        yield "compensate, repeats and volatile are about effects, and a read has none: leave them out"
    yield from _lookup_problems(contract)
    for kind in contract.no_effect_errors:
        if kind in _TOO_WIDE:
            yield (
                f"no_effect_errors holds {kind.__name__}, which is also raised after an effect. "
                "Name the narrow classes that are raised before anything happens"
            )


_NO_WAY_FOR_KEY = (
    "needs a way for the key to reach the target: a key_argument, or forwards_key=True if the handler passes "
    "pokayoke.this_effect().key on by itself"
)


def _is_key_forwarded(contract: Contract) -> bool:
    return contract.key_argument is not None or contract.forwards_key


def _may_repeat(contract: Contract) -> bool:
    return bool(contract.no_effect_errors) or contract.on_ambiguous in ("downstream_key", "rerun_safe")


def _lookup_problems(contract: Contract) -> Iterator[str]:
    if contract.on_ambiguous != "lookup":
        if contract.lookup is not None or contract.lookup_safe is not None:
            yield "lookup is only used with on_ambiguous='lookup'"
        return
    if contract.lookup is None:
        yield "on_ambiguous='lookup' needs lookup=, a callable (key, arguments) that asks the target"
    if contract.lookup_safe not in get_args(LookupSafe):
        yield (
            "'not found' is no proof that nothing will happen: the first executor may still be alive. Declare "
            "lookup_safe='downstream_key' (the target drops repeats of our key), 'executor_dead' (it runs in a child "
            "that is killed before its lease ends) or 'settled' (settle_after has passed); or use on_ambiguous='human'"
        )
    if contract.lookup_safe == "downstream_key" and not _is_key_forwarded(contract):
        yield f"lookup_safe='downstream_key' {_NO_WAY_FOR_KEY}"
    if contract.lookup_safe == "settled" and contract.settle_after is None:
        yield "lookup_safe='settled' needs settle_after=, the target's longest processing time in seconds"


def _output_problems(contract: Contract) -> Iterator[str]:
    if contract.extract is not None and contract.output is None:
        yield "extract gives a structure; describe it with an output schema"
    if contract.output_checks == "size_only" and (contract.invariants or contract.extract or contract.envelope):
        yield "output_checks='size_only' checks nothing but the size: leave invariants, extract and envelope out"
    if contract.content_type is not None and "/" not in contract.content_type:
        yield f"content_type {contract.content_type!r} is no media type such as application/json"
    if contract.envelope is not None:
        yield from envelope_problems(contract.envelope)


def _invariant_problems(contract: Contract, arguments: dict[str, Any], *, complete: bool) -> Iterator[str]:
    """Yield the invariants that name a place which does not exist."""
    for rule in contract.invariants:
        if isinstance(rule, INVARIANT_TYPES):
            yield from term_problems(rule, contract.output)
            if isinstance(rule, Equal) and isinstance(cast(object, rule.argument), str):
                name = next(iter(parse_pointer(rule.argument)), "")
                if complete and name not in arguments:
                    yield f"{rule!r}: the input schema has no property {name!r}"
        elif not callable(cast(object, rule)):
            yield f"invariants holds callables or Range, Format, Equal, Compare, not {rule!r}"
