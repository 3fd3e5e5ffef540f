"""The gateway in front of one stdio server: its two pumps, its clock, and its end.

In: a client on our standard input and output, and a command.
Out: an exit code.
Never: a server that is left running, or a thread that holds up the end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from pokayoke.gateway.interceptor import Interceptor
from pokayoke.gateway.stdio.conversation import Conversation, ConversationSettings
from pokayoke.gateway.stdio.line_streams import LineWriter, read_lines
from pokayoke.gateway.stdio.server_link import ServerLink

_TICK: Final = 0.25
_GRACE: Final = 2.0
_MOST_NOTES: Final = 200
_LONGEST_WAIT: Final = 1.0
"""Seconds of one wait. Windows calls no handler of a signal inside a wait, so Ctrl-C would never be heard."""
# Windows has no hang-up.
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
FAILED: Final = 2
"""Exit code of a server that ended before it said anything."""


def run_gateway(
    command: Sequence[str],
    interceptor: Interceptor,
    settings: ConversationSettings,
    *,
    client_input: int = 0,
    client_output: int = 1,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Stand between a client and a server until one of them is gone; return the exit code.

    Args:
        command: the server's program and its arguments.
        interceptor: the guard.
        settings: the limits.
        client_input: descriptor of the client's lines.
        client_output: descriptor of the lines for it.
        environment: variables of the server; None for ours.

    Raises:
        ConfigurationError: the server cannot be started.
    """
    note = _Notes(command)
    writer = LineWriter(client_output)
    gone = threading.Event()

    def to_client(line: bytes) -> None:
        try:
            writer.write_line(line)
        except OSError:
            gone.set()

    def end_by_signal(_number: int, _frame: object) -> None:
        gone.set()

    def report(is_up: bool, reason: str) -> None:
        note.write(reason)
        interceptor.report_server(note.name, is_up=is_up, reason=reason)

    conversation = Conversation(interceptor, settings, to_client, note.write)
    link = ServerLink(command, conversation, settings.longest_line, report, environment)
    interceptor.report_server(note.name, is_up=True, reason="the server is started")
    conversation.connect(link)
    threads = [
        threading.Thread(target=_read_server, args=(link, gone), name="pokayoke-server", daemon=True),
        threading.Thread(target=_keep_time, args=(conversation, gone), name="pokayoke-clock", daemon=True),
        threading.Thread(target=_read_client, args=(client_input, settings, conversation, gone), daemon=True),
    ]
    for number in _ENDING_SIGNALS:
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, end_by_signal)
    for thread in threads:
        thread.start()
    while not gone.wait(_LONGEST_WAIT):
        pass
    end = time.monotonic() + _GRACE
    while conversation.is_busy and time.monotonic() < end:  # what the server is about to say need not be in doubt
        time.sleep(0.01)
    link.close(_GRACE)
    threads[0].join(_GRACE)
    conversation.client_left()
    return FAILED if not link.has_spoken and link.exit_code not in (None, 0) else 0


def _read_client(
    stream: int, settings: ConversationSettings, conversation: Conversation, gone: threading.Event
) -> None:
    try:
        for line in read_lines(stream, settings.longest_line):
            conversation.take_client_line(line)
    finally:
        gone.set()


def _read_server(link: ServerLink, gone: threading.Event) -> None:
    try:
        link.run()
    finally:
        gone.set()


def _keep_time(conversation: Conversation, gone: threading.Event) -> None:
    while not gone.wait(_TICK):
        conversation.expire(time.monotonic())


class _Notes:
    """Lines for the operator on stderr, escaped, and not without end."""

    def __init__(self, command: Sequence[str]) -> None:
        self.name = os.path.basename(command[0]) if command else ""  # noqa: PTH119 - a name of a program, no path of ours
        self._left = _MOST_NOTES

    def write(self, text: str) -> None:
        """Write a line."""
        if self._left <= 0:
            return
        self._left -= 1
        last = "" if self._left else " (no more notes follow)"
        shown = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text[:500])
        sys.stderr.write(f"pokayoke mcp ({self.name}): {shown}{last}\n")
        sys.stderr.flush()
