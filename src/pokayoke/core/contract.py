"""What a tool promises: one frozen value per tool and version.

JSON Schema is the single source of truth; whatever a contract comes from (a function, a model, a
provider's definition, a listing) ends up here. Everything that can contradict itself is checked
while building, so that nothing has to be checked during a call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pokayoke.core.call import Effect, Finding
from pokayoke.core.policy import LimitPolicy, RetryPolicy, ToolOutputPolicy
from pokayoke.core.schema import Schema, compile_schema
from pokayoke.core.terms import Compare, Declared, Envelope, Equal, Format, Range
from pokayoke.errors import ContractError

__all__ = [
    "Compare",
    "Contract",
    "Envelope",
    "Equal",
    "Format",
    "Invariant",
    "Range",
    "require_output_contract",
]

Scope = Literal["run", "session", "tenant", "global"]
OnAmbiguous = Literal["human", "lookup", "downstream_key", "rerun_safe"]
LookupSafe = Literal["downstream_key", "executor_dead", "settled"]
OutputSchema = dict[str, Any] | bool | Literal["text"] | None
Invariant = Callable[[Any, dict[str, Any]], bool | str | None] | Declared
InputModel = Callable[[dict[str, Any]], "tuple[dict[str, Any], tuple[Finding, ...]]"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contract:
    """What one version of one tool promises. Build it, or let a source build it; then it is fixed.

    Raises:
        ContractError: a field contradicts another or its schema; the message says what to change.
    """

    name: str
    """The tool's own name. Providers with a smaller alphabet get a mapped one."""
    version: str = "1"
    """Part of the identity: `name@version`."""
    description: str = ""
    """What the model reads about the tool."""
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of the arguments, with the `key_argument` if there is one."""
    output_schema: OutputSchema = None
    """JSON Schema of the result, `"text"` for free text, None if nothing is promised."""
    effect: Effect = "write"
    """read, write or destructive. What is not declared is a write."""
    open_world: bool = True
    """True if the tool talks to something outside the operator's control."""
    idempotent: bool = False
    """True if running it twice with equal arguments is the same as once."""
    identity: tuple[str, ...] | None = None
    """Arguments that say which effect this is; None means all of them."""
    scope: Scope = "run"
    """Within what an equal effect happens once."""
    sources: tuple[str, ...] | None = None
    """Tools whose output this one is based on; None means all."""
    timeout: float | None = None
    """Deadline in seconds; None if not declared (the policy's holds)."""
    retry: RetryPolicy | None = None
    """How transient failures are repeated; None is the policy's."""
    on_ambiguous: OnAmbiguous = "human"
    """What settles a call of which nobody knows whether it happened."""
    lookup: Callable[..., Any] | None = None
    """Asks the target whether an effect happened: `lookup(key, arguments)`."""
    lookup_safe: LookupSafe | None = None
    """Why "not found" allows a second execution: the target drops repeats of our key
    (`downstream_key`), the executor runs in a child that is killed and reaped before its lease
    ends (`executor_dead`), or `settle_after` has passed since it died (`settled`)."""
    settle_after: float | None = None
    """Longest time in seconds the target may need after the executor has died."""
    max_chars: int | None = None
    """Longest output in characters; None is the policy's."""
    content_type: str | None = None
    """Media type a wire response must carry; None is the policy's."""
    invariants: tuple[Invariant, ...] = ()
    """What holds for every output: declarative values, or callables `(output, arguments)` that
    return None or True if all is well, False or a sentence if not."""
    envelope: Envelope | None = None
    """How the tool wraps its answer and declares failure."""
    correctors: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Argument name (or JSON pointer) to the corrector or correctors that may change it."""
    extract: Callable[[str], Any] | None = None
    """Turns free text into the structure that the output schema describes."""
    output_checks: Literal["full", "size_only"] = "full"
    """`size_only` for a tool that is typed end to end: only the size is checked."""
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Argument name to the roots its path must stay in."""
    roles: tuple[str, ...] = ()
    """Roles of which the principal must hold one; empty means anybody."""
    quota: tuple[LimitPolicy, ...] = ()
    """Limits of this tool, beside the policy's."""
    approval: bool = False
    """True if a person has to approve every call."""
    key_argument: str | None = None
    """Argument the guard fills with the ledger key; the model never sees it."""
    secret: bool = False
    """True if results are never kept: no last-known-good, no payload in the trace."""
    redact: tuple[str, ...] = ()
    """Field names whose values are never written down."""
    no_effect_errors: tuple[type[BaseException], ...] = ()
    """Exceptions of the handler that prove that nothing happened."""
    transient_errors: tuple[type[BaseException], ...] = ()
    """Exceptions of the handler that may go away by themselves."""
    handler: Callable[..., Any] | None = None
    """The function that does it; None if the caller invokes the tool."""
    validate_input: InputModel | None = None
    """Runs after the schema: returns the arguments to use and what is wrong with them."""
    schemas: Mapping[str, Any] | None = None
    """Documents that `$ref` may reach, by absolute URI."""
    defined_in_code: bool = False
    """True if the operator wrote it (then strict mode wants an output contract)."""

    input: Schema = field(init=False, repr=False)
    """The compiled schema of what the model may send (without the `key_argument`)."""
    output: Schema | None = field(init=False, repr=False)
    """The compiled output schema; None if the output is text or unchecked."""
    model_schema: dict[str, Any] = field(init=False, repr=False)
    """The input schema as the model sees it."""
    id: str = field(init=False)
    """`name@version`."""
    unchecked: bool = field(init=False, repr=False)
    """True if nothing is promised about the output."""
    is_async: bool = field(init=False, repr=False)
    """True if the handler is a coroutine function."""
    input_hooks: bool = field(init=False, repr=False)
    """True if user code runs on the input side."""
    output_hooks: bool = field(init=False, repr=False)
    """True if user code runs on the output side."""

    def __post_init__(self) -> None:
        """Compile the schemas and refuse contradictions."""
        seal = object.__setattr__
        seal(self, "id", f"{self.name}@{self.version}")
        seal(self, "model_schema", self.input_schema)
        seal(self, "input", compile_schema(self.input_schema, where=f"input schema of {self.name!r}", resources=self.schemas))
        output = self.output_schema
        compiled = None
        if output is not None and output != "text":
            compiled = compile_schema(output, where=f"output schema of {self.name!r}", resources=self.schemas)
        seal(self, "output", compiled)
        seal(self, "unchecked", output is None)
        seal(self, "is_async", inspect.iscoroutinefunction(self.handler))
        seal(self, "input_hooks", bool(self.validate_input) or any(map(callable, self.correctors.values())))
        seal(self, "output_hooks", self.extract is not None or any(map(callable, self.invariants)))

    @property
    def text_output(self) -> bool:
        """True if the output is declared to be free text."""
        return self.output_schema == "text"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the handler as it was written, unguarded; for tests of the tool itself."""
        if self.handler is None:
            raise ContractError(f"{self.id} has no handler to call")
        return self.handler(*args, **kwargs)

    @classmethod
    def from_schema(
        cls,
        name: str,
        input_schema: dict[str, Any],
        *,
        output_schema: OutputSchema = None,
        effect: Effect = "write",
        handler: Callable[..., Any] | None = None,
        schemas: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Contract:
        """Build a contract from a JSON Schema (Zod's `toJSONSchema` output too).

        Args:
            name: the tool's name.
            input_schema: schema of the arguments.
            output_schema: schema of the result, "text", or None.
            effect: read, write or destructive.
            handler: the function that does it, if pokayoke runs it.
            schemas: documents that `$ref` may reach, by absolute URI.
            fields: any other field of the contract.

        Raises:
            ContractError: see `Contract`.
        """
        return cls(
            name=name,
            input_schema=input_schema,
            output_schema=output_schema,
            effect=effect,
            handler=handler,
            schemas=schemas,
            **fields,
        )


def require_output_contract(contracts: Iterable[Contract], policy: ToolOutputPolicy) -> None:
    """Refuse tools defined in code that promise nothing about their output, if policy is strict.

    Raises:
        ContractError: names the tools and the fix.
    """
    if policy.schema != "strict":
        return
    open_ended = [contract.id for contract in contracts if contract.defined_in_code and contract.unchecked]
    if open_ended:
        raise ContractError(
            f"no output contract: {', '.join(open_ended)}. Declare output= (a schema, a type, or \"text\" for "
            "free text), annotate the return type, or set validation.tool_output.schema to declared."
        )
