"""The server behind a conversation: started, read, and started again when it has ended.

In: lines for the server.
Out: its lines, and what became of it.
Never: a line that two processes get, or a process that is started again and again without anybody who needs it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.stdio.conversation import Conversation
from pokayoke.gateway.stdio.exchange import Exchange
from pokayoke.gateway.stdio.line_streams import LineWriter, StreamStalledError, UnreadLineError, read_lines
from pokayoke.gateway.stdio.server_process import ServerProcess

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_MOST_STARTS: Final = 5
_MOST_HELD: Final = 1_000
_HEALTHY_SECONDS: Final = 30.0
_HANDSHAKE_SECONDS: Final = 30.0
_STALL_SECONDS: Final = 30.0


class ServerLink:
    """Keeps one server running for a conversation; thread-safe.

    A server that ends is started again by the next line for it, after a pause that doubles each time. After five
    starts in a row that came to nothing, lines are refused until half a minute has passed.

    Args:
        command: the server's program and its arguments.
        conversation: takes its lines.
        longest_line: bytes of the longest line that is kept whole.
        report: told whether the server runs by now, and why.
        environment: variables of the server; None for ours.

    Raises:
        ConfigurationError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        conversation: Conversation,
        longest_line: int,
        report: Callable[[bool, str], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self._environment = tuple(command), environment
        self._conversation, self._longest_line, self._report = conversation, longest_line, report
        self._changed = threading.Condition()
        self._held: deque[tuple[bytes, Exchange | None]] = deque()
        self._is_up = True
        self._is_closing = False
        self._fails = 0
        self._failed_at = 0.0
        self._opened_at = time.monotonic()
        self._process = ServerProcess(command, environment)
        self._writer = LineWriter(self._process.stdin, _STALL_SECONDS)
        self.has_spoken, self._has_greeted = False, True
        self.exit_code: int | None = None

    # -- lines for the server -----------------------------------------------------------------------

    def send_line(self, line: bytes, exchange: Exchange | None = None) -> bool:
        """Send a line now, or once the server is there again; False if it will not be."""
        with self._changed:
            if not self._is_up:
                return self._hold(line, exchange)
            writer = self._writer
            if exchange is not None:
                exchange.sent_at = time.monotonic()
        try:
            writer.write_line(line)
        except UnreadLineError:
            with self._changed:
                if exchange is not None:
                    exchange.sent_at = None
                self._is_up = self._is_up and writer is not self._writer
                return self._hold(line, exchange)
        except StreamStalledError as error:
            self.restart(str(error))
        except OSError:  # its end is noticed where its lines are read, and every open request answered there
            pass
        return True

    def restart(self, reason: str) -> None:
        """End the server's process; the next line starts another one."""
        with self._changed:
            process = self._process if self._is_up else None
            self._is_up = False
        if process is not None:
            self._report(False, f"the server is ended: {reason}")
            process.stop(0.2)

    def _hold(self, line: bytes, exchange: Exchange | None) -> bool:
        """Keep a request until the server is there again. Nobody needs a notification for a server that has ended."""
        if exchange is None and b'"id"' not in line:
            return True
        is_failed = self._fails >= _MOST_STARTS and time.monotonic() - self._failed_at < _HEALTHY_SECONDS
        if self._is_closing or is_failed or len(self._held) >= _MOST_HELD:
            return False
        self._held.append((line, exchange))
        self._changed.notify_all()
        return True

    # -- its life -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Read the server's lines until the client is gone; start it again when it is needed."""
        while True:
            for line in read_lines(self._process.stdout, self._longest_line, self._close_gate):
                self.has_spoken = True
                self._conversation.take_server_line(line)
            self.exit_code = self._process.stop(0.2)
            self._process.close()
            if self._is_closing:
                return
            reason = f"has ended with exit code {self.exit_code}"
            self._conversation.server_ended(reason)
            if not self._has_greeted:
                self._give_up_if_hopeless(reason)
            if not self.has_spoken:  # it never was a server: the client learns that as without a gateway
                self._report(False, f"the server {reason} before it said anything")
                self._conversation.server_failed(reason)
                return
            self._report(False, f"the server {reason}")
            if not self._start_again():
                return

    def _start_again(self) -> bool:
        """Wait until a line needs the server, then start it; False if the client is gone."""
        while True:
            with self._changed:
                while not self._held and not self._is_closing:
                    self._changed.wait()
                if self._is_closing:
                    return False
                if time.monotonic() - self._opened_at > _HEALTHY_SECONDS:
                    self._fails = 0
                pause = min(_FIRST_PAUSE * 2**self._fails, _LONGEST_PAUSE)
                self._fails += 1
                self._changed.wait_for(lambda: self._is_closing, pause)
                if self._is_closing:
                    return False
            try:
                process = ServerProcess(self._command, self._environment)
            except ConfigurationError as error:
                self._report(False, str(error))
                self._give_up_if_hopeless(f"cannot be started: {error}")
                continue
            self._opened_at = time.monotonic()
            self._report(True, f"the server is started again, as process {process.pid}")
            self._process, self._writer = process, LineWriter(process.stdin, _STALL_SECONDS)
            self._greet()
            return True

    def _give_up_if_hopeless(self, reason: str) -> None:
        with self._changed:
            if self._fails < _MOST_STARTS:
                return
            self._failed_at = time.monotonic()
            self._held.clear()
        self._conversation.server_failed(reason)

    def _greet(self) -> None:
        """Shake hands with a new process as the client did with the first one; then send what has waited."""
        handshake = self._conversation.handshake
        self._has_greeted = handshake is None
        if handshake is None:
            self._open_gate(None)
            return
        watch = threading.Timer(_HANDSHAKE_SECONDS, self._end_if_silent, (self._process,))
        watch.daemon = True
        watch.start()
        first, second = handshake
        params = msgspec.json.decode(first).get("params", {})
        line = self._conversation.ask_server("initialize", params, lambda _: self._open_gate(second))
        with contextlib.suppress(OSError):  # it has ended again, which is noticed where its lines are read
            self._writer.write_line(line)

    def _end_if_silent(self, process: ServerProcess) -> None:
        """End a process that has not answered our greeting."""
        if process is self._process and not self._has_greeted:
            self._report(False, "the server does not answer its greeting")
            process.stop(0.2)

    def _close_gate(self) -> None:
        with self._changed:
            self._is_up = False

    def _open_gate(self, greeting: bytes | None) -> None:
        self._has_greeted = True
        with contextlib.suppress(OSError):  # as above
            if greeting is not None:
                self._writer.write_line(greeting)
            while True:
                with self._changed:
                    if not self._held:
                        self._is_up = True
                        return
                    line, exchange = self._held.popleft()
                    if exchange is not None:
                        exchange.sent_at = time.monotonic()
                self._writer.write_line(line)

    def close(self, patience: float) -> None:
        """End the server: its input first, then the process and all its children."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._process.stop(patience)
