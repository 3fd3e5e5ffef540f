"""PLUG IN: one folder per framework; none is imported unless the user asks for it.

Every adapter exports `calls(reply, run)` and `message(outcome)`; that of a framework also `contracts(tools, ...)`.
"""

from typing import TYPE_CHECKING, NoReturn

_ELSEWHERE = {
    "adk": "google_adk",
    "ag2": "autogen",
    "agents": "openai_agents",
    "langgraph": "langchain",
    "mcp": "fastmcp",
}
"""Adapters of frameworks that are looked for under another name."""

if not TYPE_CHECKING:  # a type checker says by itself that a module does not exist

    def __getattr__(name: str) -> NoReturn:
        """Say which adapters there are, where one is imported that does not exist.

        Raises:
            UnknownAdapterError: there is no such adapter.
            AttributeError: it is one that is not imported yet, or no name of an adapter: Python then goes on itself.
        """
        from pkgutil import iter_modules  # noqa: PLC0415 - for a mistake only

        from pokayoke.errors import UnknownAdapterError  # noqa: PLC0415 - as above

        known = sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_"))
        if name.startswith("_") or name in known:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        instead = (
            f"import pokayoke.adapters.{_ELSEWHERE[name]}, which serves it"
            if name in _ELSEWHERE
            else "guard your own loop (docs/guides/plain-loop.md), or write one (docs/guides/write-an-adapter.md)"
        )
        raise UnknownAdapterError(f"there is no adapter {name!r}: {instead}. Adapters: {', '.join(known)}")
