"""Arguments, outputs, schemas and histories from a fixed seed: equal in every run."""

from __future__ import annotations

import json
import random
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TOOL = "file_report"
PATH = "reports/2026/summary.txt"
PHRASES = (
    "please call back before noon", "invoice", "refund to the card", "Zürich", "second floor, left door", "priority",
    "https://shop.example/o/77?ref=mail", "needs no signature", "pending", "née Dubois", "green, size 42",
)  # fmt: skip

LINE = {
    "type": "object",
    "required": ["line", "text"],
    "additionalProperties": False,
    "properties": {
        "line": {"type": "integer"},
        "text": {"type": "string", "maxLength": 400},
        "weight": {"type": "number"},
        "done": {"type": "boolean"},
    },
}
INPUT: dict[str, Any] = {
    "$schema": DRAFT,
    "type": "object",
    "required": ["customer", "article", "count", "currency"],
    "additionalProperties": False,
    "properties": {
        "customer": {"type": "string", "minLength": 1, "maxLength": 64},
        "article": {"type": "string", "pattern": "^[A-Z0-9-]+$"},
        "count": {"type": "integer", "minimum": 1, "maximum": 100},
        "currency": {"enum": ["CHF", "EUR", "USD"]},
        "target": {"type": "string"},
        "lines": {"type": "array", "maxItems": 1000, "items": LINE},
    },
}
OUTPUT: dict[str, Any] = {
    "$schema": DRAFT,
    "type": "object",
    "required": ["accepted", "records"],
    "additionalProperties": False,
    "properties": {
        "accepted": {"const": True},
        "next": {"type": ["string", "null"]},
        "count": {"type": "integer", "minimum": 0},
        "records": {"type": "array", "items": {"$ref": "#/$defs/record"}},
    },
    "$defs": {
        "record": {
            "type": "object",
            "required": ["number", "state", "price"],
            "additionalProperties": False,
            "properties": {
                "number": {"type": "string", "pattern": "^REC-[0-9]{6}$"},
                "state": {"enum": ["new", "sent", "settled"]},
                "price": {"type": "number", "minimum": 0},
                "pieces": {"type": "integer", "minimum": 1},
                "subject": {"type": "string"},
                "labels": {"type": "array", "items": {"type": "string"}},
                "at": {"type": "string", "format": "date-time"},
                "place": {
                    "type": "object",
                    "properties": {
                        "town": {"type": "string"},
                        "code": {"type": "string"},
                        "street": {"type": "array", "items": {"type": ["string", "null"]}},
                    },
                },
            },
        }
    },
}


class Source:
    """Draws payloads from one seeded generator."""

    def __init__(self, seed: int = 11) -> None:
        self.random = random.Random(seed)

    def text(self, phrases: int) -> str:
        return " ".join(self.random.choice(PHRASES) for _ in range(phrases))

    def arguments(self, size: int) -> str:
        """Return argument text of at least `size` bytes that fits INPUT."""
        value: dict[str, Any] = {
            "customer": "C-5550123", "article": "ART-42-X", "count": 3, "currency": "EUR", "target": PATH, "lines": [],
        }  # fmt: skip
        while len(json.dumps(value)) < size:
            value["lines"].append(
                {
                    "line": self.random.randrange(10**6),
                    "text": self.text(5),
                    "weight": round(self.random.random() * 90, 3),
                    "done": self.random.random() < 0.5,
                }
            )
        return json.dumps(value)

    def output(self, size: int) -> str:
        """Return output text of at least `size` bytes that fits OUTPUT."""
        records: list[dict[str, Any]] = []
        used = 60
        while used < size:
            record = {
                "number": f"REC-{self.random.randrange(10**6):06d}",
                "state": self.random.choice(["new", "sent", "settled"]),
                "price": round(self.random.random() * 900, 2),
                "pieces": self.random.randrange(1, 90),
                "subject": self.text(4),
                "labels": [self.random.choice("abc") for _ in range(3)],
                "at": f"2026-05-{self.random.randrange(1, 29):02d}T08:15:00Z",
                "place": {"town": "Genève", "code": "1204", "street": ["Rue du Rhône 8", None]},
            }
            used += len(json.dumps(record)) + 2
            records.append(record)
        return json.dumps({"accepted": True, "next": None, "count": len(records), "records": records})

    def history(self, messages: int) -> list[dict[str, Any]]:
        """Return a conversation of so many messages, calls and results included."""
        found: list[dict[str, Any]] = [{"role": "system", "content": "You file reports. " * 25}]
        while len(found) < messages:
            function = {"name": TOOL, "arguments": self.arguments(200)}
            call = {"id": f"call_{len(found)}", "type": "function", "function": function}
            found += [
                {"role": "user", "content": self.text(35)},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": self.output(1500)},
            ]
        return found[:messages]


def with_mistakes(text: str) -> str:
    """Return the same arguments with four mistakes that no correction may fix."""
    value = json.loads(text)
    value |= {"count": 4000, "currency": "doubloons", "article": "no such article!", "colour": "blue"}
    return json.dumps(value)


def damaged_variants(text: str) -> dict[str, str]:
    """Return the same arguments as a model might have written them, by the kind of damage."""
    python = repr(json.loads(text))
    return {
        "trailing comma": text[:-1] + ",}",
        "code fence": f"Here is the call:\n```json\n{text}\n```",
        "Python literal": python,
        "unquoted keys": text.replace('"count"', "count").replace('"lines"', "lines"),
        "comment": text.replace('"count"', '/* how many */ "count"', 1),
    }
