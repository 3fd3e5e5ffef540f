"""Finds HTML pages in place of data: as the whole body, or as a whole string inside the data.

In: a text or a JSON value, and the output schema.
Out: True, or the pointer of the page. A page with status 200 looks like a success; inside JSON it passes every
parser and most schemas.
Never: report a page where the schema declares HTML.
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
# Allowed before the first tag: white space, invisible characters, and (see below) comments and an XML declaration.
_BLANK = re.compile(rf"[\s{INVISIBLE}]*+")
_DECLARATION = re.compile(r"<\?xml[^>]*+(?<=\?)>", re.IGNORECASE)
_TAG = re.compile(r"<(?:!doctype\s+html|(?:html|head|body)(?=[\s>/]|$))", re.IGNORECASE)


def is_page(text: str) -> bool:
    """Return whether a text is an HTML page from its first tag on (it may be cut at the end).

    The time is linear: everything before that tag is read once.
    """
    at = _skip_blanks(text, 0)
    while text.startswith("<", at):
        if text.startswith("<!--", at):
            # In HTML a comment that begins with its own end is complete: `<!-->`.
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
    """Return whether a string in this JSON text may be a page; one pass at memory speed."""
    return _TAG_START in data and _PAGE_HINT.search(data) is not None


_TAG_START = ord("<")  # an integer: for `bytes in bytes` CPython first raises and drops an exception


def find_page(value: Any, schema: Schema | None = None) -> str | None:
    """Return the JSON pointer of the first whole string that is an HTML page, or None.

    Args:
        value: a JSON value.
        schema: the output schema, if there is one. A field is allowed to hold a page if its schema says
            `contentMediaType: text/html` (JSON Schema, section 8.4), or if it is declared under a
            name that contains the word html.
    """
    stack: list[tuple[Any, Path]] = [(value, ())]
    while stack:
        item, path = stack.pop()
        if isinstance(item, str):
            if is_page(item) and (schema is None or not _is_page_allowed(schema, path)):
                return to_pointer(path)
        elif is_object(item):
            stack.extend((child, (*path, key)) for key, child in reversed(item.items()))
        elif is_array(item):
            stack.extend((child, (*path, str(i))) for i, child in reversed(list(enumerate(item))))
    return None


def _is_page_allowed(schema: Schema, path: Path) -> bool:
    """Return whether the schema declares a page at this place."""
    for place, step in enumerate(path):
        if "html" in step.lower() and step in facts_at(schema, path[:place]).properties:
            return True
    nodes = facts_at(schema, path).nodes
    return any(str(node.get("contentMediaType", "")).lower().startswith("text/html") for node in nodes)
