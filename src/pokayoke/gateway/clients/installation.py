"""What has to change in a client's configuration, server by server, before anything is changed.

In: a configuration, and how the gateway is to be started.
Out: the state of each server; the changes that wrap, repair or unwrap them.
Never: a change that its counterpart would not take back exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.command_line import Edit, apply_edits
from pokayoke.gateway.clients.config_file import ClientConfig
from pokayoke.gateway.clients.servers import ServerEntry
from pokayoke.gateway.clients.wrapping import Gateway, WrappedLine, find_pokayoke_command, read_wrapped_line

_BY_HAND: Final = "it is wrapped by hand, and shares no store with the others; unwrap it by hand, then install again"
State = Literal["wrapped", "wrapped by hand", "broken", "not wrapped", "remote", "unusable"]


@dataclass(frozen=True, slots=True)
class ServerState:
    """How a server stands.

    Attributes:
        server: the server.
        state: wrapped by an installation, by hand, or not; `remote`: reached by an address; `unusable`: no command.
        words: its command line, as the client starts it.
        detail: what is wrong, or what to do; empty if nothing is.
        wrapped: the parts of the command line, if it is wrapped.
    """

    server: ServerEntry
    state: State
    words: tuple[str, ...] = ()
    detail: str = ""
    wrapped: WrappedLine | None = None

    @property
    def is_guarded(self) -> bool:
        """Whether the gateway stands in front of it."""
        return self.state in ("wrapped", "wrapped by hand")


@dataclass(frozen=True, slots=True)
class ServerChange:
    """A change of one server.

    Attributes:
        server: the server.
        action: what is done to it.
        before: its command line now.
        after: its command line afterwards.
        reason: why a wrapped server is changed; empty otherwise.
        edits: what changes in the text.
    """

    server: ServerEntry
    action: Literal["wrap", "repair", "unwrap"]
    before: tuple[str, ...]
    after: tuple[str, ...]
    reason: str
    edits: tuple[Edit, ...]


def find_installed_gateway(config: ClientConfig) -> Gateway | None:
    """Return the gateway of the first server that an installation has wrapped; the others share its store and scope."""
    for server in config.servers:
        wrapped = _read_wrapped(config, server)
        if wrapped is not None and wrapped.gateway.is_installed:
            return wrapped.gateway
    return None


def describe_servers(config: ClientConfig, find_program: Callable[[str], str | None]) -> list[ServerState]:
    """Return the state of each server.

    Args:
        config: the configuration.
        find_program: returns the path of a program that exists, as `shutil.which` does.
    """
    shared = find_installed_gateway(config)
    found: list[ServerState] = []
    for server in config.servers:
        if server.keys is None:
            found.append(ServerState(server, "remote" if server.is_remote else "unusable", detail=server.problem))
            continue
        words = config.find_command_line(server).words
        wrapped = read_wrapped_line(words)
        if wrapped is None:
            found.append(_describe_unwrapped(server, words))
            continue
        problem = _find_problem(wrapped, shared, find_program)
        if problem:
            found.append(ServerState(server, "broken", words, problem, wrapped))
        elif wrapped.gateway.is_installed:
            found.append(ServerState(server, "wrapped", words, "", wrapped))
        else:
            found.append(ServerState(server, "wrapped by hand", words, _BY_HAND, wrapped))
    return found


def plan_installation(config: ClientConfig, gateway: Gateway, *, keeps_options: bool) -> list[ServerChange]:
    """Return the changes after which each server that has a command is wrapped by this gateway, once.

    A server that somebody has wrapped by hand stays as it is.

    Args:
        config: the configuration.
        gateway: what is to stand in front of each server.
        keeps_options: True keeps the further options of a server that is wrapped already.

    Raises:
        ConfigurationError: a word cannot be written, or a change could not be taken back exactly.
    """
    changes: list[ServerChange] = []
    for server in config.servers:
        if server.keys is None:
            continue
        line = config.find_command_line(server)
        words = line.words
        wrapped = read_wrapped_line(words)
        if wrapped is None:
            if find_pokayoke_command(words) is not None:
                continue
            edits = tuple(line.put_in_front(gateway.words))
            changes.append(ServerChange(server, "wrap", words, (*gateway.words, *words), "", edits))
            continue
        old = wrapped.gateway
        if not (old.is_installed and wrapped.command):
            continue
        new = dataclasses.replace(gateway, more=old.more) if keeps_options else gateway
        after = (*new.words, *wrapped.command)
        if after != words:
            edits = tuple(line.replace_front(wrapped.front, new.words))
            changes.append(ServerChange(server, "repair", words, after, _explain_repair(wrapped, new), edits))
    return changes


def plan_removal(config: ClientConfig) -> list[ServerChange]:
    """Return the changes after which no server is wrapped by an installation; those wrapped by hand stay."""
    changes: list[ServerChange] = []
    for server in config.servers:
        wrapped = _read_wrapped(config, server)
        if wrapped is not None and wrapped.gateway.is_installed and wrapped.command:
            line = config.find_command_line(server)
            edits = tuple(line.take_from_front(wrapped.front))
            changes.append(ServerChange(server, "unwrap", line.words, wrapped.command, "", edits))
    return changes


def apply_changes(config: ClientConfig, changes: Sequence[ServerChange], parse: Callable[[str], ClientConfig]) -> str:
    """Return the text after some changes, read again and compared with what was planned.

    Args:
        config: the configuration.
        changes: of its servers.
        parse: reads a text in the format of the configuration.

    Raises:
        ConfigurationError: the text would not mean what was planned, or could not be taken back exactly.
    """
    text = _apply(config, changes)
    planned = {change.server.path: change.after for change in changes}
    changed = parse(text)
    for before, after in zip(config.servers, changed.servers, strict=True):
        if before != after:
            raise _unsafe_entry_error(before)
        if after.keys is not None:
            words = planned.get(after.path, config.find_command_line(before).words)
            if changed.find_command_line(after).words != words:
                raise _unsafe_entry_error(before)
    wraps = [change for change in changes if change.action == "wrap"]
    if wraps:
        wrapped = parse(_apply(config, wraps))
        paths = {change.server.path for change in wraps}
        if _apply(wrapped, (change for change in plan_removal(wrapped) if change.server.path in paths)) != config.text:
            raise _unsafe_entry_error(wraps[0].server)
    return text


def _apply(config: ClientConfig, changes: Iterable[ServerChange]) -> str:
    return apply_edits(config.text, (edit for change in changes for edit in change.edits))


def _unsafe_entry_error(server: ServerEntry) -> ConfigurationError:
    return ConfigurationError(
        f"{server.name}: its entry is written in a way that cannot be edited safely, so nothing was written. Put "
        "`pokayoke mcp --` in front of its command by hand"
    )


def _read_wrapped(config: ClientConfig, server: ServerEntry) -> WrappedLine | None:
    return None if server.keys is None else read_wrapped_line(config.find_command_line(server).words)


def _describe_unwrapped(server: ServerEntry, words: tuple[str, ...]) -> ServerState:
    match find_pokayoke_command(words):
        case None:
            return ServerState(server, "not wrapped", words)
        case "gateway":
            return ServerState(server, "wrapped by hand", words, "`pokayoke gateway` guards what stands behind it")
        case _:
            problem = "it starts pokayoke without `mcp`: write the words there that belong there, see the backup"
            return ServerState(server, "broken", words, problem)


def _find_problem(wrapped: WrappedLine, shared: Gateway | None, find_program: Callable[[str], str | None]) -> str:
    gateway = wrapped.gateway
    if not wrapped.command:
        return "no command stands behind the gateway's `--`: put the server's own command there"
    if wrapped.layers > 1:
        return "it is wrapped more than once; install again"
    if find_program(gateway.launcher[0]) is None:
        return f"{gateway.launcher[0]} is not there; install again"
    if not gateway.is_installed or shared is None:
        return ""
    if (gateway.client, gateway.store, gateway.scope) != (shared.client, shared.store, shared.scope):
        return "it does not share client, store and scope with the other servers; install again"
    if None in (gateway.store, gateway.scope):
        return "its --store or --scope is missing; install again"
    return ""


def _explain_repair(wrapped: WrappedLine, new: Gateway) -> str:
    old = wrapped.gateway
    if wrapped.layers > 1:
        return "it is wrapped more than once"
    if old.launcher != new.launcher:
        return "pokayoke is started in another way"
    if (old.client, old.store, old.scope) != (new.client, new.store, new.scope):
        return "it does not share client, store and scope with the other servers"
    return "its options are others"
