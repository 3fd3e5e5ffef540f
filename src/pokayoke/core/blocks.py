"""Results made of content blocks: MCP's tool result, and lists of text, image and audio blocks.

What enters is the result of an MCP client, a FastMCP tool or a framework, as dict or object; what
leaves is its text, its structured value, its declared failure, and every block that is not text,
unread. Sources: MCP specification 2025-06-18, "Tool Result".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

_BLOCKS = frozenset(
    ("text", "image", "audio", "resource", "resource_link", "image_url", "input_image", "file", "video")
)
_RESULT_KEYS = frozenset(("content", "structuredContent", "structured_content", "isError", "is_error", "_meta", "meta"))
_ABSENT: Any = object()


class Blocks(msgspec.Struct, frozen=True):
    """A result in parts.

    Args:
        texts: the text blocks, in order.
        content: every other block, as it came.
        structured: the structured value; `None` with `has_structured` False if there is none.
        has_structured: True if the tool sent a structured value.
        failed: True if the tool says that it failed.
    """

    texts: tuple[str, ...]
    content: tuple[Any, ...]
    structured: Any = None
    has_structured: bool = False
    failed: bool = False

    @property
    def text(self) -> str:
        """All text blocks, one after the other."""
        return "\n".join(self.texts)


def as_blocks(raw: Any, schema: dict[str, Any] | bool | None = None) -> Blocks | None:
    """Return the parts of a block-shaped result, or None if the result is something else.

    A result is recognised by `content` being a list of typed blocks and by having no field that
    MCP does not know. Bare blocks (one, or a list of nothing else) count only where no schema
    describes the output: with one, `[{"type": "image", ...}]` may well be data.

    Args:
        raw: what the tool returned.
        schema: the output schema, or None if there is none.
    """
    if isinstance(raw, dict):
        if "content" in raw and _RESULT_KEYS.issuperset(raw) and not _describes(schema, "content"):
            return _result(raw.get, raw["content"]) if _typed(raw["content"], empty=len(raw) > 1) else None
        return _parts([raw]) if schema is None and _is_block(raw) and _kind(raw) != "text" else None
    if isinstance(raw, list):
        return _parts(raw) if schema is None and _typed(raw) else None
    content = getattr(raw, "content", _ABSENT)
    if not isinstance(content, list) or not _typed(content, empty=True):
        return None
    if not any(hasattr(raw, name) for name in ("isError", "is_error", "structuredContent", "structured_content")):
        return None
    return _result(lambda name, default=None: getattr(raw, name, default), content)


def _result(get: Any, content: list[Any]) -> Blocks:
    """Read MCP's result in either spelling."""
    parts = _parts(content)
    structured = get("structuredContent", None)
    if structured is None:
        structured = get("structured_content", None)
    return msgspec.structs.replace(
        parts,
        structured=structured,
        has_structured=structured is not None,
        failed=get("isError", None) is True or get("is_error", None) is True,
    )


def _parts(blocks: Iterable[Any]) -> Blocks:
    texts: list[str] = []
    content: list[Any] = []
    for block in blocks:
        text = _text(block)
        if text is None:
            content.append(block)
        else:
            texts.append(text)
    return Blocks(tuple(texts), tuple(content))


def _typed(blocks: Any, *, empty: bool = False) -> bool:
    """True if this is a list of blocks and nothing else."""
    return isinstance(blocks, list) and (bool(blocks) or empty) and all(_is_block(one) for one in blocks)


def _describes(schema: dict[str, Any] | bool | None, name: str) -> bool:
    return isinstance(schema, dict) and name in schema.get("properties", {})


def _is_block(block: Any) -> bool:
    kind = _kind(block)
    if not isinstance(kind, str) or kind not in _BLOCKS:
        return False
    if not isinstance(block, dict):
        return True
    payload = {"text": ("text",), "image": ("data", "source", "url"), "audio": ("data", "source")}
    return any(name in block for name in payload.get(kind, (kind, "uri", "data", "source", "file_id", "image_url")))


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else getattr(block, "type", None)


def _text(block: Any) -> str | None:
    """The text of a text block or of an embedded text resource; None for all that is not text."""
    get = block.get if isinstance(block, dict) else lambda name: getattr(block, name, None)
    kind = get("type")
    if kind == "resource":
        return _text_of(get("resource"))
    return _text_of(block) if kind == "text" else None


def _text_of(holder: Any) -> str | None:
    text = holder.get("text") if isinstance(holder, dict) else getattr(holder, "text", None)
    return text if isinstance(text, str) else None
