"""What stands around an object: fences, tags, sentences; and what there may belong to the object itself.

The danger is a text that lost its head or its tail: what is left of a longer value then looks like
prose around a shorter one. So nothing with a structural sign in it is ever prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from pokayoke.core.intake.patterns import LEFT_OUT, Refusal
from pokayoke.core.intake.reader import Reader

_TAG = re.compile(
    r"</?[A-Za-z_][\w:.-]{0,60}(?:[ =][\w:.\"'=/ -]{0,80})?>|<[|｜][\w▁:. /-]{1,60}[|｜]>|\[/?[A-Z][A-Z_]{2,30}\]"
)
_PARAMETER = re.compile(
    r"<(?:[\w.｜-]{1,40}[:｜])?(?:param|parameter|argument)(?:\s*=|\s+name\b)|<arg_(?:key|value)\b", re.IGNORECASE
).search
"""A tag around one argument: what it holds is not the whole."""
_NAME = re.compile(r"[A-Za-z_$][\w.$-]*+")
_FENCE = re.compile(r"`{3,}[A-Za-z0-9_+-]{0,20}|\A`(?!`)|(?<!`)`\Z")
_SIGNS = re.compile(r"[{}\[\]]")
_KEYED = re.compile(r"""\s*+(?:"[^"\\\x00-\x1f]*+"|'[^'\\\x00-\x1f]*+')\s*+:""").match
_LABEL = re.compile(r"(?:\A|\n)[ \t]*([\"']?)([\w.$-]+)\1[ \t]*[:=][ \t]*\Z").search
_NEUTRAL_LABELS = frozenset({"args", "arguments", "here", "json"})
_PROVEN_LABELS = frozenset({"data", "input", "parameters", "params"})
"""Labels that may as well be names of arguments, where nothing says what these are; `data:` is also how servers
send events."""
_MEMBER = re.compile(
    r"^[ \t]*([\"']?)[\w.$-]+\1[ \t]*[:=][ \t]*(?:[\"'\d-]|true\b|false\b|null\b)", re.MULTILINE
).search
"""A line that reads like a member: a name, a sign, a value."""
_KEY_END = re.compile(r"\"[ \t]*+:").search
"""The end of a key, wherever it began."""
_LABELLED = re.compile(r"^[ \t]*(?:[-*][ \t]+)?([\"'`]?)([\w.$-]+)\1[ \t]*[:=]", re.MULTILINE).finditer
"""Lines that begin with a name and a sign, whatever follows."""
_GIVEN = re.compile(
    r"(?<![\w$-])([A-Za-z_$][\w$-]*+)(?=[^\w\n]{0,8}[|>=:][^\w\n]{0,8}[\w\"']"
    r"|\W{1,8}(?:[A-Za-z]{1,12}\W{1,3}){0,2}(?:\d|[\"'“‘`]\w|(?:[Tt]rue|[Ff]alse|null|None)\b))"
).findall
"""Words that something is said about: a sign and a word follow, or a number or a quotation two words away at most."""
_SETTING = re.compile(
    r"\b(?:set|setting|with|use|using|change|make)\s++(?:the\s++)?([A-Za-z_$][\w$-]*+)\s++(?:to|as|of|be)\s++\w",
    re.IGNORECASE,
).findall
"""Words that something is set to, even a bare word."""
_OPTION = re.compile(
    r"(?<![\w$-])--([A-Za-z_$][\w$-]*+)[ =]\S|^[^\w\n]{0,8}([A-Za-z_$][\w$-]*+)[^\w\n]{0,8}\n\W{0,8}\w", re.MULTILINE
).findall
"""Words written as options, or alone on a line with a text below."""
_TAGGED = re.compile(r"<([\w.$-]{1,60})>").findall
_GLUED = re.compile(r"\.\w").match
ASIDE = (
    r"think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|(?:available_)?tools|examples?|drafts?|del|strike|blockquote"
    r"|tool_(?:response|results?|output)|function_(?:response|results?)"
)
"""Tags around what is no call: thoughts, lists of tools, examples, quotations, what is struck out, answers of tools."""
_ASIDES = re.compile(rf"<(/?)(?i:{ASIDE})(?:\s[^<>]{{0,200}})?>").findall
_DENIED = r"(?:do not|don['’]t|will not|won['’]t|must not|mustn['’]t|should not|shouldn['’]t|never)"
_FAILED = (
    r"(?:can ?not|can['’]t|(?:could|would|did|have|has)(?: not|n['’]t)|not (?:going|allowed|supposed) to|not yet"
    r"|unable to|refuse to|decline to)"
)
_OF_OTHERS = r"(?:worry|hesitate|know(?! (?:if|whether))|have(?! to)|(?:want to )?(?:guess|assume))\b"
"""Verbs that are never about an object beside them: `don't worry`."""
_NOT_MEANT = re.compile(
    rf"\b(?:{_DENIED}(?!\s+{_OF_OTHERS})|(?:instead of|rather than)(?!\s+(?:guess|assum)))\b", re.IGNORECASE
).search
"""Words before an object that say that it is not to be sent."""
_IS_WRONG = r"(?: (?:is|was)|['’]s) (?:wrong|incorrect|not (?:right|correct)|a mistake)"
_TAKEN_BACK = re.compile(
    rf"\b(?:{_DENIED}(?!\s+{_OF_OTHERS})|(?<!the )wait(?! for (?:the|its|an?) (?:result|answer|response|output)\b)"
    r"|oops|correction|scratch that|never ?mind"
    r"|i meant?|actually|instead|on second thoughts?|no(?=[,!])|sorry(?! for the (?:wait|delay)(?:[.!]|\Z))"
    r"|(?:should|must|ha[sd] to|needs? to) (?:be|have|say|read)|disregard|ignore (?:that|this|the)"
    rf"|(?:that|this|it|above|value){_IS_WRONG}|made a mistake|let me (?:redo|fix|correct|change))\b",
    re.IGNORECASE,
).search
"""Words behind an object that change it or take it back."""
# In a message there are words about much else than its calls, so these are narrower than those around arguments.
_MAKING = r"(?:call|send|run|use|execute|invoke|make|submit|do|issue|perform|try)(?:ing)?\b"
_MADE = r"(?:called|sent|ran|run|used|executed|invoked|made|submitted|done|issued|performed|tried)\b"
_ELSE = (
    r"(?!\s+(?:me|you|us|twice|again|(?:any|an)\s*(?:other|more|further|thing else)"
    r"|another|(?:any )?(?:harm|damage))\b)"
)
"""What is made need not be the call: `I won't make you wait`, `I will not call any other tool`."""
_DENIES_MAKING = rf"\b{_DENIED}\s+(?:(?!another\b)\w+\s+){{0,2}}{_MAKING}{_ELSE}"
_DISOWNS = re.compile(
    rf"{_DENIES_MAKING}|\b(?:(?:instead of|rather than)\W*\Z"
    rf"|{_FAILED}\s+(?:\w+\s+){{0,2}}(?:{_MAKING}|{_MADE})(?:\s+\w+){{0,2}}\W*\Z"
    rf"|not (?:been |actually |yet )?{_MADE}\W*\Z|would have (?:\w+ )?{_MADE}"
    r"|for (?:example|instance)(?!-)|(?<!not )an? (?:example|illustration)|hypothetical(?:ly)?)",
    re.IGNORECASE,
).search
"""Words of a sentence that leads to a call, or goes on behind it, by which the call is not to be made."""
_TELLS = re.compile(
    r"\b(?:returns|retrieves|fetches|includes|contains|provides|output|results?)\b[^.!?]*\bfor (?:example|instance)\b"
    r"|for (?:example|instance),? (?:it|this) (?:returns|gives|includes)\b",
    re.IGNORECASE,
).sub
"""Words behind a call by which its answer is what the example is of."""
_GOES_AHEAD = re.compile(
    rf"[,;]\W*(?:(?:so|but|and|instead|now)\b\W*){{0,2}}"
    r"(?:so\W*\Z|(?:I(?:['’]ll| will|['’]m| am)?|let me)\s+(?:now |just )?"
    rf"(?:{_MAKING}|(?:check|look|search|fetch|get|ask|query|retry)(?:ing)?\b)"
    r"(?!.*\b(?:later|once|when|after|if|until|unless|then|as)\b).*\Z)",
    re.IGNORECASE,
).search
"""The last part of a sentence that denies something else, and leads to the call that is made instead."""
_ONLY_SAID = re.compile(
    r"\b(?:if|unless|until|before|when|once|would|example|illustration|instance|hypothetical(?:ly)?)\b"
    rf"|\b{_DENIED}\s+(?:\w+\s+){{0,2}}{_MAKING} (?:this|it|that|these|them)\b",
    re.IGNORECASE,
).search
"""Words of a condition or an example, which all of a sentence is part of, or a denial of the call itself."""
_TOLD = re.compile(
    rf"\b(?:(?:earlier|previously|before|last time),? (?:I|we|you)(?: (?:have|had))?"
    rf"|(?:I|we|you) (?:(?:have|had) )?(?:already|earlier|previously)) {_MADE}(?: \w+){{0,2}}\W*\Z"
    r"|\b(?:the following|this)(?: \w+){0,2} (?:has )?(?:failed|(?:was|were) (?:rejected|refused|denied))\W*\Z"
    rf"|(?:shall|should|may|can) i (?:go ahead|proceed|{_MAKING} (?:it|this|that|the following))\b[^?]{{0,40}}\?\W*\Z",
    re.IGNORECASE,
).search
"""A sentence before a call that tells of it as something past, or asks whether it is wanted."""
_AWAITS = re.compile(r"\b(?:if|once|when|as soon as) you (?:confirm|agree|approve|say so)\b", re.IGNORECASE).search
"""Words of a sentence that leads to a call, by which it is only to be made later."""
_DENIES = re.compile(
    rf"\b(?:{_DENIED}|{_FAILED})\s+(?:\w+\s+){{0,2}}{_MAKING} this(?: call)?\W*\Z", re.IGNORECASE
).search
"""A sentence of its own before a call that is about what follows."""
_TAKES_BACK = re.compile(
    r"(?:no|wait|oops|sorry(?!, (?:this|it) (?:may|might|can|will) take)|actually)"
    r"(?=[,.:;!–—…]| [-–—] )|actually (?:make|use|do|set|change|let|it|that)\b"
    r"|correction\b|scratch that|never ?mind|i meant?\b|disregard|on second thoughts?\b"
    r"|(?:ignore|cancel) (?:that|this|the)\b|make (?:it|that) [^.\n]{1,60} instead\b"
    rf"|(?:that|this|it){_IS_WRONG}\b|(?:that|this)(?: call)? (?:has )?failed\b"
    rf"|(?:shall|should|may) i (?:go ahead|proceed|{_MAKING} (?:it|this|that))\b(?!.*\b(?:too|as well|also)\b)",
    re.IGNORECASE,
).match
"""Words that begin what is said behind a call if they change it, take it back, or ask whether it is wanted."""
_HEADS = re.compile(
    r"\W*(?:(?:an?|the|some)\s+)?(?:(?:examples?|samples?|usage|syntax|template|anti-?patterns?)(?:\s+\w+){0,2}"
    r"|(?:wrong|bad|incorrect|invalid|not|avoid|never)(?:\s+(?:call|usage|use|way|one|this|like this))?"
    r"|what not to (?:do|call|send)|e\.g|user|human|observation|tool (?:result|response|output))\W*",
    re.IGNORECASE,
).fullmatch
"""A heading, or a label, of what is no call of the model's own."""
_SENTENCE = re.compile(r"[.!?](?=\s)|\n")
_QUOTED_LINE = re.compile(r"[ \t]*+(?:>|//|#(?!#)|[-*] \[ \])").match
"""The beginning of the line of a call that is a quotation, a comment, or a task that is still open."""
_FENCE_BEFORE = re.compile(r"`{3}\w{0,20}[ \t]*\n[ \t]*\Z").search
_FENCE_BEHIND = re.compile(r"[ \t]*+\n?[ \t]*+`{3}").match
_QUOTE_MARKS = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“"}
_NEAR, _HEADING = 200, 2
_OPEN_ENDS = tuple(",([{\"'=\\")


def find_object(reader: Reader, names: frozenset[str]) -> tuple[int, bool]:
    """Return where the object begins, and True if its opening brace is missing.

    The offset is that of the opening brace, of the first key if the brace is missing, or of
    another value that is no object.

    Raises:
        Refusal: there is nothing to begin with, or what stands before it may belong to it.
    """
    text = reader.text
    if text.startswith("\ufeff"):
        reader.repair("byte_order_mark")
    start = reader.space(1 if text.startswith("\ufeff") else 0)
    sign = text[start : start + 1]
    if sign == "{":
        return start, False
    if _KEYED(text, start):
        return start, True
    brace = text.find("{", start)
    bracket = text.find("[", start)
    if sign and sign in "\"'“‘" and (brace == start + 1 or not _quotes_balance(text, start, brace)):
        return start, False
    if brace < 0:
        if sign == "[":
            return start, False
        raise Refusal("no_object", start)
    before = text[start:brace]
    stripped = _strip(reader, before)
    if 0 <= bracket < brace and _SIGNS.search(stripped):
        if sign == "[":
            return start, False
        raise Refusal("trailing_text", bracket)
    if (marks := _ASIDES(before)) and not marks[-1]:
        raise Refusal("quoted", brace)
    _judge_before(reader, stripped, brace, names)
    return brace, False


def is_named(before: str, names: frozenset[str]) -> bool:
    """Return whether the line before an object is a heading or a tag with the name of one argument.

    Args:
        before: all that stands before the object, also what was read as a comment.
        names: the declared arguments.
    """
    words = _NAME.findall(before[-_NEAR:].rstrip().rpartition("\n")[2])
    return 0 < len(words) <= _HEADING and not names.isdisjoint(words)


def gives_missing(around: str, names: frozenset[str], present: Iterable[str]) -> bool:
    """Return whether what stands on one side of an object gives an argument that the object lacks.

    Args:
        around: the text before the object, or behind it.
        names: the declared arguments; a tag of their own tells that they were given one by one.
        present: the arguments that the object has.
    """
    if "<" in around and not names.isdisjoint(_TAGGED(around)):
        return True
    absent = names.difference(present)
    if not absent:
        return False
    plain = strip_markup(around)[0]
    return not absent.isdisjoint((*_GIVEN(plain), *_SETTING(plain), *chain(*_OPTION(plain))))


def _quotes_balance(text: str, start: int, brace: int) -> bool:
    """Return whether the text before the brace could be a sentence that begins with a quoted word."""
    return brace > 0 and text.count('"', start, brace) % 2 == 0 and "\\" not in text[start:brace]


def is_disowned(before: str, after: str, *, followed: bool) -> bool:
    """Return whether the words around a call say that it is not to be made.

    Args:
        before: what stands between the call before it and this one.
        after: what stands behind it, up to the next one.
        followed: True if there is a next one; then a sentence that does not end before that is about that.
    """
    if _is_set_off(before, after):
        return True
    lead = _SENTENCE.split(strip_markup(before[-_NEAR:])[0])[-1]
    behind, *more = _SENTENCE.split(strip_markup(after[:_NEAR])[0].lstrip(" \t.,;(-–—"), maxsplit=1)
    ended = lead.endswith((".", "!", "?"))
    leads_on = followed and not more
    return bool(
        (_DENIES(lead) if ended else (_DISOWNS(lead) and not _leads_elsewhere(lead)) or _AWAITS(lead))
        or _TOLD(lead)
        or _HEADS(lead)
        or (not leads_on and _DISOWNS(behind) and _DISOWNS(_TELLS("", behind)))
        or _TAKES_BACK(behind)
    )


def _leads_elsewhere(lead: str) -> bool:
    """Return whether a sentence denies one thing, without a condition, and goes on to the call it makes."""
    ahead = _GOES_AHEAD(lead)
    return ahead is not None and _DISOWNS(lead[ahead.start() :]) is None and _ONLY_SAID(lead) is None


def _is_set_off(before: str, after: str) -> bool:
    """Return whether signs around a call make it something that is only shown: struck out, quoted or commented out."""
    if before.endswith("~~") and after.startswith("~~"):
        return True
    if before.rfind("/*") > before.rfind("*/") and "*/" in after:
        return True
    opened, closed = _FENCE_BEFORE(before[-_NEAR:]), _FENCE_BEHIND(after)
    if opened and closed:  # the marks stand around the fence
        before, after = before[: -len(opened[0])], after[closed.end() :]
    line, rest = before.rpartition("\n")[2], after.partition("\n")[0]
    if rest and rest[0] == _QUOTE_MARKS.get(line[-1:]) and any(map(str.isalpha, line + rest)):
        return True
    return _QUOTED_LINE(line) is not None


def strip_markup(around: str) -> tuple[str, tuple[str, ...]]:
    """Take tags and fences off; return the sentences that are left and the names of the repairs."""
    bare = _TAG.sub("\n", around.strip())
    plain = _FENCE.sub("\n", bare.strip())
    repairs = ("tags",) * (bare != around.strip()) + ("code_fence",) * (plain != bare.strip())
    return plain.strip(), repairs


def _strip(reader: Reader, around: str) -> str:
    """Take tags and fences off, and remember it.

    Raises:
        Refusal: a tag tells that the object is one argument of several.
    """
    if found := _PARAMETER(around):
        raise Refusal("trailing_text", reader.text.index(found[0]))
    stripped, repairs = strip_markup(around)
    for name in repairs:
        reader.repair(name)
    return stripped


def _judge_before(reader: Reader, stripped: str, brace: int, names: frozenset[str]) -> None:
    """Refuse a head that may belong to the object."""
    if not stripped:
        return
    last = reader.text[brace - 1]
    if _SIGNS.search(stripped) or stripped.endswith(_OPEN_ENDS) or last.isalnum() or stripped.count('"') % 2:
        raise Refusal("trailing_text", brace)
    label = _LABEL(stripped)
    neutral = _NEUTRAL_LABELS | _PROVEN_LABELS if names else _NEUTRAL_LABELS
    if label and (label[1] or label[2].lower() not in neutral.difference(map(str.lower, names))):
        raise Refusal("trailing_text", brace)
    if stripped.endswith(('":', "':")) or _holds_member(stripped, names) or _NOT_MEANT(stripped):
        raise Refusal("trailing_text", brace)
    reader.repair("prose")


def _holds_member(around: str, names: frozenset[str]) -> bool:
    """Whether a line is a member that belongs to the object: by its form, or by a declared name."""
    return bool(_MEMBER(around) or _KEY_END(around)) or any(found[2] in names for found in _LABELLED(around))


def unwrap_after(reader: Reader, end: int, names: frozenset[str]) -> int | None:
    """Judge what follows the object; return the offset of a single surplus brace, if there is one.

    Raises:
        Refusal: what follows may belong to the object, or is another one.
    """
    text = reader.text
    if reader.unclosed or end == len(text):
        return None
    after, end = end, reader.space(end)
    stripped = _strip(reader, text[end:])
    if not stripped or stripped == ";":
        return None
    if stripped == "}":
        return text.index("}", end)
    if _SIGNS.search(stripped) is None and text[end] not in ",:\"'“‘":
        if stripped[0] in ".…" and LEFT_OUT(stripped[:200]):
            raise Refusal("ellipsis", end)
        if _holds_member(stripped, names) or _TAKEN_BACK(stripped):
            raise Refusal("trailing_text", end)
        goes_on = text[end] not in ".;!<`" or _GLUED(text, end)
        if goes_on and "\n" not in text[after:end]:  # in the same line
            raise Refusal("trailing_text", end)
        reader.repair("prose")
        return None
    other = text.find("{", end)
    raise Refusal("several_values" if other >= 0 else "trailing_text", other if other >= 0 else end)
