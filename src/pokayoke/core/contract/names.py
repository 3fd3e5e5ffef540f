"""Tool names: which may be registered, how a provider writes them, which spellings are the same name.

Registration follows Unicode Technical Standard 39 ("highly restrictive", without its data tables): a name must not be
mistaken for another on the screen.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Literal, get_args

DefinitionFormat = Literal["openai", "anthropic", "mcp"]
"""The provider of a tool definition; each has its own alphabet and length for names."""
DEFINITION_FORMATS: tuple[DefinitionFormat, ...] = get_args(DefinitionFormat)

_ALPHABETS: dict[DefinitionFormat, tuple[re.Pattern[str], int]] = {
    "openai": (re.compile(r"[^A-Za-z0-9_-]"), 64),
    "anthropic": (re.compile(r"[^A-Za-z0-9_-]"), 64),
    "mcp": (re.compile(r"[^A-Za-z0-9_.-]"), 128),
}
_SEPARATORS = re.compile(r"[\s._:/-]+")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])[\s._:/-]+(?=[0-9])")
# The beginning of a call's markup: no tool is called `get_user</name>` or `get_user"}`.
_MARKUP = re.compile(r"[<>\"'`{(\[|\\,;=]")
# Markup without meaning: signs, closing tags, tokens of templates, the next key. Any other text has a meaning, such as
# arguments (`get_user(id=7)`) or a second tool (`get_user, delete_user`).
_MEANINGLESS_MARKUP = re.compile(
    r"(?:</[\w:.-]*>?|<\|[a-z_]+\|>(?:commentary|analysis|final|json)?"
    r"|(?<=[\"'])(?:arguments|parameters|args|input)(?=[\"'])|[\s<>\"'`{}()\[\]|\\,;:=])*"
)
# Prefixes that harnesses and models write before a name.
_WRAPPERS = ("functions", "function", "tools", "tool", "multi_tool_use", "default_api", "mcp")
_ALLOWED_SCRIPT_MIXES = (
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO"},
    {"LATIN", "CJK", "HANGUL"},
)
_MAX_NAME = 128
# Letters of other scripts that look like Latin ones; a name of these alone imitates a Latin word.
_LOOKALIKES = frozenset("аеорсухіјѕһԁԛԝӏвкмнтАВЕКМНОРСТХІЈЅԌԚԜοανρυικωχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")


def name_problem(name: object) -> str | None:
    """Return why a name may not be registered, or None.

    Refused are blank and overlong names, invisible and control characters, spellings that look like another one
    (full width, separate combining accents), and mixed or imitated scripts.
    """
    if not isinstance(name, str) or not name.strip():
        return "it is blank"
    if name.isascii() and name.isprintable() and name.strip() == name and len(name) <= _MAX_NAME:
        return None
    if len(name) > _MAX_NAME:
        return f"it has more than {_MAX_NAME} characters"
    if name.strip() != name or any(character.isspace() and character != " " for character in name):
        return "it has white space around it, or white space that is no plain space"
    for character in name:
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Mn", "Me"):
            return f"U+{ord(character):04X} is invisible or combines with its neighbour"
    if unicodedata.normalize("NFKC", name) != name:
        return f"it displays like {unicodedata.normalize('NFKC', name)!r}"
    return _imitation_problem(name)


def _imitation_problem(name: str) -> str | None:
    """Return why the letters of a name can be mistaken for others, or None."""
    letters = [character for character in name if character.isalpha()]
    scripts = {unicodedata.name(letter, "UNKNOWN").partition(" ")[0] for letter in letters}
    if len(scripts) > 1 and not any(scripts <= together for together in _ALLOWED_SCRIPT_MIXES):
        return f"it mixes scripts: {', '.join(sorted(scripts))}"
    if letters and all(letter in _LOOKALIKES for letter in letters):
        return "all its letters look like Latin ones and none is"
    return None


def provider_name(name: str, written: DefinitionFormat) -> str:
    """Return the name that a provider accepts; it is always the same, so it can be mapped back.

    A name that loses letters (of another script) or length gets eight digits of its hash instead.
    """
    alphabet, length = _ALPHABETS[written]
    mapped = alphabet.sub("_", name)
    if name.isascii() and len(mapped) <= length:
        return mapped
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{mapped[: length - 9].strip('_') or 'tool'}_{digest}"


def history_name(name: str) -> str:
    """Return the name of a call in a history: a provider refuses a history with names that it cannot have offered."""
    return provider_name(name.strip() or "unnamed", "openai")


def fold_name(name: str) -> str:
    """Return a name without case and separators; a separator between digits is kept."""
    return _SEPARATORS.sub("", _BETWEEN_DIGITS.sub("\0", name)).lower()


def possible_names(called: str, prefixes: tuple[str, ...]) -> list[str]:
    """Return the names that a called name may be a spelling of: without markup and known prefixes."""
    bare = called.strip().lstrip("\"'`<").strip()
    name = _MARKUP.split(bare, maxsplit=1)[0]
    found: list[str] = []
    for text in (called.strip(), bare, name.strip() if _MEANINGLESS_MARKUP.fullmatch(bare, len(name)) else ""):
        while text and text not in found:
            found.append(text)
            text = _strip_prefix(text, prefixes)  # noqa: PLW2901 - a name may carry two of them
    return found


def _strip_prefix(name: str, prefixes: tuple[str, ...]) -> str:
    """Return a name without one wrapper or server prefix, or ""."""
    lowered = name.lower()
    for prefix in (*_WRAPPERS, *prefixes):
        rest = name[len(prefix) :]
        if lowered.startswith(prefix.lower()) and re.match(r"__|[./:]", rest):
            return rest.lstrip("_./:")
    return ""
