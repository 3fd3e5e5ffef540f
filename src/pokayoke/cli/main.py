"""The entry point of the `pokayoke` script: turns errors into messages and exit codes.

Exit codes: 0 clean, 1 findings, 2 could not run. stdout has data, stderr has messages.

In: the arguments of the process.
Out: an exit code.
Never: a traceback for a user's mistake.
"""

from __future__ import annotations

import io
import os
import sys

from pokayoke import __version__
from pokayoke.cli.output import print_data, print_message
from pokayoke.errors import PokayokeError


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
        _run(sys.argv[1:])
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
    except BrokenPipeError:  # a reader such as `head` has enough
        sys.exit(_flush_output(0))
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        print_message(f"error: {error.filename}: {error.strerror}" if named else f"error: {error}")
        sys.exit(2)


def _run(words: list[str]) -> None:
    if words == ["--version"]:  # asked in scripts, often: without the libraries of the commands
        print_data(f"pokayoke {__version__}")
        sys.exit(0)
    from pokayoke.cli.app import build_app  # noqa: PLC0415 - typer is loaded for a command only

    build_app(words)()


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
