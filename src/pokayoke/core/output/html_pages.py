"""HTML where data was expected: a whole page as the body, or as a whole string anywhere in the data.

A page with status 200 looks like a success; inside a JSON wrapper it passes every parser and most
schemas. Fields that are meant to hold a page say so in the schema.
"""

from __future__ import annotations

import re
from typing import Any

from pokayoke.core.json.pointer import Path, to_pointer
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.schema.facts import facts_at
from pokayoke.core.schema.schema import Schema
from pokayoke.core.text.neutralise import INVISIBLE

# No IGNORECASE: a literal first byte lets the engine skip with memchr (2 us instead of 60 per 10 KB).
_PAGE_HINT = re.compile(rb"<(?:![dD][oO][cC]|[hH][tT][mM][lL]|[hH][eE][aA][dD]|[bB][oO][dD][yY])")
# What may stand before the first tag: blanks, what nobody sees, and (see below) comments and a declaration of XML.
_BLANK = re.compile(rf"[\s{INVISIBLE}]*+")
_DECLARATION = re.compile(r"<\?xml[^>]*+(?<=\?)>", re.IGNORECASE)
_TAG = re.compile(r"<(?:!doctype\s+html|(?:html|head|body)(?=[\s>/]|$))", re.IGNORECASE)


def is_page(text: str) -> bool:
    """Return whether a text is an HTML page from its first tag on (it may be cut at the end).

    However much stands before that tag, it is walked over once: no place is looked at in two ways.
    """
    at = _skip_blanks(text, 0)
    while text.startswith("<", at):
        if text.startswith("<!--", at):
            # HTML ends a comment at once if it begins with its own end: `<!-->`.
            closed = text.find("-->", at + 2)
            if closed < 0:
                return False
            end = closed + 3
        elif declared := _DECLARATION.match(text, at):
            end = declared.end()
        else:
            return _TAG.match(text, at) is not None
        at = _skip_blanks(text, end)
    return False


def _skip_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None, "matches nothing, too"
    return found.end()


def may_hold_page(data: bytes) -> bool:
    """Return False if no string of this JSON text can be a page; costs one pass at memory speed."""
    return _TAG_START in data and _PAGE_HINT.search(data) is not None


_TAG_START = ord("<")  # as a number: for `bytes in bytes` this Python raises and drops an exception before it looks


def find_page(value: Any, schema: Schema) -> str | None:
    """Return the JSON pointer of the first whole string that is an HTML page, or None.

    Args:
        value: a JSON value.
        schema: the output schema. A field is allowed to hold a page if its schema says
            `contentMediaType: text/html` (JSON Schema, section 8.4), or if it is declared under a
            name that contains the word html.
    """
    stack: list[tuple[Any, Path]] = [(value, ())]
    while stack:
        item, path = stack.pop()
        if isinstance(item, str):
            if is_page(item) and not _is_page_allowed(schema, path):
                return to_pointer(path)
        elif is_object(item):
            stack.extend((child, (*path, key)) for key, child in reversed(item.items()))
        elif is_array(item):
            stack.extend((child, (*path, str(i))) for i, child in reversed(list(enumerate(item))))
    return None


def _is_page_allowed(schema: Schema, path: Path) -> bool:
    """Return whether the schema says that a page belongs at this place."""
    for place, step in enumerate(path):
        if "html" in step.lower() and step in facts_at(schema, path[:place]).properties:
            return True
    nodes = facts_at(schema, path).nodes
    return any(str(node.get("contentMediaType", "")).lower().startswith("text/html") for node in nodes)
