"""Two published recipes, written anew from their descriptions, to stand beside ours on the same cases."""

import json
from collections.abc import Callable
from typing import Any

Recipe = Callable[[dict[str, Any], dict[str, Any], Callable[[Any], bool]], dict[str, Any] | None]


def contract_driven(
    args: dict[str, Any], schema: dict[str, Any], valid: Callable[[Any], bool]
) -> dict[str, Any] | None:
    """Validate, correct lightly (all digits of a text joined into the integer), validate again, gate at 0.6.

    The article gives 0.78 as confidence of a corrected call, so its gate lets every one of them pass.
    """
    if valid(args):
        return args
    fixed = dict(args)
    for name, value in args.items():
        if isinstance(value, str) and schema["properties"].get(name, {}).get("type") == "integer":
            digits = "".join(letter for letter in value if letter.isdigit())
            fixed[name] = int(digits) if digits else value
    confidence = 0.78
    return fixed if valid(fixed) and confidence >= 0.6 else None


def five_guardrails(
    args: dict[str, Any], schema: dict[str, Any], valid: Callable[[Any], bool]
) -> dict[str, Any] | None:
    """Parse with a repair library and run: no schema is looked at."""
    from json_repair import repair_json  # noqa: PLC0415 - only where it is measured

    read = json.loads(repair_json(json.dumps(args, ensure_ascii=False)))
    return read if isinstance(read, dict) else None
