"""The options of a guard: values only; every default is the safe one.

The YAML file maps one to one to these structures (`runtime/config/config.py` reads it), and the published JSON Schema
is generated from them. Unknown keys are errors.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pokayoke.core.call import CorrectionKind

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
PositiveInt = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0.0)]
UntrustedMode = Literal["off", "note", "ask", "refuse"]

# A user name in front of a host would hide the host, and a password does not belong in a file.
WEBHOOK_URL = re.compile(
    r"(https://[^/?#@\\\s]+|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?)(/[^#\\\s]*)?", re.ASCII
)
"""The form of a webhook's whole URL: https to any host, http only to this machine."""


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all option values."""


class IntakePolicy(_Options, frozen=True, kw_only=True):
    """How argument texts are read."""

    max_chars: PositiveInt = 200_000
    """Longest argument text that is read, in characters."""
    max_depth: Annotated[int, Meta(ge=1, le=200)] = 64
    """Deepest nesting of an argument text."""
    prefixes: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """Prefixes of tool names, such as those of MCP servers: `crm` lets `crm__find` mean `find`."""


class ToolOutputPolicy(_Options, frozen=True, kw_only=True):
    """Requirements for the answers of tools whose contracts say nothing else."""

    max_chars: PositiveInt = 200_000
    """Longest output, in characters (a limit of four times as many bytes applies first)."""
    require_content_type: str = "application/json"
    """Media type that a wire response must have."""
    schema: Literal["strict", "declared"] | None = None
    """`strict`: every tool must declare its output; `declared`: none need to; not set: those that `@pokayoke.tool` or
    `Contract.from_model` made of code."""


class ValidationPolicy(_Options, frozen=True, kw_only=True):
    """How inputs and outputs are validated."""

    intake: IntakePolicy = IntakePolicy()
    tool_output: ToolOutputPolicy = ToolOutputPolicy()


class CorrectionPolicy(_Options, frozen=True, kw_only=True):
    """Which classes of correction may run, per effect."""

    read: tuple[CorrectionKind, ...] = ("equivalent", "declared", "likely")
    """Classes that may run before a read."""
    write: tuple[CorrectionKind, ...] = ("equivalent", "declared")
    """Classes that may run before a write or a destructive call."""


class ConfidencePolicy(_Options, frozen=True, kw_only=True):
    """The confidence below which a call is refused."""

    threshold: Share = 0.6
    """A confidence strictly below this is refused with a clarification."""


class SafeModePolicy(_Options, frozen=True, kw_only=True):
    """How a run goes on after an invalid output."""

    on_invalid_output: Literal["skip_writes", "fail_closed", "human_review"] = "skip_writes"
    """`skip_writes`: reads continue, writes wait; `fail_closed`: the run stops; `human_review`: a person decides."""
    kill_switch: bool = True
    """Trip a tool's kill switch when its outputs become unusable; then its writes wait in every run."""
    last_known_good_seconds: Annotated[float, Meta(ge=0.0)] = 900.0
    """Maximum age in seconds of a valid read output that may replace an invalid one; 0 switches this off."""


class ExecutionPolicy(_Options, frozen=True, kw_only=True):
    """How tools are run."""

    timeout: Seconds = 30.0
    """Deadline in seconds of a tool whose contract has none: an async one, and in asynchronous runs a sync one."""
    lease_margin_seconds: Seconds = 10.0
    """Seconds that a claim stays alive beyond the deadline: time to report, not a permission to start again."""
    concurrency: PositiveInt = 5
    """Calls of one batch that run at the same time, with the workers that hang past their deadline; at least one."""
    max_lost_workers: PositiveInt = 32
    """Worker threads that may hang past their deadline before nothing that needs a worker is started any more."""


class RetryPolicy(_Options, frozen=True, kw_only=True):
    """Exponential backoff for transient failures that had no effect."""

    retries: Annotated[int, Meta(ge=0, le=20)] = 2
    """Number of retries of a failed call; 0 switches them off."""
    initial: Annotated[float, Meta(ge=0.0)] = 1.0
    """Delay before the first retry, in seconds."""
    factor: Annotated[float, Meta(ge=1.0)] = 2.0
    """Factor between one delay and the next."""
    cap: Annotated[float, Meta(ge=0.0)] = 60.0
    """Longest delay, in seconds."""
    jitter: Share = 0.25
    """Share by which a delay varies in both directions."""


class BudgetPolicy(_Options, frozen=True, kw_only=True):
    """Limits per run; None is no limit."""

    rounds: PositiveInt | None = None
    """Messages of the model with tool calls."""
    calls: PositiveInt | None = None
    """Tool calls."""
    seconds: Seconds | None = None
    """Seconds since the run was first opened."""
    tokens: PositiveInt | None = None
    """Tokens, reported with `run.usage` or estimated."""


class LoopPolicy(_Options, frozen=True, kw_only=True):
    """When a run must stop trying and answer."""

    identical_failures: PositiveInt = 3
    """Failures in a row after which an equal call (tool and arguments) is refused."""
    identical_results: PositiveInt = 3
    """Allowed number of equal calls with an equal result; one more makes its round bad."""
    self_repair: Annotated[int, Meta(ge=0)] = 1
    """Bad rounds in a row that the model may repair; one more withdraws its tools for the turn."""
    tool_failures: PositiveInt = 4
    """Bad rounds of one tool, since its last success, that progress of other tools offsets."""
    bad_rounds: PositiveInt = 12
    """Bad rounds of a turn after which the tools are withdrawn despite any progress."""
    off: tuple[str, ...] | Literal["*"] = ()
    """Kinds that are not counted, or `*` for all: unknown_tool, repeated_call, tool_failure, invalid_output,
    invalid_arguments, held_back, refusal, or a kind of your own."""
    instructions: dict[str, str] = {}
    """Instructions for the model when its tools are withdrawn, by kind; `*` for all others."""
    fallback: str | None = None
    """The answer to the user if the model then returns nothing; None lists what was done and what was not."""


class LimitPolicy(_Options, frozen=True, kw_only=True):
    """One limit on calls or on the sum of an argument."""

    tool: str = "*"
    """Tool name, or `*` for all tools together."""
    per: Literal["run", "user", "tool", "day", "user_day"] = "run"
    """The unit that is counted together: a run, a principal, a tool, a UTC day, or a principal on a UTC day."""
    calls: Annotated[int, Meta(ge=0)] | None = None
    """Highest number of calls."""
    amount: Annotated[float, Meta(ge=0.0)] | None = None
    """Highest sum of the argument named by `field`."""
    field: str | None = None
    """The argument whose values are summed; its declared default counts if a call leaves it out."""


class AccessPolicy(_Options, frozen=True, kw_only=True):
    """Who may call what. Empty means no restriction."""

    allow: tuple[str, ...] = ()
    """If not empty, only these tools and the guard's own exist."""
    deny: tuple[str, ...] = ()
    """Tools that do not exist, even if other options allow them."""
    roles: dict[str, tuple[str, ...]] = {}
    """Tool name to roles of which the principal needs one, in addition to one of the contract's own."""


class WebhookPolicy(_Options, frozen=True, kw_only=True):
    """The webhook for new questions; needs the extra `urls`, and a secret in `POKAYOKE_WEBHOOK_SECRET` that signs."""

    url: str | None = None
    """Receives each new question as JSON in a POST; https, or http on this machine. None disables it."""
    timeout_seconds: Annotated[float, Meta(gt=0.0, le=60.0)] = 5.0
    """Deadline of one attempt, in seconds. No call waits for it."""


class AmountApproval(_Options, frozen=True, kw_only=True):
    """An amount above which calls of a tool need approval."""

    tool: str
    """The tool."""
    field: str
    """The argument that is an amount; its declared default counts if a call leaves it out."""
    above: Annotated[float, Meta(ge=0.0)]
    """Calls with a larger amount need approval; so does one that cannot be measured."""
    approvers: Literal[1, 2] = 1
    """How many different people have to approve."""


class ApprovalPolicy(_Options, frozen=True, kw_only=True):
    """Which calls a person must approve."""

    tools: tuple[str, ...] = ()
    """Tools whose calls need approval, in addition to those whose contract says so."""
    effects: tuple[Literal["write", "destructive"], ...] = ()
    """Effects whose calls need approval."""
    amounts: tuple[AmountApproval, ...] = ()
    """Amounts above which calls need approval, for tools whose calls do not need it anyway."""
    second_approver: tuple[str, ...] = ()
    """Tools whose questions two different people have to approve, whatever asks them."""
    expires_seconds: Seconds = 86_400.0
    """Seconds that a question stays open; then it counts as refused."""
    webhook: WebhookPolicy = WebhookPolicy()
    """Sends new questions to another program."""


class UntrustedPolicy(_Options, frozen=True, kw_only=True):
    """What happens to a write whose targets and amounts do not come from the user or a trusted source."""

    mode: UntrustedMode | None = None
    """`off`, `note` (recorded), `ask` (a person decides; refused where nobody can be asked) or `refuse`. Not set:
    `note`, and `ask` for tools declared `destructive` or `open_world`, once the user's words are known."""
    level: Literal["strict", "careful", "balanced"] = "careful"
    """How far a record that the user's words single out is believed: `strict` not at all, `careful` for things and for
    addresses beside nobody's prose, `balanced` for every address in it."""
    tools: dict[str, UntrustedMode] = {}
    """Tool name to its own mode."""


class ContextPolicy(_Options, frozen=True, kw_only=True):
    """How much of a result enters the conversation."""

    offload_chars: PositiveInt = 20_000
    """A valid output with more characters is offloaded; the model gets a preview and a handle."""
    preview_chars: PositiveInt = 1_500
    """Length of that preview, in characters."""


class TracePolicy(_Options, frozen=True, kw_only=True):
    """What the trace records, and where."""

    path: str | None = None
    """JSON Lines file; None keeps events only in memory."""
    payloads: Literal["redacted", "hash", "off"] = "redacted"
    """How arguments and results are recorded: as redacted text, as a hash, or not at all."""
    max_payload_chars: Annotated[int, Meta(ge=0)] = 4_000
    """Only the length of a longer payload is recorded."""
    max_bytes: PositiveInt = 50_000_000
    """Size in bytes at which the file is rotated."""
    backups: Annotated[int, Meta(ge=0)] = 3
    """Rotated files that are kept."""
    ring: PositiveInt = 1_000
    """Events kept in memory per run."""
    redact_fields: tuple[str, ...] = ()
    """Field names whose values are never written, in addition to the built-in ones."""
    redact_patterns: tuple[str, ...] = ()
    """Regular expressions whose matches are never written, in addition to the built-in ones."""
    redact_key_path: str | None = None
    """File with a key, created if absent: then equal redacted values have equal tags in every process, as in
    `[redacted#0123456789abcdef]`. None writes no tags."""
    sample_path: str | None = None
    """JSON Lines file for a sample of whole runs with pseudonyms, for `pokayoke replay`; None writes none."""
    sample_share: Share = 0.01
    """Share of the runs in the sample."""
    sample_key_path: str | None = None
    """File with the key of the pseudonyms, created if absent: then equal values have equal pseudonyms in every process.
    None uses a random key per process, which is not stored."""


class AlertPolicy(_Options, frozen=True, kw_only=True):
    """Alerts to the operator."""

    invalid_output_spike: bool = True
    """Report in the trace and to `on_alert` when a tool's outputs begin to break its contract."""


class Policy(_Options, frozen=True, kw_only=True):
    """All options of a guard. `Policy()` is the safe default; the configuration page lists every key."""

    mode: Literal["enforce", "monitor"] = "enforce"
    """`monitor` records calls that would be refused and lets them run."""
    validation: ValidationPolicy = ValidationPolicy()
    corrections: CorrectionPolicy = CorrectionPolicy()
    confidence: ConfidencePolicy = ConfidencePolicy()
    access: AccessPolicy = AccessPolicy()
    approvals: ApprovalPolicy = ApprovalPolicy()
    limits: tuple[LimitPolicy, ...] = ()
    """Limits on calls and amounts; see `LimitPolicy`."""
    budgets: BudgetPolicy = BudgetPolicy()
    loop: LoopPolicy = LoopPolicy()
    execution: ExecutionPolicy = ExecutionPolicy()
    retry: RetryPolicy = RetryPolicy()
    safe_mode: SafeModePolicy = SafeModePolicy()
    untrusted: UntrustedPolicy = UntrustedPolicy()
    context: ContextPolicy = ContextPolicy()
    trace: TracePolicy = TracePolicy()
    alerts: AlertPolicy = AlertPolicy()
    words: dict[str, str] = {}
    """Your own sentences for users, such as translations, by the names in `pokayoke.core.state.words.WORDS`."""
