"""Builds the text that the model reads: a tool's output between delimiters, and the guard's own sentences.

In: a checked value, or findings.
Out: text that is safe to append to a history. The delimiters separate data from instructions; they are a label. The
protection is the latch and provenance, which do not rely on the model reading labels.
Never: let an output close its delimiters; show a message for operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from pokayoke.core.call import Finding
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.text.clip import clip
from pokayoke.core.text.neutralise import neutralise

MAX_REFUSAL = 599
"""Maximum length of a refusal, in characters."""

FRAME_START = "<tool_output "
"""How every frame begins."""
_FRAME_END = "\n</tool_output>"

_SAFE_ATTRIBUTE = re.compile(r"[A-Za-z0-9_.:/@+-]{1,128}", re.ASCII)
_MAX_ATTRIBUTE = 128
_PREVIEW_HEAD = re.compile(r'<tool_output [^<>]* preview="true" chars="[0-9]+">', re.ASCII)
PREVIEW_WORDS = "\nThis is a preview: "
"""What stands behind the frame of a preview."""
_WITHHELD_SENTENCE = (
    "Its content is withheld: do not guess it and do not build on it. Try another way, or tell the user."
)


def result_text(
    value: Any,
    *,
    tool: str,
    call_id: str,
    trust: str,
    canonical: bytes | None = None,
    content: Iterable[Any] = (),
    words: str = "",
) -> str:
    """Return a value as the model reads it: `<tool_output tool=… call=… trust=…>` … `</tool_output>`.

    A string is shown unchanged, any other value as compact JSON. Text that could close the delimiter, hide, or
    pass for a turn of the conversation is written as visible escapes.

    Args:
        value: a JSON value or text.
        tool: the tool's name.
        call_id: the provider's id of the call.
        trust: the label: `checked`, `unchecked`, `degraded`, `error`, …
        canonical: the value's compact JSON, if the caller has it.
        content: blocks that are not text; they are counted, not shown.
        words: texts that the tool sent beside the value, and nothing has checked.
    """
    if value.__class__ is str:
        body = neutralise(value)
    else:
        data = dump_compact(value) if canonical is None else canonical
        body = neutralise(data.decode(), data=data, json=True)
    if words:
        body = f"{body}\n[beside it, unchecked:]\n{neutralise(words)}"
    blocks = [*content] if content else ()
    if blocks:
        note = f"[content that is not text: {len(blocks)}]"
        body = note if value in (None, "") else f"{body}\n{note}"
    start, trusted = _frame_parts(tool, trust)
    return f"{start}{_quote_attribute(call_id)}{trusted}{body}{_FRAME_END}"


@lru_cache(512)
def _frame_parts(tool: str, trust: str) -> tuple[str, str]:
    """Return the parts of the first line before and after the call's id, the same for every call of a tool."""
    return f"{FRAME_START}tool={_quote_attribute(tool)} call=", f" trust={_quote_attribute(trust)}>\n"


def is_framed(text: str, *, tool: str, call_id: str) -> bool:
    """Return whether a text is nothing but complete frames of ours for this very call, or a whole preview.

    A frame whose content could close it, or act otherwise, is none of ours.

    Args:
        text: a result.
        tool: the tool's name.
        call_id: the provider's id of the call.
    """
    start = f"{_frame_parts(tool, '')[0]}{_quote_attribute(call_id)} trust="
    *frames, tail = text.split(_FRAME_END)
    for frame in (one.removeprefix("\n") for one in frames):
        head, _, body = frame.partition("\n")
        if not (head.startswith(start) or _PREVIEW_HEAD.fullmatch(head)) or neutralise(body) != body:
            return False
    return bool(frames) and (not tail or tail.startswith(PREVIEW_WORDS))


def unframe_text(text: str) -> str:
    """Return what stands in the frame of a result, or the text itself if it has none."""
    if not text.startswith(FRAME_START):
        return text
    return text.partition("\n")[2].partition(_FRAME_END)[0]


@lru_cache(512)
def _quote_attribute(text: str) -> str:
    """Quote an attribute value so that it cannot end early."""
    if _SAFE_ATTRIBUTE.fullmatch(text):
        return f'"{text}"'
    text = neutralise(text.encode(errors="replace").decode()[:_MAX_ATTRIBUTE])
    for plain, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\n", " "), ("\t", " ")):
        text = text.replace(plain, entity)
    return f'"{text}"'


def refusal_text(findings: Iterable[Finding], *, tool: str, advice: str | None = None) -> str:
    """Return the short text (under 600 characters) that a model reads when there is no usable result.

    It joins the findings' hints, each once, as many as fit, and counts the rest. A finding without a hint is named
    by its kind; messages for operators are never shown.

    Args:
        findings: the findings, worst first.
        tool: the tool's name (or the name the model wrote).
        advice: what to do after an answer that cannot be used; None is what to do after one of a read.
    """
    found = [*findings]
    said: list[str] = []
    *hints, name = _neutralise_all([*[finding.hint.strip() for finding in found], tool])
    name = name[:64]
    named = withheld = False
    for finding, hint in zip(found, hints, strict=True):
        sentence = hint or finding_kind_sentence(finding)
        if not any(sentence in one for one in said):
            said.append(sentence)
            named = named or name in sentence
        withheld = withheld or (not finding.hint and finding.blame == "tool")
    if withheld:
        last = _WITHHELD_SENTENCE if advice is None else advice
        head = f"{name} answered, but the answer cannot be used"
        said = [f"{head}: {said[0]}", *said[1:], last] if said else [head, last]
    elif not named:
        said = [f"{name}: {said[0]}" if said else f"{name}: the call was not carried out.", *said[1:]]
    return _fit_sentences(said, MAX_REFUSAL)


def _neutralise_all(texts: list[str]) -> list[str]:
    """Neutralise several texts. One test of all of them, each at the start of a paragraph, is nearly always enough."""
    together = _PARAGRAPH_START + _PARAGRAPH_START.join(texts)
    return texts if neutralise(together) == together else [neutralise(text) for text in texts]


_PARAGRAPH_START = " \n\n"


def finding_kind_sentence(finding: Finding) -> str:
    """Return a sentence for a finding without a hint: its kind, and its place if that is harmless to repeat."""
    place = f" at {finding.at}" if finding.at and _SAFE_ATTRIBUTE.fullmatch(finding.at) else ""
    return f"{finding.code.replace('_', ' ')}{place}."


def _fit_sentences(sentences: list[str], limit: int) -> str:
    """Join whole sentences as far as they fit; the last one stays, as it says what to do."""
    text = " ".join(sentences)
    if len(text) <= limit:
        return text
    if len(sentences) == 1:
        return clip(text, limit)
    *front, last = sentences
    last = clip(last, limit // 2)
    kept: list[str] = []
    room = limit - len(last) - len("(and 999 more) ")
    for sentence in front:
        if len(sentence) + 1 > room:
            break
        kept.append(sentence)
        room -= len(sentence) + 1
    if not kept:
        kept.append(front[0][: room - 2] + "…")
    left = len(front) - len(kept)
    return " ".join([*kept, *([f"(and {left} more)"] if left else []), last])
