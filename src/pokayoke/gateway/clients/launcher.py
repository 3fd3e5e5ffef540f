"""The words that start pokayoke from a program that knows neither its folder nor its environment.

In: how this process was started.
Out: absolute words, for each way to install the package.
Never: a path that is deleted when this process ends, or words that were not tried.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final

from pokayoke.errors import ConfigurationError

_SCRIPT: Final = "pokayoke"
_UV_CACHE: Final = re.compile(r"(?:archive|builds|environments)-v[0-9]+")  # folders of uv's cache with environments
_SECONDS: Final = 120.0  # a container or an empty cache is slow the first time
# What the official SDKs hand to a server whose entry names no more: DEFAULT_INHERITED_ENV_VARS of mcp.client.stdio.
_INHERITED: Final = frozenset(
    {
        "APPDATA", "HOME", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "LOGNAME", "PATH", "PATHEXT",
        "PROCESSOR_ARCHITECTURE", "SHELL", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TERM", "USER", "USERNAME",
        "USERPROFILE",
    }
)  # fmt: skip
_TAIL: Final = 400


def find_launcher(
    program: str, python: str, package: str, environ: Mapping[str, str], find_program: Callable[[str], str | None]
) -> tuple[str, ...]:
    """Return the words that start this pokayoke again.

    `uvx` and `pipx run` build an environment that a cleaning deletes: there the words start them, with this package. A
    script is named by its path. Anything else is `python -m pokayoke`.

    Args:
        program: the first word of this process (`sys.argv[0]`).
        python: its interpreter (`sys.executable`).
        package: what an installer is asked for, see `find_package`.
        environ: its environment variables; uv names itself there (`UV`).
        find_program: returns the absolute path of a program, as `shutil.which` does.

    Raises:
        ConfigurationError: this process cannot be started again.
    """
    parts = PurePosixPath(python.replace("\\", "/")).parts
    if any(map(_UV_CACHE.fullmatch, parts)) and (uv := environ.get("UV") or find_program("uv")):
        return (uv, "tool", "run", "--from", package, _SCRIPT)
    if "pipx" in parts and ".cache" in parts and (pipx := find_program("pipx")):
        return (pipx, "run", "--spec", package, _SCRIPT)
    is_script = PurePosixPath(program.replace("\\", "/")).stem == _SCRIPT
    named = program if program != PurePosixPath(program.replace("\\", "/")).name else None
    for candidate in (named, os.path.join(os.path.dirname(python), _SCRIPT), program):  # noqa: PTH118, PTH120 - of any system
        if is_script and candidate and (found := find_program(candidate)):
            return (os.path.abspath(found),)  # noqa: PTH100 - a link stays one: what it points to has no environment
    if not python:
        raise ConfigurationError("this process cannot be started again. Name what starts pokayoke with --launcher")
    return (os.path.normpath(python), "-m", _SCRIPT)


def find_package(version: str) -> str:
    """Return the requirement that installs this pokayoke again: its version, or the place that it was installed from.

    Source: PEP 610, Recording the Direct URL Origin of installed distributions.
    """
    try:
        recorded = metadata.distribution(_SCRIPT).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        recorded = None
    if not recorded:
        return f"{_SCRIPT}=={version}"
    origin = json.loads(recorded)
    if "vcs_info" in origin:
        return f"{_SCRIPT} @ {origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
    return f"{_SCRIPT} @ {origin['url']}"


def check_launcher(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Start pokayoke as a client will: in the home folder, with the few variables that a client hands on.

    Raises:
        ConfigurationError: it does not start, or is no pokayoke with a gateway.
    """
    clean = {name: value for name, value in environ.items() if name.upper() in _INHERITED}
    said = " ".join(words)
    try:
        done = subprocess.run(  # noqa: S603 - the user's own words
            [*words, "mcp", "--help"],
            cwd=Path.home(), env=clean, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"a client could not start `{said}`: {error}. Name another with --launcher") from error
    if done.returncode or b"pokayoke mcp" not in done.stdout:
        told = (done.stderr or done.stdout)[-_TAIL:].decode(errors="replace").strip()
        raise ConfigurationError(
            f"`{said} mcp --help` does not show the gateway (exit code {done.returncode}). "
            f"Name another with --launcher. It said: {told}"
        )
