"""What a wrapped command line looks like: who starts the gateway, with which options, in front of which command.

In: the words of a command line.
Out: what the gateway's part of it is, or that it has none.
Never: a command line that is wrapped a second time.

    /usr/bin/pokayoke mcp --client cursor --store URL --scope cursor -- npx -y some-server
    launcher          mcp options                                   -- command
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MARK: Final = "--client"
_SHARED: Final = (_MARK, "--store", "--scope")
_PROGRAM: Final = re.compile(r"(?:.*[/\\])?pokayoke(?:\.exe|\.cmd|\.py)?(?:[\[=@:<>~!].*)?", re.DOTALL)
_RUNNER: Final = re.compile(r"(?:.*[/\\])?(?:uvx?|pipx)(?:\.exe)?", re.DOTALL)
_LONGEST_LAUNCHER: Final = 6
_COMMAND: Final = "mcp"
_END: Final = "--"


@dataclass(frozen=True, slots=True)
class Gateway:
    """How the gateway is started in front of a server.

    Attributes:
        launcher: the words that start pokayoke.
        client: name of the client, which all its servers share.
        store: URL of the store that they share.
        scope: the scope that they share.
        more: further options of `pokayoke mcp`.
    """

    launcher: tuple[str, ...]
    client: str | None
    store: str | None
    scope: str | None
    more: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """What stands in front of the server's own command."""
        shared = zip(_SHARED, (self.client, self.store, self.scope), strict=True)
        options = [word for name, value in shared if value is not None for word in (name, value)]
        return (*self.launcher, _COMMAND, *options, *self.more, _END)

    @property
    def is_installed(self) -> bool:
        """Whether `pokayoke install` has written it: a person who writes one by hand names no client."""
        return self.client is not None


@dataclass(frozen=True, slots=True)
class WrappedLine:
    """A command line that begins with the gateway.

    Attributes:
        gateway: the outermost one.
        command: the server's own words; empty if somebody has removed them.
        front: number of words before them.
        layers: how many gateways stand in front of the server; more than one is a fault.
    """

    gateway: Gateway
    command: tuple[str, ...]
    front: int
    layers: int


def read_wrapped_line(words: Sequence[str]) -> WrappedLine | None:
    """Return the parts of a command line that starts the gateway; None if it starts something else."""
    first = _read_gateway(words)
    if first is None:
        return None
    gateway, front = first
    layers = 1
    while (inner := _read_gateway(words[front:])) is not None:
        front += inner[1]
        layers += 1
    return WrappedLine(gateway, tuple(words[front:]), front, layers)


def find_pokayoke_command(words: Sequence[str]) -> str | None:
    """Return the word behind pokayoke in a command line that starts it, "" if there is none; None if it does not."""
    has_runner = bool(_RUNNER.fullmatch(words[0]))
    for at, word in enumerate(words[:_LONGEST_LAUNCHER]):
        before = words[at - 1] if at else ""
        # A folder called pokayoke that is handed to another server does not start anything.
        is_package = has_runner and "/" not in word and not before.startswith("-")
        if (at == 0 or before == "-m" or is_package) and _PROGRAM.fullmatch(word):
            return words[at + 1] if at + 1 < len(words) else ""
    return None


def _read_gateway(words: Sequence[str]) -> tuple[Gateway, int] | None:
    """Return the gateway at the beginning of a command line, and the number of its words."""
    end = words.index(_END) if _END in words else len(words)
    for at in range(1, end):
        if words[at] != _COMMAND:
            continue
        shared, more = _split_options(words[at + 1 : end])
        # A launcher of any name is one if it has all the options that an installation writes.
        if _PROGRAM.fullmatch(words[at - 1]) or None not in shared:
            return Gateway(tuple(words[:at]), *shared, more), min(end + 1, len(words))
    return None


def _split_options(words: Sequence[str]) -> tuple[tuple[str | None, str | None, str | None], tuple[str, ...]]:
    """Return the values of the shared options, and all other words."""
    found: dict[str, str] = {}
    more: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in _SHARED:
            more.append(word)
        elif equals:
            found[name] = value
        elif (following := next(rest, None)) is not None:
            found[name] = following
    return (found.get(_MARK), found.get("--store"), found.get("--scope")), tuple(more)
