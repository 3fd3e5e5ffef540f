"""The guard's own tools: `read_more` pages through a long output, the finder searches the catalogue.

In: nothing; the host declares neither of them.
Out: their names and contracts.
Never: a name that hides a tool of the host.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pokayoke.core.contract.contract import Contract

FINDERS: Final = ("find_tools", "search_tools", "pokayoke_find_tools")
"""Names the finder may have; it gets the first free one."""

_PAGER: Final = "read_more"

OWN_TOOLS: Final = (_PAGER, *FINDERS)
"""Names of the tools that a guard may add to the host's."""

_PAGER_TEXT: Final = "Read on in an output that was too long to show at once."

_PAGER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "handle": {"type": "string", "description": "The handle named in the preview."},
        "offset": {"type": "integer", "minimum": 0, "description": "First character to read. Default 0."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20_000, "description": "Characters. Default 4000."},
    },
    "required": ["handle"],
    "additionalProperties": False,
}
_FINDER_TEXT: Final = (
    "Find more tools by what they do; only some of them are shown. Names and descriptions come back, and from then "
    "on these tools can be called. If several fit and the user's words do not say which one is meant, ask the user."
)
_FINDER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool has to do, in a few words."}},
    "required": ["query"],
    "additionalProperties": False,
}


def paging_tool() -> Contract:
    """Return the tool by which a model pages through a long output."""
    return Contract.from_schema(
        _PAGER,
        _PAGER_SCHEMA,
        effect="read",
        output_schema="text",
        description=_PAGER_TEXT,
        # The texts were traced with the secret fields of their own tools, and may be those of a secret tool.
        secret=True,
        thread="caller",  # it reads memory
    )


@lru_cache(maxsize=len(FINDERS))
def finder_tool(name: str) -> Contract:
    """Return the tool by which a model finds other tools, under the first free name of `FINDERS`."""
    return Contract.from_schema(
        name, _FINDER_SCHEMA, effect="read", output_schema={"type": "object"}, description=_FINDER_TEXT, thread="caller"
    )
