"""Workspace roots: declared by a programmer, resolved once, and checked for having moved.

A root is identified by its path: a folder recreated under the same path is the same root, a link put there is
not. Nothing is kept open between calls, so threads and forks share nothing.

In: folders as a programmer writes them.
Out: absolute roots without links.
Never: a root that leads to another folder than when it was prepared.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from pokayoke.errors import ConfigurationError
from pokayoke.runtime.files import confined_open as beneath

MOST_WORKSPACES = 1_000
"""Cached roots that were not prepared; beyond that the oldest is resolved again when it is used again."""


class Workspace:
    """Prepared roots.

    Args:
        roots: what `prepare_roots` returned, or roots as a programmer writes them.
    """

    __slots__ = ("linked", "plain", "real", "several", "spellings")

    def __init__(self, roots: tuple[str, ...]) -> None:
        self.real: dict[str, str] = {}
        """Every spelling of a root -> its path without links."""
        for root in roots:
            declared, real = _resolve_root(root)
            self.real.setdefault(declared, real)
        for real in tuple(self.real.values()):
            self.real.setdefault(real, real)
        self.spellings = tuple(self.real)
        self.several = tuple(dict.fromkeys(self.real.values()))
        self.linked = tuple((spelt, real) for spelt, real in self.real.items() if spelt != real)
        self.plain = len(self.spellings) == 1
        """True if there is one root, and no link on its path."""

    def check_roots_unmoved(self) -> None:
        """Raise RootMoved if a root that was declared through a link now leads to another folder."""
        for spelt, real in self.linked:
            try:
                same = Path(spelt).samefile(real)
            except OSError as problem:
                raise beneath.RootMoved(problem.errno, problem.strerror) from None
            if not same:
                raise beneath.RootMoved(errno.ESTALE, os.strerror(errno.ESTALE))


class Roots(tuple[str, ...]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """Roots as `prepare_roots` returns them, together with what they resolve to.

    Attributes:
        workspace: the resolved roots.
        declared: the roots as they were written.
    """

    workspace: Workspace
    declared: tuple[str, ...]


_workspaces: dict[tuple[str, ...], Workspace] = {}


def _resolve_root(root: str | Path) -> tuple[str, str]:
    """Return a root's absolute spelling and its path without links, both with / between names."""
    try:
        unusable = not root or b"\0" in os.fsencode(root)
    except UnicodeEncodeError:
        unusable = True
    if unusable:
        raise ConfigurationError(f"a workspace root must be the path of a folder, got {root!a}")
    declared = Path(os.path.abspath(root))  # noqa: PTH100 - Path.absolute() keeps `..`
    try:
        real = declared.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ConfigurationError(f"the workspace root {str(root)!r} does not exist. Create it first.") from None
    if not real.is_dir():
        raise ConfigurationError(f"the workspace root {str(root)!r} is not a folder")
    if real == real.parent:
        raise ConfigurationError(f"the workspace root {str(root)!r} is the whole disk and confines nothing")
    return declared.as_posix(), real.as_posix()


def prepare_roots(roots: str | Path | Iterable[str | Path]) -> Roots:
    """Resolve workspace roots once, when a contract is registered.

    Args:
        roots: one folder or several. A relative one is resolved against the current folder, now.

    Returns:
        the absolute roots, in order, followed by their spellings without links where those differ; the value that
        `check_path` and `confine` take. A relative path belongs to the first.

    Raises:
        ConfigurationError: a root is missing, not a folder, or the whole disk; or there is none.
    """
    several = (roots,) if isinstance(roots, (str, Path)) else tuple(roots)
    if not several:
        raise ConfigurationError("a path argument needs at least one workspace root")
    space = Workspace(tuple(dict.fromkeys(_resolve_root(root)[0] for root in several)))
    prepared = Roots(space.spellings)
    prepared.workspace, prepared.declared = space, tuple(map(str, several))
    return prepared


def workspace_of(roots: tuple[str, ...]) -> Workspace:
    """Return the workspace of these roots; roots that were not prepared are prepared now and cached.

    Two threads may both do so; either result is right.

    Raises:
        ConfigurationError: as for `prepare_roots`, for roots that were not prepared.
    """
    if isinstance(roots, Roots):
        return roots.workspace
    space = _workspaces.get(roots)
    if space is None:
        if not roots:
            raise ConfigurationError("a path argument needs at least one workspace root")
        space = Workspace(roots)
        if len(_workspaces) >= MOST_WORKSPACES:
            _workspaces.pop(next(iter(_workspaces)), None)
        _workspaces[roots] = space
    return space
