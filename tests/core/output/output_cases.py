"""A contract, good outputs, and helpers to check one output with the default policy."""

import json
from typing import Any

import httpx
import requests
from hypothesis import strategies as st

from pokayoke.core.contract.contract import Contract
from pokayoke.core.output.validate import OutputResult, check_output
from pokayoke.core.policy import ToolOutputPolicy

PAGE = "<!doctype html>\n<html><head><title>Maintenance</title></head><body>Back soon.</body></html>"

PROFILE = {
    "type": "object",
    "required": ["user_id"],
    "properties": {
        "user_id": {"type": "string", "minLength": 1},
        "plan": {"enum": ["free", "pro", "enterprise"]},
        "profile": {"type": "string"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ok": {"type": "boolean"},
        "note": {"type": "string"},
    },
}

GOOD = {"user_id": "u1", "plan": "pro", "tags": ["a"]}


def contract(output: Any = PROFILE, **fields: Any) -> Contract:
    """A read tool with this output."""
    arguments = {"type": "object", "properties": {"user_id": {}, "ids": {}}}
    return Contract.from_schema("http.get", arguments, output_schema=output, effect="read", **fields)


def judge(raw: Any, output: Any = PROFILE, *, arguments: dict[str, Any] | None = None, **fields: Any) -> OutputResult:
    """Check one output with the default policy."""
    return check_output(raw, contract(output, **fields), arguments=arguments or {}, policy=ToolOutputPolicy())


def code(checked: OutputResult) -> str | None:
    """The code of the first finding, None if there is none."""
    assert checked.ok is (not checked.findings and checked.failure is None)
    return checked.findings[0].code if checked.findings else None


def response(body: bytes, content_type: str | None = "application/json", status: int = 200, **headers: str) -> Any:
    """An httpx response as a client returns it."""
    if content_type is not None:
        headers["content-type"] = content_type
    return httpx.Response(status, content=body, headers=headers)


def requested(body: bytes | None, content_type: str = "application/json", status: int = 200) -> requests.Response:
    """A requests response as a client returns it; unread if the body is None."""
    made = requests.Response()
    made.status_code = status
    made.headers["Content-Type"] = content_type
    if body is not None:
        made._content = body
    return made


TEXT = json.dumps(GOOD)

BODY = TEXT.encode()


async def later(output: Any, arguments: Any) -> bool:
    return True


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
