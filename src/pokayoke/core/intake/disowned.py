"""Recognises words and signs around a call, or around arguments, which say that it is not to be made.

In: the text before and after a call.
Out: True if the call is disowned: a sentence before it describes it as possible, past, another's or an example, or one
after it takes it back or asks for permission.
Never: miss a denial of a known form: a wrong refusal costs a turn, a missed one runs.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import lru_cache

from pokayoke.core.intake.framing import DENIED, IS_WRONG, strip_markup

_FAILED = (
    r"(?:can ?not|can['’]t|(?:could|would|did|have|has)(?: not|n['’]t)|not (?:going|allowed|supposed) to|not yet"
    r"|unable to|refuse to|decline to)"
)
# In a message there are words about much else than its calls, so these are narrower than those around arguments.
_MAKING = r"(?:call|send|run|use|execute|invoke|make|submit|do|issue|perform|try)(?:ing)?\b"
_DONE = "called|sent|ran|used|executed|invoked|made|submitted|done|issued|performed|tried"
_MADE = rf"(?:{_DONE}|run)\b"
_ELSE = (
    r"(?!\s+(?:me|you|us|twice|again|(?:any|an)\s*(?:other|more|further|thing else)"
    r"|another|(?:any )?(?:harm|damage)|(?:(?<=make )|(?<=making ))up)\b)"
)
"""What is made need not be the call: `I won't make you wait`, `I will not make up a result`."""
_DENIES_MAKING = rf"\b{DENIED}\s+(?:(?!another\b)\w+\s+){{0,2}}{_MAKING}{_ELSE}"
_DISOWNS = re.compile(
    rf"{_DENIES_MAKING}|\b(?:(?:instead of|rather than)\W*\Z"
    rf"|{_FAILED}\s+(?:\w+\s+){{0,2}}(?:{_MAKING}|{_MADE})(?:\s+\w+){{0,2}}\W*\Z"
    rf"|(?:not|\w+n['’]t) (?:been |be |actually |yet )?{_MADE}\W*\Z|would have (?:\w+ )?{_MADE}"
    rf"|not to {_MAKING}(?: (?:it|this|that))?\W*\Z"
    r"|I (?:won['’]t|will not|refuse|decline)\W*\Z|I(?:['’]| woul)d rather not\b"
    rf"|(?:not able|(?:lack|no|not have|n['’]t have) (?:the )?permission) to {_MAKING}(?: (?:it|this|that))?\W*\Z"
    rf"|(?:do not|don['’]t) think (?:I|we) should {_MAKING} (?:it|this|that)\b"
    r"|for (?:example|instance)(?!-)|(?<!not )an? (?:example|illustration)|hypothetical(?:ly)?)",
    re.IGNORECASE,
).search
"""Words of a sentence that leads to a call, or goes on behind it, by which the call is not to be made."""
_ANSWER_EXAMPLE = re.compile(
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
_CONDITION_OR_EXAMPLE = re.compile(
    r"\b(?:if|unless|until|before|when|once|would|example|illustration|instance|hypothetical(?:ly)?)\b"
    rf"|\b{DENIED}\s+(?:\w+\s+){{0,2}}{_MAKING} (?:this|it|that|these|them)\b",
    re.IGNORECASE,
).search
"""Words of a condition or an example, which all of a sentence is part of, or a denial of the call itself."""
_PAST_OR_QUESTION = re.compile(
    rf"\b(?:(?:earlier|previously|before|last time),? (?:I|we|you)(?: (?:have|had))?"
    rf"|(?:I|we|you) (?:(?:have|had) )?(?:already|earlier|previously)) {_MADE}(?: \w+){{0,2}}\W*\Z"
    r"|\b(?:the following|this)(?: \w+){0,2} (?:has )?(?:failed|(?:was|were) (?:rejected|refused|denied))\W*\Z"
    rf"|(?:shall|should|may|can) i (?:go ahead|proceed|{_MAKING} (?:it|this|that"
    rf"|the following))\b[^?]{{0,40}}\?\W*\Z",
    re.IGNORECASE,
).search
"""A sentence before a call that tells of it as something past, or asks whether it is wanted."""
_AWAITS = re.compile(
    r"\b(?:if|once|when|after|until|unless|as soon as) you (?:confirm|agree|approve|say so)\b"
    r"|\b(?:if you (?:want|wish|like|prefer)(?: me to)?|if you(?:['’]d| would) like"
    r"|when(?:ever)? you(?:['’]re| are) ready)\W*\Z"
    r"|\bwait(?:ing)? for your (?:confirmation|approval|permission|consent|ok|go)\b",
    re.IGNORECASE,
).search
"""Words of a sentence that leads to a call, by which it is only to be made later."""
_DENIES = re.compile(
    rf"\b(?:{DENIED}|{_FAILED})\s+(?:\w+\s+){{0,2}}{_MAKING} this(?: call)?\W*\Z", re.IGNORECASE
).search
"""A sentence of its own before a call that is about what follows."""
_TAKES_BACK = re.compile(
    r"(?:no|wait|w?hoops|oops|sorry(?!, (?:this|it) (?:may|might|can|will) take)|actually)"
    r"(?=[,.:;!–—…]|\Z| [-–—] )|actually (?:make|use|do|set|change|let|it|that)\b"
    r"|correction\b|scratch that|never ?mind|i meant?\b|(?:please )?disregard|on second thoughts?\b"
    r"|my (?:mistake|bad)\b|let me (?:fix|correct|redo|rephrase|rewrite|revise|change) (?:that|this|it)(?: call)?\W*\Z"
    r"|(?:please )?(?:ignore|disregard|cancel|skip|undo|revert|discard) (?:that|this|it|the|my|all)\b"
    r"|let(?: me|['’]s) (?:not\b|re-?(?:consider|think)\b|think again|double-check with you)|wrong\b"
    r"|I (?:used|sent|gave|wrote) the wrong\b|I made a mistake|there(?: is|['’]s) a mistake in\b"
    r"|(?:here(?:['’]s| is) )?(?:the |an? |my )?(?:corrected|fixed|revised|updated|better)"
    r"(?: (?:(?:tool )?call|request|arguments?|json|one))?[ *_]*:\W*\Z"
    r"|(?:that|this|it) should (?:be|have been|say|read)\W*\Z"
    r"|or (?:maybe|perhaps|rather|better|should)\b|(?:please )?use [^.\n]{1,60} instead\b"
    r"|make (?:it|that) [^.\n]{1,60} instead\b"
    rf"|(?:that|this(?: call)?|it|the (?:above(?: call)?|call(?: above)?)){IS_WRONG}\b"
    r"|(?:that|this|it) has the wrong\b|(?:that|this)(?: call)? (?:has )?failed\b"
    rf"|(?:shall|should|may|can) i(?:\?| (?:go ahead|proceed|{_MAKING} (?:it|this|that))\b"
    r"(?!.*\b(?:too|as well|also)\b))"
    r"|(?:proceed|ok|okay|all right|sounds? good|yes or no)\?|\(?y/n\b",
    re.IGNORECASE,
).match
"""Words that begin what is said behind a call if they change it, take it back, or ask whether it is wanted."""
_PAST = rf"(?:{_DONE}|wrote|considered)"
_IT = r"(?:this|that|it|these|them|the (?:following|call))"
_BEGINS = r"\A(?:\W*(?:and|but|next|now|or|so|then)\b)*\W*"
"""The beginning of a sentence, and words before it that only join it to the last one."""
_NEEDED = r"(?:allowed|necessary|needed|permitted|possible|real|final|meant)"


def _compile_any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_LEADS = _compile_any(
    # Possible, or under a condition
    rf"\b(?:would|could|might)(?: (?:\w+|have to|need to))? (?:{_MAKING}|write\b)|\b(?:may|might) need\W*\Z",
    rf"\b(?:was|were) (?:going|about|tempted|supposed) to {_MAKING}|\btempt(?:ing|ed) to {_MAKING}|\bnext turn\b"
    rf"|\bat some point\b",
    r"\bprovided (?:that )?you\b|\bassuming you\b|\bwith your (?:permission|approval|consent)\b",
    rf"\b(?:I|we)['’]d {_MAKING}",
    rf"(?<!you )\b(?:propose|suggest|recommend)(?: (?:(?:to )?{_MAKING}(?: \w+)?|{_IT}(?: call)?))?\W*\Z",
    rf"\A\W*(?:maybe|perhaps|possibly)(?: (?:I|we) (?:should|could|can) {_MAKING}(?: {_IT})?)?\W*\Z",
    rf"\b(?:you|one|they|users?|developers?) (?:can|may|should|must|have to|need to) {_MAKING}",
    r"\b(?:suppose|imagine|pretend|let['’]?s say|let us say|what if|in theory)\b",
    rf"{_BEGINS}if(?! (?:I|we) (?:understand|remember|recall)\b| I(?:['’]| a)m not mistaken\b)\b"
    rf"|{_BEGINS}once(?! (?:again|more)\b)\b",
    rf"{_BEGINS}(?:unless|until(?! now\b)|as soon as(?! possible\b)|either|later|next time|in (?:the )?future|tomorrow"
    r"|eventually)\b",
    r"\A\W*(?:when|after)\b.*(?:\b(?:will|shall)|['’]ll)\b",
    r"\A\W*(?:when|after|before)\b.*\b(?:confirm|approve|agree)\b",
    # Past, or somebody else's
    rf"(?<!to be )\b{_PAST}(?: (?:{_IT}|before|earlier|yesterday|already|last time|previously)){{0,2}}\W*\Z",
    rf"\b(?:was|were|been) (?:told|asked|ordered|tricked) to {_MAKING}(?: {_IT})?\W*\Z",
    rf"\b(?:asks?|asked|tells?|told|wants?|wanted|begged) (?:me|us) to {_MAKING}(?: {_IT})?\W*\Z",
    r"\b(?:that|which) (?:has )?(?:failed|(?:was|were) \w+)(?: \w+)?\W*\Z",
    rf"\btr(?:y|ies|ied) to (?:make|get|trick) me\b|\b(?:nobody|no one|short of)\b.*{_MAKING}\W*\Z",
    # Denied
    r"\b(?:no need|(?:not|un) ?(?:necessary|needed|allowed|permitted)|forbidden|prohibited|illegal|wrong|dangerous"
    r"|unsafe|lack(?: \w+){1,2}|decided against|thought about|considered|considering|refrain(?:ed)? from|avoid"
    rf"|\A\W*without)(?: (?:to|of|for))? {_MAKING}(?: {_IT})?\W*\Z",
    r"\A\W*(?:please )?(?:ignore|disregard|explain|forget|skip)\b",
    r"(?:\b(?:instead of|rather than)|\A\W*without(?! further\b))(?: \w+){1,2}\W*\Z",
    # Leave is asked for
    r"\bplease confirm\b|(?<!not )\b(?:needs?|pending|awaiting|requires?) (?:your )?(?:approval|confirmation)\b",
    r"\b(?:do you want|would you like)(?: me)? to\b|\bdo I have your (?:permission|approval|consent)\b"
    r"|\b(?:is it|would it be) (?:ok|okay|fine|all ?right) (?:if|to)\b",
).search
"""Words of a sentence that leads to a call by which it is possible, past, somebody else's, or denied."""
_MENTIONS = _compile_any(
    # What somebody else says
    r"(?<!what you )(?<!as you )\b(?:says?|said|shows?|showed|writes|contains?|reads|posted|returned|answered|replied"
    r"|suggests?|recommends?"
    rf"|came from|was|were|got|received|checks)(?: (?:that|me|us|{_IT}))?\W*\Z",
    # What may be done, perhaps by somebody else
    r"\byour(?:self| (?:terminal|shell|console))\b",
    r"\b(?:one|another|an|the other) (?:option|possibility|alternative|idea)\b",
    r"\b(?:I['’]m|I am) (?:not sure|unsure)\b",
    # An example of its form
    r"(?<!not )(?<!not a )\b(?:samples?|tutorial|readme|deprecated|quote[ds]?|copy[- ]paste|old syntax"
    r"|show the syntax)\b",
    rf"\b(?:such as|e\.g\.?|for (?:illustration|demonstration)|how to {_MAKING}(?: {_IT})?)\W*\Z",
    r"\b(?:looks?|looked|written|works?) like(?: (?:this|that|so))?\W*\Z|\bto (?:illustrate|demonstrate)\b",
    r"\b(?:format|syntax|signature|form|shape)\b[^.]*\b(?:is|are)\W*\Z",
    r"\b(?:simulat\w+|dry[- ]run|mock(?:ed)?|pseudo-?code|injection|attacker|malicious|phishing)\b",
).search
"""Words of a sentence that leads to a call by which it is an example, or words of somebody else.

What the model says that it looks at or changes now may be of that kind itself, and the call is meant.
"""
_UNDERTAKES = re.compile(
    r"\A(?:\W*(?:now|first|next|then|so|and|but|also|finally|okay|ok|sure|great|right|thanks|to [^,:;]*(?=,)"
    r"|I(?:['’]| a)m (?:not sure|unsure) (?!.*\b(?:you|this|that|it|should)\b)[^,:;]*(?=,? so\b))\b)*\W*"
    r"((?:let me|let['’]?s|(?:I|we)(?:['’]ll| will| need to| should| must| have to|(?:['’]m|['’]re| am| are) going to))"
    r"(?: (?:now|also|first|next|then|just|quickly|try to|try and|go and|take a)){0,2}"
    r" (?:add|browse|check|delete|determine|edit|examine|explore|fetch|figure|find|fix|get|grep|inspect|install"
    r"|investigate|list|locate|look|move|open|query|read|refactor|remove|rename|replace|retrieve|scan|search|see|try"
    r"|understand|update|verify|view))\b"
    r"(?!.*\b(?:I|we|calls?|calling|requests?|invocations?|usage|syntax|formats?|this|these|following|how to"
    r"|if|unless|until|when|once|later"
    r"|an? (?:\w+ )?(?:samples?|simulat\w+|dry|mock\w*|pseudo\w*|malicious|quote[ds]?))\b)"
    r"[^,:;]*(?=\W*\Z)",
    re.IGNORECASE,
).sub
"""What the model says that it does now, with what it does it to, up to the call."""
_ASKS = _compile_any(
    rf"\b(?:do you want|would you like)(?: me)? to {_MAKING}[^?]*\?\W*\Z|\bplease confirm\b",
    r"\A\W*(?:q|question|what (?:does|would|if|happens))\b[^?]*\?\W*\Z",
).search
"""A sentence before a call that asks for leave, or about the call."""
_FOLLOWS = _compile_any(
    r"(?-i:is|was|were|would|has|had)\b",  # goes on about the call
    rf"(?:(?:no|stop)(?=[,.:;!]|\W*\Z)|(?:cancel|abort|hold on|or)\W*\Z|no need to {_MAKING})",
    rf"(?:that|this|it)(?:(?: is|['’]s| was) not|(?: is| was)n['’]t) {_NEEDED}\b",
    r"(?:forget|cancel) (?:it|that|this)\b|edit:|(?:except|on reflection|rather)\b|make (?:that|it)\b",
    r"(?:please )?(?:replace|fill in|fill out|change)\b|but with [^.]* (?:as|for|instead)\b|[^.]*\bis better\b",
    r"(?:please )?(?:confirm|approve)\b(?! (?:your|the|whether|if)\b)",
    r"(?:I(?:['’]ll| will| am|['’]m) )?(?:a?wait(?:ing)?(?: for)?|pending)(?: your)?"
    r" (?:confirmation|approval|consent|ok|go)\b",
    rf"(?:let me know|tell me) (?:if|whether|when|before)\b[^.]*\b{_MAKING} (?:it|this|that)\b",
    r"(?:let me know|tell me) (?:(?:if|whether) (?:(?:this|that|it)(?: is|['’]s) (?:ok|okay|fine|right|correct)\b"
    r"|I should (?:proceed|go ahead)\b)|(?:whether )?to (?:proceed|go ahead)\b)|give me (?:the|a|your) (?:go|ok)\b",
    rf"(?:I(?:['’]m| am) )?ready (?:to {_MAKING} (?:it|this|that)\b|(?:to {_MAKING} )?when(?:ever)? you)",
    r"(?:I(?:['’]ll| will|['’]m| am) )?(?:hold(?:ing)? off|skip(?:ping)? (?:it|this|that))\b",
    r"I(?:['’]m| am) (?:not sure|unsure) (?:(?:about|if|whether|that) )?(?:this|that|it)\b",
    r"is (?:this|that|it) (?:ok|okay|right|correct|what you)\b|do(?:es)? (?:this|that|it) look\b"
    r"|do you (?:approve|agree|confirm|accept)\b|are you (?:sure|ok|okay|fine)\b",
    r"(?:I|this|it)(?:['’]ll| will)? (?:first )?(?:needs?|requires?) your"
    r" (?:confirmation|approval|permission|consent|ok|go)\b",
    rf"I(?:['’]ll| will) (?:only )?{_MAKING} (?:it|this|that)\b"
    r".*\b(?:if|once|when|after|as soon as|unless|until) you\b",
    r"(?:this|that|it) would be (?:the|my|an?) (?:\w+ )?(?:call|request|message)\b|[^.]*\byourself\W*\Z",
    r"you (?:can|may|could|should|must|need to|have to) (?:call|send|run|execute|invoke|submit) (?:it|this|that)\b",
    rf"(?:do you want|would you like)(?: me)? to {_MAKING} (?:it|this|that)\b(?!.*\b(?:too|also|as well|next)\b)",
    r"should I (?:go on|proceed|continue|go ahead)\b",
    rf"if you (?:confirm|agree|approve|say)\b|say (?:yes|ok|go)\b|ok(?:ay)? to (?:proceed|go ahead|{_MAKING})",
    rf"scrap (?:that|it|this)\b|[^.]*\b(?:kidding|joking|(?:only|just) to show|not to be {_MADE})",
    r"[^.]*\bmade (?:that|this|it) up\b",
    rf"[^.]*\b(?:simulated|dry[- ]run|not run|what not to do|before I {_MAKING} (?:it|this|that))\b",
    r"[^.]*(?:\b(?:is|are)|['’]s)(?:(?! not\b) \w+){0,2} (?:an? |the )?"
    r"(?:examples?|placeholders?|dumm(?:y|ies)|template|illustrative|made[- ]up|guess(?:es)?|not final)\b",
    r"(?:(?:that|this|it)(?: is|['’]s) )?(?:(?:just|only) )?"
    r"(?:(?:an? )?(?:demo(?:nstration)?|sketch|simulation|test call)|not an? real"
    r"|for (?:illustration|demonstration)|as an illustration)\b",
).match
"""Words that begin what is said behind a call if they are about a call that is not made, or not yet."""
_SHOWN = r"(?:call|usage|use|way|one|this|like this|message|request|arguments?|values?|attempt|case|approval|example)"
_HEADS = _compile_any(
    r"[^\w~]*(?:(?:an?|the|some|my|your|our|its|\w+['’]s)\s+)?(?:"
    r"(?:examples?|samples?|usage|syntax|template|anti-?patterns?)(?:\s+\w+){0,2}"
    r"|(?:wrong|bad|incorrect|invalid|not|avoid|never|old|previous|last|earlier|former|failed|rejected|propos(?:al|ed)"
    rf"|possible|alternative|expected|planned|test|pending)(?:\s+{_SHOWN})?(?:\s+(?:is|was|are|were|would be))?"
    r"(?:\W+\([^()]*\))?"
    r"|what not to (?:do|call|send)|e\.g|user|human|observation|tool (?:result|response|output)|output|error(?: in)?"
    r"|logs?|history|drafts?|to-?do|before|not yet|option(?: \w)?|alternatively|docs?|documentation|schema"
    r"|step \d+ \(later\)|or|else|otherwise)[^\w~]*"
).fullmatch
"""A heading, or a label, of what is no call of the model's own."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")
_HESITATION = re.compile(
    r"\A(?:(?:oh|ah|uh|um|er+|hm+|ups|well|but|however|although|and|ok|okay)\b\W*)+", re.IGNORECASE
).sub
"""Words before those that take a call back."""
_AMENDMENT = re.compile(
    r"(?:the )?(\w+(?: \w+)?) (?:should|must|ha[sd] to|needs? to) (?:be|have been|read|say)\b", re.IGNORECASE
).match
_QUOTED_LINE = re.compile(r"[ \t]*+(?:>|//|#(?!#)|[-*] \[ \])").match
"""The beginning of the line of a call that is a quotation, a comment, or a task that is still open."""
_FENCE_BEFORE = re.compile(r"`{3}\w{0,20}[ \t]*\n[ \t]*\Z").search
_FENCE_BEHIND = re.compile(r"[ \t]*+\n?[ \t]*+`{3}").match
_QUOTE_MARKS = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“"}
_NEAR = 200


def is_disowned(before: str, after: str, *, followed: bool, names: Container[str] = ()) -> bool:
    """Return whether the words around a call say that it is not to be made.

    Args:
        before: what stands between the call before it and this one.
        after: what stands behind it, up to the next one.
        followed: True if there is a next one; then a sentence that does not end before that is about that.
        names: the arguments of the call, in lower case; a sentence behind it that says what one should be, amends it.
    """
    is_short = len(before) <= _NEAR and len(after) <= _NEAR
    if (_is_marked_off_cached if is_short else _is_marked_off)(before, after):
        return True
    disowned, behind = _judge_sentences(before[-_NEAR:], after[:_NEAR], followed)
    return disowned or _is_amendment(behind, names)


@lru_cache(maxsize=512)
def _judge_sentences(before: str, after: str, followed: bool) -> tuple[bool, str]:
    """Return whether sentences next to a call disown it, and the one behind it.

    Remembered: a model announces its calls in few words, and looking at them takes longer than reading the call.
    """
    lead = _SENTENCE.split(strip_markup(before)[0])[-1]
    behind, *more = _SENTENCE.split(strip_markup(after)[0].lstrip(" \t.,;([-–—*/#"), maxsplit=1)
    ended = lead.endswith((".", "!", "?"))
    leads_on = followed and not more
    disowned = bool(
        (_DENIES(lead) if ended else (_DISOWNS(lead) and not _leads_elsewhere(lead)) or _AWAITS(lead))
        or (not ended and (_LEADS(lead) or (_MENTIONS(lead) and _MENTIONS(_UNDERTAKES(r"\1", lead)))))
        or _ASKS(lead)
        or _PAST_OR_QUESTION(lead)
        or _HEADS(lead)
        or (not leads_on and _DISOWNS(behind) and _DISOWNS(_ANSWER_EXAMPLE("", behind)))
        or any(_TAKES_BACK(said) or _FOLLOWS(said) for said in {behind, _HESITATION("", behind)})
    )
    return disowned, behind


def _is_amendment(behind: str, names: Container[str]) -> bool:
    """Return whether a sentence says what one of some arguments should have been."""
    found = _AMENDMENT(_HESITATION("", behind))
    return found is not None and found[1].lower().replace(" ", "_") in names


def _leads_elsewhere(lead: str) -> bool:
    """Return whether a sentence denies one thing, without a condition, and goes on to the call it makes."""
    ahead = _GOES_AHEAD(lead)
    return ahead is not None and _DISOWNS(lead[ahead.start() :]) is None and _CONDITION_OR_EXAMPLE(lead) is None


def _is_marked_off(before: str, after: str) -> bool:
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


_is_marked_off_cached = lru_cache(maxsize=512)(_is_marked_off)
"""The same for what is short, remembered for the same reason."""
