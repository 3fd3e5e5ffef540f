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
from pokayoke.core.call import Finding, Outcome, ToolCall, Verdict
from pokayoke.core.flow.effect_chain import means_effect
from pokayoke.core.flow.states import hash_identity
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
    """Return the latest question about a call, one that waits before one that is answered; None if there is none.

    A question about a repetition is found, too, of which only the ledger knows that it has to be asked.

    Args:
        adapter_run: the run.
        call: the call.
        waiting: True to find only a question that is not answered yet.
    """
    run = adapter_run.run
    verdict = run.check(call)
    if verdict.arguments is None:
        return None
    about = (run.id, verdict.contract, verdict.arguments)
    known = [
        one for one in run.guard.approvals.list(waiting=waiting) if (one.run_id, one.contract, one.arguments) == about
    ]
    return max(known, key=lambda one: (one.status == "waiting", one.asked_at), default=None)


def may_repeat(adapter_run: AdapterRun, verdict: Verdict, call: ToolCall) -> bool:
    """Return whether a call is equal to one that its caller has seen answered: only the ledger knows if that is asked.

    Args:
        adapter_run: the run.
        verdict: what `Run.check` says of the call.
        call: the call.
    """
    run, plan = adapter_run.run, adapter_run.run.snapshot.find_plan(call.name)
    if verdict.arguments is None or isinstance(plan, Finding) or plan.contract.effect == "read":
        return False
    identity = hash_identity(verdict.arguments, plan.contract)
    return any(means_effect(one, identity, plan.contract, run.snapshot) for one in run.seen.answered_calls)


def record_denial(adapter_run: AdapterRun, call: ToolCall) -> None:
    """Let the run know that a person has denied a call, so that it knows what was not done.

    Nothing runs, so the call does not wait for its turn: that would block the event loop.
    """
    adapter_run.run.call(call, invoke=call_denied)
