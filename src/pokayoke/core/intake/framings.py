"""The table of framings: how each model family marks a call in its text. A new form is one row.

In: nothing.
Out: `FRAMINGS`, and the patterns made of its rows.
Never: words of a language: a row has tags, tokens and signs only; a pattern that takes more than linear time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pokayoke.core.intake.surroundings import ASIDE_CLOSES, ASIDE_OPENS
from pokayoke.core.intake.tokens import NAME

_Q = r"[\"']"
SPACE = r"(?:[\w.｜-]{1,40}[:｜])?"  # of XML, as in `minimax:tool_call` or `｜DSML｜invoke`
_M3 = r"(?:\]<\]minimax\[>\[)?"  # MiniMax M3 writes it before each tag
_CALLS = rf"{SPACE}(?!end_)(?:[a-z]{{1,20}}_)?(?i:tool|function)[_▁ -]?(?i:calls?|use|code)"
_SECTION = r"[_▁](?:section[_▁])?"
_WRAPPER = rf"{_M3}<{_CALLS}>|<[|｜]{_CALLS}(?:{_SECTION}(?:begin|start))?[|｜]?>"
_WRAPPER_END = (
    rf"{_M3}</{_CALLS}>|<[|｜]/{_CALLS}[|｜]>|<[|｜]{_CALLS}{_SECTION}end[|｜]>|<{_CALLS}\|>|<end_function_call>"
)
_GLM = r"<(?:longcat_)?tool_call>\s*NAME(?:\s*(?=<(?:longcat_)?arg_key>|\{)|(?=\n?</(?:longcat_)?tool_call>))"
_KIMI = r"<\|tool_call_begin\|>\s*(?:functions\.)?NAME(?::\d{1,6})?\s*<\|tool_call_argument_begin\|>"
_HARMONY = (
    r"(?:<\|start\|>\s*assistant\s*)?(?:<\|channel\|>\s*\w{1,20}\s+)?to=(?:functions\.)?NAME(?![\w.-])"
    r"[^{<\n]{0,80}(?:<\|(?:channel|constrain)\|>[^{<\n]{0,40}){0,3}<\|message\|>"
)
_ACTION = r"(?m:^)[ \t*]*Action(?: ?\d)?:[ \t*]*`?NAME`?[ \t]*\n[ \t*]*Action Input(?: ?\d)?:\**"
_START_ACTION = r"<\|START_ACTION\|>|<\|action_start\|>\s*<\|(?:plugin|interpreter)\|>"
_BRACKETS, _BRACKETS_END = (
    r"\[TOOL_(?:CALLS?|REQUEST)\]",
    r"\[/TOOL_CALLS?\]|\[(?:END_TOOL_REQUEST|TOOL_REQUEST_END)\]",
)


class Framing(NamedTuple):
    """How some families mark a call.

    Attributes:
        families: who writes it, for readers of the table.
        opens: the opening mark. With `NAME` in it the arguments follow, as an object or one by one in tags; without
            it a whole call follows, as an object, a list or `name(key=value)`.
        closes: the closing marks.
        bare: the beginning of the opening mark that shows a call even where nothing behind it can be read.
        wraps_text: the mark around texts in arguments without quotation marks, if the family has one.
    """

    families: str
    opens: str
    closes: str = ""
    bare: str = ""
    wraps_text: str = ""


FRAMINGS = (
    Framing("Llama 3, Qwen-Coder, Seed", rf"<function={_Q}?NAME{_Q}?(?:>|(?=\{{))", r"</function>", r"<function="),
    Framing("MiniCPM 5", rf"<function name={_Q}NAME{_Q}\s*>", r"</function>", r"<function name="),
    Framing(
        "MiniMax, Anthropic, DeepSeek V3.2",
        rf"{_M3}<{SPACE}invoke name={_Q}NAME{_Q}\s*>",
        rf"{_M3}</{SPACE}invoke>",
        rf"{_M3}<{SPACE}invoke name=",
    ),
    Framing("generic", rf"<tool(?:_call)? name={_Q}NAME{_Q}\s*>", r"</tool>", r"<tool(?:_call)? name="),
    Framing("Mistral", r"\[TOOL_CALLS\]\s*NAME\s*(?:\[CALL_ID\]\s*\w{1,64}\s*)?(?:\[ARGS\])?(?=\s*\{)"),
    Framing("Mistral", r"(?m:^)NAME\[ARGS\](?=\s*\{)"),
    Framing("Kimi", _KIMI, r"<\|tool_call_end\|>"),
    Framing(
        "DeepSeek",
        r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?NAME(?=<｜tool▁sep｜>|\s*```)",
        r"<｜tool▁call▁end｜>",
    ),
    Framing("GLM, LongCat", _GLM, r"</(?:longcat_)?tool_call>"),
    Framing("Gemma", r"<\|tool_call>\s*call:\s*NAME(?=\{)", r"<tool_call\|>", "", '<|"|>'),
    Framing("FunctionGemma", r"<start_function_call>\s*call:\s*NAME(?=\{)", r"<end_function_call>", "", "<escape>"),
    Framing("Harmony", _HARMONY, r"<\|call\|>|<\|end\|>|<\|return\|>"),
    Framing("ReAct", _ACTION),
    Framing("Functionary", r"(?m:^)>>>NAME\n(?=\{)"),
    Framing("Hermes, Qwen, Granite, Phi, LFM2, OLMo, and wrappers of the above", _WRAPPER, _WRAPPER_END, _WRAPPER),
    Framing("Qwen2.5-Coder", r"<tools>", r"</tools>"),
    Framing("Mistral, LM Studio", _BRACKETS, _BRACKETS_END, _BRACKETS),
    Framing("Llama", r"<\|python_tag\|>", "", r"<\|python_tag\|>"),
    Framing("InternLM", _START_ACTION, r"<\|END_ACTION\|>|<\|action_end\|>", _START_ACTION),
    Framing("Command", r"(?m:^)[ \t*]*Action:\**"),
    Framing("renamed", r"(?:<{2,3})?[A-Z][A-Z_]{2,40}>{2,3}", r"<{2,3}(?:/|END)[A-Z_]{0,40}(?:>{2,3})?"),
)
NAMED = tuple(row for row in FRAMINGS if "NAME" in row.opens)
"""The rows whose opening mark holds the name, in the order of the groups of `HEADER`."""
NO_CALL_ENDS = frozenset({"<|end|>", "<|return|>"})
"""Ends of a Harmony message that is no call."""


def _join(patterns: list[str]) -> str:
    return "|".join(pattern for pattern in dict.fromkeys(patterns) if pattern)


HEADER = re.compile(_join([row.opens.replace("NAME", f"({NAME})") for row in NAMED]))
"""A name before its arguments."""
BARE = _join([row.bare for row in FRAMINGS])
STRAY = r"to=functions\."
"""The beginning of Harmony's mark, which shows a call anywhere in a text."""
OPENS = _join([row.opens for row in FRAMINGS if "NAME" not in row.opens])
CLOSES = _join([row.closes for row in FRAMINGS])
ASIDE_ENDS = {
    "<!--": "-->",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
}
"""Ends of asides that are not tags."""
_TURN = (
    r"<\|im_start\|>\s*(?:user|system|tool)\b|<\|start_header_id\|>\s*(?:user|system|ipython|tool)\b"
    r"|<start_of_turn>\s*user\b|<\|(?:user|system|observation)\|>|<｜(?:User|tool▁outputs▁begin)｜>|\[INST\]"
    r"|\n\n(?:Human|User):"
)
"""Beginnings of text that a model invents for its user or a tool."""
OTHERS = re.compile(rf"{_TURN}|<(?i:(?:tool|function)_(?:response|result|output))|\[TOOL_RESULTS\]|\nObservation:")
"""The same, and answers of tools."""
OWN_TURN = (
    r"<\|im_start\|>\s*assistant\b|<\|start_header_id\|>\s*assistant\s*<\|end_header_id\|>|<start_of_turn>\s*model\b"
    r"|(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*(?:analysis|commentary|final)\b|<\|start\|>\s*assistant\b"
    r"|\n\nAssistant:|<end_of_turn>|</?s>|<(?:bos|eos)>|\[/INST\]|<[|｜][\w▁.:/-]{1,60}[|｜]>"
)
"""Tokens of a chat template that begin or end the model's own turn."""
HEADER_END = re.compile(rf"{_join([row.closes for row in NAMED])}|{OTHERS.pattern}")
LINE_END = re.compile(r"[;` \t]*+(?:\n|\Z)").match
START = re.compile(
    rf"(?P<header>{HEADER.pattern.replace('(' + NAME + ')', NAME)})"
    r"|(?P<mark><tools>(?=\s*+\[?\s*+\{\s*+\"name\"\s*+:\s*+\"[^\"\n]{1,128}\"\s*+,\s*+\"arguments\"))"
    rf"|(?P<aside>{ASIDE_OPENS}|<!--|<\|channel\|>analysis<\|message\|>)"
    rf"|(?P<turn>{_TURN})"
    rf"|(?P<behind>{ASIDE_CLOSES})"
    rf"|(?P<calls>\[\s*{NAME}\()|(?P<open>\{{(?=\s*[\"'“‘\w/#])|\[(?=\s*[{{/#]))"
    rf"|(?:(?:^|\n)[ \t]*(?:Action:[ \t]*)?|[>`\]]\s*)"
    rf"(?P<code>(?:[A-Za-z_]\w{{0,40}}[ \t]*=[ \t]*)?(?:await[ \t]+)?(?:print\()?)(?P<call>{NAME}\()"
)
RESYNC = re.compile(r"</?(?:tool_call|function_call|function)\b|<\|(?:call|im_start|start|eom_id|eot_id)\|>")
CALL_HINT = re.compile(r"""["'](?:name|tool|tool_name|function|function_name|arguments|args|parameters)["']\s*:""")
NAME_MEMBER = re.compile(rf"""["'](?:name|tool|tool_name|function|function_name)["']\s*:\s*["']({NAME})["']""")
COMMENT_END = re.compile(r"\*/")
MENTIONED_TAG = re.compile(r"[.,;:)\"'`。，；：）」』”]|[ \t]+[^\W\dA-Z_]").match
"""Text after a tag that a sentence only mentions."""
TAG_END = re.compile(r"[\s>\]▷]")
REST_OF_TAG = re.compile(r"\s{0,9}[>\]▷]?").match
QUOTE = re.compile(r"\\.|[\"']", re.DOTALL)
MISQUOTE_REASONS = frozenset(
    {"cut_in_escape", "cut_in_key", "cut_in_string", "inner_quote", "line_break_in_key", "lost_quote"}
)
QUOTED_IN_LINE = re.compile(r"[^\s`>\]:：][ \t]*`\Z").search
"""The words before a call that a sentence mentions as code; a colon announces one."""
CONTINUED_VALUE = re.compile(r"\s*+(?:[}:]|,?\s*+(?:\"[^\"\\\n]*+\"|'[^'\\\n]*+')\s*+:)").match
"""Text after a value that ended too early: a bracket, or the next key."""
STATEMENT_BODY = re.compile(
    r"^([ \t]*+)(?:if|elif|else|for|while|with|def|class|try|except|finally|async)\b[^\n]*:[ \t]*+(?:#[^\n]*)?\n"
    r"(?:[ \t]*+\n|\1[ \t]++[^\n][^\n]*+\n)*\1[ \t]+\Z",
    re.MULTILINE,
).search
"""Text before a call inside a statement: whether and how often it is meant is unknown."""
