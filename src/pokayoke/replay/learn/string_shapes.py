"""The format of texts, or the shape of identifiers.

A shape is a text with its characters replaced by their kind, such as `#W9999999`. Free text has no common shape;
order numbers, dates and codes have one. A shape becomes a pattern only if it looks generated: words alone (`Mia`,
`Omar`) say nothing about the next name.

In: texts.
Out: formats, shapes and patterns.
Never: a pattern from free text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from pokayoke.core.schema.schema import Schema, compile_schema

LONGEST_SHAPED: Final = 64
SMALL: Final = 1_000
DECIMALS: Final = 2
"""Numbers below 1,000 identify no person, to two decimals: with six of them they may be coordinates."""
ID_LIKE: Final = re.compile(r"[0-9]{3}|.@|^[0-9]+$|[0-9a-f]{8}-[0-9a-f]{4}", re.ASCII)
"""A name that holds a number or an address as ids do: it is data, not the name of a field."""
# The formats to try, and what a text must hold before a format is tried.
_FORMAT_SIGNS: Final = {
    "date": "-",
    "date-time": "T",
    "time": ":",
    "uuid": "-",
    "email": "@",
    "uri": "://",
    "ipv4": ".",
    "ipv6": ":",
}
_RUNS: Final = re.compile(r"[0-9]+|[a-z]+|[A-Z]+|[^0-9a-zA-Z]")
_MIXED: Final = re.compile(r"[0-9A-Z]+|[0-9a-z]+|[^0-9a-zA-Z]")
_SPECIAL: Final = re.compile(r"[\\^$.|?*+()\[\]{}]")
_CLASSES: Final = {"9": "[0-9]", "a": "[a-z]", "A": "[A-Z]", "x": "[0-9a-z]", "X": "[0-9A-Z]"}


class ShapePiece(msgspec.Struct, frozen=True):
    """One piece of a shape: a kind of characters and how many of them, or one literal sign.

    Letters that are the same in all texts are kept next to their kind.
    """

    kind: str
    low: int = 1
    high: int = 1
    letters: str = ""


@functools.cache
def _format_checker(name: str) -> Schema:
    return compile_schema({"type": "string", "format": name}, where=f"format {name}")


def formats_of(text: str) -> frozenset[str]:
    """Return the formats a text is in, according to the validator that will assert them."""
    if len(text) > 2_000:  # noqa: PLR2004 - no text of a format is longer
        return frozenset()
    return frozenset(
        name for name, sign in _FORMAT_SIGNS.items() if sign in text and _format_checker(name).accepts(text)
    )


def shape_of(text: str, *, mixed: bool = False) -> tuple[ShapePiece, ...] | None:
    """Return the shape of a text; None if it is empty, long, or not plain ASCII.

    Args:
        text: the text.
        mixed: True to take alternating letters and digits as one kind of character (`JG7FMM`).
    """
    if not text or len(text) > LONGEST_SHAPED or not text.isascii() or not text.isprintable():
        return None
    pieces = (_MIXED if mixed else _RUNS).findall(text)
    return tuple(_build_piece(piece, _character_kind(piece, mixed=mixed)) for piece in pieces)


def _build_piece(piece: str, kind: str) -> ShapePiece:
    return ShapePiece(kind, len(piece), len(piece), piece if kind in "aA" else "")


def _character_kind(piece: str, *, mixed: bool) -> str:
    if not piece.isalnum():
        return piece
    if mixed:
        return "x" if piece.lower() == piece and not piece.isdecimal() else "X"
    return "9" if piece.isdecimal() else "a" if piece.islower() else "A"


def common_shape(
    first: tuple[ShapePiece, ...] | None, second: tuple[ShapePiece, ...] | None
) -> tuple[ShapePiece, ...] | None:
    """Return the shape two shapes have in common, or None."""
    if first is None or second is None or len(first) != len(second):
        return None
    if any(one.kind != two.kind for one, two in zip(first, second, strict=True)):
        return None
    return tuple(
        ShapePiece(a.kind, min(a.low, b.low), max(a.high, b.high), a.letters if a.letters == b.letters else "")
        for a, b in zip(first, second, strict=True)
    )


def pattern_of(shape: tuple[ShapePiece, ...] | None, texts: Iterable[str]) -> str | None:
    """Return the pattern for a shape, or None if the shape is that of words.

    A run of letters that is equal in all texts (`W` in order numbers) is written literally.

    Args:
        shape: common to all texts.
        texts: the distinct texts that were kept; they decide whether the shape looks generated.
    """
    if shape is None or not _is_identifier_shape(shape, list(texts)):
        return None
    return f"^{''.join(map(_piece_pattern, shape))}$"


def _piece_pattern(run: ShapePiece) -> str:
    if run.kind not in _CLASSES:
        return _SPECIAL.sub(r"\\\g<0>", run.kind)
    return run.letters or _CLASSES[run.kind] + _piece_quantifier(run)


def _is_identifier_shape(shape: tuple[ShapePiece, ...], texts: list[str]) -> bool:
    """True if a shape is that of an identifier: it has digits, and no words with spaces between them."""
    kinds = {run.kind for run in shape}
    if kinds & {" ", ","} and kinds & {"a", "A", "x", "X"}:
        return False  # `763 Broadway`
    if "9" in kinds:
        return True
    return 2 * sum(1 for text in texts if any(map(str.isdecimal, text))) >= len(texts) > 0


def _piece_quantifier(run: ShapePiece) -> str:
    """Return a quantifier: a fixed length is exact; varying lengths only require one character."""
    if run.low != run.high:
        return "+"
    return "" if run.low == 1 else f"{{{run.low}}}"
