"""Damage of our own invention, made without a look at what the reader knows.

Every operator takes the arguments and a random generator and returns a text somebody could find in a
log, or None where it does not apply. What was meant is always the arguments it was given; a reader may
refuse, but it may never hand out anything else.
"""

import html
import json
import random
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

Damage = Callable[[dict[str, Any], random.Random], str | None]
DAMAGES: dict[str, Damage] = {}

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}\[\]:,]|\s+')
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
LITERALS = re.compile(r"True|False|None|['\"].*|")
NUMBER = re.compile(r"(?<=[:\[,\s])-?\d[\d.eE+-]*(?=[,}\]\s])")


def damage(function: Damage) -> Damage:
    """Register an operator under its own name."""
    DAMAGES[function.__name__] = function
    return function


def written(value: Any, rng: random.Random) -> str:
    """Valid JSON in one of the layouts models use."""
    style = rng.randrange(4)
    if style == 0:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=style == 3, indent=(None, None, 2, 4)[style])


def tokens(value: Any, rng: random.Random) -> list[str]:
    """The tokens of a valid text, spaces included."""
    return TOKEN.findall(written(value, rng))


def solid(parts: list[str], rng: random.Random) -> int:
    """The index of a token that is not white space."""
    return rng.choice([index for index, part in enumerate(parts) if part.strip()])


def spots(text: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Matches outside strings."""
    inside = [found.span() for found in STRING.finditer(text)]
    return [m for m in pattern.finditer(text) if not any(a <= m.start() < b for a, b in inside)]


def replace_number(value: Any, rng: random.Random, change: Callable[[str], str]) -> str | None:
    text = written(value, rng)
    found = spots(text, NUMBER)
    if not found:
        return None
    spot = rng.choice(found)
    return text[: spot.start()] + change(spot.group()) + text[spot.end() :]


# ------------------------------------------------------------------ cuts


@damage
def cut_between_tokens(value, rng):
    """The stream stops after a whole token."""
    parts = tokens(value, rng)
    return "".join(parts[: rng.randrange(1, len(parts))])


@damage
def head_lost(value, rng):
    """The first tokens never arrived."""
    parts = tokens(value, rng)
    return "".join(parts[rng.randrange(1, len(parts)) :])


@damage
def head_lost_anywhere(value, rng):
    """The first characters never arrived."""
    text = written(value, rng)
    return text[rng.randrange(1, len(text)) :]


@damage
def both_ends_lost(value, rng):
    """Only a slice is left."""
    text = written(value, rng)
    first = rng.randrange(1, len(text))
    return text[first : rng.randrange(first, len(text)) + 1]


@damage
def cut_inside_fence(value, rng):
    """A fence closes over a text that was cut."""
    text = written(value, rng)
    return f"```json\n{text[: rng.randrange(1, len(text))]}\n```"


@damage
def cut_inside_tags(value, rng):
    """A tag closes over a text that was cut."""
    text = written(value, rng)
    return f"<tool_call>{text[: rng.randrange(1, len(text))]}</tool_call>"


@damage
def cut_double_encoded(value, rng):
    """A JSON string of JSON, cut, its quote put back."""
    text = json.dumps(written(value, rng))
    return text[: rng.randrange(2, len(text))] + '"'


@damage
def cut_with_other_damage(value, rng):
    """Python quotes, and cut."""
    text = repr(value)
    return text[: rng.randrange(1, len(text))]


@damage
def cut_after_quote_in_string(value, rng):
    """A string with bare quotes in it, cut behind one of them."""
    found = [key for key, item in value.items() if isinstance(item, str) and item.count(" ") > 1]
    if not found:
        return None
    key = rng.choice(found)
    words = value[key].split(" ")
    shown = json.dumps({**value, key: f'{words[0]} "{words[1]}" rest'}, ensure_ascii=False).replace('\\"', '"')
    return shown[: shown.index('"' + words[1] + '"') + rng.choice([1, 2 + len(words[1])])]


# ------------------------------------------------------------------ doubled, glued, mixed


@damage
def doubled(value, rng):
    """The same text twice."""
    text = written(value, rng)
    return text + rng.choice(["", "\n", " ", ", "]) + text


@damage
def two_values(value, rng):
    """Two different objects in a row."""
    keys = list(value)
    other = {**value, keys[0]: "another"}
    return written(value, rng) + rng.choice(["", "\n", " and "]) + written(other, rng)


@damage
def stutter(value, rng):
    """It breaks off and starts again from the beginning."""
    text = written(value, rng)
    return text[: rng.randrange(1, len(text))] + text


@damage
def overlap(value, rng):
    """A chunk arrives twice."""
    text = written(value, rng)
    at = rng.randrange(1, len(text))
    return text[:at] + text[max(0, at - rng.randrange(2, 25)) :]


@damage
def elided_middle(value, rng):
    """Dots instead of the middle."""
    text = written(value, rng)
    first = rng.randrange(1, len(text))
    return text[:first] + rng.choice(["...", "…", " ... ", "[...]"]) + text[rng.randrange(first, len(text)) :]


@damage
def sentence_in_the_middle(value, rng):
    """The model thinks aloud between two tokens."""
    parts = tokens(value, rng)
    parts.insert(
        rng.randrange(1, len(parts)), rng.choice([" hmm, let me see ", "\nNote: check this\n", " (the user said so) "])
    )
    return "".join(parts)


@damage
def other_value_in_prose(value, rng):
    """An example before the real one."""
    keys = list(value)
    example = written({keys[0]: "example"}, rng)
    return f"For example {example}, but here: {written(value, rng)}"


@damage
def correction_in_prose(value, rng):
    """The object, then a change of mind with another one."""
    keys = list(value)
    return f"{written({**value, keys[-1]: None}, rng)}\nNo, I meant {written(value, rng)}"


# ------------------------------------------------------------------ tokens


@damage
def token_lost(value, rng):
    """One token is gone."""
    parts = tokens(value, rng)
    del parts[solid(parts, rng)]
    return "".join(parts)


@damage
def tokens_lost(value, rng):
    """Some neighbouring tokens are gone."""
    parts = tokens(value, rng)
    at = rng.randrange(len(parts))
    del parts[at : at + rng.randrange(2, 9)]
    return "".join(parts)


@damage
def token_doubled(value, rng):
    """One token stands twice."""
    parts = tokens(value, rng)
    at = solid(parts, rng)
    return "".join([*parts[:at], parts[at], *parts[at:]])


@damage
def tokens_swapped(value, rng):
    """Two tokens changed places."""
    parts = tokens(value, rng)
    one, two = solid(parts, rng), solid(parts, rng)
    parts[one], parts[two] = parts[two], parts[one]
    return "".join(parts)


@damage
def sign_replaced(value, rng):
    """One structural sign became another."""
    parts = tokens(value, rng)
    at = rng.choice([index for index, part in enumerate(parts) if part in "{}[]:,"])
    parts[at] = rng.choice([sign for sign in "{}[]:,;=()" if sign != parts[at]])
    return "".join(parts)


@damage
def characters_swapped(value, rng):
    """Two neighbouring characters changed places."""
    text = written(value, rng)
    at = rng.randrange(len(text) - 1)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


@damage
def sign_inserted(value, rng):
    """One structural sign too many, between two tokens."""
    parts = tokens(value, rng)
    parts.insert(rng.randrange(len(parts) + 1), rng.choice('{}[]:,"'))
    return "".join(parts)


@damage
def two_signs_lost(value, rng):
    """Two brackets or colons are gone (a comma between digits would be gone without a trace)."""
    parts = tokens(value, rng)
    for _ in range(2):
        del parts[rng.choice([index for index, part in enumerate(parts) if part in "{}[]:"])]
    return "".join(parts)


@damage
def line_lost(value, rng):
    """One line of a pretty text is gone."""
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


@damage
def opener_lost(value, rng):
    """A key and the brace it opens are gone; the closer stays."""
    text = written(value, rng)
    found = spots(text, re.compile(r":\s*\{"))
    if not found:
        return None
    spot = rng.choice(found)
    begin = max(text.rfind(",", 0, spot.start()), text.find("{")) + 1
    return text[:begin] + text[spot.end() :]


@damage
def inner_closer_lost(value, rng):
    """A bracket that closes something inside is gone."""
    text = written(value, rng)
    found = spots(text[:-1], re.compile(r"[}\]]"))
    if not found:
        return None
    at = rng.choice(found).start()
    return text[:at] + text[at + 1 :]


@damage
def brackets_swapped(value, rng):
    """Square, curly and round brackets mixed up."""
    text = written(value, rng)
    found = spots(text, re.compile(r"[{}\[\]]"))
    at = rng.choice(found).start()
    return text[:at] + rng.choice("{}[]()") + text[at + 1 :]


@damage
def closers_in_excess(value, rng):
    """Several closers too many."""
    return written(value, rng) + rng.choice(["}}", "]}", "]", "}]}", "} }"])


# ------------------------------------------------------------------ quotes and escapes


@damage
def one_quote_swapped(value, rng):
    """One double quote became a single one."""
    text = written(value, rng)
    at = rng.choice([index for index, sign in enumerate(text) if sign == '"'])
    return text[:at] + rng.choice(["'", "`", "“", "”", "＂", "''"]) + text[at + 1 :]


@damage
def look_alike_signs(value, rng):
    """Full-width and typographic signs instead of the plain ones."""
    text = written(value, rng)
    old, new = rng.choice([(",", "，"), (":", "："), ('"', "＂"), ('"', "“"), ("{", "｛"), ("-", "–"), ('"', "″")])
    if rng.random() < 0.5:
        return text.replace(old, new)
    where = [index for index, sign in enumerate(text) if sign == old]
    if not where:
        return None
    at = rng.choice(where)
    return text[:at] + new + text[at + 1 :]


@damage
def quotes_doubled(value, rng):
    """Quotes doubled as in a table file."""
    text = written(value, rng).replace('"', '""')
    return rng.choice([text, f'"{text}"'])


@damage
def apostrophes_bare(value, rng):
    """Single quotes round strings that hold apostrophes nobody escaped."""
    found = [key for key, item in value.items() if isinstance(item, str) and " " in item]
    if not found:
        return None
    key = rng.choice(found)
    told = {**value, key: value[key].replace(" ", "' ", 1)}
    return json.dumps(told, ensure_ascii=False).replace("'", "\x00").replace('"', "'").replace("\x00", "'")


@damage
def inner_object_bare(value, rng):
    """An object inside a string, its quotes not escaped."""
    keys = list(value)
    key = rng.choice(keys)
    inner = json.dumps({"id": 5, "note": "x y"})
    return json.dumps({**value, key: "\0"}, ensure_ascii=False).replace('"\\u0000"', f'"{inner}"')


@damage
def string_tail_lost(value, rng):
    """A string lost its tail with its closing quote; the rest goes on."""
    text = written(value, rng)
    found = [m for m in STRING.finditer(text) if len(m.group()) > 4]
    if not found:
        return None
    spot = rng.choice(found)
    return text[: rng.randrange(spot.start() + 1, spot.end() - 1)] + text[spot.end() :]


@damage
def html_entities(value, rng):
    """Escaped for a web page."""
    text = written(value, rng)
    return rng.choice(
        [html.escape(text), text.replace('"', "&quot;"), text.replace('"', "&#34;"), text.replace(" ", "&nbsp;")]
    )


@damage
def markdown_escapes(value, rng):
    """Escaped for Markdown."""
    return re.sub(r"([_*#\[\]()~`>.!-])", r"\\\1", written(value, rng))


@damage
def some_markdown_escapes(value, rng):
    """Underscores and stars escaped for Markdown."""
    return re.sub(r"([_*])", r"\\\1", written(value, rng))


@damage
def backslashes_single(value, rng):
    """Windows paths and patterns written with single backslashes."""
    key = rng.choice(list(value))
    path = rng.choice([r"C:\data\new", r"\d+\.\d{2}", r"\\server\share", r"a\_b\*c"])
    shown = json.dumps({**value, key: "\0"}, ensure_ascii=False)
    return shown.replace('"\\u0000"', f'"{path}"') if value[key] != path else None


@damage
def escaped_once_too_often(value, rng):
    """Every quote behind a backslash."""
    return json.dumps(written(value, rng), ensure_ascii=False)[1:-1]


@damage
def percent_encoded(value, rng):
    """Escaped for an address."""
    return urllib.parse.quote(written(value, rng))


@damage
def control_character(value, rng):
    """A control character somewhere."""
    text = written(value, rng)
    at = rng.randrange(len(text))
    return text[:at] + rng.choice("\x00\x07\x08\x1b\x7f") + text[at:]


@damage
def carriage_returns(value, rng):
    """Line breaks inside strings, and the whole text sent through a translation of line endings."""
    found = [key for key, item in value.items() if isinstance(item, str) and " " in item]
    if not found:
        return None
    key = rng.choice(found)
    text = json.dumps({**value, key: value[key].replace(" ", "\0", 1)}, ensure_ascii=False, indent=2)
    return text.replace("\\u0000", "\n").replace("\n", "\r\n")


# ------------------------------------------------------------------ numbers and words


@damage
def thousands_separators(value, rng):
    """Numbers as people write them."""
    return replace_number(value, rng, lambda text: rng.choice(["1,", "12.", "1 ", "1_", "1'"]) + text)


@damage
def units(value, rng):
    """Numbers with their unit."""
    return replace_number(
        value,
        rng,
        lambda text: rng.choice(
            [f"{text}kg", f"{text} km", f"${text}", f"{text}%", f"{text}n", f"{text}L", f"~{text}"]
        ),
    )


@damage
def sums(value, rng):
    """Something to work out."""
    return replace_number(
        value,
        rng,
        lambda text: rng.choice(
            [f"{text}+1", f"{text} // 2", f"{text}/2", f"2**{text}", f"({text})", f"-({text})", f"{text} - 1"]
        ),
    )


@damage
def odd_numbers(value, rng):
    """Other spellings, of other numbers."""
    return replace_number(
        value,
        rng,
        lambda text: rng.choice(
            [f"0{text}", f"{text}.", f".{text}", f"0x{text}", f"{text}e", f"--{text}", f"{text}.0.1"]
        ),
    )


@damage
def no_number(value, rng):
    """A number that is none."""
    words = ["NaN", "Infinity", "-Infinity", "undefined", "N/A", "nan", "inf", "nil", "NA", "-", "?", "1e999", "void 0"]
    return replace_number(value, rng, lambda _: rng.choice(words))


@damage
def bare_words(value, rng):
    """A string without its quotes (one that reads as another literal then is left alone)."""
    text = written(value, rng)
    found = [
        m
        for m in STRING.finditer(text)
        if not re.match(r"\s*:", text[m.end() :]) and not LITERALS.fullmatch(m.group()[1:-1])
    ]
    if not found:
        return None
    spot = rng.choice(found)
    return text[: spot.start()] + spot.group()[1:-1] + text[spot.end() :]


@damage
def references(value, rng):
    """A variable, a template or a call instead of a value."""
    key = rng.choice(list(value))
    word = rng.choice(
        [
            "${x}",
            "{{x}}",
            "$x",
            "x[0]",
            "f(1)",
            "<x>",
            "self.x",
            "x or 1",
            "@x",
            "%s",
            "{x}",
            'os.environ["X"]',
            'f"{x}"',
            "b'x'",
        ]
    )
    return json.dumps({**value, key: "\0"}, ensure_ascii=False).replace('"\\u0000"', word)


@damage
def joined_strings(value, rng):
    """A string put together from pieces."""
    text = written(value, rng)
    found = [m for m in STRING.finditer(text) if not re.match(r"\s*:", text[m.end() :]) and len(m.group()) > 4]
    if not found:
        return None
    spot = rng.choice(found)
    middle = rng.randrange(spot.start() + 2, spot.end() - 1)
    return text[:middle] + rng.choice(['" + "', '" "', '""', '"\n"', '" . "', '", "']) + text[middle:]


# ------------------------------------------------------------------ comments


@damage
def comment_swallows(value, rng):
    """A line comment in a text whose line breaks were lost."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    lines = text.split("\n")
    lines[rng.randrange(len(lines))] += rng.choice(["  // as asked", "  # default", ' // see "notes"'])
    return " ".join(lines)


@damage
def comment_swallows_one(value, rng):
    """A line comment whose own line break was lost."""
    lines = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    at = rng.randrange(len(lines) - 1)
    lines[at] += rng.choice(["  // as asked ", "  # default ", '  // it\'s "so" ']) + lines.pop(at + 1)
    return "\n".join(lines)


@damage
def commented_out(value, rng):
    """A member turned into a comment: was it meant or not?"""
    lines = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    at = rng.randrange(1, len(lines))
    lines[at] = "// " + lines[at]
    return "\n".join(lines)


@damage
def comment_for_the_rest(value, rng):
    """A comment stands for what was left out."""
    if len(value) < 2:
        return None
    kept = dict(list(value.items())[: rng.randrange(1, len(value))])
    text = json.dumps(kept, ensure_ascii=False, indent=2)
    return (
        text[:-2]
        + rng.choice([",", ""])
        + rng.choice(["\n  // ... more fields", "\n  /* rest omitted */", "\n  # remaining as before"])
        + "\n}"
    )


# ------------------------------------------------------------------ other notations


@damage
def yaml_lines(value, rng):
    """Key and value per line, no braces."""
    return "\n".join(f"{key}: {json.dumps(item, ensure_ascii=False)}" for key, item in value.items())


@damage
def yaml_around(value, rng):
    """An object under a key without braces of its own."""
    key, item = rng.choice(list(value.items()))
    return f"{key}: {json.dumps(item if isinstance(item, dict) else {'value': item}, ensure_ascii=False)}"


@damage
def keyword_arguments(value, rng):
    """Arguments as in a call."""
    return rng.choice(["dict(", "(", "call("]) + ", ".join(f"{key}={item!r}" for key, item in value.items()) + ")"


@damage
def other_separators(value, rng):
    """Semicolons, arrows and equal signs."""
    parts = tokens(value, rng)
    old, new = rng.choice([(",", ";"), (":", "="), (":", "=>"), (":", " "), (",", " "), (",", "\n"), (",", "|")])
    return "".join(new if part == old else part for part in parts)


@damage
def braces_doubled(value, rng):
    """Braces doubled as in a template."""
    return written(value, rng).replace("{", "{{").replace("}", "}}")


@damage
def set_or_pairs(value, rng):
    """A set of pairs instead of an object."""
    pairs = ", ".join(f"({key!r}, {item!r})" for key, item in value.items())
    return rng.choice(["{" + pairs + "}", "[" + pairs + "]", "{" + ", ".join(map(repr, value)) + "}"])


@damage
def members_outside(value, rng):
    """The object closes too early and its members go on."""
    if len(value) < 2:
        return None
    at = rng.randrange(1, len(value))
    items = list(value.items())
    first, rest = json.dumps(dict(items[:at]), ensure_ascii=False), json.dumps(dict(items[at:]), ensure_ascii=False)
    return first + rng.choice([", ", "\n", " ", ",\n"]) + rest[1:-1] + rng.choice(["", "}"])


@damage
def duplicate_key_elsewhere(value, rng):
    """A key again, with another value, in a text with other slips."""
    key = rng.choice(list(value))
    text = repr(value)
    return text[:-1] + f", {key!r}: 'again'" + "}"


@damage
def duplicate_key_in_disguise(value, rng):
    """The same key, once written with an escape."""
    key = rng.choice(list(value))
    text = json.dumps(value, ensure_ascii=False)
    again = f"\\u{ord(key[0]):04x}" + json.dumps(key[1:], ensure_ascii=False)[1:-1]
    return text[:-1] + f', "{again}": "again"' + "}"
