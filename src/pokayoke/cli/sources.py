"""Loads what a user names: configuration files, tool definitions, tools in Python modules.

In: names of files and `module:attribute` references.
Out: contracts, a policy, and problems to fix.
Never: a source that is skipped without a problem.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from pokayoke.core.catalogue.unknown_names import unknown_names, unknown_sources
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.plan import Snapshot
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.policy import Policy
from pokayoke.core.state.loop_guard import Kind, unknown_kinds
from pokayoke.errors import ConfigurationError
from pokayoke.replay.job import import_attribute, list_contracts
from pokayoke.runtime.config.config import KeyPath, dotted_path, load_policy
from pokayoke.runtime.config.contract_files import DEFINING_KEYS, parse_definition, read_definitions
from pokayoke.runtime.config.yaml_reader import read_document
from pokayoke.runtime.tools.own_tools import OWN_TOOLS

DEFAULT_CONFIG: Final = "pokayoke.yaml"
MODULE_ATTRIBUTE: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*:[A-Za-z_]\w*(?:\.\w+)*")
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_OPTIONS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Policy))


class SourceProblem(msgspec.Struct, frozen=True):
    """One problem to fix.

    Args:
        code: stable name.
        where: file and line, tool, or `module:attribute`.
        message: what is wrong and what to do.
    """

    code: str
    where: str
    message: str


class LoadedSources(msgspec.Struct):
    """The content of all sources."""

    contracts: list[Contract] = []
    problems: list[SourceProblem] = []
    modules: list[str] = []  # the `module:attribute` references among them
    config: str | None = None
    policy: Policy = Policy()
    kinds: tuple[Kind, ...] | None = None  # of failure; None if no guard says whether it has kinds of its own


def read_sources(names: Iterable[str], *, config: str | None, trust_hints: bool) -> LoadedSources:
    """Read configuration files, definition files and `module:attribute` references.

    A guard brings its own policy along, which applies unless a configuration is named as well.

    Args:
        names: of the sources.
        config: a configuration file, or None for `pokayoke.yaml` if that exists.
        trust_hints: whether to believe the annotations of MCP listings.

    Raises:
        ConfigurationError: a source cannot be read at all. A mistake inside one is a problem.
    """
    material = LoadedSources(contracts=[], problems=[], modules=[])
    listed = list(dict.fromkeys(names))
    named = config is not None or any(_is_config(name) for name in listed)
    if config is None and not named and Path(DEFAULT_CONFIG).is_file():
        config = DEFAULT_CONFIG
    for name in [*([config] if config and config not in listed else []), *listed]:
        if name == config or _is_config(name):
            _load_config(name, material)
        elif MODULE_ATTRIBUTE.fullmatch(name) and not Path(name).exists():
            found = _import_attribute(name)
            material.modules.append(name)
            material.contracts += list_contracts(name, found)
            if isinstance(snapshot := getattr(found, "snapshot", None), Snapshot):
                material.kinds = (*(material.kinds or ()), *snapshot.kinds)
            if not named and isinstance(policy := getattr(found, "policy", None), Policy):
                material.policy, material.config = policy, f"the policy of {name}"
        elif not Path(name).exists() and Path(name).suffix not in _SUFFIXES:
            raise ConfigurationError(f"{name}: no such file; tools in a module are named as MODULE:ATTRIBUTE")
        else:
            _load_definitions(name, material, trust_hints=trust_hints)
    return material


def unknown_name_problems(material: LoadedSources) -> Iterator[SourceProblem]:
    """Yield the names in configuration and contracts that match no tool and no kind of failure: they have no effect."""
    unknown = list(unknown_kinds(material.policy.loop, material.kinds or ()))
    if unknown:
        known = material.kinds is not None
        own = "" if known else "; one of your own is known if its guard is named as MODULE:ATTRIBUTE"
        at = _config_locator(material.config)
        yield from (SourceProblem("misnamed", at(place), text + own) for place, text in unknown)
    # Without tools, or with some that could not be read, the set of names is unknown.
    if not material.contracts or any(problem.code == "definition" for problem in material.problems):
        return
    found = list(unknown_names(material.policy, material.contracts, OWN_TOOLS))
    if found:
        at = _config_locator(material.config)
        yield from (SourceProblem("misnamed", at(place), f"`{dotted_path(place)}` {text}") for place, text in found)
    yield from (SourceProblem("misnamed", *wrong) for wrong in unknown_sources(material.contracts, OWN_TOOLS))


def _config_locator(config: str | None) -> Callable[[KeyPath], str]:
    """Return a function from a place of the configuration to its file and line, or to the policy's origin."""
    if config is None or not Path(config).is_file():
        return lambda _: config or "configuration"
    return read_document(Path(config).read_bytes(), name=config).location_of


def _is_config(name: str) -> bool:
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    try:
        value = read_document(path.read_bytes(), name=name).value
    except ConfigurationError:
        return True  # it does not even parse: the configuration reader reports why
    if not is_object(value):
        return not is_array(value)  # a list holds contracts
    keys = value.keys()
    return not keys or bool(_OPTIONS & keys) or (not DEFINING_KEYS & keys and any(map(_is_misspelt, keys)))


def _is_misspelt(key: str) -> bool:
    """True if a key nearly matches an option: the configuration reader reports which."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for a file without any known key

    return bool(get_close_matches(key.lower(), _OPTIONS, n=1, cutoff=0.8))


def _load_config(name: str, material: LoadedSources) -> None:
    material.config = name
    if not Path(name).is_file():
        raise ConfigurationError(f"{name}: {'is a folder' if Path(name).is_dir() else 'no such file'}")
    try:
        material.policy = load_policy(name)
    except ConfigurationError as error:
        material.problems += [SourceProblem("config", name, line) for line in str(error).splitlines()]


def load_from_module(name: str) -> list[Contract]:
    """Import the module (its code runs) and return the contracts its attribute holds.

    Raises:
        ConfigurationError: it cannot be imported, or holds no tools.
    """
    return list_contracts(name, _import_attribute(name))


def _import_attribute(name: str) -> Any:
    folder = os.getcwd()  # noqa: PTH109 - an entry of sys.path is a string
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_attribute(name)


def _load_definitions(name: str, material: LoadedSources, *, trust_hints: bool) -> None:
    for place, definition in read_definitions(Path(name), name=name):
        try:
            material.contracts.append(Contract(**parse_definition(definition, trust_hints=trust_hints)))
        except ConfigurationError as error:
            material.problems.append(SourceProblem("definition", place, str(error)))


def refuse_to_overwrite(given: Iterable[str], **written: str | None) -> None:
    """Refuse to overwrite a file that is read: a recording cannot be made again.

    Args:
        given: names of the inputs; those of no file are skipped.
        written: output files by the names of their options; None if an option is not given.

    Raises:
        ConfigurationError: an input is also an output.
    """
    read = [Path(name) for name in given if Path(name).exists()]
    for option, name in written.items():
        if name is not None and Path(name).exists() and any(Path(name).samefile(one) for one in read):
            raise ConfigurationError(f"--{option} {name} is one of the files to be read. Name another one")
