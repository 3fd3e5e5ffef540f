"""Schemas and values for the tests of argument texts."""

FLAT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}

AB = {"a": 1, "b": "x"}
