"""The command line. One file or folder per command; typer and rich are imported nowhere else."""

from pokayoke.cli.app import app, main

__all__ = ["app", "main"]
