"""Damage to argument values, fixed before any run: what models get wrong after the JSON has parsed.

Each kind takes the true arguments, the schema and a seeded generator, and returns (truth, damaged) or
None where it does not apply. `provable` kinds have one reading that the schema, or a corrector
named in the contract, proves; `likely` ones have an obvious reading that nothing proves; of `lost` ones
nobody can know the truth from the value.
"""

import json
import random
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Made = tuple[dict[str, Any], dict[str, Any]] | None
Damage = Callable[[dict[str, Any], dict[str, Any], random.Random], Made]
KINDS: dict[str, tuple[str, Damage]] = {}


class Case(NamedTuple):
    """One damaged value with the truth it was made from."""

    kind: str
    group: str
    row: int
    truth: dict[str, Any]
    damaged: dict[str, Any]


def kind(group: str) -> Callable[[Damage], Damage]:
    def add(damage: Damage) -> Damage:
        KINDS[damage.__name__] = (group, damage)
        return damage

    return add


def cases(row: int, args: dict[str, Any], schema: dict[str, Any], seed: int = 11) -> Iterator[Case]:
    for name, (group, damage) in KINDS.items():
        rng = random.Random(zlib.crc32(f"{seed}:{name}:{row}".encode()))
        made = damage(json.loads(json.dumps(args)), schema, rng)
        if made is not None:
            yield Case(name, group, row, *made)


def alias(choice: str) -> str:
    """The other name that `correctors` declares for a choice."""
    return f"option {choice}"


def correctors(schema: dict[str, Any]) -> dict[str, Any]:
    """What the contracts of this measurement declare: counts, kilograms, aliases of choices."""
    found: dict[str, Any] = {}
    for name, node in schema.get("properties", {}).items():
        if node.get("type") == "integer":
            found[name] = ("counter_suffix", "unit:kg")
        elif node.get("type") == "number":
            found[name] = "unit:kg"
        elif node.get("type") == "string" and isinstance(node.get("enum"), list):
            choices = [choice for choice in node["enum"] if isinstance(choice, str)]
            if len({choice.casefold() for choice in choices}) == len(choices):
                found[name] = {"aliases": {alias(choice): choice for choice in choices}}
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _pick(args: dict[str, Any], rng: random.Random, test: Callable[[Any], bool]) -> str | None:
    names = [name for name, value in args.items() if test(value)]
    return rng.choice(names) if names else None


def _with(args: dict[str, Any], name: str | None, change: Callable[[Any], Any]) -> Made:
    return None if name is None else (args, {**args, name: change(args[name])})


def _single(item: Any) -> bool:
    return _is_number(item) or (isinstance(item, str) and re.fullmatch(r"\w+", item) is not None)


def _choices(args: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    return [
        name
        for name, value in args.items()
        if isinstance(value, str) and value and "enum" in schema["properties"].get(name, {})
    ]


def _renamed(args: dict[str, Any], old: str, new: str) -> Made:
    return args, {new if key == old else key: value for key, value in args.items()}


# ------------------------------------------------------------------ provable


@kind("provable")
def number_as_text(args, schema, rng):
    return _with(args, _pick(args, rng, _is_number), json.dumps)


@kind("provable")
def all_numbers_as_text(args, schema, rng):
    damaged = {key: json.dumps(value) if _is_number(value) else value for key, value in args.items()}
    return (args, damaged) if sum(map(_is_number, args.values())) > 1 else None


@kind("provable")
def number_text_with_spaces(args, schema, rng):
    return _with(args, _pick(args, rng, _is_number), lambda value: f" {value} ")


@kind("provable")
def number_text_with_plus(args, schema, rng):
    return _with(args, _pick(args, rng, lambda value: _is_number(value) and value > 0), lambda value: f"+{value}")


@kind("provable")
def integer_as_decimal_text(args, schema, rng):
    return _with(args, _pick(args, rng, _is_count), lambda value: f"{value}.0")


@kind("provable")
def boolean_as_text(args, schema, rng):
    style = rng.choice([str, lambda value: str(value).lower(), lambda value: str(value).upper()])
    return _with(args, _pick(args, rng, lambda value: isinstance(value, bool)), style)


@kind("provable")
def single_item_bare(args, schema, rng):
    def test(value):
        return isinstance(value, list) and len(value) == 1 and _single(value[0])

    return _with(args, _pick(args, rng, test), lambda value: value[0])


@kind("provable")
def container_as_json_text(args, schema, rng):
    return _with(args, _pick(args, rng, lambda value: isinstance(value, list | dict) and value), json.dumps)


@kind("provable")
def items_as_text(args, schema, rng):
    def test(value):
        return isinstance(value, list) and value and all(map(_is_number, value))

    return _with(args, _pick(args, rng, test), lambda value: list(map(json.dumps, value)))


def _nothing(args, schema, rng, words):
    """A field that may be absent, with something else than a text, holds a word for nothing."""
    optional = [name for name in args if name not in schema.get("required", []) and not isinstance(args[name], str)]
    if not optional:
        return None
    name = rng.choice(optional)
    return {key: value for key, value in args.items() if key != name}, {**args, name: rng.choice(words)}


@kind("provable")
def null_for_absent(args, schema, rng):
    return _nothing(args, schema, rng, [None])


@kind("provable")
def choice_in_other_case(args, schema, rng):
    names = _choices(args, schema)
    style = rng.choice([str.upper, str.lower, str.title, str.swapcase, lambda text: f" {text} "])
    return _with(args, rng.choice(names), style) if names else None


@kind("provable")
def envelope(args, schema, rng):
    return args, {rng.choice(["arguments", "input", "args", "parameters"]): args}


@kind("provable")
def envelope_of_text(args, schema, rng):
    return args, {"arguments": json.dumps(args)}


@kind("provable")
def name_in_other_spelling(args, schema, rng):
    names = [name for name in args if "_" in name.strip("_")]
    if not names:
        return None
    name = rng.choice(names)
    head, *rest = name.split("_")
    return _renamed(
        args, name, rng.choice([head + "".join(map(str.title, rest)), name.replace("_", "-"), name.upper()])
    )


@kind("provable")
def value_in_list(args, schema, rng):
    return _with(args, _pick(args, rng, lambda value: not isinstance(value, list)), lambda value: [value])


@kind("provable")
def count_with_word(args, schema, rng):
    word = rng.choice(["件", " pcs", "個", " items", " 件", "pcs", " units"])
    return _with(args, _pick(args, rng, lambda value: _is_count(value) and value >= 0), lambda value: f"{value}{word}")


@kind("provable")
def amount_in_other_unit(args, schema, rng):
    factor, unit = rng.choice([(1000, "g"), (1, "kg"), (1_000_000, "mg"), (1000, " grams")])
    return _with(args, _pick(args, rng, _is_count), lambda value: f"{value * factor}{unit}")


@kind("provable")
def choice_by_alias(args, schema, rng):
    names = _choices(args, schema)
    return _with(args, rng.choice(names), alias) if names else None


# ------------------------------------------------------------------ likely


@kind("likely")
def name_typo(args, schema, rng):
    names = [name for name in args if len(name) > 4 and name.isascii()]
    if not names:
        return None
    name = rng.choice(names)
    at = rng.randrange(1, len(name) - 1)
    wrong = rng.choice(
        [
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[:at] + name[at + 1] + name[at] + name[at + 2 :],
        ]
    )
    return None if wrong in schema["properties"] else _renamed(args, name, wrong)


@kind("likely")
def number_for_text(args, schema, rng):
    def test(value):
        return isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,14}", value) is not None

    return _with(args, _pick(args, rng, test), int)


@kind("likely")
def word_for_absent(args, schema, rng):
    return _nothing(args, schema, rng, ["", "null", "None", "none"])


@kind("likely")
def single_phrase_bare(args, schema, rng):
    def test(value):
        return isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and " " in value[0]

    return _with(args, _pick(args, rng, test), lambda value: value[0])


# ------------------------------------------------------------------ lost


@kind("lost")
def required_dropped(args, schema, rng):
    names = [name for name in args if name in schema.get("required", [])]
    if not names:
        return None
    name = rng.choice(names)
    return args, {key: value for key, value in args.items() if key != name}


@kind("lost")
def required_null(args, schema, rng):
    names = [name for name in args if name in schema.get("required", [])]
    return (args, {**args, rng.choice(names): None}) if names else None


@kind("lost")
def range_for_number(args, schema, rng):
    return _with(args, _pick(args, rng, _is_count), lambda value: f"{value}-{value + 1}")


@kind("lost")
def decimal_count(args, schema, rng):
    return _with(args, _pick(args, rng, _is_count), lambda value: f"{value}.5件")


@kind("lost")
def half_for_integer(args, schema, rng):
    return _with(args, _pick(args, rng, _is_count), lambda value: value + 0.5)


@kind("lost")
def digits_grouped(args, schema, rng):
    mark = rng.choice([",", ".", " ", "'"])
    name = _pick(args, rng, lambda value: _is_count(value) and value >= 1000)
    return _with(args, name, lambda value: f"{value:,}".replace(",", mark))


@kind("lost")
def decimal_comma(args, schema, rng):
    return _with(
        args, _pick(args, rng, lambda value: isinstance(value, float)), lambda value: str(value).replace(".", ",")
    )


@kind("lost")
def two_numbers(args, schema, rng):
    return _with(args, _pick(args, rng, _is_number), lambda value: f"{value} or {value + 1}")


@kind("lost")
def number_in_words(args, schema, rng):
    return _with(args, _pick(args, rng, _is_number), lambda value: rng.choice(["a few", "about 5", "two", "N/A", "-"]))


@kind("lost")
def number_of_containers(args, schema, rng):
    return _with(
        args, _pick(args, rng, _is_count), lambda value: f"{value}{rng.choice([' dozen', ' boxes', '箱', ' pairs'])}"
    )


@kind("lost")
def unit_of_other_kind(args, schema, rng):
    return _with(args, _pick(args, rng, _is_number), lambda value: f"{value} {rng.choice(['km', 'ton', 'EUR', '%'])}")


@kind("lost")
def items_joined(args, schema, rng):
    def test(value):
        return isinstance(value, list) and len(value) > 1 and all(isinstance(item, str | int | float) for item in value)

    mark = rng.choice([", ", ";", " and ", "|", "\n", "/"])
    return _with(args, _pick(args, rng, test), lambda value: mark.join(map(str, value)))


@kind("lost")
def item_added(args, schema, rng):
    return _with(
        args, _pick(args, rng, lambda value: _is_number(value) or isinstance(value, str)), lambda value: [value, value]
    )


@kind("lost")
def choice_misspelt(args, schema, rng):
    names = [name for name in _choices(args, schema) if len(args[name]) > 2]
    return _with(args, rng.choice(names), lambda value: value[:-2] + value[-1]) if names else None


@kind("lost")
def choice_unknown(args, schema, rng):
    names = _choices(args, schema)
    return _with(args, rng.choice(names), lambda value: "something else") if names else None


@kind("lost")
def placeholder_for_value(args, schema, rng):
    name = _pick(args, rng, lambda value: isinstance(value, str))
    texts = [f"<{name}>", f"{{{{{name}}}}}", f"${{{name}}}", "...", "TODO", f"INSERT_{str(name).upper()}_HERE"]
    return _with(args, name, lambda value: rng.choice(texts))


@kind("lost")
def field_of_other_name(args, schema, rng):
    return _renamed(args, rng.choice(list(args)), rng.choice(["value", "data", "x", "param1", "thing"]))


@kind("lost")
def field_added(args, schema, rng):
    return {**args}, {**args, rng.choice(["reason", "confirm", "limit2", "note"]): rng.choice(["yes", 1, None])}


@kind("lost")
def object_for_value(args, schema, rng):
    return _with(
        args, _pick(args, rng, lambda value: not isinstance(value, dict)), lambda value: {"value": value, "unit": ""}
    )


@kind("lost")
def list_cut(args, schema, rng):
    name = _pick(args, rng, lambda value: isinstance(value, list) and len(value) > 1)
    return _with(args, name, lambda value: json.dumps(value)[:-1])


@kind("lost")
def two_envelopes(args, schema, rng):
    return args, {"arguments": args, "input": {**args, "more": 1}}
