"""The process of a server: started, and ended with all its children.

In: a command.
Out: its pipes.
Never: a process that is left behind, or one that is waited for without end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from pokayoke.errors import ConfigurationError

_STEP: Final = 0.01


class ServerProcess:
    """A server that runs in a process group of its own; what it writes to stderr goes to ours.

    Args:
        command: the program and its arguments.
        environment: its variables; None for ours.

    Raises:
        ConfigurationError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env=None if environment is None else dict(environment),
            )
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{command[0] if command else 'no command'}: cannot be started: {error}") from None
        assert self._process.stdin is not None, "opened as a pipe"
        assert self._process.stdout is not None, "opened as a pipe"
        self._ending = threading.Lock()
        self._input, self._output = self._process.stdin, self._process.stdout
        self.stdin, self.stdout = self._input.fileno(), self._output.fileno()

    @property
    def pid(self) -> int:
        """The process, and its group."""
        return self._process.pid

    def close_input(self) -> None:
        """Say that nothing more comes; by the protocol the server then ends by itself."""
        with contextlib.suppress(OSError):
            self._input.close()

    def stop(self, patience: float = 2.0) -> int:
        """End the process and its children; return its exit code.

        Args:
            patience: seconds for ending by itself, and once more after SIGTERM.
        """
        self.close_input()
        with self._ending:
            if self._process.returncode is None:
                if not self._wait(patience):
                    self._signal(signal.SIGTERM)
                    self._wait(patience)
                # The process is not reaped yet, so its group cannot belong to another one. Children may outlive it.
                self._signal(signal.SIGKILL)
            return self._process.wait()

    def close(self) -> None:
        """Let the pipes go, once nobody reads any more."""
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):
                pipe.close()

    def _wait(self, patience: float) -> bool:
        end = time.monotonic() + patience
        while True:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(_STEP)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
