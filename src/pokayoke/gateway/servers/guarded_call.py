"""One call between a client's request and its answer, over a transport that is asynchronous.

In: the parameters of a `tools/call` request, and how they are sent to the server.
Out: the client's result.
Never: a call that is left open because its server or its client has gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.gateway.interceptor import Interceptor, ServerGoneError, interim_kind
from pokayoke.gateway.messages.results import Era
from pokayoke.gateway.runs import Caller

Forward = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Ask = Callable[[dict[str, Any]], Awaitable[Any]]


class ServerErrorAnswer(Exception):  # noqa: N818 - an answer
    """The server has answered with a JSON-RPC error.

    Args:
        error: its `error` member.
    """

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message")))
        self.error = error


async def guard_call(
    interceptor: Interceptor,
    params: Mapping[str, Any],
    caller: Caller,
    forward: Forward,
    *,
    era: Era,
    request_id: object,
    ask: Ask | None = None,
) -> dict[str, Any]:
    """Take a call to its result.

    Args:
        interceptor: guards the tools.
        params: of the request.
        caller: who calls.
        forward: sends parameters to the server and returns its result. It raises `ToolNotStarted` if the server did
            not get them, `ServerErrorAnswer` for an error of the server, and `ServerGoneError` where no answer comes.
        era: the client's.
        request_id: of the request, for the trace.
        ask: puts a question to the person at the client, and returns the `elicitation/create` result; None if the
            client cannot be asked.

    Raises:
        ServerErrorAnswer: the server's error is one that clients handle by themselves.
    """
    pending = await interceptor.abegin(params, caller, era=era, request_id=str(request_id))
    if ask is not None and (question := interceptor.question(pending)) is not None:
        answer = await ask(question)
        pending = await anyio.to_thread.run_sync(interceptor.answer_question, pending, answer)
    if pending.params is None:
        assert pending.answer is not None  # a call without parameters for the server has its answer
        return pending.answer
    try:
        result = await forward(pending.params)
    except (ToolNotStarted, ServerGoneError) as error:
        return await interceptor.aabandon(pending, error)
    except ServerErrorAnswer as answered:
        shown = await interceptor.afinish_error(pending, answered.error)
        if shown is None:
            raise
        return shown
    except BaseException:  # the client has gone, or the gateway ends; nobody knows what the server does
        interceptor.abandon(pending, ServerGoneError("its caller has left before it answered"))
        raise
    if interim_kind(result) == "task":
        return await interceptor.aabandon(
            pending, ServerGoneError("it goes on as a task, whose end is not watched here")
        )
    return await interceptor.afinish(pending, result)
