"""The `pokayoke` command: finds the commands, and turns errors into messages and exit codes.

Exit codes: 0 clean, 1 findings, 2 could not run. stdout has data, stderr has messages.

In: the arguments of the process.
Out: an exit code.
Never: a traceback for a user's mistake.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import sys
from typing import Annotated, Final

import typer

from pokayoke.cli.output import print_message
from pokayoke.errors import PokayokeError

# One module per command. A module offers a function of its own name, or `app` if it has sub-commands.
_COMMANDS: Final = (
    "demo",
    "check",
    "doctor",
    "trace",
    "learn",
    "replay",
    "contracts",
    "ledger",
    "safe_mode",
    "approvals",
    "mcp",
    "gateway",
    "install",
    "uninstall",
)

app = typer.Typer(
    name="pokayoke",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from pokayoke import __version__  # noqa: PLC0415 - the library is loaded on use

        sys.stdout.write(f"pokayoke {__version__}\n")
        raise typer.Exit


@app.callback()
def _root_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Mistake-proofing for AI agent tool calls.

    Exit codes: 0 clean, 1 findings, 2 could not run.
    """


def _register_commands() -> None:
    for name in _COMMANDS:
        if importlib.util.find_spec(f"pokayoke.cli.{name}") is None:
            continue
        module = importlib.import_module(f"pokayoke.cli.{name}")
        shown = name.replace("_", "-")
        if isinstance(getattr(module, "app", None), typer.Typer):
            app.add_typer(module.app, name=shown)
        else:
            app.command(shown)(getattr(module, name))


_register_commands()


def main() -> None:
    """Run the command line; the entry point of the `pokayoke` script."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the shell closed it (`>&-`)
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for the life of the process
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show becomes its escape instead of a crash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as end:
        code = end.code
        # typer exits with 1 when a pipe breaks, which would mean findings here.
        if isinstance(end.__context__, BrokenPipeError):
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            code = 0
        sys.exit(_flush_output(code))
    except PokayokeError as error:
        print_message(f"error: {error}")
        sys.exit(2)
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        print_message(f"error: {error.filename}: {error.strerror}" if named else f"error: {error}")
        sys.exit(2)


def _flush_output(code: str | int | None) -> str | int | None:
    """Return the exit code after flushing the output: a reader (`head`) that closes the pipe is no error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # The exit must not flush into the pipe again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except OSError as error:
            print_message(f"error: {error}")
            return 2
    return code
