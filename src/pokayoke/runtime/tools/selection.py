"""Staged selection: of a large catalogue, the model sees the tools a text is about, and one to find others by.

First names and one line each, then the schemas of those that were found. What is offered decides nothing
else: a call of any other tool is resolved, checked and run or refused as always.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from pokayoke.core.catalogue.search import RankedTool, close_candidates
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.importers import did_you_mean
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.host_input import as_whole_number, expect
from pokayoke.core.text.clip import clip
from pokayoke.errors import UsageError
from pokayoke.runtime.tools.own_tools import OWN_TOOLS

if TYPE_CHECKING:
    from pokayoke.runtime.ports import RunPort

_FOUND: Final = 10
_LINE: Final = 160


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

    def __init__(self, run: RunPort, text: str, most: int, used: Iterable[str] = ()) -> None:
        """Choose the candidates for a text."""
        expect(text, str, "tools are chosen for a text", ": take the text of the message")
        if as_whole_number(most, "the number of candidates") < 0:
            raise UsageError(f"cannot offer {most} tools: give the number of candidates, or 0 for names first")
        self._view, self._ranking = run.view, run.guard.ranking
        self._known = {one.name: one for one in self._view.snapshot.offered_tools(run.principal)}
        index = self._view.catalogue_index.index
        ranked = self._rank_by_host(text, most)
        self.close = () if ranked else close_candidates(index.rank_tools(text, most, only=self._known))
        chosen = ranked or index.choose_tools(text, most, only=self._known)
        self._offered = dict.fromkeys([one.name for one in chosen])
        for name in used:
            self.add_tool(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools on offer."""
        return tuple(self._offered)

    @property
    def snapshot(self) -> Snapshot:
        """The contracts in force, with the tool to find others by."""
        return self._view.catalogue_index.snapshot

    @property
    def finder(self) -> Contract:
        """The tool to find others by."""
        return self._view.catalogue_index.finder

    def has_tool(self, name: str) -> bool:
        """True if a tool is on offer, or is the one to find others by."""
        return name in self._offered or name == self.finder.name

    def add_tool(self, name: str) -> None:
        """Offer one more tool, if there is one of that name: it was called, so its schema may be needed."""
        if name in self._known:
            self._offered.setdefault(name)

    def find_tools(self, query: str) -> dict[str, Any]:
        """Answer the model's search: names and one line each, on offer from now on."""
        ranked = self._rank_by_host(query, _FOUND) or self._view.catalogue_index.index.find_tools(
            query, _FOUND, only=self._known
        )
        for one in ranked:
            self.add_tool(one.name)
        listed = [{"name": one.name, "about": _about_line(self._known[one.name])} for one in ranked]
        return {"tools": listed, "note": _search_note(close_candidates(ranked), found=bool(ranked))}

    def _rank_by_host(self, text: str, most: int) -> list[RankedTool]:
        """Return what the host's own ranking names; [] if there is none, it fails, or it finds nothing."""
        if self._ranking is None:
            return []
        try:
            names = dict.fromkeys(self._ranking(text, tuple(self._known.values())))
        except Exception:  # noqa: BLE001 - the host's code; the words of the catalogue still rank
            return []
        known = [name for name in names if name in self._known][:most]
        return [RankedTool(name, 1.0 / place) for place, name in enumerate(known, 1)]


def offered_tools(run: RunPort, names: Collection[str] | None) -> list[Contract]:
    """Return the tools to offer with the next request.

    Args:
        run: the run; what its principal may not use is left out.
        names: only these; None takes those that were selected, or all.

    Raises:
        UsageError: one of the names means no tool, whoever may use it.
    """
    if isinstance(names, str):
        raise UsageError(f"names is a list of tools, such as [{names!r}], not a text")
    selection, contracts = run.selection, run.snapshot.offered_tools(run.principal)
    if names is not None:
        _refuse_unknown(run, names)
        return [one for one in contracts if one.name in names]
    if selection is None:
        return contracts
    pager = run.guard.pager
    return [one for one in contracts if selection.has_tool(one.name) or (one is pager and run.progress.texts.any)]


def _refuse_unknown(run: RunPort, names: Collection[str]) -> None:
    """A name that means nothing would take a tool away unseen; one of a tool that this run is not shown may stand."""
    rollout = run.guard.rollout
    known = {*run.snapshot.catalogue.names, *(() if rollout is None else rollout.edition.names)}
    if unknown := [name for name in names if name not in known and name not in OWN_TOOLS]:
        raise UsageError(f"names holds {unknown[0]!r}, and no tool is called so. {did_you_mean(unknown, known)}")


def _about_line(contract: Contract) -> str:
    return clip(" ".join((contract.description or "").split()), _LINE)


def _search_note(near: tuple[str, ...], *, found: bool) -> str:
    if not found:
        return "Nothing fits these words. Try others, or tell the user that there is no such tool."
    if near:
        return (
            f"Several fit about equally well: {', '.join(near)}. "
            "If the user's words do not say which one is meant, ask the user instead of choosing."
        )
    return "These tools can be called from now on."
