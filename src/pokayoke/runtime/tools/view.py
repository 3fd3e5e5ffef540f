"""The tools that runs see: the contracts in force under the policy in force.

In: contracts and a policy.
Out: snapshots, and a search index for large catalogues.
Never: a half-renewed view. What `prepare_swap` returns cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from pokayoke.core.catalogue.unknown_names import unknown_names, unknown_sources
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.names import fold_name
from pokayoke.core.flow.plan import Snapshot, build_snapshot
from pokayoke.core.policy import Policy
from pokayoke.core.state.loop_guard import Kind
from pokayoke.errors import ConfigurationError
from pokayoke.runtime.config.config import dotted_path
from pokayoke.runtime.files.roots import Roots, prepare_roots
from pokayoke.runtime.tools.own_tools import FINDERS, OWN_TOOLS, finder_tool

if TYPE_CHECKING:
    from pokayoke.core.catalogue.search import WordIndex


def unknown_names_report(contracts: Sequence[Contract], policy: Policy) -> str:
    """Say which names in a policy and in contracts mean no tool, a line each.

    Args:
        contracts: every version of every tool; without any, nothing is known.
        policy: what names them.
    """
    if not contracts:
        return ""
    lines = [f"`{dotted_path(place)}` {text}" for place, text in unknown_names(policy, contracts, OWN_TOOLS)]
    lines += [f"{ident}: {text}" for ident, text in unknown_sources(contracts, OWN_TOOLS)]
    return "\n".join(lines)


def hidden_validators_report(contracts: Sequence[Contract]) -> str:
    """Say which validators the schemas of contracts hide, a line each."""
    hidden = [(contract.id, name) for contract in contracts for name in contract.hidden_validators]
    if not hidden:
        return ""
    from pokayoke.core.contract.correctors import hidden_validator_text  # noqa: PLC0415 - loaded where one is needed

    return "\n".join(f"{ident} {hidden_validator_text(name)}" for ident, name in hidden)


class CatalogueIndex(msgspec.Struct, frozen=True):
    """A catalogue as the runs that select from it share it.

    Attributes:
        plain: the snapshot it was made for.
        snapshot: the same with the finder.
        index: the words of the catalogue.
        finder: the tool by which a model finds others.
    """

    plain: Snapshot
    snapshot: Snapshot
    index: WordIndex
    finder: Contract


class ToolView:
    """The tools that some runs see. It is renewed in place: open runs follow the policy.

    Args:
        pager: the tool that reads on in long outputs.
        kinds: the host's own kinds of failure, for the loop guard.
        watched: True if a file may change what the runs see, so that it is looked at before each call.

    Attributes:
        tools: the contracts that may be called.
        snapshot: they and the policy, worked out.
        paged: the same with the pager.
    """

    def __init__(self, pager: Contract, kinds: tuple[Kind, ...], *, watched: bool = False) -> None:
        """Begin empty; what `prepare_swap` returns fills it."""
        self.pager, self.watched = pager, watched
        self.tools: tuple[Contract, ...] = ()
        self.snapshot: Snapshot
        self.paged: Snapshot
        self._kinds = kinds
        self._searching: CatalogueIndex | None = None
        self._all: tuple[Contract, ...] = ()
        self._withdrawn: Collection[str] = ()
        self._shadows: tuple[Contract, ...] = ()

    def prepare_swap(
        self,
        contracts: Iterable[Contract],
        policy: Policy,
        *,
        withdrawn: Collection[str] = (),
        shadows: Iterable[Contract] = (),
    ) -> Callable[[], None]:
        """Work these tools out under this policy. What is returned goes on with them, and cannot fail.

        Args:
            contracts: one version per tool.
            policy: what is allowed.
            withdrawn: ids of those whose calls are all refused.
            shadows: versions that judge beside these.

        Raises:
            ContractError: two tools cannot be told apart.
            PolicyError: the policy names a kind of failure that there is not.
        """
        kept, beside = tuple(contracts), tuple(shadows)
        own_pager = any(contract.name == self.pager.name for contract in kept)
        plain = build_snapshot(kept, policy, self._kinds, withdrawn=withdrawn, shadows=beside)
        paged = plain
        if not own_pager:
            paged = build_snapshot(kept, policy, self._kinds, own=(self.pager,), withdrawn=withdrawn, shadows=beside)

        def put_in_force() -> None:
            self._all, self._withdrawn, self._shadows = kept, withdrawn, beside
            self.snapshot, self.paged = plain, paged
            self.tools = tuple(one for one in kept if one.id not in withdrawn)

        return put_in_force

    def snapshot_with(self, *own: Contract) -> Snapshot:
        """Return what is in force, and some more of the guard's own tools."""
        policy, out, beside = self.snapshot.policy, self._withdrawn, self._shadows
        return build_snapshot(self._all, policy, self._kinds, own=own, withdrawn=out, shadows=beside)

    @property
    def catalogue_index(self) -> CatalogueIndex:
        """The catalogue with its search index, for runs that select from it."""
        found = self._searching
        if found is None or found.plain is not self.snapshot:
            found = self._searching = index_catalogue(self)
        return found


def resolve_roots(tool: Contract | Callable[..., Any], before: Contract | None = None) -> Contract:
    """Return the contract with its roots resolved; those that are already stay what they were resolved to.

    Args:
        tool: the contract.
        before: the same version as it was read earlier: roots that were written in the same way are what they were.

    Raises:
        ConfigurationError: it is no contract, or a root is missing.
    """
    if not isinstance(tool, Contract):
        raise ConfigurationError(
            f"{getattr(tool, '__name__', repr(tool))} is not a contract: decorate the function with "
            "@pokayoke.tool(effect=...), or build one from a definition with Contract.from_openai, from_anthropic or "
            "from_mcp"
        )
    if all(isinstance(roots, Roots) for roots in tool.paths.values()):
        return tool
    known: Mapping[str, tuple[str, ...]] = {} if before is None else before.paths
    return replace(tool, paths={name: _keep_or_resolve(roots, known.get(name)) for name, roots in tool.paths.items()})


def _keep_or_resolve(roots: tuple[str, ...], before: tuple[str, ...] | None) -> Roots:
    if isinstance(roots, Roots):
        return roots
    return before if isinstance(before, Roots) and before.declared == roots else prepare_roots(roots)


def index_catalogue(view: ToolView) -> CatalogueIndex:
    """Build the search index of a catalogue: about a millisecond for ten tools."""
    from pokayoke.core.catalogue.search import WordIndex  # noqa: PLC0415 - for large catalogues only

    plain, tools = view.snapshot, view.tools
    taken = {fold_name(name) for name in (*plain.catalogue.names, view.pager.name)}
    finder = finder_tool(next(name for name in FINDERS if fold_name(name) not in taken))
    pager = () if view.pager.name in plain.catalogue.names else (view.pager,)
    return CatalogueIndex(plain, view.snapshot_with(*pager, finder), WordIndex(tools), finder)
