"""Shortens histories, for callers who only need the messages and for the loop of a run.

In: messages, the size of the window, options; for a run also its completed and open writes, taints and refusals.
Out: messages that the provider accepts; a trace event for a run; a log line if they do not fit.
Never: leave a fact of the run out of a note.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from pokayoke.core.call import ToolCall
from pokayoke.core.context import (
    Compacted,
    CompletedWrite,
    Facts,
    History,
    HistoryFormat,
    HistoryKeywords,
    OpenEffect,
    Refusal,
    compacted,
)

if TYPE_CHECKING:
    from pokayoke.core.context.open_calls import CallAnswer, OpenCalls, UnansweredCall
    from pokayoke.core.flow.environment import CallEnvironment
    from pokayoke.core.flow.steps import Step
    from pokayoke.runtime.ports import RunPort

_MOST_ABOUT = 200  # characters quoted of the arguments of a call


def compact(
    messages: Sequence[Any], max_tokens: int, *, pinned: Collection[int] = (), **options: Unpack[HistoryKeywords]
) -> list[Any]:
    """Shorten a history if it exceeds a share of its window, and return its messages.

    `compacted` returns a report as well. Where the messages that must stay exceed the window, so does the result:
    then a warning is logged (`pokayoke.context`), as a list of messages has no place for the finding.

    Args:
        messages: the history; it is not changed.
        max_tokens: size of the window, in tokens.
        pinned: positions of messages that stay, counted from 0, or from the end if negative.
        **options: as for `compacted`.

    Returns:
        a new list that the provider accepts. Unchanged messages are the objects that were passed in.

    Raises:
        UsageError: an argument is out of range, or the messages have another format than `format`.
    """
    result = compacted(messages, max_tokens, pinned=pinned, **options)
    if result.finding is not None:
        log_overflow(result)
    return result.messages


def log_overflow(result: Compacted) -> None:
    """Log that a history does not fit its window."""
    import logging  # noqa: PLC0415 - 6 ms of import, for histories that do not fit

    if result.finding is not None:
        logging.getLogger("pokayoke.context").warning("%s: %s", result.finding.code, result.finding.message)


class RunHistory(History):
    """The history of a run: its notes say what holds in the run, and what it puts aside can be read on.

    What was shortened is written to the trace, as `context`.

    Args:
        run: the run. Its `tools()` offer `read_more` as soon as something was put aside: ask for the messages first.
        max_tokens: size of the window, in tokens.
        messages: a history to go on from.
        format: as for `History`.
    """

    def __init__(
        self,
        run: RunPort,
        max_tokens: int,
        *,
        messages: Iterable[Any] = (),
        format: HistoryFormat | None = None,  # noqa: A002 - as above
    ) -> None:
        """Begin with what there is."""
        self._run = run
        super().__init__(max_tokens, messages=messages, format=format, facts=lambda: collect_facts(run), kept=True)

    def _build_view(self) -> Compacted:
        result = super()._build_view()
        if result.shortened:
            for handle, text in result.offloaded.items():
                self._run.progress.texts.store_text(text, handle)
            event = result.event
            self._run.note(event.pop("event"), ok=True, **event)
        return result


def answer_steps(env: CallEnvironment, messages: Sequence[Any]) -> Generator[Step, Any, Sequence[Any]]:
    """The steps of `Run.answer_open_calls`."""
    from pokayoke.core.context.open_calls import OpenCalls  # noqa: PLC0415 - 10 ms of import, only for histories

    found = OpenCalls(messages)
    return found.with_answers((yield from _describe_calls(env, found)))


def describe_steps(
    env: CallEnvironment, messages: Sequence[Any]
) -> Generator[Step, Any, list[tuple[UnansweredCall, CallAnswer]]]:
    """The steps of `Run.adescribe_open_calls`."""
    from pokayoke.core.context.open_calls import OpenCalls  # noqa: PLC0415 - as above

    found = OpenCalls(messages)
    return [*zip(found.calls, (yield from _describe_calls(env, found)), strict=True)]


def _describe_calls(env: CallEnvironment, found: OpenCalls) -> Generator[Step, Any, list[CallAnswer]]:
    from pokayoke.core.flow.open_call import describe_open_call  # noqa: PLC0415 - as above

    answers: list[CallAnswer] = []
    for call, earlier, _ in found.calls:
        asked = ToolCall(call.id or "", call.name, "" if call.arguments is None else call.arguments)
        answers.append((yield from describe_open_call(asked, env, earlier)))
    return answers


def collect_facts(run: RunPort) -> Facts:
    """Return what holds in a run and must not be forgotten: completed and open writes, taints, lasting refusals.

    Args:
        run: the run. What it did before it was opened here is looked up in the ledger.
    """
    from pokayoke.core.context.quotes import output_ids, parse_arguments  # noqa: PLC0415 - 10 ms of import, only for histories

    def quote_arguments(arguments: Any) -> str:
        return "" if arguments is None else parse_arguments(arguments)[1][:_MOST_ABOUT]

    matters = run.progress.matters
    matters.read_ledger()
    return Facts(
        done=tuple(
            CompletedWrite(one.tool, quote_arguments(one.arguments), one.reference or ", ".join(output_ids(one.text)))
            for one in run.progress.written.read_latest()
        ),
        effects=tuple(
            OpenEffect(
                one.tool, key, "in_doubt" if one.reason == "in_doubt" else "pending", quote_arguments(one.arguments)
            )
            for key, one in tuple(matters.open.items())
        ),
        taints=run.state.taints,
        refusals=tuple(
            Refusal(one.tool, one.reason, quote_arguments(one.arguments)) for one in tuple(matters.refused.values())
        ),
    )
