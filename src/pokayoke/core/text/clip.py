"""Texts cut to a maximum length."""

from __future__ import annotations

from pokayoke.core.text.regex import compile_pattern


def clip(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a text that was cut ends with `…`."""
    return text if len(text) <= most else text[: most - 1] + "…"


def clip_at_word(text: str, most: int) -> str:
    """Return a text of at most `most` characters, cut between words; a text that was cut ends with `…`.

    For texts of tools and users, which are searched for secrets later: half a secret would not be found.
    """
    if len(text) <= most:
        return text
    kept = compile_pattern(_UP_TO_WORD_END).match(text, 0, most)
    return "…" if kept is None else kept[0].rstrip() + "…"


def end_sentence(text: str) -> str:
    """Return a text that ends as a sentence does: a full stop is added where no mark of any script ends it."""
    text = text.rstrip()
    return text if text.endswith((".", "!", "?", "…", "。", "！", "？", "؟", "।")) else f"{text}."


# Up to the last blank, the next string of compact JSON, or a full stop or comma of a script without blanks.
_UP_TO_WORD_END = r"""[\s\S]*(?:\s|,(?=")|[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"""
