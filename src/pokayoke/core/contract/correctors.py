"""Declared correctors: changes to one field that the contract allows by name.

=======================================  ==========================================================
``"counter_suffix"``                     one whole number and one counting word: ``2件``, ``3 pcs``
``{"counter_suffix": ["kartons"]}``      the same, with more counting words than the built-in ones
``{"unit": "kg"}``, ``"unit:kg"``        a number with a unit of the same dimension, converted exactly
``{"aliases": {"yuan": "CNY"}}``         other names of the allowed values, in any case
``{"date": "%d.%m.%Y"}``, ``"date:…"``   a date in exactly this order becomes an ISO 8601 date
a callable                               ``corrector(value)`` returns another value, or the same one, or raises a
                                         ValueError; a validator of pydantic may be one
a tuple or list of these                 used only if those that answer agree
=======================================  ==========================================================

A corrector gets only values that the schema refuses, and its answer counts only if the schema then accepts the place.
"""

from __future__ import annotations

import copy
import re
import unicodedata
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import date
from fractions import Fraction
from functools import partial
from typing import Any, cast

import msgspec

from pokayoke.core.call import Finding
from pokayoke.core.contract import units
from pokayoke.core.json.pointer import Path, parse_pointer, to_field_path, to_pointer
from pokayoke.core.json.values import equal_json
from pokayoke.core.schema.facts import SchemaFacts, declared_facts
from pokayoke.core.schema.schema import Schema
from pokayoke.core.text.clip import clip_at_word
from pokayoke.errors import ContractError

CorrectorFunction = Callable[[Any], Any]
CorrectorAnswer = tuple[str, Any]

_UNCHANGED = object()
# Words that count single things. Containers and multiples (box, pack, dozen, pair, 箱, 打, 双) are left out,
# because two boxes are not two pieces.
_COUNTING_WORDS = frozenset(
    {
        *"件個个箇枚本台冊册つ人名点匹頭头只张張条支位辆輛部份개명권",
        *("pc", "pcs", "piece", "pieces", "item", "items", "unit", "units", "ea", "each", "count", "ct"),
        *("stk", "stück", "stücke", "stueck", "pièce", "pièces", "unité", "unités"),
        *("pieza", "piezas", "unidad", "unidades", "pezzo", "pezzi", "шт", "штук", "штуки"),
    }
)
_COUNT = re.compile(r"(?P<number>0|[1-9][0-9]{0,14})\s?(?P<word>[^\W\d_]{1,24})\.?")
_FULL_WIDTH = str.maketrans("０１２３４５６７８９", "0123456789")
_DIRECTIVES = {"%d": r"(?P<d>[0-9]{1,2})", "%m": r"(?P<m>[0-9]{1,2})", "%Y": r"(?P<y>[0-9]{4})"}
_MAX_TEXT = 200


def _knows_nothing(_word: str) -> bool:
    return False


class _BuiltInCorrector(msgspec.Struct, frozen=True):
    """A built-in corrector: pure and total. `knows` tells whether a word means something to it."""

    rule: str
    run: CorrectorFunction
    knows: Callable[[str], bool] = _knows_nothing


class _UserCorrector(msgspec.Struct, frozen=True):
    """A user's callable: may raise anything, may return anything."""

    rule: str
    run: CorrectorFunction


class Correctors:
    """The compiled correctors of one contract."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Mapping[Path, tuple[_BuiltInCorrector | _UserCorrector, ...]]) -> None:
        """Store the correctors by the path of their field; `*` in a path is any item or field."""
        self._rules = dict(rules)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._rules)

    def correct_value(
        self, path: Path, value: Any, root: str = "arguments"
    ) -> tuple[list[CorrectorAnswer], list[Finding]]:
        """Return the answers of a place's correctors for a value, and a finding for each that failed.

        Args:
            path: the place of the value.
            value: the value that the schema refused.
            root: the name of the whole value in messages.
        """
        answers: list[CorrectorAnswer] = []
        failed: list[Finding] = []
        for rule in self._rules_at(path):
            after = (
                rule.run(value) if isinstance(rule, _BuiltInCorrector) else _run_user_corrector(rule, path, value, root)
            )
            if isinstance(after, Finding):
                failed.append(after)
            elif after is not _UNCHANGED:
                answers.append((rule.rule, after))
        return answers, failed

    def knows_word(self, word: str, path: Path | None = None) -> bool:
        """Return whether a word is vocabulary of a place's correctors (of any, without a path): a unit, an alias."""
        rules = [rule for one in self._rules.values() for rule in one] if path is None else self._rules_at(path)
        return any(isinstance(rule, _BuiltInCorrector) and rule.knows(word) for rule in rules)

    def _rules_at(self, path: Path) -> list[_BuiltInCorrector | _UserCorrector]:
        return [
            rule
            for pattern, rules in self._rules.items()
            if len(pattern) == len(path) and all(a in ("*", b) for a, b in zip(pattern, path, strict=True))
            for rule in rules
        ]


def compile_correctors(mapping: Mapping[str, Any], input_schema: Schema) -> Correctors:
    """Check and compile the correctors of a contract.

    Args:
        mapping: field name, or JSON pointer (`/items/*/size`), to a corrector or several.
        input_schema: the schema of the arguments, to refuse fields and values it does not know.

    Raises:
        ContractError: an unknown field, corrector, unit or date order, or an alias of a value that
            the schema does not allow.
    """
    rules: dict[Path, tuple[_BuiltInCorrector | _UserCorrector, ...]] = {}
    for field, given in mapping.items():
        path = parse_pointer(field) if field.startswith("/") else (field,)
        choices = _field_choices(path, input_schema, field)
        several = cast(Sequence[Any], given) if isinstance(given, tuple | list) else [given]
        if not several:
            raise ContractError(f"corrector of {field!r}: none is given; leave the field out")
        rules[path] = tuple(_compile_corrector(one, field, choices) for one in several)
    return Correctors(rules)


def _field_choices(path: Path, schema: Schema, field: str) -> tuple[Any, ...]:
    """Return the choices of a field.

    Raises:
        ContractError: the schema has no such field.
    """
    facts: SchemaFacts | None = declared_facts(schema, path)
    if facts is None:
        raise ContractError(f"corrector of {field!r}: the input schema has no such field")
    return facts.choices


def _compile_corrector(given: object, field: str, choices: tuple[Any, ...]) -> _BuiltInCorrector | _UserCorrector:
    name: object = given
    argument: object = None
    if isinstance(given, str):
        name, _, argument = given.partition(":")
    elif isinstance(given, Mapping):
        entries = cast(Mapping[str, Any], given)
        name, argument = next(iter(entries.items())) if len(entries) == 1 else (None, None)
    elif callable(given):
        return _UserCorrector(f"corrector:{getattr(given, '__name__', type(given).__name__)}", given)
    if name == "counter_suffix" and (not argument or isinstance(argument, tuple | list)):
        extra = cast(Sequence[Any], argument or ())
        if all(isinstance(word, str) for word in extra):
            words = _COUNTING_WORDS | {word.lower() for word in cast(Sequence[str], extra)}
            return _BuiltInCorrector("counter_suffix", _counter_corrector(words), lambda word: word.lower() in words)
    if name == "unit" and isinstance(argument, str):
        target = units.find_unit(argument)
        if target is None:
            raise ContractError(
                f"corrector of {field!r}: {argument!r} is not a known unit (see core/contract/units.py)"
            )
        return _BuiltInCorrector("unit", _unit_corrector(target), partial(units.is_unit_of, target))
    if name == "date" and isinstance(argument, str):
        return _BuiltInCorrector("date", _date_corrector(argument, field))
    if name == "aliases" and isinstance(argument, Mapping):
        known = _fold_aliases(cast(Mapping[str, Any], argument), field, choices)
        return _BuiltInCorrector("aliases", _alias_corrector(known), lambda word: word.strip().casefold() in known)
    raise ContractError(
        f"corrector of {field!r}: {given!r} is none. Use counter_suffix, unit:<unit>, date:<order>, "
        "{'aliases': {...}} or a callable."
    )


def _run_user_corrector(rule: _UserCorrector, path: Path, value: Any, root: str) -> Any:
    """Call a user's corrector on a copy.

    A ValueError or AssertionError says that it cannot read the value. Any other exception becomes a finding, except a
    KeyboardInterrupt.
    """
    try:
        after = rule.run(copy.deepcopy(value))
    except KeyboardInterrupt:
        raise
    except (ValueError, AssertionError):  # as validators say that they cannot read a value
        return _UNCHANGED
    except BaseException as exc:  # noqa: BLE001 - even SystemExit of a user's function must not end the agent
        return user_code_finding(rule.rule, path, f"{type(exc).__name__}: {_exception_text(exc)}", root)
    if not is_exact_json(after):
        return user_code_finding(
            rule.rule, path, f"returned a {type(after).__name__}, which is no plain JSON value", root
        )
    return _UNCHANGED if equal_json(after, value) else after


def user_code_finding(rule: str, path: Path, reason: str, root: str = "arguments") -> Finding:
    """Return the finding for user code on the input side that failed."""
    name = to_field_path(path, root)[:200]
    return Finding(
        code="corrector_failed",
        at=to_pointer(path),
        blame="policy",
        message=f"{rule} failed on {name}: {reason}"[:500],
        hint=f"`{name}` could not be checked; this is not your mistake. Do not send the same call again.",
        data={"rule": rule},
    )


def hidden_validator_text(name: str) -> str:
    """Return what to do about a validator of an argument that the schema hides."""
    return (
        f"has a validator on `{name}` that runs before the type's check, and the schema does not say what it takes: a "
        f"value that only it could read is refused first. Declare correctors={{{name!r}: that_function}}."
    )


def is_exact_json(value: Any) -> bool:
    """Return whether a value is made of exact JSON types only (no subclasses, no tuples, text keys)."""
    stack = [value]
    for _ in range(100_000):
        if not stack:
            return True
        item = stack.pop()
        if type(item) is dict:
            entries = cast(Mapping[Any, Any], item)
            stack.extend(entries.values())
            if not all(type(key) is str for key in entries):
                return False
        elif type(item) is list:
            stack.extend(cast(Sequence[Any], item))
        elif item is not None and type(item) not in (str, int, float, bool):
            return False
    return False


def _exception_text(exc: BaseException) -> str:
    """Return the text of an exception, even if `str()` of it raises."""
    try:
        return clip_at_word(str(exc), 200)
    except Exception:  # noqa: BLE001 - user code again
        return "(no text)"


def _counter_corrector(words: Container[str]) -> CorrectorFunction:
    def run(value: Any) -> Any:
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            return _UNCHANGED
        text = unicodedata.normalize("NFC", value.strip()).translate(_FULL_WIDTH)
        match = _COUNT.fullmatch(text)
        return int(match["number"]) if match and match["word"].lower() in words else _UNCHANGED

    return run


def _unit_corrector(target: units.Unit) -> CorrectorFunction:
    def run(value: Any) -> Any:
        amount = units.convert_amount(value, target) if isinstance(value, str) else None
        return _UNCHANGED if amount is None else _plain_number(amount)

    return run


def _plain_number(amount: Fraction) -> int | float:
    return int(amount) if amount.denominator == 1 else float(amount)


def _date_corrector(order: str, field: str) -> CorrectorFunction:
    pattern = re.escape(order)
    for directive, part in _DIRECTIVES.items():
        if order.count(directive) != 1:
            raise ContractError(f"corrector of {field!r}: a date order names %d, %m and %Y once each, not {order!r}")
        pattern = pattern.replace(re.escape(directive), part)
    if re.search("%[dmY]%", order):  # side by side, one digit of two could belong to either
        pattern = pattern.replace("{1,2}", "{2}")
    if "%" in pattern:
        raise ContractError(f"corrector of {field!r}: only %d, %m and %Y are read, not {order!r}")
    compiled = re.compile(pattern)

    def run(value: Any) -> Any:
        match = compiled.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _MAX_TEXT else None
        if match is None:
            return _UNCHANGED
        try:
            return date(int(match["y"]), int(match["m"]), int(match["d"])).isoformat()
        except ValueError:
            return _UNCHANGED

    return run


def _fold_aliases(names: Mapping[str, Any], field: str, choices: tuple[Any, ...]) -> dict[str, Any]:
    """Return the values of aliases by their folded names.

    Raises:
        ContractError: an alias is no text, stands for two values, or for one that the schema does not allow.
    """
    known: dict[str, Any] = {}
    for alias, value in names.items():
        if not isinstance(cast(object, alias), str):
            raise ContractError(f"corrector of {field!r}: the alias {alias!r} is no text. Write it in quotation marks")
        folded = alias.strip().casefold()
        if folded in known and not equal_json(known[folded], value):
            raise ContractError(f"corrector of {field!r}: the alias {alias!r} stands for two values")
        if choices and not any(equal_json(value, choice) for choice in choices):
            raise ContractError(f"corrector of {field!r}: {value!r} (alias {alias!r}) is not an allowed value")
        known[folded] = value
    return known


def _alias_corrector(known: Mapping[str, Any]) -> CorrectorFunction:
    def run(value: Any) -> Any:
        return known.get(value.strip().casefold(), _UNCHANGED) if isinstance(value, str) else _UNCHANGED

    return run
