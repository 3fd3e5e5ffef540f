"""The servers of a client's configuration, started as the client starts them, and their guards fired.

In: a configuration, and the seconds that each server gets.
Out: for each server, what was tried and what happened.
Never: a call that may reach a tool which is not said to only read, or a server that is left running.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pokayoke.cli.client_config import find_configuration
from pokayoke.core.json.values import is_array, is_object
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.config_file import ClientConfig, ConfigFile
from pokayoke.gateway.clients.installation import ServerState, describe_servers
from pokayoke.gateway.messages.results import OUTCOME_KEY, RUN_KEY
from pokayoke.replay.learn.mcp_listing import McpServerSession

_ENVIRONMENT_KEYS: Final = ("env", "environment", "envs")
_FOLDER_KEYS: Final = ("cwd", "workingDirectory")
_WRONG_VALUES: Final[dict[str, Any]] = {
    "string": {"no": "text"},
    "number": [],
    "integer": [],
    "boolean": [],
    "array": {},
}


class ServerCheck(msgspec.Struct, frozen=True):
    """One thing that was tried with one server.

    Args:
        server: its name.
        check: what was tried.
        problem: what is wrong; None if nothing is.
        is_skipped: True if it was not tried; `problem` says why.
        tools: how many it lists, where that was tried.
    """

    server: str
    check: str
    problem: str | None = None
    is_skipped: bool = False
    tools: int = 0


def check_servers(name: str, seconds: float) -> Iterator[ServerCheck]:
    """Start the servers of a configuration one after the other, list their tools and fire their guards.

    The calls are in a run of their own. One names a tool that does not exist, and one gives a wrong type to a tool
    whose server says that it only reads: no guarded server gets to see either.

    Args:
        name: a configuration file, or a well-known client.
        seconds: most seconds for one server.

    Raises:
        ConfigurationError: the configuration cannot be read, or has no servers.
    """
    path, _ = find_configuration(name)
    config = ConfigFile(path).parse()
    for state in describe_servers(config, shutil.which):
        yield from _check_server(config, state, seconds)


def _check_server(config: ClientConfig, state: ServerState, seconds: float) -> Iterator[ServerCheck]:
    server = state.server.name
    if state.state in ("remote", "unusable"):
        yield ServerCheck(server, "it starts", state.detail, is_skipped=state.state == "remote")
        return
    problem = None if state.is_guarded else state.detail or "no guard stands in front of it: pokayoke install"
    yield ServerCheck(server, "it is guarded", problem)
    entry = config.read_entry(state.server)
    given = [value for key in _ENVIRONMENT_KEYS if is_object(value := entry.get(key))]
    known = {key: value for one in given for key, value in one.items() if isinstance(value, str)}
    folder = next((entry[key] for key in _FOLDER_KEYS if isinstance(entry.get(key), str)), None)
    try:
        with McpServerSession(state.words, seconds, environment=known, folder=folder) as session:
            tools = session.list_tools()
            yield ServerCheck(server, "it lists its tools", None if tools else "it lists none", tools=len(tools))
            if state.is_guarded:
                yield from _fire_guard(session, server, tools)
    except (ConfigurationError, OSError) as error:
        yield ServerCheck(server, "it answers", str(error))


def _fire_guard(session: McpServerSession, server: str, tools: list[dict[str, Any]]) -> Iterator[ServerCheck]:
    run = {RUN_KEY: f"verify/{secrets.token_hex(8)}"}
    unknown = {"name": f"no_tool_{secrets.token_hex(4)}", "arguments": {}, "_meta": run}
    problem = _find_refusal_problem(session, unknown)
    yield ServerCheck(server, "an unknown tool is refused", problem)
    wrong = next(filter(None, map(_wrong_call, tools)), None)
    if wrong is None or problem is not None:
        why = "it lists no tool that only reads and takes a typed argument" if wrong is None else "its guard is off"
        yield ServerCheck(server, "a wrong argument is refused", why, is_skipped=True)
        return
    yield ServerCheck(server, "a wrong argument is refused", _find_refusal_problem(session, {**wrong, "_meta": run}))


def _find_refusal_problem(session: McpServerSession, params: dict[str, Any]) -> str | None:
    result = session.send_request("tools/call", params)
    meta = result.get("_meta")
    outcome = meta.get(OUTCOME_KEY) if is_object(meta) else None
    if is_object(outcome) and outcome.get("status") == "refused":
        return None
    status = outcome.get("status") if is_object(outcome) else "no outcome"
    return f"it was not refused ({status}): monitor mode, or no guard"


def _wrong_call(tool: dict[str, Any]) -> dict[str, Any] | None:
    """Return a call of a tool that only reads, with one argument of a wrong type; None if there is no such call."""
    hints, schema = tool.get("annotations"), tool.get("inputSchema")
    if not (is_object(hints) and hints.get("readOnlyHint") is True and is_object(schema)):
        return None
    fields = schema.get("properties")
    for name, field in fields.items() if is_object(fields) else ():
        kind = field.get("type") if is_object(field) else None
        if not is_array(kind) and kind in _WRONG_VALUES:
            return {"name": tool.get("name"), "arguments": {name: _WRONG_VALUES[kind]}}
    return None
