"""A contract with one argument, and schemas for it."""

from pokayoke.core.contract.contract import Contract

WRITE = ("equivalent", "declared")
READ = (*WRITE, "likely")


def contract(schema, **fields):
    return Contract.from_schema("book", schema, **fields)


def one(node, *, required=True, **fields):
    """A contract with one argument `v`."""
    return contract(
        {"type": "object", "properties": {"v": node}, "required": ["v"] * required, "additionalProperties": False},
        **fields,
    )


INTEGER, NUMBER, STRING, BOOLEAN = ({"type": name} for name in ("integer", "number", "string", "boolean"))
NUMBERS, STRINGS = {"type": "array", "items": NUMBER}, {"type": "array", "items": STRING}
ITEM = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"], "additionalProperties": False}
DATE, MOMENT, EMAIL = ({"type": "string", "format": name} for name in ("date", "date-time", "email"))
FIELDS = {
    "type": "object",
    "properties": {
        "user_id": STRING,
        "amount": INTEGER,
        "min_price": NUMBER,
        "max_price": NUMBER,
        "line1": STRING,
        "line2": STRING,
    },
    "required": ["user_id"],
    "additionalProperties": False,
}
