"""A small MCP server over stdio that can go wrong in one way: `python small_mcp_server.py MODE [FILE]`.

It speaks revision 2025-11-25 without any library. `FILE` gets a line for each effect of `add_note`.
"""

import json
import sys
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
FILE = sys.argv[2] if len(sys.argv) > 2 else None
ECHO = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": True},
    "x-unknown": {"kept": None},
}
NOTE = {
    "name": "add_note",
    "description": "Add a note.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": False, "destructiveHint": False},
}


def write(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(ident, params):
    name, text = params["name"], params.get("arguments", {}).get("text")
    if name == "add_note" and FILE:
        with open(FILE, "a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    if MODE == "dies":
        sys.exit(3)
    if MODE == "floods":
        for _ in range(200):
            sys.stdout.write("x" * 1_000_000)
        time.sleep(3_600)
    if MODE == "floods lines":
        for _ in range(20_000):
            sys.stdout.write('{"jsonrpc": "2.0", "id": 7777, "result": {}}\n')
    if MODE == "hangs":
        time.sleep(3_600)
    if MODE == "other ids":
        write({"id": 987_654, "result": {"content": [{"type": "text", "text": "for somebody else"}]}})
        time.sleep(3_600)
    if MODE == "no result":
        write({"id": ident, "result": {"surprise": True}})
        return
    if MODE == "garbage between":
        sys.stdout.write('<html>not JSON</html>\n{"half": \n')
    if MODE == "answers twice":
        write({"id": ident, "result": {"content": [{"type": "text", "text": text}]}})
    write({"id": ident, "result": {"content": [{"type": "text", "text": text}]}})


def list_tools(ident, params):
    if MODE == "no list":
        write({"id": ident, "error": {"code": -32603, "message": "the database of tools is away"}})
    elif MODE == "no tools in it":
        write({"id": ident, "result": {"instruments": []}})
    elif MODE == "endless pages":
        write({"id": ident, "result": {"tools": [], "nextCursor": params.get("cursor", "") + "x"}})
    elif MODE == "one page for ever":
        write({"id": ident, "result": {"tools": [], "nextCursor": "x"}})
    else:
        write({"id": ident, "result": {"tools": [ECHO, NOTE]}})


def main():
    if MODE == "exits":
        sys.exit(1)
    if MODE == "silent":
        time.sleep(3_600)
    for line in sys.stdin:
        if MODE == "babbles":
            sys.stdout.write("Starting up... <html></html>\n")
            sys.stdout.flush()
            continue
        message = json.loads(line)
        method, ident, params = message.get("method"), message.get("id"), message.get("params") or {}
        if ident is None:
            continue
        if method == "initialize":
            info = {"name": "small", "version": "1"}
            write(
                {
                    "id": ident,
                    "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info},
                }
            )
        elif method == "tools/list":
            list_tools(ident, params)
        elif method == "tools/call":
            call(ident, params)
        else:
            write({"id": ident, "error": {"code": -32601, "message": "Method not found"}})


main()
