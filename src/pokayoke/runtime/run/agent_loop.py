"""The reference loop: ask the model, run its calls, answer them, until there is a final answer.

In: a model and a history. One generator is the loop; two short drivers serve sync and async models.
Out: an answer with a stop reason, also for a model that repeats itself, says nothing, calls tools that
were taken away, or claims what it did not do.
Never: a tool call whose answer is missing from the history.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pokayoke.core.call import Outcome, StopReason, ToolCall
from pokayoke.core.host_input import as_history, as_whole_number, check_hooks
from pokayoke.core.intake import CallForm, is_cut
from pokayoke.core.json.values import as_sequence, read_field
from pokayoke.core.messages.answers import result_messages
from pokayoke.core.messages.messages import calls_in, role_of, text_of
from pokayoke.core.messages.replies import Reply, open_turn_start, pending_calls, read_reply, texts_read
from pokayoke.core.state.final_answer import Answer
from pokayoke.errors import UsageError
from pokayoke.runtime.run.compaction import RunHistory

if TYPE_CHECKING:
    from pokayoke.runtime.ports import RunPort

LoopFormat = Literal["openai", "anthropic", "json", "jsonl"]
Model = Callable[[list[Any], list[dict[str, Any]]], Any]
AsyncModel = Callable[[list[Any], list[dict[str, Any]]], Awaitable[Any]]
EventCallback = Callable[[str, Any], object]


class LoopResult(msgspec.Struct, frozen=True):
    """How a loop ended.

    Attributes:
        text: what the user gets to read.
        verified: True if it is the model's own text and nothing speaks against it: no cut, no refusal, no write
            that was tried and is not known to have happened.
        stop_reason: why it ended.
        run_id: the run.
        rounds: requests to the model.
        messages: the whole history, in the model's format, the last answer included.
    """

    text: str
    verified: bool
    stop_reason: StopReason | None
    run_id: str
    rounds: int
    messages: list[Any]
    refused: bool = False
    """True if the model refused to answer."""
    done: tuple[str, ...] = ()
    """Tools whose writes took effect in this run, in order: what a text claims can be held against it."""


class AskModel(msgspec.Struct, frozen=True, gc=False):
    """Ask the model. Answered with its reply."""

    messages: list[Any]
    tools: list[dict[str, Any]]


class RunCalls(msgspec.Struct, frozen=True, gc=False):
    """Take the calls of one reply. Answered with their outcomes."""

    calls: tuple[ToolCall, ...]
    stop_reason: str | None


class AnswerOpenCalls(msgspec.Struct, frozen=True, gc=False):
    """Answer the calls of these messages that nobody answered. Answered with the messages."""

    messages: list[Any]


class LoopHistory:
    """The history of one loop, and what is told of it.

    Args:
        run: the run.
        messages: what there is already.
        format: the model's format; `json` and `jsonl` are for models without tool calls of their own.
        window: size of the model's window in tokens; None never shortens the history.
        told: called with what happens: `message` (appended), `outcome`, `instruction`.
        select: candidates to offer of a large catalogue; None offers every tool.

    Raises:
        UsageError: the format is unknown, or `select` is negative.
    """

    def __init__(
        self,
        run: RunPort,
        messages: Iterable[Any],
        format: LoopFormat,  # noqa: A002 - the published name
        *,
        window: int | None = None,
        told: EventCallback | None = None,
        select: int | None = None,
    ) -> None:
        """Begin with what there is."""
        if format not in ("openai", "anthropic", "json", "jsonl"):
            raise UsageError(f"unknown format {format!r}: use openai, anthropic, json or jsonl")
        self.run, self.format, self._told = run, format, told
        self.messages: list[Any] = list(messages)
        self._window = window
        self._history = self._begin_window()
        asked = [call for message in self.messages for call in calls_in(message)]
        self._ids = {call.id or "" for call in asked}
        self._has_native_calls = bool(asked)
        self._refused_text: str | None = None
        if select is not None:
            wanted = next((text_of(one) for one in reversed(self.messages) if role_of(one) == "user"), "")
            run.select(wanted, select, used=[call.name for call in asked])

    @property
    def has_text_calls(self) -> bool:
        """True if the model is asked to write its calls into the text."""
        return self.form is not None

    @property
    def form(self) -> CallForm | None:
        """The form of calls that the model is asked for; None if it makes native calls."""
        return self.format if self.format in ("json", "jsonl") else None

    @property
    def has_overflow(self) -> bool:
        """True if what has to stay of the history is larger than the window."""
        return self._history is not None and self._history.finding is not None

    def add_messages(self, messages: Iterable[Any]) -> None:
        """Add messages to the history."""
        for message in messages:
            self.messages.append(message)
            if self._history is not None:
                self._history.add(message)
            self._ids.update(call.id or "" for call in calls_in(message))
            self.notify_host("message", message)

    def notify_host(self, what: str, value: Any) -> None:
        """Tell the host."""
        if self._told is not None:
            self._told(what, value)

    def _begin_window(self) -> RunHistory | None:
        if self._window is None:
            return None
        shape: Literal["anthropic"] | None = "anthropic" if self.format == "anthropic" else None
        return RunHistory(self.run, self._window, messages=self.messages, format=shape)

    def answer_open_calls(self) -> Generator[AnswerOpenCalls, Any, None]:
        """Answer the calls that nobody answered; those at the end, behind the user's last words, are still to run."""
        if not self._has_native_calls:
            return
        closed = self.messages[: open_turn_start(self.messages)]
        answered = yield AnswerOpenCalls(closed)
        if answered is not closed:
            self.messages[: len(closed)] = answered
            self._history = self._begin_window()
            self.run.seen.set_history(answered, self.run.state.turn, is_exact=False)

    def unanswered_reply(self) -> Reply | None:
        """The calls a process before this one left unanswered at the end of the history, if it did."""
        return pending_calls(self.messages, tools=self._tool_schemas(), form=self.form)

    def build_request(self) -> AskModel:
        """What to ask the model now: the history as it fits, the instruction if tools are off, the tools."""
        run = self.run
        # What is put aside now can be read on at once: the tools are asked for behind it.
        said = list(self.messages) if self._history is None else self._history.messages()
        tools = run.tools("anthropic" if self.format == "anthropic" else "openai")
        if (instruction := run.instruction) is not None:
            self.notify_host("instruction", instruction)
            # Only in this request: in the next turn it is no longer true.
            _add_text(said, instruction)
        elif self.has_text_calls and tools:
            told = run.instructions("json" if self.form == "json" else "jsonl")
            said.insert(0, {"role": "system", "content": told})
        return AskModel(said, [] if self.has_text_calls else tools)

    def take_reply(self, reply: Any) -> Reply:
        """Read a reply, and report what the provider counted."""
        said = read_reply(
            reply,
            tools=self._tool_schemas(),
            taken=self._ids,
            form=self.form,
            has_native_calls=self._has_native_calls,
            read_texts=texts_read(self.messages),
        )
        self._has_native_calls = self._has_native_calls or len(said.calls) > len(said.in_text)
        if said.tokens is not None:
            self.run.usage(said.tokens)
        if said.input_tokens is not None and self._history is not None:
            self._history.report(said.input_tokens)
        return said

    def is_final(self, said: Reply) -> bool:
        """Return whether a reply is an answer: it has no call, or is the same text again that ran nothing."""
        return not said.calls or said.written == self._refused_text

    def note_outcomes(self, said: Reply, outcomes: Sequence[Outcome]) -> None:
        """Keep the text of a reply that is an answer if the model sends it again: it has words, and nothing ran."""
        is_text = len(said.in_text) == len(said.calls) and all(one.unread or said.text.strip() for one in said.calls)
        has_run = any(outcome.status != "refused" for outcome in outcomes)
        self._refused_text = said.written if is_text and not has_run else None

    def _tool_schemas(self) -> dict[str, Any]:
        return {plan.contract.name: plan.contract.model_schema for plan in self.run.snapshot.plans.values()}


def _add_text(messages: list[Any], text: str) -> None:
    """Let the user say one more thing; where sides take turns, in the message that is there already."""
    last = messages[-1] if messages else None
    content = read_field(last, "content") if read_field(last, "role") == "user" else None
    if isinstance(content, str):
        messages[-1] = {"role": "user", "content": f"{content}\n\n{text}"}
    elif any(read_field(block, "type") == "tool_result" for block in as_sequence(content)):
        messages[-1] = {"role": "user", "content": [*as_sequence(content), {"type": "text", "text": text}]}
    else:
        messages.append({"role": "user", "content": text})


def loop_steps(
    conversation: LoopHistory, rounds: int
) -> Generator[AskModel | RunCalls | AnswerOpenCalls, Any, LoopResult]:
    """The loop. Yields what needs the world; returns how it ended."""
    run = conversation.run
    as_whole_number(rounds, "rounds, the requests that may call tools,")
    yield from conversation.answer_open_calls()
    if (left := conversation.unanswered_reply()) is not None:
        yield from _run_calls(conversation, left)
    for number in range(1, rounds + 2):
        if number == rounds + 1:
            run.tools_off("budget_exhausted")
        if run.mode == "stopped":
            return _end_loop(conversation, run.answer(None), number - 1)
        if conversation.has_overflow:
            run.tools_off("context_overflow")
            return _end_loop(conversation, run.answer(None), number - 1)
        request = conversation.build_request()
        final = run.mode == "final_answer" or number > rounds
        said = conversation.take_reply((yield request))
        if not final and not conversation.is_final(said):
            yield from _run_calls(conversation, said)
            continue
        if not final and not said.refused and not said.written.strip():
            # Nothing is no answer. The next request says so, and takes no calls.
            run.tools_off("loop_detected")
            continue
        # A call in spite of the instruction runs nothing, and its message would want an answer: only its text counts.
        is_shown = all(call.id in said.in_text and isinstance(call.arguments, str) for call in said.calls)
        answer = run.answer(said.written if is_shown or not final else None)
        if said.refused or said.calls or is_cut(said.stop_reason):
            answer = msgspec.structs.replace(answer, verified=False)
        return _end_loop(conversation, answer, number, refused=said.refused)
    raise UsageError(f"cannot ask a model {rounds} times: give the number of requests that may call tools, or 0")


def _run_calls(conversation: LoopHistory, said: Reply) -> Generator[RunCalls, Any, None]:
    """Take the calls of a reply and answer each of them.

    A reply is kept before its calls run, so that a process that ends in between leaves behind what it was about
    to do. One that must not run, or whose message does not hold what it said, is kept together with the answers:
    read again from the history, nobody could tell.
    """
    whole = said.faithful and not is_cut(said.stop_reason)
    if whole:
        conversation.add_messages(said.messages)
    outcomes: Sequence[Outcome] = yield RunCalls(said.calls, said.stop_reason)
    conversation.note_outcomes(said, outcomes)
    for outcome in outcomes:
        conversation.notify_host("outcome", outcome)
    replies = result_messages(outcomes, said.shape, custom=said.custom, in_text=said.in_text)
    conversation.add_messages(replies if whole else [*said.messages, *replies])


def _end_loop(conversation: LoopHistory, answer: Answer, rounds: int, *, refused: bool = False) -> LoopResult:
    conversation.add_messages([{"role": "assistant", "content": answer.text}])
    run = conversation.run
    reason = answer.stop_reason or run.progress.matters.open_reason or "success"
    done = tuple(run.progress.matters.done_tools)
    return LoopResult(answer.text, answer.verified, reason, run.id, rounds, conversation.messages, refused, done)


def begin_history(  # noqa: PLR0917 - the guard's two loops hand on what they were given
    run: RunPort,
    model: object,
    messages: Iterable[Any],
    prompt: str | None,
    format: LoopFormat | None,  # noqa: A002 - the name the other entry points use
    window: int | None,
    on_event: EventCallback | None,
    select: int | None,
) -> LoopHistory:
    """Begin the history of a loop: the messages so far, and the user's text."""
    if not callable(model):
        raise UsageError(f"the model is called with messages and tools, and {model!r} cannot be")
    check_hooks(2, on_event=on_event)
    kind: LoopFormat = format if format is not None else getattr(model, "format", "openai")
    asked = [*as_history(messages), *([] if prompt is None else [{"role": "user", "content": prompt}])]
    return LoopHistory(run, asked, kind, window=window, told=on_event, select=select)


def run_loop(run: RunPort, model: Model, conversation: LoopHistory, rounds: int) -> LoopResult:
    """Drive the loop with a synchronous model.

    Raises:
        UsageError: the model has to be awaited.
    """
    steps = loop_steps(conversation, rounds)
    try:
        step = next(steps)
        while True:
            if isinstance(step, AskModel):
                reply = model(step.messages, step.tools)
                if hasattr(reply, "__await__"):
                    getattr(reply, "close", bool)()  # else Python warns that nobody awaited it
                    raise UsageError("the model is asynchronous: await guard.aloop(...) instead of guard.loop(...)")
                step = steps.send(reply)
            elif isinstance(step, AnswerOpenCalls):
                step = steps.send(run.answer_open_calls(step.messages))
            else:
                step = steps.send(run.call_batch(step.calls, stop_reason=step.stop_reason))
    except StopIteration as end:
        ended: LoopResult = end.value
        return ended


async def arun_loop(run: RunPort, model: Model | AsyncModel, conversation: LoopHistory, rounds: int) -> LoopResult:
    """Drive the loop with a model that is awaited, or not."""
    steps = loop_steps(conversation, rounds)
    try:
        step = next(steps)
        while True:
            if isinstance(step, AskModel):
                reply = model(step.messages, step.tools)
                if hasattr(reply, "__await__"):
                    reply = await reply
                step = steps.send(reply)
            elif isinstance(step, AnswerOpenCalls):
                step = steps.send(await run.aanswer_open_calls(step.messages))
            else:
                step = steps.send(await run.acall_batch(step.calls, stop_reason=step.stop_reason))
    except StopIteration as end:
        ended: LoopResult = end.value
        return ended
