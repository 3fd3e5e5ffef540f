"""Questions: what waits for a person, and the answers.

In: the waiting questions of a store.
Out: one card each; a recorded answer.
Never: an answer to several questions that says yes, or one without a reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from pokayoke.core.flow.questions import redact_question
from pokayoke.core.json.values import is_object
from pokayoke.core.ledger.admission import Approval
from pokayoke.dashboard import words
from pokayoke.dashboard.desk import PageDesk, build_link, page_state
from pokayoke.dashboard.trace_index import RunPage, TracedCall
from pokayoke.errors import StoreError
from pokayoke.stores.lists import PAGE, AuditFilter, question_place
from pokayoke.stores.values import AuditEntry, EntryKind

_ID = re.compile(r"[a-z]{2}-[0-9a-f]{1,64}", re.ASCII)
_ANSWERS: tuple[EntryKind, ...] = ("approved", "endorsed", "denied")
_CARDS = 20
_ARGUMENTS = 40
_ARGUMENT_LENGTH = 300
_CALLS_BACK = 50
"""Latest calls of a tool among which one that ran is looked for."""


class LastCall(msgspec.Struct, frozen=True):
    """The last call of a tool that ran, beside the one that a question is about.

    Args:
        call: that call in the trace.
        changes: name, value then and value now of each argument that differs; "" where there was or is none.
    """

    call: TracedCall
    changes: tuple[tuple[str, str, str], ...]


class QuestionCard(msgspec.Struct, frozen=True):
    """One question with what a person has to know to answer it.

    Args:
        approval: the question, without its secrets.
        arguments: name and value as JSON of each argument.
        is_cut: True if a page shows less than all of the arguments.
        earlier: earlier answers to the same call, the latest first.
        call: the call in the trace that asked it, or None.
        last: the last call of the tool that ran, or None if no trace shows one.
    """

    approval: Approval
    arguments: tuple[tuple[str, str], ...]
    is_cut: bool
    earlier: tuple[AuditEntry, ...] = ()
    call: TracedCall | None = None
    last: LastCall | None = None


def list_questions(desk: PageDesk, request: Request) -> Response:
    """Show what waits, the one that expires first on top."""
    at, after = desk.now(), _parse_place(request.query_params.get("after"))
    found = desk.reads.waiting_approvals(at, after=after, limit=_CARDS + 1)
    shown = found[:_CARDS]
    lines = desk.reads.audit_lines(AuditFilter(_ANSWERS, tuple(one.id for one in shown), limit=PAGE)) if shown else ()
    more = build_link("/questions", after=_place_text(shown[-1])) if len(found) > _CARDS else ""
    return desk.render(
        request,
        "questions",
        title="Questions",
        pulse=desk.read_pulse(),
        cards=[_build_card(desk, one, lines) for one in shown],
        more=more,
        is_later=after is not None,
        done=_read_notice(request),
    )


def show_question(desk: PageDesk, request: Request) -> Response:
    """Show one question, also one that waits no more."""
    approval = _find_question(desk, request)
    return _say_unknown(desk, request) if approval is None else _show_one(desk, request, approval)


def show_arguments(desk: PageDesk, request: Request) -> Response:
    """Return all arguments of a question as text."""
    found = _find_question(desk, request)
    if found is None:
        return _say_unknown(desk, request)
    approval = redact_question(found, desk.redactor)
    return PlainTextResponse(words.show_lines(words.dump_shown(approval.arguments, indent=2), limit=10_000_000))


def answer_question(desk: PageDesk, request: Request) -> Response:
    """Record an answer, in the name of whoever signed in."""
    known, state = _find_question(desk, request), page_state(request)
    if known is None:
        return _say_unknown(desk, request)
    decision, reason = state.form.get("decision", ""), state.form.get("reason", "")
    assert state.visitor is not None, "the gate lets nobody else decide"
    if decision not in ("approve", "deny") or not reason.strip():
        problem = "Say why: the reason is kept in the audit." if decision else "Say yes or no."
        return _show_one(desk, request, known, problem=problem, status=422)
    try:
        desk.approvals.answer(known.id, approved=decision == "approve", by=state.visitor.name, reason=reason.strip())
    except StoreError as error:
        now_known = _find_question(desk, request)
        if now_known is None:
            raise
        return _show_one(desk, request, now_known, problem=f"Not recorded: {error}.", status=409)
    return desk.redirect(request, build_link("/questions", done=known.id))


def _find_question(desk: PageDesk, request: Request) -> Approval | None:
    ident = request.path_params["ident"]
    found = desk.store.approval(ident) if _ID.fullmatch(ident) else None
    return None if found is None else found.at(desk.now())


def _say_unknown(desk: PageDesk, request: Request) -> Response:
    message = "There is no such question: it was pruned, or the address is of another store."
    return desk.render(request, "problem", status=404, title="Questions", pulse=desk.read_pulse(), message=message)


def _show_one(
    desk: PageDesk, request: Request, approval: Approval, *, problem: str = "", status: int = 200
) -> Response:
    lines = desk.reads.audit_lines(AuditFilter(_ANSWERS, (approval.id,), limit=PAGE))
    return desk.render(
        request,
        "question",
        status=status,
        title="Question",
        pulse=desk.read_pulse(),
        shown=_build_card(desk, approval, lines),
        problem=problem,
    )


def _build_card(desk: PageDesk, approval: Approval, lines: tuple[AuditEntry, ...]) -> QuestionCard:
    shown = redact_question(approval, desk.redactor)
    given = shown.arguments if is_object(shown.arguments) else {"": shown.arguments}
    dumped = [(str(name), words.dump_shown(value)) for name, value in given.items()]
    pairs = tuple(
        (words.show_text(name, 80), words.show_text(value, _ARGUMENT_LENGTH)) for name, value in dumped[:_ARGUMENTS]
    )
    is_cut = len(dumped) > _ARGUMENTS or any(len(value) > _ARGUMENT_LENGTH for _, value in dumped)
    earlier = tuple(line for line in lines if line.subject == approval.id)
    return QuestionCard(shown, pairs, is_cut, earlier, _find_call(desk, approval), _find_last(desk, shown))


def _find_call(desk: PageDesk, approval: Approval) -> TracedCall | None:
    """Return the latest call of the run that asked, if a trace is shown and holds it."""
    if desk.sources.trace is None:
        return None
    found = desk.sources.trace.calls(approval.run_id, RunPage(tool=approval.tool, limit=200))
    return next((one for one in reversed(found) if one.decision == "ask"), None)


def _find_last(desk: PageDesk, shown: Approval) -> LastCall | None:
    """Return how a call differs from the last one of its tool that ran, as far as a trace shows it."""
    index = desk.sources.trace
    if index is None or shown.kind != "call" or not is_object(shown.arguments):
        return None
    found = index.calls(None, RunPage(tool=shown.tool, limit=_CALLS_BACK))
    last = next((one for one in found if one.ok and one.decision == "allow"), None)
    event = None if last is None else index.read_line(last.file, last.place)[0]
    if last is None or event is None or not is_object(event.get("arguments")):
        return None
    then = desk.redactor.redact_value(event["arguments"], marks=shown.marks)
    names = dict.fromkeys([*shown.arguments, *then])
    pairs = ((str(name), _show_argument(then, name), _show_argument(shown.arguments, name)) for name in names)
    return LastCall(last, tuple(pair for pair in pairs if pair[1] != pair[2])[:_ARGUMENTS])


def _show_argument(given: Mapping[str, Any], name: str) -> str:
    return words.show_text(words.dump_shown(given[name]), _ARGUMENT_LENGTH) if name in given else ""


def _read_notice(request: Request) -> str:
    return words.show_text(request.query_params.get("done", ""), 80)


def _place_text(approval: Approval) -> str:
    expires, fingerprint = question_place(approval)
    return f"{expires!r}~{fingerprint}"


def _parse_place(text: str | None) -> tuple[float, str] | None:
    first, tilde, second = (text or "").partition("~")
    try:
        return (float(first), second) if tilde else None
    except ValueError:
        return None
