"""What a docstring says about a function and its arguments: Google, numpy and Sphinx style."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from itertools import zip_longest

import msgspec

_HEADINGS = "Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|See Also|Attributes"
_GOOGLE_HEADING = re.compile(rf"({_HEADINGS}):\s*")
_NUMPY_HEADING = re.compile(rf"({_HEADINGS})\s*")
_ARGUMENTS = ("Args", "Arguments", "Parameters", "Params")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?()")
_SPHINX_ENTRY = re.compile(r":(?:param|parameter|arg|argument)\s(?:.*\s)?(\w+)\s*:\s*(.*)")
_SPHINX_FIELD = re.compile(r":\w+[^:]*:.*")


class Docstring(msgspec.Struct, frozen=True):
    """A docstring in parts.

    Attributes:
        summary: everything before the first section, as written.
        arguments: argument name to its description on one line.
    """

    summary: str
    arguments: dict[str, str]


def read_docstring(text: str) -> Docstring:
    """Read a docstring that `inspect.getdoc` has cleaned; what is in no known style stays in the summary."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    lines = text.splitlines()
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        google = _GOOGLE_HEADING.fullmatch(line)
        numpy = _NUMPY_HEADING.fullmatch(line) if following.strip() and not following.strip("- ") else None
        if google:
            sections.append((f"google {google.group(1)}", []))
        elif numpy:
            sections.append((f"numpy {numpy.group(1)}", []))
        elif _SPHINX_FIELD.fullmatch(line):
            if sections[-1][0] != "sphinx":
                sections.append(("sphinx", []))
            sections[-1][1].append(line)
        else:
            sections[-1][1].append(line)
    arguments: dict[str, str] = {}
    for title, body in sections:
        style, _, heading = title.partition(" ")
        if style == "sphinx":
            arguments |= _parse_entries(body, _SPHINX_ENTRY)
        elif heading in _ARGUMENTS:
            entry = _GOOGLE_ENTRY if style == "google" else _NUMPY_ENTRY
            arguments |= _parse_entries(body if style == "google" else body[1:], entry)
    return Docstring("\n".join(sections[0][1]).strip(), arguments)


def _parse_entries(body: Iterable[str], entry: re.Pattern[str]) -> dict[str, str]:
    """Return name and description of the entries; what is indented below one belongs to it."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in textwrap.dedent("\n".join(body)).splitlines():
        if line[:1].strip():
            match = entry.fullmatch(line)
            name = match.group(1) if match else ""
            found[name] = [match.group(2)] if match else []
        else:
            found.setdefault(name, []).append(line)
    described = {name: " ".join(" ".join(parts).split()) for name, parts in found.items()}
    return {name: note for name, note in described.items() if name and note}
