"""ASK: the command line. One file per command; typer and rich are imported nowhere else."""

from pokayoke.cli.app import app, main

__all__ = ["app", "main"]
