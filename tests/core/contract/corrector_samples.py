"""An order with declared correctors."""

from pokayoke.core.contract.contract import Contract
from pokayoke.core.correct.correct import correct_arguments

WRITE = ("equivalent", "declared")
ORDER = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "weight": {"type": "number"},
        "grams": {"type": "integer"},
        "currency": {"enum": ["CNY", "USD"]},
        "day": {"type": "string", "format": "date"},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
    "additionalProperties": False,
}


def order(correctors=None, **fields):
    return Contract.from_schema("order", ORDER, correctors=correctors or {}, **fields)


def outcome(field, before, corrector, kinds=WRITE):
    prepared = correct_arguments({field: before}, order({field: corrector}), kinds=kinds)
    return prepared.value[field] if not prepared.findings else prepared.findings
