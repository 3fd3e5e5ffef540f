"""An MCP server on the official SDK that asks its client for everything the protocol has.

python talkative_mcp_server.py [EFFECTS]
"""

import sys
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("talkative", version="1")
READS = ToolAnnotations(read_only_hint=True)


class Sum(BaseModel):
    total: int


class Wish(BaseModel):
    colour: Annotated[str, Field(description="a colour")]


@server.tool(annotations=READS)
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
def write(text: str) -> str:
    """Write a line down."""
    if len(sys.argv) > 1:
        with open(sys.argv[1], "a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    return f"wrote {text}"


@server.tool(annotations=READS)
def fail(text: str) -> str:
    """Fail with a text."""
    raise ValueError(text)


@server.tool(annotations=READS)
async def count(to: int, ctx: Context) -> str:
    """Report progress."""
    for number in range(to):
        await ctx.report_progress(number + 1, to, f"step {number + 1}")
    return "counted"


@server.tool(annotations=READS)
async def wish(ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit("Which colour?", Wish)
    return f"{answer.action} {getattr(getattr(answer, 'data', None), 'colour', '')}"


@server.tool(annotations=READS)
async def think(ctx: Context) -> str:
    """Ask the client's model."""
    said = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=TextContent(type="text", text="hi"))], max_tokens=5
    )
    return said.content.text


@server.tool(annotations=READS)
async def roots(ctx: Context) -> str:
    """Ask for the client's roots."""
    found = await ctx.session.list_roots()
    return " ".join(str(one.uri) for one in found.roots)


@server.tool(annotations=READS)
async def grow(ctx: Context) -> str:
    """Say that the list of tools has changed."""
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.resource("memo://one")
def memo() -> str:
    """Return a memo."""
    return "remember"


@server.prompt()
def greet(name: str) -> str:
    """Greet."""
    return f"Greet {name}."


server.run("stdio")
