"""Text of any origin, shown to a person so that nothing of it is hidden or acts.

In: a text.
Out: the same text with every invisible character as its escape.
Never: a character that moves a cursor, reorders what stands around it, or is not seen.
"""

from __future__ import annotations

import re
from typing import Final

from pokayoke.core.text.neutralise import INVISIBLE

_UNSAFE: Final = re.compile(f"[\t\n{INVISIBLE}]")
_UNSAFE_IN_LINES: Final = re.compile(f"[{INVISIBLE}]")
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def make_visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text in which every character is visible: ESC becomes `\x1b`.

    Args:
        text: of any origin.
        lines: True to leave line ends and tabs; by default the text stays on one line.
    """
    return (_UNSAFE_IN_LINES if lines else _UNSAFE).sub(_escape_match, text)


def _escape_match(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[found[0]]
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004
