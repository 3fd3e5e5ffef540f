"""A stdio server: its process, and the messages over its pipes.

In: a command line, and messages for it.
Out: its messages.
Never: a line that is read into memory without a limit, or a process that outlives its connection.

The SDK's own transport reads a line of any length. Everything else is as there: a process group of its own, stdin
closed first, then SIGTERM and SIGKILL for the whole group; where there are no groups, the process alone is ended.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from pokayoke.system import HAS_PROCESS_GROUPS, find_program

_MAX_LINE: Final = 16 * 1024 * 1024
_EXIT_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.01
_ENDS: Final = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.DelimiterNotFound,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    OSError,
)
"""What ends the reading of messages: the pipe has ended, or a line is longer than a message may be."""


@asynccontextmanager
async def open_process(
    command: Sequence[str], *, env: Mapping[str, str], cwd: str, errlog: Any
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start a server and yield the streams of its messages; stop it at the end.

    Lines that are no message are passed over: servers print them by mistake.

    Args:
        command: the program and its arguments.
        env: variables beside the few that are safe to hand on.
        cwd: the folder it starts in; "" for the current one.
        errlog: the text stream that takes its stderr; None for that of this process.

    Raises:
        OSError: it cannot be started.
    """
    process = await anyio.open_process(
        [*map(find_program, command[:1]), *command[1:]],
        env={**get_default_environment(), **env},
        cwd=cwd or None,
        stderr=errlog,
        start_new_session=True,
    )
    found, read = anyio.create_memory_object_stream[Any](0)
    write, given = anyio.create_memory_object_stream[Any](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, process, found)
            tasks.start_soon(_write_messages, process, given, found)
            try:
                yield read, write
            finally:
                with anyio.CancelScope(shield=True):
                    await _stop(process)
                tasks.cancel_scope.cancel()
    finally:
        for stream in (found, read, write, given):
            stream.close()


async def _read_messages(process: Any, found: Any) -> None:
    lines = BufferedByteReceiveStream(process.stdout)
    with suppress(*_ENDS):
        while True:
            line = await lines.receive_until(b"\n", _MAX_LINE)
            with suppress(ValidationError):
                await found.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
    found.close()


async def _write_messages(process: Any, given: Any, found: Any) -> None:
    with suppress(*_ENDS):
        async for sent in given:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(f"{text}\n".encode())
        return
    found.close()  # it reads no more, so that no request would be answered


async def _stop(process: Any) -> None:
    with suppress(*_ENDS):
        await process.stdin.aclose()
    if not await _has_ended(process):
        if HAS_PROCESS_GROUPS:
            await terminate_posix_process_tree(process, _EXIT_SECONDS)
        else:
            with suppress(ProcessLookupError):
                process.terminate()
        await _has_ended(process)
    with suppress(*_ENDS):
        await process.stdout.aclose()
    # The transport stays open, and warns, as long as a descendant holds a pipe; nothing public closes it.
    transport: Any = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        transport.close()


async def _has_ended(process: Any) -> bool:
    """Return whether the process ends in time. `process.wait` would wait for the pipes of descendants too."""
    with anyio.move_on_after(_EXIT_SECONDS):
        while process.returncode is None:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(_POLL_SECONDS)
        return True
    return False
