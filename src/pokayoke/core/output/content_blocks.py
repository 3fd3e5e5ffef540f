"""Reads results made of content blocks: MCP's tool result, and lists of text, image and audio blocks.

In: the result of an MCP client, a FastMCP tool or a framework, as a dict or an object.
Out: its text, its structured value, its declared failure, and every other block unread.
Never: take data that only resembles a block for one. Source: MCP specification 2025-06-18, "Tool Result".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pokayoke.core.json.values import is_array, is_object, properties_of

_RESULT_KEYS = frozenset(("content", "structuredContent", "structured_content", "isError", "is_error", "_meta", "meta"))
# Fields of each type of block; a dict that has the type but none of these fields is data.
_PAYLOADS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "source", "url", "base64"),
    "image_url": ("image_url",),
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_id", "file_url"),
    "audio": ("data", "source", "base64"),
    "video": ("data", "source", "base64"),
    "file": ("file", "file_id", "data", "source", "base64"),
    "resource": ("resource",),
    "resource_link": ("uri",),
}
# References in LangChain's blocks. Data may have such a field and type, but not these fields alone.
_REFERENCES = ("url", "file_id")
_REFERENCE_FIELDS = frozenset({"type", "id", "index", "mime_type", "extras", *_REFERENCES})
_REFERENCE_TYPES = frozenset({"image", "audio", "video", "file"})
# Sources of Anthropic's documents other than text.
_DOCUMENT_SOURCES = frozenset({"base64", "url", "file"})

# Schemas of a bare `list`, `list[dict]` and `dict`, which do not say what is in them: it may be media.
_OPEN_SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "array", "items": {}},
    {"type": "array", "items": {"type": "object", "additionalProperties": True}},
    {"type": "object", "additionalProperties": True},
)

_Get = Callable[[str], Any]


class ContentBlocks(msgspec.Struct, frozen=True):
    """A result in parts.

    Args:
        texts: the text blocks, in order.
        content: every other block, unchanged.
        structured: the structured value (always an object), or None.
        failed: True if the tool reports a failure.
    """

    texts: tuple[str, ...]
    content: tuple[Any, ...]
    structured: Any = None
    failed: bool = False

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "\n".join(self.texts)


def as_blocks(raw: Any, schema: dict[str, Any] | bool | None = None) -> ContentBlocks | None:
    """Return the parts of a block-shaped result, or None if it has another shape.

    In such a result `content` is a list of typed blocks, and every field is known to MCP. Bare blocks (one, or a
    list of only blocks) count only without a schema of the output: with one, `[{"type": "image", ...}]` may be data.
    A list with media counts under the schema of a bare `list` or `dict`, too.

    Args:
        raw: the tool's result.
        schema: the output schema, or None if there is none.
    """
    if is_object(raw):
        if "content" in raw and _RESULT_KEYS.issuperset(raw) and "content" not in properties_of(schema):
            return _read_result(raw.get, raw["content"]) if _are_blocks(raw["content"], empty=len(raw) > 1) else None
        return _split_blocks([raw]) if schema is None and _is_block(raw) and raw["type"] != "text" else None
    if is_array(raw):
        if not may_be_media(schema) or not _are_blocks(raw):
            return None
        blocks = _split_blocks(raw)
        return blocks if schema is None or blocks.content else None
    content = getattr(raw, "content", None)
    if not _are_blocks(content, empty=True):
        return None
    if not any(hasattr(raw, name) for name in ("isError", "is_error", "structuredContent", "structured_content")):
        return None
    return _read_result(_field_getter(raw), content)


def may_be_media(schema: dict[str, Any] | bool | None) -> bool:
    """Return whether an output schema leaves open if what looks like media is data: so does that of a bare `list`."""
    return schema is None or schema in _OPEN_SCHEMAS


def data_beside_media(blocks: ContentBlocks, schema: dict[str, Any] | bool) -> Any:
    """Return the value of a result with media, as the schema of a bare `list` or `dict` wants it; else None."""
    if schema not in _OPEN_SCHEMAS or not blocks.content:
        return None
    texts = [{"type": "text", "text": text} for text in blocks.texts]
    return texts if schema in _OPEN_SCHEMAS[:2] else None if texts else {}


class ComparedHalves(msgspec.Struct, frozen=True):
    """How the texts of a result go with its structured value.

    Args:
        words: the texts, if they are not that value's JSON; else "".
        at: pointer to a place of which both say something, and not the same; None if there is none.
    """

    words: str = ""
    at: str | None = None


def compare_halves(blocks: ContentBlocks, value: Any) -> ComparedHalves:
    """Compare the texts of a result with its structured value, which MCP's servers often wrap as `result`.

    Args:
        blocks: the result.
        value: its structured value as JSON.
    """
    if not blocks.texts:
        return ComparedHalves()
    inner = value["result"] if is_object(value) and value.keys() == {"result"} else value
    read = [_read_json(text) for text in blocks.texts]
    said = read[0] if len(read) == 1 else read
    if said in (value, inner) or inner in (blocks.text, [*blocks.texts]):
        return ComparedHalves()
    half = value if is_object(said) and "result" in said else inner
    is_data = is_object(said) and is_object(half)
    is_data = is_data or (is_array(said) and is_array(half)) or (type(said) in (bool, int, float) and half is not value)
    return ComparedHalves(blocks.text, _contradiction(said, half) if is_data else None)


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _contradiction(said: Any, value: Any, at: str = "") -> str | None:
    """Return the first place at which both hold something, and not the same; a list may be a part of a longer one."""
    if is_object(said) and is_object(value):
        pairs: Iterable[tuple[Any, Any]] = ((key, value[key]) for key in said if key in value)
        found = (_contradiction(said[key], other, f"{at}/{key}") for key, other in pairs)
    elif is_array(said) and is_array(value):
        found = (_contradiction(one, value[place], f"{at}/{place}") for place, one in enumerate(said[: len(value)]))
    else:
        return None if said == value else at
    return next((one for one in found if one is not None), None)


def _field_getter(holder: Any) -> _Get:
    """Read fields of a dict or attributes of an object; None for absent ones."""
    if is_object(holder):
        return holder.get
    return lambda name: getattr(holder, name, None)


def _read_result(get: _Get, content: Any) -> ContentBlocks:
    """Read MCP's result in either spelling of its fields."""
    structured = get("structuredContent")
    return msgspec.structs.replace(
        _split_blocks(content),
        structured=get("structured_content") if structured is None else structured,
        failed=_is_set(get("isError")) or _is_set(get("is_error")),
    )


def _is_set(flag: Any) -> bool:
    """Return whether an error flag is set; absent or any spelling of "no" is not, every other value is."""
    return (flag.strip().lower() if isinstance(flag, str) else flag) not in (None, False, "", "false")


def _split_blocks(blocks: Iterable[Any]) -> ContentBlocks:
    texts: list[str] = []
    content: list[Any] = []
    for block in blocks:
        text = _block_text(block)
        if text is None:
            content.append(block)
        else:
            texts.append(text)
    return ContentBlocks(tuple(texts), tuple(content))


def _are_blocks(value: Any, *, empty: bool = False) -> bool:
    """Return whether this is a list of only blocks."""
    return is_array(value) and (bool(value) or empty) and all(map(_is_block, value))


def _is_block(block: Any) -> bool:
    get = _field_getter(block)
    kind = get("type")
    if not isinstance(kind, str):
        return False
    if any(get(name) is not None for name in _PAYLOADS.get(kind, ())):
        return True
    if kind == "document":
        source = get("source")
        return not isinstance(source, str) and _field_getter(source)("type") in _DOCUMENT_SOURCES
    refers = kind in _REFERENCE_TYPES and is_object(block) and _REFERENCE_FIELDS.issuperset(block)
    return refers and any(isinstance(get(name), str) for name in _REFERENCES)


def _block_text(block: Any) -> str | None:
    """Return the text of a text block or of an embedded text resource, else None."""
    get = _field_getter(block)
    holder = get("resource") if get("type") == "resource" else block
    text = _field_getter(holder)("text") if get("type") in ("resource", "text") else None
    return text if isinstance(text, str) else None
