"""Questions to a person as LangGraph asks them: by an interrupt, whose answer comes with `Command(resume=...)`.

In: a pending outcome, and what the graph was resumed with. Out: the value of the interrupt, and answers in the guard's
store. Never: consent that is not a clear yes to this very question.

The question stands in the guard's store, so it can be answered there as well, and it outlives the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pokayoke.adapters._host.approvals import PersonAnswer, answer_question, question_text
from pokayoke.core.call import Outcome
from pokayoke.core.state.words import say
from pokayoke.runtime.ports import GuardPort

_YES = frozenset({"approve", "approved", "accept", "yes"})
_NO = frozenset({"deny", "denied", "reject", "rejected", "no"})
_MARK = "resumed by task "


def build_question(guard: GuardPort, outcome: Outcome, *, alone: bool, problem: str = "") -> dict[str, Any]:
    """Return the value of the interrupt.

    Args:
        guard: the guard; its store holds the question.
        outcome: the pending outcome.
        alone: True if no other call waits in the same task of the graph.
        problem: what was wrong with the previous answer.
    """
    ident = outcome.approval or ""
    known = guard.approvals.get(ident)
    shown = {"approval": ident, "tool": outcome.tool, "arguments": known.arguments, "expires_at": known.expires_at}
    answer = "True or False" if alone else f"{{{ident!r}: True}} or {{{ident!r}: False}}"
    how = {"question": question_text(guard, outcome.tool), "resume_with": answer}
    return {**shown, **how, **({"problem": problem} if problem else {})}


def take_answer(guard: GuardPort, ident: str, answer: Any, *, alone: bool, is_meant: bool, place: str) -> str:
    """Store the answers of a resume; returns "", or what is wrong if none answers this question.

    Nothing but a clear yes is consent. Several calls of one task share their resumes, so there an answer has to name
    the question. Other questions that it names are answered as well.

    Args:
        guard: the guard; its store holds the question.
        ident: id of the question.
        answer: a bool, `"approve"` or `"deny"`, a dict with `approved` (and `by`, `reason`) or with a `type` of
            these words, or a dict of such answers by the ids of questions.
        alone: as in `build_question`.
        is_meant: True if the question was there before this answer, so that one without its id may be meant for it.
        place: number of the answer, see `count_answers`.
    """
    by_id, words = _answers_by_id(answer), guard.snapshot.policy.words
    if by_id is None:
        read = _read_answer(answer)
        if read is None or not (alone and is_meant):
            return say(words, "no_answer" if read is None else "early_answer" if alone else "which_call")
        by_id = {ident: read}
    for name, one in by_id.items():
        reason = f"{one.reason}; {_MARK}{place}" if one.reason else f"{_MARK}{place}"
        answer_question(guard, name, one._replace(reason=reason))
    return "" if ident in by_id else say(words, "unanswered", question=ident)


def count_answers(guard: GuardPort, run_id: str, task: str) -> int:
    """Return how many answers to a task of the graph were meant for the guard, up to the last that decided a question.

    Args:
        guard: the guard; its store holds the questions.
        run_id: id of the run.
        task: id of the task; a place is that id, a slash, and the number of the answer.
    """
    marks = (
        (one.reason or "").rpartition(f"{_MARK}{task}/")
        for one in guard.approvals.list(waiting=False)
        if one.run_id == run_id
    )
    return max((int(number) for _, mark, number in marks if mark and number.isdecimal()), default=0)


def _answers_by_id(answer: Any) -> dict[str, PersonAnswer] | None:
    if not isinstance(answer, Mapping) or not answer:
        return None
    given: Mapping[Any, Any] = answer
    found = {name: _read_answer(one) for name, one in given.items() if isinstance(name, str) and name.startswith("ap-")}
    if not found or len(found) != len(given):
        return None
    return {name: one for name, one in found.items() if one is not None}


def _read_answer(answer: Any) -> PersonAnswer | None:
    if isinstance(answer, bool):
        return PersonAnswer(answer, "resume")
    if isinstance(answer, str):
        word = answer.strip().lower()
        return PersonAnswer(word in _YES, "resume") if word in _YES | _NO else None
    if not isinstance(answer, Mapping):
        return None
    given: Mapping[Any, Any] = answer
    several: Any = given.get("decisions")  # as LangChain's own middleware for people has it
    if isinstance(several, list):
        return _read_answer(several[0]) if len(several) == 1 else None
    found = _read_answer(given["approved"]) if isinstance(given.get("approved"), bool) else None
    if found is None and isinstance(given.get("type"), str):
        found = _read_answer(given["type"])
    if found is None:
        return None
    return PersonAnswer(
        found.approved, str(given.get("by") or "resume"), str(given.get("reason") or given.get("message") or "")
    )
