"""Shared by the commands of `pokayoke contracts`: the lock, the contracts it names, and who takes a step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from pokayoke.cli.options import current_time, format_time
from pokayoke.cli.sources import MODULE_ATTRIBUTE, load_from_module
from pokayoke.core.contract.contract import Contract
from pokayoke.core.versions.lock import ContractLock, StepReason, ToolLock, promise_digest
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.runtime.config.contract_files import read_contracts
from pokayoke.runtime.versions.lock_file import NAME

LockOption = Annotated[str, typer.Option("--lock", help="The lock.")]
ByOption = Annotated[str, typer.Option("--by", envvar="POKAYOKE_BY", show_envvar=True, help="Who; kept in the lock.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the lock.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
DEFAULT_LOCK: Final = NAME


class Drift(msgspec.Struct, frozen=True):
    """A version whose file differs from what was locked.

    Args:
        contract: `name@version`.
        source: its file, or `module:attribute`.
        why: what is wrong.
        in_force: True if some run may get it.
    """

    contract: str
    source: str
    why: str
    in_force: bool


def build_step_reason(by: str, reason: str) -> StepReason:
    """Return who takes a step now, and why.

    Raises:
        ConfigurationError: one of them is empty.
    """
    for option, text in (("--by", by), ("--reason", reason)):
        if not text.strip():
            raise ConfigurationError(f"{option} is empty, and the lock keeps who did a step and why")
    return StepReason(format_time(current_time()), by.strip(), reason.strip())


def parse_tool_version(text: str) -> tuple[str, str]:
    """Return tool and version of `TOOL@VERSION`.

    Raises:
        ConfigurationError: one of them is missing.
    """
    name, _, version = text.rpartition("@")
    if not name or not version:
        raise ConfigurationError(f"{text!r}: expected TOOL@VERSION, such as get_order@2")
    return name, version


def relative_source(name: str, lock: Path) -> str:
    """Return how the lock names a file or `module:attribute`: files relative to its folder."""
    if is_module_attribute(name):
        return name
    return Path(os.path.relpath(Path(name).absolute(), lock.absolute().parent)).as_posix()


def is_module_attribute(name: str) -> bool:
    """Return whether a source is `module:attribute` and not a file."""
    return MODULE_ATTRIBUTE.fullmatch(name) is not None and not Path(name).exists()


class LockedContracts:
    """The contracts in the sources of a lock, each source read once.

    Args:
        path: of the lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: dict[str, dict[str, Contract] | ConfigurationError] = {}

    def load_source(self, source: str) -> dict[str, Contract]:
        """Return the contracts of a source by id.

        Raises:
            ConfigurationError: it cannot be read.
        """
        found = self._read.get(source)
        if found is None:
            try:
                found = {one.id: one for one in load_contracts(source, self._path.parent)}
            except ConfigurationError as error:
                found = error
            self._read[source] = found
        if isinstance(found, ConfigurationError):
            raise found
        return found

    def load_contract(self, lock: ContractLock, name: str, version: str) -> Contract:
        """Return a locked version unchanged.

        Raises:
            ContractError: it is missing, or differs from what was locked.
            ConfigurationError: the version is unknown, or its source cannot be read.
        """
        tool = lock.tools.get(name)
        locked = tool.versions.get(version) if tool else None
        if locked is None:
            raise ConfigurationError(f"{name}@{version} is not locked in {self._path}. Try: pokayoke contracts status")
        found = self.load_source(locked.source).get(f"{name}@{version}")
        if found is None:
            raise ContractError(f"{locked.source} does not hold {name}@{version} any more. Put it back, or drop it")
        if promise_digest(found) != locked.digest:
            raise ContractError(
                f"{name}@{version} in {locked.source} is not what is locked under that version. Undo the change, or "
                "give the changed contract a new version"
            )
        return found

    def find_drifts(self, lock: ContractLock) -> Iterator[Drift]:
        """Yield every version that differs from what was locked."""
        for name, tool in lock.tools.items():
            for version, locked in tool.versions.items():
                try:
                    self.load_contract(lock, name, version)
                except ConfigurationError as error:
                    yield Drift(f"{name}@{version}", locked.source, str(error), version in tool.in_force)

    def find_unlocked(self, lock: ContractLock) -> Iterator[str]:
        """Yield contracts in a source that are not locked."""
        for source in sorted({one.source for tool in lock.tools.values() for one in tool.versions.values()}):
            try:
                found = self.load_source(source)
            except ConfigurationError:
                continue
            for contract in found.values():
                tool: ToolLock | None = lock.tools.get(contract.name)
                if tool is None or contract.version not in tool.versions:
                    yield f"{contract.id} in {source}"


def load_contracts(source: str, folder: Path) -> list[Contract]:
    """Return the contracts of a file, or of a module's attribute (its code runs).

    Raises:
        ConfigurationError: they cannot be read.
    """
    file = folder / source
    if not file.exists() and MODULE_ATTRIBUTE.fullmatch(source):
        return load_from_module(source)
    return [one.contract for one in read_contracts(file, name=source)]
