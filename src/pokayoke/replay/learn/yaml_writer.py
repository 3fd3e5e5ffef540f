"""Contracts as YAML for a person to edit: one statement per line, with its evidence as a comment.

In: drafts, full of names and values from recordings.
Out: YAML 1.2 that our own strict reader accepts.
Never: a recorded text that ends its line, its comment or its quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.text.neutralise import INVISIBLE, escape_character
from pokayoke.errors import ConfigurationError
from pokayoke.replay.learn.infer import SchemaPath
from pokayoke.replay.learn.learner import Draft, SkippedTool

MOST_BYTES: Final = 1_000_000
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:/[A-Za-z0-9_-]+)*")
# Words that some YAML reader takes for something other than a text.
_WORDS: Final = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"))
_UNSAFE: Final = re.compile(f"[\t\n\ufffe\uffff{INVISIBLE}]")
_WIDE: Final = 100
_HEAD: Final = """\
# Learnt from recorded calls. Every statement is a guess until a person has read it:
# the comments say what each one rests on. Check it:   pokayoke check THIS_FILE
# Score recordings with it:                             pokayoke replay RECORDING --contracts THIS_FILE
"""


def yaml_text(drafts: Sequence[Draft], skipped: Sequence[SkippedTool] = (), head: Sequence[str] = ()) -> str:
    """Return a file of contracts.

    Args:
        drafts: the contracts.
        skipped: tools of which nothing was learnt; they are named in a comment.
        head: more lines for the top, without `#`.

    Raises:
        ConfigurationError: the file would be larger than 1 MB, the limit of our readers.
    """
    lines = [
        _HEAD.rstrip("\n"),
        *(f"# {_escape_controls(line)}" for line in head),
        "contracts:" if drafts else "contracts: []",
    ]
    for draft in drafts:
        lines.append("")
        body = list(_dump_members(draft.mapping, draft.notes, (), 4))
        lines += [f"  - {body[0].lstrip()}", *body[1:]]
    if skipped:
        lines += ["", "# Not learnt:"]
        lines += [f"#   {_escape_controls(_dump_scalar(one.tool))}: {_escape_controls(one.why)}" for one in skipped]
    whole = "\n".join(lines) + "\n"
    if len(whole.encode()) > MOST_BYTES:
        raise ConfigurationError(
            f"the contracts are {len(whole.encode()):,} bytes, and a file of them has at most {MOST_BYTES:,}. "
            "Learn fewer tools at a time: --tool NAME"
        )
    return whole


def _dump_members(value: dict[str, Any], notes: dict[SchemaPath, str], at: SchemaPath, indent: int) -> Iterator[str]:
    pad = " " * indent
    for name, item in value.items():
        place = (*at, name)
        note = notes.get(place)
        key = f"{pad}{_dump_scalar(name)}:"
        if is_object(item) and item:
            yield _with_comment(key, note)
            yield from _dump_members(item, notes, place, indent + 2)
        elif is_array(item) and len(_dump_flow(item)) > _WIDE:
            yield _with_comment(key, note)
            yield from (f"{pad}  - {_dump_flow(one)}" for one in item)
        else:
            yield _with_comment(f"{key} {_dump_flow(item)}", note)


def _with_comment(line: str, note: str | None) -> str:
    return f"{line}  # {_escape_controls(note)}" if note else line


def _dump_flow(value: Any) -> str:
    """Return a value on one line. Lists hold scalars only, so nothing nests here."""
    if is_array(value):
        return f"[{', '.join(_dump_flow(item) for item in value)}]"
    if is_object(value):
        return f"{{{', '.join(f'{_dump_scalar(name)}: {_dump_flow(item)}' for name, item in value.items())}}}"
    if isinstance(value, str):
        return _dump_scalar(value)
    return msgspec.json.encode(value).decode()


def _dump_scalar(text: str) -> str:
    """A text as a scalar: plain if every reader takes it for a text, else in double quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return _escape_controls(msgspec.json.encode(text.encode("utf-8", "backslashreplace").decode()).decode())


def _escape_controls(text: str) -> str:
    r"""Escape what ends a line, moves a cursor or reorders text. Inside quotes `\u0085` is that very character."""
    return _UNSAFE.sub(lambda found: escape_character(found[0]), text)
