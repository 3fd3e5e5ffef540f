"""`pokayoke approvals`: shows the questions that wait for a person, and takes the answers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pokayoke.cli.options import (
    ByOption,
    JsonOption,
    StoreOption,
    current_time,
    format_age,
    format_time,
    open_store_option,
    parse_duration,
    require_id_digits,
    struct_to_dict,
)
from pokayoke.cli.output import as_json, escape_text, format_table, print_data, print_listing, print_message
from pokayoke.core.flow.questions import redact_question
from pokayoke.core.json.values import is_object
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.redaction.redactor import Redactor
from pokayoke.errors import ConfigurationError, StoreError
from pokayoke.runtime.approvals.approvals import Approvals
from pokayoke.runtime.approvals.signature import secrets_from_environment
from pokayoke.runtime.config.config import load_policy
from pokayoke.runtime.trace.redaction import build_redactor
from pokayoke.stores.base import Store

_MARKS = {"approved": "ok", "used": "ok", "denied": "bad", "expired": "dim", "waiting": "note"}

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Answer the questions that calls have asked.

    pokayoke approvals list --store sqlite:///ledger.db

    pokayoke approvals approve ap-4f1c9a --by ann --reason "checked with the customer"

    An approval is for one call: tool, version and all arguments. An edited call asks again, and a question that
    is not answered in time counts as a refusal. POKAYOKE_STORE replaces --store.
    Exit codes: 0 clean, 1 findings, 2 could not run.""",
)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The approval's id, or its beginning.")]
ConfigOption = Annotated[
    str | None, typer.Option("--config", help="Configuration whose trace.redact_... rules apply here too.")
]
WhyOption = Annotated[str, typer.Option("--reason", help="Why; kept in the audit.")]


@app.command("list")
def list_approvals(
    store: StoreOption = None,
    every: Annotated[bool, typer.Option("--all", help="Include those that were answered or have expired.")] = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the waiting questions, the oldest first.

    pokayoke approvals list

    pokayoke approvals list --all --json
    """
    redactor = _redactor(config)
    with open_store_option(store) as ledger:
        found = [redact_question(one, redactor) for one in Approvals(ledger).list(waiting=not every)]
    moment_now = current_time()
    if json:
        for approval in found:
            print_data(as_json(struct_to_dict(approval)))
        return
    rows = [
        (
            a.id,
            a.status,
            a.tool,
            a.run_id,
            format_age(a.asked_at, moment_now),
            _time_left(a, moment_now),
            _short_arguments(a),
        )
        for a in found
    ]
    heads = ("id", "status", "tool", "run", "age", "expires", "arguments")
    cut = [[escape_text(cell, limit=120) for cell in row] for row in rows]
    print_listing(heads, cut, [_MARKS[approval.status] for approval in found])
    if not found:
        print_message("no question waits" if not every else "no question was asked")


@app.command("show")
def show_approval(
    approval_id: IdArgument, store: StoreOption = None, json: JsonOption = False, config: ConfigOption = None
) -> None:
    """Show one question: what would run, without its secrets.

    pokayoke approvals show ap-4f1c9a
    """
    redactor = _redactor(config)
    with open_store_option(store) as ledger:
        approval = redact_question(_find_approval(ledger, approval_id), redactor)
    if json:
        print_data(as_json(struct_to_dict(approval)))
        return
    facts: list[tuple[str, object]] = [
        ("id", approval.id),
        ("status", approval.status),
        ("question", "may this call run?" if approval.kind == "call" else "may writes go on after this output?"),
        ("tool", f"{approval.tool} ({approval.contract})"),
        ("run", approval.run_id),
        ("user said", approval.wanted),
        ("asked", format_time(approval.asked_at)),
        ("expires", format_time(approval.expires_at)),
        ("approvers", "two different people" if approval.approvers > 1 else ""),
        ("first", _describe_first(approval)),
        ("answered", _describe_answer(approval)),
    ]
    for line in format_table([(name, value) for name, value in facts if value]):
        print_data(line)
    if approval.limits:
        print_data("limits when it was asked:")
        for one in approval.limits:
            print_data(f"  {escape_text(one.sentence, limit=400)}")
    if approval.why:
        print_data("asked because:")
        for sentence in approval.why:
            print_data(f"  {escape_text(sentence, limit=400)}")
    print_data("arguments:")
    given = approval.arguments
    for line in format_table(
        [(name, as_json(value)) for name, value in (given if is_object(given) else {"": given}).items()]
    ):
        print_data(f"  {line}")


def _describe_answer(approval: Approval) -> str:
    """Return when, by whom and why a question was answered; an empty text if it was not."""
    if not approval.by:
        return ""
    return _describe_decision(approval.decided_at, approval.by, approval.reason)


def _describe_first(approval: Approval) -> str:
    """Return when, by whom and why the first of two approvals was given; an empty text if there is none."""
    if approval.first is None:
        return ""
    return _describe_decision(approval.first.at, approval.first.by, approval.first.reason)


def _describe_decision(at: float | None, by: str, reason: str | None) -> str:
    return f"{format_time(at)} by {by}" + (f": {reason}" if reason else "")


@app.command()
def approve(
    approval_id: IdArgument,
    by: ByOption,
    reason: WhyOption = "",
    store: StoreOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Approve. The same call then runs when it is sent again, or waits for a second person if it needs two.

    pokayoke approvals approve ap-4f1c9a --by ann
    """
    _record_answer(approval_id, store, by, reason, approved=True, json=json, config=config)


@app.command()
def deny(
    approval_id: IdArgument,
    by: ByOption,
    reason: WhyOption = "",
    store: StoreOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Deny. The same call is refused when it is sent again.

    pokayoke approvals deny ap-4f1c9a --by ann --reason "wrong account"
    """
    _record_answer(approval_id, store, by, reason, approved=False, json=json, config=config)


@app.command()
def wait(
    approval_id: IdArgument,
    timeout: Annotated[str | None, typer.Option(help="Longest wait, such as 2h; by default until it expires.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Wait for the answer. Exit code 0 for a yes, 1 for anything else.

    pokayoke approvals wait ap-4f1c9a --timeout 2h && ./go_on
    """
    patience = None if timeout is None else parse_duration(timeout, "--timeout")
    redactor = _redactor(config)
    with open_store_option(store) as ledger:
        known = redact_question(Approvals(ledger).wait(_find_approval(ledger, approval_id).id, patience), redactor)
    print_data(as_json(struct_to_dict(known)) if json else escape_text(f"{known.id} is {known.status}"))
    if not known.granted:
        raise typer.Exit(1)


@app.command("serve")
def serve_answers(
    store: StoreOption = None,
    listen: Annotated[str, typer.Option(help="HOST:PORT; port 0 takes any free port.")] = "127.0.0.1:8787",
    config: ConfigOption = None,
) -> None:
    """Receive answers over HTTP, signed with the secret in POKAYOKE_WEBHOOK_SECRET.

    pokayoke approvals serve --listen 127.0.0.1:8787

    GET /approvals lists waiting questions; POST /approvals/ID takes {"decision": "approve", "by": "ann", "reason": ""}.
    """
    from pokayoke.dashboard.machine import SignedApprovals  # noqa: PLC0415 - an extra, loaded for serving only
    from pokayoke.dashboard.serve import address_of, is_local, listen_on, serve  # noqa: PLC0415 - as above

    redactor, secrets = _redactor(config), secrets_from_environment()
    with open_store_option(store) as ledger, listen_on(listen, "--listen") as listening:
        address = address_of(listening)

        def announce() -> None:
            print_data(f"http://{escape_text(address)}/approvals")
            sys.stdout.flush()  # a reader of a pipe or a log would otherwise wait for the life of the server

        if not is_local(listening):
            print_message(
                f"warning: {address} is not this machine alone; what waits is readable on the way without TLS"
            )
        endpoint = SignedApprovals(Approvals(ledger), secrets, redactor, print_message)
        serve(endpoint, listening, ready=announce)


# -- parts -----------------------------------------------------------------------------------------


def _record_answer(
    approval_id: str, store: str | None, by: str, reason: str, *, approved: bool, json: bool, config: str | None
) -> None:
    if not by.strip():
        raise ConfigurationError("--by is kept in the audit: say who answers")
    redactor = _redactor(config)
    with open_store_option(store) as ledger:
        found = _find_approval(ledger, approval_id)
        require_id_digits(approval_id, found.id)
        known = redact_question(Approvals(ledger).answer(found.id, approved=approved, by=by, reason=reason), redactor)
    said = f"{known.id} is {known.status} by {known.by}; {known.consequence}"
    if known.status == "waiting":
        said = f"{known.id} is approved by {by}, and waits for a second person"
    print_data(as_json(struct_to_dict(known)) if json else escape_text(said))


def _redactor(config: str | None) -> Redactor:
    """Return the redactor of a configuration, or the built-in rules."""
    return build_redactor(load_policy(config).trace)


def _find_approval(ledger: Store, approval_id: str) -> Approval:
    """Return the question with an id or a beginning of one.

    Raises:
        StoreError: there is none, or there are several.
    """
    start = approval_id.strip()
    fits = [known for known in Approvals(ledger).list(waiting=False) if start and known.id.startswith(start)]
    fits = [known for known in fits if known.id == start] or fits
    if len(fits) > 1:
        raise StoreError(f"several approvals begin with {start!r}: give more of it")
    if not fits:
        raise StoreError(f"there is no approval {approval_id!r}; `pokayoke approvals list --all` shows them")
    return fits[0]


def _short_arguments(approval: Approval) -> str:
    return escape_text(as_json(approval.arguments), limit=80)


def _time_left(approval: Approval, at: float) -> str:
    return format_age(approval.expires_at, at) if approval.status == "waiting" else "-"
