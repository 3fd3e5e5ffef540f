"""Patterns of calls in a text: beginnings, ends, and the marks of text that holds no call.

In: a text.
Out: matches.
Never: take more than linear time.
"""

from __future__ import annotations

import re

from pokayoke.core.intake.framing import ASIDE_CLOSES, ASIDE_OPENS
from pokayoke.core.intake.tokens import NAME

# A name before an object of arguments.
HEADER = re.compile(
    rf"<function=[\"']?({NAME})[\"']?(?:>|(?=\{{))"
    rf"|\[TOOL_CALLS\]\s*({NAME})\s*(?:\[CALL_ID\]\s*\w{{1,64}}\s*)?(?:\[ARGS\])?(?=\s*\{{)"
    rf"|<\|tool_call_begin\|>\s*(?:functions\.)?({NAME})(?::\d{{1,6}})?\s*<\|tool_call_argument_begin\|>"
    rf"|<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?({NAME})(?=<｜tool▁sep｜>|\s*```)"
    rf"|<(?:[\w.｜-]{{1,40}}[:｜])?invoke name=[\"']({NAME})[\"']\s*>"
    rf"|<tool_call>\s*({NAME})\s*(?=<arg_key>|\{{)"
    rf"|to=(?:functions\.)?({NAME})[^{{\n]{{0,80}}<\|message\|>"
    rf"|(?:^|\n)[ \t*]*Action(?: ?\d)?:[ \t*]*`?({NAME})`?[ \t]*\n[ \t*]*Action Input(?: ?\d)?:\**"
)
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
HEADER_END = re.compile(
    r"</function>|<\|call\|>|<\|end\|>|<\|tool_call_end\|>|<｜tool▁call▁end｜>|</tool_call>|</(?:[\w.｜-]{1,40}[:｜])?invoke>"
    rf"|{OTHERS.pattern}"
)
LINE_END = re.compile(r"[;` \t]*+(?:\n|\Z)").match
START = re.compile(
    rf"(?P<header>{HEADER.pattern.replace('(' + NAME + ')', NAME)})"
    rf"|(?P<aside>{ASIDE_OPENS}|<!--|<\|channel\|>analysis<\|message\|>)"
    rf"|(?P<turn>{_TURN})"
    rf"|(?P<behind>{ASIDE_CLOSES})"
    rf"|(?P<frame></?tool_call>)|(?P<mark>\[/?[A-Z][A-Z_]{{2,30}}\])"
    rf"|(?P<calls>\[\s*{NAME}\()|(?P<open>\{{(?=\s*[\"'“‘\w/#])|\[(?=\s*[{{/#]))"
    rf"|(?:(?:^|\n)[ \t]*(?:Action:[ \t]*)?|[>`\]]\s*)"
    rf"(?P<code>(?:[A-Za-z_]\w{{0,40}}[ \t]*=[ \t]*)?(?:await[ \t]+)?(?:print\()?)(?P<call>{NAME}\()"
)
RESYNC = re.compile(r"</?(?:tool_call|function_call|function)\b|<\|(?:call|im_start|start|eom_id|eot_id)\|>")
CALL_HINT = re.compile(r"""["'](?:name|tool|tool_name|function|function_name|arguments|args|parameters)["']\s*:""")
NAME_MEMBER = re.compile(rf"""["'](?:name|tool|tool_name|function|function_name)["']\s*:\s*["']({NAME})["']""")
COMMENT_END = re.compile(r"\*/")
MENTIONED_TAG = re.compile(r"[.,;:)\"'`]|[ \t]+[a-z]").match
"""Text after a tag that a sentence only mentions."""
TAG_END = re.compile(r"[\s>\]▷]")
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
