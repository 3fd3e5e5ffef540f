"""The floor under a stdio gateway: an empty pump of two threads, and a server that echoes.

python bench/pump.py pump COMMAND...
python bench/pump.py echo
"""

import json
import os
import subprocess
import sys
import threading

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = {"name": "echo", "inputSchema": SCHEMA, "outputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}


def pump(command):
    """Carry lines both ways; parse each, as anything that is to act on one has to."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def carry(source, target):
        held = b""
        while piece := os.read(source, 65_536):
            *lines, held = (held + piece).split(b"\n")
            for line in lines:
                json.loads(line)
                os.write(target, line + b"\n")

    thread = threading.Thread(target=carry, args=(server.stdout.fileno(), 1), daemon=True)
    thread.start()
    carry(0, server.stdin.fileno())
    server.stdin.close()
    server.wait()


def echo():
    """Answer calls with their own text, in both shapes."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, result = message.get("method"), {}
        if method == "initialize":
            info = {"serverInfo": {"name": "echo", "version": "1"}, "capabilities": {"tools": {}}}
            result = {"protocolVersion": "2025-06-18", **info}
        elif method == "tools/list":
            result = {"tools": [ECHO]}
        elif method == "tools/call":
            said = {"text": message["params"]["arguments"]["text"]}
            result = {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}
        elif "id" not in message:
            continue
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    pump(sys.argv[2:]) if sys.argv[1] == "pump" else echo()
