"""Workspaces: folders that a tool's paths are confined to, and an opener that checks and opens in one step.

`confine` checks the present state: it refuses a path that is malformed, leaves the roots, or is no ordinary file
or folder. Between that check and a plain `open(path)` another process may swap a folder for a link, so tools
should use `ConfinedPath.open`, which resolves and opens in one step and cannot be led outside (how:
`pokayoke.runtime.files.confined_open`; on Windows that last guarantee does not hold, and `file:stream` names
reach alternate streams of files inside the root).

Hard links: a file with several names may have one of them outside the workspace, and no path can show it. Such
files are refused, unless `hard_links=True` accepts them (package managers link whole dependency trees).

In: paths as a model sends them.
Out: confined paths, or a `PathEscape` with a finding.
Never: a path outside the roots.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, Any, Self, TypeVar

from pokayoke.core.call import Blame, Finding
from pokayoke.core.gate.paths import display_path, normalise_path, normalise_path_fast
from pokayoke.errors import PathEscape
from pokayoke.runtime.files import confined_open as beneath
from pokayoke.runtime.files.roots import Workspace, workspace_of

_ELSEWHERE = "Send the path of an ordinary file or folder inside the workspace."
_HINTS: dict[str, str] = {
    "path_escape": f"The path leads out of the workspace through a link. {_ELSEWHERE}",
    "bad_path": f"One of the names on the way is a file, not a folder. {_ELSEWHERE}",
    "special_file": f"That is not an ordinary file. {_ELSEWHERE}",
    "hard_link": "That file also has another name, so it may not be used here. Choose another, or make a copy.",
    "path_missing": "Nothing exists at that path. Check its spelling, or list the folder first.",
    "path_ambiguous": "That relative path exists in several folders. Send the absolute path of the one you mean.",
    "path_unreachable": "That path cannot be used at the moment. Choose another, or tell the user.",
    "root_moved": "The workspace is not available at the moment. Tell the user.",
}
_BY_ERRNO: dict[int | None, tuple[str, str, Blame]] = {
    errno.EXDEV: ("path_escape", "leaves its root through a link", "model"),
    errno.ELOOP: ("path_escape", "runs through too many links", "model"),
    errno.ENOTDIR: ("bad_path", "runs through a file as if it were a folder", "model"),
    errno.ENXIO: ("special_file", "is a FIFO, socket or device without a server", "model"),
    errno.ENOENT: ("path_missing", "does not exist", "model"),
}
_NEVER_WAIT: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_T = TypeVar("_T")


class ConfinedPath(str):
    """An absolute path that was inside its root when it was checked, with an opener that stays inside.

    It is a `str` and works wherever a path does; only its own methods are safe against another process that swaps
    folders at the same time.

    Attributes:
        root: absolute path of the root it lies under, without links.
        relative: the path below the root; "." is the root itself.
        hard_links: whether files with several names may be opened.
    """

    __slots__ = ("hard_links", "relative", "root")
    root: str
    relative: str
    hard_links: bool

    def __new__(cls, root: str, relative: str, hard_links: bool = False) -> Self:
        """Join a root and a path below it, which may be joined by hand; `confine` checks a model's path.

        Raises:
            PathEscape: the text of the path alone leads out of its root.
        """
        if ".." in relative or relative[:1] == "/" or "\0" in relative:
            relative = _normalise_relative(root, relative)
        path = str.__new__(cls, root if relative == "." else f"{root}/{relative}")
        path.root, path.relative, path.hard_links = root, relative, hard_links
        return path

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Describe the type to pydantic: a text for the model, a confined path for the tool."""
        from pydantic_core import core_schema  # noqa: PLC0415 - needed by pydantic only

        def keep_confined(value: Any, text: Any) -> Any:
            return value if isinstance(value, cls) else text(value)

        text = core_schema.str_schema()
        return core_schema.no_info_wrap_validator_function(keep_confined, text, json_schema_input_schema=text)

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfinedPath, (self.root, self.relative, self.hard_links)

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open the file; check and use are one step.

        Args:
            mode: as for the built-in open; every mode works. Never waits for a FIFO.
            buffering: as for the built-in open.
            encoding: of a text file; UTF-8 if not given.
            errors: as for the built-in open.
            newline: as for the built-in open.

        Returns:
            a file object.

        Raises:
            PathEscape: the path leaves the root now, or is no ordinary file.
            OSError: as the built-in open raises, such as FileNotFoundError.
        """
        if encoding is None and "b" not in mode:
            encoding = "utf-8"
        return open(self, mode, buffering, encoding, errors, newline, opener=self._open_descriptor)

    def _open_descriptor(self, _path: str, flags: int) -> int:
        return _open_file(self, flags)

    def exists(self) -> bool:
        """Return whether something lies at this path inside the root."""
        try:
            beneath.stat_confined(self.root, self.relative)
        except OSError:
            return False
        return True

    def mkdir(self, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Create a folder at this path.

        Args:
            mode: permissions, before the umask.
            parents: also create the folders above it, inside the root.
            exist_ok: accept a folder that exists.

        Raises:
            PathEscape: the path leaves the root now.
            OSError: as os.mkdir does.
        """

        def make_folder(directory: int | None, name: str) -> None:
            os.mkdir(name, mode, dir_fd=directory)

        names = self.relative.split("/")
        for index in range(1 if parents else len(names), len(names) + 1):
            part = "/".join(names[:index])
            try:
                _act_beneath(self, lambda: beneath.walk_to(self.root, part, make_folder, follow=False))  # noqa: B023 - called at once
            except FileExistsError:
                wanted = exist_ok or index < len(names)
                if not wanted or not S_ISDIR(
                    _act_beneath(self, lambda: beneath.stat_confined(self.root, part)).st_mode  # noqa: B023
                ):
                    raise

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file or link (a link itself, never its target).

        Raises:
            PathEscape: the path leaves the root now.
            OSError: as os.unlink does.
        """

        def remove_name(directory: int | None, name: str) -> None:
            os.unlink(name, dir_fd=directory)

        try:
            _act_beneath(self, lambda: beneath.walk_to(self.root, self.relative, remove_name, follow=False))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def names(self) -> list[str]:
        """Return the sorted names in this folder.

        Raises:
            PathEscape: the path leaves the root now.
            OSError: as os.listdir does.
        """
        return sorted(_act_beneath(self, lambda: beneath.list_names(self.root, self.relative)))


def confine(
    path: Any,
    roots: str | tuple[str, ...],
    *,
    must_exist: bool = False,
    hard_links: bool = False,
    at: str = "",
) -> ConfinedPath:
    """Check a path, by its text and on the disk, and return where it lies.

    A relative path belongs to the root in which it exists, to the first if it exists in none; existing in several is
    an error, because it is ambiguous.

    Args:
        path: the path as the model sent it.
        roots: one root or several; preferably the result of `prepare_roots`.
        must_exist: refuse a path at which nothing lies.
        hard_links: accept files that have more than one name.
        at: JSON pointer of the argument, for the finding.

    Returns:
        the confined path. A path that does not exist yet is fine unless `must_exist` is set.

    Raises:
        PathEscape: with a `.finding` whose code is of the room `files` or `gate`. No other error for
            any path.
        ConfigurationError: a root is missing (only if the roots were never prepared).
    """
    space = _workspace_at(roots) if isinstance(roots, str) else workspace_of(roots)
    located = normalise_path_fast(path, space.spellings) if space.plain and type(path) is str else None
    if located is None:
        if isinstance(path, Path):
            path = path.as_posix()
        split = normalise_path(path, space.spellings, at=at)
        if isinstance(split, Finding):
            raise PathEscape(split.message, split)
        located = space.real[split[0]], split[1]
    root, relative = located
    try:
        if not space.plain:
            root = _current_root(space, path, root, relative)
        found = beneath.stat_confined(root, relative)
    except OSError as problem:
        if isinstance(problem, FileNotFoundError) and not must_exist:
            return ConfinedPath(root, relative, hard_links)
        raise _build_refusal(problem, path, at) from None
    is_plain = S_ISREG(found.st_mode) and found.st_nlink == 1
    if not is_plain and not S_ISDIR(found.st_mode):
        _refuse_unfit(found, path, hard_links, at)
    return ConfinedPath(root, relative, hard_links)


def _current_root(space: Workspace, path: str, root: str, relative: str) -> str:
    """Return the root a path belongs to, among those that have not moved."""
    space.check_roots_unmoved()
    if len(space.several) > 1 and not path.startswith("/"):
        return _root_that_has(relative, space.several)
    return root


def open_beneath(root: str, relative: str, mode: str = "r", *, hard_links: bool = False) -> IO[Any]:
    """Open a file below a root; check and use are one step.

    Args:
        root: path of the root, an existing folder; a relative one is resolved against the current folder.
        relative: the path below it, as the model may have sent it.
        mode: as for the built-in open; text is UTF-8.
        hard_links: accept files that have more than one name.

    Returns:
        a file object.

    Raises:
        PathEscape: the path is malformed, leaves the root, or is no ordinary file.
        ConfigurationError: the root is missing or no folder.
        OSError: as the built-in open raises.
    """
    space = _workspace_at(root)
    located = normalise_path(relative, space.spellings)
    if isinstance(located, Finding):
        raise PathEscape(located.message, located)
    return ConfinedPath(space.real[located[0]], located[1], hard_links).open(mode)


def _normalise_relative(root: str, relative: str) -> str:
    """Return a path below a root without `..`: the opener relies on there being none."""
    located = normalise_path(relative, (root,))
    if isinstance(located, Finding):
        raise PathEscape(located.message, located)
    return located[1]


def _workspace_at(root: str) -> Workspace:
    """Return the workspace of one root as written; a relative one changes with the current folder."""
    return workspace_of((os.path.abspath(root) if root else root,))  # noqa: PTH100 - Path.absolute() keeps `..`


def _root_that_has(relative: str, roots: tuple[str, ...]) -> str:
    """Return the one root in which a relative path exists, the first if none has it."""
    if relative == ".":
        return roots[0]
    having: list[str] = []
    for root in roots:
        try:
            beneath.stat_confined(root, relative)
        except (FileNotFoundError, NotADirectoryError):
            continue
        having.append(root)
    if len(having) > 1:
        raise _AmbiguousError
    return having[0] if having else roots[0]


class _AmbiguousError(OSError):
    """A relative path exists in several roots."""


def _refuse_unfit(found: os.stat_result, path: str, hard_links: bool, at: str = "") -> None:
    """Raise PathEscape unless this is an ordinary file with (if that matters) one name."""
    if not S_ISREG(found.st_mode):
        raise _build_escape("special_file", "is a device, FIFO or socket", path, at)
    if found.st_nlink > 1 and not hard_links:
        raise _build_escape("hard_link", f"has {found.st_nlink} names, and any of them may lie outside", path, at)


def _open_file(path: ConfinedPath, flags: int) -> int:
    """Open an ordinary file below its root; it is truncated only once it is known to be one."""
    wanted = (flags & ~os.O_TRUNC) | _NEVER_WAIT
    fd = _act_beneath(path, lambda: beneath.open_fd(path.root, path.relative, wanted))
    try:
        found = os.fstat(fd)
        if not S_ISDIR(found.st_mode):  # the built-in open refuses folders itself
            _refuse_unfit(found, path.relative, path.hard_links)
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _act_beneath(path: ConfinedPath, act: Callable[[], _T]) -> _T:
    """Act below a root; leaving it is a PathEscape, every other OSError passes unchanged."""
    try:
        return act()
    except OSError as problem:
        if isinstance(problem, beneath.RootMoved) or problem.errno in {errno.EXDEV, errno.ELOOP, errno.ENXIO}:
            raise _build_refusal(problem, path.relative, "") from None
        raise


def _build_refusal(problem: OSError, path: str, at: str) -> PathEscape:
    """Return the error for a path that cannot be resolved."""
    if isinstance(problem, beneath.RootMoved):
        return _build_escape("root_moved", "cannot be looked up, its root is not what it was", path, at, "host")
    if isinstance(problem, _AmbiguousError):
        return _build_escape("path_ambiguous", "exists in several roots", path, at)
    unknown: tuple[str, str, Blame] = (
        "path_unreachable",
        f"cannot be looked at: {os.strerror(problem.errno or 0)}",
        "host",
    )
    code, wrong, blame = _BY_ERRNO.get(problem.errno, unknown)
    return _build_escape(code, wrong, path, at, blame)


def _build_escape(code: str, wrong: str, path: str, at: str, blame: Blame = "model") -> PathEscape:
    """Return a PathEscape with its finding."""
    message = f"path {display_path(path)} {wrong}"
    return PathEscape(message, Finding(code, at, blame, message, _HINTS[code], {"rule": code}))
