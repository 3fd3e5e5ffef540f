"""From an existing configuration to a guarded one and back, with the official client and real servers."""

import json
import sys
import tomllib
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from clishell import Shell

import pokayoke

mcp = pytest.importorskip("mcp", reason="the client of the extra `gateway`")
stdio = pytest.importorskip("mcp.client.stdio")

CRM = """
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("crm")
pages = iter(["Ann, ann@example.com", "<!DOCTYPE html><html><body><h1>504 Gateway Time-out</h1></body></html>"])


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_customer(name: str) -> str:
    return next(pages)


server.run("stdio")
"""
MAIL = """
import os, sys
from mcp.server import MCPServer

server = MCPServer("mail")


@server.tool()
def send(text: str) -> str:
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.environ['SENDER']}: {text}\\n")
    return "sent"


server.run("stdio")
"""
JSON = """{
  "mcpServers": {
    "crm": { "command": %(python)s, "args": [%(crm)s] },
    "mail": { "command": %(python)s, "args": [%(mail)s, %(sent)s], "env": { "SENDER": "me" } },
  } // two servers
}
"""
TOML = """# two servers
[mcp_servers]
crm = { command = %(python)s, args = [%(crm)s] }

[mcp_servers.mail]
args = [
  %(mail)s, # the server
  %(sent)s,
]
command = %(python)s
env = { SENDER = "me" }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two servers, and what starts this pokayoke."""
    (tmp_path / "crm.py").write_text(CRM)
    (tmp_path / "mail.py").write_text(MAIL)
    program = tmp_path / "pokayoke"
    source = Path(pokayoke.__file__).parents[1]
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(source)!r})\nfrom pokayoke.cli import main\nmain()\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("POKAYOKE_LAUNCHER", str(program))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("POKAYOKE_STORE", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return tmp_path


def read_as_a_client(path):
    """The servers in a configuration, as a client reads them."""
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text())["mcp_servers"]
    bare = path.read_text().replace(" // two servers", "").replace("},\n  }", "}\n  }")
    return json.loads(bare)["mcpServers"]


async def play(path):
    """The incident: a customer is found, a mail sent, then the CRM answers with a page; a second mail would follow."""
    servers = {}
    async with AsyncExitStack() as stack:
        for name, entry in read_as_a_client(path).items():
            start = mcp.StdioServerParameters(command=entry["command"], args=entry["args"], env=entry.get("env"))
            servers[name] = await stack.enter_async_context(mcp.Client(stdio.stdio_client(start)))
        tools = {name: [tool.name for tool in (await server.list_tools()).tools] for name, server in servers.items()}
        results = [
            await servers[name].call_tool(tool, arguments)
            for name, tool, arguments in [
                ("crm", "find_customer", {"name": "Ann"}),
                ("mail", "send", {"text": "Hello Ann"}),
                ("crm", "find_customer", {"name": "Bob"}),
                ("mail", "send", {"text": "Hello Bob"}),
            ]
        ]
    return tools, [result.is_error for result in results]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "text"), [("mcp.json", JSON), ("config.toml", TOML)])
async def test_two_commands_hold_back_the_mail_that_follows_a_page(folder, name, text):
    """Unguarded, the second mail is sent; after a default installation it is not; afterwards the file is what it was."""
    words = {"python": sys.executable, **{part: str(folder / f"{part}.py") for part in ("crm", "mail")}}
    words["sent"] = str(folder / "sent.txt")
    path, shell = folder / name, Shell(folder)
    path.write_text(text % {key: json.dumps(value) for key, value in words.items()})
    before = path.read_bytes()
    tools = {"crm": ["find_customer"], "mail": ["send"]}

    assert await play(path) == (tools, [False, False, False, False])
    assert (folder / "sent.txt").read_text() == "me: Hello Ann\nme: Hello Bob\n"
    (folder / "sent.txt").unlink()

    assert shell("install", path, "--yes").returncode == 0
    assert await play(path) == (tools, [False, False, True, True])
    assert (folder / "sent.txt").read_text() == "me: Hello Ann\n"

    assert shell("uninstall", path, "--yes").returncode == 0
    assert path.read_bytes() == before
