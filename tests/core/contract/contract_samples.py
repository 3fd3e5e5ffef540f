"""A contract for an order, and its schemas."""

from pokayoke.core.contract.contract import Contract

ORDER = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "amount": {"type": "integer", "minimum": 1},
        "file": {"type": "string"},
        "files": {"type": "array", "items": {"type": "string"}},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "key": {"type": "string"},
    },
    "required": ["user", "key"],
    "additionalProperties": False,
}
TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


def made(**fields):
    """A contract over ORDER."""
    return Contract.from_schema("pay", ORDER, **fields)
