"""Contracts from the tools of a framework.

In: the framework's tools, each as a `ToolDescription`. Out: one contract per tool. Never: a tool taken for a read
that the programmer did not declare one, or an output contract that nobody has written down.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, get_args, get_type_hints

from pokayoke.core.call import UNDECLARED, Effect, Finding
from pokayoke.core.contract.contract import Contract, OutputSchema
from pokayoke.core.flow.plan import CallPlan
from pokayoke.errors import UsageError
from pokayoke.runtime.guard.guard import Guard

_FRAMEWORKS = frozenset({
    "agent_framework", "agents", "autogen_agentchat", "autogen_core", "autogen_ext", "crewai", "fastmcp", "google",
    "langchain", "langchain_core", "langgraph", "mcp", "mcp_types", "openai", "pydantic_ai",
})  # fmt: skip
"""Packages whose types say how a framework goes on, and not what a tool returns."""


class ToolDescription(NamedTuple):
    """A framework's tool, as its adapter describes it.

    Attributes:
        name: its name, as the model reads it.
        description: what the model reads of it.
        schema: the JSON Schema of its arguments, as the model reads it.
        timeout: its deadline in seconds, or None.
        only_if_named: True for a tool that has a contract only if the programmer names it.
        output: what it promises to return; None if nothing does, see `annotated_output`.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    timeout: float | None = None
    only_if_named: bool = False
    output: OutputSchema = None


class BuildContracts(Protocol):
    """The `contracts` function of an adapter."""

    def __call__(
        self,
        tools: Any,
        *,
        reads: Collection[str] = (),
        destructive: Collection[str] = (),
        fields: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Contract]:
        """Build the contracts of an agent's tools.

        A tool that is not declared is a write. Its output is held to the return annotation of its function, `dict` and
        `list` included; without one it is an unchecked text. A schema that names its properties and
        does not say whether there may be others is closed; `"additionalProperties": true` keeps it open.

        Args:
            tools: the tools as the agent gets them. Tools that the provider runs itself have no contract.
            reads: names of the tools that change nothing.
            destructive: names of the tools whose effect cannot be undone.
            fields: further fields of the contracts, by tool name, such as `{"refund": {"identity": ("order",)}}`.

        Raises:
            UsageError: a tool is named that does not exist.
            ContractError: a field contradicts another or its schema.
        """
        ...


def contracts_builder(
    describe: Callable[[Any], Iterable[ToolDescription]], *, no_effect_errors: tuple[type[Exception], ...] = ()
) -> BuildContracts:
    """Return the `contracts` function of an adapter.

    Args:
        describe: returns the descriptions of an agent's tools.
        no_effect_errors: exceptions by which the framework steers itself; they prove that nothing happened.
    """

    def contracts(
        tools: Any,
        *,
        reads: Collection[str] = (),
        destructive: Collection[str] = (),
        fields: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Contract]:
        described = describe(tools)
        return build_contracts(
            described, reads=reads, destructive=destructive, fields=fields, no_effect_errors=no_effect_errors
        )

    contracts.__doc__ = BuildContracts.__call__.__doc__
    contracts.__module__ = describe.__module__
    return contracts


def build_contracts(
    tools: Iterable[ToolDescription],
    *,
    reads: Collection[str] = (),
    destructive: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
    no_effect_errors: tuple[type[Exception], ...] = (),
) -> list[Contract]:
    """Build contracts as `BuildContracts` says, from described tools.

    Frameworks silently drop an argument that a tool does not take, so a schema is closed unless it says otherwise.

    Raises:
        UsageError: a tool is named that does not exist.
        ContractError: a field contradicts another or its schema.
    """
    more = fields or {}
    named = {*reads, *destructive, *more}
    known = [one for one in tools if not one.only_if_named or one.name in named]
    if strangers := sorted(named - {one.name for one in known}):
        raise UsageError(f"no tool is called {', '.join(strangers)}: correct reads=, destructive= or fields=")
    made: list[Contract] = []
    for one in known:
        # Not the literal "write": what a lookup returns that nobody declared would count as made by the run itself.
        effect: Effect = "read" if one.name in reads else "destructive" if one.name in destructive else UNDECLARED
        given: dict[str, Any] = {"description": one.description, "effect": effect, "output_schema": one.output}
        if one.timeout is not None:
            given["timeout"] = one.timeout
        given.update(more.get(one.name, {}))
        if given.get("thread") is not None:
            raise UsageError(f"{one.name}: leave thread out, the framework decides where its sync tools run")
        given["no_effect_errors"] = (*given.get("no_effect_errors", ()), *no_effect_errors)
        made.append(Contract.from_schema(one.name, _close_schema(one.schema), **given))
    return made


def annotated_output(function: Any) -> OutputSchema:
    """Return what a function's return annotation promises, as `@pokayoke.tool` reads it.

    Args:
        function: the function behind a framework's tool, if there is one.

    Returns:
        A schema, or "text" for `str`. None if there is no annotation, or it says nothing about data: it cannot be
        resolved, no JSON has that type, or it is one of a framework's own.
    """
    written = inspect.unwrap(function) if callable(function) else None
    written = getattr(written, "func", written)  # of a partial
    if written is None or inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written):
        return None
    from pokayoke.core.contract.python_types import output_schema_of  # noqa: PLC0415 - it needs pydantic

    said = {name: hint for name, hint in getattr(written, "__annotations__", {}).items() if name == "return"}
    try:
        hints = get_type_hints(SimpleNamespace(__annotations__=said), written.__globals__, include_extras=True)
        kind = hints.get("return", Any)
        return None if _is_framework_type(kind) else output_schema_of(kind, "the output")
    except Exception:  # noqa: BLE001 - no JSON has this type, or it is a text: code, perhaps for a type checker only
        return None


def _is_framework_type(kind: Any) -> bool:
    """Return whether a type, or one of those that it is made of, is a framework's own."""
    module = str(getattr(kind, "__module__", ""))
    return module.partition(".")[0] in _FRAMEWORKS or any(map(_is_framework_type, get_args(kind)))


def require_contract(
    guard: Guard, name: str, remedy: str = "give its tool to contracts(), and those to the guard"
) -> CallPlan:
    """Return the plan of a tool's calls.

    Raises:
        UsageError: the guard has no contract of that very name; the text ends with `remedy`.
    """
    plan = guard.snapshot.find_plan(name)
    if isinstance(plan, Finding) or plan.contract.name != name:
        raise UsageError(f"{name} has no contract: {remedy}")
    return plan


_OPENERS = frozenset({
    "additionalProperties", "unevaluatedProperties", "patternProperties", "allOf", "anyOf", "oneOf", "if", "$ref",
    "$dynamicRef", "dependentSchemas",
})  # fmt: skip
"""Keywords of a schema that say something of properties beside `properties`."""


def _close_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" not in schema or _OPENERS & schema.keys():
        return dict(schema)
    return {**schema, "additionalProperties": False}
