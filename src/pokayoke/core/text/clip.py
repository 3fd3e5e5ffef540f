"""Texts that must not get long."""

from __future__ import annotations

from pokayoke.core.text.rare import compile_pattern


def clip(text: str, most: int) -> str:
    """Return a text of `most` characters at the most; one that was cut ends with `…`."""
    return text if len(text) <= most else text[: most - 1] + "…"


def clip_at_word(text: str, most: int) -> str:
    """Return a text of `most` characters at the most that was cut, if it was, where no word ends up in two.

    For words of others, which are searched for secrets later: half a secret is not known for one.
    """
    if len(text) <= most:
        return text
    kept = compile_pattern(_WHOLE).match(text, 0, most)
    return "…" if kept is None else kept[0].rstrip() + "…"


# Up to the last blank, to where the next string of compact JSON begins, or to a stop of a script without blanks.
_WHOLE = r"""[\s\S]*(?:\s|,(?=")|[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"""
