"""The command line. One file or folder per command; typer and rich are imported nowhere else."""

from pokayoke.cli.main import main

__all__ = ["main"]
