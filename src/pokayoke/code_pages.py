"""Where people read about a finding code.

In: a code, and what the installed package declares about itself.
Out: what the code means, and the place of its page.
Never: an address that pyproject.toml does not declare, or a place in a text for a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import msgspec

from pokayoke.core.finding_codes import CODES_BY_ROOM


class CodePage(msgspec.Struct, frozen=True):
    """What a finding code means, and where it is explained.

    Attributes:
        code: the code.
        meaning: one line.
        place: the address of its page; without one, the page and its section in the repository.
        is_address: True if `place` is an address that a browser can open.
    """

    code: str
    meaning: str
    place: str
    is_address: bool


def find_code_page(code: str) -> CodePage | None:
    """Return where a code is explained; None for a word that is no finding code."""
    address = documentation_address()
    for room, codes in CODES_BY_ROOM.items():
        if (row := codes.get(code)) is not None:
            place = f"{address}/reference/findings/{code}.html" if address else f"docs/reference/findings.md#{room}"
            return CodePage(code, row.meaning, place, address is not None)
    return None


def find_code_pages(codes: Iterable[str]) -> list[CodePage]:
    """Return where each code is explained, in their order and once; words that are no code are left out."""
    return [page for code in dict.fromkeys(codes) if (page := find_code_page(code)) is not None]


@cache
def documentation_address() -> str | None:
    """Return the address of the documentation, from `[project.urls]`; None as long as none is declared."""
    from importlib import metadata  # noqa: PLC0415 - slow to import

    try:
        declared = metadata.metadata("pokayoke").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # the folder was put on the path, and nothing is installed
        return None
    addresses = {label.strip().lower(): text.strip() for label, _, text in (line.partition(",") for line in declared)}
    return addresses["documentation"].rstrip("/") if "documentation" in addresses else None
