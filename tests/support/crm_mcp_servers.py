"""The two servers of the incident: one reads profiles, and may answer with a page; the other writes into a CRM.

python crm_mcp_servers.py profiles STATE     STATE holds "page" while the upstream is down
python crm_mcp_servers.py crm ROWS [SECONDS]
"""

import json
import sys
import time
from pathlib import Path

KIND, FILE = sys.argv[1], Path(sys.argv[2])
PAGE = "<!doctype html>\n<html><head><title>Maintenance</title></head>\n<body>We'll be back soon.</body></html>"
USER = {"type": "object", "properties": {"user": {"type": "string"}}, "required": ["user"]}
PROFILES = [{"name": "get_profile", "description": "Read a profile.", "inputSchema": USER}]
UPDATE = {**USER, "properties": {**USER["properties"], "name": {"type": "string"}}}
CRM = [{"name": "update_record", "description": "Change a record of the CRM.", "inputSchema": UPDATE}]


def send(ident, result):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}) + "\n")
    sys.stdout.flush()


def call(arguments):
    if KIND == "profiles":
        return PAGE if FILE.read_text() == "page" else json.dumps({"user": arguments["user"], "name": "Ada"})
    with FILE.open("a") as rows:
        rows.write(json.dumps(arguments) + "\n")
    if len(sys.argv) > 3:
        time.sleep(float(sys.argv[3]))
    return "updated"


for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"serverInfo": {"name": KIND, "version": "1"}, "capabilities": {"tools": {}}}
        send(message["id"], {"protocolVersion": "2025-06-18", **info})
    elif message.get("method") == "tools/list":
        send(message["id"], {"tools": PROFILES if KIND == "profiles" else CRM})
    elif message.get("method") == "tools/call":
        said = call(message["params"].get("arguments", {}))
        send(message["id"], {"content": [{"type": "text", "text": said}]})
    elif "id" in message:
        send(message["id"], {})
