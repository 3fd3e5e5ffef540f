"""`pokayoke demo`: one faulty model, unguarded and guarded, side by side."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="A scenario, or part of its name; may be repeated.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every call and what the model read.")] = False,
) -> None:
    """Run a faulty model on real databases, guarded and unguarded.

    pokayoke demo --only crm-incident --verbose

    Exit code 0 if every guarded run did exactly what was wanted, 1 if not, 2 if nothing was run.
    """
    from pokayoke.demo import main  # noqa: PLC0415 - the demo and rich are loaded on use

    raise typer.Exit(main(json=json, only=only, verbose=verbose))
