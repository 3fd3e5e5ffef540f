r"""Text that cannot act: invisible characters, terminal escapes, role markers and our own delimiter.

In: any text that a tool sent.
Out: a text that reads the same to a person and does nothing. Active characters become `\u003c`-style escapes: visible,
reversible, and inside JSON text the very same value.
Never: a changed structured value. Only the text shown is changed.

A clean text costs one pass at memory speed over its bytes; only the bytes that the pass leaves are examined.
Sources: Unicode UTS #39 (default ignorables) and the chat templates of the large model families.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

from pokayoke.core.text.regex import compile_pattern, linear_search

INVISIBLE: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff"
)
"""Characters that a person does not see or that reorder text, as the inside of a character class.

Controls except tab and line feed, invisible and reordering marks, separators, lone surrogates, tags. More is escaped
for a model."""

# --- the fast pass ------------------------------------------------------------------------------

# Lead bytes of UTF-8 that may begin an invisible character, or a bar or bracket of a chat template.
_LEADS = b"\xc2\xcd\xd8\xe1\xe2\xe3\xed\xef\xf0\xf3"
_SUSPECT_BYTES = frozenset(b"<\x7f" + bytes(range(0x20)) + _LEADS) - frozenset(b"\t\n")
# Marks in square brackets: Mistral's and Llama's by name, EXAONE's between bars, MiniMax's verbatim.
_MARKS = "INST", "SYS", "SYSTEM_PROMPT", "AVAILABLE_TOOLS", "TOOL_CALLS", "TOOL_RESULTS", "TOOL_CONTENT", "IMG", "THINK"
_BAR_MARKS = ("system", "user", "assistant", "tool", "endofturn")
_TILDE_MARKS = (r"\]~b\]", r"\]~!b\[", r"\[e~\[")
# Their characters except small letters: a mark in the text is still a mark in what the pass leaves.
_MARK_LETTERS = bytes(frozenset("".join(_MARKS).encode() + b"[/]|~!"))
_HARMLESS = bytes(code for code in range(256) if code not in _SUSPECT_BYTES | frozenset(_MARK_LETTERS))
# In free text a paragraph or a heading can look like a turn; JSON has no raw line breaks.
_HARMLESS_IN_TEXT = bytes(code for code in _HARMLESS if code not in b"\n#")
# The sequences to find, by lead byte: each pattern begins with a literal, so the search is a memchr.
_SEQUENCES = {
    0xC2: rb"\xc2[\x80-\x9f\xad]",
    0xCD: rb"\xcd\x8f",
    0xD8: rb"\xd8\x9c",
    0xE1: rb"\xe1(?:\x85[\x9f\xa0]|\x90\xb8|\x9e[\xb4\xb5]|\xa0[\x8b-\x8f])",
    0xE2: rb"\xe2(?:\x80[\x8b-\x8f\xa8-\xae\xb9]|\x81[\xa0-\xaf]|\x8c\xa9|\x9d\xae|\x9f\xa8)",
    0xE3: rb"\xe3(?:\x80\x88|\x85\xa4)",
    0xED: rb"\xed[\xa0-\xbf]",  # half a surrogate pair: no encoding has it
    0xEF: rb"\xef(?:\xb8[\x80-\x8f]|\xbb\xbf|\xbe\xa0|\xbf[\xb0-\xbb]|\xb9\xa4|\xbc\x9c)",
    0xF0: rb"\xf0(?:\x9b\xb2[\xa0-\xa3]|\x9d\x85[\xb3-\xba])",
    0xF3: rb"\xf3[\xa0-\xaf]",
}

# --- the slow pass ------------------------------------------------------------------------------

# Controls without tab and line feed; format characters, fillers, variation selectors, tags, separators, surrogates.
INVISIBLE_RUN: Final = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_NAMES = (
    "tool[-_]outputs?|tool|tools|tool_call|tool_calls|tool_use|tool_result|tool_results|tool_response|"
    "tool_responses|function|function_call|function_calls|function_result|function_results|function_response|invoke|"
    "system|system[-_]reminder|system[-_]prompt|developer|assistant|user|human|model|"
    "(?:start|end)_(?:of_turn|function_(?:call|response|declaration))|think|bos|eos|s|im_start|im_end|sys|"
    "(?:system|user|assistant)_message|context[-_]note|(?:special|extra_id|reserved)_[0-9]{1,4}"
)
# Ling's roles are capitals between plain tags; in small letters the tag is common in XML.
_CAPITALS = "role>(?-i:HUMAN|ASSISTANT|SYSTEM|OBSERVATION)</role>"
# Slashes of any kind and blanks (one of them a letter of Braille), also in the escapes of JSON and of this module. No
# text fits two of the branches, so a long run can be split in one way only.
_FILL = (
    r"(?:[\s\u2800/\u2044\u2215\u29f8\uff0f]++|\\++[nrtbf/]"
    r"|\\u(?!003c|ff1c|fe64|1438|2039|2329|276e|27e8|3008)[0-9a-f]{4})*"
)
# `<` (also full-width or small) before a bar, a token that ends in one (`<turn|>`), a second `<`, or the name of a role
# or tool tag, in any namespace. Characters that only look like `<` are common in grammars and formulas (‹function›), so
# behind those only our own delimiters count.
_TAG = (
    rf"(?i)[<\uff1c\ufe64](?=[|\uff5c]|[a-z_]{{1,40}}+[|\uff5c]>|</?sys>>"
    rf"|{_CAPITALS}|{_FILL}(?:[\w.-]++:)?(?:{_NAMES})(?![a-z0-9_-]))"
    rf"|[\u1438\u2039\u2329\u276e\u27e8\u3008](?={_FILL}(?:tool[-_]outputs?|context[-_]note)(?![a-z0-9_-]))"
)
_BRACKETS = (
    rf"\[(?= ?/? ?(?:{'|'.join(_MARKS)}) ?\]|\|(?:{'|'.join(_BAR_MARKS)})\|\]|e~\[)"
    r"|\](?=~b\]|~!b\[)"
)
# A turn of a plain-text transcript: a role alone at the start of a paragraph, or a prompt's heading. Each
# pattern begins with a literal line break, so that a clean text is skipped at memory speed. In small letters,
# `user:` and `system:` begin paragraphs of settings and of classes; the others do not.
_BLANKS = r"[ \t\r\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]*"
_ROLES = "(?:[Hh]uman|HUMAN|[Aa]ssistant|ASSISTANT|System|SYSTEM|User|USER)"
_ROLE = _BLANKS + _ROLES + _BLANKS + r"(?P<mark>[:\uff1a])"
_HEADING_ROLES = "System|SYSTEM|User|USER|Assistant|ASSISTANT|Human|HUMAN"
_TITLE = (
    _BLANKS + r"(?P<mark>#)#{1,5}" + _BLANKS + rf"(?:Instruction|INSTRUCTION|Response|RESPONSE|{_HEADING_ROLES})[sS]?:"
)
_TURN = r"\n" + _BLANKS + r"\n" + _ROLE
# A text is shown after a line break, so its first line begins a paragraph; so does the second after an empty first.
_FIRST_TURN = rf"(?:{_BLANKS}\n)?{_ROLE}"
_HEADING = r"\n" + _TITLE


def neutralise(text: str, *, data: bytes | None = None, json: bool = False) -> str:
    """Return a text in which nothing is invisible and nothing looks like a turn, a tag or an escape.

    Args:
        text: any text.
        data: the same text in UTF-8, if the caller has it.
        json: True if the text is compact JSON: characters above the BMP are then escaped as pairs, and line breaks
            are not examined because JSON has no raw ones.
    """
    if data is None:
        data = text.encode(errors="surrogatepass")
    # For text beyond ASCII the search would take longer than the slow pass.
    if data.isascii() and (is_harmless_json(text, data) if json else not _active_text_search()(text)):
        return text
    return _neutralise_slow(text, data, json=json)


def may_hold_invisible(data: bytes) -> bool:
    """Return False if no character beyond ASCII of a text in UTF-8 is invisible: ten searches at memory speed."""
    for lead in _LEADS:  # noqa: SIM110 - a generator takes longer than the ten searches
        if lead in data:
            return True
    return False


def is_harmless_json(text: str, data: bytes) -> bool:
    """Return whether a compact JSON text in ASCII certainly needs no change; true for most texts."""
    # JSON escapes every other control character, and every other mark is inside brackets.
    return _OPENS not in data and _DELETE not in data and not _bracket_mark_search()(text)


# As numbers: for `bytes in bytes` CPython raises and drops an exception before it searches.
_OPENS, _DELETE = b"<\x7f"


@functools.cache
def _bracket_mark_search() -> Callable[[str], bool]:
    """Return the search for marks in brackets. It has literals only, which are searched all at once (at most 63)."""
    forms = (r"\[%s", r"\[ %s", r"\[/%s", r"\[/ %s", r"\[ /%s", r"\[ / %s")
    others = (*(rf"\[\|{name}\|\]" for name in _BAR_MARKS), *_TILDE_MARKS)
    bare = {re.sub("[a-z]", "", form) for form in others}
    return linear_search(
        "|".join((*(form % name for name in _mark_prefixes() for form in forms), *others, *sorted(bare)))
    )


def _mark_prefixes() -> list[str]:
    """Return the beginnings of the names of marks."""
    return sorted({re.sub("(?<=SYS|OL_).*", "", name) for name in _MARKS})


@functools.cache
def _active_text_search() -> Callable[[str], bool]:
    """Return the search that tells whether free text in ASCII may need a change; most needs none."""
    marks = rf"\[ ?/? ?(?:{'|'.join(_mark_prefixes())})|\[\||\]~|\[e~"
    return linear_search(rf"[^\t\n -;=-~]|##|(?:^|\n)[ \t]*{_ROLES}[ \t]*:|{marks}")


def _neutralise_slow(text: str, data: bytes, *, json: bool) -> str:
    rest = data.translate(None, _HARMLESS if json else _HARMLESS_IN_TEXT)
    marked = _bracket_mark_search()(str(rest, "latin-1"))  # the marks are ASCII
    rest = rest.translate(None, _MARK_LETTERS)
    if rest and _is_suspect(data, rest):
        text = compile_pattern(INVISIBLE_RUN).sub(_escape_invisible_pairs if json else _escape_invisible, text)
        text = compile_pattern(_TAG).sub(lambda hit: escape_character(hit[0]), text)
    if marked:
        text = compile_pattern(_BRACKETS).sub(lambda hit: escape_character(hit[0]), text)
    if not json:
        text = (
            compile_pattern(_FIRST_TURN).sub(_escape_mark, text, count=1)
            if compile_pattern(_FIRST_TURN).match(text)
            else text
        )
        if b"\n" in rest:
            text = compile_pattern(_TURN).sub(_escape_mark, text)
        if b"##" in rest:
            text = compile_pattern(_HEADING).sub(_escape_mark, text)
            text = (
                compile_pattern(_TITLE).sub(_escape_mark, text, count=1)
                if compile_pattern(_TITLE).match(text)
                else text
            )
    return text


def escape_character(character: str, *, pairs: bool = False) -> str:
    """Return the visible escape of one character, as JSON and most languages write it."""
    code = ord(character)
    if code <= 0xFFFF:  # noqa: PLR2004 - the BMP
        return f"\\u{code:04x}"
    if pairs:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\U{code:08x}"


def _is_suspect(data: bytes, rest: bytes) -> bool:
    """Return whether a text has something to neutralise, and not only lead bytes of it."""
    if not rest.isascii():
        for lead, pattern in _SEQUENCES.items():
            if lead in rest and compile_pattern(pattern).search(data):
                return True
    return bool(rest.translate(None, _LEADS + b"\n#"))


def _escape_mark(hit: re.Match[str]) -> str:
    start = hit.start("mark") - hit.start()
    return hit[0][:start] + escape_character(hit["mark"]) + hit[0][start + 1 :]


def _escape_invisible(hit: re.Match[str]) -> str:
    return _escape_run(hit, pairs=False)


def _escape_invisible_pairs(hit: re.Match[str]) -> str:
    return _escape_run(hit, pairs=True)


def _escape_run(hit: re.Match[str], *, pairs: bool) -> str:
    """Escape a run of invisible characters, unless it is a single one that a script needs.

    One joiner between letters (Persian, Indic scripts) or between emoji, and one variation selector after a symbol,
    belong to the spelling. Two in a row do not, and no other invisible character does.
    """
    run, text = hit[0], hit.string
    if run == "\r" and text[hit.end() : hit.end() + 1] == "\n":
        return run
    before, after = text[hit.start() - 1 : hit.start()], text[hit.end() : hit.end() + 1]
    if run in ("\ufe0e", "\ufe0f") and before and (ord(before) >= _SYMBOLS or before in "#*0123456789©®"):
        return run
    if run == "\ufe0f\u200d" and before and after and ord(before) >= _SYMBOLS <= ord(after):
        return run
    if run in ("\u200c", "\u200d") and before and after and _needs_joiner(before) and _needs_joiner(after):
        return run
    return "".join([escape_character(one, pairs=pairs) for one in run])


_SYMBOLS = 0x2000  # arrows, dingbats and emoji are above the alphabets that could hide something


def _needs_joiner(character: str) -> bool:
    """Return whether a character belongs to a script or symbols in which a joiner changes the reading."""
    code = ord(character)
    return 0x0600 <= code <= 0x0DFF or 0x1000 <= code <= 0x109F or 0x1780 <= code <= 0x18AF or code >= 0x2190  # noqa: PLR2004
