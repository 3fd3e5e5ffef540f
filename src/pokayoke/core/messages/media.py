"""Converts images and files of a tool's result to each provider's blocks.

In: a block in the shape of MCP, OpenAI, Anthropic or LangChain, or the bytes that a tool returned.
Out: the provider's own block, or None.
Never: return a block that the provider would refuse: the history with it could never be sent again.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any, Literal, NamedTuple

from pokayoke.core.call import Raw
from pokayoke.core.json.values import read_field

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"
_MAX_BASE64_CHARS = 5_000_000  # the smallest limit that a provider documents for one image
_DATA_URL = re.compile(r"data:([\w.+/-]+);base64,(.*)", re.DOTALL)


class _Media(NamedTuple):
    """An image or a PDF, by value or by URL."""

    kind: str
    data: str
    url: str
    name: str


def media_block_for(block: Any, shape: Literal["anthropic", "responses", "langchain"]) -> dict[str, Any] | None:
    """Return the block that carries an image or file to the model; None if the provider does not accept it.

    Args:
        block: from `Outcome.content`.
        shape: the provider's format.
    """
    own: dict[str, Any] = block
    if isinstance(block, dict) and _is_own(block, shape):
        return own
    media = _read_media(block)
    if media is None:
        return None
    pdf = media.kind == _PDF
    if shape == "anthropic":
        value = {"type": "base64", "media_type": media.kind, "data": media.data}
        source = value if media.data else {"type": "url", "url": media.url}
        return {"type": "document" if pdf else "image", "source": source}
    if shape == "langchain":
        held = {"base64": media.data, "mime_type": media.kind} if media.data else {"url": media.url}
        return {"type": "file" if pdf else "image", **held}
    url = f"data:{media.kind};base64,{media.data}" if media.data else media.url
    if not pdf:
        return {"type": "input_image", "image_url": url}
    value = {"filename": media.name or "file.pdf", "file_data": url}
    return {"type": "input_file", **(value if media.data else {"file_url": url})}


def _is_own(block: Any, shape: str) -> bool:
    """Return whether this is the provider's own block, which may say more, such as the id of a stored file."""
    if shape == "responses":
        return read_field(block, "type") in ("input_image", "input_file")
    return shape == "anthropic" and read_field(read_field(block, "source"), "type") in ("url", "file")


def _read_media(block: Any) -> _Media | None:
    """Return a block's media if the providers accept its type; a URL without a type counts as an image."""
    if isinstance(block, Raw):
        body = block.body
        return _build_media(
            block.content_type or "", b64encode(body).decode() if isinstance(body, bytes) else "", "", ""
        )
    inner = [read_field(block, name) for name in ("source", "image_url", "file")]
    holders = [*(one for one in inner if one is not None and not isinstance(one, str)), block]
    data = _first_text(holders, "data", "base64", "file_data")
    url = _first_text(holders, "url", "image_url", "file_url")
    kind = _first_text(holders, "media_type", "mime_type", "mimeType")
    if (whole := _DATA_URL.fullmatch(data or url)) is not None:
        kind, data = whole.groups()
    if not kind and "image" in str(read_field(block, "type")):
        kind = "image/*"
    return _build_media(kind, data, url, _first_text(holders, "filename", "name"))


def _build_media(kind: str, data: str, url: str, name: str) -> _Media | None:
    kind = kind.partition(";")[0].strip().lower()
    if data:
        known = (kind in _IMAGES or kind == _PDF) and len(data) <= _MAX_BASE64_CHARS
    else:
        known = (kind.startswith("image/") or kind == _PDF) and url.startswith(("https://", "http://"))
    return _Media(kind, data, url, name) if known else None


def _first_text(holders: list[Any], *names: str) -> str:
    """Return the first of these fields that is a text, or ""."""
    found = (read_field(holder, name) for holder in holders for name in names)
    return next((one for one in found if isinstance(one, str) and one), "")
