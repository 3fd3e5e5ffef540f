"""The commands of the `pokayoke` command line, each imported when it is called.

In: the words of a command line.
Out: the application that runs them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

# One module per command. A module offers a function of its own name, or `app` if it has sub-commands.
_COMMANDS: Final = (
    "demo",
    "check",
    "doctor",
    "verify",
    "trace",
    "learn",
    "replay",
    "contracts",
    "ledger",
    "safe_mode",
    "approvals",
    "gateway",
    "install",
    "uninstall",
    "status",
    "mcp",
    "listings",
    "dashboard",
)


def build_app(words: Sequence[str] = ()) -> typer.Typer:
    """Return the application with the command that the words call, or with every command if they call none.

    A command's module takes a while to import, and another command never needs it.

    Args:
        words: the arguments of the process, without its own name.
    """
    app = typer.Typer(
        name="pokayoke",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root_options)
    # No option of the root takes a value, so the first word without a dash is the command.
    called = next((word.replace("-", "_") for word in words if not word.startswith("-")), "")
    for name in (called,) if called in _COMMANDS else _COMMANDS:
        module = importlib.import_module(f"pokayoke.cli.{name}")
        shown = name.replace("_", "-")
        if isinstance(getattr(module, "app", None), typer.Typer):
            app.add_typer(module.app, name=shown)
        else:
            app.command(shown)(getattr(module, name))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from pokayoke import __version__  # noqa: PLC0415 - the library is loaded on use

        sys.stdout.write(f"pokayoke {__version__}\n")
        raise typer.Exit


def _root_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Mistake-proofing for AI agent tool calls.

    Exit codes: 0 clean, 1 findings, 2 could not run.
    """
