"""Checks the text of a path argument, before any disk is read.

In: the text that the model sent, and the workspace roots.
Out: the root and the path below it, or a finding.
Never: a guess. A form that means something else on another operating system is refused on every one, so a contract
behaves the same everywhere. Symbolic links need a disk: `pokayoke.runtime.files.workspace` resolves them, and a path
that passes here alone proves nothing about them.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any
from urllib.parse import unquote

from pokayoke.core.call import Finding
from pokayoke.core.text.regex import compile_pattern

MAX_PATH_BYTES = 4095
"""Longest path in UTF-8 bytes: Linux' PATH_MAX without its NUL."""
MAX_NAME_BYTES = 255
"""Longest name of one component in UTF-8 bytes: NAME_MAX of every common file system."""

_DEVICE = r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])(?=[ .:]|$)"
# The common case in one linear match: ASCII names that need no second look.
_PLAIN = re.compile(
    r"(?:(?!(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:[./]|\Z))\.?[a-z0-9_-][\w.+@=,-]*(?:/(?!\Z)|\Z))+",
    re.IGNORECASE | re.ASCII,
)
_PLAIN_CHARS = MAX_NAME_BYTES  # a whole path this short has no overlong name either
_MAX_CACHED_CHARS = 1_024  # what is longer is not worth remembering
_DEVICE_NAME = f"(?i){_DEVICE}"
_DRIVE = r"[A-Za-z]:"
_URL = r"(?i)[A-Za-z][A-Za-z0-9+.-]*://|file:"
_VARIABLE = r"\$[A-Z_][A-Z0-9_]*|\$\{[^}]*\}|\$\(.*|%[A-Za-z_][A-Za-z0-9_]*%"
_OVERLONG = "(?i)%c[01]%[89ab]"  # an ASCII character in two bytes: never valid
_DOTS = r"[. ]+"
_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp"})
# Joiners between letters of scripts that need them (Persian, Hindi, emoji families) are spelling.
_JOINERS = r"(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])"
# Characters some system, font or decoder takes for a separator.
_SLASH_LIKE = frozenset("\u2044\u2215\u29f8\u2216\u29f5\u29f9\uff0f\uff3c\ufe68")

_INSIDE_HINT = "Send a path inside the workspace, relative to it, with / between names, such as notes/today.txt."
_MAX_DISPLAY_CHARS = 160
# rule -> (code, what is wrong, for operators; what to send, for the model)
_RULES: dict[str, tuple[str, str, str]] = {
    "type": ("bad_path", "is not text", "Send the path as a string."),
    "empty": ("bad_path", "is empty", 'Send the path of a file or folder; "." is the workspace itself.'),
    "too_long": (
        "bad_path",
        f"is longer than {MAX_PATH_BYTES} bytes, or one of its names than {MAX_NAME_BYTES}",
        "Send a shorter path.",
    ),
    "surrogate": (
        "bad_path",
        "holds half of a character (a lone surrogate)",
        "Send the path in valid Unicode.",
    ),
    "control": (
        "bad_path",
        "holds a control or invisible character",
        "Send the path without control characters, line breaks or invisible characters.",
    ),
    "backslash": ("path_escape", "holds a backslash", f"Backslashes are refused. {_INSIDE_HINT}"),
    "drive": ("path_escape", "names a drive", f"Drive letters are refused. {_INSIDE_HINT}"),
    "unc": ("path_escape", "names a network share (starts with //)", f"Network paths are refused. {_INSIDE_HINT}"),
    "home": ("path_escape", "starts with ~, another user's or one's own home", f"~ is not expanded. {_INSIDE_HINT}"),
    "variable": ("path_escape", "starts with a variable", f"Variables are not expanded. {_INSIDE_HINT}"),
    "url": ("bad_path", "is a URL", f"A URL is not a path. {_INSIDE_HINT}"),
    "device": ("bad_path", "uses a name reserved for a device", "Some systems reserve that name. Choose another."),
    "dots": (
        "path_escape",
        "has a name made of dots and spaces only",
        f"A name made only of dots and spaces is refused. {_INSIDE_HINT}",
    ),
    "space": (
        "bad_path",
        "has a name that ends in a space, or starts with one",
        "Send the path without a space before it or at the end of a name.",
    ),
    "look_alike": (
        "path_escape",
        "holds a character that looks like a separator or turns into one",
        f"Use the ordinary / between names. {_INSIDE_HINT}",
    ),
    "encoded": (
        "path_escape",
        "leaves the workspace once its percent-encoding is undone",
        f"Send the path plainly, not percent-encoded. {_INSIDE_HINT}",
    ),
    "climbs": ("path_escape", "climbs above the workspace with ..", f"The path leaves the workspace. {_INSIDE_HINT}"),
    "outside": (
        "path_escape",
        "is absolute and under none of the roots",
        f"The path is outside the workspace. {_INSIDE_HINT}",
    ),
}


def display_path(path: str) -> str:
    """Return a path as an operator may read it: one line, ASCII where in doubt, cut after 160 characters."""
    text = ascii(path[:_MAX_DISPLAY_CHARS])
    return text if len(path) <= _MAX_DISPLAY_CHARS else f"{text}... ({len(path)} characters)"


def path_finding(rule: str, path: Any, at: str = "") -> Finding:
    """Build the finding for a lexical rule.

    Args:
        rule: name of the rule that was broken.
        path: the path as it was sent.
        at: JSON pointer of the argument.

    Returns:
        a `path_escape` or `bad_path` finding; `data["rule"]` names the rule.
    """
    code, wrong, hint = _RULES[rule]
    text = display_path(path) if isinstance(path, str) else type(path).__name__
    return Finding(code, at, "model", f"path {text} {wrong}", hint, {"rule": rule})


def check_path(path: Any, roots: tuple[str, ...], *, at: str = "") -> Finding | None:
    """Check a path argument lexically (the same rules on every operating system).

    Args:
        path: the path as the model sent it.
        roots: absolute roots; a relative path belongs to the first.
        at: JSON pointer of the argument, for the finding.

    Returns:
        None if the path may be resolved, else a finding with code `path_escape` or `bad_path`.
    """
    located = normalise_path(path, roots, at=at)
    return located if isinstance(located, Finding) else None


def normalise_path(path: Any, roots: tuple[str, ...], *, at: str = "") -> tuple[str, str] | Finding:
    """Split a path into its root and the path below it, with `.` and `..` worked out.

    `..` is undone on the text alone: `a/../b` is `b` even where `a` is a link, so what was checked,
    what is shown and what is opened are the same.

    Args:
        path: the path as the model sent it.
        roots: absolute roots with / between names. A relative path belongs to the first; an
            absolute one to the longest root it lies under.
        at: JSON pointer of the argument, for the finding.

    Returns:
        (root, relative), where relative is "." for the root itself and never starts with / or `..`;
        or a finding.
    """
    if not isinstance(path, str):
        return path_finding("type", path, at)
    if len(path) <= _MAX_CACHED_CHARS and (plain := _split_plain_path(path, roots)) is not None:
        return plain
    rule, located = _examine_path(path, roots)
    return path_finding(rule, path, at) if located is None else located


def normalise_path_fast(path: str, roots: tuple[str, ...]) -> tuple[str, str] | None:
    """What `normalise_path` returns for a path that needs no second look; None for every other."""
    return _split_plain_path(path, roots) if len(path) <= _MAX_CACHED_CHARS else None


@functools.lru_cache(maxsize=256)
def _split_plain_path(path: str, roots: tuple[str, ...]) -> tuple[str, str] | None:
    """Split a path, or return None. Remembered: the gate and the runtime ask in turn."""
    root = roots[0]
    if len(path) <= _PLAIN_CHARS and _PLAIN.fullmatch(path):
        return root, path
    start = len(root) + 1
    if (
        len(roots) == 1
        and len(path) < start + _PLAIN_CHARS
        and path.startswith(root)
        and path[start - 1 : start] == "/"
        and _PLAIN.fullmatch(path, start)
    ):
        return root, path[start:]
    return None


def _examine_path(path: str, roots: tuple[str, ...]) -> tuple[str, tuple[str, str] | None]:
    """Return ("", (root, relative)), or (name of the broken rule, None)."""
    rule = _broken_text_rule(path) or _broken_start_rule(path)
    if rule:
        return rule, None
    located = _locate_below_root(path, roots)
    if isinstance(located, str):
        return located, None
    root, names = located
    for name in names:
        rule = _broken_name_rule(name)
        if rule:
            return rule, None
    if names and _expansion_rule(names[0]):
        return _expansion_rule(names[0]), None
    relative = "/".join(names) or "."
    if "%" in relative and _can_decode_to_escape(relative):
        return "encoded", None
    return "", (root, relative)


def _broken_text_rule(path: str) -> str:
    """Return the rule the characters break, or ""."""
    if not path or path.isspace():
        return "empty"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "surrogate"
    if size > MAX_PATH_BYTES:
        return "too_long"
    if not path.isascii():
        # A name that holds one of these looks like another name.
        if any(unicodedata.category(char) in _INVISIBLE for char in compile_pattern(_JOINERS).sub("", path)):
            return "control"
        if not _SLASH_LIKE.isdisjoint(path) or _is_reshaped_by_nfkc(path):
            return "look_alike"
    elif not path.isprintable():
        return "control"
    return ""


def _is_reshaped_by_nfkc(path: str) -> bool:
    """Tell whether compatibility normalisation (NFKC, as some file systems do) makes other components."""
    folded = unicodedata.normalize("NFKC", path)
    if folded.count("/") != path.count("/") or folded.count("\\") != path.count("\\"):
        return True
    dots = {name for name in folded.split("/") if compile_pattern(_DOTS).fullmatch(name)}
    return not dots <= set(path.split("/"))


def _broken_start_rule(path: str) -> str:
    """Return the rule the beginning of the path breaks, or ""."""
    if path.startswith(("//", "\\\\", "/\\", "\\/")):
        return "unc"
    if compile_pattern(_URL).match(path):
        return "url"
    if compile_pattern(_DRIVE).match(path):
        return "drive"
    if "\\" in path:
        return "backslash"
    return "space" if path[0].isspace() else _expansion_rule(path.split("/", 1)[0])


def _expansion_rule(first: str) -> str:
    """Return the rule a first name breaks because shells and libraries expand it, or ""."""
    if first.startswith("~"):
        return "home"
    return "variable" if compile_pattern(_VARIABLE).fullmatch(first) else ""


def _locate_below_root(path: str, roots: tuple[str, ...]) -> tuple[str, list[str]] | str:
    """Return (root, names below it), or the name of the broken rule."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if not path.startswith("/"):
        below = _resolve_dots(names)
        return "climbs" if below is None else (roots[0], below)
    found = [root for root in roots if _is_under_root(names, root)]
    if not found:
        return "outside"
    root = max(found, key=len)
    below = _resolve_dots(names[len(_root_names(root)) :])
    return "climbs" if below is None else (root, below)


def _root_names(root: str) -> list[str]:
    """Return the components of a root."""
    return [name for name in root.split("/") if name]


def _is_under_root(names: list[str], root: str) -> bool:
    """Tell whether a path's components begin with those of a root (never a mere text prefix)."""
    parts = _root_names(root)
    return names[: len(parts)] == parts


def _resolve_dots(names: list[str]) -> list[str] | None:
    """Work out `..`; None if it ever climbs above the start."""
    kept: list[str] = []
    for name in names:
        if name != "..":
            kept.append(name)
        elif kept:
            kept.pop()
        else:
            return None
    return kept


def _broken_name_rule(name: str) -> str:
    """Return the rule one component breaks, or ""."""
    if len(name.encode()) > MAX_NAME_BYTES:
        return "too_long"
    if compile_pattern(_DOTS).fullmatch(name):
        return "dots"  # Windows drops trailing dots and spaces, so "... " can become ".."
    if name[-1].isspace():
        return "space"
    if compile_pattern(_DRIVE).match(name):
        return "drive"
    return "device" if compile_pattern(_DEVICE_NAME).match(unicodedata.normalize("NFKC", name)) else ""


def _can_decode_to_escape(relative: str) -> bool:
    """Tell whether undoing percent-encoding, up to three times, yields a path that leaves the root.

    A tool that hands the path on to something that decodes it would leave the workspace then. Names
    that merely hold an encoded separator (`https%3A%2F%2Fexample.org`) are ordinary.
    """
    text = relative
    if compile_pattern(_OVERLONG).search(text):
        return True
    for _ in range(3):
        decoded = unquote(text, errors="replace").replace("\\", "/")
        if decoded == text:
            return False
        text = decoded
        if "\0" in text or text.startswith(("/", "~")) or compile_pattern(_DRIVE).match(text):
            return True
        if _resolve_dots([name for name in text.split("/") if name not in ("", ".")]) is None:
            return True
    return True  # nobody encodes so often honestly
