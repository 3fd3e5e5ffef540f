"""Contracts: what each version of a tool promises, as one frozen value.

In: fields, a function, a model, a provider's definition or an MCP listing.
Out: a contract with compiled schemas, or a ContractError.
Never: a contradiction that is found during a call; `core/contract/rules.py` checks all of it while building.

JSON Schema is the single source of truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pokayoke.core.call import UNDECLARED, Effect, Finding
from pokayoke.core.check.argument_checks import ArgumentChecks
from pokayoke.core.contract import importers
from pokayoke.core.contract.arguments import (
    declared_defaults,
    has_url_argument,
    has_user_code,
    is_async,
    refuse_argument,
    remove_argument,
)
from pokayoke.core.contract.rules import build_correctors, check_contract, normalise_fields
from pokayoke.core.contract.terms import (
    DeclaredInvariant,
    Envelope,
    LookupSafe,
    OnAmbiguous,
    OnInvalidOutput,
    OutputChecks,
    Polls,
    Repeats,
    Scope,
    Thread,
)
from pokayoke.core.contract.url_rule import UrlRule
from pokayoke.core.json.pointer import parse_pointer
from pokayoke.core.policy import LimitPolicy, RetryPolicy, ToolOutputPolicy
from pokayoke.core.provenance.labels import Labels
from pokayoke.core.schema.accepts_text import may_accept_text
from pokayoke.core.schema.schema import Schema, compile_schema
from pokayoke.core.text.clip import clip
from pokayoke.errors import ContractError

if TYPE_CHECKING:
    from pokayoke.core.contract.correctors import Correctors

OutputSchema = dict[str, Any] | bool | Literal["text"] | None
Invariant = Callable[[Any, dict[str, Any]], bool | str | None] | DeclaredInvariant
ContractT = TypeVar("ContractT", bound="Contract")
InputModel = Callable[[dict[str, Any]], tuple[dict[str, Any], tuple[Finding, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contract:
    """What one version of one tool promises. It cannot be changed once it is built.

    Two contracts are equal only if they are the same object. `dataclasses.replace` makes a changed copy.

    Raises:
        ContractError: a field contradicts another or its schema; the message says what to change.
    """

    name: str
    """The tool's own name. Providers with a smaller alphabet get a mapped name."""
    version: str = "1"
    """Part of the identity: `name@version`."""
    description: str = ""
    """The description that the model reads."""
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of the arguments, including the `key_argument` if there is one."""
    output_schema: OutputSchema = None
    """JSON Schema of the result, `"text"` for free text, None if nothing is promised."""
    effect: Effect = UNDECLARED
    """read, write or destructive. An undeclared effect is a write."""
    open_world: bool | None = None
    """True if the tool talks to something outside the operator's control; None if nobody has said so."""
    labels: Labels | None = None
    """What its outputs and arguments are to provenance, where name and schema do not say it: see `Labels`."""
    idempotent: bool = False
    """True if running it twice with equal arguments has the same effect as once."""
    identity: tuple[str, ...] | None = None
    """Arguments that identify the effect; None means all of them."""
    scope: Scope = "run"
    """The scope within which an equal effect happens once."""
    sources: tuple[str, ...] | None = None
    """Tools whose output this tool is based on; None means all, () means none."""
    timeout: float | None = None
    """Deadline in seconds; None means the policy's. A synchronous run cuts a sync handler only at a declared one."""
    thread: Thread | None = None
    """`caller` keeps a sync handler in the thread of its caller, where nothing can cut it; None runs it in a worker
    thread wherever it has a deadline, with a copy of the caller's context variables."""
    retry: RetryPolicy | None = None
    """How transient failures are retried; None means the policy's retries for reads and none for writes."""
    on_ambiguous: OnAmbiguous = "human"
    """How a call is settled if it is unknown whether its effect happened."""
    lookup: Callable[..., Any] | None = None
    """Asks the target whether an effect happened: `lookup(key, arguments)`."""
    lookup_safe: LookupSafe | None = None
    """Why "not found" allows a second execution: the target drops repeats of our key (`downstream_key`), the executor
    runs in a child process that is killed and reaped before its lease ends (`executor_dead`), or `settle_after` has
    passed since it died (`settled`)."""
    settle_after: float | None = None
    """Longest time in seconds the target may need after the executor has died."""
    forwards_key: bool = False
    """True if the handler hands `pokayoke.this_effect().key` to its target by itself (header, `_meta`)."""
    key_epoch: int = 0
    """Part of the ledger key; raise it to make every effect count as new."""
    volatile: tuple[str, ...] = ()
    """Arguments that do not make a call another one: two calls that differ only there are repetitions."""
    repeats: Repeats | None = None
    """When an equal call whose caller has seen the answer of the effect before it is a new effect: `once` after a
    person's yes in a later turn, `turn` in a later turn or after another effect of the run, `each` always; None is
    `once` with `identity`, a wider scope than the run, `destructive`, or a key that the target gets, else `turn`."""
    compensate: Callable[..., Any] | None = None
    """Undoes an effect, called with a `Compensation`; only `pokayoke ledger reconcile --compensate` calls it."""
    max_chars: int | None = None
    """Longest output in characters; None means the policy's limit."""
    content_type: str | None = None
    """Media type that a wire response must have; None means the policy's."""
    invariants: tuple[Invariant, ...] = ()
    """Rules for every output: declarative values, or callables `(output, arguments)` that return None or True if the
    rule holds, False or a sentence if not."""
    envelope: Envelope | None = None
    """How the tool wraps its answer and reports failure."""
    correctors: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Argument name (or JSON pointer) to the corrector or correctors that may change it."""
    extract: Callable[[str], Any] | None = None
    """Turns free text into the structure that the output schema describes."""
    on_invalid_output: OnInvalidOutput | None = None
    """How a run goes on after an invalid output of this tool; None means the policy's `safe_mode.on_invalid_output`."""
    output_checks: OutputChecks = "full"
    """`size_only` checks only the size, for a tool that is typed end to end."""
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Argument name to the roots its path (or every path of its list) must stay in."""
    urls: Mapping[str, UrlRule] = field(default_factory=dict[str, UrlRule])
    """Argument name to what its URL (or every URL of its list) may reach."""
    roles: tuple[str, ...] = ()
    """Roles of which the principal needs one; empty means that no role is needed."""
    quota: tuple[LimitPolicy, ...] = ()
    """Limits of this tool, in addition to the policy's."""
    approval: bool = False
    """True if a person must approve every call."""
    literal: tuple[str, ...] = ()
    """Arguments whose texts are what they say: no placeholder, markup or lost backslash is looked for there."""
    key_argument: str | None = None
    """Argument that the guard fills with the ledger key; the model never sees it."""
    secret: bool = False
    """True if results are never stored: no last-known-good output, no payload in the trace."""
    redact: tuple[str, ...] = ()
    """Field names whose values are never written to trace or ledger."""
    no_effect_errors: tuple[type[Exception], ...] = ()
    """Exceptions of the handler that prove that it had no effect."""
    transient_errors: tuple[type[Exception], ...] = ()
    """Exceptions of the handler that a retry may avoid."""
    polls: Polls | bool = False
    """True (or `Polls(...)`) if it is called again and again until something has happened: then only calls that follow
    each other too fast are repetitions."""
    handler: Callable[..., Any] | None = None
    """The function that runs the tool, called with the arguments by name; None if the caller invokes the tool."""
    function: Callable[..., Any] | None = None
    """The original function, if the handler converts arguments before calling it."""
    validate_input: InputModel | None = None
    """A model's own validators: returns the arguments to use and their findings."""
    before_validators: tuple[str, ...] = ()
    """Arguments with a validator of their own that runs before the type's check; `tool` and `from_model` find them."""
    schemas: Mapping[str, Any] | None = None
    """Documents that `$ref` may reach, by absolute URI."""
    defined_in_code: bool = False
    """True if it is defined in the operator's code (then only `schema: declared` spares it an output contract)."""

    input: Schema = field(init=False, repr=False)
    """The compiled schema of the arguments that the model may send (without the `key_argument`)."""
    checks: ArgumentChecks = field(init=False, repr=False)
    """What arguments that fit the schema are still checked for."""
    defaults: Mapping[str, Any] = field(init=False, repr=False)
    """The defaults that the input schema declares for arguments a write may leave out; {} for a read."""
    takes_text: bool = field(init=False, repr=False)
    """True if a plain text can be a valid output; otherwise a text is JSON, and parsed."""
    output: Schema | None = field(init=False, repr=False)
    """The compiled output schema; None if the output is text or unchecked."""
    model_schema: dict[str, Any] = field(init=False, repr=False)
    """The input schema as the model sees it; it must not be changed."""
    pause: float | None = field(init=False, repr=False)
    """Seconds after which an equal call of a tool that polls is no repetition; None if it does not poll."""
    id: str = field(init=False)
    """`name@version`."""
    unchecked: bool = field(init=False, repr=False)
    """True if the contract promises nothing about the output."""
    is_async: bool = field(init=False, repr=False)
    """True if the handler is a coroutine function."""
    input_hooks: bool = field(init=False, repr=False)
    """True if user code runs on the input side."""
    schema_only: bool = field(init=False, repr=False)
    """True if the output is data that only its schema checks: no envelope, extract function or invariants."""
    output_hooks: bool = field(init=False, repr=False)
    """True if user code runs on the output side."""
    repeat_rule: Repeats = field(init=False, repr=False)
    """What `repeats` says, or means where it is None."""
    ready_correctors: Correctors | None = field(init=False, repr=False)
    """The correctors, compiled; None if there are none."""

    def __repr__(self) -> str:
        """Return one line: what it is, its arguments, its effect."""
        arguments = ", ".join(self.input_schema.get("properties") or ())
        return f"<{type(self).__name__} {self.name}@{self.version}({clip(arguments, 80)}): {self.effect}>"

    def __post_init__(self) -> None:
        """Compile the schemas and refuse contradictions."""
        seal = object.__setattr__
        for name, value in normalise_fields(self).items():
            seal(self, name, value)
        seal(self, "id", f"{self.name}@{self.version}")
        seal(self, "pause", self.polls.min_interval if isinstance(self.polls, Polls) else None)
        where = f"input schema of {self.name!r}"
        whole = compile_schema(self.input_schema, where=where, resources=self.schemas)
        accepted = visible = whole
        if self.key_argument is not None:
            hidden = remove_argument(self.name, whole, self.key_argument)
            visible = compile_schema(hidden, where=where, resources=self.schemas)
            closed = refuse_argument(hidden, self.key_argument)
            accepted = visible if closed is hidden else compile_schema(closed, where=where, resources=self.schemas)
        seal(self, "input_schema", whole.raw)
        seal(self, "input", accepted)
        guarded = {*(self.identity or ()), *self.paths, *self.urls}
        seal(self, "checks", ArgumentChecks(accepted, guarded=guarded, literal=self.literal))
        seal(self, "defaults", {} if self.effect == "read" else declared_defaults(accepted))
        seal(self, "model_schema", visible.raw)
        seal(self, "output", self._compile_output())
        seal(self, "takes_text", self.output is None or may_accept_text(self.output))
        seal(self, "unchecked", self.output_schema is None)
        bare = self.extract is None and self.envelope is None and not self.invariants
        seal(self, "schema_only", bare and not self.takes_text and self.output_checks == "full")
        seal(self, "is_async", is_async(self.handler))
        seal(self, "input_hooks", self.validate_input is not None or any(map(has_user_code, self.correctors.values())))
        seal(self, "output_hooks", self.extract is not None or any(map(callable, self.invariants)))
        is_forwarded = self.key_argument is not None or self.forwards_key
        is_one_wish = self.identity is not None or self.scope != "run" or self.effect == "destructive" or is_forwarded
        check_contract(self)
        seal(self, "repeat_rule", self.repeats or ("once" if is_one_wish else "turn"))
        seal(self, "ready_correctors", build_correctors(self))

    @property
    def hidden_validators(self) -> tuple[str, ...]:
        """The `before_validators` without a corrector: what only they could read never reaches them."""
        corrected = {parse_pointer(name)[0] if name.startswith("/") else name for name in self.correctors}
        return tuple(name for name in self.before_validators if name not in corrected)

    @property
    def takes_url(self) -> bool:
        """True if an argument is a URL, so that a page may be the answer."""
        return bool(self.urls) or has_url_argument(self.input)

    @property
    def text_output(self) -> bool:
        """True if the output is declared to be free text."""
        return self.output_schema == "text"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the original function, unguarded; for tests of the tool itself."""
        function = self.function or self.handler
        if function is None:
            raise ContractError(f"{self.id} has no handler to call")
        return function(*args, **kwargs)

    def _compile_output(self) -> Schema | None:
        output = self.output_schema
        if output is None or output == "text":
            return None
        if isinstance(output, str):
            raise ContractError(f'{self.name}: output_schema is a schema, "text" or None, not {output!r}')
        return compile_schema(output, where=f"output schema of {self.name!r}", resources=self.schemas)

    @classmethod
    def from_schema(
        cls,
        name: str,
        input_schema: dict[str, Any],
        *,
        output_schema: OutputSchema = None,
        effect: Effect = UNDECLARED,
        handler: Callable[..., Any] | None = None,
        schemas: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Self:
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
        return _build_contract(
            cls,
            {
                **fields,
                "name": name,
                "input_schema": input_schema,
                "output_schema": output_schema,
                "effect": effect,
                "handler": handler,
                "schemas": schemas,
            },
        )

    @classmethod
    def from_openai(cls, definition: Mapping[str, Any], **fields: Any) -> Self:
        """Build a contract from an OpenAI function definition (chat completions or responses)."""
        return _build_contract(cls, {**importers.read_openai(definition), **fields})

    @classmethod
    def from_anthropic(cls, definition: Mapping[str, Any], **fields: Any) -> Self:
        """Build a contract from an Anthropic tool definition."""
        return _build_contract(cls, {**importers.read_anthropic(definition), **fields})

    @classmethod
    def from_mcp(cls, entry: Mapping[str, Any], *, trusted_hints: bool = False, **fields: Any) -> Self:
        """Build a contract from one entry of an MCP `tools/list` answer.

        Args:
            entry: the entry as a dict.
            trusted_hints: True only for a server the operator trusts: then `readOnlyHint` and its
                siblings decide the effect. Otherwise the tool is a write, whatever the server claims.
            fields: fields of the contract that override what the entry says.
        """
        return _build_contract(cls, {**importers.read_mcp(entry, trusted_hints=trusted_hints), **fields})

    @classmethod
    def from_model(cls, name: str, model: type, *, output: Any = None, **fields: Any) -> Self:
        """Build a contract from a pydantic model of the arguments.

        The model's own validators run after the schema. A handler given here receives one model instance.

        Args:
            name: the tool's name.
            model: a pydantic model, or a dataclass or TypedDict that pydantic understands.
            output: a schema, a type, "text", or None.
            fields: any other field of the contract.
        """
        from pokayoke.core.contract import python_types as typed  # noqa: PLC0415 - it needs pydantic

        return _build_contract(cls, typed.from_model(name, model, output, fields))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], **fields: Any) -> Self:
        """Build a contract from plain data, such as one entry of a YAML file.

        Args:
            mapping: field names to JSON values; declarative invariants carry `type: range` and so on.
            fields: what data cannot hold: handler, lookup, extract, exception types.

        Raises:
            ContractError: an unknown key, or a value of the wrong kind.
        """
        return _build_contract(cls, {**importers.read_mapping(mapping), **fields})

    def to_mapping(self) -> dict[str, Any]:
        """Return the declared fields as plain data, readable by `from_mapping`; callables are left out."""
        return importers.to_mapping(self)


def _build_contract(kind: type[ContractT], fields: dict[str, Any]) -> ContractT:
    """Build a contract; an unknown field is an error that names it."""
    unknown = fields.keys() - FIELDS
    if unknown:
        named = ", ".join(sorted(unknown))
        raise ContractError(
            f"{fields.get('name')}: a contract has no field {named}. {importers.did_you_mean(unknown, FIELDS)}"
        )
    return kind(**fields)


FIELDS: frozenset[str] = frozenset(name for name, described in Contract.__dataclass_fields__.items() if described.init)
"""Names of all declared fields of a contract."""


def require_output_contract(contracts: Iterable[Contract], policy: ToolOutputPolicy) -> None:
    """Refuse tools that promise nothing about their output: all if policy is strict, those in code if it is silent.

    Raises:
        ContractError: names the tools and the fix.
    """
    if policy.schema == "declared":
        return
    strict = policy.schema == "strict"
    promiseless = [contract.id for contract in contracts if contract.unchecked and (strict or contract.defined_in_code)]
    if promiseless:
        raise ContractError(
            f"no output contract: {', '.join(promiseless)}. Annotate what the function returns, declare it (output= of "
            '@tool, output_schema elsewhere: a schema, or "text" for free text), or set '
            "validation.tool_output.schema to declared."
        )
