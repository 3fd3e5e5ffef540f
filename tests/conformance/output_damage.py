"""Ways in which a good tool output goes bad in production, each provable from its contract.

Every damage takes a good value and the contract's schema and returns what the tool would have sent,
or None where it does not apply (no number to spoil, no enum to leave).
"""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from pokayoke.core.call import Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Equal

PAGES = [
    "<!doctype html>\n<html><head><title>Maintenance</title></head>\n<body>We will be back.</body></html>",
    "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502</h1></center></body>\r\n</html>",
    "\n  <!-- gateway --><!DOCTYPE HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'><HTML><BODY>Sign in",
]
Place = tuple[list[Any], dict[str, Any], Any]


def places(
    value: Any, schema: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """Every place of a value with the subschema that describes it."""
    if not isinstance(schema, dict):
        return
    yield path, schema, value
    if isinstance(value, dict):
        for key, child in value.items():
            below = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            yield from places(child, below, (*path, key))
    if isinstance(value, list):
        for index, child in enumerate(value):
            yield from places(child, schema.get("items"), (*path, index))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a value with another value at one place."""
    if not path:
        return new
    changed = copy.deepcopy(value)
    holder = changed
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = new
    return changed


def kind_of(value: Any) -> str:
    """The JSON type a value has."""
    if isinstance(value, bool):
        return "boolean"
    names = {int: "number", float: "number", str: "string", list: "array", dict: "object", type(None): "null"}
    return names[type(value)]


def truncated(value: Any, contract: Contract, rng: random.Random) -> Any:
    """The text ends early."""
    text = json.dumps(value)
    return text[: rng.randrange(1, len(text))] if isinstance(value, dict | list) and len(text) > 2 else None


def html_page(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A page with status 200 instead of data."""
    return rng.choice(PAGES)


def html_page_as_json(value: Any, contract: Contract, rng: random.Random) -> Any:
    """The same, from a server that calls it JSON."""
    return Raw(rng.choice(PAGES), "application/json", 200)


def html_page_as_html(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A wire response that says that it is a page."""
    return Raw(json.dumps(value), "text/html; charset=utf-8", 200)


def no_content_type(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A wire response that does not say what it is."""
    return Raw(json.dumps(value), None, 200)


def html_field(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A page inside one text of the data, where the schema takes any text."""
    found = [path for path, schema, item in places(value, contract.output.raw) if isinstance(item, str) and path]
    return json.dumps(put(value, rng.choice(found), rng.choice(PAGES))) if found else None


def error_field(value: Any, contract: Contract, rng: random.Random) -> Any:
    """All fields are there, and an error beside them."""
    if not isinstance(value, dict):
        return None
    error = rng.choice(["upstream timed out", {"code": 502}, ["backend unavailable"], 500, True])
    return json.dumps({**value, "error": error})


def flag_false(value: Any, contract: Contract, rng: random.Random) -> Any:
    """All fields are there, and a flag that says failure."""
    return json.dumps({**value, rng.choice(["ok", "success"]): False}) if isinstance(value, dict) else None


def error_only(value: Any, contract: Contract, rng: random.Random) -> Any:
    """An error instead of the data."""
    return json.dumps(rng.choice([{"error": "not found"}, {"ok": False, "message": "x"}, {"errors": [{"code": 1}]}]))


def wrapped(value: Any, contract: Contract, rng: random.Random) -> Any:
    """The data came in an envelope nobody declared."""
    return json.dumps({"ok": True, rng.choice(["data", "result", "payload"]): value})


def required(value: Any, contract: Contract) -> list[tuple[tuple[Any, ...], str]]:
    """Every required field that is there."""
    return [
        (path, name)
        for path, schema, item in places(value, contract.output.raw)
        if isinstance(item, dict)
        for name in schema.get("required", ())
    ]


def missing_field(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A required field is gone."""
    found = required(value, contract)
    if not found:
        return None
    path, name = rng.choice(found)
    holder = value
    for part in path:
        holder = holder[part]
    return json.dumps(put(value, path, {key: item for key, item in holder.items() if key != name}))


def renamed_field(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A required field has a new name."""
    found = required(value, contract)
    if not found:
        return None
    path, name = rng.choice(found)
    holder = value
    for part in path:
        holder = holder[part]
    new = rng.choice([name + "_v2", name.upper() + "_", "new" + name.title()])
    return json.dumps(put(value, path, {new if key == name else key: item for key, item in holder.items()}))


def retyped_field(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A field has another JSON type than its schema says."""
    found = [
        (path, schema)
        for path, schema, _ in places(value, contract.output.raw)
        if path and isinstance(schema.get("type"), str)
    ]
    if not found:
        return None
    path, schema = rng.choice(found)
    wanted = {"integer": "number"}.get(schema["type"], schema["type"])
    others = [item for item in ("7", 7, True, None, [1], {"value": 1}) if kind_of(item) != wanted]
    return json.dumps(put(value, path, rng.choice(others)))


def unknown_enum(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A word from a newer version of the tool."""
    found = [path for path, schema, _ in places(value, contract.output.raw) if "enum" in schema]
    return json.dumps(put(value, rng.choice(found), rng.choice(["ultra", "UNKNOWN", ""]))) if found else None


def wrong_id(value: Any, contract: Contract, rng: random.Random) -> Any:
    """The answer to another question: an id that differs from the one asked for."""
    rules = [rule for rule in contract.invariants if isinstance(rule, Equal)]
    if not rules:
        return None
    path = tuple(rules[0].output.split("/")[1:])
    item = value
    for part in path:
        item = item[part]
    if isinstance(item, str):
        other = item[:-1] + ("1" if item[-1] != "1" else "2")  # keeps the pattern of every id here
        other = other if path[-1] in ("order_id", "reservation_id", "product_id", "booking_id") else item + " (2)"
    else:
        other = item + 1
    return json.dumps(put(value, path, other))


def not_a_number(value: Any, contract: Contract, rng: random.Random) -> Any:
    """NaN, an infinity or a number beyond doubles in the JSON text."""
    found = [path for path, _, item in places(value, contract.output.raw) if kind_of(item) == "number"]
    if not found:
        return None
    marked = json.dumps(put(value, rng.choice(found), "@@"))
    return marked.replace('"@@"', rng.choice(["NaN", "Infinity", "-Infinity", "1e999"]))


def python_not_a_number(value: Any, contract: Contract, rng: random.Random) -> Any:
    """The same as a Python value, where a careless dump writes null."""
    found = [path for path, _, item in places(value, contract.output.raw) if kind_of(item) == "number"]
    return put(value, rng.choice(found), rng.choice([float("nan"), float("inf")])) if found else None


def duplicate_key(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A key twice, with different values."""
    if not isinstance(value, dict) or not value:
        return None
    name = rng.choice(list(value))
    return f"{json.dumps(value)[:-1]}, {json.dumps(name)}: null}}"


def over_the_cap(value: Any, contract: Contract, rng: random.Random) -> Any:
    """More text than any model should read."""
    return json.dumps(value) + " " * 200_001


def two_documents(value: Any, contract: Contract, rng: random.Random) -> Any:
    """Two answers in one."""
    return json.dumps(value) + rng.choice(["\n", ""]) + json.dumps(value)


def garbage_after(value: Any, contract: Contract, rng: random.Random) -> Any:
    """Something after the data."""
    return json.dumps(value) + rng.choice(["\nWarning: low memory", " null", "<!-- cached -->", "\x00"])


def half_character(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A lone surrogate in a text."""
    found = [path for path, _, item in places(value, contract.output.raw) if isinstance(item, str) and path]
    return json.dumps(put(value, rng.choice(found), "x\ud83d")) if found else None


def server_error(value: Any, contract: Contract, rng: random.Random) -> Any:
    """A status that says failure, with a body that looks right."""
    return Raw(json.dumps(value), "application/json", rng.choice([500, 502, 503, 429, 404]))


def not_data(value: Any, contract: Contract, rng: random.Random) -> Any:
    """Nothing, or a Python object that has no JSON form."""
    return rng.choice(["", "   ", "None", "null", lambda: value, (one for one in [value]), object(), {1, "a", object}])


DAMAGES: list[Callable[[Any, Contract, random.Random], Any]] = [
    truncated,
    html_page,
    html_page_as_json,
    html_page_as_html,
    no_content_type,
    html_field,
    error_field,
    flag_false,
    error_only,
    wrapped,
    missing_field,
    renamed_field,
    retyped_field,
    unknown_enum,
    wrong_id,
    not_a_number,
    python_not_a_number,
    duplicate_key,
    over_the_cap,
    two_documents,
    garbage_after,
    half_character,
    server_error,
    not_data,
]
