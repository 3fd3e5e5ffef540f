"""An MCP server's tool list: asked over stdio, or read from a saved `tools/list` answer.

A minimal client: initialize, tools/list, shut down. Source: MCP specification 2025-06-18.

In: a command, or a file.
Out: the entries of the list, and drafts of contracts.
Never: trust in the server: every read has a deadline and a size limit, its requests are declined, and its process
    group is ended in every case.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.core.versions.listing_changes import find_listed_tools
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.replay.learn.effect_guess import guess_effect
from pokayoke.replay.learn.learner import DEADLINE, DEADLINE_NOTE, Draft, SkippedTool
from pokayoke.system import CAN_WAIT_FOR_PIPES, end_session

PROTOCOL: Final = "2025-06-18"
_LARGEST_ANSWER: Final = 16_000_000
_MOST_TOOLS: Final = 10_000
_MOST_PAGES: Final = 1_000
_PIECE: Final = 65_536
_STDERR_TAIL: Final = 2_000
_PATIENCE: Final = 2.0
_OUTPUT_KEYS: Final = ("output_schema", "envelope", "max_chars")
_UNKNOWN_METHOD: Final = -32601


def ask_server(command: Sequence[str], *, seconds: float = 30.0) -> list[dict[str, Any]]:
    """Start an MCP server, ask for its tools, and end it.

    Args:
        command: the program and its arguments.
        seconds: most seconds for everything.

    Returns:
        The entries of its tool list, unchanged.

    Raises:
        ConfigurationError: it cannot be started, answers too late, too much, or not in MCP.
    """
    with McpServerSession(command, seconds) as server:
        return server.list_tools()


def read_listing(name: str) -> list[dict[str, Any]]:
    """Read a saved `tools/list` answer: the whole message, its result, or the list alone.

    Raises:
        ConfigurationError: it cannot be read, or holds something else.
    """
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{name}: cannot be read: {error.strerror}") from None
    try:
        value = parse(data)[0]
    except StrictError as error:
        raise ConfigurationError(f"{name}: not JSON: {error}") from None
    entries = find_listed_tools(value)
    if not entries:
        raise ConfigurationError(f"{name}: holds no tools. Expected the answer to tools/list: {{'tools': [...]}}")
    return entries


def build_listed_drafts(
    entries: Sequence[dict[str, Any]], *, trusted_hints: bool = False, version: str = "1"
) -> tuple[list[Draft], list[SkippedTool]]:
    """Return a draft per listed tool; one with an invalid definition is skipped with the reason.

    Args:
        entries: of a tool list.
        trusted_hints: True to believe the server's hints about effects; otherwise only names are used.
        version: version of the contracts.
    """
    drafts: list[Draft] = []
    skipped: list[SkippedTool] = []
    for entry in entries:
        name = str(entry.get("name"))
        try:
            contract = Contract.from_mcp(entry, trusted_hints=trusted_hints, version=version)
        except ContractError as error:
            skipped.append(SkippedTool(name, str(error)[:300]))
            continue
        mapping = contract.to_mapping()
        effect, why = guess_effect(contract.name)
        if trusted_hints and is_object(entry.get("annotations")):
            effect, why = contract.effect, "what the server says; its hints were trusted"
        notes: dict[tuple[str, ...], str] = {
            ("effect",): f"{why}; check it",
            ("timeout",): DEADLINE_NOTE,
            ("input_schema",): "as the server lists it",
        }
        if "output_schema" in mapping:
            notes["output_schema",] = "as the server lists it"
        ordered = {"name": mapping.pop("name"), "version": mapping.pop("version", version)}
        mapping.pop("effect", None)
        drafts.append(Draft({**ordered, "effect": effect, "timeout": DEADLINE, **mapping}, notes))
    return drafts, skipped


def merge_drafts(listed: Sequence[Draft], learnt: Sequence[Draft]) -> list[Draft]:
    """Return listed drafts, completed by recordings: what tools answer, where no schema says it.

    Tools that are not listed are added as learnt.
    """
    known = {draft.mapping["name"]: draft for draft in learnt}
    whole: list[Draft] = []
    for draft in listed:
        other = known.pop(draft.mapping["name"], None)
        if other is None or "output_schema" in draft.mapping:
            whole.append(draft)
            continue
        taken: dict[str, Any] = {key: other.mapping[key] for key in _OUTPUT_KEYS if key in other.mapping}
        notes = {place: note for place, note in other.notes.items() if place[0] in taken or place == ("name",)}
        whole.append(Draft({**draft.mapping, **taken}, {**draft.notes, **notes}))
    return [*whole, *known.values()]


class McpServerSession:
    """A server's process, and the messages to and from it.

    Args:
        command: the program and its arguments.
        seconds: most seconds for everything.
        environment: variables beside those of this process.
        folder: it starts in; None for the current one.

    Raises:
        ConfigurationError: it cannot be started; from each request: it answers too late, too much, or not in MCP.
    """

    def __init__(
        self,
        command: Sequence[str],
        seconds: float,
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> None:
        self._name = command[0] if command else ""
        if not CAN_WAIT_FOR_PIPES:
            raise ConfigurationError(
                f"{self._name}: a server cannot be asked on this system. "
                "Save its tools/list answer in a file, and name that"
            )
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        self._held = b""
        self._sent = 0
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                bufsize=0,
                start_new_session=True,
                env={**os.environ, **environment} if environment else None,
                cwd=folder,
            )
        except (OSError, ValueError, IndexError) as error:
            self._said.close()
            raise ConfigurationError(f"{self._name or 'no command'}: cannot be started: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process.stdin is not None, "opened as a pipe"
        with contextlib.suppress(OSError):
            process.stdin.close()
        end_session(process, _PATIENCE)  # its children too: a server is often started by a shell
        assert process.stdout is not None, "opened as a pipe"
        process.stdout.close()
        self._said.close()

    def list_tools(self) -> list[dict[str, Any]]:
        """Open the conversation and return the entries of the server's tool list, unchanged."""
        self.send_request(
            "initialize",
            {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "pokayoke", "version": "1"}},
        )
        self.send_message({"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools: list[dict[str, Any]] = []
        cursor: Any = None
        for _ in range(_MOST_PAGES):
            answer = self.send_request("tools/list", {} if cursor is None else {"cursor": cursor})
            tools += find_listed_tools(answer)
            cursor = answer.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(tools) > _MOST_TOOLS:
                break
        return tools[:_MOST_TOOLS]

    def send_message(self, message: dict[str, Any]) -> None:
        """Write one message."""
        assert self._process.stdin is not None, "opened as a pipe"
        try:
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        except OSError:
            raise self._server_error("it ended before it was asked") from None

    def send_request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the result of its answer."""
        self._sent += 1
        self.send_message({"jsonrpc": "2.0", "id": self._sent, "method": method, "params": params})
        for message in self._read_messages():
            if "method" in message:
                self._decline_request(message)
            elif message.get("id") == self._sent:
                if is_object(message.get("error")):
                    raise self._server_error(f"{method}: {str(message['error'].get('message'))[:300]}")
                result = message.get("result")
                return result if is_object(result) else {}
        raise self._server_error(f"it ended without an answer to {method}")

    def _decline_request(self, message: dict[str, Any]) -> None:
        """Answer a server's request: a ping with an empty result, any other with an error."""
        if message.get("id") is None:
            return
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "ping":
            self.send_message({**answer, "result": {}})
        else:
            self.send_message({**answer, "error": {"code": _UNKNOWN_METHOD, "message": "not offered"}})

    def _read_messages(self) -> Iterator[dict[str, Any]]:
        """Yield the server's messages. Other lines are skipped: some servers print to stdout."""
        assert self._process.stdout is not None, "opened as a pipe"
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                line, found, rest = self._held.partition(b"\n")
                if found:
                    self._held = rest
                    message = _parse_message(line)
                    if message is not None:
                        yield message
                    continue
                if len(self._held) > _LARGEST_ANSWER:
                    raise self._server_error(f"it sent a line of more than {_LARGEST_ANSWER:,} bytes")
                left = self._deadline - time.monotonic()
                if left <= 0 or not waiting.select(left):
                    raise self._server_error(f"no answer within {self._seconds:g} seconds")
                piece = os.read(self._process.stdout.fileno(), _PIECE)
                if not piece:
                    return
                self._held += piece

    def _server_error(self, why: str) -> ConfigurationError:
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - _STDERR_TAIL))
        last = self._said.read().decode(errors="replace").strip()
        return ConfigurationError(f"{self._name}: {why}" + (f". It said: {last}" if last else ""))


def _parse_message(line: bytes) -> dict[str, Any] | None:
    try:
        value: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if is_object(value) and value.get("jsonrpc") == "2.0" else None
