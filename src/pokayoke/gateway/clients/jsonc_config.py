"""A client's configuration in JSON, with or without comments.

In: the text of the file.
Out: its servers, and where the command line of each server stands.
Never: a key that stands twice is passed over: clients disagree about which one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pokayoke.core.json.values import is_object
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.command_line import CommandLine, Word, WordList
from pokayoke.gateway.clients.jsonc import JsoncArray, JsoncObject, JsoncValue, describe_place, parse_jsonc
from pokayoke.gateway.clients.servers import Path, ServerEntry, find_servers, may_hold_servers


class JsoncConfig:
    """A configuration in JSON.

    Args:
        text: its content, without a byte order mark.

    Raises:
        ConfigurationError: it is not JSON, has no servers, or has a key twice where servers stand.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._root = parse_jsonc(text, may_hold_servers)
        self._members: dict[int, dict[str, tuple[Word, JsoncValue]]] = {}
        self.servers = find_servers(self._to_plain(self._root))

    def _to_plain(self, value: JsoncValue) -> Any:
        if isinstance(value, Word):
            return value.value
        if isinstance(value, JsoncArray):
            return [self._to_plain(item) for item in value.items]
        if not isinstance(value, JsoncObject):
            return None
        members = self._members[value.start] = {}
        for key, member in value.members:
            if key.value in members:
                raise ConfigurationError(
                    f"{describe_place(self.text, key.start)}: the key {key.value!r} stands here for the second "
                    "time, and clients disagree about which one counts. Remove one of them"
                )
            members[key.value] = (key, member)
        return {key: self._to_plain(member) for key, (_, member) in members.items()}

    def find_command_line(self, server: ServerEntry) -> CommandLine:
        """Return where the command line of a server stands, which has one."""
        assert server.keys is not None  # it has one
        arguments = self._at((*server.path, *server.keys.arguments))
        words = None
        if arguments is not None:
            assert isinstance(arguments, JsoncArray)  # its keys were chosen so
            items = tuple(item for item in arguments.items if isinstance(item, Word))
            words = WordList(items, arguments.commas, arguments.start, arguments.end)
        if server.keys.program is None:
            return CommandLine(self.text, None, words, 0, "")
        entry = self._at((*server.path, *server.keys.program[:-1]))
        assert isinstance(entry, JsoncObject)  # its keys were chosen so
        key, program = self._members[entry.start][server.keys.program[-1]]
        assert isinstance(program, Word)  # its keys were chosen so
        added = f',{self._blank_before(key)}"{server.keys.arguments[-1]}"{self._colon(key, program)}'
        return CommandLine(self.text, program, words, program.end, added)

    def read_entry(self, server: ServerEntry) -> Mapping[str, Any]:
        """Return the texts of a server's entry, which has a command line."""
        value = self._to_plain(self._at(server.path) or self._root)
        assert is_object(value)  # it has a command line
        return value

    def _blank_before(self, key: Word) -> str:
        """Return the line end and the indentation of a key that begins its line, otherwise a blank."""
        start = key.start
        while start and self.text[start - 1] in " \t\r\n":
            start -= 1
        blank = self.text[start : key.start]
        return blank if "\n" in blank else " "

    def _colon(self, key: Word, value: Word) -> str:
        between = self.text[key.end : value.start]
        return between if set(between) <= set(" :") else ": "

    def _at(self, path: Path) -> JsoncValue | None:
        """Return the value at these keys and indices, or None."""
        value: JsoncValue | None = self._root
        for step in path:
            if isinstance(value, JsoncArray) and isinstance(step, int):
                value = value.items[step]
            elif isinstance(value, JsoncObject):
                _, value = self._members[value.start].get(str(step), (None, None))
        return value
