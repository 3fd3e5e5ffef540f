"""What every worker gets once: the versions it must have, and the contracts as text.

Compiled schemas and functions cannot be sent, so contracts travel as their declared fields and are compiled once per
worker. A contract whose arguments or answers user code checks is imported there, from the module it was named by.

In: sets of contracts.
Out: bytes, and from them a scorer.
Never: a worker that decides by other rules than the one that asked it.
"""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.policy import Policy
from pokayoke.errors import ConfigurationError
from pokayoke.replay.score.evaluate import Judge
from pokayoke.replay.score.scorer import Scorer
from pokayoke.replay.score.summary import ContractSet


class _SentSet(msgspec.Struct, frozen=True):
    """One set of contracts: their fields as data; the ids of those with user code, by the module to import."""

    policy: Policy
    contracts: list[dict[str, Any]]
    modules: dict[str, list[str]]


class Job(msgspec.Struct, frozen=True):
    """What was asked for, and by what versions.

    Attributes:
        pokayoke: version of the package.
        python: major and minor version of the interpreter.
        sets: one or two sets of contracts; none where contracts are learnt.
    """

    pokayoke: str
    python: str
    sets: list[_SentSet] = []


_INHERITED: Final = b"inherited"
# A forked worker inherits this: contracts may hold functions of any origin.
_inherited: Scorer | None = None


def pack_job(sets: Sequence[ContractSet] = ()) -> bytes:
    """Return what workers need to know.

    Args:
        sets: one or two sets of contracts; none where contracts are learnt.

    Raises:
        ConfigurationError: a contract holds user code and comes from no module that a worker could import.
    """
    return msgspec.msgpack.encode(Job(*_versions(), [_pack_set(one.judge, one.modules) for one in sets]))


def inherit_scorer(scorer: Scorer | None) -> bytes:
    """Let worker processes that are forked from now on use a scorer as it is, and return the job that says so."""
    global _inherited  # noqa: PLW0603 - inherited by the forked workers
    _inherited = scorer
    return _INHERITED


def load_scorer(job: bytes | Scorer) -> Scorer:
    """Return the scorer of a job; a scorer is one for its own process.

    Raises:
        ConfigurationError: this is another version than the one that asked, or its contracts cannot be imported.
    """
    if isinstance(job, Scorer):
        return job
    if job == _INHERITED:
        assert _inherited is not None, "forked with it"
        return _inherited
    return _load_scorer(job)


@functools.lru_cache(maxsize=4)
def _load_scorer(job: bytes) -> Scorer:
    # The versions alone first: another version may have written the rest in another form.
    asked = msgspec.msgpack.decode(job, type=dict[str, Any])
    here, there = _versions(), (asked.get("pokayoke"), asked.get("python"))
    if here != there:
        raise ConfigurationError(
            f"a worker has pokayoke {here[0]} on Python {here[1]}, and was asked by pokayoke {there[0]} on Python "
            f"{there[1]}. Install the same versions on both"
        )
    return Scorer([_load_set(one) for one in msgspec.msgpack.decode(job, type=Job).sets])


def _versions() -> tuple[str, str]:
    return metadata.version("pokayoke"), f"{sys.version_info.major}.{sys.version_info.minor}"


def _pack_set(judge: Judge, names: Sequence[str]) -> _SentSet:
    coded = [one for one in judge.contracts if one.input_hooks or one.output_hooks]
    modules = {name: [one.id for one in import_contracts(name) if one in coded] for name in names}
    reachable = {ident for idents in modules.values() for ident in idents}
    if lacking := [one.id for one in coded if one.id not in reachable]:
        raise ConfigurationError(
            f"{', '.join(lacking[:10])}: holds functions, which cannot be sent to workers. Name the contracts as "
            "MODULE:ATTRIBUTE, and install that module on the workers"
        )
    return _SentSet(judge.policy, [one.to_mapping() for one in judge.contracts], modules)


def _load_set(sent: _SentSet) -> Judge:
    coded: dict[str, Contract] = {}
    for name, idents in sent.modules.items():
        if idents:
            coded |= {one.id: one for one in import_contracts(name) if one.id in idents}
    return Judge([_build_contract(mapping, coded) for mapping in sent.contracts], sent.policy)


def _build_contract(mapping: dict[str, Any], coded: dict[str, Contract]) -> Contract:
    found = coded.get(f"{mapping['name']}@{mapping['version']}")
    if found is None:
        return Contract.from_mapping(mapping)
    if found.to_mapping() != mapping:
        raise ConfigurationError(f"{found.id} is another contract on a worker. Install the same module on both")
    return found


def import_contracts(name: str) -> list[Contract]:
    """Import a module (its code runs) and return the contracts of its attribute.

    Args:
        name: `module:attribute` of a guard, a tool or a list of tools.

    Raises:
        ConfigurationError: it cannot be imported, or holds no tools.
    """
    return list_contracts(name, import_attribute(name))


def import_attribute(name: str) -> Any:
    """Import a module (its code runs) and return the attribute behind the colon.

    Raises:
        ConfigurationError: it cannot be imported.
    """
    try:
        return pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:  # a user's module may do anything while it is imported
        raise ConfigurationError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def list_contracts(name: str, found: Any) -> list[Contract]:
    """Return the contracts of a guard, a tool or a list of tools.

    Raises:
        ConfigurationError: it is none of them; the message has the name.
    """
    found = getattr(found, "tools", found)
    items: list[Any] = [found]
    if not isinstance(found, Contract):
        items = [*found] if isinstance(found, (list, tuple, set, frozenset)) else []
    contracts = [item for item in items if isinstance(item, Contract)]
    if not contracts or len(contracts) != len(items):
        raise ConfigurationError(f"{name} holds no tools: expected a guard, a tool, or a list of tools")
    return contracts
