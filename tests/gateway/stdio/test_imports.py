"""What the command loads: it starts with every server of every client."""

import os
import subprocess
import sys

from mcp_lines import ROOT

SCRIPT = """
import sys
import pokayoke.cli.mcp
from pokayoke import Guard
from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.runs import Caller

door, me = Interceptor(Guard([]), scope="s"), Caller()
door.take_listing({"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}, me, "legacy")
pending = door.begin({"name": "a", "arguments": {}}, me)
assert door.finish(pending, {"content": []})["content"] == []
heavy = ("mcp", "mcp_types", "fastmcp", "asyncio", "anyio", "httpx", "httpx2", "starlette", "pydantic", "ruamel.yaml")
print([name for name in heavy if name in sys.modules])
"""


def test_a_guarded_call_loads_no_sdk_and_no_event_loop():
    """Neither the SDK of the protocol nor an event loop, a web library or YAML is loaded for the first call."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True, env=environment, timeout=60)
    assert done.stdout == b"[]\n"
