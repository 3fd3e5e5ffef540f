"""Estimates the tokens of texts and messages, and corrects the estimate by the provider's counts.

In: a text, or a message in any common shape.
Out: a number of tokens. A tokenizer takes 55 microseconds per kilobyte, this estimate a few for any length.
Never: load a vocabulary; fetch anything.

Four characters per token is right for English prose and wrong by half for identifiers, numbers and base64,
which fill agents' histories. So characters are weighted by class (a letter of prose costs little, a
rare letter, a capital, a digit or a mark more), and every change between digits and other characters
costs extra. The weights were fitted to 40 kinds of text under o200k; the error on those is -10 to +35 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, cast
from zlib import adler32

import msgspec

from pokayoke.core.context.token_sampling import TokenSampler
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.messages import CALL_KINDS, RESULT_KINDS

MESSAGE_TOKENS = 4
"""Tokens of a message besides its content: role and separators."""
CALL_TOKENS = 8
"""Tokens of a tool call besides its name and arguments."""
IMAGE_TOKENS = 1_000
"""Assumed tokens of an image, sound or file block; providers charge 85 to 1,600."""

_BINARY = frozenset({
    *("image", "image_url", "input_image", "computer_screenshot", "image_generation_call"),
    *("audio", "input_audio", "output_audio", "video", "input_video", "video_url", "media"),
    *("file", "input_file", "container_upload"),
})  # fmt: skip
_SEALED_FIELDS = frozenset({"encrypted_content", "redacted_thinking"})
_PER_SEALED_TOKEN = 4  # characters of base64 per token: three bytes of a text that only the provider reads
_MAX_LEVELS = 6  # levels searched for images in a block of another kind

_WINDOWS, _WINDOW = 8, 50  # number of samples of a long text, and their characters
_MOST_WHOLE_TEXT = _WINDOWS * _WINDOW  # maximum characters of a text that is read in full
_MOST_PER_BYTE = 0.95

_UNITS = 60  # per token
_CHANGE = 45  # units of every change between digits and others
# First byte, last byte and weight in units; a later row wins. Only digits have an odd weight.
_CLASSES: tuple[tuple[int, int, int], ...] = (
    (0x00, 0x7F, 32),  # marks and line ends
    (ord(" "), ord(" "), 4),
    (ord("0"), ord("9"), 21),
    (ord("A"), ord("Z"), 24),
    (ord("a"), ord("z"), 12),
    *((ord(rare), ord(rare), 128) for rare in "jkqxz"),  # rare in prose, common in noise
    (0x80, 0xC7, 0),  # Latin letters with accents, and the rest of any longer character
    (0xC8, 0xE0, 20),  # Greek to Arabic, Indic
    (0xE1, 0xEF, 44),  # Chinese, Japanese, Korean
    (0xF0, 0xFF, 104),  # emoji
)


def _build_weights() -> bytes:
    """Return the table from byte to weight."""
    table = [0] * 256
    for first, last, weight in _CLASSES:
        table[first : last + 1] = [weight] * (last + 1 - first)
    return bytes(table)


_WEIGHTS = _build_weights()
_CHECKSUM_BYTES = 400  # bytes per checksum: it cannot add more units without overflow


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text.

    Args:
        text: any text.

    Returns:
        the estimate, at least 1 for text that is not empty. It tends to be too high: at most 15 % below the true
        count for prose, code, JSON, HTML, Chinese, digits, UUIDs and base64.
    """
    size = len(text)
    if size <= _MOST_WHOLE_TEXT:
        return int(_weigh_text(text)) + 1 if size else 0
    step = (size - _WINDOW) // (_WINDOWS - 1)
    # Rounded to a sixteenth, so that a few hundred cached cutters serve texts of every length.
    sample = "".join(_window_cutter(step - step % ((step >> 4) or 1))(text))
    return int(_weigh_text(sample) * size / _MOST_WHOLE_TEXT) + 1


@lru_cache(maxsize=1_024)
def _window_cutter(step: int) -> Callable[[str], tuple[str, ...]]:
    """Return the function that cuts the samples out of a text, one every `step` characters."""
    starts = range(0, _WINDOWS * step, step)
    return cast("Callable[[str], tuple[str, ...]]", itemgetter(*[slice(start, start + _WINDOW) for start in starts]))


def _weigh_text(text: str) -> float:
    """Return the tokens of a text, from all of its characters.

    The weight of each byte, and the cost of a change after it, are added for all bytes at once as two long
    integers: no sum exceeds its byte.
    """
    data = text.encode("utf-8", "replace")
    weights = int.from_bytes(data.translate(_WEIGHTS), "little")
    digits = weights & _low_bit_mask(len(data))
    units = memoryview((weights + _CHANGE * (digits ^ (digits >> 8))).to_bytes(len(data), "little"))
    # The low half of this checksum (RFC 1950): 1 + the sum of all bytes modulo 65521.
    total = sum(
        [(adler32(units[at : at + _CHECKSUM_BYTES]) & 0xFFFF) - 1 for at in range(0, len(data), _CHECKSUM_BYTES)]
    )
    return min(total / _UNITS, len(data) * _MOST_PER_BYTE)


@lru_cache(maxsize=64)
def _build_bit_mask(size: int) -> int:
    """Return a mask of the lowest bit of each byte."""
    return int.from_bytes(b"\1" * size, "little")


def _low_bit_mask(size: int) -> int:
    """Return the lowest bit of each of at least so many bytes; a longer mask does no harm."""
    return _build_bit_mask(1 << size.bit_length())


def estimate_message(message: Any, estimate: Callable[[str], int] = estimate_tokens) -> int:
    """Estimate the tokens of a message.

    Args:
        message: text, or a message as a dict or object in the shape of OpenAI (chat and responses),
            Anthropic or LangChain: content as text or blocks, tool calls, tool results.
        estimate: counts the tokens of a text; a real tokenizer may stand in.

    Returns:
        the estimate. Images and other binary blocks count `IMAGE_TOKENS`.
    """
    if isinstance(message, str):
        return MESSAGE_TOKENS + estimate(message)
    content, calls, kind = (
        read_field(message, "content"),
        read_field(message, "tool_calls"),
        read_field(message, "type"),
    )
    if (
        isinstance(kind, str)
        and (content is None or kind == "reasoning")
        and not (calls or read_field(message, "role"))
    ):
        return MESSAGE_TOKENS + _estimate_item(message, kind, estimate)
    total = MESSAGE_TOKENS
    if isinstance(content, str):
        total += estimate(content)
    elif content is not None:
        total += _estimate_content(content, estimate, skip_calls=bool(calls))
    old = read_field(message, "function_call")
    for call in (*as_sequence(calls), *(() if old is None else (old,))):
        total += _estimate_call(read_field(call, "function") or call, estimate)
    return total + sum(
        estimate(beside) for name in _EXTRA_TEXT_FIELDS if isinstance(beside := read_field(message, name), str)
    )


def _estimate_item(item: Any, kind: str, estimate: Callable[[str], int]) -> int:
    """Estimate an item other than a message."""
    if kind in CALL_KINDS:
        return _estimate_call(item, estimate)
    return (
        _estimate_content(read_field(item, "output"), estimate)
        if kind in RESULT_KINDS
        else _estimate_other(item, estimate)
    )


_TEXT_FIELDS = ("text", "thinking", "refusal", "reasoning")
_EXTRA_TEXT_FIELDS = ("reasoning_content", "refusal")


def _estimate_content(content: Any, estimate: Callable[[str], int], *, skip_calls: bool = False) -> int:
    """Estimate content that is text, one block, or a list of blocks."""
    if isinstance(content, str):
        return estimate(content)
    if isinstance(content, (list, tuple)):
        return sum(_estimate_block(block, estimate, skip_calls=skip_calls) for block in as_sequence(content))
    return _estimate_block(content, estimate, skip_calls=skip_calls)


def _estimate_block(block: Any, estimate: Callable[[str], int], *, skip_calls: bool) -> int:
    """Estimate one block of content."""
    kind = read_field(block, "type")
    if kind in CALL_KINDS:
        return 0 if skip_calls else _estimate_call(block, estimate)
    if kind == "tool_result":
        inner = read_field(block, "content")
        whole = (inner,) if isinstance(inner, str) else as_sequence(inner)
        return CALL_TOKENS + sum(_estimate_text_block(part, estimate) for part in whole)
    return _estimate_text_block(block, estimate)


def _estimate_text_block(block: Any, estimate: Callable[[str], int]) -> int:
    """Estimate a block that is neither a call nor its result."""
    if block is None or isinstance(block, str):
        return estimate(block or "")
    for name in _TEXT_FIELDS:
        text = read_field(block, name)
        if isinstance(text, str):
            return estimate(text)
    return _estimate_other(block, estimate)


def _estimate_other(thing: Any, estimate: Callable[[str], int]) -> int:
    """Estimate an item or a block of any kind by all of its text; binary parts cost a flat number of tokens."""
    apart: list[int] = []
    rest = _without_binary(thing, apart, _MAX_LEVELS)
    return sum(apart) + (0 if rest is None else estimate(_as_text(rest)))


def _without_binary(thing: Any, apart: list[int], levels: int) -> Any:
    """Return a value without its binary and encrypted parts; their tokens are added to `apart`."""
    if parts := as_sequence(thing) if levels else ():
        return [_without_binary(part, apart, levels - 1) for part in parts]
    kind = read_field(thing, "type")
    if kind in _BINARY or (
        kind == "document" and read_field(read_field(thing, "source"), "type") not in ("text", "content")
    ):
        apart.append(IMAGE_TOKENS)
        return None
    fields: Any = cast("Any", thing) if isinstance(thing, Mapping) else getattr(thing, "__dict__", None)
    if not isinstance(fields, Mapping) or not levels:
        return cast("Any", thing)
    kept: dict[str, Any] = {}
    for name, value in cast("Mapping[str, Any]", fields).items():
        if isinstance(value, str) and (name in _SEALED_FIELDS or (name == "data" and kind in _SEALED_FIELDS)):
            apart.append(len(value) // _PER_SEALED_TOKEN)
        else:
            kept[name] = _without_binary(value, apart, levels - 1)
    return kept


def _estimate_call(call: Any, estimate: Callable[[str], int]) -> int:
    """Estimate a tool call: its name and its arguments under any of their names."""
    total = CALL_TOKENS
    name = read_field(call, "name")
    if isinstance(name, str):
        total += estimate(name)
    for key in ("arguments", "args", "input"):
        arguments = read_field(call, key)
        if arguments is not None:
            return total + estimate(_as_text(arguments))
    return total


def _as_text(value: Any) -> str:
    """Return a value approximately as written in a request."""
    if isinstance(value, str):
        return value
    try:
        try:
            return msgspec.json.encode(value, enc_hook=str).decode()
        except (TypeError, ValueError):  # a lone surrogate, keys without a text
            return repr(value)
    except RecursionError:  # too deep for any request
        return ""


class TokenCounter:
    """Counts a growing conversation, at a constant cost per message.

    The provider's count replaces the estimate of all messages so far; later messages are estimated and scaled by
    the observed error of the estimate.

    Args:
        estimate: counts the tokens of a text; a real tokenizer may stand in.
    """

    __slots__ = (
        "_base",
        "_estimate",
        "_exact",
        "_noted",
        "_raw",
        "_rewritten",
        "_scale",
        "_seen_raw",
        "_seen_used",
        "note",
    )

    def __init__(self, estimate: Callable[[str], int] = estimate_tokens) -> None:
        self._estimate = estimate
        self._exact = 0  # the provider's latest count
        self._raw = 0  # estimated tokens since then
        self._scale = 1.0
        self._base = False  # whether the provider has reported a count
        self._rewritten = False  # whether the latest count is an estimate of a shortened conversation
        self._seen_used = self._seen_raw = 0  # growth reported, and estimated, since the first report
        self._noted = TokenSampler(_weigh_text)
        self.note: Callable[[str], object] = self._noted.add_text if estimate is estimate_tokens else self.add
        """Add one of many texts of which only the sum matters; most of them are not read."""

    @property
    def total(self) -> int:
        """Tokens of the conversation: the reported count, plus the scaled estimate of later messages."""
        self._take_samples()
        return self._exact + round(self._raw * self._scale)

    @property
    def scale(self) -> float:
        """Tokens per estimated token, from the counts so far; 1 before the first."""
        return self._scale

    def replace_total(self, total: int) -> None:
        """Continue with a shortened conversation.

        Args:
            total: its estimated tokens; the next count replaces it.
        """
        self._take_samples()
        self._exact, self._raw, self._rewritten = total, 0, True

    def _take_samples(self) -> None:
        texts, tokens = self._noted.take_totals()
        self._raw += MESSAGE_TOKENS * texts + tokens

    def add(self, message: Any) -> int:
        """Add a message.

        Args:
            message: text, or a message in any shape `estimate_message` reads.

        Returns:
            its tokens.
        """
        raw = estimate_message(message, self._estimate)
        self._raw += raw
        return round(raw * self._scale)

    def report(self, used: int) -> None:
        """Record the provider's count.

        Call it when a reply arrives and before the reply is added: `used` is the input of that request.

        Args:
            used: input tokens of a request that held exactly the messages added so far. Negative
                or zero figures (some servers send none) are ignored.
        """
        if used <= 0:
            return
        self._take_samples()
        grown = used - self._exact
        if not self._base:
            # The first request also holds the tool definitions, so its ratio is only a first guess.
            self._base = True
            ratio = used / self._raw if self._raw and not self._rewritten else self._scale
        elif self._rewritten:
            ratio = self._scale  # the growth also includes the error of that estimate
        else:
            if grown > 0 and self._raw:
                self._seen_used += grown
                self._seen_raw += self._raw
            ratio = self._seen_used / self._seen_raw if self._seen_raw >= _MIN_GROWTH else self._scale
        self._scale = min(max(ratio, _LEAST_SCALE), _MOST_SCALE)
        self._exact, self._raw, self._rewritten = used, 0, False


_MIN_GROWTH = 200  # minimum growth in tokens for a meaningful ratio
_LEAST_SCALE, _MOST_SCALE = 0.5, 2.0
