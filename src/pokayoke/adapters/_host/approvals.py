"""The bridge between a framework's own way to ask a person and the guard's questions.

In: what a person has answered in the framework. Out: the same answer to the guard's question. Never: an answer to
another question than the one that was asked, nor one that overwrites what was decided elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from pokayoke.adapters._host.control_flow import Invoke, not_started
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.ledger.admission import Approval
from pokayoke.core.state.words import say
from pokayoke.errors import StoreError
from pokayoke.runtime.ports import GuardPort

call_denied = not_started("a person has denied it")
"""Stands for a tool that a person does not let run."""


class PersonAnswer(NamedTuple):
    """What a person has answered; `by` says who or which part of the framework.

    `question` is the id of the question, or "" if the framework does not bring one.
    """

    approved: bool
    by: str
    reason: str = ""
    question: str = ""


def question_text(guard: GuardPort, tool: str) -> str:
    """Return the guard's question about a call, for the person whom a framework asks."""
    return say(guard.snapshot.policy.words, "may_run", tool=tool)


def waiting_questions(guard: GuardPort) -> frozenset[str]:
    """Return the ids of the questions that wait: a yes that names none counts only for one that was asked before it."""
    return frozenset(one.id for one in guard.approvals.list())


def answer_question(guard: GuardPort, approval: str, answer: PersonAnswer) -> None:
    """Pass an answer on to the guard. A question that was answered elsewhere keeps that answer; the call finds it."""
    with contextlib.suppress(StoreError):
        guard.approvals.answer(approval, approved=answer.approved, by=answer.by, reason=answer.reason)


async def answer_question_async(guard: GuardPort, approval: str, answer: PersonAnswer) -> None:
    """`answer_question` without blocking the event loop."""
    if guard.store.durable:
        await asyncio.to_thread(answer_question, guard, approval, answer)
    else:
        answer_question(guard, approval, answer)


async def call_and_answer(
    adapter_run: AdapterRun, call: ToolCall, invoke: Invoke | None, person_answer: Callable[[str], PersonAnswer | None]
) -> Outcome:
    """Take a call to its outcome, and once more if a person has answered the guard's question about it elsewhere.

    Args:
        adapter_run: the run.
        call: the call.
        invoke: as for `AdapterRun.acall`.
        person_answer: returns what a person has answered to the question of that id; None if nothing. Of "" it
            returns a yes that may name no question.
    """
    guard, said = adapter_run.run.guard, person_answer("")
    asked: frozenset[str] = frozenset()
    if said is not None and said.approved:
        asked = await asyncio.to_thread(waiting_questions, guard) if guard.store.durable else waiting_questions(guard)
    outcome = await adapter_run.acall(call, invoke)
    question = outcome.approval
    if outcome.status == "pending" and question is not None:
        answer = person_answer(question)
        if answer is not None and (
            not answer.approved or question in ({answer.question} if answer.question else asked)
        ):
            await answer_question_async(guard, question, answer)
            outcome = await adapter_run.acall(call, invoke)
    return outcome


def find_question(adapter_run: AdapterRun, call: ToolCall, *, waiting: bool = False) -> Approval | None:
    """Return the question about a call, answered or not; None if there is none, or nothing to ask.

    Args:
        adapter_run: the run.
        call: the call.
        waiting: True to find only a question that is not answered yet.
    """
    run = adapter_run.run
    verdict = run.check(call)
    if verdict.decision != "ask":
        return None
    about = (run.id, verdict.contract, verdict.arguments)
    known = run.guard.approvals.list(waiting=waiting)
    return next((one for one in known if (one.run_id, one.contract, one.arguments) == about), None)


def record_denial(adapter_run: AdapterRun, call: ToolCall) -> None:
    """Let the run know that a person has denied a call, so that it knows what was not done.

    Nothing runs, so the call does not wait for its turn: that would block the event loop.
    """
    adapter_run.run.call(call, invoke=call_denied)
