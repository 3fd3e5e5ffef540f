"""What the commands about client configurations share: which file is meant, what is printed, what is asked.

In: words of a command line.
Out: an opened configuration, lines on stdout, answers.
Never: an answer that was not given.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from pokayoke.cli.output import as_json, choose_painter, escape_text, print_data, print_message
from pokayoke.errors import ConfigurationError
from pokayoke.gateway.clients.installation import ServerChange, ServerState
from pokayoke.gateway.clients.locations import CLIENTS, System, locate_configuration

ConfigArgument = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A client's configuration file, or the name of a well-known client.")
]
ServersOption = Annotated[list[str] | None, typer.Option("--server", help="Only this server; may be repeated.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the changes; write nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Make every change without asking.")]

_DIGEST: Final = 8


def current_system() -> System:
    """Return the system whose paths this process uses."""
    if sys.platform == "darwin":
        return "macos"
    return "windows" if os.name == "nt" else "linux"


def find_configuration(word: str) -> tuple[Path, str]:
    """Return the path of a configuration, and a name for its client that no other configuration has.

    Args:
        word: a path, or the name of a well-known client.

    Raises:
        ConfigurationError: the client has no configuration yet, or is not known and there is no such file.
    """
    if word in CLIENTS:
        paths = known_paths(word)
        found = next((path for path in paths if path.exists()), None)
        if found is None:
            raise ConfigurationError(
                f"{word} keeps its servers in {' or '.join(map(str, paths))}, and there is no such file. "
                "Add a server with the client first, or give the path of its configuration"
            )
        return found, word
    path = Path(word).expanduser()
    if not path.exists() and path.name == word and not path.suffix:
        locate_configuration(word, current_system(), str(Path.home()), os.environ)  # says which clients are known
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - the name of a link, not of what it leads to
    known = next((client for client in CLIENTS if whole in known_paths(client)), None)
    return path, known or f"{path.stem.lstrip('.')}-{hashlib.sha256(str(whole).encode()).hexdigest()[:_DIGEST]}"


def known_paths(client: str) -> list[Path]:
    """Return where a well-known client of this user keeps its configuration."""
    return [Path(path) for path in locate_configuration(client, current_system(), str(Path.home()), os.environ)]


def select_changes(
    changes: Sequence[ServerChange], names: Sequence[str], all_names: Sequence[str]
) -> list[ServerChange]:
    """Return the changes of the servers with these names; all changes if none is named.

    Raises:
        ConfigurationError: no server has such a name.
    """
    for name in names:
        if name not in all_names:
            raise ConfigurationError(f"there is no server {name!r}; there are {', '.join(all_names)}")
    return [change for change in changes if not names or change.server.name in names]


def print_change(change: ServerChange, *, json: bool) -> None:
    """Print what a change does to a command line."""
    if json:
        server = {"server": change.server.name, "section": change.server.section}
        lines = {"before": change.before, "after": change.after}
        print_data(as_json({**server, "action": change.action, "reason": change.reason, **lines}))
        return
    paint = choose_painter()
    reason = f": {change.reason}" if change.reason else ""
    print_data(escape_text(f"{change.action} {change.server.name} ({change.server.section}){reason}"))
    print_data(paint(f"  - {escape_text(shlex.join(change.before))}", "bad"))
    print_data(paint(f"  + {escape_text(shlex.join(change.after))}", "ok"))


def print_left(state: ServerState, *, json: bool) -> None:
    """Print that a server stays as it is, and why."""
    server = state.server
    if json:
        print_data(
            as_json({"server": server.name, "section": server.section, "action": "leave", "reason": state.detail})
        )
    else:
        print_message(f"left as it is: {server.name} ({server.section}): {state.detail}")


def confirm_changes(changes: Sequence[ServerChange], *, yes: bool) -> list[ServerChange]:
    """Return the changes that the user wants; each is asked about unless all were agreed to.

    Raises:
        ConfigurationError: nobody answers.
    """
    return [
        change for change in changes if yes or _ask(f"{change.action} {change.server.name} ({change.server.section})?")
    ]


def _ask(question: str) -> bool:
    sys.stderr.write(f"{escape_text(question)} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise ConfigurationError(
            "nobody answered, so nothing was written. Use --dry-run to see the changes, --yes to make them"
        )
    return answer.strip().lower() in ("y", "yes")
