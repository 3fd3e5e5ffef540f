"""Staged selection: of a large catalogue, the model sees the tools a text is about, and one to find others by.

First names and one line each, then the schemas of those that were found. What is offered decides nothing
else: a call of any other tool is resolved, checked and run or refused as always.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from pokayoke.core.catalogue.search import Index, close
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.importers import meant
from pokayoke.core.contract.names import key
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.host_input import whole_number
from pokayoke.core.text.clip import clip
from pokayoke.errors import UsageError
from pokayoke.runtime.tools.view import FINDERS, OWN_TOOLS

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run
    from pokayoke.runtime.tools.view import View

_FOUND: Final = 10
_LINE: Final = 160
_TEXT: Final = (
    "Find more tools by what they do; only some of them are shown. Names and descriptions come back, and from then "
    "on these tools can be called. If several fit and the user's words do not say which one is meant, ask the user."
)
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool has to do, in a few words."}},
    "required": ["query"],
    "additionalProperties": False,
}


class Searching(msgspec.Struct, frozen=True):
    """What all runs share that select from one catalogue.

    Attributes:
        plain: the snapshot it was made for.
        snapshot: the same, with the tool to find others by.
        index: the words of the catalogue.
        finder: that tool.
    """

    plain: Snapshot
    snapshot: Snapshot
    index: Index
    finder: Contract


def searching(view: View) -> Searching:
    """Index a catalogue. Takes about a millisecond for ten tools; views keep it."""
    plain, tools = view.snapshot, view.tools
    taken = {key(name) for name in (*plain.catalogue.names, view.pager.name)}
    finder = _finder(next(name for name in FINDERS if key(name) not in taken))
    pager = () if view.pager.name in plain.catalogue.names else (view.pager,)
    return Searching(plain, view.extended(*pager, finder), Index(tools), finder)


@lru_cache(maxsize=len(FINDERS))
def _finder(name: str) -> Contract:
    return Contract.from_schema(name, _SCHEMA, effect="read", output_schema={"type": "object"}, description=_TEXT)


class Selection:
    """The tools on offer in one run.

    Args:
        run: the run.
        text: what the user wants.
        most: candidates that are chosen for a text.
        used: names that are on offer in any case.

    Attributes:
        names: the tools on offer, the best candidate first, found and called ones behind.
        close: those candidates that fit about as well as the best; empty if one stands out.

    Raises:
        UsageError: `text` is none, or `most` is no whole number from 0.
    """

    def __init__(self, run: Run, text: str, most: int, used: Iterable[str] = ()) -> None:
        """Choose the candidates for a text."""
        if not isinstance(cast("object", text), str):
            raise UsageError(f"tools are chosen for a text, got {type(text).__name__}: take the text of the message")
        if whole_number(most, "the number of candidates") < 0:
            raise UsageError(f"cannot offer {most} tools: give the number of candidates, or 0 for names first")
        self._view = run.view
        self._known = {one.name: one for one in self._view.snapshot.offered(run.principal)}
        index = self._view.searching.index
        self.close = close(index.rank(text, most, only=self._known))
        self._offered = dict.fromkeys([one.name for one in index.choose(text, most, only=self._known)])
        for name in used:
            self.add(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools on offer."""
        return tuple(self._offered)

    @property
    def snapshot(self) -> Snapshot:
        """The contracts in force, with the tool to find others by."""
        return self._view.searching.snapshot

    @property
    def finder(self) -> Contract:
        """The tool to find others by."""
        return self._view.searching.finder

    def shows(self, name: str) -> bool:
        """True if a tool is on offer, or is the one to find others by."""
        return name in self._offered or name == self.finder.name

    def add(self, name: str) -> None:
        """Offer one more tool, if there is one of that name: it was called, so its schema may be needed."""
        if name in self._known:
            self._offered.setdefault(name)

    def find(self, query: str) -> dict[str, Any]:
        """Answer the model's search: names and one line each, on offer from now on."""
        ranked = self._view.searching.index.rank(query, _FOUND, only=self._known)
        for one in ranked:
            self.add(one.name)
        listed = [{"name": one.name, "about": _line(self._known[one.name])} for one in ranked]
        return {"tools": listed, "note": _note(close(ranked), found=bool(ranked))}


def shown(run: Run, names: Collection[str] | None) -> list[Contract]:
    """Return the tools to offer with the next request.

    Args:
        run: the run; what its principal may not use is left out.
        names: only these; None takes those that were selected, or all.

    Raises:
        UsageError: one of the names means no tool, whoever may use it.
    """
    if isinstance(names, str):
        raise UsageError(f"names is a list of tools, such as [{names!r}], not a text")
    selection, contracts = run.selection, run.snapshot.offered(run.principal)
    if names is not None:
        _refuse_unknown(run, names)
        return [one for one in contracts if one.name in names]
    if selection is None:
        return contracts
    pager = run.guard.pager
    return [one for one in contracts if selection.shows(one.name) or (one is pager and run.progress.texts.any)]


def _refuse_unknown(run: Run, names: Collection[str]) -> None:
    """A name that means nothing would take a tool away unseen; one of a tool that this run is not shown may stand."""
    rollout = run.guard.rollout
    known = {*run.snapshot.catalogue.names, *(() if rollout is None else rollout.edition.names)}
    if unknown := [name for name in names if name not in known and name not in OWN_TOOLS]:
        raise UsageError(f"names holds {unknown[0]!r}, and no tool is called so. {meant(unknown, known)}")


def _line(contract: Contract) -> str:
    return clip(" ".join((contract.description or "").split()), _LINE)


def _note(near: tuple[str, ...], *, found: bool) -> str:
    if not found:
        return "Nothing fits these words. Try others, or tell the user that there is no such tool."
    if near:
        return (
            f"Several fit about equally well: {', '.join(near)}. "
            "If the user's words do not say which one is meant, ask the user instead of choosing."
        )
    return "These tools can be called from now on."
