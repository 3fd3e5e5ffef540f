"""A schema and two tools for calls with words or tags around them."""

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "n": {"type": "integer"},
        "l": {"type": ["array", "null"]},
        "u": {"type": ["string", "integer"]},
        "any": {},
        "true": True,
    },
}

TOOLS = {"f": SCHEMA, "g": None}
