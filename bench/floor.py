"""The floor: the least work of any checked call."""

from __future__ import annotations

import jsonschema_rs
import orjson

from bench.measure import Case
from bench.payloads import INPUT, OUTPUT


def floor(arguments: str, output: str) -> Case:
    """Return FLOOR: parse both texts and validate both values."""
    argument_bytes, output_bytes = arguments.encode(), output.encode()
    accepts = jsonschema_rs.Draft202012Validator(INPUT, offline=True).is_valid
    delivers = jsonschema_rs.Draft202012Validator(OUTPUT, offline=True).is_valid

    def run() -> bool:
        return accepts(orjson.loads(argument_bytes)) and delivers(orjson.loads(output_bytes))

    assert run()
    return run
