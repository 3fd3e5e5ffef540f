"""The process of a server: started, and ended with all its children.

In: a command.
Out: its pipes.
Never: a process that is left behind, or one that is waited for without end.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Mapping, Sequence

from pokayoke.errors import ConfigurationError
from pokayoke.system import end_session, find_program


class ServerProcess:
    """A server that runs in a process group of its own, where there are groups; what it writes to stderr goes to ours.

    Args:
        command: the program and its arguments.
        environment: its variables; None for ours.

    Raises:
        ConfigurationError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                [*map(find_program, command[:1]), *command[1:]],
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
                end_session(self._process, patience, grace=patience)
            return self._process.wait()

    def close(self) -> None:
        """Let the pipes go, once nobody reads any more."""
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):
                pipe.close()
