"""How much work a regular expression can make, so that a linear engine stays quick too.

Linear time is the size of the pattern times the length of the text: `(a{300}){300}` has 90,000
states and needs over a minute for 90,000 letters. Repetition counts are what makes a short pattern
large; they are multiplied out here. RE2 simply refuses products above 1,000; since real schemas say
`^.{1,2000}$`, a heavy pattern is kept here and the texts it may be asked about are made shorter.
"""

from __future__ import annotations

from pokayoke.core.text.rare import compile_pattern

_PIECE = r"(?s)\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?P<least>\d+)(?P<open>,(?P<most>\d*))?\}|(?P<enter>\()|(?P<leave>\))|."


def pattern_weight(pattern: str) -> int:
    """Return how many single steps a pattern has once its repetitions are written out; at least 1.

    An estimate that does not fail: what is no valid pattern is refused by the engine.
    """
    totals = [0]  # of the open groups, innermost last
    last = 0  # of what a repetition would repeat
    for token in compile_pattern(_PIECE).finditer(pattern):
        if token["enter"]:
            totals.append(0)
            last = 0
        elif token["leave"]:
            last = totals.pop() if len(totals) > 1 else 0
            totals[-1] += last
        elif token["least"]:
            times = max(_parse_count(token["least"]), _parse_count(token["most"] or ""), 1) + bool(token["open"] == ",")
            totals[-1] += last * (times - 1)
            last *= times
        elif token[0] not in "*+?|^$":
            last = 1
            totals[-1] += 1
    return max(sum(totals), 1)


def _parse_count(digits: str) -> int:
    """Return a repetition count; one of many digits is refused by the engine, whatever it is."""
    return int(digits[:7] or "0")
