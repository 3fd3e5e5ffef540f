"""A history, shortened: for callers who only want the messages back, and for the loop of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pokayoke.core.context import (
    Compacted,
    Facts,
    History,
    HistoryFormat,
    Identity,
    OpenEffect,
    Refusal,
    Summariser,
    compacted,
)
from pokayoke.core.context.tokens import estimate_tokens

if TYPE_CHECKING:
    from pokayoke.runtime.run.run import Run

_MOST_ABOUT = 200  # characters quoted of the arguments of a call


def compact(
    messages: Sequence[Any],
    max_tokens: int,
    *,
    threshold: float = 0.7,
    keep_last: int = 10,
    pinned: Collection[int] = (),
    format: HistoryFormat | None = None,  # noqa: A002 - the name the other entry points use
    facts: Facts | None = None,
    estimate: Callable[[str], int] = estimate_tokens,
    summarise: Summariser | None = None,
    identity: Identity | None = None,
    large: int | None = None,
    kept: bool = False,
) -> list[Any]:
    """Shorten a history if it is above a share of its window, and return its messages.

    `compacted` does the same and returns what was done beside the messages. Where what has to stay is larger
    than the window, the messages are too: then a warning is logged (`pokayoke.context`), as there is no other
    place for the finding.

    Args:
        messages: the history; it is not changed.
        max_tokens: size of the window, in tokens.
        threshold: share of the window above which a history is shortened, above 0 and up to 1.
        keep_last: messages at the end that stay.
        pinned: numbers of messages that stay, counted from 0, or from the end if negative.
        format: `openai`, `anthropic` or `langchain`; None takes what the messages show.
        facts: what holds now; a note says it.
        estimate: counts the tokens of a text; a tokenizer may stand in.
        summarise: writes the summary of what goes; the built-in one quotes.
        identity: says which calls are the same call.
        large: tokens above which an output is offloaded.
        kept: True if the model has a way to read offloaded texts by handle.

    Returns:
        a new list that the provider accepts; what was not touched is the very object that came in.

    Raises:
        UsageError: an argument is out of range, or the messages are of another format than `format`.
    """
    result = compacted(
        messages,
        max_tokens,
        threshold=threshold,
        keep_last=keep_last,
        pinned=pinned,
        format=format,
        facts=facts,
        estimate=estimate,
        summarise=summarise,
        identity=identity,
        large=large,
        kept=kept,
    )
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
        run: Run,
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


def collect_facts(run: Run) -> Facts:
    """Return what holds in a run and must not be forgotten: writes that are not over, taints, lasting refusals.

    Args:
        run: the run. What it did before it was opened here is looked up in the ledger.
    """
    from pokayoke.core.context.quotes import parse_arguments  # noqa: PLC0415 - 10 ms of import, for who has histories

    def quote_arguments(arguments: Any) -> str:
        return "" if arguments is None else parse_arguments(arguments)[1][:_MOST_ABOUT]

    matters = run.progress.matters
    matters.read_ledger()
    return Facts(
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
