"""The baselines of the comparisons: the common recipe of five guardrails, and a peer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import json_repair

from bench.measure import Case
from bench.payloads import TOOL


def five_guardrails(arguments: str, output: str, root: str, history: list[dict[str, Any]]) -> Case:
    """Return the recipe as it is usually written: repair, name check, path check, return check, context count."""
    known = {TOOL, *(f"other_{number}" for number in range(40))}

    def run() -> str:
        values = json.loads(json_repair.repair_json(arguments))
        if TOOL not in known:
            raise LookupError(TOOL)
        if not (Path(root) / values["target"]).resolve().is_relative_to(Path(root).resolve()):
            raise PermissionError(values["target"])
        result = json.loads(output)
        try:
            text = json.dumps(result)
        except (TypeError, ValueError):
            text = str(result)
        if sum(len(str(message)) // 4 for message in history) > 10**12:
            raise OverflowError
        return text

    run()
    return run


def repair(text: str) -> Case:
    """Return the usual one-liner for damaged arguments."""
    return lambda: json.loads(json_repair.repair_json(text))


def langchain_tool(arguments: str, output: str) -> Case:
    """Return a peer's tool with a model of the arguments, invoked as its framework does."""
    # Imported late: what a framework loads slows down whatever is measured in the same process.
    from langchain_core.tools import StructuredTool  # noqa: PLC0415 - as above
    from pydantic import BaseModel, ConfigDict, Field  # noqa: PLC0415 - as above

    class Line(BaseModel):
        model_config = ConfigDict(extra="forbid")
        line: int
        text: str = Field(max_length=400)
        weight: float | None = None
        done: bool | None = None

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="forbid")
        customer: str = Field(min_length=1, max_length=64)
        article: str = Field(pattern="^[A-Z0-9-]+$")
        count: int = Field(ge=1, le=100)
        currency: str = Field(pattern="^(CHF|EUR|USD)$")
        target: str | None = None
        lines: list[Line] = Field(default=[], max_length=1000)

    def file_report(**_: object) -> str:
        return output

    tool = StructuredTool.from_function(file_report, name=TOOL, description="File a report.", args_schema=Arguments)

    def run() -> object:
        return tool.invoke({"name": TOOL, "args": json.loads(arguments), "id": "call_1", "type": "tool_call"})

    assert run().content == output
    return run
