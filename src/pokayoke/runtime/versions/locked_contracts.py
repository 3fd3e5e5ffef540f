"""The contracts that a lock selects for the tools of one guard, ready for use.

In: a lock, the files it names, and the tools of a guard.
Out: contracts by id.
Never: a version in force that differs from what was locked, or a protection that is lost because another version
    does not repeat it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from pokayoke.core.contract.arguments import has_user_code, parameters_of
from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.values import properties_of
from pokayoke.core.versions.lock import ContractLock, ToolLock, promise_digest
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.runtime.config.contract_files import Definition, read_contracts
from pokayoke.runtime.tools.view import resolve_roots

GivenTool = Contract | Callable[..., Any]

_HOW: Final = "pokayoke contracts lock MODULE:ATTRIBUTE"
_DRIFT: Final = (
    "{id} in {source} is not what {lock} has under that version. What a version promises is fixed: undo the change, "
    "or give the changed contract a new version and lock it (pokayoke contracts diff says what changed)"
)


class LockedTools(msgspec.Struct, frozen=True):
    """One lock with every contract it needs.

    Args:
        lock: the lock.
        contracts: every usable version, by id.
        names: of the guard's tools, in their order.
        free: the guard's tools that the lock does not know, by name.
    """

    lock: ContractLock
    contracts: Mapping[str, Contract]
    names: tuple[str, ...]
    free: Mapping[str, Contract]

    @property
    def contracts_in_force(self) -> tuple[Contract, ...]:
        """Every version that a new run may get, and the tools that the lock does not know."""
        locked = [
            self.contracts[f"{name}@{version}"]
            for name in self.names
            if name in self.lock.tools
            for version in self.lock.tools[name].in_force
        ]
        return (*locked, *self.free.values())


def load_locked_tools(
    lock: ContractLock, path: Path, given: Iterable[GivenTool], before: Mapping[str, Contract]
) -> LockedTools:
    """Find the versions of a guard's tools.

    Args:
        lock: the lock.
        path: of its file; sources are relative to its folder.
        given: the guard's tools: contracts, in one or several versions, or plain functions that the lock
            knows by their names.
        before: the contracts that were loaded before this, by id.

    Raises:
        ContractError: a version in force is missing, differs from what was locked, or does not fit its handler.
        ConfigurationError: a file cannot be read.
    """
    tools: dict[str, list[Contract]] = {}
    for one in given:
        contract = _as_contract(one, lock, path)
        tools.setdefault(contract.name, []).append(contract)
    shelf = _ContractFiles(path)
    contracts: dict[str, Contract] = {}
    for name, own in tools.items():
        if (entry := lock.tools.get(name)) is not None:
            contracts.update(shelf.versions_of(name, own, entry))
    free: dict[str, Contract] = {}
    for name, own in tools.items():
        if name not in lock.tools:
            if len(own) > 1:
                raise ContractError(f"{name!r} has several versions and is not locked. Lock it: {_HOW}")
            free[name] = resolve_roots(own[0])
    ready = {ident: resolve_roots(one, before.get(ident)) for ident, one in contracts.items()}
    return LockedTools(lock, ready, tuple(tools), free)


class _ContractFiles:
    """The files a lock names, each read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, Mapping[str, Definition] | ConfigurationError] = {}

    def versions_of(self, name: str, own: Sequence[Contract], entry: ToolLock) -> dict[str, Contract]:
        """Return every version of a tool by id; one that no new run gets may be missing."""
        for contract in own:
            # One of several versions has code of its own, which no other version may run under its name.
            if (contract.defined_in_code or len(own) > 1) and contract.version not in entry.versions:
                raise ContractError(
                    f"{contract.id} is defined in code, and {self._path} does not know that version. Lock it: {_HOW}"
                )
        found: dict[str, Contract] = {}
        for version in entry.versions:
            try:
                found[f"{name}@{version}"] = self._find_version(f"{name}@{version}", version, own, entry)
            except ConfigurationError:
                if version in entry.in_force:
                    raise
        return found

    def _find_version(self, ident: str, version: str, own: Sequence[Contract], entry: ToolLock) -> Contract:
        locked = entry.versions[version]
        coded = next((one for one in own if one.defined_in_code and one.version == version), None)
        if coded is not None:
            if promise_digest(coded) != locked.digest:
                raise ContractError(_DRIFT.format(id=ident, source="the code", lock=self._path))
            return coded
        written = self._definitions_in(locked.source).get(ident)
        if written is None:
            raise ContractError(
                f"{ident} is in force, and {locked.source} does not hold it any more. Put it back next to the newer "
                "one: several versions of a tool may stand in one file"
            )
        if promise_digest(written.contract) != locked.digest:
            raise ContractError(_DRIFT.format(id=ident, source=locked.source, lock=self._path))
        base = _code_for(version, own, entry)
        try:
            return _check_handler_fits(overlay_contract(base, written.fields))
        except ContractError as error:
            raise ContractError(f"{ident} in {locked.source}: {error}") from None

    def _definitions_in(self, source: str) -> Mapping[str, Definition]:
        found = self._files.get(source)
        if found is None:
            try:
                found = {one.contract.id: one for one in self._read_source(source)}
            except ConfigurationError as error:
                found = error
            self._files[source] = found
        if isinstance(found, ConfigurationError):
            raise found
        return found

    def _read_source(self, source: str) -> list[Definition]:
        file = self._path.parent / source
        if ":" in source and not file.exists():
            raise ContractError(f"{source} holds it in code, and this guard was not given that version")
        return read_contracts(file, name=source)


def _code_for(version: str, own: Sequence[Contract], entry: ToolLock) -> Contract:
    """Return the contract whose code runs a version: that of the same version, else of the stable one, else the first.

    A contract without a handler runs what the caller hands over, so it is no code that could be the wrong one.
    """
    by_version = {one.version: one for one in own}
    return by_version.get(version) or by_version.get(entry.stable or "") or own[0]


def overlay_contract(base: Contract, fields: Mapping[str, Any]) -> Contract:
    """Return a contract changed by a file's fields. Everything else stays: code and protections.

    Raises:
        ContractError: the two contradict each other.
    """
    changed: dict[str, Any] = {"version": "1", **fields}
    if not changed.get("description"):
        changed["description"] = base.description
    # Code cannot stand in a file, so code that judges or changes values stays wherever its place still exists.
    callables = tuple(rule for rule in base.invariants if callable(rule))
    changed["invariants"] = (*changed.get("invariants", _declared_invariants(base)), *callables)
    places = properties_of(changed.get("input_schema", base.input_schema))
    coded = {name: one for name, one in base.correctors.items() if has_user_code(one) and _top_argument(name) in places}
    changed["correctors"] = {**coded, **changed.get("correctors", _declared_correctors(base, places))}
    return dataclasses.replace(base, **changed)


def _declared_invariants(base: Contract) -> tuple[Any, ...]:
    return tuple(rule for rule in base.invariants if not callable(rule))


def _declared_correctors(base: Contract, places: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: one for name, one in base.correctors.items() if not has_user_code(one) and _top_argument(name) in places
    }


def _top_argument(place: str) -> str:
    """Return the argument that holds a corrector's place: `items` for `/items/*/size`."""
    return place.lstrip("/").partition("/")[0]


def _check_handler_fits(contract: Contract) -> Contract:
    """Return the contract if its handler takes its arguments: a call must not end in a TypeError after its claim."""
    takes = parameters_of(contract.function or contract.handler)
    if takes is None:
        return contract
    properties, required = properties_of(contract.input_schema), contract.input_schema.get("required", ())
    for name in properties:
        if name not in takes:
            raise ContractError(
                f"it lets the argument {name!r} through, which the handler does not take. Give the function that "
                "parameter with a default, or give the guard a function for this version"
            )
    for name, needed in takes.items():
        if needed and name not in required:
            raise ContractError(
                f"its calls may come without {name!r}, which the handler needs. Give that parameter a default, or "
                "give the guard a function for this version"
            )
    return contract


def _as_contract(given: GivenTool, lock: ContractLock, path: Path) -> Contract:
    """Return a contract unchanged; a plain function as a contract without promises, which the lock completes."""
    if isinstance(given, Contract):
        return given
    name = getattr(given, "__name__", "")
    if not callable(cast("object", given)) or name not in lock.tools:
        raise ConfigurationError(
            f"{given!r} is not a contract, and {path} has no tool of its name: decorate the function with "
            "@pokayoke.tool(effect=...), or lock a contract for it"
        )
    from pokayoke.runtime.tools.docstring import read_docstring  # noqa: PLC0415 - for plain functions only

    about = read_docstring(inspect.getdoc(given) or "").summary
    return Contract(name=name, handler=given, function=given, description=about)
