"""Crash points: stop at a named step, as a crash of the machine would.

A guard announces the steps of a write as it takes them (`Guard(..., on_step=...)`): `after_claim`,
`before_invoke`, `after_invoke`, `after_settle`. A crash point stops the process at the n-th time of a step; the
next process finds what is left in the store.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Literal

from pokayoke.system import KILL_SIGNAL, KILLED_CODE

STEPS = ("after_claim", "before_invoke", "after_invoke", "after_settle")
"""The steps a guard announces, in the order of a write."""


class Crash(BaseException):
    """Replaces the end of the process, for a test that must stay alive.

    It is not an `Exception`, so no handler of failures can swallow it.
    """


class CrashPoint:
    """Stops at the n-th time a step is reached; called with the name of each step.

    Args:
        step: name of the step.
        n: which time, 1 for the first.
        how: `kill` sends SIGKILL to this process: no `finally`, no `atexit`, no flush. `raise`
            raises `Crash` in the calling thread.

    Attributes:
        passed: the names of all steps reached so far, in order.
    """

    def __init__(self, step: str, n: int = 1, *, how: Literal["kill", "raise"] = "kill") -> None:
        if n < 1:
            raise ValueError(f"a step is passed a first time, not a {n}th: n must be 1 or more")
        if step not in STEPS:
            raise ValueError(f"no guard announces a step {step!r}: it is one of {', '.join(STEPS)}")
        if how not in ("kill", "raise"):
            raise ValueError(f"how is 'kill' or 'raise', not {how!r}")
        self.passed: list[str] = []
        self._step = step
        self._left = n
        self._how = how
        self._lock = threading.Lock()

    def __call__(self, step: str) -> None:
        """Record the step, and stop if it is the chosen one."""
        with self._lock:
            self.passed.append(step)
            if step != self._step:
                return
            self._left -= 1
            if self._left:
                return
        if self._how == "raise":
            raise Crash(f"crashed at {step}")
        os.kill(os.getpid(), KILL_SIGNAL)


def crash_at(step: str, n: int = 1, *, how: Literal["kill", "raise"] = "kill") -> CrashPoint:
    """Return a crash point for `Guard(..., on_step=...)`. See `CrashPoint`."""
    return CrashPoint(step, n, how=how)


def run_script(
    source: str,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    timeout: float = 30.0,
) -> subprocess.CompletedProcess[str]:
    """Run Python source in a process of its own, which a crash point can kill.

    Args:
        source: the program.
        arguments: its `sys.argv[1:]`.
        environment: variables added to this process's environment.
        timeout: seconds after which it is killed.

    Returns:
        The finished process with its output as text. Pass its `returncode` to `died`.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    return subprocess.run(  # noqa: S603 - runs the interpreter we run in, on the test's own source
        [sys.executable, "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(environment or {})},
        check=False,
    )


def died(returncode: int) -> bool:
    """Return whether a process with this return code was killed by a crash point."""
    return returncode == KILLED_CODE
