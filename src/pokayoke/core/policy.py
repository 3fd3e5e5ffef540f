"""What a guard is allowed to do: values only, every default is the safe one.

The YAML file maps one to one onto these structures (`runtime/config/config.py` reads it), and the
published JSON Schema is generated from them. Unknown keys are errors.
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

# A user name in front of a host would hide the host, and a password does not belong in a file.
WEBHOOK_URL = re.compile(
    r"(https://[^/?#@\\\s]+|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?)(/[^#\\\s]*)?", re.ASCII
)
"""What the URL of a webhook has to match as a whole: https anywhere, http only to this machine."""


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all option values."""


class IntakePolicy(_Options, frozen=True, kw_only=True):
    """How argument texts are read."""

    max_chars: PositiveInt = 200_000
    """Longest argument text that is looked at, in characters."""
    max_depth: Annotated[int, Meta(ge=1, le=200)] = 64
    """Deepest nesting of an argument text."""
    prefixes: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """Names, as of MCP servers, that a model may put before a tool's: `crm` lets `crm__find` mean `find`."""


class ToolOutputPolicy(_Options, frozen=True, kw_only=True):
    """What a tool's answer has to fulfil where its contract does not say otherwise."""

    max_chars: PositiveInt = 200_000
    """Longest output, in characters (a cap of four times as many bytes comes first)."""
    require_content_type: str = "application/json"
    """Media type a wire response must carry."""
    schema: Literal["strict", "declared"] = "strict"
    """`strict`: a tool defined in code must declare its output; `declared`: it may go without."""


class ValidationPolicy(_Options, frozen=True, kw_only=True):
    """What is validated on the way in and out."""

    intake: IntakePolicy = IntakePolicy()
    tool_output: ToolOutputPolicy = ToolOutputPolicy()


class CorrectionPolicy(_Options, frozen=True, kw_only=True):
    """Which classes of correction may run, per effect."""

    read: tuple[CorrectionKind, ...] = ("equivalent", "declared", "likely")
    """Classes that may run before a read."""
    write: tuple[CorrectionKind, ...] = ("equivalent", "declared")
    """Classes that may run before a write or a destructive call."""


class ConfidencePolicy(_Options, frozen=True, kw_only=True):
    """When a call is too uncertain to run."""

    threshold: Share = 0.6
    """A confidence strictly below this is refused with a clarification."""


class SafeModePolicy(_Options, frozen=True, kw_only=True):
    """What happens after an output that must not be used."""

    on_invalid_output: Literal["skip_writes", "fail_closed", "human_review"] = "skip_writes"
    """`skip_writes`: reads go on, writes wait; `fail_closed`: the run stops; `human_review`: a person is asked."""
    kill_switch: bool = True
    """Trip a tool's kill switch when its outputs become unusable: then writes wait in every run."""
    last_known_good_seconds: Annotated[float, Meta(ge=0.0)] = 900.0
    """Oldest valid read output that may stand in, in seconds; 0 switches it off."""


class ExecutionPolicy(_Options, frozen=True, kw_only=True):
    """How tools are run."""

    timeout: Seconds = 30.0
    """Deadline of an async tool whose contract does not say, in seconds."""
    lease_margin_seconds: Seconds = 10.0
    """Seconds a claim is believed to be alive beyond the deadline: time to report, never a licence to start again."""
    concurrency: PositiveInt = 5
    """Calls of one batch that run at the same time."""
    max_lost_workers: PositiveInt = 32
    """Worker threads that may hang past their deadline before sync tools with one are refused."""


class RetryPolicy(_Options, frozen=True, kw_only=True):
    """Exponential backoff for transient failures that had no effect."""

    retries: Annotated[int, Meta(ge=0, le=20)] = 2
    """Times a failed call is started again; 0 switches retries off."""
    initial: Annotated[float, Meta(ge=0.0)] = 1.0
    """Delay before the first retry, in seconds."""
    factor: Annotated[float, Meta(ge=1.0)] = 2.0
    """What each further delay is multiplied by."""
    cap: Annotated[float, Meta(ge=0.0)] = 60.0
    """Longest delay, in seconds."""
    jitter: Share = 0.25
    """Share by which a delay is spread to both sides."""


class BudgetPolicy(_Options, frozen=True, kw_only=True):
    """Limits per run; None is no limit."""

    rounds: PositiveInt | None = None
    """Messages of the model that called tools."""
    calls: PositiveInt | None = None
    """Tool calls."""
    seconds: Seconds | None = None
    """Time since the run was opened first."""
    tokens: PositiveInt | None = None
    """Tokens, reported with `run.usage` or estimated."""


class LoopPolicy(_Options, frozen=True, kw_only=True):
    """When a run stops trying and has to answer."""

    identical_failures: PositiveInt = 3
    """Equal calls (tool and arguments) that fail this often in a row are refused."""
    identical_results: PositiveInt = 3
    """Equal calls with an equal result that are fine; a further one makes its round a bad one."""
    self_repair: Annotated[int, Meta(ge=0)] = 1
    """Bad rounds in a row that the model may repair itself; one more takes its tools away for the turn."""
    tool_failures: PositiveInt = 4
    """Bad rounds of one tool, since it last brought anything, that other tools' progress makes up for."""
    bad_rounds: PositiveInt = 12
    """Bad rounds of a turn after which the tools are taken away whatever else was achieved."""
    off: tuple[str, ...] = ()
    """Kinds that are not counted: unknown_tool, repeated_call, tool_failure, invalid_output, invalid_arguments,
    held_back, refusal, or a kind of your own."""
    instructions: dict[str, str] = {}
    """What the model is told when its tools are taken away, by kind; `*` for all others."""
    fallback: str | None = None
    """What the user gets to read if the model then answers nothing; None tells what was done and what was not."""


class LimitPolicy(_Options, frozen=True, kw_only=True):
    """One limit on calls or on the sum of an argument."""

    tool: str = "*"
    """Tool name, or `*` for all tools together."""
    per: Literal["run", "user", "tool", "day", "user_day"] = "run"
    """What is counted together: a run, a principal, a tool, a UTC day, or a principal on a UTC day."""
    calls: Annotated[int, Meta(ge=0)] | None = None
    """Highest number of calls."""
    amount: Annotated[float, Meta(ge=0.0)] | None = None
    """Highest sum of the argument named by `field`."""
    field: str | None = None
    """The argument whose values are summed up; its declared default counts where a call leaves it out."""


class AccessPolicy(_Options, frozen=True, kw_only=True):
    """Who may call what. Empty means no restriction."""

    allow: tuple[str, ...] = ()
    """If not empty, only these tools exist, and the guard's own."""
    deny: tuple[str, ...] = ()
    """Tools that do not exist, whatever else is said."""
    roles: dict[str, tuple[str, ...]] = {}
    """Tool name to the roles of which the principal must hold one, beside one of the contract's own."""


class WebhookPolicy(_Options, frozen=True, kw_only=True):
    """Where new questions are announced. They are signed with the secret in `POKAYOKE_WEBHOOK_SECRET`."""

    url: str | None = None
    """Gets each new question as JSON in a POST; https, or http on this machine. None announces nothing."""
    timeout_seconds: Annotated[float, Meta(gt=0.0, le=60.0)] = 5.0
    """How long one attempt may take, in seconds. No call ever waits for it."""


class ApprovalPolicy(_Options, frozen=True, kw_only=True):
    """Which calls a person has to approve."""

    tools: tuple[str, ...] = ()
    """Tools that always ask, beside those whose contract says so."""
    effects: tuple[Literal["write", "destructive"], ...] = ()
    """Effects that always ask."""
    expires_seconds: Seconds = 86_400.0
    """How long a question stays open, in seconds; then it is a refusal."""
    webhook: WebhookPolicy = WebhookPolicy()
    """Announces new questions to another program."""


class ContextPolicy(_Options, frozen=True, kw_only=True):
    """How much of a result goes into the conversation."""

    offload_chars: PositiveInt = 20_000
    """A valid output above this is kept aside; the model gets a preview and a handle."""
    preview_chars: PositiveInt = 1_500
    """Length of that preview, in characters."""


class TracePolicy(_Options, frozen=True, kw_only=True):
    """What is written down, and where."""

    path: str | None = None
    """JSON Lines file; None keeps only the ring in memory."""
    payloads: Literal["redacted", "hash", "off"] = "redacted"
    """What of arguments and results is recorded: redacted text, only a hash, or nothing."""
    max_payload_chars: Annotated[int, Meta(ge=0)] = 4_000
    """A longer payload is recorded as its length."""
    max_bytes: PositiveInt = 50_000_000
    """Size at which the file is rotated."""
    backups: Annotated[int, Meta(ge=0)] = 3
    """Rotated files that are kept."""
    ring: PositiveInt = 1_000
    """Events kept in memory per run."""
    redact_fields: tuple[str, ...] = ()
    """Field names whose values are never written, beside the built-in ones."""
    redact_patterns: tuple[str, ...] = ()
    """Regular expressions whose matches are never written, beside the built-in ones."""
    sample_path: str | None = None
    """JSON Lines file for a sample of whole runs with pseudonyms, for `pokayoke replay`; None writes none."""
    sample_share: Share = 0.01
    """Share of the runs that the sample holds."""
    sample_key_path: str | None = None
    """File with the key of the pseudonyms, made if it is not there: then equal values have equal pseudonyms in every
    process. None draws a key per process and forgets it."""


class AlertPolicy(_Options, frozen=True, kw_only=True):
    """What is reported without being asked."""

    invalid_output_spike: bool = True
    """Report, in the trace and to `on_alert`, when a tool's outputs begin to break its contract."""


class Policy(_Options, frozen=True, kw_only=True):
    """Everything a guard may be told. `Policy()` is the safe default; every key is on the page of the configuration."""

    mode: Literal["enforce", "monitor"] = "enforce"
    """`monitor` records what would be refused and lets it run."""
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
    context: ContextPolicy = ContextPolicy()
    trace: TracePolicy = TracePolicy()
    alerts: AlertPolicy = AlertPolicy()
