"""The catalogue: from a called name to its contract.

In: the name as the model wrote it.
Out: the contract of that name or of a spelling that means the same, or the finding `unknown_tool` with suggestions.
Never: a call of a merely similar name. That is how `list_transfers` becomes `create_transfer`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence

from pokayoke.core.call import Finding
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.names import DEFINITION_FORMATS, fold_name, name_problem, possible_names, provider_name
from pokayoke.core.text.clip import clip
from pokayoke.errors import ContractError

_MAX_SUGGESTIONS = 3
_MIN_SIMILARITY = 55.0
_MAX_SHOWN = 60
_MAX_HINT = 590


class Catalogue:
    """The contracts in force, by name. It cannot be changed; a lookup is one dict access.

    Args:
        contracts: the contracts in force, one version of each tool.
        prefixes: names of servers that a model may write before a tool name.

    Raises:
        ContractError: two contracts claim one name.
    """

    def __init__(self, contracts: Iterable[Contract], *, prefixes: Sequence[str] = ()) -> None:
        """Index the contracts by every name they have."""
        self._prefixes = tuple(prefixes)
        self._by_name: dict[str, Contract] = {}
        for contract in contracts:
            self._add_contract(contract)
        self._exact = dict(self._by_name)
        self._keys: dict[str, list[Contract]] = {}
        for contract in self._by_name.values():
            self._add_provider_names(contract)
            self._keys.setdefault(fold_name(contract.name), []).append(contract)
            self._exact.setdefault(contract.id, contract)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools in force, in the order of registration."""
        return tuple(self._by_name)

    @property
    def contracts(self) -> tuple[Contract, ...]:
        """The contracts in force, one per name."""
        return tuple(self._by_name.values())

    def resolve_name(self, name: str, offered: Callable[[], Sequence[str]] | None = None) -> Contract | Finding:
        """Return the contract of a called name, or the finding `unknown_tool`.

        Args:
            name: the name as the model wrote it.
            offered: returns the names of the tools that the model may see; None means all.
        """
        return self.find_contract(name) or self.unknown_tool_finding(
            name, offered=None if offered is None else offered()
        )

    def find_contract(self, name: str) -> Contract | None:
        """Return the contract of a called name, or None."""
        return self._exact.get(name) or self._find_by_spelling(name)

    def unknown_tool_finding(self, name: str, *, offered: Sequence[str] | None = None) -> Finding:
        """Return the finding for an unknown tool name.

        Args:
            name: the name as the model wrote it.
            offered: the names of the tools that the model may see; None means all.
        """
        shown = _visible_name(name)
        if not shown:
            return Finding(
                code="unknown_tool",
                message="the call has no tool name",
                hint="The tool name is empty. Write the name of a tool you were given, or answer without one.",
            )
        from rapidfuzz import fuzz, process  # noqa: PLC0415 - 10 ms of import, only for unknown names

        known = self.names if offered is None else tuple(offered)
        matches = process.extract(
            fold_name(shown),
            {tool: fold_name(tool) for tool in known},
            scorer=fuzz.WRatio,
            limit=_MAX_SUGGESTIONS,
            score_cutoff=_MIN_SIMILARITY,
        )
        nearest = [str(match[2]) for match in matches]
        return Finding(
            code="unknown_tool",
            message=f"no tool is called {shown!r}, expected one of {len(known)} known names",
            hint=_unknown_tool_hint(shown, nearest, known),
            data={"called": shown, "nearest": nearest},
        )

    def _add_contract(self, contract: Contract) -> None:
        known = self._by_name.get(contract.name)
        if known is None:
            self._by_name[contract.name] = contract
            return
        if known.id == contract.id:
            raise ContractError(f"{contract.id} is registered twice. Give one of them another name or version")
        raise ContractError(
            f"{contract.name!r} has several versions, {known.version} and {contract.version}. Give one of them; "
            "Guard(contracts=...) takes versions out of a lock file"
        )

    def _add_provider_names(self, contract: Contract) -> None:
        for written in DEFINITION_FORMATS:
            mapped = provider_name(contract.name, written)
            other = self._exact.setdefault(mapped, contract)
            if other is not contract:
                raise ContractError(
                    f"{contract.name!r} and {other.name!r} are both called {mapped!r} by a provider. Rename one of them"
                )

    def _find_by_spelling(self, name: str) -> Contract | None:
        """Return the one tool that the spellings of a name lead to, or None."""
        if _has_only_plain_characters(name):
            for spelling in possible_names(name, self._prefixes):
                exact = self._exact.get(spelling)
                found = [exact] if exact is not None else self._keys.get(fold_name(spelling), [])
                if len(found) == 1:
                    return found[0]
        return None


def _has_only_plain_characters(name: object) -> bool:
    """Return whether a called name is free of characters that could make it look like another."""
    if not isinstance(name, str):
        return False
    text = " ".join(name.split()) if name.isascii() else name
    return not text.strip() or name_problem(text[:128]) is None


def _visible_name(name: object) -> str:
    """Return a called name as one short visible line; "" if it has no visible characters."""
    if not isinstance(name, str):
        return ""
    text = "".join(c if unicodedata.category(c)[0] not in "CZM" else " " for c in name[: _MAX_SHOWN * 4])
    return clip(" ".join(text.split()), _MAX_SHOWN)


def _unknown_tool_hint(shown: str, nearest: list[str], known: Sequence[str]) -> str:
    """Return a hint with the called name, the nearest names, and as many known names as fit."""
    text = f"There is no tool `{shown}`."
    if shown in known:
        text = f"`{shown}` holds signs that cannot be seen here. Write the name without them."
    if not known:
        return f"{text} There are no tools; answer without one."
    if nearest:
        text += f" Nearest: {', '.join(clip(name, _MAX_SHOWN) for name in nearest)}."
    text += " Tools: "
    listed: list[str] = []
    for index, name in enumerate(known):
        more = f", and {len(known) - index} more."
        shown = clip(name, _MAX_SHOWN)
        if len(text) + sum(len(one) + 2 for one in listed) + len(shown) + len(more) > _MAX_HINT:
            return text + ", ".join(listed) + more
        listed.append(shown)
    return text + ", ".join(listed) + "."
