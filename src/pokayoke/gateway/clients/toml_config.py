"""A client's configuration in TOML.

In: the text of the file.
Out: its servers, and where the command line of each server stands.
Never: a document that tomlkit writes: it finds the places, and the text around them stays as it is.

tomlkit keeps every character of a document and tells no place. So each value that may change is replaced by a mark: the
marks in what tomlkit writes show where the values stand. What does not come back exactly is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from pokayoke.errors import ConfigurationError, MissingExtraError
from pokayoke.gateway.clients.command_line import CommandLine, Word, WordList
from pokayoke.gateway.clients.servers import Path, ServerEntry, find_servers

_KEY: Final = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_PARTS: Final = re.compile(
    r"""(?P<string>"{3}(?:\\.|[^\\])*?"{3,5}(?!")|'{3}.*?'{3,5}(?!')|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
    r"|(?P<comma>,)|[ \t\r\n]+|\#[^\n]*",
    re.DOTALL,
)
_MARK: Final = re.compile(r'"pokayoke-place-([0-9]+)"')


class TomlConfig:
    """A configuration in TOML.

    Args:
        text: its content, without a byte order mark.

    Raises:
        ConfigurationError: it is not TOML, has no servers, or is written in a way that tomlkit does not keep.
        MissingExtraError: tomlkit is not installed.
    """

    def __init__(self, text: str) -> None:
        try:
            import tomlkit  # noqa: PLC0415 - an extra
            from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - as above
        except ImportError:
            raise MissingExtraError("tomlkit", "gateway") from None
        try:
            self._document = tomlkit.parse(text)
        except TOMLKitError as error:
            raise ConfigurationError(f"it is not TOML: {error}") from error
        self.text = text
        self._values: Any = self._document.unwrap()
        self.servers = find_servers(self._values)
        self._inline: set[Path] = set()
        self._places: dict[Path, tuple[int, int]] = self._find_places()

    def find_command_line(self, server: ServerEntry) -> CommandLine:
        """Return where the command line of a server stands, which has one."""
        assert server.keys is not None  # it has one
        arguments = (*server.path, *server.keys.arguments)
        words = self._word_list(arguments) if arguments in self._places else None
        if server.keys.program is None:
            return CommandLine(self.text, None, words, 0, "")
        path = (*server.path, *server.keys.program)
        program = Word(self._value_at(path), *self._places[path])
        return CommandLine(self.text, program, words, *self._added_key(path, server.keys.arguments[-1], program))

    def read_entry(self, server: ServerEntry) -> Mapping[str, Any]:
        """Return the values of a server's entry, which has a command line."""
        return cast("Mapping[str, Any]", self._value_at(server.path))

    def _find_places(self) -> dict[Path, tuple[int, int]]:
        """Return where the values of the command lines stand, from their first to after their last character."""
        written: list[tuple[Path, str]] = []
        for server in self.servers:
            for keys in server.keys or ():
                path = (*server.path, *(keys or ()))
                if keys and self._value_at(path) is not None:
                    written.append((path, self._replace(path, f"pokayoke-place-{len(written)}")))
        places: dict[Path, tuple[int, int]] = {}
        moved = 0
        marked = self._document.as_string()
        for mark in _MARK.finditer(marked):
            path, raw = written[int(mark[1])] if int(mark[1]) < len(written) else ((), "")
            start = mark.start() + moved
            places[path] = (start, start + len(raw))
            moved += len(raw) - len(mark[0])
        restored = _MARK.sub(lambda mark: written[int(mark[1])][1] if int(mark[1]) < len(written) else "", marked)
        if restored != self.text or len(places) != len(written):
            raise ConfigurationError(
                "its TOML is written in a way that cannot be edited without changing more than the commands. Put "
                "`pokayoke mcp --` in front of each command by hand"
            )
        return places

    def _replace(self, path: Path, mark: str) -> str:
        """Put a mark in place of a value, and return how the value was written."""
        from tomlkit.items import InlineTable, Item  # noqa: PLC0415 - an extra

        container: Any = self._document
        for step in path[:-1]:
            found: object = container[step]
            if isinstance(found, InlineTable):
                self._inline.add(path)
            container = found
        item: object = container[path[-1]]
        assert isinstance(item, Item)  # as its type says
        container[path[-1]] = mark
        return item.as_string()

    def _value_at(self, path: Path) -> Any:
        """Return the value at these keys and indices; None if the last key is missing."""
        value = self._values
        for step in path[:-1]:
            value = value[step]
        return value.get(path[-1])

    def _word_list(self, path: Path) -> WordList:
        start, end = self._places[path]
        words: list[Word] = []
        commas: list[int] = []
        values = cast("list[str]", self._value_at(path))
        for part in _PARTS.finditer(self.text, start + 1, end - 1):
            if part["string"] is not None:
                words.append(Word(values[len(words)], part.start(), part.end()))
            elif part["comma"] is not None:
                commas.append(part.end())
        assert len(words) == len(values)  # tomlkit has read the same list
        return WordList(tuple(words), tuple(commas), start, end)

    def _added_key(self, path: Path, key: str, program: Word) -> tuple[int, str]:
        """Return where a list of arguments is added, and what is written before it."""
        before = self.text[self.text.rfind("\n", 0, program.start) + 1 : program.start]
        name = re.escape(str(path[-1]))
        found = re.search(
            rf"(?P<indent>[ \t]*)(?P<prefix>(?:{_KEY}[ \t]*\.[ \t]*)*)[\"']?{name}[\"']?(?P<equals>[ \t]*=[ \t]*)$",
            before,
        )
        assert found is not None  # tomlkit has read the same key
        written = f"{found['prefix']}{key}{found['equals']}"
        if path in self._inline:
            return program.end, f", {written}"
        end = self.text.find("\n", program.end)
        gap = len(self.text) if end < 0 else end - (self.text[end - 1] == "\r")
        line_end = "\r\n" if "\r\n" in self.text else "\n"
        return gap, f"{line_end}{found['indent']}{written}"
