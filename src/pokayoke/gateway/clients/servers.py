"""The servers of a client's configuration, whichever client it is.

In: the values of a configuration.
Out: its servers: where each stands, and how its command line is written.
Never: a server that is passed over in silence; one that cannot be wrapped says why.

Clients agree on a mapping from a server's name to its entry. They differ in where the mapping stands (`SECTIONS`), and
in how an entry writes its command line: a program with a list of arguments, one list with both, or an object with both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from pokayoke.errors import ConfigurationError

Step = str | int
Path = tuple[Step, ...]

SECTIONS: Final[tuple[tuple[str, ...], ...]] = (
    ("mcpServers",),  # desktop assistants, Cursor, Gemini, and most others
    ("projects", "*", "mcpServers"),  # Claude Code's state file: the servers of one project
    ("servers",),  # VS Code, in mcp.json
    ("mcp", "servers"),  # VS Code, in its settings
    ("context_servers",),  # Zed
    ("mcp_servers",),  # Codex
    ("mcp",),  # OpenCode, Crush
    ("amp.mcpServers",),  # Amp
)
"""Where the mapping of servers stands; `*` is any key."""


class LineKeys(NamedTuple):
    """The keys of an entry that hold its command line.

    Attributes:
        program: of the program; None where the list of arguments begins with it.
        arguments: of the list of arguments.
    """

    program: tuple[str, ...] | None
    arguments: tuple[str, ...]


_PAIR: Final = LineKeys(("command",), ("args",))
_LIST: Final = LineKeys(None, ("command",))  # OpenCode
_OBJECT: Final = LineKeys(("command", "path"), ("command", "args"))  # Zed, until 2025
_ADDRESSES: Final = ("url", "httpUrl", "serverUrl")
_DEEPEST_OF_ENTRY: Final = 3  # entry, command, path


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server in a configuration.

    Attributes:
        name: what the client calls it.
        path: the keys that lead to its entry.
        keys: those of its command line; None where it has none that can be wrapped.
        is_remote: whether the client reaches it by an address.
        problem: why it cannot be wrapped; empty where it can.
    """

    name: str
    path: Path
    keys: LineKeys | None = None
    is_remote: bool = False
    problem: str = ""

    @property
    def section(self) -> str:
        """The keys that lead to the mapping it stands in, as one text."""
        return " > ".join(map(str, self.path[:-1]))


def may_hold_servers(path: tuple[str, ...]) -> bool:
    """Return whether what stands below these keys may be a server, hold one, or be a part of one."""
    for section in SECTIONS:
        if len(path) <= len(section) + _DEEPEST_OF_ENTRY and all(
            "*" in (step, key) or step == key for step, key in zip(section, path, strict=False)
        ):
            return True
    return False


def find_servers(document: Any) -> list[ServerEntry]:
    """Return the servers of a configuration, in its order.

    Args:
        document: its values; anything that no command line has may be None.

    Raises:
        ConfigurationError: it has no servers.
    """
    if not isinstance(document, Mapping):
        raise ConfigurationError("it is not a configuration: expected an object that holds the servers")
    found: list[ServerEntry] = []
    has_section = False
    for section in SECTIONS:
        for path, mapping in _walk(document, section):
            if section == ("mcp",) and "servers" in mapping:  # those of ("mcp", "servers")
                continue
            has_section = True
            found += [_read_entry(name, (*path, step), entry) for name, step, entry in _members(mapping)]
    if not found:
        keys = ", ".join("/".join(section) for section in SECTIONS)
        raise ConfigurationError(
            "it lists no server yet: add one with the client first"
            if has_section
            else f"it has no list of MCP servers; looked for the keys {keys}"
        )
    return found


def _walk(value: Any, section: tuple[str, ...], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each mapping or list of servers in this place, with the keys that lead to it."""
    if not section:
        if isinstance(value, Mapping | list):
            yield path, value
        return
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        for key in list(members) if section[0] == "*" else [section[0]]:
            if key in members:
                yield from _walk(members[key], section[1:], (*path, key))


def _members(mapping: Any) -> Iterator[tuple[str, Step, Any]]:
    """Yield name, key and entry of each server. In a list an entry carries its name itself."""
    if isinstance(mapping, Mapping):
        for key, entry in cast("Mapping[str, Any]", mapping).items():
            yield key, key, entry
        return
    for index, entry in enumerate(cast("list[Any]", mapping)):
        name = cast("Mapping[str, Any]", entry).get("name") if isinstance(entry, Mapping) else None
        yield name if isinstance(name, str) else f"number {index + 1}", index, entry


def _read_entry(name: str, path: Path, entry: Any) -> ServerEntry:
    if not isinstance(entry, Mapping):
        return ServerEntry(name, path, problem="its entry is not an object")
    members = cast("Mapping[str, Any]", entry)
    command = members.get("command")
    if isinstance(command, str):
        return _with_arguments(ServerEntry(name, path, _PAIR), command, members)
    if isinstance(command, list):
        if not command or not _is_word_list(command):
            return ServerEntry(name, path, problem="its command is not a list of texts")
        return ServerEntry(name, path, _LIST)
    if isinstance(command, Mapping) and isinstance(program := cast("Mapping[str, Any]", command).get("path"), str):
        return _with_arguments(ServerEntry(name, path, _OBJECT), program, cast("Mapping[str, Any]", command))
    if any(isinstance(members.get(key), str) for key in _ADDRESSES):
        return ServerEntry(
            name,
            path,
            is_remote=True,
            problem="the client reaches it by its address; only a command can be wrapped, see `pokayoke gateway`",
        )
    return ServerEntry(name, path, problem="it has no command")


def _with_arguments(server: ServerEntry, program: str, members: Mapping[str, Any]) -> ServerEntry:
    if not program.strip():
        return ServerEntry(server.name, server.path, problem="its command is empty")
    if "args" in members and not _is_word_list(members["args"]):
        return ServerEntry(server.name, server.path, problem="its args are not a list of texts")
    return server


def _is_word_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in cast("list[object]", value))
