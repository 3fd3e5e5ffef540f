"""Questions: what waits for a person, and the answers.

In: the waiting questions of a store.
Out: one card each; a recorded answer.
Never: an answer to several questions that says yes, or one without a reason.
"""

from __future__ import annotations

import re

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
_ANSWERS: tuple[EntryKind, ...] = ("approved", "denied", "endorsed")
_CARDS = 20
_ARGUMENTS = 40
_ARGUMENT_LENGTH = 300


class QuestionCard(msgspec.Struct, frozen=True):
    """One question with what a person has to know to answer it.

    Args:
        approval: the question, without its secrets.
        arguments: name and value as JSON of each argument.
        is_cut: True if a page shows less than all of the arguments.
        earlier: earlier answers to the same call, the latest first.
        call: the call in the trace that asked it, or None.
    """

    approval: Approval
    arguments: tuple[tuple[str, str], ...]
    is_cut: bool
    earlier: tuple[AuditEntry, ...] = ()
    call: TracedCall | None = None


def list_questions(desk: PageDesk, request: Request) -> Response:
    """Show what waits, the one that expires first on top."""
    at, after = desk.now(), _parse_place(request.query_params.get("after"))
    found = desk.store.waiting_approvals(at, after=after, limit=_CARDS + 1)
    shown = found[:_CARDS]
    lines = desk.store.audit_lines(AuditFilter(_ANSWERS, tuple(one.id for one in shown), limit=PAGE)) if shown else ()
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
    lines = desk.store.audit_lines(AuditFilter(_ANSWERS, (approval.id,), limit=PAGE))
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
    return QuestionCard(
        shown, pairs, is_cut, tuple(line for line in lines if line.subject == approval.id), _find_call(desk, approval)
    )


def _find_call(desk: PageDesk, approval: Approval) -> TracedCall | None:
    """Return the latest call of the run that asked, if a trace is shown and holds it."""
    if desk.sources.trace is None:
        return None
    found = desk.sources.trace.calls(approval.run_id, RunPage(tool=approval.tool, limit=200))
    return next((one for one in reversed(found) if one.decision == "ask"), None)


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
