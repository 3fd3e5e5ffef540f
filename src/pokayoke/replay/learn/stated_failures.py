"""Detects recorded answers in which a tool reports a failure, and those that only mention errors.

Two grades: *stated* (the recording's own flag, a filled error slot, a text that begins as error messages do) and
*mentioned* (the word occurs somewhere in the data, for a person to check). Only stated failures count.

In: a recorded answer.
Out: the tool's words, or None.
Never: a failure inferred from a mention.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.core.output.content_blocks import as_blocks
from pokayoke.core.output.envelope import failure_text, undeclared_error

_LONGEST_SAID: Final = 200
_LOOKED_AT: Final = 20_000
# `Error: ...`, `Error during ...`, `ValueError: ...`, `[error] ...`, a Python traceback, `fatal: ...`
_BEGINS: Final = re.compile(
    r"""[\s\[(<*"']{0,4}(?:(?i:error|exception|fatal|panic)\b(?=\s*[:\])>*!]|\s+\w|\s*$)"""
    r"""|(?:[A-Za-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception)\s{0,2}:|Traceback\s\(most\srecent\scall\slast\))"""
)
_PARTS: Final = ("rror", "RROR", "xception", "XCEPTION")
_MENTIONS: Final = re.compile(r"(?<![A-Za-z])(?i:error|exception)s?\b|(?<=[a-z])(?:Error|Exception)s?\b")


def stated_failure(output: Any, is_error: bool | None = None) -> str | None:
    """Return the tool's own words if an answer reports a failure, else None.

    Args:
        output: the recorded answer: text, or a JSON value.
        is_error: the recording's flag; False is believed.
    """
    if is_error is False:
        return None
    if is_error:
        return (_clip_words(output) if output else "") or "the recording says that the tool failed"
    blocks = as_blocks(output) if is_object(output) else None
    if blocks is not None:
        return _clip_words(blocks.text or "the tool gave no reason") if blocks.failed else stated_failure(blocks.text)
    if isinstance(output, str):
        said = leading_error_text(output)
        if said is not None:
            return said
        output = _parse_object(output)
    found = undeclared_error(output) if is_object(output) else None
    return None if found is None else _clip_words(output[found.at[1:]] if is_object(output) else output)


def leading_error_text(text: str) -> str | None:
    """Return the words of a text that begins as error messages do, else None."""
    return _clip_words(text[:_LOOKED_AT]) if _BEGINS.match(text) else None


def error_prefix(text: str) -> str:
    """Return the beginning that identifies a text as an error message; "" if there is none."""
    found = _BEGINS.match(text)
    if found is None:
        return ""
    sign = text[found.end() : found.end() + 1]
    return found[0] + (sign if sign in (":", "]", ")", " ") else "")


def has_error_word(output: Any) -> bool:
    """Return whether the word error (or exception) occurs anywhere in an answer. A guess, for people to check."""
    text = output if isinstance(output, str) else failure_text(output, limit=_LOOKED_AT)
    # Most answers hold neither word: a plain search is five times as fast as the pattern.
    if not any(part in text for part in _PARTS):
        return False
    return _MENTIONS.search(text[:_LOOKED_AT]) is not None


def _parse_object(text: str) -> Any:
    if text.lstrip()[:1] != "{":
        return None
    try:
        return parse(text)[0]
    except StrictError:
        return None


def _clip_words(value: Any) -> str:
    return " ".join(failure_text(value, limit=_LONGEST_SAID).split())
