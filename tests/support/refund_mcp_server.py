"""An MCP server that refunds; 51 cents are answered in another shape."""

import json
import sys

LISTED = {"name": "refund", "description": "Refund.", "inputSchema": {"type": "object"}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {}
    if message["method"] == "initialize":
        info = {"serverInfo": {"name": "shop", "version": "1"}, "capabilities": {"tools": {}}}
        result = {"protocolVersion": "2025-06-18", **info}
    elif message["method"] == "tools/list":
        result = {"tools": [LISTED]}
    elif message["method"] == "tools/call":
        arguments = message["params"]["arguments"]
        said = {"refunded": 1} if arguments["cents"] == 51 else {"refunded": arguments["order"]}
        result = {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
